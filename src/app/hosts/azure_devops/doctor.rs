//! Checks Azure DevOps: the token, the scopes that it lacks, the repositories that it can read, and the service hooks that should deliver
//! to us.

use super::client;
use crate::app::doctor::report::Findings;
use crate::dispatch::Allowlist;
use crate::settings::Settings;
use crate::settings::hosts::azure_devops::AzureDevOpsSettings;
use crate::vcs::{HostError, RepoAccess};
use tidelock_hosts::azure_devops::{AzureDevOps, Subscription};

const AZURE: &str = "azure devops";
const WEBHOOK: &str = "webhook";
/// Maximum number of names in one line.
const SHOWN: usize = 5;
/// Events that are required. Other events only report some of the same changes earlier.
const NEEDED: [&str; 3] =
    ["git.pullrequest.created", "git.pullrequest.updated", "ms.vss-code.git-pullrequest-comment-event"];

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.azure_devops else { return findings };
    let Some(azure) = client(options, settings) else {
        findings.fine(AZURE, "there is no token, and --events-only needs none");
        return findings;
    };
    let organizations = super::organizations(&options.hostname, &options.base_url, &settings.repo_allowlist);
    if organizations.is_empty() {
        let text = format!("--repo-allowlist names no organization of {}", options.hostname);
        findings.unknown(AZURE, text, &format!("name it: {}/ORGANIZATION/*", options.hostname));
    }
    for organization in organizations {
        if account(&azure, options, &organization, &mut findings).await {
            if let Some(first) = repositories(&azure, settings, &organization, &mut findings).await.first() {
                scopes(&azure, first, settings, &mut findings).await;
            }
            if settings.poll.is_none() {
                service_hooks(&azure, options, &organization, events, &mut findings).await;
            }
        }
    }
    findings
}

/// Checks the token and its account; returns false if the token cannot be used.
async fn account(azure: &AzureDevOps, options: &AzureDevOpsSettings, name: &str, findings: &mut Findings) -> bool {
    let user = &options.user;
    match azure.account(name).await {
        Ok(account) if account.login.as_str().eq_ignore_ascii_case(user) => {
            findings.fine(AZURE, format!("{name}: the token is {user}'s"));
            true
        }
        Ok(account) => {
            let mend = format!("--azuredevops-user={}, or a token of {user}", account.login);
            let text = format!("{name}: the token is {}'s, and --azuredevops-user is {user}", account.login);
            findings.fault(AZURE, text, &mend);
            true
        }
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Moved { .. })) => {
            let mend = format!(
                "make a new token for {user} that is valid in {name}, and give it as TIDELOCK_AZUREDEVOPS_TOKEN"
            );
            findings.fault(AZURE, format!("{name}: the token is not taken: {error}"), &mend);
            false
        }
        Err(error) => {
            let mend = "check --azuredevops-hostname, the network, and whether the host is well";
            findings.fault(AZURE, error.to_string(), mend);
            false
        }
    }
}

/// Returns the served repositories that the token can read, and reports on them.
async fn repositories(
    azure: &AzureDevOps,
    settings: &Settings,
    organization: &str,
    findings: &mut Findings,
) -> Vec<RepoAccess> {
    let seen = match azure.repositories_of(organization).await {
        Ok(seen) => seen,
        Err(error) => {
            let mend = "give the token the scope Code (read & write)";
            findings.fault(AZURE, format!("{organization}: its repositories cannot be read: {error}"), mend);
            return Vec::new();
        }
    };
    let allowlist = Allowlist::new(&settings.repo_allowlist);
    let served: Vec<RepoAccess> =
        seen.into_iter().filter(|access| !access.archived && allowlist.allows(&access.repo)).collect();
    if served.is_empty() {
        let text = format!("{organization}: the token sees no repository that --repo-allowlist allows");
        findings.fault(AZURE, text, "let the account into the projects, or correct --repo-allowlist");
        return served;
    }
    let shown: Vec<String> = served.iter().take(SHOWN).map(|access| access.repo.full_name()).collect();
    let more = served.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    findings.fine(AZURE, format!("serves {}{more}", shown.join(", ")));
    served
}

