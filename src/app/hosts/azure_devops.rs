//! Azure DevOps, Services and Server: builds the API client, the door, the checks and the address ranges from the settings.

mod doctor;

use super::{HostAccount, JoinedHost, KnownHost, token_source};
use crate::app::doctor::report::Findings;
use crate::domain::Login;
use crate::settings::Settings;
use crate::settings::hosts::azure_devops::AzureDevOpsSettings;
use crate::vcs::Host;
use crate::web::access::address::Published;
use async_trait::async_trait;
use std::sync::Arc;
use tidelock_hosts::azure_devops::{AzureDevOps, AzureDevOpsAddress, AzureDevOpsDoor, AzureDevOpsOptions, profile};

/// Ranges for service hooks (learn.microsoft.com, "Allowed IP addresses and domain URLs"; as of November 2026). Microsoft publishes no
/// machine-readable list of only these ranges.
const RANGES: &[&str] = &[
    "20.37.158.0/23",
    "20.37.194.0/24",
    "20.39.13.0/26",
    "20.41.6.0/23",
    "20.41.194.0/24",
    "20.42.5.0/24",
    "20.42.134.0/23",
    "20.42.226.0/24",
    "20.45.196.64/26",
    "20.91.148.128/25",
    "20.125.155.0/24",
    "20.166.41.0/24",
    "20.189.107.0/24",
    "20.195.68.0/24",
    "20.204.197.192/26",
    "20.233.130.0/25",
    "40.74.28.0/23",
    "40.80.187.0/24",
    "40.82.252.0/24",
    "40.119.10.0/24",
    "51.104.26.0/24",
    "52.150.138.0/24",
    "52.228.82.0/24",
    "191.235.226.0/24",
];

/// Azure DevOps among the known hosts.
pub(super) struct OnAzureDevOps;

#[async_trait]
impl KnownHost for OnAzureDevOps {
    fn number(&self) -> u8 {
        4
    }

    fn join(&self, settings: &Settings) -> Option<JoinedHost> {
        let azure = settings.hosts.azure_devops.as_ref()?;
        let api = client(azure, settings).map(|client| Arc::new(client) as Arc<dyn Host>);
        let door = AzureDevOpsDoor {
            address: address(azure),
            user: azure.webhook_user.clone(),
            password: azure.webhook_password.clone(),
            previous: azure.previous_webhook_password.clone(),
        };
        Some(JoinedHost { api, door: Arc::new(door), profile: profile(&address(azure)) })
    }

    fn account<'a>(&self, settings: &'a Settings) -> Option<HostAccount<'a>> {
        let azure = settings.hosts.azure_devops.as_ref()?;
        Some(HostAccount {
            hostname: &azure.hostname,
            login: &azure.user,
            secret: azure.webhook_password.as_ref(),
            previous: azure.previous_webhook_password.as_ref(),
        })
    }

    fn published(&self, _settings: &Settings) -> Option<Published> {
        Some(Published { word: "azuredevops", known: RANGES, address: None, read: |_| None })
    }

    async fn check(&self, settings: &Settings, events: &str) -> Findings {
        doctor::check(settings, events).await
    }
}

fn address(azure: &AzureDevOpsSettings) -> AzureDevOpsAddress {
    AzureDevOpsAddress::new(&azure.hostname, &azure.base_url)
}

/// Returns an API client, if there is a token.
fn client(azure: &AzureDevOpsSettings, settings: &Settings) -> Option<AzureDevOps> {
    let token = token_source(azure.token.as_ref()?);
    Some(AzureDevOps::new(AzureDevOpsOptions {
        address: address(azure),
        user: Login::new(&azure.user),
        token,
        organizations: organizations(&azure.hostname, &azure.base_url, &settings.repo_allowlist),
        status_name: settings.vcs_status_name.clone(),
    }))
}

/// Default virtual directory of Azure DevOps Server.
const VIRTUAL_DIRECTORY: &str = "tfs";

/// Returns the organizations or collections, in lower case, that rules of the allowlist name, because the host has no list of them. If
/// the host's setting names no path, `tfs` is the virtual directory above the collections.
fn organizations(hostname: &str, base: &str, allowlist: &[String]) -> Vec<String> {
    let has_path = base.split("://").nth(1).is_some_and(|rest| rest.contains('/'));
    let mut named: Vec<String> = Vec::new();
    for rule in allowlist.iter().map(|rule| rule.trim()).filter(|rule| !rule.starts_with('!')) {
        let mut parts = rule.split('/');
        let (Some(host), Some(name)) = (parts.next(), parts.next()) else { continue };
        let is_ours = host == "*" || host.eq_ignore_ascii_case(hostname);
        let below = parts.next().filter(|_| !has_path && name.eq_ignore_ascii_case(VIRTUAL_DIRECTORY));
        let name =
            below.map_or_else(|| name.to_lowercase(), |collection| format!("{name}/{collection}").to_lowercase());
        if is_ours && !name.is_empty() && !name.contains('*') && !named.contains(&name) {
            named.push(name);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organizations_are_those_that_the_allowlist_names() {
        let rules = [
            "dev.azure.com/Acme/*",
            "dev.azure.com/acme/x/y",
            "*/other/*",
            "dev.azure.com/a*/x",
            "!dev.azure.com/no/*",
        ];
        let rules = rules.map(str::to_owned);
        assert_eq!(organizations("dev.azure.com", "https://dev.azure.com", &rules), ["acme", "other"]);
        let others = ["github.com/acme/*".to_owned(), "*".to_owned()];
        assert!(organizations("dev.azure.com", "https://dev.azure.com", &others).is_empty());
        let below = ["tfs.example.com/tfs/Acme/*".to_owned()];
        assert_eq!(organizations("tfs.example.com", "https://tfs.example.com", &below), ["tfs/acme"]);
        assert_eq!(organizations("tfs.example.com", "https://tfs.example.com/tfs", &below), ["tfs"]);
    }
}
