//! Checks Bitbucket Cloud: the token, its account and scopes, our permission in the served repositories, and the webhooks that should
//! deliver to us.

mod hooks;

use super::super::served::{RepositoryReader, names, wanted};
use super::client;
use crate::app::doctor::report::{Findings, Verdict};
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::settings::hosts::bitbucket_cloud::BitbucketCloudSettings;
use crate::vcs::{Host as _, HostError};
use tidelock_hosts::bitbucket_cloud::{BitbucketCloud, BitbucketCloudRepository};

const BITBUCKET: &str = "bitbucket";
/// Maximum number of repositories that are looked at one by one. Each takes some of the host's 1,000 requests an hour.
const MAX_REPOSITORIES: usize = 30;

/// A scope of tokens.
struct CloudScope {
    /// Its name for API tokens.
    name: &'static str,
    /// Names for access tokens, one of which is needed (developer.atlassian.com/cloud/bitbucket/rest/intro, "Scopes").
    of_access_tokens: &'static [&'static str],
    verdict: Verdict,
    /// What lacks without it.
    without: &'static str,
}

/// Scopes that the token needs. None includes another one (support.atlassian.com/bitbucket-cloud/docs/api-token-permissions).
const SCOPES: [CloudScope; 8] = [
    CloudScope {
        name: "read:user:bitbucket",
        of_access_tokens: &["account"],
        verdict: Verdict::Warning,
        without: "the account is not known before its first comment",
    },
    CloudScope {
        name: "read:workspace:bitbucket",
        of_access_tokens: &["account"],
        verdict: Verdict::Warning,
        without: "its repositories are not listed, so that pull requests in new ones are missed with their deliveries",
    },
    CloudScope {
        name: "read:repository:bitbucket",
        of_access_tokens: &["repository", "repository:write", "repository:admin"],
        verdict: Verdict::Fault,
        without: "nothing can be fetched",
    },
    CloudScope {
        name: "write:repository:bitbucket",
        of_access_tokens: &["repository:write"],
        verdict: Verdict::Warning,
        without: "nothing can be merged, and no branch deleted",
    },
    CloudScope {
        name: "read:pullrequest:bitbucket",
        of_access_tokens: &["pullrequest", "pullrequest:write"],
        verdict: Verdict::Fault,
        without: "no pull request can be read",
    },
    CloudScope {
        name: "write:pullrequest:bitbucket",
        of_access_tokens: &["pullrequest:write"],
        verdict: Verdict::Fault,
        without: "nothing can be posted or merged",
    },
    CloudScope {
        name: "admin:repository:bitbucket",
        of_access_tokens: &["repository:admin"],
        verdict: Verdict::Warning,
        without: "no approval counts, and the restrictions of branches are not known",
    },
    CloudScope {
        name: "read:webhook:bitbucket",
        of_access_tokens: &["webhook"],
        verdict: Verdict::Warning,
        without: "webhooks are not checked",
    },
];

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.bitbucket_cloud else { return findings };
    let Some(cloud) = client(options, settings) else {
        findings.fine(BITBUCKET, "there is no token, and --events-only needs none");
        return findings;
    };
    if !account(&cloud, options, &mut findings).await {
        return findings;
    }
    let served = repositories(&cloud, settings, options, &mut findings).await;
    if settings.poll.is_none() {
        hooks::check(&cloud, options, events, &served, &mut findings).await;
    }
    findings
}

/// Checks the token and its account; returns false if the token cannot be used.
async fn account(cloud: &BitbucketCloud, options: &BitbucketCloudSettings, findings: &mut Findings) -> bool {
    let (user, host) = (options.account(), &options.hostname);
    match cloud.account().await {
        Ok(account) => {
            let text = format!(
                "the token is that of {} on {host}; rules name this account {}",
                account.display_name,
                account.login.as_str()
            );
            findings.fine(BITBUCKET, text);
        }
        // An access token may not ask for its account. Whether it can be used, the repositories show.
        Err(HostError::Denied { .. }) if options.user == "x-token-auth" => {
            findings.unknown(BITBUCKET, format!("whose the access token is, {host} does not tell"), "");
        }
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            let mend = format!(
                "make an API token for {user} with the scope read:user:bitbucket and the others of docs/bitbucket-cloud.md, and give it \
                 as TIDELOCK_BITBUCKET_TOKEN or --bitbucket-token-file; --bitbucket-user is its e-mail address"
            );
            findings.fault(BITBUCKET, format!("the token is not taken: {error}"), &mend);
            return false;
        }
        Err(error) => {
            let mend = "check --bitbucket-base-url, the network, and whether the host is well";
            findings.fault(BITBUCKET, error.to_string(), mend);
            return false;
        }
    }
    true
}

