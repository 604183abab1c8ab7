//! Records of the state: locks, plans, runs, jobs, project statuses, effects. Plain data; `store` keeps them.

pub use super::audit::AuditEntry;
use super::automerge::Automerge;
pub use super::cause::Cause;
use super::command::{CommandName, Trigger};
use super::drift::DRIFT_JOB;
pub use super::effect::{
    CommitStatus, Effect, IssueChange, NewEffect, OverwriteScope, PendingEffect, StatusAnnotation, StatusDetails,
    StatusState,
};
use super::guards::TrippedGuard;
use super::outcome::{PlanSummary, RunEnd};
use super::ownership::PlanInputs;
use super::plan_digest::ChangesDigest;
pub use super::project_state::ProjectState;
use super::state_address::StateAddress;
pub use super::watermark::{PollMark, Watermark};
use super::{AutoApply, CommitSha, DeliveryId, JobId, Login, PlanId, ProjectId, PullId, RepoId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A verified delivery that causes work, as it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its identity, derived from signed content only.
    pub identity: DeliveryId,
    /// The host's own id, for the log only.
    pub host_id: String,
    /// Time it was received.
    pub received: Timestamp,
    /// Its event.
    pub event: super::Event,
}

/// Progress of an accepted delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DeliveryState {
    Queued,
    Running,
    Done,
}

/// Holder of a project lock; part of refusals so that they can name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// The pull request.
    pub pull: PullId,
    /// Its title, untrusted.
    pub title: String,
    /// Its page.
    pub url: String,
    /// The person whose command took the lock.
    pub user: Login,
    /// Time since which it holds the lock.
    pub since: Timestamp,
    /// Time of the notification that it has held the lock for long; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Timestamp>,
}

/// A project lock: one project of one repository, held by one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectLock {
    /// The repository.
    pub repo: RepoId,
    /// The project.
    pub project: ProjectId,
    /// The holder.
    pub holder: LockHolder,
    /// True once an apply, import or `state rm` has begun under it. Until the merge, real infrastructure may differ from the base branch. A
    /// plan that fails does not release it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applied: bool,
    /// Reason that a person gave for taking it by hand (`lock`). A plan that fails does not release it either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Address of the project's state, from its workflow.
    #[serde(default, skip_serializing_if = "StateAddress::is_unknown")]
    pub address: StateAddress,
}

impl ProjectLock {
    /// Returns true if it locks the state of this project at this address, or may do so, under any name of the project.
    pub fn is_about(&self, repo: &RepoId, project: &ProjectId, address: &StateAddress) -> bool {
        self.repo == *repo
            && self.project.is_same_state(project)
            && (self.project == *project || !self.address.differs(address))
    }

    /// Returns Atlantis' lock key: `owner/name/path/workspace/project`, the last part empty if the project has no name.
    pub fn key(&self) -> String {
        lock_key(&self.repo, &self.project)
    }

    /// Returns the id used in links: its host, then [`ProjectLock::key`].
    pub fn id(&self) -> String {
        lock_id(&self.repo, &self.project)
    }
}

/// Returns the id of a project's lock used in links: its host, then Atlantis' key.
pub fn lock_id(repo: &RepoId, project: &ProjectId) -> String {
    format!("{}/{}", repo.host, lock_key(repo, project))
}

/// Returns the lock key of a project, in Atlantis' form.
pub fn lock_key(repo: &RepoId, project: &ProjectId) -> String {
    format!("{}/{}/{}/{}", repo.full_name(), project.dir, project.workspace, project.name.as_deref().unwrap_or(""))
}

/// The apply lock, which stops all applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyLock {
    /// The person who set it; empty if unknown.
    pub user: String,
    /// The person's reason; may be empty.
    pub reason: String,
    /// Time since which it is set.
    pub since: Timestamp,
}

