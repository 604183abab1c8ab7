//! Activities of pull requests, the latest first. They are the only list of all comments (OpenAPI, "Get pull request activity").

use super::super::state::{CommentState, PullState, PushState, RepoState, State};
use super::super::timestamp;
use super::api::{RepoCall, most};
use super::{Result, shapes};
use serde_json::{Value, json};

/// An activity that is no comment and no push.
pub(super) struct Happened {
    id: u64,
    /// Name of the activity (OpenAPI, `RestPullRequestActivity`).
    action: &'static str,
    pub(super) by: String,
    at: String,
}

impl Happened {
    /// An activity of this moment.
    pub(super) fn now(id: u64, action: &'static str, by: &str) -> Happened {
        Happened { id, action, by: by.to_owned(), at: timestamp() }
    }
}

impl RepoCall<'_> {
    pub(super) fn activities(&self, number: u64) -> Result {
        let login = &self.call.login;
        let rows = self.of_pull(number, |state, repo, pull| rows(self.url(), state, repo, pull, login))?;
        self.call.page(rows, most::ACTIVITIES)
    }
}

fn rows(url: &str, state: &State, repo: &RepoState, pull: &PullState, reader: &str) -> Vec<Value> {
    let mut all: Vec<(String, Value)> = Vec::new();
    let mut add = |id: u64, action: &str, by: &str, at: &str, more: Value| {
        let mut row = json!({
            "id": id, "createdDate": shapes::millis(at), "user": shapes::person(url, state, by), "action": action,
        });
        if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
            row.extend(more);
        }
        all.push((at.to_owned(), row));
    };
    // Replies are in the comment that they answer.
    let is_reply = |comment: &CommentState| {
        let facts = state.bitbucket_data_center.comments.get(&comment.id);
        facts.is_some_and(|facts| facts.parent.is_some())
    };
    for comment in pull.comments.iter().filter(|comment| !is_reply(comment)) {
        let shaped = shapes::comment(url, state, repo, pull, comment, Some(reader));
        let mut more = json!({"commentAction": "ADDED"});
        if let Some(anchor) = shaped.get("anchor") {
            more["commentAnchor"] = anchor.clone();
        }
        more["comment"] = shaped;
        add(comment.id, "COMMENTED", &comment.author, &comment.created_at, more);
    }
    for pair in pull.pushes.windows(2) {
        let [PushState { commit: before, .. }, PushState { commit: after, author, at }] = pair else { continue };
        let more = json!({
            "fromHash": after, "previousFromHash": before, "previousToHash": pull.base_sha, "toHash": pull.base_sha,
            "added": {"commits": [], "total": 0}, "removed": {"commits": [], "total": 0},
        });
        add(pull.id, "RESCOPED", author, at, more);
    }
    for happened in state.bitbucket_data_center.pulls.get(&pull.id).into_iter().flat_map(|facts| &facts.happened) {
        add(happened.id, happened.action, &happened.by, &happened.at, json!({}));
    }
    all.sort_by(|one, other| other.0.cmp(&one.0));
    all.into_iter().map(|(_, row)| row).collect()
}
