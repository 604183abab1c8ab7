//! The webhook of a repository in the API (OpenAPI, `RestWebhook`). Of its deliveries the API tells the latest of each outcome alone.

use super::super::state::{RepoState, State};
use super::access::Level;
use super::api::{RepoCall, created, most, no_content, no_route, ok};
use super::hooks::{self, Invocation};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// Number of the webhook; the forge has one.
const ID: &str = "10";

/// Time limit of a test of the connection.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Events of webhooks of repositories, as bb has tried them. The documentation has `pr:to_ref_updated` and
/// `pr:reviewer:changes_requested` besides, which the host refuses.
const EVENTS: [&str; 21] = [
    "mirror:repo_synchronized",
    "pr:comment:added",
    "pr:comment:deleted",
    "pr:comment:edited",
    "pr:declined",
    "pr:deleted",
    "pr:from_ref_updated",
    "pr:merged",
    "pr:modified",
    "pr:opened",
    "pr:reviewer:approved",
    "pr:reviewer:needs_work",
    "pr:reviewer:unapproved",
    "pr:reviewer:updated",
    "repo:comment:added",
    "repo:comment:deleted",
    "repo:comment:edited",
    "repo:forked",
    "repo:modified",
    "repo:refs_changed",
    "repo:secret_detected",
];