/// A plan file and the facts that it is bound to: an apply is refused if any of them has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Its id.
    pub id: PlanId,
    /// Its pull request.
    pub pull: PullId,
    /// The project.
    pub project: ProjectId,
    /// Head commit that was planned.
    pub head: CommitSha,
    /// Commit of the base branch at that time. A move of the branch refuses an apply only if `undiverged` is required.
    pub base: CommitSha,
    /// Name of the base branch. Empty in records of earlier versions, which are not compared.
    #[serde(default)]
    pub base_branch: String,
    /// SHA-256 of the effective project config, hex.
    pub config_digest: String,
    /// Tool, such as `terraform 1.11.4`.
    pub tool: String,
    /// Path of the plan file, relative to the data directory; absent for workflows without a built-in `plan` step.
    pub path: Option<String>,
    /// SHA-256 of the plan file, hex.
    pub sha256: Option<String>,
    /// Totals of the plan.
    pub summary: PlanSummary,
    /// Time it was made.
    pub made: Timestamp,
    /// The job that made it.
    pub job: JobId,
    /// The job that applied it.
    pub consumed_by: Option<JobId>,
    /// Files that its steps left in the working tree.
    #[serde(default)]
    pub left: LeftFiles,
    /// Directories of the Terragrunt units whose outputs it was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// True if it may also depend on outputs of other units that its unit's files do not name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_depend_on_more: bool,
    /// Maximum age when the plan was made, for people. An apply checks the configuration of its own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
    /// Its inputs, in mode `strict`: a change of them on the base branch invalidates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<PlanInputs>,
    /// Digest of its changes, for the comparison with other plans of the project; absent if it is not needed, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesDigest>,
    /// Reason for which the digest is unknown, in words; absent if it is known, or not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomparable: Option<String>,
    /// The flags that limit the plan to a part of the project, such as `-target`; absent for a plan of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Guards that it trips. An apply needs an override of each that was not overridden before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<TrippedGuard>,
    /// The tree that it was made in; absent if that is a tree of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<PlanTree>,
    /// Its automatic apply; [`AutoApply::Never`] also if somebody cancelled it, or if it was refused.
    #[serde(default, skip_serializing_if = "AutoApply::is_never")]
    pub auto_apply: AutoApply,
    /// Arguments for Terraform that its command gave, such as `-var region=eu`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// True if it destroys a project that its pull request deletes. It was made with the code of its base alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The packed tree of a plan that was made on an executor. The plan is applied in this tree, at the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTree {
    /// Prefix of its objects in the bucket.
    pub prefix: String,
    /// Size of the archive, in bytes.
    pub size: u64,
    /// SHA-256 of the archive, hex.
    pub sha256: String,
    /// Absolute path at which jobs unpack it.
    pub root: String,
}

impl PlanRecord {
    /// Returns true if it shows no changes for the whole project.
    pub fn has_nothing_to_do(&self) -> bool {
        self.summary.no_changes && self.part.is_none()
    }

    /// Returns true if it may have been made with outputs of this project.
    pub fn may_depend_on(&self, project: &ProjectId) -> bool {
        *project != self.project && (self.may_depend_on_more || self.names_dependency(project))
    }

    /// Returns true if it is known to have been made with outputs of this project.
    pub fn depends_on(&self, project: &ProjectId) -> bool {
        *project != self.project && self.names_dependency(project)
    }

    /// Returns true if its unit's files name the directory of this project, or its `depends_on` the project's name.
    fn names_dependency(&self, project: &ProjectId) -> bool {
        let named = self.inputs.iter().flat_map(|inputs| &inputs.depends_on);
        self.dependencies.contains(&project.dir) || named.map(Some).any(|name| name == project.name.as_ref())
    }

    /// Returns its age.
    pub fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.made)).unwrap_or_default()
    }
}

/// Files that the steps of a plan left in its working tree (plan artifacts).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFiles {
    /// Id of the working tree; the files are missing in another one. Absent if unknown.
    pub tree: Option<String>,
    /// SHA-256 of their archive, `left/<plan id>.tar.zst` in the data directory; absent if nothing is kept.
    pub archive: Option<String>,
    /// Reason for which they are not kept, for people: they exceed the limit.
    pub too_much: Option<String>,
}

/// Status of one project of a pull request; the pull status is the list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectStatus {
    /// The project.
    pub project: ProjectId,
    /// Its state.
    pub state: ProjectState,
    /// Head commit that this is about.
    pub head: CommitSha,
    /// Totals of its plan.
    pub summary: Option<PlanSummary>,
    /// The job that set this state.
    pub job: Option<JobId>,
    /// Time of the last change.
    pub updated: Timestamp,
    /// Projects of the pull request that have to be applied before this one is planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<ProjectId>,
}

