//! Comments of pull requests. Deleted ones stay in the list, without their text.

use super::super::comments;
use super::super::state::{CommentState, PullState, State};
use super::api::{RepoCall, created, no_content, no_route, ok};
use super::{MAX_COMMENT, Refusal, Result, access, hooks, shapes};
use http::StatusCode;
use serde_json::{Map, Value, json};

impl RepoCall<'_> {
    pub(super) fn of_comments(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        let Some((id, rest)) = rest.split_first() else {
            return match method {
                "GET" => self.comments(number),
                "POST" => self.create_comment(number),
                _ => Err(no_route()),
            };
        };
        let id = id.parse().map_err(|_| Refusal::not_found("Not found"))?;
        match (method, rest) {
            ("GET", []) => ok(self.shaped_comment(number, id)?),
            ("PUT", []) => self.edit_comment(number, id),
            ("DELETE", []) => self.delete_comment(number, id),
            _ => Err(no_route()),
        }
    }

    /// Lists comments, the oldest first.
    fn comments(&self, number: u64) -> Result {
        let rows = self.of_pull(number, |state, repo, pull| {
            let deleted = state.bitbucket_cloud.pulls.get(&pull.id).map_or(&[][..], |facts| &facts.deleted);
            let mut all: Vec<&CommentState> = pull.comments.iter().chain(deleted).collect();
            all.sort_by_key(|comment| comment.id);
            all.into_iter().map(|comment| shapes::comment(self.url(), state, repo, pull, comment)).collect()
        })?;
        self.call.page(rows, 100)
    }

    /// The text of the body.
    fn raw(&self) -> Result<&str> {
        let raw = self.call.text("/content/raw").filter(|raw| !raw.trim().is_empty());
        let raw = raw.ok_or_else(|| Refusal::field("content.raw", "This field is required."))?;
        if raw.chars().count() > MAX_COMMENT {
            // github.com/runatlantis/atlantis/issues/1251: the answer is a page.
            return Err(Refusal(StatusCode::BAD_REQUEST, json!("<h1>Bad Request (400)</h1>")));
        }
        Ok(raw)
    }

    /// Adds a comment; also to a declined pull request (khbb).
    fn create_comment(&self, number: u64) -> Result {
        let (raw, login) = (self.raw()?, &self.call.login);
        let place = ["inline", "parent"].into_iter().filter_map(|name| {
            let value = self.call.part(&format!("/{name}"))?;
            Some((name.to_owned(), value.clone()))
        });
        let place: Map<String, Value> = place.collect();
        let added = self.call.shared.change(|state| add(state, self.url(), &self.full_name, number, login, raw, place));
        created(self.shaped_comment(number, added.map_err(|error| Refusal::invalid(error.to_string()))?)?)
    }

    fn shaped_comment(&self, number: u64, id: u64) -> Result<Value> {
        let found = self.of_pull(number, |state, repo, pull| {
            let deleted = state.bitbucket_cloud.pulls.get(&pull.id).map_or(&[][..], |facts| &facts.deleted);
            let comment = pull.comments.iter().chain(deleted).find(|comment| comment.id == id);
            comment.map(|comment| shapes::comment(self.url(), state, repo, pull, comment))
        })?;
        found.ok_or_else(|| Refusal::not_found("Not found"))
    }

    fn author_of(&self, number: u64, id: u64) -> Result<String> {
        let find = |pull: &PullState| pull.comments.iter().find(|one| one.id == id).map(|one| one.author.clone());
        self.of_pull(number, |_, _, pull| find(pull))?.ok_or_else(|| Refusal::not_found("Not found"))
    }

    /// Changes a comment as its author alone.
    fn edit_comment(&self, number: u64, id: u64) -> Result {
        let login = &self.call.login;
        if self.author_of(number, id)? != *login {
            return Err(Refusal::forbidden());
        }
        let edit = (id, self.raw()?);
        let edited =
            self.call.shared.change(|state| comments::edit(state, self.url(), &self.full_name, number, login, edit));
        edited.map_err(|error| Refusal::invalid(error.to_string()))?;
        ok(self.shaped_comment(number, id)?)
    }

    /// Deletes a comment as its author or an administrator.
    fn delete_comment(&self, number: u64, id: u64) -> Result {
        let (author, login) = (self.author_of(number, id)?, &self.call.login);
        let is_admin = access::is_admin(self.repo_in(&self.call.shared.lock())?, login);
        if author != *login && !is_admin {
            return Err(Refusal::forbidden());
        }
        let deleted = self.call.shared.change(|state| delete(state, self.url(), &self.full_name, number, id, login));
        deleted.map_err(|error| Refusal::broken(&error))?;
        no_content()
    }
}

/// Adds a comment at a place: a line of a file, or below another one. Returns its id.
pub(super) fn add(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    login: &str,
    raw: &str,
    place: Map<String, Value>,
) -> anyhow::Result<u64> {
    let (pull, next) = (state.pull(full_name, number)?.id, state.next_id());
    // The delivery has the place.
    state.bitbucket_cloud.facts_mut(pull).places.insert(next, place);
    let added = comments::add(state, url, full_name, number, login, raw);
    if added.is_err() {
        state.bitbucket_cloud.facts_mut(pull).places.remove(&next);
    }
    added
}

/// Deletes a comment as this person, and queues the delivery.
pub(super) fn delete(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    id: u64,
    login: &str,
) -> anyhow::Result<()> {
    let pull = state.pull_mut(full_name, number)?;
    let (pull_id, now) = (pull.id, super::super::timestamp());
    let mut gone: Vec<CommentState> = pull.comments.extract_if(.., |comment| comment.id == id).collect();
    pull.updated_at.clone_from(&now);
    gone.iter_mut().for_each(|comment| comment.updated_at.clone_from(&now));
    state.bitbucket_cloud.facts_mut(pull_id).deleted.extend(gone);
    hooks::emit_comment(state, url, full_name, number, id, "deleted", login)
}
