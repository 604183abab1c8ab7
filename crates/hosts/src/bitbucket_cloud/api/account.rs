//! Our own account, whose comments are never commands.

use super::{BitbucketCloud, answers};
use crate::bitbucket_cloud::BitbucketCloudCredentials;
use crate::vcs::http::odd;
use crate::vcs::{Host as _, HostError};
use serde_json::Value;
use std::sync::atomic::Ordering;
use tidelock_core::domain::Login;
use tidelock_core::render::marker;

/// Longest name that is shown, in characters.
const MAX_NAME: usize = 100;

/// Account of our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitbucketCloudAccount {
    /// Login: an account id, or a UUID in braces.
    pub login: Login,
    /// Name that people see, without control characters.
    pub display_name: String,
}

impl BitbucketCloud {
    /// Loads certificates, and learns our login, before the first request of others. The host may refuse to tell an access token its
    /// account; the answer to the first comment tells it then.
    pub async fn prepare(&self) -> Result<(), HostError> {
        self.http.prepare().await?;
        self.own_login().await.map(drop)
    }

    /// Returns the account of the token; needs the scope `read:user:bitbucket`. It is requested once.
    pub async fn account(&self) -> Result<&BitbucketCloudAccount, HostError> {
        if let Some(account) = self.account.get() {
            return Ok(account);
        }
        let body = self.http.get("/user").await?.body;
        self.remember_account(&body).ok_or_else(|| odd("GET /user", "no account_id and no uuid"))
    }

    /// Returns our login; unknown if the host does not tell it to an access token, which is asked for once.
    pub(super) async fn own_login(&self) -> Result<&Login, HostError> {
        if self.untold.load(Ordering::Relaxed) {
            return Ok(self.bot_login());
        }
        match self.account().await {
            Ok(account) => Ok(&account.login),
            Err(
                error @ (HostError::Denied { .. }
                | HostError::NotFound { .. }
                | HostError::Rejected { status: 400, .. }),
            ) if self.credentials == BitbucketCloudCredentials::AccessToken => {
                tracing::debug!("{error}; our account is learned from our first comment");
                self.untold.store(true, Ordering::Relaxed);
                Ok(&self.unknown)
            }
            Err(error) => Err(error),
        }
    }

    /// Remembers the account that an answer to our own request tells; absent if it tells none.
    pub(super) fn remember_account(&self, told: &Value) -> Option<&BitbucketCloudAccount> {
        let login = answers::login(told);
        if login.is_unknown() {
            return self.account.get();
        }
        let name = told["display_name"].as_str().unwrap_or_default();
        let display_name = name.chars().filter(|char| !char.is_control()).take(MAX_NAME).collect();
        Some(self.account.get_or_init(|| BitbucketCloudAccount { login, display_name }))
    }

    /// Returns true if a comment may be one of ours that cannot be told by its author, as our account is not known: its last line is a
    /// marker.
    pub(super) fn may_be_ours(&self, body: &str) -> bool {
        self.account.get().is_none() && marker::parse(body).is_some()
    }
}
