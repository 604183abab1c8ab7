//! Plain data that all stages share, such as repositories, pull requests and events. It does no I/O and has no field names of a host.
//!
//! The words are those of docs/vocabulary.md. Commands are in [`command`], results in [`outcome`], replies in [`reply`], and records of the
//! state in [`state`].

mod audit;
pub mod auto_apply;
pub mod automerge;
mod cause;
mod clone_url;
pub mod command;
mod commit_address;
mod delivered_pull;
pub mod drift;
pub mod drift_issue;
pub mod duration;
mod effect;
mod follow_up;
pub mod freeze;
pub mod guards;
mod ids;
pub mod job_times;
pub mod language;
mod login;
pub mod notification;
pub mod outcome;
mod owners_language;
pub mod ownership;
pub mod plan_digest;
pub mod policies;
mod project_state;
mod pull;
mod pull_names;
pub mod reply;
pub mod requirement;
mod secret;
pub mod state;
pub mod state_address;
pub mod tags;
pub mod waiting;
mod watermark;

pub use auto_apply::{AutoApply, AutoApplyEvent};
pub use commit_address::CommitAddress;
pub use delivered_pull::{DeliveredPull, PartialPull};
pub use follow_up::FollowUp;
pub use ids::{CommitSha, DeliveryId, JobId, NotACommit, PlanId, RunId};
pub use login::Login;
pub use owners_language::OwnersLanguage;
pub use pull::{Base, Head, PullRequest, PullState, PullVersion};
pub use pull_names::PullNames;
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
    /// Parses `host/owner/name`, where the owner may have several parts.
    pub fn of_whole_name(text: &str) -> Option<RepoId> {
        let (host, rest) = text.split_once('/')?;
        let (owner, name) = rest.rsplit_once('/')?;
        let is_whole = [host, owner, name].iter().all(|part| !part.is_empty());
        is_whole.then(|| RepoId { host: host.into(), owner: owner.into(), name: name.into() })
    }

    /// Returns `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Returns true if a person means this repository: `owner/name` or `host/owner/name`, in any case.
    pub fn is_meant_by(&self, name: &str) -> bool {
        self.full_name().eq_ignore_ascii_case(name) || self.to_string().eq_ignore_ascii_case(name)
    }

    /// Returns true if it has this owner and this name. Case is ignored, as hosts ignore it.
    pub fn is_named(&self, owner: &str, name: &str) -> bool {
        self.owner.eq_ignore_ascii_case(owner) && self.name.eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for RepoId {
    /// Writes `host/owner/name`, the form that allowlists and `repos.yaml` match.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.owner, self.name)
    }
}

/// A repository as its host reported it: its name at that time, and the host's own id, which stays when it is renamed or transferred.
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
    /// Returns the id that stands for a branch that is planned without a pull request. No host assigns its number, and nothing is posted to
    /// it.
    pub fn of_branches(repo: RepoId) -> PullId {
        PullId { repo, number: 0 }
    }

    /// Returns true if it stands for a branch.
    pub fn is_branch(&self) -> bool {
        self.number == 0
    }
}

impl fmt::Display for PullId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.repo, self.number)
    }
}

/// Formats a number of bytes for people, in decimal units.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

/// Content of a verified delivery, independent of the host.
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
    /// Work that follows from other work; no host delivers it.
    FollowUp(Box<FollowUp>),
    /// Automatic applies may be due; no host delivers it.
    AutoApply(AutoApplyEvent),
    /// A program asked for a command through the API.
    Request(RequestEvent),
    /// A person pressed a button of a check of ours. Dispatch makes a request of it; this event is never recorded.
    Check(CheckEvent),
    /// A review, a vote or a commit status was added or removed.
    Verdict(VerdictEvent),
    /// A host's test of its webhook.
    Ping,
    /// An event without effect here; the text names it for the log (`star`, `pull_request labeled`).
    Other(String),
}

