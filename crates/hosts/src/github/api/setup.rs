//! Checks of `tidelock doctor` on GitHub: our account, the repositories we may write to, and the webhooks.

use super::app::{AppFacts, Installation};
use super::{Github, repo_path};
use crate::vcs::http::{Http, odd, segment};
use crate::vcs::{HostError, RepoAccess, TokenSource, Webhook};
use reqwest::Method;
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tidelock_core::domain::{Login, RepoId};

/// Rows on one page: GitHub's maximum.
const PER_PAGE: u32 = 100;
/// Most pages of repositories.
const REPO_PAGES: u32 = 20;
/// Most pages of webhooks: GitHub allows twenty webhooks for each event.
const HOOK_PAGES: u32 = 5;
/// Longest answer to a delivery that is quoted, in characters.
const MAX_ANSWER: usize = 200;

/// Returns all repositories that the token lists by name, with its rights. Public repositories of others are not among them.
pub(super) async fn repositories(github: &Github) -> Result<Vec<RepoAccess>, HostError> {
    if let Some(app) = &github.app {
        let rows = app.repositories(&github.http).await?;
        let read = |(row, can_write): (Value, bool)| Some(RepoAccess { can_write, ..github.repository(&row)? });
        return Ok(rows.into_iter().filter_map(read).collect());
    }
    let read = |row: Value| github.repository(&row).map(Ok);
    github.repositories.pages(&github.http, "/user/repos", PER_PAGE, REPO_PAGES, read).await
}

impl Github {
    /// Returns the login of the token's account.
    pub async fn login(&self) -> Result<Login, HostError> {
        let answer = self.http.get("/user").await?;
        Ok(answer.body["login"].as_str().map_or_else(Login::unknown, Login::new))
    }

    fn repository(&self, row: &Value) -> Option<RepoAccess> {
        Some(RepoAccess {
            repo: RepoId {
                host: self.hostname.clone(),
                owner: row["owner"]["login"].as_str()?.to_owned(),
                name: row["name"].as_str()?.to_owned(),
            },
            of_organization: row["owner"]["type"] == "Organization",
            archived: row["archived"] == true,
            can_write: row["permissions"]["push"] == true,
        })
    }

    /// Returns GitHub's data of the App and its installations; absent if the server is an account.
    pub async fn app(&self) -> Result<Option<(AppFacts, Arc<[Installation]>)>, HostError> {
        let Some(app) = &self.app else { return Ok(None) };
        let facts = app.facts(&self.http).await?;
        Ok(Some((facts, app.installations(&self.http, Duration::ZERO).await?)))
    }

    /// Returns the webhook of the App.
    pub async fn app_webhook(&self) -> Result<Webhook, HostError> {
        let config = self.http.get("/app/hook/config").await?.body;
        let path = "/app/hook/deliveries?per_page=1";
        let last = self.http.get(path).await?.body[0].take();
        let row = serde_json::json!({"active": true, "config": config, "last_response": {
            "code": last["status_code"], "message": last["status"], "status": if last.is_null() { "unused" } else { "" },
        }});
        Ok(Webhook { deliveries: "/app/hook/deliveries".to_owned(), ..webhook("", &row) })
    }

    /// Returns the webhooks of a repository.
    pub async fn repository_webhooks(&self, repo: &RepoId) -> Result<Vec<Webhook>, HostError> {
        self.webhooks(&format!("{}/hooks", repo_path(repo)?)).await
    }

    /// Returns the webhooks of an organization.
    pub async fn organization_webhooks(&self, name: &str) -> Result<Vec<Webhook>, HostError> {
        self.webhooks(&format!("/orgs/{}/hooks", segment(name))).await
    }

    async fn webhooks(&self, path: &str) -> Result<Vec<Webhook>, HostError> {
        self.http.pages(path, PER_PAGE, HOOK_PAGES, |row| Some(webhook(path, &row))).await
    }

