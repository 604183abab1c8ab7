//! The webhook of a repository in the API (OpenAPI, `webhook_subscription`). Its deliveries are not in the API.

use super::super::state::{RepoState, State};
use super::api::{RepoCall, created, no_content, no_route, ok};
use super::hooks::HOOK;
use super::{HookState, Refusal, Result, shapes};
use serde_json::{Value, json};

/// Events that a webhook of a repository can have, of those that the API names.
const EVENTS: [&str; 20] = [
    "pullrequest:approved",
    "pullrequest:changes_request_created",
    "pullrequest:changes_request_removed",
    "pullrequest:comment_created",
    "pullrequest:comment_deleted",
    "pullrequest:comment_reopened",
    "pullrequest:comment_resolved",
    "pullrequest:comment_updated",
    "pullrequest:created",
    "pullrequest:fulfilled",
    "pullrequest:push",
    "pullrequest:rejected",
    "pullrequest:unapproved",
    "pullrequest:updated",
    "repo:commit_comment_created",
    "repo:commit_status_created",
    "repo:commit_status_updated",
    "repo:fork",
    "repo:push",
    "repo:updated",
];

impl RepoCall<'_> {
    /// Only administrators see webhooks.
    pub(super) fn of_hooks(&self, method: &str, rest: &[&str]) -> Result {
        self.check_admin()?;
        let is_it = |id: &str| id.trim_matches(['{', '}']) == HOOK;
        match (method, rest) {
            ("GET", []) => self.call.page(self.shaped_hook()?.into_iter().collect(), 100),
            ("POST", []) => {
                self.set_hook()?;
                created(self.shaped_hook()?.unwrap_or_default())
            }
            (_, [id]) if !is_it(id) || self.shaped_hook()?.is_none() => {
                Err(Refusal::not_found(format!("{id} does not exist")))
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
            _ => Err(no_route()),
        }
    }

    fn shaped_hook(&self) -> Result<Option<Value>> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        Ok(state.webhook.as_ref().map(|url| shaped(self.url(), &state, repo, url)))
    }

    /// Adds the webhook, or replaces it. The secret is that of the forge; a body without one leaves it unchanged only in a change.
    fn set_hook(&self) -> Result<()> {
        let url = self.call.text("/url").filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| Refusal::field("url", "This field is required."))?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Refusal::field("url", "Enter a valid URL."));
        }
        let chosen = self.call.part("/events").and_then(Value::as_array).cloned().unwrap_or_default();
        let chosen: Vec<String> = chosen.iter().filter_map(|event| event.as_str().map(str::to_owned)).collect();
        if chosen.is_empty() {
            return Err(Refusal::field("events", "This field is required."));
        }
        if let Some(unknown) = chosen.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            return Err(Refusal::field("events", &format!("{unknown} is not a valid event.")));
        }
        let is_change = self.call.method == http::Method::PUT;
        let secret = self.call.text("/secret").is_some_and(|secret| !secret.is_empty());
        let active = self.call.part("/active").and_then(Value::as_bool).unwrap_or(true);
        let description = self.call.text("/description").unwrap_or_default().to_owned();
        self.call.shared.change(|state| {
            let before = state.bitbucket_cloud.hook.has_no_secret;
            let has_no_secret = if is_change && self.call.text("/secret").is_none() { before } else { !secret };
            state.webhook = Some(url.to_owned());
            state.bitbucket_cloud.hook =
                HookState { events: Some(chosen), description, has_no_secret, is_off: !active };
        });
        Ok(())
    }
}

/// The webhook. The secret is not told, but whether there is one.
fn shaped(url: &str, state: &State, repo: &RepoState, target: &str) -> Value {
    let hook = &state.bitbucket_cloud.hook;
    let events = hook.events.clone().unwrap_or_else(|| EVENTS.map(str::to_owned).to_vec());
    let own = format!("{}/hooks/%7B{HOOK}%7D", shapes::api(url, &repo.full_name()));
    json!({
        "type": "webhook_subscription", "uuid": format!("{{{HOOK}}}"), "url": target, "description": hook.description,
        "subject_type": "repository", "subject": shapes::repo_brief(url, repo), "active": !hook.is_off, "events": events,
        "created_at": repo.created_at, "secret_set": !hook.has_no_secret, "read_only": false, "skip_cert_verification": false,
        "source": null, "links": {"self": {"href": own}},
    })
}
