//! Checks of `tidelock doctor` on Bitbucket Data Center: our permissions in repositories, and their webhooks with what became of their
//! deliveries.

use super::{API, BitbucketDataCenter, answers};
use crate::vcs::HostError;
use crate::vcs::http::segment;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::RepoId;

/// Rows on one page.
const PER_PAGE: u32 = 100;
/// Most pages of webhooks of one repository or project.
const HOOK_PAGES: u32 = 10;
/// Most pages of repositories whose names begin alike.
const REPO_PAGES: u32 = 5;
/// Longest text of the host that is kept, such as the name of an event, in characters.
const MAX_WORD: usize = 200;

/// A repository, with what our token may do there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketDataCenterRepository {
    /// True if our token may merge.
    pub can_write: bool,
    /// True if our token may read webhooks, and who pushed.
    pub can_administer: bool,
    /// True if it is read-only.
    pub archived: bool,
}

/// A webhook of a repository or a project as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketDataCenterHook {
    /// Number of the hook.
    pub id: u64,
    /// Address that it delivers to.
    pub url: String,
    /// True if it is enabled.
    pub active: bool,
    /// True if it has a secret; absent if the host does not tell it.
    pub has_secret: Option<bool>,
    /// True if the host verifies our certificate.
    pub verifies_tls: bool,
    /// Names of events, such as `pr:opened`.
    pub events: Vec<String>,
}

/// One delivery of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitbucketDataCenterDelivery {
    /// Name of the event.
    pub event: String,
    /// Time of its end, by the host's clock.
    pub at: Timestamp,
    /// The host's words about the result, such as the status of the answer.
    pub result: String,
}

/// What became of the deliveries of a webhook. The host keeps the last one of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketDataCenterDeliveries {
    /// The last one that was answered with success.
    pub success: Option<BitbucketDataCenterDelivery>,
    /// The last one that was answered otherwise.
    pub failure: Option<BitbucketDataCenterDelivery>,
    /// The last one that was not answered.
    pub error: Option<BitbucketDataCenterDelivery>,
    /// Number of those that were not answered with success, in the host's window of time.
    pub unsuccessful: u64,
}

impl BitbucketDataCenterDeliveries {
    /// Returns the last delivery that was not answered with success, if none was since. After five in a row the host skips deliveries, for
    /// up to ten hours (confluence.atlassian.com/bitbucketserver, "Manage webhooks", "Circuit breaker").
    pub fn failing(&self) -> Option<&BitbucketDataCenterDelivery> {
        let last = [&self.failure, &self.error].into_iter().flatten().max_by_key(|delivery| delivery.at)?;
        let is_over = self.success.as_ref().is_some_and(|success| success.at >= last.at);
        (!is_over).then_some(last)
    }
}

impl BitbucketDataCenter {
    /// Returns a repository, with what our token may do there.
    pub async fn repository(&self, repo: &RepoId) -> Result<BitbucketDataCenterRepository, HostError> {
        let told = self.told_repository(repo).await?;
        let can_write = self.is_permitted(repo, &told, "REPO_WRITE").await?;
        let can_administer = can_write && self.is_permitted(repo, &told, "REPO_ADMIN").await?;
        Ok(BitbucketDataCenterRepository { can_write, can_administer, archived: told["archived"] == true })
    }

    /// Returns true if our token has a permission: the list of repositories takes it as a filter (`GET /rest/api/latest/repos`).
    async fn is_permitted(&self, repo: &RepoId, told: &Value, permission: &str) -> Result<bool, HostError> {
        let name = told["name"].as_str().unwrap_or(&repo.name);
        let path = format!(
            "{API}/repos?archived=ALL&permission={permission}&projectkey={}&name={}",
            segment(&repo.owner),
            segment(name)
        );
        let rows = self.http.start_pages(&path, PER_PAGE, REPO_PAGES).await?.rows;
        Ok(rows.iter().any(|row| answers::key(row).is_some() && row["id"] == told["id"]))
    }

    /// Returns the webhooks of a repository; only its administrators see them.
    pub async fn repository_hooks(&self, repo: &RepoId) -> Result<Vec<BitbucketDataCenterHook>, HostError> {
        self.hooks(&self.address.repo_path(repo)?).await
    }

    /// Returns the webhooks of a project; only its administrators see them.
    pub async fn project_hooks(&self, key: &str) -> Result<Vec<BitbucketDataCenterHook>, HostError> {
        self.hooks(&format!("{API}/projects/{}", segment(key))).await
    }

    async fn hooks(&self, path: &str) -> Result<Vec<BitbucketDataCenterHook>, HostError> {
        let rows = self.http.start_pages(&format!("{path}/webhooks"), PER_PAGE, HOOK_PAGES).await?.rows;
        Ok(rows.iter().filter_map(hook).collect())
    }

    /// Returns what became of the deliveries of a webhook of a repository; only its administrators see it.
    pub async fn deliveries(&self, repo: &RepoId, hook: u64) -> Result<BitbucketDataCenterDeliveries, HostError> {
        let path = format!("{}/webhooks/{hook}/statistics", self.address.repo_path(repo)?);
        let told = self.http.get(&path).await?.body;
        let counts = &told["counts"];
        let count = |key: &str| counts[key].as_u64().unwrap_or_default();
        Ok(BitbucketDataCenterDeliveries {
            success: delivery(&told["lastSuccess"]),
            failure: delivery(&told["lastFailure"]),
            error: delivery(&told["lastError"]),
            unsuccessful: count("failures").saturating_add(count("errors")),
        })
    }
}

fn hook(row: &Value) -> Option<BitbucketDataCenterHook> {
    let has_secret = |told: &serde_json::Map<String, Value>| {
        told.get("secret").and_then(Value::as_str).is_some_and(|secret| !secret.is_empty())
    };
    Some(BitbucketDataCenterHook {
        id: row["id"].as_u64()?,
        url: row["url"].as_str()?.to_owned(),
        active: row["active"] == true,
        has_secret: row["configuration"].as_object().map(has_secret),
        verifies_tls: row["sslVerificationRequired"] != false,
        events: row["events"].as_array().into_iter().flatten().map(word).collect(),
    })
}

/// Reads a delivery (`RestDetailedInvocation`).
fn delivery(told: &Value) -> Option<BitbucketDataCenterDelivery> {
    let at = answers::moment(&told["finish"]).or_else(|| answers::moment(&told["start"]))?;
    let result = [&told["result"]["outcome"], &told["result"]["description"]].map(word);
    let result = result.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    Some(BitbucketDataCenterDelivery { event: word(&told["event"]), at, result })
}

/// Returns a short text in one line.
fn word(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_WORD).collect()
}