/// A pull request was opened, pushed to, made ready, changed otherwise or closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullEvent {
    /// Kind of change.
    pub action: PullAction,
    /// The pull request after the change.
    pub pull: DeliveredPull,
    /// The person who made the change; unknown if the host does not report them.
    pub sender: Login,
    /// Version of the pull request after the change.
    #[serde(rename = "updated_at")]
    pub version: PullVersion,
}

/// Changes of a pull request that have an effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullAction {
    /// Newly opened.
    Opened,
    /// The head branch got new commits.
    Pushed,
    /// No longer a draft.
    Ready,
    /// Another change, of a kind that the host does not report. Dispatch compares the pull request with the known one; this action is never
    /// recorded.
    Updated,
    /// Merged or closed.
    Closed {
        /// True if it was merged.
        merged: bool,
    },
}

/// A newly written comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentEvent {
    /// The pull request.
    pub pull: PullId,
    /// URL from which git fetches the repository, without credentials.
    pub clone_url: String,
    /// The host's id of the comment.
    pub comment_id: u64,
    /// Its author.
    pub author: Login,
    /// Its text, untrusted.
    pub body: String,
}

/// Entry of a merge queue: a commit that merges one more pull request into its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeGroupEvent {
    /// The pull request that this entry adds.
    pub pull: PullId,
    /// The branch that the queue merges into.
    pub base_branch: String,
    /// Parent of its commit: a commit of that branch, or of the entry ahead.
    pub base: CommitSha,
    /// Its commit, on which statuses are set.
    pub commit: CommitSha,
}

/// Branches of a repository have moved. The server asks the host for their commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushEvent {
    /// The repository.
    pub repo: RepoId,
    /// Names of the branches.
    pub branches: Vec<String>,
}

/// A review, vote or check on a commit or a pull request that may let the host merge it. The server asks the host for the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictEvent {
    /// The repository.
    pub repo: RepoId,
    /// The pull request, if known.
    pub number: Option<u64>,
    /// The commit, if known.
    pub commit: Option<CommitSha>,
}

/// A button of a check that the server posted, or the host's own button that repeats checks. The person has to be authentic, the check
/// the server's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEvent {
    /// The repository.
    pub repo: RepoId,
    /// The pull request for which the check was posted; absent if the host does not report it.
    pub number: Option<u64>,
    /// The commit of the check.
    pub head: CommitSha,
    /// Name of the check; absent for all checks of the commit.
    pub check: Option<String>,
    /// The command of the button.
    pub command: command::CommandName,
    /// The person who pressed it.
    pub sender: Login,
}

/// A command that a program, a page or a check asked for. No host delivers it in this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEvent {
    /// The pull request.
    pub pull: PullId,
    /// The command.
    pub command: Box<command::Command>,
}

impl Event {
    /// Returns the pull request it is about.
    pub fn pull_id(&self) -> Option<&PullId> {
        match self {
            Event::Pull(event) => Some(event.pull.id()),
            Event::Comment(event) => Some(&event.pull),
            Event::MergeGroup(event) => Some(&event.pull),
            Event::FollowUp(follow_up) => Some(&follow_up.pull),
            Event::AutoApply(event) => Some(&event.pull),
            Event::Request(event) => Some(&event.pull),
            Event::Push(_) | Event::Check(_) | Event::Verdict(_) | Event::Ping | Event::Other(_) => None,
        }
    }
}

/// Directory, workspace and optional name, which are planned and applied as one. Directory and workspace identify a state of the
/// repository, whatever the name ([`ProjectId::is_same_state`]).
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
    /// Returns true if both have the same state: the same directory and workspace. The name only serves to select a project.
    pub fn is_same_state(&self, other: &ProjectId) -> bool {
        self.dir == other.dir && self.workspace == other.workspace
    }

    /// Returns the name if there is one, else `dir/workspace`. It is the last part of a per-project commit status.
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
    /// Returns the other distribution.
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

/// Returns the names of an enum's variants in JSON, in order, as serde lists them for an unknown one.
#[cfg(test)]
fn variants_of<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
    let unknown = serde_json::from_str::<T>("\"?\"").unwrap_err().to_string();
    unknown.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