impl ProjectStatus {
    /// Creates the status of a project that no job has set.
    pub fn without_job(project: ProjectId, state: ProjectState, head: CommitSha) -> ProjectStatus {
        let updated = Timestamp::now();
        ProjectStatus { project, state, head, summary: None, job: None, updated, waits_for: Vec::new() }
    }

    /// Returns true if its plan never began: another pull request has the lock, or the run ended before its turn.
    pub fn was_not_planned(&self) -> bool {
        self.state == ProjectState::PlanErrored && self.job.is_none()
    }

    /// Returns true if its last plan or apply failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, ProjectState::PlanErrored | ProjectState::ApplyErrored) && !self.was_not_planned()
    }
}

/// One command, running or finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its pull request.
    pub pull: PullId,
    /// Its command.
    pub command: CommandName,
    /// Its command with target and arguments, without the executable; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub typed: String,
    /// Cause of the command.
    pub trigger: Trigger,
    /// The person who asked.
    pub user: Login,
    /// Head commit.
    pub head: CommitSha,
    /// Record that caused it.
    #[serde(flatten)]
    pub cause: Cause,
    /// True if it had no target and was for all projects.
    pub everything: bool,
    /// Time at which the delivery came that caused it; absent if none did, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// Start time.
    pub started: Timestamp,
    /// Time it ended.
    pub finished: Option<Timestamp>,
    /// True if it ended with an answer and was not stopped.
    pub answered: bool,
    /// What its answer says of all its projects together; absent without an answer, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// Reason for which it failed as a whole, in one line; absent if it did not, or in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Its results, one JSON object each as in the hidden last line of its comments, which may not hold all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// Options of the merge once all of it is applied; absent if it is not merged automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automerge: Option<Automerge>,
}

/// One command on one project, or one workflow hook. Each has its own log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its run.
    pub run: RunId,
    /// Its pull request.
    pub pull: PullId,
    /// Kind of work: `plan`, `apply`, `pre_workflow_hook`, …
    pub kind: String,
    /// Its project; absent for hooks.
    pub project: Option<ProjectId>,
    /// The person who asked.
    pub user: Login,
    /// Head commit.
    pub head: CommitSha,
    /// Its state.
    pub state: JobState,
    /// One line about its result, for people: `1 to add, 0 to change, 0 to destroy`.
    pub summary: String,
    /// Its outcome, kept until its run has answered, so that a restart can report it.
    pub outcome: Option<super::outcome::JobOutcome>,
    /// Start time.
    pub started: Timestamp,
    /// Time it ended.
    pub finished: Option<Timestamp>,
    /// Known facts about Terraform's lock on its state.
    #[serde(default)]
    pub state_lock: StateLockTrace,
    /// Its place on an executor; absent if the server runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteJob>,
}

/// A job on an executor. It goes on without the server that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteJob {
    /// Name of the executor.
    pub executor: String,
    /// Key of its objects in the bucket, 32 hexadecimal digits.
    pub key: String,
}

/// Relation of a job to Terraform's own lock on the state, which is not a project lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLockTrace {
    /// Host name of the machine that it ran on, as Terraform writes it into a lock.
    pub machine: Option<String>,
    /// True if its Terraform was killed, so that its lock may be left. No later run has shown if it is, and it has not been reported.
    pub untold: bool,
    /// The lock that it left, as far as it could be found.
    pub left: Option<StateLock>,
    /// Another lock that it found in place.
    pub met: Option<StateLock>,
}

/// A lock on a Terraform state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLock {
    /// The id for `terraform force-unlock`.
    pub id: String,
    /// Terraform's word for the operation, such as `OperationTypePlan`.
    pub operation: String,
    /// `user@host`.
    pub who: String,
    /// Start time, by that machine's clock.
    pub created: Option<Timestamp>,
}

/// States of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum JobState {
    Running,
    Succeeded,
    Failed,
    Interrupted,
}

impl Job {
    /// Returns true if it changes the state of a project, or may.
    pub fn changes_state(&self) -> bool {
        CommandName::of_word(&self.kind).is_some_and(CommandName::changes_state)
    }

    /// Returns true if the server's own steps of it take a lock on the state; those of a drift run's plan take none. A kind that this version
    /// does not know takes none either.
    pub fn locks_state(&self) -> bool {
        self.kind != DRIFT_JOB && CommandName::of_word(&self.kind).is_some_and(|name| name.spec().locks_state)
    }
}
