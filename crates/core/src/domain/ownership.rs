//! Owners of projects in mode `strict`, the projects that a pull request changes, and causes that invalidate plans.

use super::plan_digest::{ChangesDigest, SeenPlan};
use super::state::{LockHolder, PlanRecord, lock_id, lock_key};
use super::waiting::PlannedAgain;
use super::{CommitSha, JobId, ProjectId, PullId, RepoId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Ownership of a project by a pull request: no other pull request may change the project's state. The record outlives pushes, and the
/// closing or merging of the pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectOwner {
    /// The repository.
    pub repo: RepoId,
    /// The project.
    pub project: ProjectId,
    /// The owning pull request, and the person whose command made it the owner.
    pub holder: LockHolder,
    /// Stage of the ownership.
    pub state: OwnerState,
    /// The last change of the project's state under this ownership, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedCommit>,
    /// The commit that the pull request was merged as, if it is merged and the host reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<CommitSha>,
    /// Time of the last notice on the pull request that an apply or a merge is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Timestamp>,
    /// Interval of reminders, from the project's configuration; zero for never, absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Duration>,
    /// Of a merged pull request: the last plan of the merged head, which is the one that people approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<SeenPlan>,
    /// Reason that a person gave for taking it by hand, or for which the merged changes are not known yet; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl ProjectOwner {
    /// Returns the project in the form of Atlantis' lock keys.
    pub fn key(&self) -> String {
        lock_key(&self.repo, &self.project)
    }

    /// Returns the same with the host before it.
    pub fn id(&self) -> String {
        lock_id(&self.repo, &self.project)
    }

    /// Returns true if a change of the state has begun and its end is not recorded.
    pub fn is_at_work(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.ended.is_none())
    }

    /// Returns true if the pull request is merged or closed, and a person has to end the ownership.
    pub fn is_owed(&self) -> bool {
        matches!(self.state, OwnerState::MergedUnapplied | OwnerState::ClosedApplied | OwnerState::MergedUnknown)
    }

    /// Returns true if it stands for all projects that a merged pull request may change, as these are not known yet.
    pub fn is_unknown(&self) -> bool {
        self.state == OwnerState::MergedUnknown
    }

    /// Creates the record for a merged pull request whose changes are not known yet.
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

    /// Returns the time of the next reminder; `usual` is the interval if its project has none. Absent for never, and before the first
    /// notice.
    pub fn reminder_due(&self, usual: Duration) -> Option<Timestamp> {
        let interval = self.reminder_interval.unwrap_or(usual);
        let told = self.told.filter(|_| self.is_owed() && !interval.is_zero())?;
        told.checked_add(interval).ok()
    }

    /// Returns true if a plan after the merge has the same changes as the one approved before it. Unknown changes are never the same.
    pub fn approves(&self, plan: &PlanRecord) -> bool {
        let approved = self.approved.as_ref().and_then(|approved| approved.changes.as_ref());
        self.state == OwnerState::MergedUnapplied
            && self.holder.pull == plan.pull
            && self.is_of(&plan.pull.repo, &plan.project)
            && ChangesDigest::is_same(approved, plan.changes.as_ref())
    }

    /// Returns true if it is for this project of this repository, by its name.
    pub fn is_of(&self, repo: &RepoId, project: &ProjectId) -> bool {
        self.project == *project && self.repo == *repo
    }

    /// Returns true if it is for the state of this project of this repository, under any name.
    pub fn is_of_state(&self, repo: &RepoId, project: &ProjectId) -> bool {
        self.project.is_same_state(project) && self.repo == *repo
    }
}

/// Returns the id that stands for all projects that a merged pull request may change. No real project has an empty directory.
pub fn unknown_projects() -> ProjectId {
    ProjectId { dir: String::new(), workspace: String::new(), name: Some("not known yet".to_owned()) }
}

