//! Checks the webhooks that should deliver to us: that they exist, that they are configured correctly, and our answer to the last
//! delivery.

use crate::app::doctor::report::{Findings, Verdict};
use crate::domain::RepoId;
use crate::vcs::{HostError, RepoAccess, Webhook};
use std::collections::BTreeMap;
use tidelock_hosts::github::{Github, pages_url};
use url::Url;

pub(super) const WEBHOOK: &str = "webhook";
/// Maximum number of repositories whose webhooks are checked; those of organizations cover the rest.
const MAX_REPOS: usize = 50;
/// Events that cause work, those of a merge queue, and those without which the server learns of reviews and pushes only in its rounds.
pub(super) const NEEDED: [&str; 2] = ["pull_request", "issue_comment"];
pub(super) const QUEUE: [&str; 1] = ["merge_group"];
pub(super) const USUAL: [&str; 2] = ["pull_request_review", "push"];

/// Checks that every served repository has a webhook that delivers to us, its own or its organization's.
pub(super) async fn check(
    github: &Github,
    api_url: &str,
    events: &str,
    served: &[RepoAccess],
    findings: &mut Findings,
) {
    let pages = &pages_url(api_url);
    // For each owner: true if one of its webhooks delivers to us; none if they cannot be read.
    let mut owners: BTreeMap<&str, Option<bool>> = BTreeMap::new();
    for access in served.iter().filter(|access| access.of_organization) {
        let owner = access.repo.owner.as_str();
        if owners.contains_key(owner) {
            continue;
        }
        let page = format!("{pages}/organizations/{owner}/settings/hooks");
        let known = match github.organization_webhooks(owner).await {
            Ok(mut hooks) => {
                hear(github, events, &mut hooks).await;
                Some(judge_all(owner, &page, events, &hooks, findings))
            }
            Err(_) => None,
        };
        owners.insert(owner, known);
    }
    let mut left_out = 0;
    let covered = |access: &&RepoAccess| owners.get(access.repo.owner.as_str()) != Some(&Some(true));
    for (place, access) in served.iter().filter(covered).enumerate() {
        if place >= MAX_REPOS {
            left_out += 1;
            continue;
        }
        one_repository(github, pages, events, &access.repo, &owners, findings).await;
    }
    if left_out > 0 {
        let mend = "a webhook of the organization would serve all";
        findings.unknown(WEBHOOK, format!("{left_out} more repositories were not checked"), mend);
    }
}

async fn one_repository(
    github: &Github,
    pages: &str,
    events: &str,
    repo: &RepoId,
    owners: &BTreeMap<&str, Option<bool>>,
    findings: &mut Findings,
) {
    let name = repo.full_name();
    let page = format!("{pages}/{name}/settings/hooks");
    match github.repository_webhooks(repo).await {
        Ok(mut hooks) => {
            hear(github, events, &mut hooks).await;
            if judge_all(&name, &page, events, &hooks, findings) {
                return;
            }
            if owners.get(repo.owner.as_str()) == Some(&None) {
                let mend = format!("look at {pages}/organizations/{}/settings/hooks; the token may not", repo.owner);
                findings.unknown(
                    WEBHOOK,
                    format!("{name} has none that comes to {events}; its organization may have one"),
                    &mend,
                );
            } else {
                let mend = format!(
                    "add one at {page}/new: payload URL {events}, content type application/json, the secret of \
                     --gh-webhook-secret, events pull requests, issue comments, merge groups, pull \
                     request reviews, pushes"
                );
                findings.fault(WEBHOOK, format!("{name} has none that comes to {events}"), &mend);
            }
        }
        Err(HostError::Denied { .. } | HostError::NotFound { .. }) => {
            let mend = format!(
                "look at {page}, or give the token the right to read webhooks (admin:repo_hook; Webhooks: read)"
            );
            findings.unknown(WEBHOOK, format!("the token may not read those of {name}"), &mend);
        }
        Err(error) => findings.unknown(WEBHOOK, error.to_string(), "run the doctor again"),
    }
}

