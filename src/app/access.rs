//! Builds the access rules of the pages and of `/events` from the settings, and keeps published ranges of addresses up to date.

use super::hosts;
use crate::settings::{Settings, SleepSettings};
use crate::web::access::AccessRules;
use crate::web::access::address::Sources;
use crate::web::access::admins::Admins;
use crate::web::access::iap::{self, Iap};
use crate::web::access::wake_tokens::{self, WakeTokens};
use anyhow::{Result, anyhow};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Returns the access rules. Makes no network request yet.
pub(super) fn rules(settings: &Settings) -> Result<AccessRules> {
    let access = &settings.access;
    let keys_url = access.iap_keys_url.as_deref().unwrap_or(iap::KEYS_URL);
    let sources = Sources::parse(&access.webhook_allowlist, hosts::published(settings))
        .map_err(|why| anyhow!("webhook-allowlist: {why}"))?;
    Ok(AccessRules {
        iap: (!access.iap_audience.is_empty()).then(|| Iap::new(access.iap_audience.clone(), keys_url)),
        admins: Admins::new(access.admins.clone()),
        hops: access.trusted_proxy_hops,
        sources: sources.map(Arc::new),
        basic_auth: settings.web_basic_auth.clone(),
        open: settings.allow_unauthenticated_pages,
        wake: wake_tokens(&settings.sleep),
    })
}

/// Returns the verifier of calls of `/wake`; absent if nobody may call it.
fn wake_tokens(settings: &SleepSettings) -> Option<WakeTokens> {
    let keys_url = settings.wake_keys_url.as_deref().unwrap_or(wake_tokens::KEYS_URL);
    Some(WakeTokens::new(settings.wake_account.as_deref()?, settings.wake_url.clone()?, keys_url))
}

/// Refreshes the published ranges in the background until the server ends; does nothing if the settings name no ranges.
pub(super) fn keep_fresh(rules: &AccessRules, stop: CancellationToken) {
    let Some(sources) = rules.sources.clone() else { return };
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = sources.keep_fresh() => {}
        }
    });
}