/// Tests each scope with a request that can change nothing. A missing scope for merging is a fault if the server merges, and a warning if
/// only a repo config could ask for it.
async fn scopes(azure: &AzureDevOps, access: &RepoAccess, settings: &Settings, findings: &mut Findings) {
    let name = access.repo.full_name();
    match azure.missing_scopes(&access.repo).await {
        Ok(missing) if missing.is_empty() => findings.fine(AZURE, format!("{name}: the token has the scopes it needs")),
        Ok(missing) => {
            for scope in missing {
                let mend = format!("make a token with the scope {}", scope.name);
                let text = format!(
                    "{name}: the token lacks the scope {}: {} (a request that it is for was refused; it could change nothing)",
                    scope.name, scope.without
                );
                match scope.for_automerge && !settings.automerge {
                    true => findings.warn(AZURE, text, &format!("{mend}, if `automerge` is to be used")),
                    false => findings.fault(AZURE, text, &mend),
                }
            }
        }
        Err(error) => findings.unknown(AZURE, error.to_string(), "run the doctor again"),
    }
}

/// Checks that every event that causes work has a subscription that delivers to us.
async fn service_hooks(
    azure: &AzureDevOps,
    options: &AzureDevOpsSettings,
    organization: &str,
    events: &str,
    findings: &mut Findings,
) {
    let hooks = match azure.subscriptions(organization).await {
        Ok(hooks) => hooks,
        Err(error) => {
            let mend = "look at Project settings, Service hooks; only administrators of a project may read them";
            findings.unknown(WEBHOOK, format!("{organization}: service hooks cannot be read: {error}"), mend);
            return;
        }
    };
    let ours: Vec<&Subscription> = hooks.iter().filter(|hook| hook.url == events).collect();
    for event in NEEDED {
        if !ours.iter().any(|hook| hook.event == event) {
            let mend =
                format!("add one: Project settings, Service hooks, Web Hooks, URL {events}, all resource details");
            findings.fault(WEBHOOK, format!("{organization}: no service hook of {event} comes to {events}"), &mend);
        }
    }
    for hook in ours {
        match wrong(hook, options) {
            None => findings.fine(WEBHOOK, format!("{organization}: {} comes to {events}", hook.event)),
            Some((text, mend)) => {
                findings.fault(WEBHOOK, format!("{organization}: that of {} {text}", hook.event), mend)
            }
        }
    }
}

/// Returns the fault of a service hook that delivers to us, with its remedy.
fn wrong(hook: &Subscription, options: &AzureDevOpsSettings) -> Option<(String, &'static str)> {
    if hook.status != "enabled" {
        return Some((format!("is {}", hook.status), "see its history for our answers, then enable it again"));
    }
    if !hook.details.is_empty() && !hook.details.eq_ignore_ascii_case("all") {
        return Some((format!("sends {} resource details", hook.details), "let it send all resource details"));
    }
    if options.webhook_password.is_some() && hook.user != options.webhook_user {
        return Some((
            "has another user".to_owned(),
            "give it user and password of --azuredevops-webhook-user and its password",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_service_hook_is_found_alone() {
        let options = AzureDevOpsSettings {
            hostname: "dev.azure.com".into(),
            base_url: "https://dev.azure.com".into(),
            user: "bot".into(),
            token: None,
            webhook_user: "hooks".into(),
            webhook_password: Some("password".into()),
            previous_webhook_password: None,
        };
        let sound = Subscription {
            event: NEEDED[0].into(),
            url: "u".into(),
            status: "enabled".into(),
            project: String::new(),
            details: "All".into(),
            user: "hooks".into(),
        };
        assert_eq!(wrong(&sound, &options), None);
        assert_eq!(wrong(&Subscription { details: String::new(), ..sound.clone() }, &options), None);
        let said = |hook: Subscription| wrong(&hook, &options).unwrap().0;
        assert_eq!(said(Subscription { status: "onProbation".into(), ..sound.clone() }), "is onProbation");
        assert_eq!(said(Subscription { details: "minimal".into(), ..sound.clone() }), "sends minimal resource details");
        assert_eq!(said(Subscription { user: String::new(), ..sound }), "has another user");
    }
}
