//! Bitbucket Cloud: builds the API client, the door, the checks and the address ranges from the settings.

mod doctor;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::settings::Settings;
use crate::settings::hosts::bitbucket_cloud::BitbucketCloudSettings;
use crate::vcs::Host;
use crate::web::access::address::Published;
use async_trait::async_trait;
use serde::Deserialize;
use std::sync::Arc;
use tidelock_hosts::bitbucket_cloud::{
    BitbucketCloud, BitbucketCloudAddress, BitbucketCloudCredentials, BitbucketCloudDoor, BitbucketCloudOptions,
    profile,
};

/// Ranges from which Bitbucket delivers, until the list is read: those of [`PUBLISHED`] for the product `bitbucket` and the direction
/// `egress`, as far as Atlassian's documentation names them (as of November 2026).
const RANGES: &[&str] =
    &["104.192.136.0/21", "13.200.41.128/25", "13.52.5.0/25", "18.205.93.0/25", "18.234.32.128/25", "185.166.140.0/22"];
/// Atlassian's list (support.atlassian.com, "IP addresses and domains for Atlassian cloud products").
const PUBLISHED: &str = "https://ip-ranges.atlassian.com/";

/// Bitbucket Cloud among the known hosts.
pub(super) struct OnBitbucketCloud;

#[async_trait]
impl KnownHost for OnBitbucketCloud {
    fn number(&self) -> u8 {
        2
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let cloud = settings.hosts.bitbucket_cloud.as_ref()?;
        let address = address(cloud)?;
        let api = client(cloud, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let profile = profile(&address);
        let door = BitbucketCloudDoor {
            address,
            secret: cloud.webhook_secret.clone(),
            previous: cloud.previous_webhook_secret.clone(),
        };
        Some(JoinedHost { api, door: Arc::new(door), profile })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let cloud = settings.hosts.bitbucket_cloud.as_ref()?;
        Some(HostAccount {
            hostname: &cloud.hostname,
            login: cloud.account(),
            secret: cloud.webhook_secret.as_ref(),
            previous: cloud.previous_webhook_secret.as_ref(),
        })
    }

    fn published(&self, _settings: &Settings) -> Option<Published> {
        Some(Published { word: "bitbucket", known: RANGES, address: Some(PUBLISHED.to_owned()), read: ranges })
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

/// Returns the address of the settings, which have checked it; no host is joined with another one.
fn address(cloud: &BitbucketCloudSettings) -> Option<BitbucketCloudAddress> {
    let read = BitbucketCloudAddress::of_base_url(&cloud.base_url);
    read.inspect_err(|why| tracing::error!("--bitbucket-base-url {why}; Bitbucket is not served")).ok()
}

/// Returns an API client, if there is a token.
fn client(cloud: &BitbucketCloudSettings, settings: &Settings) -> Option<BitbucketCloud> {
    Some(BitbucketCloud::new(BitbucketCloudOptions {
        address: address(cloud)?,
        credentials: BitbucketCloudCredentials::of_settings(&cloud.user, &cloud.api_user),
        token: token_source(cloud.token.as_ref()?),
        status_name: settings.vcs_status_name.clone(),
        server_url: settings.atlantis_url.clone(),
        serves: super::serves(settings),
    }))
}

/// Atlassian's list of addresses.
#[derive(Deserialize)]
struct AtlassianRanges {
    items: Vec<AtlassianRange>,
}

/// A range of that list.
#[derive(Deserialize)]
struct AtlassianRange {
    cidr: String,
    #[serde(default)]
    product: Vec<String>,
    #[serde(default)]
    direction: Vec<String>,
}

/// Returns the ranges of the list from which Bitbucket sends; absent for any other text.
fn ranges(body: &[u8]) -> Option<Vec<String>> {
    let list: AtlassianRanges = serde_json::from_slice(body).ok()?;
    let has = |words: &[String], word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let sends = |range: &AtlassianRange| has(&range.product, "bitbucket") && has(&range.direction, "egress");
    let found: Vec<String> = list.items.into_iter().filter(sends).map(|range| range.cidr).collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_list_is_read_for_one_product_and_direction() {
        let list = r#"{"creationDate": "2026-11-01T00:00:00", "syncToken": 1, "items": [
            {"network": "18.205.93.0", "mask_len": 25, "cidr": "18.205.93.0/25", "product": ["bitbucket"], "direction": ["egress"],
             "region": ["us-east-1"]},
            {"cidr": "2401:1d80:3000::/36", "product": ["jira", "bitbucket"], "direction": ["ingress", "egress"]},
            {"cidr": "203.0.113.0/24", "product": ["jira"], "direction": ["egress"]},
            {"cidr": "198.51.100.0/24", "product": ["bitbucket"], "direction": ["ingress"]},
            {"cidr": "192.0.2.0/24"}]}"#;
        assert_eq!(ranges(list.as_bytes()).unwrap(), ["18.205.93.0/25", "2401:1d80:3000::/36"]);
        for other in ["", "{}", r#"{"items": []}"#, "<html>"] {
            assert_eq!(ranges(other.as_bytes()), None, "{other}");
        }
    }
}
