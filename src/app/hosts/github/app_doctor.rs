//! Checks the GitHub App of the server: its key, its name, the permissions and events that it lacks, its installations, and its webhook.

use super::webhooks::{self, WEBHOOK};
use crate::app::doctor::report::{Findings, Verdict};
use crate::dispatch::Allowlist;
use crate::settings::Settings;
use crate::settings::hosts::github::GithubToken;
use crate::vcs::HostError;
use std::collections::BTreeMap;
use tidelock_hosts::github::{AppFacts, Github, Installation};

const APP: &str = "github app";

/// A permission: its name, its level and what needs it.
type Permission = (&'static str, &'static str, &'static str);

/// Permissions that the App must have.
const NEEDED: [Permission; 4] = [
    ("contents", "read", "git fetches with it"),
    ("issues", "write", "comments and reactions"),
    ("pull_requests", "write", "pull requests and their reviews"),
    ("statuses", "write", "commit statuses"),
];
/// Permission that `--gh-checks` needs. GitHub subscribes each App with it to `check_run` (github.com/orgs/community, discussion 210531).
const OF_CHECKS: Permission = ("checks", "write", "check runs, --gh-checks");
/// Permissions that only some settings need.
const USEFUL: [Permission; 4] = [
    ("contents", "write", "merging (automerge) needs it"),
    ("members", "read", "rules by team (--gh-team-allowlist, teams in repos.yaml) need it"),
    ("merge_queues", "read", "GitHub tells of merge queues with it alone"),
    ("checks", "read", "--gh-allow-mergeable-bypass-apply needs it"),
];

/// Returns the permissions without which the App cannot do what the settings demand.
fn needed(settings: &Settings) -> Vec<Permission> {
    let mut needed = NEEDED.to_vec();
    if settings.hosts.github.as_ref().is_some_and(|github| github.checks) {
        needed.push(OF_CHECKS);
    }
    needed
}

/// Checks the App and reports its faults; returns false if GitHub does not know it.
pub(super) async fn check(github: &Github, settings: &Settings, events: &str, findings: &mut Findings) -> bool {
    let (facts, installations) = match github.app().await {
        Ok(Some(found)) => found,
        Ok(None) => return false,
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            findings.fault(APP, error.to_string(), "--gh-app-id and --gh-app-key-file have to be those of one App");
            return false;
        }
        Err(error) => {
            findings.fault(APP, error.to_string(), "check --gh-hostname, the network, and whether the host is well");
            return false;
        }
    };
    name(settings, &facts, findings);
    let needed = needed(settings);
    allowed(&facts, &needed, findings);
    installed(settings, &needed, &facts, &installations, findings);
    // A server that polls gets no events.
    if settings.poll.is_none() {
        check_events(&facts, findings);
        webhook(github, events, &facts, findings).await;
    }
    true
}

fn name(settings: &Settings, facts: &AppFacts, findings: &mut Findings) {
    let given = settings.hosts.github.as_ref().and_then(|github| match &github.token {
        Some(GithubToken::App(app)) => app.slug.clone(),
        _ => None,
    });
    match given {
        Some(given) if !given.eq_ignore_ascii_case(&facts.slug) => {
            let text = format!("the App is called {} and --gh-app-slug is {given}", facts.slug);
            findings.warn(APP, text, &format!("--gh-app-slug={}", facts.slug));
        }
        _ => findings.fine(APP, format!("the server is {}[bot], {}", facts.slug, facts.page)),
    }
}

/// Returns true if a permission has at least this level.
fn has(permissions: &BTreeMap<String, String>, name: &str, level: &str) -> bool {
    permissions.get(name).is_some_and(|given| given == level || given == "write" || given == "admin")
}

fn allowed(facts: &AppFacts, needed: &[Permission], findings: &mut Findings) {
    let page = format!("{}, Permissions & events, of the App's settings", facts.page);
    let lacks = |(name, level, _): &&Permission| !has(&facts.permissions, name, level);
    for (name, level, why) in needed.iter().filter(lacks) {
        let mend = format!("give it at {page}; then each account has to accept it");
        findings.fault(APP, format!("it lacks the permission {name}: {level} ({why})"), &mend);
    }
    for (name, level, why) in USEFUL.iter().filter(|(name, level, _)| !has(&facts.permissions, name, level)) {
        findings.unknown(APP, format!("it lacks the permission {name}: {level}; {why}"), "");
    }
}

fn check_events(facts: &AppFacts, findings: &mut Findings) {
    let page = format!("{}, Permissions & events, of the App's settings", facts.page);
    for event in webhooks::NEEDED.iter().filter(|event| !facts.events.iter().any(|known| known == *event)) {
        findings.fault(APP, format!("it is not told of the event {event}"), &format!("choose it at {page}"));
    }
    for event in webhooks::QUEUE.iter().filter(|event| !facts.events.iter().any(|known| known == *event)) {
        let text = format!("it is not told of the event {event}, without which a merge queue waits in vain");
        findings.unknown(APP, text, &format!("choose it at {page} if a repository has a merge queue"));
    }
}

