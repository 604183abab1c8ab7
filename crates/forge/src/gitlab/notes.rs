//! Notes of merge requests (docs.gitlab.com/api/notes), their quick actions, and reactions (docs.gitlab.com/api/emoji_reactions).

use super::super::state::{CommentState, PullState, ReactionState, State};
use super::super::{comments, hooks, pull, repo, timestamp};
use super::api::{ProjectCall, created, no_record, no_route, ok};
use super::members::{DEVELOPER, MAINTAINER};
use super::quick_actions::{QuickAction, split};
use super::{MAX_NOTE, Refusal, Result, approvals, merging, shapes};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value, json};

impl ProjectCall<'_> {
    pub(super) fn of_notes(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => self.notes(number),
            ("GET", [id]) => self.note(number, id),
            ("DELETE", [id]) => self.delete_note(number, id),
            ("GET", [id, "award_emoji"]) => self.reactions(number, id),
            ("POST", [id, "award_emoji"]) => self.react(number, id),
            _ => Err(no_route()),
        }
    }

    /// Lists notes, by default latest first, those of the host itself included.
    fn notes(&self, number: u64) -> Result {
        let is_valid = |name: &str, values: [&str; 2]| match self.call.text(name) {
            Some(value) if !values.contains(&value.as_str()) => {
                Err(Refusal::parameter(name, "does not have a valid value"))
            }
            value => Ok(value),
        };
        let ascending = is_valid("sort", ["asc", "desc"])?.as_deref() == Some("asc");
        let by_update = is_valid("order_by", ["created_at", "updated_at"])?.as_deref() == Some("updated_at");
        let rows = self.of_pull(number, |state, repo, pull| {
            let mut rows = all(state, pull);
            let key = |note: &CommentState| {
                (if by_update { note.updated_at.clone() } else { note.created_at.clone() }, note.id)
            };
            rows.sort_by_key(|(note, _)| key(note));
            if !ascending {
                rows.reverse();
            }
            rows.into_iter().map(|row| shapes::note(self.url(), state, repo, pull, row)).collect()
        })?;
        self.call.page(rows)
    }

    fn shaped(&self, number: u64, id: &str) -> Result<Value> {
        self.of_pull(number, |state, repo, pull| {
            let found = all(state, pull).into_iter().find(|(note, _)| note.id.to_string() == id);
            found.map(|row| shapes::note(self.url(), state, repo, pull, row))
        })?
        .ok_or_else(no_record)
    }

    fn note(&self, number: u64, id: &str) -> Result {
        ok(self.shaped(number, id)?)
    }

    /// The text of the request: present, and within the limit (`process_note_creation_result` of lib/api/helpers/notes_helpers.rb, and
    /// docs.gitlab.com/administration/instance_limits, "Size of comments").
    fn body(&self) -> Result<String> {
        let body = self.call.text("body").ok_or_else(|| Refusal::parameter("body", "is missing"))?;
        let problem = match () {
            () if body.trim().is_empty() => "can't be blank".to_owned(),
            () if body.chars().count() > MAX_NOTE => format!("is too long (maximum is {MAX_NOTE} characters)"),
            () => return Ok(body),
        };
        Err(Refusal::bad_request(format!("400 Bad request - Note {{:note=>[\"{problem}\"]}}")))
    }

    /// Creates a note, and carries out its quick actions. One of quick actions alone is none, and is answered 202
    /// (docs.gitlab.com/api/notes, `commands_changes`).
    pub(super) async fn create_note(&self, number: u64) -> Result {
        let (text, actions) = split(&self.body()?);
        let mut id = None;
        if !text.is_empty() {
            let (shared, login) = (self.call.shared, &self.call.login);
            let added = shared.change(|state| comments::add(state, &shared.url, &self.full_name, number, login, &text));
            id = Some(added.map_err(|error| Refusal::broken(&error))?);
        }
        let changes = self.carry_out_all(number, &actions).await;
        match (id, changes) {
            (Some(id), changes) => {
                let mut note = self.shaped(number, &id.to_string())?;
                note["commands_changes"] = Value::Object(changes.unwrap_or_default());
                created(note)
            }
            (None, Ok(changes)) => Ok(commands_only(changes)),
            (None, Err(problems)) => Err(Refusal::bad_request(format!("400 Bad request - {problems}"))),
        }
    }

    /// Carries out quick actions. Returns what they have changed, or why none of them could be applied.
    async fn carry_out_all(
        &self,
        number: u64,
        actions: &[QuickAction],
    ) -> std::result::Result<Map<String, Value>, String> {
        let (mut changes, mut problems) = (Map::new(), Vec::new());
        for action in actions {
            match self.carry_out(number, action).await {
                Ok((key, value)) => drop(changes.insert(key.to_owned(), value)),
                Err(()) => problems.push(format!("Could not apply {} command.", action.name)),
            }
        }
        if changes.is_empty() { Err(problems.join(", ")) } else { Ok(changes) }
    }

    /// Carries out a quick action with the rights of the user. Those that change nothing a server could see are only answered.
    async fn carry_out(&self, number: u64, action: &QuickAction) -> std::result::Result<(&'static str, Value), ()> {
        let (shared, login) = (self.call.shared, self.call.login.as_str());
        let url = &shared.url;
        self.check_level(if action.name == "merge" { MAINTAINER } else { DEVELOPER }).map_err(drop)?;
        match action.name.as_str() {
            "close" => {
                shared.change(|state| repo::close(state, url, &self.full_name, number, login)).map_err(drop)?;
                Ok(("state_event", json!("close")))
            }
            "reopen" => {
                shared.change(|state| pull::reopen(state, url, &self.full_name, number, login)).map_err(drop)?;
                Ok(("state_event", json!("reopen")))
            }
            "approve" => {
                approvals::vote(shared, &self.full_name, number, login, 10).map_err(drop)?;
                Ok(("approve", json!(true)))
            }
            "unapprove" => {
                approvals::vote(shared, &self.full_name, number, login, 0).map_err(drop)?;
                Ok(("unapprove", json!(true)))
            }
            "label" | "labels" => {
                self.label(number, &action.argument);
                Ok(("add_label_ids", json!([])))
            }
            "merge" => {
                merging::merge(shared, &self.full_name, number, &merging::Merge::by(login)).await.map_err(drop)?;
                Ok(("merge", json!(true)))
            }
            _ => Ok(("todo_event", json!("done"))),
        }
    }

    fn label(&self, number: u64, argument: &str) {
        let (shared, login) = (self.call.shared, &self.call.login);
        shared.change(|state| {
            let Ok(pull) = state.pull_mut(&self.full_name, number) else { return };
            for name in argument.split_whitespace().map(|name| name.trim_start_matches('~').trim_matches('"')) {
                if !pull.labels.iter().any(|label| label == name) {
                    pull.labels.push(name.to_owned());
                }
            }
            pull.updated_at = timestamp();
            let _ = hooks::emit_pull(state, &shared.url, &self.full_name, number, "labeled", login);
        });
    }

    /// Finds a note that the user may change: one's own, or as a Maintainer (docs.gitlab.com/user/permissions, "Edit, delete notes").
    fn check_may_change(&self, number: u64, id: &str) -> Result<u64> {
        let (author, id) = self
            .of_pull(number, |_, _, pull| {
                let found = pull.comments.iter().find(|note| note.id.to_string() == id);
                found.map(|note| (note.author.clone(), note.id))
            })?
            .ok_or_else(no_record)?;
        if author != self.call.login {
            self.check_level(MAINTAINER)?;
        }
        Ok(id)
    }

    /// Replaces the text of a note. Its quick actions are carried out too, and one of quick actions alone is deleted
    /// (app/services/notes/update_service.rb).
    pub(super) async fn update_note(&self, number: u64, id: &str) -> Result {
        let place = self.check_may_change(number, id)?;
        let (text, actions) = split(&self.body()?);
        let changes = self.carry_out_all(number, &actions).await;
        if text.is_empty() {
            self.delete_note(number, id)?;
            return Ok(commands_only(changes.unwrap_or_default()));
        }
        let (url, login) = (self.url(), &self.call.login);
        let edit = |state: &mut State| comments::edit(state, url, &self.full_name, number, login, (place, &text));
        self.call.shared.change(edit).map_err(|error| Refusal::broken(&error))?;
        self.note(number, id)
    }

    fn delete_note(&self, number: u64, id: &str) -> Result {
        let place = self.check_may_change(number, id)?;
        self.call.shared.change(|state| {
            let pull = state.pull_mut(&self.full_name, number).map_err(|_| no_record())?;
            pull.comments.retain(|note| note.id != place);
            Ok(StatusCode::NO_CONTENT.into_response())
        })
    }

    fn reactions(&self, number: u64, id: &str) -> Result {
        let rows = self.of_pull(number, |state, _, pull| {
            let found = pull.comments.iter().find(|note| note.id.to_string() == id);
            let shape = |reaction| award(self.url(), state, id, reaction);
            found.map(|note| note.reactions.iter().map(shape).collect::<Vec<_>>())
        })?;
        self.call.page(rows.ok_or_else(no_record)?)
    }

    /// Adds a reaction. One that is there already is 404: lib/api/award_emoji.rb, `not_found!("Award Emoji …")`.
    fn react(&self, number: u64, id: &str) -> Result {
        let name = self.call.text("name").ok_or_else(|| Refusal::parameter("name", "is missing"))?;
        if !REACTIONS.contains(&name.as_str()) {
            return Err(Refusal::not_found("Award Emoji Name is not a valid emoji name"));
        }
        self.call.shared.change(|state| {
            let fresh = state.new_id();
            let pull = state.pull_mut(&self.full_name, number).map_err(|_| no_record())?;
            let note = pull.comments.iter_mut().find(|note| note.id.to_string() == id).ok_or_else(no_record)?;
            if note.reactions.iter().any(|old| old.user == self.call.login && old.content == name) {
                return Err(Refusal::not_found("Award Emoji Name has already been taken"));
            }
            let reaction =
                ReactionState { id: fresh, user: self.call.login.clone(), content: name, created_at: timestamp() };
            note.reactions.push(reaction.clone());
            created(award(self.url(), state, id, &reaction))
        })
    }
}

