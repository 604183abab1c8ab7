//! The activity log of a pull request: comments, updates, approvals and requested changes (OpenAPI), the latest first.

use super::super::state::{PullState, RepoState, State};
use super::api::{MAX_PULLS, RepoCall};
use super::{Result, shapes};
use serde_json::{Value, json};

/// A change of a pull request by a person, its opening included, with the pull request as it was from then on.
pub(super) struct Update {
    by: String,
    at: String,
    head: String,
    state: &'static str,
    title: String,
    text: String,
    is_draft: bool,
}

impl Update {
    /// A change by this person that has just been made.
    pub(super) fn of(pull: &PullState, by: &str) -> Update {
        Update {
            by: by.to_owned(),
            at: pull.updated_at.clone(),
            head: pull.head_sha.clone(),
            state: shapes::state_word(pull),
            title: pull.title.clone(),
            text: pull.body.clone(),
            is_draft: pull.draft,
        }
    }

    fn shaped(&self, url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
        json!({
            "date": shapes::time(&self.at), "state": self.state, "draft": self.is_draft, "title": self.title,
            "description": self.text, "reason": "", "author": shapes::person(url, state, &self.by),
            "source": shapes::source(url, state, pull, &self.head), "destination": shapes::destination(url, repo, pull),
            "changes": {}, "reviewers": [],
        })
    }
}

/// Lists the activities.
pub(super) fn list(call: &RepoCall<'_>, number: u64) -> Result {
    let rows = call.of_pull(number, |state, repo, pull| rows(call.url(), state, repo, pull))?;
    call.call.page(rows, MAX_PULLS)
}

fn rows(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Vec<Value> {
    let brief = shapes::pull_brief(url, repo, pull);
    let mut all: Vec<(String, Value)> = Vec::new();
    let mut add = |at: &str, name: &str, entry: Value| {
        all.push((at.to_owned(), json!({"pull_request": brief, name: entry})));
    };
    for comment in &pull.comments {
        add(&comment.created_at, "comment", shapes::comment(url, state, repo, pull, comment));
    }
    for review in pull.reviews.iter().filter(|review| review.vote != 0) {
        let name = if review.vote > 0 { "approval" } else { "changes_requested" };
        let user = shapes::person(url, state, &review.user);
        add(
            &review.submitted_at,
            name,
            json!({"date": shapes::time(&review.submitted_at), "user": user, "pullrequest": brief}),
        );
    }
    let updates = state.bitbucket_cloud.pulls.get(&pull.id).map_or(&[][..], |facts| &facts.updates);
    for update in updates {
        add(&update.at, "update", update.shaped(url, state, repo, pull));
    }
    all.sort_by(|one, other| other.0.cmp(&one.0));
    all.into_iter().map(|(_, row)| row).collect()
}