fn installed(
    settings: &Settings,
    needed: &[Permission],
    facts: &AppFacts,
    installations: &[Installation],
    findings: &mut Findings,
) {
    if installations.is_empty() {
        let mend = format!("install it at {}/installations/new", facts.page);
        findings.fault(APP, "nobody has installed it", &mend);
        return;
    }
    for one in installations {
        if one.suspended {
            let text = format!("{} has suspended its installation", one.account);
            findings.fault(APP, text, &format!("an owner of {} can resume it at {}", one.account, one.page));
            continue;
        }
        let missing: Vec<&str> = needed
            .iter()
            .filter(|(name, level, _)| has(&facts.permissions, name, level) && !has(&one.permissions, name, level))
            .map(|(name, ..)| *name)
            .collect();
        if missing.is_empty() {
            findings.fine(APP, format!("{} has installed it", one.account));
        } else {
            let text = format!("{} has not accepted the permissions {}", one.account, missing.join(", "));
            findings.fault(APP, text, &format!("an owner of {} can accept them at {}", one.account, one.page));
        }
    }
    let only = settings.hosts.github.as_ref().and_then(|github| match &github.token {
        Some(GithubToken::App(app)) => app.installation_id,
        _ => None,
    });
    if let Some(id) = only.filter(|id| !installations.iter().any(|one| one.id == *id)) {
        let ids: Vec<String> = installations.iter().map(|one| format!("{} ({})", one.id, one.account)).collect();
        let text = format!("there is no installation {id}; there are {}", ids.join(", "));
        findings.fault(APP, text, "correct --gh-app-installation-id, or leave it out");
    }
    owners(settings, facts, installations, findings);
}

/// Reports owners in the allowlist that have not installed the App, and installations of owners that are not in it.
fn owners(settings: &Settings, facts: &AppFacts, installations: &[Installation], findings: &mut Findings) {
    let allowlist = Allowlist::new(&settings.repo_allowlist);
    for rule in settings.repo_allowlist.iter().filter(|rule| !rule.starts_with('!')) {
        let Some(owner) = rule.trim().split('/').nth(1).filter(|owner| !owner.contains('*')) else { continue };
        if !installations.iter().any(|one| one.account.eq_ignore_ascii_case(owner)) {
            let mend = format!("install it for {owner} at {}/installations/new", facts.page);
            findings.fault(APP, format!("{rule} is in --repo-allowlist, and {owner} has not installed it"), &mend);
        }
    }
    let host = settings.hosts.github.as_ref().map(|github| github.hostname.clone()).unwrap_or_default();
    for one in installations {
        let any = crate::domain::RepoId { host: host.clone(), owner: one.account.clone(), name: "x".into() };
        let is_named = settings.repo_allowlist.iter().any(|rule| rule.contains(one.account.as_str()));
        if !allowlist.allows(&any) && !is_named {
            let text = format!("{} has installed it, and --repo-allowlist has none of its repositories", one.account);
            findings.unknown(APP, text, "");
        }
    }
}

async fn webhook(github: &Github, events: &str, facts: &AppFacts, findings: &mut Findings) {
    let page = format!("{}, General, of the App's settings", facts.page);
    let mut hook = match github.app_webhook().await {
        Ok(hook) => hook,
        Err(error) => {
            findings.unknown(WEBHOOK, format!("the App's webhook cannot be read: {error}"), &format!("look at {page}"));
            return;
        }
    };
    hook.events.clone_from(&facts.events);
    if hook.url != events {
        let text = match hook.url.as_str() {
            "" => format!("the App has no webhook; it has to come to {events}"),
            url => format!("the App's webhook comes to {url} and not to {events}"),
        };
        findings.fault(WEBHOOK, text, &format!("correct its URL at {page}"));
        return;
    }
    webhooks::hear(github, events, std::slice::from_mut(&mut hook)).await;
    let judged = webhooks::judge(&hook);
    if judged.is_empty() {
        findings.fine(WEBHOOK, format!("the App's comes to {events}, its last delivery was taken"));
    }
    // `allowed` has reported the missing events.
    for (verdict, text, mend) in judged.into_iter().filter(|(_, text, _)| !text.starts_with("lacks the events")) {
        let mend = if mend.is_empty() || verdict == Verdict::Unknown { mend } else { format!("{mend}: {page}") };
        findings.add(WEBHOOK, verdict, format!("the App's {text}"), &mend);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permissions(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned())).collect()
    }

    #[test]
    fn each_permission_and_event_that_is_missing_is_named() {
        let given = permissions(&[("contents", "write"), ("issues", "read"), ("statuses", "write")]);
        let page = "https://github.com/apps/x".to_owned();
        let facts = AppFacts { slug: "x".into(), permissions: given, events: vec!["issue_comment".into()], page };
        let mut findings = Findings::default();
        allowed(&facts, &[&NEEDED[..], &[OF_CHECKS]].concat(), &mut findings);
        check_events(&facts, &mut findings);
        let text = findings.text();
        for said in [
            "the permission checks: write",
            "the permission issues: write",
            "the permission pull_requests: write",
            "the event pull_request",
            "members",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        for not in ["statuses", "contents", "event issue_comment"] {
            assert!(!text.contains(not), "{not}: {text}");
        }
    }
}
