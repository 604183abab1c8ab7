//! Effects: what is to be done on a host, recorded before it is done (the outbox).

use super::automerge::Automerge;
use super::command::CommandName;
use super::{CommitSha, ProjectId, PullId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something to be done on the host: recorded, committed, done, marked (the outbox).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewEffect {
    /// On which pull request; effects of one pull request are done in order.
    pub pull: PullId,
    /// What.
    pub effect: Effect,
}

/// An effect as the outbox keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEffect {
    /// Position in the outbox; grows.
    pub id: i64,
    /// On which pull request.
    pub pull: PullId,
    /// What.
    pub effect: Effect,
    /// How often it was tried, over restarts.
    pub attempts: u32,
    /// When it was recorded, by our clock; absent in old records.
    pub recorded: Option<Timestamp>,
}

/// What can be done on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Effect {
    /// Post one comment, the `part`th of `run`; the body carries the marker.
    Comment {
        /// Run or reply id in the marker.
        run: RunId,
        /// Part, from 1.
        part: u32,
        /// Whole text.
        body: String,
    },
    /// Set a commit status.
    Status {
        /// On which commit.
        commit: CommitSha,
        /// What.
        status: CommitStatus,
    },
    /// React to a comment.
    React {
        /// The host's id of the comment.
        comment_id: u64,
        /// Name of the reaction, such as `eyes`.
        reaction: String,
    },
    /// Hide earlier comments of ours whose results a run tells anew, once its own are posted.
    Hide {
        /// The run whose comments stay. What is hidden is older.
        run: RunId,
        /// Its command: results of no other are hidden.
        command: CommandName,
        /// The projects that it tells; absent: all that there are.
        projects: Option<Vec<ProjectId>>,
    },
    /// Merge the pull request.
    Merge {
        /// Its head, which was applied: no other one is merged.
        head: CommitSha,
        /// How.
        how: Automerge,
        /// Reply id of the comment that tells a refusal.
        refusal: RunId,
        /// Nobody asked: the host has refused it before. A refusal for the same reason is not told again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
}

/// A mark on a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    /// Name, such as `atlantis/plan: network`.
    pub context: String,
    /// State.
    pub state: StatusState,
    /// One line for people.
    pub description: String,
    /// Where it leads; empty for nowhere.
    pub url: String,
}

/// State of a commit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the hosts'")]
pub enum StatusState {
    Pending,
    Success,
    Failure,
}
