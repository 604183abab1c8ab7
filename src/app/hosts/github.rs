//! GitHub, cloud and Enterprise Server: builds the API client, the door, the checks and the address ranges from the settings.

mod app_doctor;
mod doctor;
mod registration;
mod sign_in;
mod webhooks;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::domain::Login;
use crate::settings::hosts::github::{GithubAppKey, GithubAppSettings, GithubSettings, GithubToken};
use crate::settings::{Settings, SignInSettings};
use crate::vcs::{Host, Profile, TokenSource};
use crate::web::access::address::Published;
use crate::web::host_pages::HostPage;
use crate::web::login::way::SignInWay;
use async_trait::async_trait;
use sign_in::GithubSignIn;
use std::sync::Arc;
use tidelock_hosts::github::{AppOptions, BypassedStatuses, Github, GithubDoor, GithubOptions, KnownChecks, profile};

/// Ranges for webhooks (api.github.com/meta, `hooks`; as of November 2026), in force until they are refreshed.
const RANGES: &[&str] =
    &["192.30.252.0/22", "185.199.108.0/22", "140.82.112.0/20", "143.55.64.0/20", "2a0a:a440::/29", "2606:50c0::/32"];

/// Part of GitHub's metadata that is read: its addresses.
#[derive(serde::Deserialize)]
struct Meta {
    hooks: Vec<String>,
}

/// GitHub among the known hosts.
pub(super) struct OnGithub;

#[async_trait]
impl KnownHost for OnGithub {
    fn number(&self) -> u8 {
        0
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let github = settings.hosts.github.as_ref()?;
        let api = client(github, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let door = GithubDoor {
            hostname: github.hostname.clone(),
            secret: github.webhook_secret.clone(),
            previous: github.previous_webhook_secret.clone(),
            checks: known_checks(github, settings),
        };
        let profile = Profile { status_details: github.checks, ..profile(&github.api_url) };
        Some(JoinedHost { api, door: Arc::new(door), profile })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let github = settings.hosts.github.as_ref()?;
        Some(HostAccount {
            hostname: &github.hostname,
            login: &github.user,
            secret: github.webhook_secret.as_ref(),
            previous: github.previous_webhook_secret.as_ref(),
        })
    }

    fn published(&self, settings: &Settings) -> Option<Published> {
        let read = |body: &[u8]| Some(serde_json::from_slice::<Meta>(body).ok()?.hooks);
        Some(Published { word: "github", known: RANGES, address: settings.access.github_meta_url.clone(), read })
    }

    fn pages(&self, settings: &Settings) -> Vec<Arc<dyn HostPage>> {
        registration::pages(settings)
    }

    fn sign_in(&self, settings: &SignInSettings) -> Option<Arc<dyn SignInWay>> {
        Some(Arc::new(GithubSignIn::new(settings.github.as_ref()?)))
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

/// Returns the id of the App that posts statuses as check runs, if one does.
fn checks_of(github: &GithubSettings) -> Option<u64> {
    match &github.token {
        Some(GithubToken::App(app)) if github.checks => Some(app.id),
        _ => None,
    }
}

/// Returns the check runs whose buttons are commands.
fn known_checks(github: &GithubSettings, settings: &Settings) -> KnownChecks {
    match checks_of(github) {
        Some(app) => KnownChecks::OfApp(app),
        None if settings.access.events_only => KnownChecks::OfAll,
        None => KnownChecks::None,
    }
}

/// Returns an API client, if there is a token.
fn client(github: &GithubSettings, settings: &Settings) -> Option<Github> {
    let nothing = || TokenSource::Value(String::new().into());
    let (token, app) = match github.token.as_ref()? {
        GithubToken::Account(token) => (token_source(token), None),
        GithubToken::App(app) => (nothing(), Some(options(app))),
    };
    Some(Github::new(GithubOptions {
        hostname: github.hostname.clone(),
        api_url: github.api_url.clone(),
        user: Login::new(&github.user),
        token,
        app,
        serves: super::serves(settings),
        posts_per_hour: github.posts_per_hour,
        checks_of: checks_of(github),
        bypassed: settings.gh_allow_mergeable_bypass_apply.then(|| BypassedStatuses {
            own: settings.vcs_status_name.clone(),
            others: settings.ignore_vcs_status_names.clone(),
        }),
    }))
}

fn options(app: &GithubAppSettings) -> AppOptions {
    let key = match &app.key {
        GithubAppKey::Value(key) => TokenSource::Value(key.clone()),
        GithubAppKey::File(path) => TokenSource::File(path.clone()),
    };
    AppOptions { id: app.id, key, installation: app.installation_id }
}
