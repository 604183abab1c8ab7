//! Comments of pull requests, replies to them, and tasks, which are comments of another severity. Changes name the comment's version.

use super::super::state::{CommentState, PullState, ReactionState, State};
use super::super::{comments, timestamp};
use super::access::{self, Level};
use super::api::{RepoCall, created, no_content, no_route, ok};
use super::{MAX_COMMENT, Refusal, Result, hooks, shapes};
use serde_json::{Value, json};

/// Fields of a comment that the shared state lacks.
#[derive(Clone, Default)]
pub(super) struct CommentFacts {
    pub(super) version: i64,
    /// Id of the comment that it answers.
    pub(super) parent: Option<u64>,
    /// True for a task.
    pub(super) is_task: bool,
    /// True for a task that is done.
    pub(super) is_resolved: bool,
    /// Line or file that it is about.
    pub(super) anchor: Option<Value>,
    /// Text before the last change.
    pub(super) former_text: String,
}

impl CommentFacts {
    /// Word for the severity (OpenAPI, "Add pull request comment").
    pub(super) fn severity(&self) -> &'static str {
        if self.is_task { "BLOCKER" } else { "NORMAL" }
    }

    pub(super) fn state(&self) -> &'static str {
        if self.is_resolved { "RESOLVED" } else { "OPEN" }
    }
}

/// Number of tasks in this state.
pub(super) fn tasks(state: &State, pull: &PullState, word: &str) -> usize {
    let facts = pull.comments.iter().filter_map(|comment| state.bitbucket_data_center.comments.get(&comment.id));
    facts.filter(|facts| facts.is_task && facts.state() == word).count()
}

/// Adds a comment with these facts, and returns its id.
pub(super) fn add(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    (login, text): (&str, &str),
    facts: CommentFacts,
) -> anyhow::Result<u64> {
    let next = state.next_id();
    // The delivery has them.
    state.bitbucket_data_center.comments.insert(next, facts);
    let added = comments::add(state, url, full_name, number, login, text);
    if added.is_err() {
        state.bitbucket_data_center.comments.remove(&next);
    }
    added
}

/// Deletes a comment as this person, and queues the delivery.
pub(in super::super) fn delete(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    id: u64,
    login: &str,
) -> anyhow::Result<()> {
    hooks::emit_comment(state, url, full_name, number, id, "deleted", login)?;
    state.bitbucket_data_center.comments.remove(&id);
    state.pull_mut(full_name, number)?.comments.retain(|comment| comment.id != id);
    Ok(())
}

/// Returns true if a comment has replies.
fn has_replies(state: &State, pull: &PullState, id: u64) -> bool {
    let answers = |comment: &CommentState| {
        state.bitbucket_data_center.comments.get(&comment.id).is_some_and(|facts| facts.parent == Some(id))
    };
    pull.comments.iter().any(answers)
}

fn unknown(id: &str) -> Refusal {
    Refusal::not_found("comment.NoSuchCommentException", format!("Comment {id} does not exist."))
}

