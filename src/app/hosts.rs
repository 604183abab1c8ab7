//! The VCS hosts of a server. Each has a file of its own that joins settings, API, door, the doctor's checks, and address ranges.

mod azure_devops;
mod github;

use super::doctor::report::Findings;
use crate::domain::CommitAddress;
use crate::settings::Settings;
use crate::vault::inbox::HandOverKey;
use crate::vcs::{Host, Hosts};
use crate::web::access::address::Published;
use crate::web::host_pages::HostPage;
use crate::webhook::{Door, Intake};
use anyhow::{Result, bail};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One joined VCS host: everything that a server needs to serve its repositories.
#[derive(Clone)]
pub struct JoinedHost {
    /// Its API; absent if the server only accepts deliveries and has no token.
    pub api: Option<Arc<dyn Host>>,
    /// Door that accepts its deliveries.
    pub door: Arc<dyn Door>,
    /// Address of a commit's page; absent if there is no such page.
    pub commit_address: Option<CommitAddress>,
}

/// Our account on one host, and the secrets of its deliveries. Servers on one bucket must agree on them.
struct HostAccount<'a> {
    hostname: &'a str,
    login: &'a str,
    /// Secret of its webhooks; absent if deliveries are not authenticated.
    secret: Option<&'a SecretString>,
    /// Previous secret of its webhooks.
    previous: Option<&'a SecretString>,
}

/// Joins the hosts that the settings name, and adds the given ones. At least one is required.
pub(super) fn join(settings: &Settings, more: &[JoinedHost]) -> Result<Vec<JoinedHost>> {
    let mut joined: Vec<JoinedHost> = github::join(settings).into_iter().chain(azure_devops::join(settings)).collect();
    joined.extend_from_slice(more);
    if joined.is_empty() {
        bail!("no VCS host is configured: set --gh-user and --gh-token, or --azuredevops-user and --azuredevops-token");
    }
    Ok(joined)
}

/// Returns the doors of the hosts.
pub(super) fn intake(joined: &[JoinedHost]) -> Intake {
    Intake::new(joined.iter().map(|host| Arc::clone(&host.door)).collect())
}

/// Returns the APIs of the hosts; an error if one has no token.
pub(super) fn apis(joined: &[JoinedHost]) -> Result<Hosts> {
    let mut apis = Vec::new();
    for host in joined {
        match &host.api {
            Some(api) => apis.push(Arc::clone(api)),
            None => {
                let flags = "--gh-token, --gh-token-file, --azuredevops-token or --azuredevops-token-file";
                bail!("there is no token for {}: set {flags}", host.door.hostname())
            }
        }
    }
    Ok(Hosts::new(apis))
}

/// Returns the accounts that the settings name, in the order of the hosts.
fn accounts(settings: &Settings) -> Vec<HostAccount<'_>> {
    github::account(settings).into_iter().chain(azure_devops::account(settings)).collect()
}

/// Returns the hosts and our logins there, as in the lease's fingerprint.
pub(super) fn identities(settings: &Settings) -> (String, String) {
    let of = |part: fn(&HostAccount<'_>) -> String| {
        let parts: Vec<String> = accounts(settings).iter().map(|account| part(account).to_ascii_lowercase()).collect();
        parts.join(",")
    };
    (of(|account| account.hostname.to_owned()), of(|account| account.login.to_owned()))
}

/// Returns the key that authenticates requests for the lead: it is derived from the webhook secret of the first host.
pub(super) fn hand_over_key(settings: &Settings) -> HandOverKey {
    let accounts = accounts(settings);
    let first = accounts.first();
    let secret = first.and_then(|account| account.secret);
    let key = HandOverKey::derive(secret.map(ExposeSecret::expose_secret).unwrap_or_default());
    match first.and_then(|account| account.previous) {
        Some(previous) => key.and_previous(previous.expose_secret()),
        None => key,
    }
}

/// Returns Atlantis' number of each host's kind, by the name of the host.
pub(super) fn kinds(settings: &Settings) -> BTreeMap<String, u8> {
    let github = settings.github.as_ref().map(|host| (host.hostname.to_ascii_lowercase(), 0));
    let azure = settings.azure_devops.as_ref().map(|host| (host.hostname.to_ascii_lowercase(), 4));
    github.into_iter().chain(azure).collect()
}

/// Returns the hosts' own pages.
pub(super) fn pages(settings: &Settings) -> Vec<Arc<dyn HostPage>> {
    github::pages(settings)
}

/// Returns the address ranges that hosts publish, each under its word of `--webhook-allowlist`.
pub(super) fn published(settings: &Settings) -> Vec<Published> {
    vec![github::published(settings.access.github_meta_url.clone()), azure_devops::published()]
}

/// Returns the doctor's findings about each host; deliveries should arrive at `events`.
pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let (mut findings, more) = tokio::join!(github::check(settings, events), azure_devops::check(settings, events));
    findings.extend(more);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::access::address::Sources;
    use tidelock_hosts::github::GithubDoor;

    #[test]
    fn a_secret_has_the_same_id_in_the_inbox_and_in_requests_for_the_lead() {
        let secret = SecretString::from("It's a Secret to Everybody");
        let door = GithubDoor { secret: Some(secret.clone()), ..GithubDoor::default() };
        let key = HandOverKey::derive(secret.expose_secret());
        assert_eq!(Intake::new(vec![Arc::new(door)]).key_ids(), key.ids().collect::<Vec<_>>());
    }

    #[test]
    fn every_published_range_is_one() {
        for published in [github::published(None), azure_devops::published()] {
            let words: Vec<String> = published.known.iter().map(|range| (*range).to_owned()).collect();
            assert!(Sources::parse(&words, Vec::new()).is_ok_and(|sources| sources.is_some()), "{}", published.word);
        }
    }
}
