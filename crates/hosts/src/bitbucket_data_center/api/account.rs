//! Our own account, whose comments are never commands. The host has no request for it, and tells it in a header of each answer to a
//! request with its token (community.developer.atlassian.com/t/24422). A token of a project or a repository has no account that is told.

use super::{BitbucketDataCenter, answers};
use crate::bitbucket_data_center::person;
use crate::vcs::{Host as _, HostError};
use serde_json::Value;
use std::sync::atomic::Ordering;
use tidelock_core::domain::Login;
use tidelock_core::render::marker;

/// Request that needs no permission; its answer has the version (`GET /rest/api/latest/application-properties`).
const PROPERTIES: &str = "/rest/api/latest/application-properties";
/// Longest version that is kept, in characters.
const MAX_VERSION: usize = 60;

/// Instance as the doctor sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketDataCenterInstance {
    /// Version, such as `9.4.3`; empty if the host does not tell it.
    pub version: String,
    /// Account of the token; unknown if the host does not tell it.
    pub login: Option<Login>,
}

impl BitbucketDataCenter {
    /// Loads certificates, and learns our login, before the first request of others.
    pub async fn prepare(&self) -> Result<(), HostError> {
        self.http.prepare().await?;
        self.own_login().await.map(drop)
    }

    /// Returns version and account.
    pub async fn instance(&self) -> Result<BitbucketDataCenterInstance, HostError> {
        let answer = self.http.get(PROPERTIES).await?;
        let version = answer.body["version"].as_str().unwrap_or_default();
        let version = version.chars().filter(char::is_ascii_graphic).take(MAX_VERSION).collect();
        // The name is encoded as in a form.
        let told = answer.account.unwrap_or_default();
        let name = url::form_urlencoded::parse(told.as_bytes()).next().map(|(name, _)| name.into_owned());
        let login = Some(person::login(name.as_deref())).filter(|login| !login.is_unknown());
        Ok(BitbucketDataCenterInstance { version, login })
    }

    /// Returns our login. If the host does not tell it, it is that of the settings until the answer to our first comment tells it; unknown
    /// if the settings have none. It is asked for once.
    pub(super) async fn own_login(&self) -> Result<&Login, HostError> {
        if self.account.get().is_none() && !self.untold.load(Ordering::Relaxed) {
            match self.instance().await?.login {
                Some(login) => drop(self.account.set(login)),
                None => {
                    tracing::debug!("the host does not tell the account of our token");
                    self.untold.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(self.bot_login())
    }

    /// Remembers the author of our own comment.
    pub(super) fn remember_account(&self, told: &Value) {
        let login = answers::login(told);
        if !login.is_unknown() {
            self.account.get_or_init(|| login);
        }
    }

    /// Returns true if a comment may be one of ours that cannot be told by its author, as our account is not known: its last line is a
    /// marker.
    pub(super) fn may_be_ours(&self, body: &str) -> bool {
        self.account.get().is_none() && marker::parse(body).is_some()
    }
}