    /// Returns our answer to the last delivery of a webhook, in one line; empty if there was none.
    pub async fn last_answer(&self, hook: &Webhook) -> Result<String, HostError> {
        let last = self.http.get(&format!("{}?per_page=1", hook.deliveries)).await?;
        let Some(id) = last.body[0]["id"].as_u64() else { return Ok(String::new()) };
        let delivery = self.http.get(&format!("{}/{id}", hook.deliveries)).await?;
        let text = delivery.body["response"]["payload"].as_str().unwrap_or_default();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(words.chars().filter(|c| !c.is_control()).take(MAX_ANSWER).collect())
    }
}

fn webhook(path: &str, row: &Value) -> Webhook {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let config = &row["config"];
    let events = row["events"].as_array().into_iter().flatten().map(text).collect();
    let last = &row["last_response"];
    Webhook {
        url: text(&config["url"]),
        active: row["active"] == true,
        json: config["content_type"] == "json",
        // "0", and the number 0 on older servers.
        verifies_tls: matches!(&config["insecure_ssl"], Value::Null)
            || [Value::from("0"), Value::from(0)].contains(&config["insecure_ssl"]),
        events,
        last_status: last["code"].as_u64().and_then(|code| u16::try_from(code).ok()),
        last_message: text(&last["message"]),
        last_answer: String::new(),
        deliveries: row["id"].as_u64().map(|id| format!("{path}/{id}/deliveries")).unwrap_or_default(),
        was_used: last["status"].as_str().is_some_and(|status| status != "unused"),
    }
}

/// A new App, with the secrets that GitHub reveals once.
pub struct NewApp {
    /// Id of the App.
    pub id: u64,
    /// Name in addresses.
    pub slug: String,
    /// Page of the App for people.
    pub page: String,
    /// Private key of the App, in PEM.
    pub key: SecretString,
    /// Secret that its deliveries are signed with.
    pub webhook_secret: SecretString,
}

/// Exchanges the code of a manifest for the App that was created from it. A code is good for one exchange, within an hour.
pub async fn convert_manifest(api_url: &str, code: &str) -> Result<NewApp, HostError> {
    let api_url = api_url.trim_end_matches('/').to_owned();
    let http = Http::new(api_url, TokenSource::Value(String::new().into()), HeaderMap::new());
    let path = format!("/app-manifests/{}/conversions", segment(code));
    let answer = http.send(Method::POST, &path, None).await;
    let body = answer.map_err(|error| without_code(error, &segment(code)))?.body;
    let text = |key: &str| body[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let made = || {
        Some(NewApp {
            id: body["id"].as_u64()?,
            slug: text("slug")?,
            page: text("html_url").unwrap_or_default(),
            key: text("pem")?.into(),
            webhook_secret: text("webhook_secret").unwrap_or_default().into(),
        })
    };
    made().ok_or_else(|| odd("the exchange of the manifest's code", "an app without id, slug or key"))
}

/// Removes the code of a manifest from an error, as it may still be good.
fn without_code(error: HostError, code: &str) -> HostError {
    let cut = |text: String| text.replace(code, "CODE");
    let what = "POST /app-manifests/CODE/conversions".to_owned();
    match error {
        HostError::NotFound { .. } => HostError::NotFound { what },
        HostError::Moved { to, .. } => HostError::Moved { what, to: cut(to) },
        HostError::Denied { message, .. } => HostError::Denied { what, message: cut(message) },
        HostError::RateLimited { wait, .. } => HostError::RateLimited { what, wait },
        HostError::Rejected { status, message, .. } => HostError::Rejected { what, status, message: cut(message) },
        HostError::TooLong { message, .. } => HostError::TooLong { what, message: cut(message) },
        HostError::UnknownCommit { message, .. } => HostError::UnknownCommit { what, message: cut(message) },
        HostError::Unavailable { message, .. } => HostError::Unavailable { what, message: cut(message) },
        error @ HostError::NotConfigured { .. } => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_code_of_a_manifest_is_in_no_error() {
        let error = convert_manifest("http://127.0.0.1:1", "s3cret-code").await.err().unwrap();
        assert!(error.is_transient() && !error.to_string().contains("s3cret"), "{error}");
        let rejected = HostError::Rejected { what: "x".into(), status: 422, message: "bad s3cret".into() };
        assert_eq!(without_code(rejected, "s3cret").to_string(), "POST /app-manifests/CODE/conversions: 422: bad CODE");
    }
}