/// Returns true if one of them delivers to us, and reports its faults.
fn judge_all(whose: &str, page: &str, events: &str, hooks: &[Webhook], findings: &mut Findings) -> bool {
    let ours: Vec<&Webhook> = hooks.iter().filter(|hook| hook.url == events).collect();
    if ours.is_empty() {
        for near in hooks.iter().filter(|hook| same_host(&hook.url, events)) {
            let mend = format!("correct its payload URL at {page}: {events}");
            findings.fault(WEBHOOK, format!("{whose}: one comes to {} and not to {events}", near.url), &mend);
        }
    }
    if ours.len() > 1 {
        let text = format!("{whose}: {} webhooks come to {events}; each delivery comes as often", ours.len());
        findings.warn(WEBHOOK, text, &format!("leave one at {page}"));
    }
    for hook in &ours {
        let judged = judge(hook);
        if judged.is_empty() {
            findings.fine(WEBHOOK, format!("{whose}: comes to {events}, its last delivery was taken"));
        }
        for (verdict, text, mend) in judged {
            let mend = if mend.is_empty() { mend } else { format!("{mend}: {page}") };
            findings.add(WEBHOOK, verdict, format!("{whose}: {text}"), &mend);
        }
    }
    !ours.is_empty()
}

fn same_host(one: &str, other: &str) -> bool {
    let host = |url: &str| Url::parse(url).ok().and_then(|url| Some((url.host_str()?.to_owned(), url.port())));
    host(one).is_some() && host(one) == host(other)
}

/// Returns the faults of a webhook that delivers to us, with their remedies.
pub(super) fn judge(hook: &Webhook) -> Vec<(Verdict, String, String)> {
    let mut wrong = Vec::new();
    let mut say = |verdict, text: String, mend: &str| wrong.push((verdict, text, mend.to_owned()));
    if !hook.active {
        say(Verdict::Fault, "is switched off".into(), "switch it on (Active)");
    }
    if !hook.json {
        say(Verdict::Fault, "sends forms".into(), "choose the content type application/json");
    }
    if !hook.verifies_tls && hook.url.starts_with("https:") {
        say(Verdict::Warning, "does not check our certificate".into(), "enable SSL verification");
    }
    let missing = |wanted: &[&str]| -> Vec<String> {
        let has = |name: &&&str| hook.events.iter().any(|event| event == *name || event == "*");
        wanted.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect()
    };
    let (needed, queue, usual) = (missing(&NEEDED), missing(&QUEUE), missing(&USUAL));
    if !needed.is_empty() {
        say(Verdict::Fault, format!("lacks the events {}", needed.join(", ")), "choose them");
    }
    if !queue.is_empty() {
        let text = format!("lacks the events {}, without which a merge queue waits in vain", queue.join(", "));
        say(Verdict::Unknown, text, "choose them if a repository has a merge queue");
    }
    if !usual.is_empty() {
        let text = format!(
            "lacks the events {}: a refused automerge is not retried after a review, and in mode strict a push to the base branch \
             invalidates plans only within --reconcile-interval",
            usual.join(", ")
        );
        say(Verdict::Unknown, text, "choose them");
    }
    if let Some((verdict, text, mend)) = last_delivery(hook) {
        say(verdict, text, mend);
    }
    wrong
}

/// Adds our answer to the last delivery of each webhook that delivers to us, if that delivery failed: the host's list of webhooks has
/// only the status.
pub(super) async fn hear(github: &Github, events: &str, hooks: &mut [Webhook]) {
    for hook in hooks.iter_mut().filter(|hook| hook.url == events && hook.was_used) {
        if !hook.last_status.is_some_and(|status| (200..300).contains(&status)) {
            // The status is reported without it too.
            hook.last_answer = github.last_answer(hook).await.unwrap_or_default();
        }
    }
}