/// Reports on the token's scopes.
fn judge_scopes(scopes: &[String], findings: &mut Findings) {
    let has = |scope: &CloudScope| {
        let mut names = scope.of_access_tokens.iter().chain([&scope.name]);
        names.any(|name| scopes.iter().any(|given| given == name))
    };
    let missing: Vec<&CloudScope> = SCOPES.iter().filter(|scope| !has(scope)).collect();
    for CloudScope { name, verdict, without, .. } in &missing {
        let text = format!("the token lacks the scope {name}: {without}");
        findings.add(BITBUCKET, *verdict, text, &format!("make a token with {name}"));
    }
    if missing.is_empty() {
        findings.fine(BITBUCKET, "the token has the scopes of docs/bitbucket-cloud.md");
    }
}

/// A served repository.
struct ServedCloudRepository {
    repo: RepoId,
    /// True if our account administers it, or if the host does not tell it.
    may_admin: bool,
}

/// Returns the served repositories that the account can read, and reports on its rights there.
async fn repositories(
    cloud: &BitbucketCloud,
    settings: &Settings,
    options: &BitbucketCloudSettings,
    findings: &mut Findings,
) -> Vec<ServedCloudRepository> {
    let seen = cloud.repositories().await.unwrap_or_else(|error| {
        let text = format!("the account's repositories cannot be listed: {error}");
        findings.unknown(BITBUCKET, text, "run the doctor again");
        Vec::new()
    });
    let wanted = wanted(settings, &options.hostname, seen);
    let invite = format!("give {} the permission Admin there, or Write at least", options.account());
    if wanted.is_empty() {
        let rules = settings.repo_allowlist.join(",");
        let text = format!("the account sees no repository that --repo-allowlist={rules} allows");
        findings.fault(BITBUCKET, text, &invite);
    }
    let reader = RepositoryReader { subject: BITBUCKET, who: "account", invite: &invite, most: MAX_REPOSITORIES };
    let (mut served, mut may_write) = (Vec::new(), Vec::new());
    let mut scopes = None;
    for repo in reader.first(&wanted, findings) {
        let Some(access) = reader.read(repo, cloud.repository(repo).await, findings) else { continue };
        let name = repo.full_name();
        if judge_repository(&name, &access, &invite, findings) {
            may_write.push(name);
        }
        scopes = scopes.or(access.scopes);
        let may_admin = access.permission.is_none_or(|permission| permission == "admin");
        served.push(ServedCloudRepository { repo: repo.clone(), may_admin });
    }
    if let Some(scopes) = scopes {
        judge_scopes(&scopes, findings);
    }
    if !may_write.is_empty() {
        findings.fine(BITBUCKET, format!("may set statuses in {}", names(&may_write)));
    }
    served
}

/// Reports on our permission in a repository; returns true if statuses can be set there.
fn judge_repository(name: &str, access: &BitbucketCloudRepository, invite: &str, findings: &mut Findings) -> bool {
    match access.permission.as_deref() {
        Some("admin") => true,
        Some("write") => {
            let text = format!(
                "does not administer {name}: no approval counts there, the restrictions of its branches are not known, and its webhooks \
                 are not checked"
            );
            findings.warn(BITBUCKET, text, "give the account the permission Admin there");
            true
        }
        Some(other) => {
            let text = format!("may not write to {name} (its permission is {other}): statuses cannot be set there");
            findings.fault(BITBUCKET, text, invite);
            false
        }
        None => {
            findings.unknown(BITBUCKET, format!("what the token may do in {name}, the host does not tell"), "");
            false
        }
    }
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
        let judged = |scopes: &[&str]| {
            let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            said(|findings| judge_scopes(&scopes, findings))
        };
        let all = SCOPES.map(|scope| scope.name);
        assert!(judged(&all).starts_with("ok "));
        let of_access_token = ["account", "repository:write", "repository:admin", "pullrequest:write", "webhook"];
        assert!(judged(&of_access_token).starts_with("ok "), "{}", judged(&of_access_token));
        for (at, scope) in SCOPES.iter().enumerate() {
            let others: Vec<&str> = all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, s)| *s).collect();
            let text = judged(&others);
            let word = if scope.verdict == Verdict::Fault { "FAULT    " } else { "warning  " };
            assert!(text.starts_with(&format!("{word}bitbucket  the token lacks the scope {}", scope.name)), "{text}");
        }
    }

    #[test]
    fn the_permission_in_a_repository_is_judged() {
        for (permission, writes, says) in [
            (Some("admin"), true, ""),
            (Some("write"), true, "warning  bitbucket  does not administer acme/infra"),
            (Some("read"), false, "FAULT    bitbucket  may not write to acme/infra"),
            (None, false, "?        bitbucket  what the token may do in acme/infra"),
        ] {
            let access = BitbucketCloudRepository { permission: permission.map(str::to_owned), ..Default::default() };
            let mut may_write = false;
            let text = said(|findings| may_write = judge_repository("acme/infra", &access, "invite", findings));
            assert!(may_write == writes && text.contains(says), "{text}");
        }
    }
}
