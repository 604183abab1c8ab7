//! Checks GitHub: the token, its rights and its rate limit, and that entries of `repos.yaml` match served repositories.

use super::{app_doctor, client, webhooks};
use crate::app::doctor::report::Findings;
use crate::config::global::GlobalConfig;
use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::settings::hosts::github::{GithubSettings, GithubToken};
use crate::vcs::{Host as _, HostError, RepoAccess};
use tidelock_hosts::github::Github;

const GITHUB: &str = "github";
/// Maximum number of names in one line.
const SHOWN: usize = 5;

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.github else { return findings };
    let Some(github) = client(options, settings) else {
        findings.fine(GITHUB, "there is no token, and --events-only needs none");
        return findings;
    };
    if let Some(GithubToken::App(_)) = &options.token {
        if app_doctor::check(&github, settings, events, &mut findings).await {
            let served = repositories(&github, settings, options, &mut findings).await;
            rules(settings, &served, &mut findings);
            budget(&github, &mut findings);
        }
    } else if account(&github, options, &mut findings).await {
        let served = repositories(&github, settings, options, &mut findings).await;
        rules(settings, &served, &mut findings);
        if settings.poll.is_none() {
            webhooks::check(&github, &options.api_url, events, &served, &mut findings).await;
        }
        budget(&github, &mut findings);
    }
    findings
}

/// Checks the token and its account; returns false if the token cannot be used.
async fn account(github: &Github, options: &GithubSettings, findings: &mut Findings) -> bool {
    let user = &options.user;
    match github.login().await {
        Ok(login) if login.as_str().eq_ignore_ascii_case(user) => {
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

/// Returns the served repositories that the token can read, and reports on them.
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
    let invite = match options.token {
        Some(GithubToken::App(_)) => "install the App there, and give it those repositories".to_owned(),
        _ => format!("give {} write access there, and accept the invitation as {0}", options.user),
    };
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

/// Reports entries of `repos.yaml` that match no served repository: their requirements have no effect.
fn rules(settings: &Settings, served: &[RepoAccess], findings: &mut Findings) {
    let Some((origin, text)) = &settings.repo_config else { return };
    // Errors in the file have been reported before.
    let Ok(global) = GlobalConfig::parse(text, origin) else { return };
    let repos: Vec<&RepoId> = served.iter().map(|access| &access.repo).collect();
    if repos.is_empty() {
        return;
    }
    let idle = global.ids_of_none(&repos);
    for id in idle.iter().take(SHOWN) {
        let text = format!("{origin}: `id: {id}` is for none of the {} repositories that are served", repos.len());
        let first = repos.first().map(|repo| repo.to_string()).unwrap_or_default();
        findings.warn(GITHUB, text, &format!("write it as {first} is written, or as a regular expression in slashes"));
    }
    if idle.len() > SHOWN {
        findings.warn(GITHUB, format!("{origin}: so are {} more", idle.len() - SHOWN), "");
    }
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
            let mend = "does something else use this token? Requests that no command waits for are postponed meanwhile";
            if budget.is_low() { findings.warn(GITHUB, text, mend) } else { findings.fine(GITHUB, text) }
        }
    }
}
