//! Repositories that were renamed or transferred: GitHub redirects requests for their former names.

use super::super::Shared;
use super::{ApiReply, Result};
use http::{HeaderValue, Method, StatusCode, header, request};
use serde_json::json;

/// Id of the repository that formerly had this name.
pub(super) fn moved(shared: &Shared, full_name: &str) -> Option<u64> {
    let state = shared.lock();
    state
        .moved
        .contains_key(&full_name.to_lowercase())
        .then(|| state.repo(full_name).ok().map(|repo| repo.id))
        .flatten()
}

/// Redirects to the same path below the repository's id. A request that changes something must be repeated with its method and body.
pub(super) fn redirect(shared: &Shared, parts: &request::Parts, id: u64, rest: &[&str]) -> Result {
    let tail: String = rest.iter().map(|segment| format!("/{segment}")).collect();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("{}/api/v3/repositories/{id}{tail}{query}", shared.url);
    let is_read = parts.method == Method::GET;
    let (status, message) = match is_read {
        true => (StatusCode::MOVED_PERMANENTLY, "Moved Permanently"),
        false => (StatusCode::TEMPORARY_REDIRECT, "Temporary Redirect"),
    };
    let headers = HeaderValue::from_str(&location).ok().map(|location| (header::LOCATION, location));
    Ok(ApiReply(status, json!({"message": message, "url": location}), headers.into_iter().collect()))
}
