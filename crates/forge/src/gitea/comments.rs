//! Comments of pull requests and issues, and reactions (routers/api/v1/repo/issue_comment.go, routers/api/v1/repo/issue_reaction.go).

use super::super::state::{CommentState, ReactionState, State};
use super::super::{comments, timestamp};
use super::api::{RepoCall, created, no_content, no_route, ok, total_count};
use super::{Refusal, Result, access, hooks, shapes};
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::{Value, json};

/// Reactions of an instance that chooses no others (modules/setting/ui.go, `Reactions`).
const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes"];

/// Where a comment is: number of its thread, whether that is a pull request, and the author.
struct CommentPlace {
    number: u64,
    is_pull: bool,
    author: String,
}

impl RepoCall<'_> {
    /// Lists all comments of a thread, oldest first. There are no pages, and `since` is about the time of the last change.
    pub(super) fn comments(&self, number: u64) -> Result {
        let since = match self.call.asked("since").map(str::parse::<jiff::Timestamp>) {
            None => None,
            Some(Ok(since)) => Some(since),
            Some(Err(error)) => return Err(Refusal::invalid(error.to_string())),
        };
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let (is_pull, all) = thread(&state, &self.full_name, number)?;
        // Times of comments are whole seconds.
        let second = |text: &str| text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
        let is_wanted =
            |comment: &&CommentState| since.is_none_or(|since| second(&comment.updated_at) >= since.as_second());
        let shape = |comment| shapes::comment(self.url(), &state, repo, (number, is_pull), comment);
        let rows: Vec<Value> = all.iter().filter(is_wanted).map(shape).collect();
        Ok((total_count(rows.len()), axum::Json(rows)).into_response())
    }

    /// Adds a comment. People who may read may comment.
    pub(super) fn create_comment(&self, number: u64) -> Result {
        let body = self.call.required("body", "Body")?;
        let (shared, login) = (self.call.shared, &self.call.login);
        let (is_pull, _) = thread(&shared.lock(), &self.full_name, number).map(|(is_pull, _)| (is_pull, ()))?;
        let id = shared.change(|state| match is_pull {
            true => comments::add(state, self.url(), &self.full_name, number, login, &body),
            false => add_to_issue(state, &self.full_name, number, login, &body),
        });
        let id = id.map_err(|error| Refusal::broken(&error))?;
        created(self.shaped_comment(id)?)
    }

    pub(super) fn of_comment(&self, method: &str, id: &str, rest: &[&str]) -> Result {
        let absent = || Refusal::absent(Some(format!("comment does not exist [id: {id}, issue_id: 0]")));
        let id = id.parse().map_err(|_| absent())?;
        let place = self.place(id)?.ok_or_else(absent)?;
        match (method, rest) {
            ("GET", []) => ok(self.shaped_comment(id)?),
            ("PATCH", []) => self.edit_comment(id, &place),
            ("DELETE", []) => self.delete_comment(id, &place),
            ("GET", ["reactions"]) => self.reactions(id),
            ("POST", ["reactions"]) => self.react(id),
            ("DELETE", ["reactions"]) => self.take_reaction(id),
            _ => Err(no_route()),
        }
    }

    fn place(&self, id: u64) -> Result<Option<CommentPlace>> {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let of_pulls = repo.pulls.iter().map(|pull| (pull.number, true, &pull.comments));
        let of_issues = repo.issues.iter().map(|issue| (issue.number, false, &issue.comments));
        Ok(of_pulls.chain(of_issues).find_map(|(number, is_pull, all)| {
            let comment = all.iter().find(|comment| comment.id == id)?;
            Some(CommentPlace { number, is_pull, author: comment.author.clone() })
        }))
    }

    fn shaped_comment(&self, id: u64) -> Result<Value> {
        let place = self.place(id)?.ok_or_else(Refusal::not_found)?;
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let (is_pull, all) = thread(&state, &self.full_name, place.number)?;
        let comment = all.iter().find(|comment| comment.id == id).ok_or_else(Refusal::not_found)?;
        Ok(shapes::comment(self.url(), &state, repo, (place.number, is_pull), comment))
    }

    /// The author and people who may write may change a comment; others get 403 without a body.
    fn check_comment(&self, place: &CommentPlace) -> Result<()> {
        match place.author == self.call.login || access::is_writer(&self.level()) {
            true => Ok(()),
            false => Err(Refusal::bare(StatusCode::FORBIDDEN)),
        }
    }

    fn edit_comment(&self, id: u64, place: &CommentPlace) -> Result {
        let body = self.call.required("body", "Body")?;
        self.check_comment(place)?;
        let edited = self.call.shared.change(|state| {
            if place.is_pull {
                let how = (id, body.as_str());
                return comments::edit(state, self.url(), &self.full_name, place.number, &self.call.login, how);
            }
            let all = state.repo_mut(&self.full_name)?.issues.iter_mut().flat_map(|issue| &mut issue.comments);
            for comment in all.filter(|comment| comment.id == id) {
                comment.body.clone_from(&body);
                comment.updated_at = timestamp();
            }
            Ok(())
        });
        edited.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_comment(id)?)
    }

    fn delete_comment(&self, id: u64, place: &CommentPlace) -> Result {
        self.check_comment(place)?;
        let deleted = self.call.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name)?;
            let of_pulls = repo.pulls.iter_mut().map(|pull| &mut pull.comments);
            let of_issues = repo.issues.iter_mut().map(|issue| &mut issue.comments);
            let gone: Vec<CommentState> =
                of_pulls.chain(of_issues).flat_map(|all| all.extract_if(.., |comment| comment.id == id)).collect();
            match gone.first().filter(|_| place.is_pull) {
                Some(comment) => {
                    hooks::emit_deleted(state, self.url(), &self.full_name, place.number, comment, &self.call.login)
                }
                None => Ok(()),
            }
        });
        deleted.map_err(|error| Refusal::broken(&error))?;
        no_content()
    }

    fn with_reactions<T>(&self, id: u64, act: impl FnOnce(&mut Vec<ReactionState>) -> T) -> Result<T> {
        self.call.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name).map_err(|_| Refusal::not_found())?;
            let of_pulls = repo.pulls.iter_mut().flat_map(|pull| &mut pull.comments);
            let of_issues = repo.issues.iter_mut().flat_map(|issue| &mut issue.comments);
            let comment = of_pulls.chain(of_issues).find(|comment| comment.id == id);
            comment.map(|comment| act(&mut comment.reactions)).ok_or_else(Refusal::not_found)
        })
    }

    /// Lists reactions; without any the answer is `null`.
    fn reactions(&self, id: u64) -> Result {
        let all = self.with_reactions(id, |all| all.clone())?;
        let state = self.call.shared.lock();
        let rows: Vec<Value> =
            all.iter().map(|reaction| shaped(self.url(), &state, reaction, &self.call.login)).collect();
        ok(if rows.is_empty() { Value::Null } else { rows.into() })
    }

    /// Adds a reaction. The same again is answered with 200, one that the instance does not know with 403.
    fn react(&self, id: u64) -> Result {
        let content = self.call.text("content").unwrap_or_default();
        if !REACTIONS.contains(&content.as_str()) {
            return Err(Refusal::forbidden(format!("'{content}' is not an allowed reaction")));
        }
        let (fresh, login) = (self.call.shared.change(State::new_id), self.call.login.clone());
        let (reaction, is_new) = self.with_reactions(id, |all| {
            let known = all.iter().find(|reaction| reaction.user == login && reaction.content == content);
            if let Some(known) = known {
                return (known.clone(), false);
            }
            let reaction = ReactionState { id: fresh, user: login, content, created_at: timestamp() };
            all.push(reaction.clone());
            (reaction, true)
        })?;
        let body = shaped(self.url(), &self.call.shared.lock(), &reaction, &self.call.login);
        if is_new { created(body) } else { ok(body) }
    }

    fn take_reaction(&self, id: u64) -> Result {
        let content = self.call.text("content").unwrap_or_default();
        let login = &self.call.login;
        self.with_reactions(id, |all| {
            all.retain(|reaction| reaction.user != *login || reaction.content != content);
        })?;
        no_content()
    }
}

