//! `POST /events`: deliveries of VCS hosts. This path carries load, so nothing stands before it but the bounded read of its body.

use super::answer::RETRY_SECONDS;
use super::{Ready, Site};
use crate::webhook;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Longest time that a delivery may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bodies up to this many bytes are read at once; larger ones, and those that do not tell their size, wait for a permit.
const SMALL_BODY: usize = 1024 * 1024;

/// How many large bodies are read at the same time: together with [`webhook::MAX_BODY`] it bounds what unsigned bytes cost.
pub(super) const MAX_LARGE_BODIES: usize = 4;

/// How long a delivery waits for the start; GitHub gives up after ten seconds.
const START_PATIENCE: Duration = Duration::from_secs(8);

/// How many deliveries wait for the start at the same time.
pub(super) const MAX_EARLY: usize = 256;

/// Anybody can send what is turned away, so the log gets one line about it per this many seconds.
const REJECTION_SECONDS: i64 = 1;

/// Decides which rejections are logged.
#[derive(Default)]
pub(super) struct Rejections {
    last: AtomicI64,
    unsaid: AtomicU64,
}

impl Rejections {
    /// How many were not logged since the last that was, if this one may be.
    fn say(&self) -> Option<u64> {
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

/// Verifies a delivery, hands it to dispatch and answers what dispatch says.
pub(super) async fn receive(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let announced = content_length(&parts.headers);
    if announced.is_some_and(|length| length > webhook::MAX_BODY) {
        return too_large();
    }
    let read = async {
        let _permit = match announced {
            Some(length) if length <= SMALL_BODY => None,
            _ => site.large_bodies.acquire().await.ok(),
        };
        to_bytes(body, webhook::MAX_BODY).await
    };
    let body = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return too_large(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time").into_response(),
    };
    match webhook::receive(&parts.headers, &body, &site.state.secrets) {
        Ok(event) => {
            drop(body);
            let Some(ready) = ready(&site).await else { return retry("starting: state is not open yet") };
            let answer = ready.dispatch.accept(event).await;
            (status(answer.status), answer.text).into_response()
        }
        Err(rejection) => {
            if let Some(unsaid) = site.rejections.say() {
                let (status, message) = (rejection.status, &rejection.message);
                tracing::warn!(status, unsaid, "delivery turned away: {message}");
            }
            (status(rejection.status), rejection.message).into_response()
        }
    }
}

/// The services, once state is open: an authentic delivery that comes while the server starts waits for it, since most hosts
/// never deliver again.
async fn ready(site: &Site) -> Option<Arc<Ready>> {
    if let Some(ready) = site.state.ready.borrow().clone() {
        return Some(ready);
    }
    let _place = site.early.try_acquire().ok()?;
    let mut watching = site.state.ready.clone();
    let opened = tokio::time::timeout(START_PATIENCE, watching.wait_for(Option::is_some)).await;
    opened.ok()?.ok()?.clone()
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn too_large() -> Response {
    let text = format!("the body is larger than {} bytes or broke off", webhook::MAX_BODY);
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

    #[tokio::test]
    async fn a_delivery_waits_for_the_start_and_is_sent_away_when_the_start_fails() {
        let (starting, watching) = tokio::sync::watch::channel(None);
        let state = crate::web::WebState { ready: watching, ..crate::web::front_door_tests::web_state(None) };
        let site = Site::new(Arc::new(state));
        let mut waiting = std::pin::pin!(ready(&site));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(starting);
        assert!(waiting.await.is_none());
    }
}
