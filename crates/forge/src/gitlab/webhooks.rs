//! The webhook of a project in the API, its deliveries, and their repetition (docs.gitlab.com/api/project_webhooks).

use super::super::hooks::{self as deliveries, Delivery};
use super::super::state::{RepoState, State};
use super::api::{ProjectCall, created, no_record, no_route, ok};
use super::hooks::{self, MERGE_REQUEST_HOOK, NOTE_HOOK};
use super::members::MAINTAINER;
use super::{Refusal, Result, now, shapes};
use axum::response::IntoResponse;
use http::{HeaderName, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

/// Most rows on one page of events, and their usual number (lib/api/hooks/events.rb).
const MAX_EVENTS: usize = 20;

/// Repetitions in a minute that one user may ask for (docs.gitlab.com/security/rate_limits, "Project and group webhook operations").
const RESENDS: usize = 5;

/// Time limit of a repeated delivery and those before it.
const RESEND_LIMIT: Duration = Duration::from_secs(30);

impl ProjectCall<'_> {
    /// Only Maintainers see webhooks.
    pub(super) async fn of_hooks(&self, method: &str, rest: &[&str]) -> Result {
        self.check_level(MAINTAINER)?;
        match (method, rest) {
            ("GET", []) => self.call.page(self.shaped_hook()?.into_iter().collect()),
            ("GET", ["1"]) => ok(self.shaped_hook()?.ok_or_else(no_record)?),
            ("POST", []) => self.add_hook(),
            ("GET", ["1", "events"]) => self.deliveries(),
            ("POST", ["1", "events", id, "resend"]) => self.resend(id).await,
            ("POST", ["1", "test", "merge_requests_events"]) => self.test_hook(),
            (_, [id, ..]) if *id != "1" => Err(no_record()),
            _ => Err(no_route()),
        }
    }

    fn shaped_hook(&self) -> Result<Option<Value>> {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        Ok(state.webhook.as_ref().map(|url| shaped(&state, repo, url)))
    }

    /// Adds the webhook. The secret is always that of the forge.
    fn add_hook(&self) -> Result {
        let url = self.call.text("url").ok_or_else(|| Refusal::parameter("url", "is missing"))?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let problem = "is blocked: Only allowed schemes are http, https";
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, json!({ "url": [problem] })));
        }
        self.call.shared.change(|state| {
            state.webhook = Some(url);
            state.gitlab.renew_hook();
        });
        created(self.shaped_hook()?.unwrap_or_default())
    }

    /// Lists deliveries of this project, latest first.
    fn deliveries(&self) -> Result {
        let wanted = self.call.text("status");
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let url = state.webhook.as_deref().unwrap_or_default();
            let done = state.deliveries.iter().rev().filter(|delivery| delivery.done);
            let done = done.filter(|delivery| wanted.as_deref().is_none_or(|wanted| has_status(delivery, wanted)));
            done.filter_map(|delivery| event(self.url(), url, repo, delivery)).collect()
        };
        if self.call.text("per_page").and_then(|text| text.parse().ok()).is_some_and(|rows: usize| rows > MAX_EVENTS) {
            return Err(Refusal::parameter("per_page", "does not have a valid value"));
        }
        self.call.page_of(rows, MAX_EVENTS, MAX_EVENTS)
    }

    /// Sends a delivery again under the same `Idempotency-Key`, also while the webhook is switched off, and waits for the answer.
    async fn resend(&self, id: &str) -> Result {
        let shared = self.call.shared;
        let sent = shared.change(|state| {
            let known = state.deliveries.iter().find(|delivery| delivery.id.to_string() == id).map(|known| known.id);
            let (known, time) = (known.ok_or_else(no_record)?, now(state));
            let resent = &mut state.gitlab.hook.resent;
            resent.retain(|at| time.duration_since(*at) < jiff::SignedDuration::from_mins(1));
            if resent.len() >= RESENDS {
                return Ok(None);
            }
            resent.push(time);
            let again = deliveries::redeliver(state, known).map_err(|error| Refusal::broken(&error))?;
            state.gitlab.hook.forced.push(again);
            Ok(Some(again))
        })?;
        let Some(again) = sent else {
            let body =
                json!({"message": {"error": "This endpoint has been requested too many times. Try again later."}});
            let headers = [(HeaderName::from_static("retry-after"), "60")];
            return Ok((StatusCode::TOO_MANY_REQUESTS, headers, axum::Json(body)).into_response());
        };
        let status = |state: &State| {
            state
                .deliveries
                .iter()
                .find(|delivery| delivery.id == again && delivery.done)
                .map(|delivery| delivery.status)
        };
        let status = shared.wait_for(RESEND_LIMIT, status).await.map_err(|error| Refusal::broken(&error))?;
        match status {
            Some(status) => created(json!({"response_status": status})),
            // `render_api_error!(result.message, 422)` for a receiver that does not answer.
            None => Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "failed to connect")),
        }
    }

    /// Sends the first merge request as a test, which has no action. It is sent also while the webhook is switched off, and an answer
    /// switches it on.
    fn test_hook(&self) -> Result {
        self.call.shared.change(|state| {
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let Some(pull) = repo.pulls.first() else {
                let message = "Ensure the project has merge requests.";
                return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message));
            };
            let payload = hooks::merge_request_event(self.url(), state, (repo, pull), &self.call.login, &json!({}));
            deliveries::emit(state, MERGE_REQUEST_HOOK, None, &payload);
            let id = state.deliveries.back().map(|delivery| delivery.id);
            state.gitlab.hook.forced.extend(id);
            created(json!({"message": "201 Created"}))
        })
    }
}

