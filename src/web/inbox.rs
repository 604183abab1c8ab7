//! Deliveries that arrive while this server does not lead: verified, stored in the bucket, and then answered.

use super::Site;
use crate::vault::inbox::{StoredDelivery, store_delivery};
use crate::vault::{FORMAT, Hash, Vault, VaultError};
use crate::webhook::Intake;
use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Timeout of storing; GitHub gives up after ten seconds.
const STORE_LIMIT: Duration = Duration::from_secs(8);

/// Status and text of the response to an authentic delivery.
pub(super) type DeliveryResponse = (StatusCode, &'static str);

/// Stores an authentic delivery for the next leader. Storing continues after the time limit.
pub(super) async fn store(site: &Site, headers: &HeaderMap, body: Bytes, key: Option<String>) -> DeliveryResponse {
    let (vault, intake, headers) = (site.state.vault.clone(), site.state.intake.clone(), headers.clone());
    let stored = tokio::spawn(async move { store_now(&vault, intake, headers, body, key).await });
    let problem = match tokio::time::timeout(STORE_LIMIT, stored).await {
        Ok(Ok(Ok(()))) => {
            site.state.meters.stored.fetch_add(1, Ordering::Relaxed);
            // This server may have become the leader, and may have checked the inbox before the delivery was stored.
            if let Some(services) = &site.server_status().services {
                services.look.notify_one();
            }
            return (StatusCode::ACCEPTED, "Stored; the server that leads takes it from here.");
        }
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(panic)) => panic.to_string(),
        Err(_) => format!("no answer within {STORE_LIMIT:?}"),
    };
    site.state.meters.failed.fetch_add(1, Ordering::Relaxed);
    if let Some(unsaid) = site.rejections.say() {
        tracing::error!(unsaid, "a delivery could not be stored in the inbox, so it was answered 503: {problem}");
    }
    (StatusCode::SERVICE_UNAVAILABLE, "The delivery could not be stored. Deliver it again.")
}

async fn store_now(
    vault: &Vault,
    intake: Intake,
    headers: HeaderMap,
    body: Bytes,
    key: Option<String>,
) -> Result<(), VaultError> {
    // Off the async threads: a body has up to 25 MB.
    let made = tokio::task::spawn_blocking(move || {
        let headers = intake.stored_headers(&headers, &body, key.as_deref());
        let body_text = base64::engine::general_purpose::STANDARD.encode(&body);
        let name = name(&intake, &headers, &body, key.as_deref());
        (name, StoredDelivery { format: FORMAT, received: Timestamp::now(), headers, body: body_text, key })
    });
    let (name, delivery) = made.await.map_err(|error| VaultError::Local(error.to_string()))?;
    store_delivery(vault, name, &delivery).await
}

/// Returns the name of a delivery: a hash of event, body and the secret that it is signed with, so that a repeated delivery has the same
/// name. Signed with another secret it is another object, which a leader may be able to verify.
fn name(intake: &Intake, headers: &[(String, String)], body: &[u8], key: Option<&str>) -> Hash {
    let mut digest = Sha256::new();
    for (name, value) in headers.iter().filter(|(name, _)| intake.names_event(name)) {
        digest.update(format!("{name}: {value}\n"));
    }
    if let Some(key) = key {
        digest.update(format!("key: {key}\n"));
    }
    digest.update(b"\n");
    digest.update(body);
    Hash(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidelock_hosts::github::GithubDoor;

    #[test]
    fn a_delivery_is_named_by_its_event_its_body_and_its_secret_alone() {
        let headers = |event: &str, id: &str| {
            let pairs = [("x-github-event", event), ("x-github-delivery", id), ("content-type", "application/json")];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
        };
        let intake = Intake::new(vec![Arc::new(GithubDoor::default())]);
        let name = |headers: &[_], body: &[u8], key| name(&intake, headers, body, key);
        let first = name(&headers("issue_comment", "1"), b"{}", Some("a"));
        assert_eq!(first, name(&headers("issue_comment", "2"), b"{}", Some("a")));
        assert_ne!(first, name(&headers("pull_request", "1"), b"{}", Some("a")));
        assert_ne!(first, name(&headers("issue_comment", "1"), b"{ }", Some("a")));
        assert_ne!(first, name(&headers("issue_comment", "1"), b"{}", Some("b")));
        assert_ne!(first, name(&headers("issue_comment", "1"), b"{}", None));
    }
}
