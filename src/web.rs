//! HTTP: `/events` for hosts, pages and API for people. Access rules are in [`access`].

pub mod access;
pub mod api;
pub mod dashboard;
pub mod jobs;

use crate::dispatch::Handle;
use crate::store::Store;
use crate::store::logs::Logs;
use crate::webhook::Secrets;
use secrecy::SecretString;
use std::sync::Arc;

/// What the routes need.
pub struct WebState {
    /// Webhook secrets.
    pub secrets: Secrets,
    /// Set once state is open; until then pages and deliveries are answered 503 and health is fine (listen first).
    pub ready: tokio::sync::watch::Receiver<Option<Arc<Ready>>>,
    /// Who may see pages.
    pub access: access::Access,
    /// Base path and address for links; no trailing slash.
    pub url: String,
    /// `--api-secret`.
    pub api_secret: Option<SecretString>,
    /// `--disable-global-apply-lock`.
    pub disable_global_apply_lock: bool,
    /// `apply` is an allowed command.
    pub apply_allowed: bool,
}

/// What is there once state is open.
pub struct Ready {
    /// State.
    pub store: Store,
    /// Logs.
    pub logs: Logs,
    /// Commands.
    pub dispatch: Handle,
}

/// All routes.
pub fn router(_state: Arc<WebState>) -> axum::Router {
    todo!()
}
