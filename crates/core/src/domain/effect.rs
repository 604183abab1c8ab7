//! Effects: actions on a host, recorded before they are carried out (the outbox).

use super::automerge::Automerge;
use super::command::CommandName;
use super::{CommitSha, ProjectId, PullId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An action on the host. It is recorded, committed, carried out and marked as done (the outbox).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewEffect {
    /// The pull request; effects of one pull request are carried out in order.
    pub pull: PullId,
    /// The action.
    pub effect: Effect,
}

/// An effect as the outbox keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEffect {
    /// Position in the outbox, increasing.
    pub id: i64,
    /// The pull request.
    pub pull: PullId,
    /// The action.
    pub effect: Effect,
    /// Attempts so far, including those before a restart.
    pub attempts: u32,
    /// Time it was recorded, by the server's clock; absent in old records.
    pub recorded: Option<Timestamp>,
}

/// Kinds of action on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Effect {
    /// Post one comment, the `part`th of `run`; the body includes the marker.
    Comment {
        /// Run or reply id in the marker.
        run: RunId,
        /// Part, from 1.
        part: u32,
        /// Full text.
        body: String,
        /// Earlier comments that it may be written over; absent: it is a new comment (`--update-plan-comments`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over: Option<OverwriteScope>,
    },
    /// Set a commit status.
    Status {
        /// The commit.
        commit: CommitSha,
        /// The status.
        status: CommitStatus,
    },
    /// React to a comment.
    React {
        /// The host's id of the comment.
        comment_id: u64,
        /// Name of the reaction, such as `eyes`.
        reaction: String,
    },
    /// Hide earlier comments of the server whose results a run replaces, once the comments of that run are posted.
    Hide {
        /// The run whose comments stay. Only older comments are hidden.
        run: RunId,
        /// Its command; only results of the same command are hidden.
        command: CommandName,
        /// The projects in its results; absent for all.
        projects: Option<Vec<ProjectId>>,
    },
    /// Change the issue about the drift of a project. Recorded for the stand-in of the repository's branches, in order.
    Issue {
        /// Id of the issue's record.
        id: RunId,
        /// The change.
        change: IssueChange,
    },
    /// Merge the pull request.
    Merge {
        /// The head that was applied; no other head is merged.
        head: CommitSha,
        /// Options of the merge.
        how: Automerge,
        /// Reply id of the comment that reports a refusal.
        refusal: RunId,
        /// True if the server repeats a merge that the host has refused. A refusal for the same reason is not reported again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
}

/// Which earlier comments of the same command a comment may be written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverwriteScope {
    /// All of them: it covers the whole pull request.
    Any,
    /// Those about no other projects than its own.
    SameProjects,
}

/// Changes of an issue about drift. Texts include their markers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueChange {
    /// Open it, or take over the open one of the server's account about the same project and branch.
    Open {
        /// Its title.
        title: String,
        /// Full text.
        body: String,
        /// Names of its labels.
        labels: Vec<String>,
    },
    /// Replace its text.
    Update {
        /// Full text.
        body: String,
    },
    /// Post a comment and close it. Nothing is done if a person has closed it.
    Close {
        /// Full text of the comment.
        comment: String,
    },
}

/// A commit status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    /// Name, such as `atlantis/plan: network`.
    pub context: String,
    /// State that it reports.
    pub state: StatusState,
    /// One line for people.
    pub description: String,
    /// URL that it links to; empty for none.
    pub url: String,
    /// True if it is pending and nothing is in progress: it waits for a command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Details that a host with checks shows below it; absent if no host of the server shows any. The record loses them once the status
    /// is posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<StatusDetails>>,
}

impl CommitStatus {
    /// Returns a status as a host tells it: no host tells whether it waits, or its details.
    pub fn told(context: String, state: StatusState, description: String, url: String) -> CommitStatus {
        CommitStatus { context, state, description, url, waits: false, details: None }
    }
}

/// Text, remarks and buttons that a host with checks shows below a commit status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusDetails {
    /// Id of the effect that posts it, by which the host's check is found again; 0 before the outbox posts it.
    #[serde(skip)]
    pub effect: i64,
    /// Markdown; empty if there is no more to say than in the status.
    pub summary: String,
    /// Remarks at lines of files.
    pub annotations: Vec<StatusAnnotation>,
    /// Commands that a person can repeat by a button, in order.
    pub buttons: Vec<CommandName>,
}

/// Error or warning of Terraform at a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusAnnotation {
    /// Path of the file, relative to the root of the repository.
    pub path: String,
    /// Number of the line, from 1.
    pub line: u32,
    /// True for an error, false for a warning.
    pub is_error: bool,
    /// First line, plain text.
    pub title: String,
    /// Plain text.
    pub message: String,
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
