//! Builds the access rules of the pages and of `/events` from the settings, and keeps published ranges of addresses up to date.

use super::hosts;
use crate::settings::{DomainSource, OidcSettings, Settings, SignInSettings, SleepSettings};
use crate::web::access::AccessRules;
use crate::web::access::address::Sources;
use crate::web::access::iap::{self, Iap};
use crate::web::access::people::PersonRules;
use crate::web::access::wake_tokens::{self, WakeTokens};
use crate::web::login::SignIn;
use crate::web::login::oidc::{OpenIdConnect, PersonDomain};
use crate::web::login::way::SignInWay;
use anyhow::{Result, anyhow};
use secrecy::{ExposeSecret, SecretString};
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
        sign_in: settings.sign_in.as_ref().map(|sign_in| self::sign_in(sign_in, settings)).transpose()?,
        admins: PersonRules::new(access.admins.clone()),
        hops: access.trusted_proxy_hops,
        polls: settings.poll.is_some(),
        sources: sources.map(Arc::new),
        basic_auth: settings.web_basic_auth.clone(),
        open: settings.allow_unauthenticated_pages,
        wake: wake_tokens(&settings.sleep),
    })
}

/// Returns how people sign in. Without `web-session-key` the key of cookies derives from the secrets of the clients, which all servers of
/// one installation have.
fn sign_in(sign_in: &SignInSettings, settings: &Settings) -> Result<SignIn> {
    let mut ways: Vec<Arc<dyn SignInWay>> = Vec::new();
    if let Some(oidc) = &sign_in.oidc {
        ways.push(Arc::new(issuer(oidc)?));
    }
    ways.extend(hosts::sign_ins(sign_in));
    let secrets = || ways.iter().map(|way| way.client_secret().expose_secret()).collect::<Vec<_>>().join("\n");
    let key = sign_in.session_key.clone().unwrap_or_else(|| SecretString::from(secrets()));
    let viewers = PersonRules::new(sign_in.viewers.clone().unwrap_or_default());
    Ok(SignIn::new(ways, viewers, &key, sign_in.session_length, &settings.atlantis_url))
}

fn issuer(oidc: &OidcSettings) -> Result<OpenIdConnect> {
    let domain = match oidc.domains {
        DomainSource::None => PersonDomain::Unknown,
        DomainSource::HostedDomain => PersonDomain::Hosted,
        DomainSource::Email => PersonDomain::EndOfEmail,
    };
    OpenIdConnect::new(&oidc.issuer, &oidc.client_id, oidc.client_secret.clone(), domain)
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
