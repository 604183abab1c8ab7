//! Activities of people, the server under test and the forge on pull requests, for a running account of them.

use super::Forge;
use super::state::{PullState, RepoState, State};
use anyhow::Context;
use std::collections::HashSet;
use tokio::sync::watch;

/// An activity on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Number of the pull request.
    pub pull: u64,
    /// Kind of the activity.
    pub kind: ActivityKind,
    /// Identifies it among all activities. It is the same each time they are listed.
    key: String,
    order: u64,
}

/// Kind of an activity on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivityKind {
    /// Somebody opened it.
    Opened {
        /// Login of the author.
        author: String,
        /// Its title.
        title: String,
    },
    /// Its head is this commit now.
    Head(String),
    /// Somebody commented on it.
    Commented {
        /// Login of the commenter.
        author: String,
        /// The comment, in Markdown.
        body: String,
    },
    /// Somebody reviewed it.
    Reviewed {
        /// Login of the reviewer.
        user: String,
        /// True if the review approves; otherwise it requests changes.
        approved: bool,
    },
    /// Its head commit got a status.
    Status {
        /// Name of the status.
        context: String,
        /// `pending`, `success`, `failure` or `error`.
        state: String,
        /// Text beside it; may be empty.
        description: String,
    },
    /// Somebody with this login merged it.
    Merged(String),
    /// Somebody closed it without a merge.
    Closed,
}

/// Follows the activities; made by [`Forge::follow`].
pub struct Follower<'a> {
    forge: &'a Forge,
    changes: watch::Receiver<u64>,
    seen: HashSet<String>,
}

impl Forge {
    /// Follows the activities on all pull requests, from the first one on.
    pub fn follow(&self) -> Follower<'_> {
        Follower { forge: self, changes: self.shared.changes.subscribe(), seen: HashSet::new() }
    }
}

impl Follower<'_> {
    /// Waits for activities that were not returned yet, and returns them in order. Cancel-safe.
    pub async fn next(&mut self) -> anyhow::Result<Vec<Activity>> {
        loop {
            self.changes.borrow_and_update();
            let mut new = all(&self.forge.shared.lock());
            new.retain(|activity| self.seen.insert(activity.key.clone()));
            if !new.is_empty() {
                new.sort_by_key(|activity| activity.order);
                return Ok(new);
            }
            self.changes.changed().await.context("the forge has stopped")?;
        }
    }
}

fn all(state: &State) -> Vec<Activity> {
    let pulls = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
    pulls.flat_map(|(repo, pull)| of_pull(repo, pull)).collect()
}

fn of_pull(repo: &RepoState, pull: &PullState) -> Vec<Activity> {
    let mut all = Vec::new();
    let mut add = |key: &str, order: u64, kind: ActivityKind| {
        let key = format!("{} #{} {key}", repo.full_name(), pull.number);
        all.push(Activity { pull: pull.number, kind, key, order });
    };
    add("opened", pull.id, ActivityKind::Opened { author: pull.author.clone(), title: pull.title.clone() });
    add(&pull.head_sha, pull.id + 1, ActivityKind::Head(pull.head_sha.clone()));
    for comment in &pull.comments {
        let kind = ActivityKind::Commented { author: comment.author.clone(), body: comment.body.clone() };
        add(&comment.id.to_string(), comment.id, kind);
    }
    for review in &pull.reviews {
        let kind = ActivityKind::Reviewed { user: review.user.clone(), approved: review.state == "APPROVED" };
        add(&review.id.to_string(), review.id, kind);
    }
    for status in repo.statuses.iter().filter(|status| status.sha == pull.head_sha) {
        let kind = ActivityKind::Status {
            context: status.context.clone(),
            state: status.state.clone(),
            description: status.description.clone().unwrap_or_default(),
        };
        add(&status.id.to_string(), status.id, kind);
    }
    if let Some((_, by)) = &pull.merged {
        add("merged", u64::MAX, ActivityKind::Merged(by.clone()));
    } else if !pull.open {
        let when = pull.closed_at.clone().unwrap_or_default();
        add(&format!("closed {when}"), u64::MAX, ActivityKind::Closed);
    }
    all
}
