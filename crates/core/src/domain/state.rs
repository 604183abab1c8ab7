//! What we remember: locks, plans, runs, jobs, project statuses, effects. Plain records; `store` keeps them.

use super::automerge::Automerge;
use super::command::{CommandName, Trigger};
pub use super::effect::{CommitStatus, Effect, NewEffect, PendingEffect, StatusState};
use super::outcome::PlanSummary;
use super::ownership::PlanInputs;
use super::plan_digest::ChangesDigest;
pub use super::project_state::ProjectState;
use super::state_address::StateAddress;
use super::{CommitSha, DeliveryId, JobId, Login, PlanId, ProjectId, PullId, PullVersion, RepoId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A verified delivery that causes work, as it is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its identity, derived from signed content only.
    pub identity: DeliveryId,
    /// The host's own id, for the log only.
    pub host_id: String,
    /// When we got it.
    pub received: Timestamp,
    /// What it says.
    pub event: super::Event,
}

/// Where an accepted delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DeliveryState {
    Queued,
    Running,
    Done,
}

/// Who holds a project lock; carried by refusals so that they can name it.
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
    /// Since when.
    pub since: Timestamp,
}

/// A project lock: one project of one repository, held by one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectLock {
    /// The repository.
    pub repo: RepoId,
    /// The project.
    pub project: ProjectId,
    /// Who holds it.
    pub holder: LockHolder,
    /// An apply, import or `state rm` began under it: until the merge, what is real is not what the base branch says. A plan that
    /// fails does not free it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applied: bool,
    /// Why somebody took it by hand (`lock`): a plan that fails does not free it either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where its state is, as its workflow says.
    #[serde(default, skip_serializing_if = "StateAddress::is_unknown")]
    pub address: StateAddress,
}

impl ProjectLock {
    /// Whether it is about the state of this project, which is there, or may be; under which name does not matter.
    pub fn is_about(&self, repo: &RepoId, project: &ProjectId, address: &StateAddress) -> bool {
        self.repo == *repo
            && self.project.is_same_state(project)
            && (self.project == *project || !self.address.differs(address))
    }

    /// Atlantis' lock key: `owner/name/path/workspace/project`, the last part empty when the project has no name.
    pub fn key(&self) -> String {
        lock_key(&self.repo, &self.project)
    }

    /// What links name it by: its host, then [`ProjectLock::key`].
    pub fn id(&self) -> String {
        lock_id(&self.repo, &self.project)
    }
}

/// What links name a project's lock by: its host, then Atlantis' key.
pub fn lock_id(repo: &RepoId, project: &ProjectId) -> String {
    format!("{}/{}", repo.host, lock_key(repo, project))
}

/// The lock key of a project, in Atlantis' form.
pub fn lock_key(repo: &RepoId, project: &ProjectId) -> String {
    format!("{}/{}/{}/{}", repo.full_name(), project.dir, project.workspace, project.name.as_deref().unwrap_or(""))
}

/// The global stop on applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyLock {
    /// Who set it; empty when unknown.
    pub user: String,
    /// Why, if they said so.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// How far a pull request has been looked at on its host, for what never came as a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// Comments written before this are old news, by the host's clock; whole seconds, as hosts write them.
    pub comments: Timestamp,
    /// Its version when it was last looked at; unknown for never.
    #[serde(default, rename = "updated_at")]
    pub version: PullVersion,
    /// The head that was taken up without its delivery, and the version then: that delivery comes too late.
    #[serde(default)]
    pub taken: Option<(CommitSha, PullVersion)>,
}

impl Watermark {
    /// Nothing from before this moment counts.
    pub fn at(now: Timestamp) -> Watermark {
        let comments = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Watermark { comments, version: PullVersion::default(), taken: None }
    }
}

