//! GitLab, GitLab.com and Self-Managed: builds the API client, the door, the checks and the address ranges from the settings.

mod doctor;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::domain::Login;
use crate::settings::Settings;
use crate::settings::hosts::gitlab::GitlabSettings;
use crate::vcs::Host;
use crate::web::access::address::Published;
use async_trait::async_trait;
use std::sync::Arc;
use tidelock_hosts::gitlab::{Gitlab, GitlabAddress, GitlabDoor, GitlabOptions, profile};

/// Ranges from which GitLab.com delivers (docs.gitlab.com/user/gitlab_com, "IP range"; as of November 2026). There is no machine-readable
/// list, and a self-managed instance delivers from its own address.
const RANGES: &[&str] = &["34.74.90.64/28", "34.74.226.0/24"];

/// GitLab among the known hosts.
pub(super) struct OnGitlab;

#[async_trait]
impl KnownHost for OnGitlab {
    fn number(&self) -> u8 {
        1
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let gitlab = settings.hosts.gitlab.as_ref()?;
        let api = client(gitlab, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let door = GitlabDoor {
            address: address(gitlab),
            secret: gitlab.webhook_secret.clone(),
            previous: gitlab.previous_webhook_secret.clone(),
            signing: gitlab.webhook_signing_token.clone(),
        };
        Some(JoinedHost { api, door: Arc::new(door), profile: profile(&address(gitlab)) })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let gitlab = settings.hosts.gitlab.as_ref()?;
        Some(HostAccount {
            hostname: &gitlab.hostname,
            login: &gitlab.user,
            secret: gitlab.present_secret(),
            previous: gitlab.previous_webhook_secret.as_ref(),
        })
    }

    fn published(&self, _settings: &Settings) -> Option<Published> {
        Some(Published { word: "gitlab", known: RANGES, address: None, read: |_| None })
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

fn address(gitlab: &GitlabSettings) -> GitlabAddress {
    GitlabAddress::new(&gitlab.hostname, &gitlab.base_url)
}

/// Returns an API client, if there is a token.
fn client(gitlab: &GitlabSettings, settings: &Settings) -> Option<Gitlab> {
    Some(Gitlab::new(GitlabOptions {
        address: address(gitlab),
        user: Some(Login::new(&gitlab.user)),
        token: token_source(gitlab.token.as_ref()?),
        status_name: settings.vcs_status_name.clone(),
        groups: groups(&gitlab.group_allowlist),
        events_url: format!("{}/events", settings.atlantis_url),
    }))
}

/// Returns the groups that rules name, each once.
fn groups(rules: &[String]) -> Vec<String> {
    let mut named: Vec<String> = Vec::new();
    for group in rules.iter().filter_map(|rule| rule.split(':').next()).map(str::trim) {
        if group != "*" && !named.iter().any(|known| known.eq_ignore_ascii_case(group)) {
            named.push(group.to_owned());
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_rules_name() {
        let rules = ["acme/sre:apply", "*:version", "acme/SRE:plan", "acme:plan"].map(str::to_owned);
        assert_eq!(groups(&rules), ["acme/sre", "acme"]);
    }
}
