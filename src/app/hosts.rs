//! The VCS hosts of a server. Each has a file of its own that joins settings, API, door, the doctor's checks, and address ranges, and a
//! line in [`KNOWN`].

mod azure_devops;
mod bitbucket_cloud;
mod bitbucket_data_center;
mod gitea;
mod github;
mod gitlab;
mod served;
mod watched;

use super::doctor::report::Findings;
use crate::config::ConfigError;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::config::merging::HostMethods;
use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::{Settings, SignInSettings, TokenSetting};
use crate::vault::inbox::HandOverKey;
use crate::vcs::{Host, Hosts, Profile, TokenSource};
use crate::web::access::address::Published;
use crate::web::host_pages::HostPage;
use crate::web::login::way::SignInWay;
use crate::webhook::{Door, Intake};
use anyhow::{Result, bail};
use async_trait::async_trait;
use futures::future::join_all;
use secrecy::{ExposeSecret, SecretString};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All kinds of hosts, in the order of joined hosts. Append only: the order is part of the lease's fingerprint, and the secret of the first
/// named host makes the key for requests of the lead.
static KNOWN: &[&dyn KnownHost] = &[
    &github::OnGithub,
    &azure_devops::OnAzureDevOps,
    &gitlab::OnGitlab,
    &gitea::OnGitea,
    &bitbucket_cloud::OnBitbucketCloud,
    &bitbucket_data_center::OnBitbucketDataCenter,
];

/// One kind of VCS host: what the application makes of its settings.
#[async_trait]
trait KnownHost: Sync {
    /// Atlantis' number of the kind.
    fn number(&self) -> u8;

    /// Joins the host of these settings; absent if they name none.
    fn join(&self, settings: &Settings) -> Option<JoinedHost>;

    /// Returns our account on the host; absent if the settings name none.
    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>>;

    /// Returns the address ranges that the host publishes, under its word of `--webhook-allowlist`; absent if it publishes none.
    fn published(&self, _settings: &Settings) -> Option<Published> {
        None
    }

    /// Returns the host's own pages.
    fn pages(&self, _settings: &Settings) -> Vec<Arc<dyn HostPage>> {
        Vec::new()
    }

    /// Returns the sign-in of people with their accounts on the host; absent if the settings have none.
    fn sign_in(&self, _settings: &SignInSettings) -> Option<Arc<dyn SignInWay>> {
        None
    }

    /// Returns the doctor's findings about the host; deliveries should arrive at `events`.
    async fn check(&self, settings: &Settings, events: &str) -> Findings;
}

/// One joined VCS host: everything that a server needs to serve its repositories.
#[derive(Clone)]
pub struct JoinedHost {
    /// Its API; absent if the server only accepts deliveries and has no token.
    pub api: Option<Arc<dyn Host>>,
    /// Door that accepts its deliveries.
    pub door: Arc<dyn Door>,
    /// Its limits and features.
    pub profile: Profile,
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

/// Returns the test of whether a repository is served, by the allowlist of the moment.
fn serves(settings: &Settings) -> Arc<dyn Fn(&RepoId) -> bool + Send + Sync> {
    let served = settings.served.clone();
    Arc::new(move |repo| Allowlist::new(&served.get()).allows(repo))
}

/// Joins the hosts that the settings name, and adds the given ones. Each needs a name of its own, because repositories are known by it.
pub(super) fn join(settings: &Settings, more: &[JoinedHost]) -> Result<Vec<JoinedHost>> {
    let mut joined: Vec<JoinedHost> = KNOWN.iter().filter_map(|known| known.join(settings)).collect();
    joined.extend_from_slice(more);
    if joined.is_empty() {
        bail!("no VCS host is configured");
    }
    let mut names = BTreeSet::new();
    if let Some(again) = joined.iter().find(|host| !names.insert(host.door.hostname().to_ascii_lowercase())) {
        let name = again.door.hostname();
        bail!(
            "two VCS hosts are called {name}: repositories are known by the name of their host, so give each a name of its own"
        );
    }
    Ok(joined)
}

/// Checks that `people` is about these hosts.
pub(super) fn check_people(global: &GlobalConfig, joined: &[JoinedHost]) -> Result<(), ConfigError> {
    let names: Vec<&str> = joined.iter().map(|host| host.door.hostname()).collect();
    global.people.check_hosts(&names)
}

/// Checks that each `merge_method` of `repos.yaml` is possible on one of these hosts that its entry may be about.
pub(super) fn check_merge_methods(global: &GlobalConfig, joined: &[JoinedHost]) -> Result<(), ConfigError> {
    global.check_merge_methods(&joined.iter().map(methods).collect::<Vec<_>>())
}

/// Checks that the `merge_method` of a repository is possible on its host, if that is one of these.
pub(super) fn check_merge_method(rules: &RepoRules, repo: &RepoId, joined: &[JoinedHost]) -> Result<(), ConfigError> {
    let Some(method) = &rules.merge_method else { return Ok(()) };
    let own = joined.iter().filter(|host| host.door.hostname().eq_ignore_ascii_case(&repo.host));
    method.check(&own.map(methods).collect::<Vec<_>>())
}

fn methods(host: &JoinedHost) -> HostMethods<'_> {
    (host.door.hostname(), &host.profile.merge_methods)
}

