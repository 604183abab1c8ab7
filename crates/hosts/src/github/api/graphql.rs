//! GraphQL requests for what REST does not offer: folding comments, merge queues, rules of a branch, teams.

use super::Github;
use crate::vcs::HostError;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Wait after the rate limit of GraphQL if the answer does not give one.
const RATE_WAIT: Duration = Duration::from_secs(60);

/// Sends a query about something of this owner; `what` names it in errors. A partial refusal is a refusal.
pub(super) async fn send(
    github: &Github,
    owner: &str,
    what: &str,
    query: &str,
    variables: Value,
) -> Result<Value, HostError> {
    let body = json!({ "query": query, "variables": variables });
    let path = graphql_path(github.http.base());
    let mut answer = github.http.send_for(owner, Method::POST, path, Some(body)).await?.body;
    match answer["errors"].get(0) {
        None => Ok(answer["data"].take()),
        Some(error) => Err(refusal(what.to_owned(), error)),
    }
}

/// Maps an error of an answer. GraphQL reports errors with status 200: docs.github.com/graphql/guides/using-graphql-clients.
fn refusal(what: String, error: &Value) -> HostError {
    let message = error["message"].as_str().unwrap_or("refused without a reason").to_owned();
    match error["type"].as_str() {
        Some("NOT_FOUND") => HostError::NotFound { what },
        Some("RATE_LIMITED" | "RATE_LIMIT") => HostError::RateLimited { what, wait: RATE_WAIT },
        Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => HostError::Denied { what, message },
        _ => HostError::Rejected { what, status: 200, message },
    }
}

/// Path of GraphQL beside the REST API: `api.github.com/graphql`, and `HOST/api/graphql` for `HOST/api/v3`.
pub(super) fn graphql_path(base: &str) -> &'static str {
    if base.ends_with("/v3") { "/../graphql" } else { "/graphql" }
}
