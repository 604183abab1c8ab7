//! GitHub: the token, what it may do, how much it may still ask, and the webhooks that should come to us.

use super::report::{Findings, Verdict};
use crate::app::services;
use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::{GithubSettings, Settings};
use crate::vcs::github::{Github, pages_url};
use crate::vcs::{Host as _, HostError, RepoAccess, Webhook};
use std::collections::BTreeMap;
use url::Url;

const GITHUB: &str = "github";
const WEBHOOK: &str = "webhook";
/// Repositories whose webhooks are looked at; those of organizations cover the rest.
const MAX_REPOS: usize = 50;
/// Names that one line shows.
const SHOWN: usize = 5;
/// Events that cause work, and those that Atlantis' documentation asks for besides.
const NEEDED: [&str; 2] = ["pull_request", "issue_comment"];
const USUAL: [&str; 2] = ["pull_request_review", "push"];

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Ok(options) = services::github(settings) else { return findings };
    let Ok(github) = services::github_host(options) else {
        findings.fine(GITHUB, "there is no token, and --events-only needs none");
        return findings;
    };
    if account(&github, options, &mut findings).await {
        let served = repositories(&github, settings, options, &mut findings).await;
        webhooks(&github, &pages_url(&options.api_url), events, &served, &mut findings).await;
        budget(&github, &mut findings);
    }
    findings
}

/// Whether the token is good at all.
async fn account(github: &Github, options: &GithubSettings, findings: &mut Findings) -> bool {
    let user = &options.user;
    match github.login().await {
        Ok(login) if login.eq_ignore_ascii_case(user) => {
            findings.fine(GITHUB, format!("the token is {login}'s on {}", options.hostname));
            true
        }
        Ok(login) => {
            let mend = format!("--gh-user={login}, or a token of {user}");
            findings.fault(GITHUB, format!("the token is {login}'s, and --gh-user is {user}"), &mend);
            true
        }
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            let mend = format!("make a new token for {user} and give it as TIDELOCK_GH_TOKEN or --gh-token-file");
            findings.fault(GITHUB, format!("the token is not taken: {error}"), &mend);
            false
        }
        Err(error) => {
            let mend = "check --gh-hostname, the network, and whether the host is well";
            findings.fault(GITHUB, error.to_string(), mend);
            false
        }
    }
}

/// The repositories that are served, as far as the token sees them.
async fn repositories(
    github: &Github,
    settings: &Settings,
    options: &GithubSettings,
    findings: &mut Findings,
) -> Vec<RepoAccess> {
    let seen = match github.repositories().await {
        Ok(seen) => seen,
        Err(error) => {
            let mend = "the doctor cannot tell which repositories the token may write to: see its page at the host";
            findings.unknown(GITHUB, error.to_string(), mend);
            return Vec::new();
        }
    };
    let allowlist = Allowlist::new(&settings.repo_allowlist);
    let served: Vec<RepoAccess> =
        seen.into_iter().filter(|access| !access.archived && allowlist.allows(&access.repo)).collect();
    let invite = format!("give {} write access there, and accept the invitation as {0}", options.user);
    for rule in settings.repo_allowlist.iter().filter(|rule| !rule.contains(['*', '!'])) {
        if !served.iter().any(|access| access.repo.to_string().eq_ignore_ascii_case(rule.trim())) {
            findings.fault(GITHUB, format!("{rule} is in --repo-allowlist, and the token does not see it"), &invite);
        }
    }
    let (may, may_not): (Vec<_>, Vec<_>) = served.iter().partition(|access| access.can_write);
    if served.is_empty() {
        let text =
            format!("the token sees no repository that --repo-allowlist={} allows", settings.repo_allowlist.join(","));
        findings.fault(GITHUB, text, &invite);
    }
    if !may.is_empty() {
        findings.fine(GITHUB, format!("may write to {}", names(&may)));
    }
    if !may_not.is_empty() {
        let text = format!("may not write to {}: statuses cannot be set there", names(&may_not));
        findings.fault(GITHUB, text, &invite);
    }
    served
}

