//! Who owns a project in mode `strict`, which projects a pull request changes, and why plans fall.

use super::plan_digest::{ChangesDigest, SeenPlan};
use super::state::{LockHolder, PlanRecord, lock_id, lock_key};
use super::waiting::PlannedAgain;
use super::{CommitSha, JobId, ProjectId, PullId, RepoId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A pull request owns a project: nobody else may change the project's state. The record outlives pushes, and the closing or merging of
/// the pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectOwner {
    /// The repository.
    pub repo: RepoId,
    /// The project.
    pub project: ProjectId,
    /// The owning pull request, and whose command made it the owner.
    pub holder: LockHolder,
    /// Where it stands.
    pub state: OwnerState,
    /// The last change of the project's state under this ownership, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedCommit>,
    /// The commit that the pull request was merged as, where it is merged and the host tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<CommitSha>,
    /// When the pull request was last told that it owes something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Timestamp>,
    /// How often it is told again, as the project's configuration said; zero for never, absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Duration>,
    /// Of a merged pull request: the last plan of the head that was merged, which is what people approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<SeenPlan>,
    /// Why a person took it by hand, or why it is not known yet what was merged; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl ProjectOwner {
    /// The project in the form of Atlantis' lock keys.
    pub fn key(&self) -> String {
        lock_key(&self.repo, &self.project)
    }

    /// The same with the host before it.
    pub fn id(&self) -> String {
        lock_id(&self.repo, &self.project)
    }

    /// Whether a change of the state has begun whose end is not recorded.
    pub fn is_at_work(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.ended.is_none())
    }

    /// Whether its pull request is over, and a person has to end it.
    pub fn is_owed(&self) -> bool {
        matches!(self.state, OwnerState::MergedUnapplied | OwnerState::ClosedApplied | OwnerState::MergedUnknown)
    }

    /// It stands for all that a merged pull request may change, as that is not known yet.
    pub fn is_unknown(&self) -> bool {
        self.state == OwnerState::MergedUnknown
    }

    /// The row of a pull request of which it is not known yet what it has merged.
    pub fn unknown(holder: &LockHolder, merged: Option<CommitSha>, because: &str) -> ProjectOwner {
        ProjectOwner {
            repo: holder.pull.repo.clone(),
            project: unknown_projects(),
            holder: holder.clone(),
            state: OwnerState::MergedUnknown,
            applied: None,
            merged,
            told: None,
            reminder_interval: None,
            approved: None,
            reason: because.to_owned(),
        }
    }

    /// When it is to be told again; `usual` where its project did not say how often. Absent for never, and where it was not told yet.
    pub fn reminder_due(&self, usual: Duration) -> Option<Timestamp> {
        let interval = self.reminder_interval.unwrap_or(usual);
        let told = self.told.filter(|_| self.is_owed() && !interval.is_zero())?;
        told.checked_add(interval).ok()
    }

    /// Whether a plan after the merge changes the same as the one that was approved before it. What is not known is not the same.
    pub fn approves(&self, plan: &PlanRecord) -> bool {
        let approved = self.approved.as_ref().and_then(|approved| approved.changes.as_ref());
        self.state == OwnerState::MergedUnapplied
            && self.holder.pull == plan.pull
            && self.is_of(&plan.pull.repo, &plan.project)
            && ChangesDigest::is_same(approved, plan.changes.as_ref())
    }

    /// Whether it is about this project of this repository, by its name.
    pub fn is_of(&self, repo: &RepoId, project: &ProjectId) -> bool {
        self.project == *project && self.repo == *repo
    }

    /// Whether it is about the state of this project of this repository, under any name.
    pub fn is_of_state(&self, repo: &RepoId, project: &ProjectId) -> bool {
        self.project.is_same_state(project) && self.repo == *repo
    }
}

/// In place of a project: all that a merged pull request may change. No project has an empty directory.
pub fn unknown_projects() -> ProjectId {
    ProjectId { dir: String::new(), workspace: String::new(), name: Some("not known yet".to_owned()) }
}