fn shaped(state: &State, repo: &RepoState, url: &str) -> Value {
    json!({
        "id": 1, "url": url, "name": "", "description": "", "project_id": repo.id, "created_at": shapes::api_time(&repo.created_at),
        "push_events": true, "push_events_branch_filter": "", "branch_filter_strategy": "wildcard", "issues_events": false,
        "confidential_issues_events": false, "merge_requests_events": true, "tag_push_events": false, "note_events": true,
        "confidential_note_events": false, "job_events": false, "pipeline_events": false, "wiki_page_events": false,
        "deployment_events": false, "releases_events": false, "milestone_events": false, "feature_flag_events": false,
        "emoji_events": false, "resource_access_token_events": false, "enable_ssl_verification": url.starts_with("https://"),
        "repository_update_events": false, "alert_status": hooks::alert_status(state),
        "disabled_until": state.gitlab.hook.disabled_until.map(|until| until.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()),
        "url_variables": [], "custom_webhook_template": null, "custom_headers": [], "token_present": true,
        "signing_token_present": state.gitlab.signing_token.is_some(),
    })
}

/// Returns true if a delivery has this status: a number, or the name of a range.
fn has_status(delivery: &Delivery, wanted: &str) -> bool {
    wanted.split(',').any(|wanted| match wanted {
        "successful" => delivery.succeeded(),
        "client_failure" => delivery.status.is_some_and(|status| (400..500).contains(&status)),
        "server_failure" => delivery.status.is_none_or(|status| status >= 500),
        number => delivery.status.is_some_and(|status| status.to_string() == number),
    })
}

/// A delivery as an event of the webhook; absent if it is about another project. The secret is not told.
fn event(instance: &str, url: &str, repo: &RepoState, delivery: &Delivery) -> Option<Value> {
    let data: Value = serde_json::from_str(&delivery.body).ok()?;
    (data["project"]["id"] == repo.id).then_some(())?;
    let trigger = match delivery.event.as_str() {
        MERGE_REQUEST_HOOK => "merge_request_hooks",
        NOTE_HOOK => "note_hooks",
        _ => "push_hooks",
    };
    let headers = json!({
        "Content-Type": "application/json", "User-Agent": "GitLab/18.6.1-ee", "Idempotency-Key": delivery.guid,
        "X-Gitlab-Event": delivery.event, "X-Gitlab-Instance": instance, "X-Gitlab-Token": "[REDACTED]",
    });
    let status = delivery.status.map_or_else(|| "internal error".to_owned(), |status| status.to_string());
    Some(json!({
        "id": delivery.id, "url": url, "trigger": trigger, "request_headers": headers, "request_data": data, "response_headers": {},
        "response_body": delivery.answer, "execution_duration": 0.1, "response_status": status,
        "created_at": shapes::api_time(&delivery.created_at),
    }))
}
