//! Questions in GraphQL, where REST has none: folding comments, merge queues.

use super::Github;
use crate::vcs::HostError;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How long to wait where the rate limit of GraphQL is used up and the answer does not say for how long.
const RATE_WAIT: Duration = Duration::from_secs(60);

/// Asks about something of this owner's; `what` names it in errors. What was refused in part is refused.
pub(super) async fn ask(
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

/// Errors are told with 200: docs.github.com/graphql/guides/using-graphql-clients.
fn refusal(what: String, error: &Value) -> HostError {
    let message = error["message"].as_str().unwrap_or("refused without a reason").to_owned();
    match error["type"].as_str() {
        Some("NOT_FOUND") => HostError::NotFound { what },
        Some("RATE_LIMITED" | "RATE_LIMIT") => HostError::RateLimited { what, wait: RATE_WAIT },
        Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => HostError::Denied { what, message },
        _ => HostError::Rejected { what, status: 200, message },
    }
}

/// GraphQL lies beside the REST API: `api.github.com/graphql`, and `HOST/api/graphql` for `HOST/api/v3`.
pub(super) fn graphql_path(base: &str) -> &'static str {
    if base.ends_with("/v3") { "/../graphql" } else { "/graphql" }
}