/// Where an owner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// Owned, and nothing was applied yet: together with another project of the pull request, or by hand.
    Planned,
    /// An apply, import or `state rm` has begun, and the pull request is open: what is real is not what the base branch says.
    AppliedUnmerged,
    /// The pull request is merged, and its change was not applied as it was merged.
    MergedUnapplied,
    /// The pull request was closed without a merge after something was applied.
    ClosedApplied,
    /// The pull request is merged, and what it changes is not known yet: any project of the repository may be among it.
    MergedUnknown,
}

impl OwnerState {
    /// As the API tells it.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnerState::Planned => "planned",
            OwnerState::AppliedUnmerged => "applied_unmerged",
            OwnerState::MergedUnapplied => "merged_unapplied",
            OwnerState::ClosedApplied => "closed_applied",
            OwnerState::MergedUnknown => "merged_unknown",
        }
    }

    /// The command that ends it, said on the owning pull request.
    pub fn way_out(self, executable: &str) -> String {
        match self {
            OwnerState::Planned => format!("{executable} unlock"),
            OwnerState::MergedUnapplied => format!("{executable} apply"),
            OwnerState::AppliedUnmerged | OwnerState::ClosedApplied | OwnerState::MergedUnknown => {
                format!("{executable} unlock --accept-drift -m \"why\"")
            }
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            OwnerState::Planned => "owned, nothing applied yet",
            OwnerState::AppliedUnmerged => "applied, not merged",
            OwnerState::MergedUnapplied => "merged, not applied",
            OwnerState::ClosedApplied => "closed after an apply",
            OwnerState::MergedUnknown => "merged, not known yet what it changes",
        }
    }
}

/// What changed the state of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedCommit {
    /// The commit.
    pub commit: CommitSha,
    /// When it began.
    pub at: Timestamp,
    /// When it ended; absent while it runs, or where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Its job.
    pub job: JobId,
}

/// The projects that a pull request changes, as they were found when its head was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProjects {
    /// The pull request.
    pub pull: PullId,
    /// Of this head.
    pub head: CommitSha,
    /// The projects, also those that are not planned by themselves.
    pub projects: Vec<ChangedProject>,
}

impl ChangedProjects {
    /// Projects in mode `strict`.
    pub fn strict(&self) -> impl Iterator<Item = &ProjectId> {
        self.projects.iter().filter(|changed| changed.strict).map(|changed| &changed.project)
    }
}

/// A project that a pull request changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProject {
    /// The project.
    pub project: ProjectId,
    /// Its mode is `strict`.
    pub strict: bool,
    /// Its `reminder_interval`, where its mode is `strict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Duration>,
}

/// A plan that fell: something else made it worthless before anybody used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallenPlan {
    /// The plan as it was.
    pub plan: PlanRecord,
    /// What made it fall.
    pub cause: FallCause,
    /// Whether it is made again without anybody asking.
    pub again: PlannedAgain,
}

/// Why a plan fell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallCause {
    /// Another pull request changes the state of the project.
    AppliedBy {
        /// The other one.
        pull: PullId,
    },
    /// The base branch changed what the project is made of.
    BaseMoved {
        /// The branch.
        branch: String,
        /// Its new commit.
        commit: CommitSha,
    },
    /// A project that it depends on was applied.
    DependencyApplied {
        /// The other project.
        project: ProjectId,
    },
    /// A drift run has applied the project as the base branch says.
    DriftApplied,
    /// It is older than plans of its project may become.
    TooOld {
        /// How old they may become.
        limit: Duration,
    },
}

/// Files below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesBelow {
    /// The directory, from the root of the repository.
    pub dir: String,
    /// Those that match this glob from there; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

/// What a plan in mode `strict` was made of: enough to say of a file that changes on the base branch later whether it is among it. Paths are
/// from the root of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInputs {
    /// Patterns of its `when_modified`, relative to its directory; empty for a project that nobody listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when_modified: Vec<String>,
    /// Its directory has files for Terraform, so that those of `modules` below it are its own. For a project that nobody listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_terraform: bool,
    /// Directories of modules: files in them count as far as the file list names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Directories of units of Terragrunt: the same, and all of Terragrunt's own files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// Further files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Further files, by directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<FilesBelow>,
    /// The path by which its repo config names its directory, where that leads through a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Names of the projects that it is applied after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// It may be made of anything: nobody can tell, or it is too much to be listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
}
