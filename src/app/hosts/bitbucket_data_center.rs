//! Bitbucket Data Center: builds the API client, the door and the checks from the settings. Each instance delivers from its own address, so
//! there are no published ranges.

mod doctor;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::settings::Settings;
use crate::settings::hosts::bitbucket_data_center::BitbucketDataCenterSettings;
use crate::vcs::Host;
use async_trait::async_trait;
use std::sync::Arc;
use tidelock_hosts::bitbucket_data_center::{
    BitbucketDataCenter, BitbucketDataCenterAddress, BitbucketDataCenterDoor, BitbucketDataCenterOptions, profile,
};

/// User of git for a token of a project or repository, whose account has no name in the settings.
const TOKEN_USER: &str = "x-token-auth";

/// Bitbucket Data Center among the known hosts.
pub(super) struct OnBitbucketDataCenter;

#[async_trait]
impl KnownHost for OnBitbucketDataCenter {
    fn number(&self) -> u8 {
        3
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let data_center = settings.hosts.bitbucket_data_center.as_ref()?;
        let address = address(data_center)?;
        let api = client(data_center, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let profile = profile(&address);
        let door = BitbucketDataCenterDoor {
            address,
            secret: data_center.webhook_secret.clone(),
            previous: data_center.previous_webhook_secret.clone(),
        };
        Some(JoinedHost { api, door: Arc::new(door), profile })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let data_center = settings.hosts.bitbucket_data_center.as_ref()?;
        Some(HostAccount {
            hostname: &data_center.hostname,
            login: &data_center.user,
            secret: data_center.webhook_secret.as_ref(),
            previous: data_center.previous_webhook_secret.as_ref(),
        })
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

/// Returns the address of the settings; absent if the host's own check refuses what the settings have accepted.
fn address(data_center: &BitbucketDataCenterSettings) -> Option<BitbucketDataCenterAddress> {
    let read = BitbucketDataCenterAddress::of_base_url(&data_center.base_url);
    read.inspect_err(|why| {
        tracing::error!("--{} {why}; Bitbucket Data Center is not served", data_center.names.base_url)
    })
    .ok()
}

/// Returns an API client, if there is a token.
fn client(data_center: &BitbucketDataCenterSettings, settings: &Settings) -> Option<BitbucketDataCenter> {
    let user = if data_center.user == TOKEN_USER { String::new() } else { data_center.user.clone() };
    Some(BitbucketDataCenter::new(BitbucketDataCenterOptions {
        address: address(data_center)?,
        user,
        token: token_source(data_center.token.as_ref()?),
        status_name: settings.vcs_status_name.clone(),
        server_url: settings.atlantis_url.clone(),
        serves: super::serves(settings),
    }))
}