fn names(list: &[&RepoAccess]) -> String {
    let shown: Vec<String> = list.iter().take(SHOWN).map(|access| access.repo.full_name()).collect();
    let more = list.len().saturating_sub(SHOWN);
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn budget(github: &Github, findings: &mut Findings) {
    match github.budget() {
        None => findings.unknown(GITHUB, "the host tells no rate limit", ""),
        Some(budget) => {
            let text = format!("{} of {} requests of this hour are left", budget.left, budget.all);
            let mend = "does something else use this token? What nobody waits for is put off meanwhile";
            if budget.is_low() { findings.warn(GITHUB, text, mend) } else { findings.fine(GITHUB, text) }
        }
    }
}

/// Every served repository needs one webhook that comes to us, its own or its organization's.
async fn webhooks(github: &Github, pages: &str, events: &str, served: &[RepoAccess], findings: &mut Findings) {
    // What is known of an owner's webhooks: whether one comes to us; nothing where they cannot be read.
    let mut owners: BTreeMap<&str, Option<bool>> = BTreeMap::new();
    for access in served.iter().filter(|access| access.of_organization) {
        let owner = access.repo.owner.as_str();
        if owners.contains_key(owner) {
            continue;
        }
        let page = format!("{pages}/organizations/{owner}/settings/hooks");
        let read = github.organization_webhooks(owner).await;
        let known = read.ok().map(|hooks| judge_all(owner, &page, events, &hooks, findings));
        owners.insert(owner, known);
    }
    let mut left_out = 0;
    let covered = |access: &&RepoAccess| owners.get(access.repo.owner.as_str()) != Some(&Some(true));
    for (place, access) in served.iter().filter(covered).enumerate() {
        if place >= MAX_REPOS {
            left_out += 1;
            continue;
        }
        let organization = owners.get(access.repo.owner.as_str()).copied();
        one_repository(github, pages, events, &access.repo, organization == Some(None), findings).await;
    }
    if left_out > 0 {
        let mend = "a webhook of the organization would serve all";
        findings.unknown(WEBHOOK, format!("{left_out} more repositories were not looked at"), mend);
    }
}

async fn one_repository(
    github: &Github,
    pages: &str,
    events: &str,
    repo: &RepoId,
    owner_unknown: bool,
    findings: &mut Findings,
) {
    let name = repo.full_name();
    let page = format!("{pages}/{name}/settings/hooks");
    match github.repository_webhooks(repo).await {
        Ok(hooks) => {
            if judge_all(&name, &page, events, &hooks, findings) {
                return;
            }
            if owner_unknown {
                let mend = format!("look at {pages}/organizations/{}/settings/hooks; the token may not", repo.owner);
                findings.unknown(
                    WEBHOOK,
                    format!("{name} has none that comes to {events}; its organization may have one"),
                    &mend,
                );
            } else {
                let mend = format!(
                    "add one at {page}/new: payload URL {events}, content type application/json, the secret of \
                     --gh-webhook-secret, events pull requests, issue comments, pull request reviews, pushes"
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

/// Whether one of them comes to us; what is wrong with it is found out too.
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

/// What is wrong with a webhook that comes to us, with its mend.
fn judge(hook: &Webhook) -> Vec<(Verdict, String, String)> {
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
    let (needed, usual) = (missing(&NEEDED), missing(&USUAL));
    if !needed.is_empty() {
        say(Verdict::Fault, format!("lacks the events {}", needed.join(", ")), "choose them");
    }
    if !usual.is_empty() {
        let text = format!("lacks the events {}, which cause no work yet", usual.join(", "));
        say(Verdict::Unknown, text, "");
    }
    if let Some((verdict, text, mend)) = last_delivery(hook) {
        say(verdict, text, mend);
    }
    wrong
}

fn last_delivery(hook: &Webhook) -> Option<(Verdict, String, &'static str)> {
    if !hook.was_used {
        return Some((Verdict::Unknown, "has delivered nothing yet".into(), ""));
    }
    let status = hook.last_status.unwrap_or_default();
    let mend = match status {
        200..=299 => return None,
        401 => "give it the secret of --gh-webhook-secret",
        403 => "let the host's addresses in (webhook-allowlist, Cloud Armor), then deliver again",
        301..=308 | 404 | 405 => "its payload URL has to lead to the server's /events without a redirect",
        0 => "the host got no answer: check DNS, certificate and load balancer, then deliver again",
        _ => "see the server's log, then deliver again",
    };
    let said = if hook.last_message.is_empty() { String::new() } else { format!(" ({})", hook.last_message) };
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
            events: NEEDED.iter().chain(&USUAL).map(|event| (*event).to_owned()).collect(),
            was_used: true,
            last_status: Some(200),
            last_message: "OK".into(),
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
        assert_eq!(change(&|hook| hook.was_used = false), "Unknown: has delivered nothing yet");
        let answered = |status: u16| change(&|hook| hook.last_status = Some(status));
        assert_eq!(answered(202), "");
        assert_eq!(answered(401), "Fault: its last delivery was answered 401 (OK)");
        assert_eq!(change(&|hook| hook.last_status = None), "Fault: its last delivery was answered 0 (OK)");
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
