//! Checks Gitea: the token, its account and scopes, our rights in the served repositories, and the webhooks that should deliver to us.

mod hooks;

use super::super::served::{RepositoryReader, names, wanted};
use super::client;
use crate::app::doctor::report::Findings;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::settings::hosts::gitea::GiteaSettings;
use crate::vcs::{Host as _, HostError};
use tidelock_hosts::gitea::{Gitea, GiteaRepository, scopes_in};

const GITEA: &str = "gitea";
/// Scopes of the token, with what lacks without them. A scope to write includes that to read.
const SCOPES: [(&str, &str); 4] = [
    ("write:repository", "no status can be set, and nothing is merged"),
    ("write:issue", "nothing can be posted"),
    ("read:user", "the account is not checked"),
    ("read:organization", "nobody is a member of a team"),
];
/// Scope of a token that sees public repositories only.
const PUBLIC_ONLY: &str = "public-only";
/// Maximum number of repositories that are looked at one by one.
const MAX_REPOSITORIES: usize = 50;

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.gitea else { return findings };
    let Some(gitea) = client(options, settings) else {
        findings.fine(GITEA, "there is no token, and --events-only needs none");
        return findings;
    };
    if !account(&gitea, options, &mut findings).await {
        return findings;
    }
    match gitea.token_scopes().await {
        Ok(scopes) => judge_scopes(scopes.as_deref(), &mut findings),
        Err(error) => findings.unknown(GITEA, format!("the token's scopes are not known: {error}"), ""),
    }
    let served = repositories(&gitea, settings, options, &mut findings).await;
    if settings.poll.is_none() {
        hooks::check(&gitea, options, events, &served, &mut findings).await;
    }
    findings
}

/// Checks the host, the token and its account; returns false if the token cannot be used.
async fn account(gitea: &Gitea, options: &GiteaSettings, findings: &mut Findings) -> bool {
    let user = &options.user;
    let host = match gitea.version().await {
        Ok(version) if version.is_forgejo => format!("{} (Forgejo {})", options.hostname, version.version),
        Ok(version) => format!("{} (Gitea {})", options.hostname, version.version),
        Err(_) => options.hostname.clone(),
    };
    match gitea.account().await {
        Ok(account) if account.login.as_str().eq_ignore_ascii_case(user) => {
            findings.fine(GITEA, format!("the token is {}'s on {host}", account.login));
            if account.is_admin {
                let text = format!("{user} administers the instance: the server needs no such right");
                findings.warn(GITEA, text, "use an account of its own, which is a collaborator or in a team");
            }
        }
        Ok(account) => {
            let text = format!("the token is {}'s on {host}, and --gitea-user is {user}", account.login);
            findings.fault(GITEA, text, &format!("--gitea-user={}, or a token of {user}", account.login));
        }
        // The token is known, and lacks the scope to say whose it is.
        Err(error) if scopes_in(&error).is_some() => {
            findings.unknown(GITEA, format!("the token is taken on {host}; whose it is, it may not tell"), "");
        }
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            let mend =
                format!("make a new token for {user}, and give it as TIDELOCK_GITEA_TOKEN or --gitea-token-file");
            findings.fault(GITEA, format!("the token is not taken: {error}"), &mend);
            return false;
        }
        Err(error) => {
            let mend = "check --gitea-base-url, the network, and whether the host is well";
            findings.fault(GITEA, error.to_string(), mend);
            return false;
        }
    }
    true
}

/// Reports on the token's scopes; absent ones are those of a token for everything.
fn judge_scopes(scopes: Option<&[String]>, findings: &mut Findings) {
    let Some(scopes) = scopes else {
        let text = "the token has the scopes of an administrator, which the server does not need";
        let wanted = SCOPES.map(|(scope, _)| scope).join(", ");
        return findings.warn(GITEA, text, &format!("make one with the scopes {wanted} only"));
    };
    let has = |wanted: &str| {
        let to_write = wanted.replacen("read:", "write:", 1);
        scopes.iter().any(|scope| scope == "all" || scope == wanted || *scope == to_write)
    };
    let missing: Vec<_> = SCOPES.iter().filter(|(scope, _)| !has(scope)).collect();
    for (scope, without) in &missing {
        let (text, mend) =
            (format!("the token lacks the scope {scope}: {without}"), format!("make a token with {scope}"));
        if scope.starts_with("write:") {
            findings.fault(GITEA, text, &mend);
        } else {
            findings.warn(GITEA, text, &mend);
        }
    }
    if scopes.iter().any(|scope| scope == PUBLIC_ONLY) {
        let text = "the token sees public repositories only";
        findings.warn(GITEA, text, "make a token for all repositories, if one that is served is private");
    }
    if missing.is_empty() {
        findings.fine(GITEA, format!("the token has the scopes {}", scopes.join(", ")));
    }
}

/// A served repository.
struct ServedRepository {
    repo: RepoId,
    /// True if our account administers it.
    admin: bool,
}