/// A plan file and everything that it is bound to: an apply is refused if any of it has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Its id.
    pub id: PlanId,
    /// The pull request it was made for.
    pub pull: PullId,
    /// The project.
    pub project: ProjectId,
    /// Head commit it was made of.
    pub head: CommitSha,
    /// Commit of the base branch at that time; its moving refuses an apply only where `undiverged` is required.
    pub base: CommitSha,
    /// Name of the base branch. Empty in records of earlier versions: then it is not compared.
    #[serde(default)]
    pub base_branch: String,
    /// SHA-256 of the effective project config, hex.
    pub config_digest: String,
    /// Tool, such as `terraform 1.11.4`.
    pub tool: String,
    /// Where the plan file lies, relative to the data directory; absent for workflows without a built-in `plan` step.
    pub path: Option<String>,
    /// SHA-256 of the plan file, hex.
    pub sha256: Option<String>,
    /// Totals.
    pub summary: PlanSummary,
    /// When it was made.
    pub made: Timestamp,
    /// The job that made it.
    pub job: JobId,
    /// The job that used it up.
    pub consumed_by: Option<JobId>,
    /// What its steps left in the tree.
    #[serde(default)]
    pub left: LeftFiles,
    /// Directories of the units of Terragrunt whose outputs it was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// It may have been made with outputs of others too: its unit's files do not tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_depend_on_more: bool,
    /// How old it may become, as it was when the plan was made: for people. Whether it may be applied is asked of the configuration
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
    /// What it was made of, where its project is in mode `strict`: it falls when the base branch moves in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<PlanInputs>,
    /// What it changes, to be compared with other plans of the project; absent where nobody asks for it, or it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesDigest>,
    /// Why that is not known, in words; absent where it is known, or nobody asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomparable: Option<String>,
    /// The flags that make it a plan of a part of the project, such as `-target`; absent for a plan of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl PlanRecord {
    /// Whether it says that all of the project is as its code says.
    pub fn has_nothing_to_do(&self) -> bool {
        self.summary.no_changes && self.part.is_none()
    }

    /// Whether it may have been made with outputs of this project.
    pub fn may_depend_on(&self, project: &ProjectId) -> bool {
        *project != self.project && (self.may_depend_on_more || self.names_dependency(project))
    }

    /// Whether it is known to be made with outputs of this project.
    pub fn depends_on(&self, project: &ProjectId) -> bool {
        *project != self.project && self.names_dependency(project)
    }

    /// Whether its unit's files name the directory of this project, or its `depends_on` the project's name.
    fn names_dependency(&self, project: &ProjectId) -> bool {
        let named = self.inputs.iter().flat_map(|inputs| &inputs.depends_on);
        self.dependencies.contains(&project.dir) || named.map(Some).any(|name| name == project.name.as_ref())
    }

    /// How old it is.
    pub fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.made)).unwrap_or_default()
    }
}

/// Files that the steps of a plan left in its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFiles {
    /// The tree as it was made; in another one the files are missing. Absent when that is not known.
    pub tree: Option<String>,
    /// SHA-256 of their archive, `left/<plan id>.tar.zst` in the data directory; absent when nothing is kept.
    pub archive: Option<String>,
    /// Why they are not kept, for people: more than may be.
    pub too_much: Option<String>,
}

/// Status of one project of a pull request; the pull status is the list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectStatus {
    /// The project.
    pub project: ProjectId,
    /// Where it stands.
    pub state: ProjectState,
    /// Head commit that this is about.
    pub head: CommitSha,
    /// Totals of its plan.
    pub summary: Option<PlanSummary>,
    /// The job that brought it here.
    pub job: Option<JobId>,
    /// When.
    pub updated: Timestamp,
    /// Projects of the pull request that have to be applied before this one is planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<ProjectId>,
}

/// Projects of a pull request that were put off, and for which all that they wait for is applied, by where its projects stand.
pub fn due_of_deferred(statuses: &[ProjectStatus]) -> Vec<ProjectId> {
    let is_due = |status: &&ProjectStatus| {
        let is_done = |on: &ProjectId| {
            let mut of_on = statuses.iter().filter(|other| other.project == *on && other.head == status.head);
            of_on.any(|other| other.state.is_done())
        };
        status.state == ProjectState::Deferred && status.waits_for.iter().all(is_done)
    };
    statuses.iter().filter(is_due).map(|status| status.project.clone()).collect()
}

