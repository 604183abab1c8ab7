//! The webhook of a repository in the API (routers/api/v1/repo/hook.go). Its deliveries are not in the API.

use super::super::state::{RepoState, State};
use super::api::{RepoCall, created, no_content, no_route, ok};
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

/// Events that are on besides the chosen ones if an event of this group was chosen (routers/api/v1/utils/hook.go, `updateHookEvents`).
const OF_PULLS: [&str; 9] = [
    "pull_request",
    "pull_request_assign",
    "pull_request_label",
    "pull_request_milestone",
    "pull_request_comment",
    "pull_request_review",
    "pull_request_sync",
    "pull_request_review_request",
    "pull_request_only",
];

impl RepoCall<'_> {
    /// Only administrators see webhooks.
    pub(super) async fn of_hooks(&self, method: &str, rest: &[&str]) -> Result {
        self.check_admin()?;
        match (method, rest) {
            ("GET", []) => self.call.page_without_links(self.shaped_hook()?.into_iter().collect()),
            ("POST", []) => self.add_hook(),
            ("GET", ["1"]) => ok(self.shaped_hook()?.ok_or_else(Refusal::not_found)?),
            ("DELETE", ["1"]) => {
                self.call.shared.change(|state| state.webhook = None);
                no_content()
            }
            ("POST", ["1", "tests"]) => self.test_hook().await,
            (_, [id, ..]) if *id != "1" => Err(Refusal::not_found()),
            _ => Err(no_route()),
        }
    }

    fn shaped_hook(&self) -> Result<Option<Value>> {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        Ok(state.webhook.as_ref().map(|url| shaped(&state, repo, url)))
    }

    /// Adds the webhook. The secret is always that of the forge.
    fn add_hook(&self) -> Result {
        let kind = self.call.required("type", "Type")?;
        let config = self.call.part("config").cloned().ok_or_else(|| Refusal::invalid("[Config]: Required"))?;
        if kind != "gitea" {
            return Err(Refusal::invalid(format!("Invalid hook type: {kind}")));
        }
        for name in ["url", "content_type"] {
            if config.get(name).is_none() {
                return Err(Refusal::invalid(format!("Missing config option: {name}")));
            }
        }
        let (url, content_type) = (config["url"].as_str().unwrap_or_default(), config["content_type"].as_str());
        if !matches!(content_type, Some("json" | "form")) {
            return Err(Refusal::invalid("Invalid content type"));
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Refusal::invalid("Invalid url"));
        }
        let chosen = self.call.part("events").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut chosen: Vec<String> = chosen.iter().filter_map(|event| event.as_str().map(str::to_owned)).collect();
        if chosen.is_empty() {
            chosen.push("push".to_owned());
        }
        let events = events_of(&chosen);
        let has_secret = config["secret"].as_str().is_some_and(|secret| !secret.is_empty());
        let active = self.call.flag("active");
        self.call.shared.change(|state| {
            state.webhook = Some(url.to_owned());
            state.gitea.hook = super::HookState {
                events: Some(events),
                is_form: content_type == Some("form"),
                has_no_secret: !has_secret,
                is_off: !active,
            };
        });
        created(self.shaped_hook()?.unwrap_or_default())
    }

    /// Sends a push as a test.
    async fn test_hook(&self) -> Result {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found())?;
        let tip = git.heads().await.map_err(|error| Refusal::broken(&error))?.remove("main").unwrap_or_default();
        let sent = self
            .call
            .shared
            .change(|state| super::hooks::emit_test(state, self.url(), &self.full_name, &tip, &self.call.login));
        sent.map_err(|error| Refusal::broken(&error))?;
        no_content()
    }
}

/// The events that a choice switches on: `pull_request` stands for all of its group, `pull_request_only` for itself.
fn events_of(chosen: &[String]) -> Vec<String> {
    let has_all = chosen.iter().any(|event| event == "pull_request");
    let mut events: Vec<String> = chosen.iter().filter(|event| !OF_PULLS.contains(&event.as_str())).cloned().collect();
    let of_pulls = OF_PULLS.iter().filter(|event| **event != "pull_request_only");
    events.extend(
        of_pulls
            .filter(|event| {
                let asked = if **event == "pull_request" { "pull_request_only" } else { event };
                has_all || chosen.iter().any(|one| one == asked)
            })
            .map(|event| (*event).to_owned()),
    );
    events
}

/// The webhook: `ToHook` of services/webhook/general.go. The secret is not told.
fn shaped(state: &State, repo: &RepoState, url: &str) -> Value {
    let hook = &state.gitea.hook;
    let at = shapes::time(state, &repo.created_at);
    let events = hook.events.clone().unwrap_or_else(|| {
        let all = ["push".to_owned()].into_iter().chain(events_of(&["pull_request".to_owned()]));
        all.collect()
    });
    json!({
        "id": 1, "name": "", "type": "gitea", "branch_filter": "",
        "config": {"content_type": if hook.is_form { "form" } else { "json" }, "url": url}, "events": events,
        "authorization_header": "", "active": !hook.is_off, "updated_at": at, "created_at": at,
    })
}