/// Stages of an ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// Owned before any apply: together with another project of the pull request, or by hand.
    Planned,
    /// An apply, import or `state rm` has begun, and the pull request is open. Real infrastructure may differ from the base branch.
    AppliedUnmerged,
    /// The pull request is merged, and its change was not applied in the form that was merged.
    MergedUnapplied,
    /// The pull request was closed without a merge after something was applied.
    ClosedApplied,
    /// The pull request is merged, and its changes are not known yet: they may include any project of the repository.
    MergedUnknown,
}

impl OwnerState {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnerState::Planned => "planned",
            OwnerState::AppliedUnmerged => "applied_unmerged",
            OwnerState::MergedUnapplied => "merged_unapplied",
            OwnerState::ClosedApplied => "closed_applied",
            OwnerState::MergedUnknown => "merged_unknown",
        }
    }

    /// Returns the command that ends it, given on the owning pull request.
    pub fn way_out(self, executable: &str) -> String {
        match self {
            OwnerState::Planned => format!("{executable} unlock"),
            OwnerState::MergedUnapplied => format!("{executable} apply"),
            OwnerState::AppliedUnmerged | OwnerState::ClosedApplied | OwnerState::MergedUnknown => {
                format!("{executable} unlock --accept-drift -m \"why\"")
            }
        }
    }

    /// Returns the text for people.
    pub fn title(self) -> &'static str {
        match self {
            OwnerState::Planned => "owned, nothing applied yet",
            OwnerState::AppliedUnmerged => "applied, not merged",
            OwnerState::MergedUnapplied => "merged, not applied",
            OwnerState::ClosedApplied => "closed after an apply",
            OwnerState::MergedUnknown => "merged, changes not known yet",
        }
    }
}

/// A change of a project's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedCommit {
    /// The commit.
    pub commit: CommitSha,
    /// Start time.
    pub at: Timestamp,
    /// Time it ended; absent while it runs, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Its job.
    pub job: JobId,
}

/// The projects that a pull request changes, as found when its head was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProjects {
    /// The pull request.
    pub pull: PullId,
    /// The head.
    pub head: CommitSha,
    /// The projects, including those that are not planned by autoplan.
    pub projects: Vec<ChangedProject>,
}

impl ChangedProjects {
    /// Returns the projects in mode `strict`.
    pub fn strict(&self) -> impl Iterator<Item = &ProjectId> {
        self.projects.iter().filter(|changed| changed.strict).map(|changed| &changed.project)
    }
}

/// A project that a pull request changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProject {
    /// The project.
    pub project: ProjectId,
    /// True if its mode is `strict`.
    pub strict: bool,
    /// Its `reminder_interval`, if its mode is `strict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Duration>,
}

/// A plan that was invalidated before it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidatedPlan {
    /// The plan before its invalidation.
    pub plan: PlanRecord,
    /// Cause of the invalidation.
    pub cause: InvalidationCause,
    /// Automatic re-plan, if any.
    pub again: PlannedAgain,
}

/// Causes that invalidate a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidationCause {
    /// Another pull request changes the state of the project.
    AppliedBy {
        /// The other pull request.
        pull: PullId,
    },
    /// The base branch changed files that the project is made of.
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
    /// A drift run has applied the project as it is on the base branch.
    DriftApplied,
    /// The plan is older than plans of its project may become.
    TooOld {
        /// Maximum age.
        limit: Duration,
    },
}

/// Files below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesBelow {
    /// The directory, from the root of the repository.
    pub dir: String,
    /// Files that match this glob, relative to the directory; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

/// Inputs of a plan in mode `strict`: enough to decide if a file that later changes on the base branch is one of them. Paths are relative
/// to the root of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInputs {
    /// Patterns of its `when_modified`, relative to its directory; empty for a project that no config lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when_modified: Vec<String>,
    /// True if its directory has files for Terraform, so that files in `modules` below it are its own. For a project that no config lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_terraform: bool,
    /// Directories of modules. The file list decides which files in them count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Directories of Terragrunt units. The file list decides which files in them count, and all of Terragrunt's own files count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// Further files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Further files, by directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<FilesBelow>,
    /// Path of its directory in its repo config, if that leads through a symlink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Names of the projects that it is applied after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// True if any file may be an input, as the inputs are unknown or too many to be listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
}