impl ProjectStatus {
    /// Where a project stands from now on that no job has brought there.
    pub fn without_job(project: ProjectId, state: ProjectState, head: CommitSha) -> ProjectStatus {
        let updated = Timestamp::now();
        ProjectStatus { project, state, head, summary: None, job: None, updated, waits_for: Vec::new() }
    }

    /// Whether there was no plan to begin with: another pull request has the lock, or the run ended before its turn.
    pub fn was_not_planned(&self) -> bool {
        self.state == ProjectState::PlanErrored && self.job.is_none()
    }
}

/// One command at work, or finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// On which pull request.
    pub pull: PullId,
    /// What.
    pub command: CommandName,
    /// Asked by whom, how.
    pub trigger: Trigger,
    /// The person.
    pub user: Login,
    /// Head commit it works on.
    pub head: CommitSha,
    /// Identity of the delivery that caused it.
    pub delivery: Option<DeliveryId>,
    /// It had no target: it was for everything.
    pub everything: bool,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// It ended with an answer, not by being stopped.
    pub answered: bool,
    /// Its results, one JSON object each as in the hidden last line of its comments, which may not hold all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// How the pull request is merged once all of it is applied; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automerge: Option<Automerge>,
}

/// One command on one project, or one workflow hook: owner of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The run it belongs to.
    pub run: RunId,
    /// On which pull request.
    pub pull: PullId,
    /// What it does: `plan`, `apply`, `pre_workflow_hook`, …
    pub kind: String,
    /// On which project; absent for hooks.
    pub project: Option<ProjectId>,
    /// The person who asked.
    pub user: Login,
    /// Head commit.
    pub head: CommitSha,
    /// Where it stands.
    pub state: JobState,
    /// One line about its result, for people: `1 to add, 0 to change, 0 to destroy`.
    pub summary: String,
    /// What it came to, kept until its run has answered: after a crash it is told from here.
    pub outcome: Option<super::outcome::JobOutcome>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// What is known of Terraform's lock on its state.
    #[serde(default)]
    pub state_lock: StateLockTrace,
}

/// What a job has to do with Terraform's own lock on the state, which is no project lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLockTrace {
    /// Host name of the machine that it ran on, as Terraform writes it into a lock.
    pub machine: Option<String>,
    /// Terraform of it was killed, so that its lock may be left; no later run has shown what became of it, and nobody was told.
    pub untold: bool,
    /// The lock that it left behind, as far as it could be seen.
    pub left: Option<StateLock>,
    /// The lock of somebody else that it met.
    pub met: Option<StateLock>,
}

/// A lock on a Terraform state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLock {
    /// What `terraform force-unlock` takes.
    pub id: String,
    /// Terraform's word for what takes it, such as `OperationTypePlan`.
    pub operation: String,
    /// `user@host`.
    pub who: String,
    /// Since when, by that machine's clock.
    pub created: Option<Timestamp>,
}

/// Where a job stands.
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
    /// Whether it changes the state of a project, or may.
    pub fn changes_state(&self) -> bool {
        CommandName::ALL.iter().map(|name| name.spec()).any(|spec| spec.changes_state && spec.word == self.kind)
    }
}

/// Who did what, for later questions. Nothing secret is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// Who: a login, an e-mail address, or `loopback`.
    pub who: String,
    /// What: `apply`, `unlock`, `apply lock`, …
    pub act: String,
    /// On what, in words.
    pub subject: String,
    /// How it ended, in words.
    pub result: String,
    /// Why, as the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The pull request, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullId>,
    /// The project, as it is called in comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The head commit that it was done at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSha>,
    /// SHA-256 of the plan file that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The request, or the delivery, that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}