impl RepoCall<'_> {
    /// Only administrators see webhooks.
    pub(super) async fn of_hooks(&self, method: &str, rest: &[&str]) -> Result {
        self.check_level(Level::Admin)?;
        match (method, rest) {
            ("GET", []) => self.call.page(self.shaped_hook()?.into_iter().collect(), most::CHANGES),
            ("POST", []) => {
                self.set_hook()?;
                created(self.shaped_hook()?.unwrap_or_default())
            }
            ("POST", ["test"]) => self.test_hook().await,
            (_, [id, ..]) if *id != ID || self.shaped_hook()?.is_none() => {
                Err(Refusal::not_found("webhook.NoSuchWebhookException", format!("Webhook {id} does not exist.")))
            }
            ("GET", [_]) => ok(self.shaped_hook()?.unwrap_or_default()),
            ("PUT", [_]) => {
                self.set_hook()?;
                ok(self.shaped_hook()?.unwrap_or_default())
            }
            ("DELETE", [_]) => {
                self.call.shared.change(|state| state.webhook = None);
                no_content()
            }
            ("GET", [_, "statistics"]) => self.statistics(),
            ("GET", [_, "latest"]) => self.latest(),
            _ => Err(no_route()),
        }
    }

    fn shaped_hook(&self) -> Result<Option<Value>> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        Ok(state.webhook.as_ref().map(|url| shaped(&state, repo, url)))
    }

    /// Adds the webhook, or replaces it. The secret is that of the forge; a change without one leaves it as it is.
    fn set_hook(&self) -> Result<()> {
        let name = self.call.text("/name").filter(|name| !name.trim().is_empty());
        let name = name.ok_or_else(|| Refusal::field("name", "A name is required."))?.to_owned();
        let url = self.call.text("/url").filter(|url| url.starts_with("http://") || url.starts_with("https://"));
        let url = url.ok_or_else(|| Refusal::field("url", "The url is invalid."))?.to_owned();
        let chosen = self.call.part("/events").and_then(Value::as_array).cloned().unwrap_or_default();
        let chosen: Vec<String> = chosen.iter().filter_map(|event| event.as_str().map(str::to_owned)).collect();
        if chosen.is_empty() {
            return Err(Refusal::field("events", "At least one event is required."));
        }
        if chosen.iter().any(|event| !EVENTS.contains(&event.as_str())) {
            // The host does not fill the name in.
            return Err(Refusal::field("events", "the event ${validatedValue} is unknown"));
        }
        let secret = self.call.text("/configuration/secret").map(str::to_owned);
        let is_change = self.call.method == http::Method::PUT;
        let is_off = self.call.flag("/active") == Some(false);
        self.call.shared.change(|state| {
            state.webhook = Some(url);
            let hook = &mut state.bitbucket_data_center.hook;
            let had_none = hook.has_no_secret;
            hook.renew();
            hook.has_no_secret = match secret {
                Some(secret) => secret.is_empty(),
                None => !is_change || had_none,
            };
            (hook.events, hook.name, hook.is_off) = (Some(chosen), name, is_off);
        });
        Ok(())
    }

    /// Sends a ping to an address and tells the answer (OpenAPI, "Test webhook"). It is no delivery. Without the address the host fails
    /// (bb, webhook_live_test.go).
    async fn test_hook(&self) -> Result {
        let address = self.call.asked("url").ok_or_else(|| Refusal::broken(&anyhow::anyhow!("url is null")))?;
        let body = json!({"test": true}).to_string();
        let request = self.call.shared.client.post(address).timeout(TEST_TIMEOUT);
        let request = request
            .header("Content-Type", "application/json; charset=utf-8")
            .header("X-Event-Key", hooks::PING)
            .header("X-Request-Id", super::super::random_hex().map_err(|error| Refusal::broken(&error))?)
            .body(body.clone());
        match request.send().await {
            Ok(answer) => ok(json!({
                "request": {"url": address, "method": "POST", "body": body},
                "response": {"statusCode": answer.status().as_u16()},
            })),
            Err(error) => Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "webhook.WebhookException",
                format!("The url {address} could not be reached: {error}"),
            )),
        }
    }

    /// Numbers and the latest delivery of each outcome
    /// (docs.atlassian.com/bitbucket-server/javadoc, webhooks-api, `InvocationHistory` and `InvocationCounts`).
    fn statistics(&self) -> Result {
        let state = self.call.shared.lock();
        let last = &state.bitbucket_data_center.hook.last;
        let shape = |one: &Option<Invocation>, word: &str| one.as_ref().map(|one| invocation(&state, one, word));
        let [successes, failures, errors] = last.counts;
        ok(json!({
            "lastSuccess": shape(&last.success, "SUCCESS"), "lastFailure": shape(&last.failure, "FAILURE"),
            "lastError": shape(&last.error, "ERROR"), "counts": {"successes": successes, "failures": failures, "errors": errors,
                "window": {"start": 0, "duration": 86_400_000}},
        }))
    }

    /// The latest delivery, of one outcome if the request names it. None is 204.
    fn latest(&self) -> Result {
        let state = self.call.shared.lock();
        let last = &state.bitbucket_data_center.hook.last;
        let outcome = self.call.asked("outcome");
        let all = [(&last.success, "SUCCESS"), (&last.failure, "FAILURE"), (&last.error, "ERROR")];
        let known = all.into_iter().filter_map(|(one, word)| Some((one.as_ref()?, word)));
        let wanted = known.filter(|(_, word)| outcome.is_none_or(|outcome| outcome.eq_ignore_ascii_case(word)));
        match wanted.max_by_key(|(one, _)| one.id) {
            Some((one, word)) => ok(invocation(&state, one, word)),
            None => Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
}

/// A delivery (OpenAPI, `RestDetailedInvocation`).
fn invocation(state: &State, one: &Invocation, outcome: &str) -> Value {
    let at = shapes::millis(&one.at);
    json!({
        "id": one.id, "event": one.event, "duration": 1, "start": at, "finish": at + 1,
        "request": {"method": "POST", "url": state.webhook},
        "result": {"outcome": outcome, "description": one.status.map_or_else(|| "error".to_owned(), |status| status.to_string())},
    })
}

/// The webhook (go-scm, webhook.json). That the API tells the secret is so there; newer versions hide it, and so does the forge.
fn shaped(state: &State, repo: &RepoState, target: &str) -> Value {
    let hook = &state.bitbucket_data_center.hook;
    let events = hook.events.clone().unwrap_or_else(|| EVENTS.map(str::to_owned).to_vec());
    let created = shapes::millis(&repo.created_at);
    let configuration = if hook.has_no_secret { json!({}) } else { json!({"secret": "******"}) };
    json!({
        "id": 10, "name": if hook.name.is_empty() { "sandbox" } else { &hook.name }, "createdDate": created, "updatedDate": created,
        "events": events, "configuration": configuration, "url": target, "active": !hook.is_off, "scopeType": "repository",
        "sslVerificationRequired": true,
    })
}
