//! The plain data that all stages share: repositories, pull requests, events. No I/O, nothing of a host's own field names.
//!
//! The words are those of docs/vocabulary.md. Commands are in [`command`], results in [`outcome`], what we say back in [`reply`],
//! what we remember in [`state`].

pub mod automerge;
mod clone_url;
pub mod command;
mod commit_address;
pub mod drift;
pub mod duration;
mod effect;
mod follow_up;
pub mod freeze;
mod ids;
pub mod language;
pub mod notification;
pub mod outcome;
pub mod ownership;
pub mod plan_digest;
pub mod policies;
mod project_state;
mod pull;
pub mod reply;
mod secret;
pub mod state;
pub mod state_address;
pub mod waiting;

pub use commit_address::CommitAddress;
pub use follow_up::FollowUp;
pub use ids::{CommitSha, DeliveryId, JobId, Login, NotACommit, PlanId, RunId};
pub use pull::{Base, Head, PullRequest, PullState, PullVersion};
pub use secret::{is_same, is_secret};

use serde::{Deserialize, Serialize};
use std::fmt;

/// A repository on a VCS host. `host` has neither scheme nor port, as in Atlantis' repository ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RepoId {
    /// Host name, such as `github.com`.
    pub host: String,
    /// Account that owns the repository.
    pub owner: String,
    /// Name within the account.
    pub name: String,
}

impl RepoId {
    /// `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Whether it has this owner and this name; hosts do not tell case apart.
    pub fn is_named(&self, owner: &str, name: &str) -> bool {
        self.owner.eq_ignore_ascii_case(owner) && self.name.eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for RepoId {
    /// `host/owner/name`: what allowlists and `repos.yaml` match.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.owner, self.name)
    }
}

/// A repository as its host told of it: the name that it had, and the host's own id, which stays when it is renamed or transferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Its name.
    pub repo: RepoId,
    /// The host's id, in the host's own form.
    pub key: String,
}

/// One pull request: the key of queues, locks and pull status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PullId {
    /// The base repository.
    pub repo: RepoId,
    /// Number within it.
    pub number: u64,
}

impl PullId {
    /// What stands in the place of a pull request where a branch itself is planned: a number that no host gives. Nothing is ever said on it.
    pub fn of_branches(repo: RepoId) -> PullId {
        PullId { repo, number: 0 }
    }

    /// Whether it stands for a branch.
    pub fn is_branch(&self) -> bool {
        self.number == 0
    }
}

impl fmt::Display for PullId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.repo, self.number)
    }
}

/// Bytes for people, in decimal units.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

/// What a verified delivery says, host-neutral.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Something happened to a pull request.
    Pull(PullEvent),
    /// Somebody wrote a new comment on a pull request.
    Comment(CommentEvent),
    /// A merge queue asks for the checks of one of its commits.
    MergeGroup(MergeGroupEvent),
    /// Branches have moved.
    Push(PushEvent),
    /// Nobody delivers it: the server plans something again by itself.
    Replan(waiting::ReplanEvent),
    /// What follows from something else; no host delivers it.
    FollowUp(FollowUp),
    /// A program asked for a command through the API.
    Request(RequestEvent),
    /// A review, a vote or a status has come, or gone.
    Verdict(VerdictEvent),
    /// The host tries its webhook.
    Ping,
    /// Anything that we do not act on; the text names it for the log (`star`, `pull_request labeled`).
    Other(String),
}

/// A pull request was opened, pushed to, made ready, changed otherwise or closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullEvent {
    /// What happened.
    pub action: PullAction,
    /// The pull request after it.
    pub pull: PullRequest,
    /// The person who did it; unknown where the host does not tell.
    pub sender: Login,
    /// The pull request's version after it.
    #[serde(rename = "updated_at")]
    pub version: PullVersion,
}

/// What happened to a pull request, as far as we act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullAction {
    /// Newly opened.
    Opened,
    /// The head branch got new commits.
    Pushed,
    /// No longer a draft.
    Ready,
    /// Something about it changed, and the host does not tell what. Dispatch compares it with what is known; it is never recorded.
    Updated,
    /// Merged or closed.
    Closed {
        /// True when it was merged.
        merged: bool,
    },
}

/// A newly written comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentEvent {
    /// On which pull request.
    pub pull: PullId,
    /// Where git fetches the repository, without credentials.
    pub clone_url: String,
    /// The host's id of the comment.
    pub comment_id: u64,
    /// Its author.
    pub author: Login,
    /// Its text, untrusted.
    pub body: String,
}

/// An entry of a merge queue: a commit with one more pull request merged into what it is built on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeGroupEvent {
    /// The pull request that this entry adds.
    pub pull: PullId,
    /// The branch that the queue merges into.
    pub base_branch: String,
    /// What it is built on: a commit of that branch, or of the entry ahead.
    pub base: CommitSha,
    /// Its own commit, which wants statuses.
    pub commit: CommitSha,
}

/// Branches of a repository have moved. It says no more than that: where they are now is asked of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushEvent {
    /// The repository.
    pub repo: RepoId,
    /// Names of the branches.
    pub branches: Vec<String>,
}

/// People or checks have said something about a commit or a pull request that may let the host merge it. It says no more than that: what
/// they have said is asked of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictEvent {
    /// The repository.
    pub repo: RepoId,
    /// The pull request, where it is known.
    pub number: Option<u64>,
    /// The commit, where it is known.
    pub commit: Option<CommitSha>,
}

/// A command that a program asked for. No host delivers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEvent {
    /// The pull request it is for.
    pub pull: PullId,
    /// The command.
    pub command: Box<command::Command>,
}

impl Event {
    /// The pull request it is about.
    pub fn pull_id(&self) -> Option<&PullId> {
        match self {
            Event::Pull(event) => Some(&event.pull.id),
            Event::Comment(event) => Some(&event.pull),
            Event::MergeGroup(event) => Some(&event.pull),
            Event::Replan(event) => Some(&event.pull),
            Event::FollowUp(follow_up) => Some(&follow_up.pull),
            Event::Request(event) => Some(&event.pull),
            Event::Push(_) | Event::Verdict(_) | Event::Ping | Event::Other(_) => None,
        }
    }
}

/// Directory, workspace and optional name: what is planned and applied as one. Directory and workspace name a state of the repository,
/// whatever the name ([`ProjectId::is_same_state`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProjectId {
    /// Directory relative to the repository's root; `.` for the root.
    pub dir: String,
    /// Terraform workspace.
    pub workspace: String,
    /// Name from the repo config.
    pub name: Option<String>,
}

impl ProjectId {
    /// Whether both are one state of a repository: the same directory and workspace. The name only says how a project is selected.
    pub fn is_same_state(&self, other: &ProjectId) -> bool {
        self.dir == other.dir && self.workspace == other.workspace
    }

    /// Name if there is one, else `dir/workspace`: the last part of a per-project commit status.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("{}/{}", self.dir, self.workspace))
    }
}

/// Terraform or OpenTofu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// HashiCorp Terraform, binary `terraform`.
    Terraform,
    /// OpenTofu, binary `tofu`.
    OpenTofu,
}

impl Distribution {
    /// The one that this is not.
    pub fn other(self) -> Distribution {
        match self {
            Distribution::Terraform => Distribution::OpenTofu,
            Distribution::OpenTofu => Distribution::Terraform,
        }
    }

    /// Name of the executable.
    pub fn binary(self) -> &'static str {
        match self {
            Distribution::Terraform => "terraform",
            Distribution::OpenTofu => "tofu",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Distribution::Terraform => "Terraform",
            Distribution::OpenTofu => "OpenTofu",
        }
    }
}
