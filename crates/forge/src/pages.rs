//! Pages for the browser, rendered by the forge. Without JavaScript, people reload them by hand.
//!
//! They require no login, so they serve this machine only: the `Host` must be ours and a form must come from our own page. Otherwise any
//! website could make this forge run Terraform code through the server.

mod forms;
mod markdown;
mod views;

use super::{Shared, kind};
use axum::body::Bytes;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use futures::StreamExt;
use http::{HeaderValue, Method, StatusCode, header, request};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio_stream::wrappers::WatchStream;

/// Keeps browsers from running, framing or fetching anything else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'";

/// Fields of a form or a query.
pub(super) type Fields = HashMap<String, String>;

/// The result of a form or a page. Errors are worded for people.
enum Reaction {
    Page(String),
    Redirect(String),
    NotFound,
}

/// Answers a browser.
pub(super) async fn answer(shared: Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let mut response = match refuse_strangers(&shared, parts) {
        Some(refusal) => refusal,
        None => route(&shared, parts, body).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses requests of other sites in the person's browser, by their `Origin` or their `Host`.
fn refuse_strangers(shared: &Shared, parts: &request::Parts) -> Option<Response> {
    let text = |name| parts.headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let port = shared.url.rsplit(':').next().unwrap_or_default();
    let host = text(header::HOST).unwrap_or_default();
    let ours = [format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}"), shared.url.clone()];
    if !ours.iter().any(|address| address.strip_prefix("http://") == Some(host)) {
        return Some((StatusCode::FORBIDDEN, format!("open {} instead", shared.url)).into_response());
    }
    if parts.method == Method::GET {
        return None;
    }
    let own_page = match text(header::ORIGIN) {
        Some(origin) => origin == format!("http://{host}"),
        None => parts.headers.get("sec-fetch-site").is_none(),
    };
    (!own_page).then(|| (StatusCode::FORBIDDEN, "this form comes from another site").into_response())
}

async fn route(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    match (parts.method.as_str(), parts.uri.path()) {
        ("GET", "/sandbox.css") => return asset("text/css", include_str!("../templates/sandbox.css")),
        ("GET", "/sandbox.js") => return asset("text/javascript", include_str!("../templates/sandbox.js")),
        ("GET", "/changes") => return changes(shared).into_response(),
        _ => {}
    }
    let segments = kind::segments(parts.uri.path());
    let query = fields(parts.uri.query().unwrap_or_default().as_bytes());
    let reaction = match parts.method {
        Method::GET => views::show(shared, &segments, &query).await,
        Method::POST => forms::act(shared, &segments, &fields(&body)).await,
        _ => Ok(Reaction::NotFound),
    };
    match reaction {
        Ok(Reaction::Page(html)) => Html(html).into_response(),
        Ok(Reaction::Redirect(place)) => (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response(),
        Ok(Reaction::NotFound) => views::problem(shared, StatusCode::NOT_FOUND, "There is no such page."),
        Err(error) => views::problem(shared, StatusCode::UNPROCESSABLE_ENTITY, &format!("{error:#}")),
    }
}

fn fields(text: &[u8]) -> Fields {
    url::form_urlencoded::parse(text).into_owned().collect()
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Sends one event per change of the state, for the script that refreshes open pages; ends with the forge.
fn changes(shared: &Shared) -> impl IntoResponse + use<> {
    let counts = WatchStream::from_changes(shared.changes.subscribe());
    let events = counts.map(|count| Ok::<_, Infallible>(Event::default().data(count.to_string())));
    Sse::new(events.take_until(shared.stop.clone().cancelled_owned())).keep_alive(KeepAlive::default())
}