fn last_delivery(hook: &Webhook) -> Option<(Verdict, String, &'static str)> {
    if !hook.was_used {
        return Some((Verdict::Unknown, "has delivered nothing yet".into(), ""));
    }
    let status = hook.last_status.unwrap_or_default();
    let answer = hook.last_answer.as_str();
    let mend = match status {
        200..=299 => return None,
        // These are the server's own refusals; any other text comes from something in front of it.
        400 if answer.contains("--gh-hostname") => "--gh-hostname has to name the host that delivers",
        400 => "see its recent deliveries",
        401 | 429 => "give it the secret of --gh-webhook-secret",
        403 if answer.contains("--trusted-proxy-hops") => {
            "set --trusted-proxy-hops to the number of proxies before the server"
        }
        403 if answer.contains("--webhook-allowlist") => "let the host's addresses in (--webhook-allowlist)",
        403 => {
            "something before the server refused it: let the host's addresses in (Cloud Armor, ingress), then deliver again"
        }
        301..=308 | 404 | 405 => "its payload URL has to lead to the server's /events without a redirect",
        0 => "the host got no answer: check DNS, certificate and load balancer, then deliver again",
        _ => "see the server's log, then deliver again",
    };
    let said = if answer.is_empty() { hook.last_message.as_str() } else { answer };
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    Some((Verdict::Fault, format!("its last delivery was answered {status}{said}"), mend))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Webhook {
        Webhook {
            url: "https://tidelock.example.com/events".into(),
            active: true,
            json: true,
            verifies_tls: true,
            events: NEEDED.iter().chain(&QUEUE).chain(&USUAL).map(|event| (*event).to_owned()).collect(),
            was_used: true,
            last_status: Some(200),
            last_message: "OK".into(),
            ..Webhook::default()
        }
    }

    #[test]
    fn each_fault_of_a_webhook_is_found_alone() {
        let change = |change: &dyn Fn(&mut Webhook)| {
            let mut hook = sound();
            change(&mut hook);
            judge(&hook)
                .into_iter()
                .map(|(verdict, text, _)| format!("{verdict:?}: {text}"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(change(&|_| {}), "");
        assert_eq!(change(&|hook| hook.events = vec!["*".into()]), "");
        assert_eq!(change(&|hook| hook.active = false), "Fault: is switched off");
        assert_eq!(change(&|hook| hook.json = false), "Fault: sends forms");
        assert_eq!(change(&|hook| hook.verifies_tls = false), "Warning: does not check our certificate");
        assert_eq!(change(&|hook| drop(hook.events.remove(0))), "Fault: lacks the events pull_request");
        let queue = "Unknown: lacks the events merge_group, without which a merge queue waits in vain";
        assert_eq!(change(&|hook| hook.events.retain(|event| event != "merge_group")), queue);
        assert_eq!(change(&|hook| hook.was_used = false), "Unknown: has delivered nothing yet");
        let answered = |status: u16| change(&|hook| hook.last_status = Some(status));
        assert_eq!(answered(202), "");
        assert_eq!(answered(401), "Fault: its last delivery was answered 401: OK");
        assert_eq!(change(&|hook| hook.last_status = None), "Fault: its last delivery was answered 0: OK");
    }

    #[test]
    fn the_cause_of_a_refusal_is_taken_from_our_own_words() {
        let refused = |status: u16, answer: &str| {
            let hook = Webhook { last_status: Some(status), last_answer: answer.into(), ..sound() };
            let (_, text, mend) = last_delivery(&hook).unwrap();
            assert!(text.ends_with(&format!("{status}: {}", if answer.is_empty() { "OK" } else { answer })), "{text}");
            mend
        };
        let address = "deliveries from 192.0.2.1 are not taken: --webhook-allowlist does not name that address";
        assert!(refused(403, address).contains("(--webhook-allowlist)"));
        assert!(refused(403, "X-Forwarded-For has not what --trusted-proxy-hops=1 adds").contains("number of proxies"));
        assert!(refused(403, "<html>Forbidden</html>").contains("before the server"));
        assert!(refused(403, "").contains("before the server"));
        assert!(refused(400, "clone_url is not at x: is --gh-hostname right?").contains("--gh-hostname has to"));
        assert!(refused(429, "too many deliveries with a wrong signature").contains("--gh-webhook-secret"));
    }

    #[test]
    fn a_webhook_to_another_path_of_ours_is_named() {
        let mut findings = Findings::default();
        let events = "https://tidelock.example.com/events";
        let near = Webhook { url: format!("{events}/"), ..sound() };
        let other = Webhook { url: "https://ci.example.com/hook".into(), ..sound() };
        assert!(!judge_all("acme", "PAGE", events, &[other, near], &mut findings));
        let text = findings.text();
        assert!(text.contains("one comes to https://tidelock.example.com/events/ and not"), "{text}");
        assert!(!text.contains("ci.example.com"), "{text}");
    }

    #[test]
    fn pages_are_found_from_the_api() {
        for (api, expected) in [
            ("https://api.github.com", "https://github.com"),
            ("https://git.acme.com/api/v3", "https://git.acme.com"),
            ("https://api.acme.ghe.com", "https://acme.ghe.com"),
            ("http://127.0.0.1:80/api/v3", "http://127.0.0.1:80"),
        ] {
            assert_eq!(pages_url(api), expected);
        }
    }
}