impl RepoCall<'_> {
    pub(super) fn of_comments(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        let (id, rest) = match (method, rest) {
            // OpenAPI: "Get pull request comments for path". There is no list of all.
            ("GET", []) if self.call.asked("path").is_none() => {
                return Err(Refusal::field("path", "The path query parameter is required."));
            }
            ("GET", []) => return self.comments_of_path(number),
            ("POST", []) => return self.create_comment(number),
            (_, [id, rest @ ..]) => (*id, rest),
            _ => return Err(no_route()),
        };
        let known = id.parse().map_err(|_| unknown(id))?;
        match (method, rest) {
            ("GET", []) => ok(self.shaped_comment(number, known)?),
            ("PUT", []) => self.edit_comment(number, known),
            ("DELETE", []) => self.remove_comment(number, known),
            _ => Err(no_route()),
        }
    }

    fn comments_of_path(&self, number: u64) -> Result {
        let (path, login) = (self.call.asked("path").unwrap_or_default(), &self.call.login);
        let rows = self.of_pull(number, |state, repo, pull| {
            let shape = |comment| shapes::comment(self.url(), state, repo, pull, comment, Some(login));
            let all = pull.comments.iter().map(shape);
            all.filter(|comment: &Value| comment["anchor"]["path"] == *path).collect()
        })?;
        self.call.page(rows, super::api::most::ACTIVITIES)
    }

    fn shaped_comment(&self, number: u64, id: u64) -> Result<Value> {
        let login = &self.call.login;
        let found = self.of_pull(number, |state, repo, pull| {
            let comment = pull.comments.iter().find(|comment| comment.id == id)?;
            Some(shapes::comment(self.url(), state, repo, pull, comment, Some(login)))
        })?;
        found.ok_or_else(|| unknown(&id.to_string()))
    }

    /// The text of the body, which may be absent.
    fn comment_text(&self) -> Result<Option<&str>> {
        let Some(text) = self.call.text("/text") else { return Ok(None) };
        if text.trim().is_empty() {
            return Err(Refusal::field("text", "A comment must have text."));
        }
        if text.chars().count() > MAX_COMMENT {
            return Err(Refusal::field("text", format!("Please enter a comment of up to {MAX_COMMENT} characters.")));
        }
        Ok(Some(text))
    }

    /// Severity and state of the body (OpenAPI). Pending comments are their author's alone, and the forge does not have them.
    fn set_words(&self, facts: &mut CommentFacts) -> Result<()> {
        match self.call.text("/severity") {
            None => {}
            Some("NORMAL") => facts.is_task = false,
            Some("BLOCKER") => facts.is_task = true,
            Some(other) => return Err(Refusal::field("severity", format!("{other} is no severity"))),
        }
        match self.call.text("/state") {
            None => Ok(()),
            Some(word @ ("OPEN" | "RESOLVED")) => {
                facts.is_resolved = word == "RESOLVED";
                Ok(())
            }
            Some(other) => Err(Refusal::field("state", format!("{other} is no state"))),
        }
    }

    /// Adds a comment as anybody who may read.
    fn create_comment(&self, number: u64) -> Result {
        let text = self.comment_text()?.ok_or_else(|| Refusal::field("text", "A comment must have text."))?;
        let mut facts = CommentFacts { anchor: self.call.part("/anchor").cloned(), ..CommentFacts::default() };
        self.set_words(&mut facts)?;
        if let Some(parent) = self.call.part("/parent/id").and_then(Value::as_u64) {
            self.shaped_comment(number, parent)?;
            facts.parent = Some(parent);
        }
        self.of_pull(number, |_, _, _| ())?;
        let shared = self.call.shared;
        let added =
            shared.change(|state| add(state, self.url(), &self.full_name, number, (&self.call.login, text), facts));
        created(self.shaped_comment(number, added.map_err(|error| Refusal::invalid(error.to_string()))?)?)
    }

    /// Refuses another version than that of the comment; an absent one is -1 (go-scm, pr.go).
    fn check_version(&self, id: u64) -> Result<()> {
        let current = self.call.shared.lock().bitbucket_data_center.comments.get(&id).map_or(0, |facts| facts.version);
        let expected = self.call.version().unwrap_or(-1);
        if expected == current {
            return Ok(());
        }
        let text = "You are attempting to modify a comment based on out-of-date information.";
        let more = json!({"currentVersion": current, "expectedVersion": expected});
        Err(Refusal::conflict("comment.CommentOutOfDateException", text).with(more))
    }

    /// Changes the text as the comment's author, or other fields as its author, the pull request's author or an administrator.
    fn edit_comment(&self, number: u64, id: u64) -> Result {
        let (shared, login) = (self.call.shared, &self.call.login);
        let comment = self.shaped_comment(number, id)?;
        let text = self.comment_text()?.filter(|text| comment["text"] != *text);
        let allowed = &comment["permittedOperations"][if text.is_some() { "editable" } else { "transitionable" }];
        if *allowed != true {
            return Err(Refusal::unauthorized());
        }
        self.check_version(id)?;
        let mut facts = shared.lock().bitbucket_data_center.comments.get(&id).cloned().unwrap_or_default();
        self.set_words(&mut facts)?;
        // An edit of the text makes the version itself.
        facts.version += i64::from(text.is_none());
        let is_folded = self.call.flag("/threadResolved");
        let edited = shared.change(|state| {
            state.bitbucket_data_center.comments.insert(id, facts);
            let pull = state.pull_mut(&self.full_name, number)?;
            let comment = pull.comments.iter_mut().find(|comment| comment.id == id);
            if let (Some(comment), Some(is_folded)) = (comment, is_folded) {
                comment.hidden = is_folded;
            }
            match text {
                Some(text) => comments::edit(state, self.url(), &self.full_name, number, login, (id, text)),
                None => hooks::emit_comment(state, self.url(), &self.full_name, number, id, "changed", login),
            }
        });
        edited.map_err(|error| Refusal::invalid(error.to_string()))?;
        ok(self.shaped_comment(number, id)?)
    }

    /// Deletes a comment as its author or an administrator, unless it has replies (OpenAPI).
    fn remove_comment(&self, number: u64, id: u64) -> Result {
        let (shared, login) = (self.call.shared, &self.call.login);
        let comment = self.shaped_comment(number, id)?;
        let (is_admin, replies) = self.of_pull(number, |state, repo, pull| {
            (access::level(repo, login) == Level::Admin, has_replies(state, pull, id))
        })?;
        if comment["author"]["name"] != login.as_str() && !is_admin {
            return Err(Refusal::unauthorized());
        }
        self.check_version(id)?;
        if replies {
            let text = "This comment has replies which must be deleted first.";
            return Err(Refusal::conflict("comment.CommentDeletionException", text));
        }
        let deleted = shared.change(|state| delete(state, self.url(), &self.full_name, number, id, login));
        deleted.map_err(|error| Refusal::broken(&error))?;
        no_content()
    }

    /// Adds a reaction to a comment, or removes it (OpenAPI, "React to a PR comment").
    pub(super) fn react(&self, method: &str, number: &str, id: &str, emoticon: &str) -> Result {
        let number = number.parse().map_err(|_| no_route())?;
        let id = id.parse().map_err(|_| unknown(id))?;
        self.shaped_comment(number, id)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "+-_".contains(c);
        if emoticon.is_empty() || !emoticon.chars().all(is_name) {
            return Err(Refusal::invalid(format!("{emoticon} is no emoticon")));
        }
        let login = self.call.login.clone();
        let reacted = self.call.shared.change(|state| {
            let reaction = state.new_id();
            let pull = state.pull_mut(&self.full_name, number)?;
            if let Some(comment) = pull.comments.iter_mut().find(|comment| comment.id == id) {
                comment.reactions.retain(|known| known.user != login || known.content != emoticon);
                if method == "PUT" {
                    let (user, content) = (login, emoticon.to_owned());
                    let created_at = timestamp();
                    comment.reactions.push(ReactionState { id: reaction, user, content, created_at });
                }
            }
            Ok(())
        });
        reacted.map_err(|error: anyhow::Error| Refusal::broken(&error))?;
        if method == "DELETE" {
            return no_content();
        }
        let user = shapes::person(self.url(), &self.call.shared.lock(), &self.call.login);
        let comment = self.shaped_comment(number, id)?;
        ok(json!({"comment": comment, "emoticon": shapes::emoticon(emoticon), "user": user}))
    }
}
