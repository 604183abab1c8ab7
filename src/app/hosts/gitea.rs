//! Gitea and Forgejo: builds the API client, the door and the checks from the settings. Each instance delivers from its own address, so
//! there are no published ranges.

mod doctor;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::domain::Login;
use crate::settings::Settings;
use crate::settings::hosts::gitea::GiteaSettings;
use crate::vcs::Host;
use async_trait::async_trait;
use std::sync::Arc;
use tidelock_hosts::gitea::{Gitea, GiteaAddress, GiteaDoor, GiteaOptions, profile};

/// Gitea among the known hosts.
pub(super) struct OnGitea;

#[async_trait]
impl KnownHost for OnGitea {
    fn number(&self) -> u8 {
        5
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let gitea = settings.hosts.gitea.as_ref()?;
        let api = client(gitea, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let door = GiteaDoor {
            address: address(gitea),
            secret: gitea.webhook_secret.clone(),
            previous: gitea.previous_webhook_secret.clone(),
        };
        Some(JoinedHost { api, door: Arc::new(door), profile: profile(&address(gitea)) })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let gitea = settings.hosts.gitea.as_ref()?;
        Some(HostAccount {
            hostname: &gitea.hostname,
            login: &gitea.user,
            secret: gitea.webhook_secret.as_ref(),
            previous: gitea.previous_webhook_secret.as_ref(),
        })
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

fn address(gitea: &GiteaSettings) -> GiteaAddress {
    GiteaAddress::new(&gitea.hostname, &gitea.base_url)
}

/// Returns an API client, if there is a token.
fn client(gitea: &GiteaSettings, settings: &Settings) -> Option<Gitea> {
    Some(Gitea::new(GiteaOptions {
        address: address(gitea),
        user: Login::new(&gitea.user),
        token: token_source(gitea.token.as_ref()?),
        status_name: settings.vcs_status_name.clone(),
        serves: super::serves(settings),
    }))
}