/// Returns the served repositories that the account can read, and reports on its rights there.
async fn repositories(
    gitea: &Gitea,
    settings: &Settings,
    options: &GiteaSettings,
    findings: &mut Findings,
) -> Vec<ServedRepository> {
    let seen = gitea.repositories().await.unwrap_or_else(|error| {
        let text = format!("the account's repositories cannot be listed: {error}");
        findings.unknown(GITEA, text, "run the doctor again");
        Vec::new()
    });
    let wanted = wanted(settings, &options.hostname, seen);
    let invite = format!("make {} a collaborator who may write there, or give it a team", options.user);
    if wanted.is_empty() {
        let rules = settings.repo_allowlist.join(",");
        let text = format!("the account sees no repository that --repo-allowlist={rules} allows");
        findings.fault(GITEA, text, &invite);
    }
    let reader = RepositoryReader { subject: GITEA, who: "account", invite: &invite, most: MAX_REPOSITORIES };
    let (mut served, mut may_write) = (Vec::new(), Vec::new());
    for repo in reader.first(&wanted, findings) {
        let Some(access) = reader.read(repo, gitea.repository(repo).await, findings) else { continue };
        let name = repo.full_name();
        if judge_repository(&name, &access, &invite, findings) {
            may_write.push(name);
        }
        served.push(ServedRepository { repo: repo.clone(), admin: access.admin });
    }
    if !may_write.is_empty() {
        findings.fine(GITEA, format!("may set statuses in {}", names(&may_write)));
    }
    served
}

/// Reports on our rights in a repository; returns true if statuses can be set there.
fn judge_repository(name: &str, access: &GiteaRepository, invite: &str, findings: &mut Findings) -> bool {
    if access.archived {
        findings.warn(GITEA, format!("{name} is archived: nothing is planned there"), "take it off --repo-allowlist");
        return false;
    }
    if !access.has_pull_requests {
        findings.fault(GITEA, format!("{name} has no pull requests"), "enable them in its settings");
    }
    if !access.push {
        findings.fault(GITEA, format!("may not write to {name}: statuses cannot be set there"), invite);
        return false;
    }
    if !access.admin {
        let text = format!(
            "does not administer {name}: its webhooks are not checked, approvals are not dismissed \
             (--discard-approval-on-plan), and of the rules of protected branches only the numbers of approvals and checks are seen"
        );
        findings.warn(GITEA, text, "give the account the right to administer it");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(judge: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        judge(&mut findings);
        findings.text()
    }

    #[test]
    fn each_scope_that_is_missing_is_named_with_what_lacks() {
        let judged = |scopes: &str| {
            let scopes: Vec<String> = scopes.split(' ').map(str::to_owned).collect();
            said(|findings| judge_scopes(Some(&scopes), findings))
        };
        let all = "write:repository write:issue read:user read:organization";
        assert!(judged(all).starts_with("ok ") && judged("all").starts_with("ok "));
        // A scope to write includes that to read.
        assert!(judged("write:repository write:issue write:user write:organization").starts_with("ok "));
        assert!(
            judged("write:issue read:user read:organization")
                .contains("FAULT    gitea      the token lacks the scope write:repository")
        );
        assert!(judged("read:repository write:issue read:user read:organization").contains("FAULT"));
        let text = judged("write:repository write:issue");
        assert!(
            text.contains("warning  gitea      the token lacks the scope read:user") && !text.contains("FAULT"),
            "{text}"
        );
        assert!(judged(&format!("{all} public-only")).contains("warning  gitea      the token sees public"));
        assert!(
            said(|findings| judge_scopes(None, findings))
                .contains("warning  gitea      the token has the scopes of an admin")
        );
    }

    #[test]
    fn rights_in_a_repository_are_judged() {
        let sound =
            GiteaRepository { admin: true, push: true, pull: true, has_pull_requests: true, ..Default::default() };
        let judged = |access: &GiteaRepository| {
            let mut may_write = false;
            let text = said(|findings| may_write = judge_repository("acme/infra", access, "invite", findings));
            (may_write, text)
        };
        assert_eq!(judged(&sound), (true, "\n0 faults, 0 warnings, 0 not known\n".to_owned()));
        for (access, writes, says) in [
            (
                GiteaRepository { push: false, admin: false, ..sound.clone() },
                false,
                "FAULT    gitea      may not write to acme/infra",
            ),
            (
                GiteaRepository { admin: false, ..sound.clone() },
                true,
                "warning  gitea      does not administer acme/infra",
            ),
            (
                GiteaRepository { has_pull_requests: false, ..sound.clone() },
                true,
                "FAULT    gitea      acme/infra has no pull requests",
            ),
            (GiteaRepository { archived: true, ..sound.clone() }, false, "warning  gitea      acme/infra is archived"),
        ] {
            let (may_write, text) = judged(&access);
            assert!(may_write == writes && text.contains(says), "{text}");
        }
    }
}
