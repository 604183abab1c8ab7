//! GitLab, GitLab.com and Self-Managed: builds the door and the address ranges from the settings.

use super::{HostAccount, JoinedHost, KnownHost};
use crate::app::doctor::report::Findings;
use crate::domain::CommitAddress;
use crate::settings::{GitlabSettings, Settings};
use crate::web::access::address::Published;
use async_trait::async_trait;
use std::sync::Arc;
use tidelock_hosts::gitlab::{GitlabAddress, GitlabDoor};

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
        let gitlab = settings.gitlab.as_ref()?;
        let door = GitlabDoor {
            address: address(gitlab),
            secret: gitlab.webhook_secret.clone(),
            previous: gitlab.previous_webhook_secret.clone(),
            signing: gitlab.webhook_signing_token.clone(),
        };
        let commit_address = Some(CommitAddress::below(&gitlab.base_url));
        Some(JoinedHost { api: None, door: Arc::new(door), commit_address })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let gitlab = settings.gitlab.as_ref()?;
        Some(HostAccount {
            hostname: &gitlab.hostname,
            login: &gitlab.user,
            secret: gitlab.present_secret(),
            previous: gitlab.previous_webhook_secret.as_ref(),
        })
    }

    fn published(&self, _settings: &Settings) -> Published {
        Published { word: "gitlab", known: RANGES, address: None, read: |_| None }
    }

    async fn check(&self, _settings: &Settings, _events: &str) -> Findings {
        Findings::default()
    }
}

fn address(gitlab: &GitlabSettings) -> GitlabAddress {
    GitlabAddress::new(&gitlab.hostname, &gitlab.base_url)
}
