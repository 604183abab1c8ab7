//! New tokens of installations: with all rights of the installation, or with the right to read code alone, for jobs on other machines.

use super::{App, InstallationToken, LONGEST_LIFE};
use crate::vcs::HostError;
use crate::vcs::http::{Http, odd};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Remaining life that such a token needs: the job may begin late.
const LEAST_LIFE: Duration = Duration::from_secs(30 * 60);

/// Remaining life of one that is used if there is no answer to the request for a new one.
const USABLE_LIFE: Duration = Duration::from_secs(5 * 60);

impl App {
    /// Returns a token that can read code in the repositories of an account, and do nothing else
    /// (docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app, `permissions`).
    pub(in super::super) async fn reading_token(&self, http: &Http, owner: &str) -> Result<SecretString, HostError> {
        let id = self.installation_of(http, owner).await?;
        let mut known = self.reading_tokens.lock().await;
        if let Some(token) = known.get(&id).filter(|token| token.lives(LEAST_LIFE)) {
            return Ok(token.value.clone());
        }
        let token = match self.new_token(http, id, Some(json!({"permissions": {"contents": "read"}}))).await {
            Ok(token) => token,
            Err(error) => match known.get(&id).filter(|token| error.is_transient() && token.lives(USABLE_LIFE)) {
                Some(token) => return Ok(token.value.clone()),
                None => return Err(error),
            },
        };
        let value = token.value.clone();
        known.insert(id, token);
        Ok(value)
    }

    /// Requests a token of an installation; `body` may ask for fewer rights than the installation has.
    pub(super) async fn new_token(
        &self,
        http: &Http,
        id: u64,
        body: Option<Value>,
    ) -> Result<InstallationToken, HostError> {
        let path = format!("/app/installations/{id}/access_tokens");
        let asked = Instant::now();
        let body = match self.send(http, Method::POST, &path, body).await {
            Ok(body) => body,
            Err(HostError::NotFound { .. }) => {
                self.installations.lock().await.listed = None;
                let message = format!("there is no installation {id} of the App {}", self.options.id);
                return Err(HostError::Denied { what: format!("POST {path}"), message });
            }
            Err(HostError::Denied { what, message }) if message.to_ascii_lowercase().contains("suspended") => {
                self.installations.lock().await.listed = None;
                let message = format!(
                    "{message}. An owner of the account can resume the App in its settings, Installed GitHub Apps"
                );
                return Err(HostError::Denied { what, message });
            }
            Err(error) => return Err(error),
        };
        let value = body["token"].as_str().filter(|token| !token.is_empty());
        let value = value.ok_or_else(|| odd(&path, "no token"))?;
        let end: Option<Timestamp> = body["expires_at"].as_str().and_then(|end| end.parse().ok());
        let host = Timestamp::now() + SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        let life = end.map_or(Duration::ZERO, |end| end.duration_since(host).try_into().unwrap_or_default());
        Ok(InstallationToken { value: value.into(), until: asked + life.min(LONGEST_LIFE) })
    }
}
