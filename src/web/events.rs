//! `POST /events`: deliveries of VCS hosts. This path carries load, so only the bounded read of the body precedes verification.

mod bodies;

pub(super) use bodies::Bodies;

use super::access::address;
use super::answer::RETRY_SECONDS;
use super::connections::{Connection, Phase};
use super::{Site, inbox};
use crate::dispatch::DeliveryOutcome;
use crate::domain::Event;
use crate::webhook::{MAX_BODY, Verified};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use bodies::{BodyProblem, ClaimedSignature};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tracing::Instrument;

/// Time limit of recording a delivery; GitHub gives up after ten seconds.
const ACCEPT_LIMIT: Duration = Duration::from_secs(9);

/// Interval in seconds between two log lines about rejections, which anybody can cause.
const REJECTION_SECONDS: i64 = 1;

/// Decides which rejections are logged.
#[derive(Default)]
pub(super) struct Rejections {
    last: AtomicI64,
    unsaid: AtomicU64,
}

impl Rejections {
    /// Returns the number of rejections since the last logged one, if this one may be logged.
    pub(super) fn say(&self) -> Option<u64> {
        self.say_at(jiff::Timestamp::now().as_second())
    }

    fn say_at(&self, now: i64) -> Option<u64> {
        let last = self.last.load(Ordering::Relaxed);
        let due = (now - last).abs() >= REJECTION_SECONDS
            && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Verifies a delivery, passes it to dispatch, and responds with the outcome.
pub(super) async fn receive(
    State(site): State<Arc<Site>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let address = match may_deliver(&site, peer, &parts.headers) {
        Ok(address) => address,
        Err(text) => return turn_away(&site, StatusCode::FORBIDDEN, text),
    };
    // Signed requests are never throttled: hosts deliver for strangers as well, from the same addresses as for us.
    let wait = site.signatures.wait(address);
    let is_signed = site.state.intake.is_signed(&parts.headers);
    if let Some(seconds) = wait.filter(|_| !is_signed) {
        return too_many(&site, seconds);
    }
    let announced = content_length(&parts.headers);
    if announced.is_some_and(|length| length > MAX_BODY) {
        return too_large();
    }
    let connection = parts.extensions.get::<Arc<Connection>>();
    if let Some(connection) = connection {
        connection.is_of(address);
        connection.enter(Phase::Body);
    }
    let arrived = || connection.into_iter().for_each(|connection| connection.enter(Phase::Body));
    let signature = if is_signed { ClaimedSignature::Present } else { ClaimedSignature::Absent };
    let read = site.bodies.read(address, signature, body, announced, arrived).await;
    connection.into_iter().for_each(|connection| connection.enter(Phase::Answer));
    let (body, room) = match read {
        Ok(read) => read,
        Err(BodyProblem::TooLarge) => return too_large(),
        Err(BodyProblem::Late) => {
            return (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time").into_response();
        }
        Err(BodyProblem::NoRoom) => {
            let mut response = retry("Too many deliveries arrive at once. Deliver it again.");
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
    };
    let received = site.state.intake.receive(&parts.headers, &body);
    // The host waits for an authentic delivery, and any other is discarded.
    drop(room);
    match received {
        Ok(event) => make_durable(&site, event, &parts.headers, body).await,
        Err(rejection) if rejection.status == StatusCode::UNAUTHORIZED => {
            site.signatures.failed(address);
            match wait {
                Some(seconds) => too_many(&site, seconds),
                None => turn_away(&site, StatusCode::UNAUTHORIZED, rejection.message),
            }
        }
        Err(rejection) => turn_away(&site, status(rejection.status), rejection.message),
    }
}

/// Returns the client's address, or the reason for which it may not deliver.
fn may_deliver(site: &Site, peer: SocketAddr, headers: &HeaderMap) -> Result<IpAddr, String> {
    let access = &site.state.access;
    if access.polls {
        return Err("this server asks the hosts and takes no deliveries (--poll): delete the webhook, or start the server without --poll"
            .to_owned());
    }
    let Some(address) = address::client(peer, headers, access.hops) else {
        let hops = access.hops;
        return Err(format!(
            "the client's address is unknown: X-Forwarded-For has fewer addresses than --trusted-proxy-hops={hops} proxies add"
        ));
    };
    match &access.sources {
        Some(sources) if !sources.allow(address) => {
            Err(format!("deliveries from {address} are not taken: --webhook-allowlist does not name that address"))
        }
        _ => Ok(address),
    }
}

/// Counts a rejected delivery, and logs it at intervals.
fn turn_away(site: &Site, status: StatusCode, text: String) -> Response {
    site.state.meters.rejected.fetch_add(1, Ordering::Relaxed);
    if let Some(unsaid) = site.rejections.say() {
        tracing::warn!(status = status.as_u16(), unsaid, "delivery turned away: {text}");
    }
    (status, text).into_response()
}

fn too_many(site: &Site, seconds: u32) -> Response {
    let text = "too many deliveries with a wrong signature came from this address".to_owned();
    let mut response = turn_away(site, StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

/// Makes an authentic delivery durable, then responds. It is recorded in the state while this server leads, else stored in the inbox. The
/// inbox is also used if the state turns out to be closed or another server's by now.
async fn make_durable(site: &Arc<Site>, event: Verified<Event>, headers: &HeaderMap, body: Bytes) -> Response {
    if let Some(outcome) = DeliveryOutcome::without_work(event.get()) {
        return answer(site, outcome);
    }
    let (ours, headers) = (Arc::clone(site), headers.clone());
    // In a task of its own: a host that disconnects must not separate the record from the work on it.
    let accepting = tokio::spawn(
        async move {
            // From here on this server stays awake, or wakes: it takes what is stored from the inbox.
            let _visit = ours.state.attention.visit();
            let response = record_or_store(&ours, event, &headers, body).await;
            ours.state.attention.ensure_call().await;
            response
        }
        .in_current_span(),
    );
    accepting.await.unwrap_or_else(|_| retry("The delivery could not be recorded. Deliver it again."))
}

async fn record_or_store(site: &Arc<Site>, event: Verified<Event>, headers: &HeaderMap, body: Bytes) -> Response {
    let key = event.key().map(str::to_owned);
    let server_status = site.server_status();
    if let Some(services) = server_status.services.clone().filter(|_| server_status.intake) {
        drop(server_status);
        // In a task of its own: the time limit must not separate the record from the work on it.
        let accepting = tokio::spawn(async move { services.dispatch.accept(event).await }.in_current_span());
        match tokio::time::timeout(ACCEPT_LIMIT, accepting).await {
            Ok(Ok(outcome)) if outcome.is_final() => return answer(site, outcome),
            Ok(_) => {}
            Err(_) => {
                site.state.meters.failed.fetch_add(1, Ordering::Relaxed);
                return retry("The delivery could not be recorded in time. Deliver it again.");
            }
        }
    }
    match inbox::store(site, headers, body, key).await {
        (StatusCode::SERVICE_UNAVAILABLE, text) => retry(text),
        answer => answer.into_response(),
    }
}

/// Returns the response for what dispatch did with a delivery. Hosts show its text beside the delivery.
fn answer(site: &Site, outcome: DeliveryOutcome) -> Response {
    let status = match outcome {
        DeliveryOutcome::Ignored(_)
        | DeliveryOutcome::HeadNoted
        | DeliveryOutcome::Queued
        | DeliveryOutcome::Answered
        | DeliveryOutcome::Known => StatusCode::OK,
        DeliveryOutcome::NotLeading | DeliveryOutcome::Unrecorded => StatusCode::SERVICE_UNAVAILABLE,
    };
    site.state.meters.accepted.fetch_add(1, Ordering::Relaxed);
    (status, outcome.to_string()).into_response()
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn too_large() -> Response {
    let text = format!("the body is larger than {} bytes or broke off", MAX_BODY);
    (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
}

fn retry(text: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_SECONDS.to_string())], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_rejections_is_one_line_a_second() {
        let rejections = Rejections::default();
        let said: Vec<_> = [100, 100, 100, 101, 101, 103].map(|second| rejections.say_at(second)).into();
        assert_eq!(said, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