/// The answer to a note of quick actions alone.
fn commands_only(changes: Map<String, Value>) -> Response {
    let summary: Vec<String> = changes.keys().map(|change| format!("Applied {change}.")).collect();
    (StatusCode::ACCEPTED, axum::Json(json!({"commands_changes": changes, "summary": summary}))).into_response()
}

/// Names of reactions that a server may use.
const REACTIONS: [&str; 8] = ["thumbsup", "thumbsdown", "eyes", "rocket", "heart", "tada", "laughing", "confused"];

fn award(url: &str, state: &State, note: &str, reaction: &ReactionState) -> Value {
    let at = shapes::api_time(&reaction.created_at);
    json!({
        "id": reaction.id, "name": reaction.content, "user": shapes::person(url, state, &reaction.user), "created_at": at,
        "updated_at": at, "awardable_id": note.parse::<u64>().unwrap_or_default(), "awardable_type": "Note", "url": null,
    })
}

/// Notes of people, and those of the host itself, each with true for the latter.
fn all<'a>(state: &'a State, pull: &'a PullState) -> Vec<(&'a CommentState, bool)> {
    let system = state.gitlab.merges.get(&pull.id).map(|merge| merge.system_notes.as_slice()).unwrap_or_default();
    let said = pull.comments.iter().map(|note| (note, false));
    said.chain(system.iter().map(|note| (note, true))).collect()
}
