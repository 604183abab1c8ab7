//! Pull requests.

use super::super::repo::close;
use super::super::state::{PullState, State};
use super::super::timestamp;
use super::api::{MAX_PULLS, RepoCall, no_route, ok};
use super::{Refusal, Result, access, activity, hooks, shapes, statuses};
use axum::response::IntoResponse;
use http::{StatusCode, header};
use serde_json::{Value, json};

/// Longest title, in characters. OpenAPI names no limit; clients keep to this.
const MAX_TITLE: usize = 255;

/// Refuses a change of a merged or declined pull request (khbb).
pub(super) fn already_closed() -> Refusal {
    let text = "This pull request is already closed.";
    let error = json!({"message": format!("newstatus: {text}"), "fields": {"newstatus": [text]}});
    Refusal(StatusCode::BAD_REQUEST, json!({"type": "error", "error": error}))
}

impl RepoCall<'_> {
    pub(super) async fn of_pulls(&self, method: &str, rest: &[&str]) -> Result {
        let Some((number, rest)) = rest.split_first() else {
            return if method == "GET" { self.pulls() } else { Err(no_route()) };
        };
        let number = number.parse().map_err(|_| Refusal::not_found("Not found"))?;
        self.of_pull(number, |_, _, _| ())?;
        match (method, rest) {
            ("GET", []) => ok(self.shaped_pull(number)?),
            ("PUT", []) => self.edit_pull(number).await,
            ("POST", ["decline"]) => self.decline(number),
            ("POST", ["merge"]) => self.merge(number).await,
            ("GET", ["merge", "task-status", id]) => self.merge_task(number, id).await,
            ("GET", ["diffstat"]) => self.redirect_to_diffstat(number),
            ("GET", ["activity"]) => activity::list(self, number),
            ("GET", ["statuses"]) => statuses::of_pull(self, number),
            (method, ["comments", rest @ ..]) => self.of_comments(method, number, rest),
            (method, [word @ ("approve" | "request-changes")]) => self.review(method, number, word),
            _ => Err(no_route()),
        }
    }

    /// Lists pull requests, open ones unless `state` says otherwise. `state` counts only without `q` (khbb).
    fn pulls(&self) -> Result {
        let asked: Vec<&str> = self.call.all_asked("state").collect();
        if let Some(unknown) = asked.iter().find(|word| !["OPEN", "MERGED", "DECLINED", "SUPERSEDED"].contains(word)) {
            return Err(Refusal::invalid(format!("Invalid state: {unknown}")));
        }
        let has_q = self.call.asked("q").is_some();
        let has_participants = self.call.all_asked("fields").any(|fields| fields.contains("+values.participants"));
        let rows = {
            let state = self.call.shared.lock();
            let repo = self.repo_in(&state)?;
            let is_wanted = |pull: &&PullState| {
                let word = shapes::state_word(pull);
                has_q || asked.contains(&word) || (asked.is_empty() && word == "OPEN")
            };
            let shape = |pull: &PullState| match has_participants {
                true => shapes::pull(self.url(), &state, repo, pull),
                false => shapes::listed_pull(self.url(), &state, repo, pull),
            };
            repo.pulls.iter().rev().filter(is_wanted).map(shape).collect()
        };
        self.call.page(rows, MAX_PULLS)
    }

    pub(super) fn shaped_pull(&self, number: u64) -> Result<Value> {
        let mut body = self.of_pull(number, |state, repo, pull| shapes::pull(self.url(), state, repo, pull))?;
        let asks = self.call.all_asked("fields").any(|fields| fields.contains("+destination.branch.merge_strategies"));
        if asks {
            let strategies = self.of_pull(number, |_, repo, _| super::merging::strategies(repo))?;
            body["destination"]["branch"]["merge_strategies"] = json!(strategies);
            body["destination"]["branch"]["default_merge_strategy"] = json!(strategies.first());
        }
        Ok(body)
    }

    /// Changes title, text, draft or base branch as the author or somebody who may write; what is absent stays (khbb).
    async fn edit_pull(&self, number: u64) -> Result {
        let login = &self.call.login;
        let (is_own, is_open) = self.of_pull(number, |_, _, pull| (pull.author == *login, pull.open))?;
        if !is_own {
            self.check_writer()?;
        }
        if !is_open {
            return Err(Refusal::invalid("Can only update an open pull request."));
        }
        let title = self.call.text("/title").map(str::to_owned);
        if title.as_ref().is_some_and(|title| title.trim().is_empty() || title.chars().count() > MAX_TITLE) {
            return Err(Refusal::field("title", "This field is required."));
        }
        let base = match self.call.text("/destination/branch/name") {
            None => None,
            Some(name) => {
                let heads = self.git()?.heads().await.map_err(|error| Refusal::broken(&error))?;
                let unknown = || Refusal::field("destination", &format!("branch not found: {name}"));
                Some((name.to_owned(), heads.get(name).cloned().ok_or_else(unknown)?))
            }
        };
        let (text, draft) = (self.call.text("/description").map(str::to_owned), self.call.part("/draft"));
        let draft = draft.and_then(Value::as_bool);
        let changed = self.call.shared.change(|state: &mut State| {
            let pull = state.pull_mut(&self.full_name, number)?;
            pull.title = title.unwrap_or_else(|| pull.title.clone());
            pull.body = text.unwrap_or_else(|| pull.body.clone());
            pull.draft = draft.unwrap_or(pull.draft);
            if let Some((branch, tip)) = base {
                (pull.base_ref, pull.base_sha) = (branch, tip);
            }
            pull.updated_at = timestamp();
            hooks::emit_pull(state, self.url(), &self.full_name, number, "edited", login, &Value::Null)
        });
        changed.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// Declines as the author or somebody who may write, for good. `message` is the reason (khbb).
    fn decline(&self, number: u64) -> Result {
        let login = &self.call.login;
        let (is_allowed, is_open) =
            self.of_pull(number, |_, repo, pull| (pull.author == *login || access::can_write(repo, login), pull.open))?;
        if !is_allowed {
            return Err(Refusal::forbidden());
        }
        if !is_open {
            return Err(already_closed());
        }
        let reason = self.call.text("/message").unwrap_or_default().to_owned();
        let declined = self.call.shared.change(|state| {
            let id = state.pull(&self.full_name, number)?.id;
            state.bitbucket_cloud.facts_mut(id).reason = reason;
            close(state, self.url(), &self.full_name, number, login)
        });
        declined.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// The differences are those of two commits, at another address (OpenAPI: 302).
    fn redirect_to_diffstat(&self, number: u64) -> Result {
        let spec = self.of_pull(number, |_, repo, pull| shapes::spec(&repo.full_name(), pull))?;
        let place = format!("{}/diffstat/{spec}", shapes::api(self.url(), &self.full_name));
        Ok((StatusCode::FOUND, [(header::LOCATION, place)]).into_response())
    }
}