/// Comments of a pull request or an issue, and which of both it is.
fn thread<'a>(state: &'a State, full_name: &str, number: u64) -> Result<(bool, &'a [CommentState])> {
    let repo = state.repo(full_name).map_err(|_| Refusal::not_found())?;
    let pull = repo.pulls.iter().find(|pull| pull.number == number).map(|pull| (true, pull.comments.as_slice()));
    let issue = || repo.issues.iter().find(|issue| issue.number == number);
    match pull.or_else(|| issue().map(|issue| (false, issue.comments.as_slice()))) {
        Some((false, _)) if repo.issues_disabled => Err(Refusal::not_found()),
        Some(found) => Ok(found),
        // `ListIssueComments` has no case of its own for an unknown number.
        None => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "")),
    }
}

fn add_to_issue(state: &mut State, full_name: &str, number: u64, author: &str, body: &str) -> anyhow::Result<u64> {
    let (id, now) = (state.new_id(), timestamp());
    let issue = super::super::issue::find_mut(state.repo_mut(full_name)?, number);
    let issue = issue.ok_or_else(|| anyhow::anyhow!("there is no issue {number}"))?;
    issue.updated_at.clone_from(&now);
    issue.comments.push(CommentState {
        id,
        author: author.to_owned(),
        body: body.to_owned(),
        created_at: now.clone(),
        updated_at: now,
        reactions: Vec::new(),
        hidden: false,
    });
    Ok(id)
}

fn shaped(url: &str, state: &State, reaction: &ReactionState, viewer: &str) -> Value {
    json!({"user": shapes::viewed(url, state, &reaction.user, viewer), "content": reaction.content,
        "created_at": shapes::time(state, &reaction.created_at)})
}