/// Checks that no repository asks for issues about drift on a host where the server keeps none, as far as `repos.yaml` names repositories.
pub(super) fn check_issues(global: &GlobalConfig, hosts: &Hosts) -> Result<()> {
    for repo in global.ids_with_drift_schedule().filter_map(RepoId::of_whole_name) {
        let asks = global.drift_schedule(&repo).is_some_and(|schedule| schedule.issue.is_some());
        if asks && hosts.for_repo(&repo).is_ok_and(|host| !host.profile().issues) {
            bail!(
                "repos.yaml: {repo}: `drift.issue` is not possible there, as the server keeps no issues on {}",
                repo.host
            );
        }
    }
    Ok(())
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
            None => bail!("there is no token for {}", host.door.hostname()),
        }
    }
    Ok(Hosts::new(apis))
}

/// Returns the accounts that the settings name, in the order of the hosts.
fn accounts(settings: &Settings) -> Vec<HostAccount<'_>> {
    KNOWN.iter().filter_map(|known| known.account(settings)).collect()
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
    let kind = |known: &&dyn KnownHost| Some((known.account(settings)?.hostname.to_ascii_lowercase(), known.number()));
    KNOWN.iter().filter_map(kind).collect()
}

/// Returns the hosts' own pages.
pub(super) fn pages(settings: &Settings) -> Vec<Arc<dyn HostPage>> {
    KNOWN.iter().flat_map(|known| known.pages(settings)).collect()
}

/// Returns the hosts at which people sign in.
pub(super) fn sign_ins(settings: &SignInSettings) -> Vec<Arc<dyn SignInWay>> {
    KNOWN.iter().filter_map(|known| known.sign_in(settings)).collect()
}

/// Returns the address ranges that hosts publish, each under its word of `--webhook-allowlist`.
pub(super) fn published(settings: &Settings) -> Vec<Published> {
    KNOWN.iter().filter_map(|known| known.published(settings)).collect()
}

/// Returns the doctor's findings about each host; deliveries should arrive at `events`.
pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    for more in join_all(KNOWN.iter().map(|known| known.check(settings, events))).await {
        findings.extend(more);
    }
    findings
}

/// Source of a host's token.
fn token_source(setting: &TokenSetting) -> TokenSource {
    match setting {
        TokenSetting::Value(token) => TokenSource::Value(token.clone()),
        TokenSetting::File(path) => TokenSource::File(path.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::access::address::Sources;
    use std::ffi::OsString;
    use tidelock_hosts::github::GithubDoor;

    #[test]
    fn a_secret_has_the_same_id_in_the_inbox_and_in_requests_for_the_lead() {
        let secret = SecretString::from("It's a Secret to Everybody");
        let door = GithubDoor { secret: Some(secret.clone()), ..GithubDoor::default() };
        let key = HandOverKey::derive(secret.expose_secret());
        assert_eq!(Intake::new(vec![Arc::new(door)]).key_ids(), key.ids().collect::<Vec<_>>());
    }

    /// Settings of a server that needs no secrets for deliveries.
    fn settings(more: &[&str]) -> Settings {
        let flags = ["--allow-unsigned-webhooks", "--repo-allowlist=github.com/acme/*"];
        let flags = flags.iter().chain(more).map(OsString::from);
        Settings::load(flags, [("HOME".into(), "/home/tide".into())]).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_host_with_the_name_of_another_is_not_joined() {
        let settings = settings(&["--gh-user=bot", "--gh-token=t"]);
        let known = join(&settings, &[]).unwrap();
        let refused = join(&settings, &known).err().unwrap().to_string();
        assert!(refused.contains("two VCS hosts are called github.com"), "{refused}");
    }

    #[test]
    fn every_published_range_is_one() {
        for published in published(&settings(&["--gh-user=bot", "--gh-token=t"])) {
            let words: Vec<String> = published.known.iter().map(|range| (*range).to_owned()).collect();
            assert!(Sources::parse(&words, Vec::new()).is_ok_and(|sources| sources.is_some()), "{}", published.word);
        }
    }
}
