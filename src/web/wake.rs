//! Requests to a server that sleeps: visits wake it, and `POST /wake` is the call of a task, which stays open while there is work.

use super::openapi::about;
use super::{Route, Site, Who, route};
use crate::server_status::{Role, ServerStatus};
use crate::wake::{AttendedVisit, CallEnd};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for which a call stays open: Cloud Tasks repeats a call that has no answer after half an hour.
const MAX_CALL: Duration = Duration::from_secs(25 * 60);
/// Longest time for which a page waits for a server that wakes.
const WAKING: Duration = Duration::from_secs(8);

/// Returns the route for tasks that wake this server.
pub(super) fn routes() -> Vec<Route> {
    let doc = about("Keeps this server awake while there is work. For Cloud Tasks and Cloud Scheduler.");
    let doc = doc.text("text/plain; charset=utf-8").problems(&[401, 503]);
    vec![route(Method::POST, "/wake", Who::Wake, call, doc)]
}

/// Takes the call of a task: keeps this server awake while there is work.
async fn call(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    let Some(tokens) = &site.state.access.wake else { return StatusCode::NOT_FOUND.into_response() };
    if let Err(why) = tokens.verify(&headers).await {
        if let Some(unsaid) = site.rejections.say() {
            tracing::warn!(unsaid, "a call of /wake was turned away: {why}");
        }
        return (StatusCode::UNAUTHORIZED, why.to_string()).into_response();
    }
    if !site.state.sleeps {
        return "This server does not sleep.".into_response();
    }
    match site.state.attention.call(MAX_CALL).await {
        CallEnd::Asleep => "There is nothing to do.".into_response(),
        CallEnd::Awake => match site.state.attention.leave_task_for_now().await {
            Ok(()) => "There is more to do, for the next task.".into_response(),
            Err(error) => {
                tracing::warn!("no task was left that goes on, so Cloud Tasks is to repeat this one: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "There is more to do.").into_response()
            }
        },
    }
}

/// Begins a visit if a leader has to serve such a request, and waits until this server leads if it sleeps. Figures are no visit: they are
/// read every few seconds.
pub(super) async fn attend(site: &Site, who: Who, method: &Method, path: &str) -> Option<AttendedVisit> {
    let is_figures = path == "/metrics" || site.state.metrics.path.as_deref() == Some(path);
    if !site.state.sleeps || !matches!(who, Who::People | Who::Api(_) | Who::Token(_)) || is_figures {
        return None;
    }
    let visit = site.state.attention.visit();
    if !matches!(*method, Method::GET | Method::HEAD) {
        // What a call begins goes on when its caller has gone.
        let attention = Arc::clone(&site.state.attention);
        tokio::spawn(async move { attention.ensure_call().await });
    }
    let mut status = site.state.server_status.clone();
    let is_settled = |now: &Arc<ServerStatus>| {
        now.services.is_some() || (now.role == Role::Standby && (now.leader.is_some() || now.mismatch))
    };
    // Otherwise the page says that this server does not lead.
    let _ = tokio::time::timeout(WAKING, status.wait_for(is_settled)).await;
    Some(visit)
}

/// Ends a visit once its answer is sent, which may take as long as a log grows.
pub(super) async fn until_sent(site: &Site, visit: Option<AttendedVisit>, response: Response) -> Response {
    let Some(visit) = visit else { return response };
    site.state.attention.ensure_call().await;
    let keep = move |error| {
        // The body owns the visit as long as it is sent.
        let _visit = &visit;
        error
    };
    response.map(|body| Body::new(body.map_err(keep)))
}
