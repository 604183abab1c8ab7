//! Checks of `tidelock doctor` on GitLab: the token, our role in projects, and their webhooks.

use super::{Gitlab, answers, people};
use crate::vcs::HostError;
use crate::vcs::http::segment;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;
use tidelock_core::domain::RepoId;

/// Webhooks on one page.
const PER_PAGE: u32 = 100;
/// Most pages of webhooks of one project or group: the host allows a hundred (docs.gitlab.com/administration/instance_limits).
const HOOK_PAGES: u32 = 5;
/// Longest answer to a delivery that is quoted, in characters.
const MAX_ANSWER: usize = 200;

/// Our token, as the host describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessToken {
    /// Scopes; `api` is needed.
    pub scopes: Vec<String>,
    /// Day on which it stops working, at midnight UTC; absent if it does not expire.
    pub expires: Option<Date>,
}

/// A webhook of a project or group as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectHook {
    /// Number of the hook.
    pub id: u64,
    /// Address that it delivers to.
    pub url: String,
    /// True if it delivers events of merge requests.
    pub merge_requests: bool,
    /// True if it delivers comments.
    pub notes: bool,
    /// True if it delivers pushes.
    pub pushes: bool,
    /// True if the host verifies our certificate.
    pub verifies_tls: bool,
    /// `executable`, `temporarily_disabled` or `disabled`; empty if the host does not report it.
    pub alert_status: String,
    /// Time until which it is disabled; absent if it is not, or if it is disabled for good.
    pub disabled_until: Option<Timestamp>,
    /// True if it has a secret token or a signing token; absent if the host does not report it.
    pub has_secret: Option<bool>,
    /// True if a custom template makes the body.
    pub has_template: bool,
}

/// Our answer to a delivery, as the host keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookAnswer {
    /// HTTP status, such as `200`, or `internal error` if there was no answer.
    pub status: String,
    /// Body in one line, at most 200 characters.
    pub body: String,
}

impl Gitlab {
    /// Returns the version of the instance, such as `18.6.0-ee`.
    pub async fn version(&self) -> Result<String, HostError> {
        let body = self.http.get("/version").await?.body;
        Ok(body["version"].as_str().unwrap_or_default().chars().filter(char::is_ascii_graphic).take(40).collect())
    }

    /// Returns the host's data of our token (docs.gitlab.com/api/personal_access_tokens, "Self-inform").
    pub async fn access_token(&self) -> Result<AccessToken, HostError> {
        let body = self.http.get("/personal_access_tokens/self").await?.body;
        let scopes = body["scopes"].as_array().into_iter().flatten();
        Ok(AccessToken {
            scopes: scopes.filter_map(Value::as_str).map(str::to_owned).collect(),
            expires: body["expires_at"].as_str().and_then(|day| day.parse().ok()),
        })
    }

    /// Returns our access level in a project: 30 Developer, 40 Maintainer, 50 Owner; 0 if we are no member.
    pub async fn own_access_level(&self, repo: &RepoId) -> Result<u64, HostError> {
        let id = self.account().await?.id;
        people::access_level_of(self, &self.address.project_path(repo)?, id).await
    }

    /// Returns the webhooks of a project; only a Maintainer sees them (docs.gitlab.com/api/project_webhooks).
    pub async fn project_hooks(&self, repo: &RepoId) -> Result<Vec<ProjectHook>, HostError> {
        let path = format!("{}/hooks", self.address.project_path(repo)?);
        self.http.pages(&path, PER_PAGE, HOOK_PAGES, |row| hook(&row)).await
    }

    /// Returns the webhooks of a group; only an Owner sees them, and only with a license (docs.gitlab.com/api/group_webhooks).
    pub async fn group_hooks(&self, group: &str) -> Result<Vec<ProjectHook>, HostError> {
        let path = format!("/groups/{}/hooks", segment(group));
        self.http.pages(&path, PER_PAGE, HOOK_PAGES, |row| hook(&row)).await
    }

    /// Returns our answer to the last delivery of a project's webhook within two days; absent if there was none
    /// (docs.gitlab.com/api/project_webhooks, "List all events for a project webhook").
    pub async fn last_hook_answer(&self, repo: &RepoId, hook: u64) -> Result<Option<HookAnswer>, HostError> {
        let path = format!("{}/hooks/{hook}/events?per_page=1", self.address.project_path(repo)?);
        let body = self.http.get(&path).await?.body;
        let Some(last) = body.get(0) else { return Ok(None) };
        let line = |value: &Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            words.chars().filter(|char| !char.is_control()).take(MAX_ANSWER).collect()
        };
        Ok(Some(HookAnswer { status: line(&last["response_status"]), body: line(&last["response_body"]) }))
    }
}

fn hook(row: &Value) -> Option<ProjectHook> {
    let tokens = [&row["token_present"], &row["signing_token_present"]];
    Some(ProjectHook {
        id: row["id"].as_u64()?,
        url: row["url"].as_str()?.to_owned(),
        merge_requests: row["merge_requests_events"] == true,
        notes: row["note_events"] == true,
        pushes: row["push_events"] == true,
        verifies_tls: row["enable_ssl_verification"] == true,
        alert_status: row["alert_status"].as_str().unwrap_or_default().to_owned(),
        disabled_until: answers::moment(&row["disabled_until"]),
        has_secret: tokens.iter().any(|told| told.is_boolean()).then(|| tokens.iter().any(|told| **told == true)),
        has_template: row["custom_webhook_template"].as_str().is_some_and(|template| !template.is_empty()),
    })
}
