//! The end of a job as data, and the one function that records it.

use super::discarded::{Discards, post_elsewhere};
use super::notices::NoticeWriter;
use super::overtaken::{Meanwhile, other_holder};
use super::parts;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::drift::{ProjectDrift, Remediation};
use crate::domain::job_times::JobTimes;
use crate::domain::notification::Notification;
use crate::domain::outcome::JobOutcome;
use crate::domain::ownership::InvalidationCause;
use crate::domain::policies::PolicyCheckRecord;
use crate::domain::state::{AuditEntry, CommitStatus, Effect, Job, PlanRecord, ProjectState, ProjectStatus};
use crate::executors::ErroredState;
use crate::locks::{LockEvent, WantedLock};
use crate::store::logs::LogWriter;
use crate::store::{KeptFile, Tx};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::sync::Arc;

/// The end of a job that is not recorded yet.
pub(super) struct JobEnd {
    pub(super) outcome: JobOutcome,
    facts: Arc<JobFacts>,
    /// Dropped with the end, so that readers of the log see its end only once the record has it.
    _log: LogWriter,
}

/// The facts that the end of a job records. If the commit fails, the next one may record them.
pub(super) struct JobFacts {
    /// The job as it has ended.
    pub(super) job: Job,
    /// Times of its steps.
    pub(super) times: JobTimes,
    /// Status of the project at the job's commit.
    pub(super) status: Option<CommitStatus>,
    pub(super) change: JobChange,
}

/// The change that comes with the end of a job.
pub(super) enum JobChange {
    Nothing,
    /// A project was planned.
    Planned(Box<NewPlan>),
    /// A project has no plan.
    NotPlanned {
        status: ProjectStatus,
        /// Event for the project's lock, which stays without one.
        lock: Option<Box<LockEvent>>,
    },
    /// Policies were checked.
    PoliciesChecked(PolicyCheckRecord),
    /// A command that may have changed a state has ended.
    StateChanged(Box<StateChangeEnd>),
    /// A person's action is audited, and nothing else has changed.
    Audited(AuditEntry),
}

/// A plan that was made. It is recorded as invalidated if it is out of date already, and not at all if nobody can apply it.
pub(super) struct NewPlan {
    pub(super) plan: PlanRecord,
    pub(super) status: ProjectStatus,
    /// Archive of the files that its steps left.
    pub(super) left: Option<KeptFile>,
    /// Key of the digest of its changes; absent if nothing is compared.
    pub(super) changes_key: Option<String>,
    /// True if the project is applied by the merge.
    pub(super) on_merge: bool,
    /// True if it is a plan of unapplied merged changes.
    pub(super) after_merge: bool,
    /// Event for a plan without changes, which satisfies merged changes.
    pub(super) satisfied: Option<LockEvent>,
    /// The lock that the plan needs.
    pub(super) wanted: WantedLock,
    /// Changes of states that may have ended since the plan began.
    pub(super) meanwhile: Meanwhile,
}

/// A change of a project's state.
#[derive(Default)]
pub(super) struct StateChangeEnd {
    /// True if plans that were made before it are invalidated.
    pub(super) invalidates_plans: bool,
    /// True if the project's outputs may have changed, too.
    pub(super) outputs: bool,
    /// Reason in the statuses of discarded plans.
    pub(super) because: String,
    /// Status of the project after its apply; absent if the change is not a pull request's apply.
    pub(super) status: Option<ProjectStatus>,
    /// True if the job's beginning has reset the status of an applied project.
    pub(super) resets_applied: bool,
    /// Event for the merged changes that it satisfies.
    pub(super) satisfied: Option<LockEvent>,
    /// Event that queues a re-plan after a failed apply.
    pub(super) replan: Option<LockEvent>,
    /// State that Terraform could not save.
    pub(super) errored: Option<KeptFile>,
    pub(super) notifications: Vec<Notification>,
    /// Drift of the project after its apply by a remediation, and the progress of that.
    pub(super) remediation: Option<(ProjectDrift, Remediation)>,
    pub(super) audit: AuditEntry,
}

impl JobEnd {
    /// Creates the end of a job whose log has no more lines.
    pub(super) fn new(outcome: JobOutcome, facts: JobFacts, log: LogWriter) -> JobEnd {
        JobEnd { outcome, facts: Arc::new(facts), _log: log }
    }

    /// Returns the facts to record.
    pub(super) fn facts(&self) -> Arc<JobFacts> {
        Arc::clone(&self.facts)
    }
}

impl JobFacts {
    /// Returns whether the state that Terraform could not save is recorded with the end.
    pub(super) fn errored_state(&self) -> ErroredState {
        let is_recorded = matches!(&self.change, JobChange::StateChanged(change) if change.errored.is_some());
        match is_recorded || !self.job.changes_state() {
            true => ErroredState::Recorded,
            false => ErroredState::NotRecorded,
        }
    }

    /// Records the end of the job. `notices` enqueues what other pull requests are notified of.
    pub(super) fn record(&self, tx: &Tx<'_>, notices: &NoticeWriter) -> Result<()> {
        let JobFacts { job, times, status, change } = self;
        tx.put_job(job)?;
        tx.put_job_times(&job.id, times)?;
        notices.notify_of_plan(tx, job)?;
        // Effects of the change may say more about the project, so they come after the status.
        tx.post(&job.pull, status.clone().map(|status| Effect::Status { commit: job.head.clone(), status }))?;
        match change {
            JobChange::Nothing => Ok(()),
            JobChange::Planned(made) => made.record(tx, notices),
            JobChange::NotPlanned { status, lock } => {
                lock.iter().try_for_each(|event| tx.record_lock_event(event).map(drop))?;
                tx.put_project_status(&job.pull, status)
            }
            JobChange::PoliciesChecked(record) => {
                notices.notify_of_check(tx, job, record)?;
                tx.put_policy_check(record)
            }
            JobChange::StateChanged(change) => change.record(tx, job, notices),
            JobChange::Audited(entry) => tx.audit(entry),
        }
    }
}

impl NewPlan {
    fn record(&self, tx: &Tx<'_>, notices: &NoticeWriter) -> Result<()> {
        let NewPlan { plan, status, left, changes_key, satisfied, .. } = self;
        if self.is_lost(tx)? {
            notices.plan_dropped(plan);
            let status = ProjectStatus { state: ProjectState::PlanDiscarded, ..status.clone() };
            return tx.put_project_status(&plan.pull, &status);
        }
        let cause = self.meanwhile.cause(tx, plan, &self.wanted)?;
        if cause.is_none() {
            // Before the event that it satisfies, which ends the comparison.
            changes_key.iter().try_for_each(|key| tx.note_seen_plan(plan, key, self.on_merge))?;
            satisfied.iter().try_for_each(|event| notices.record(tx, event).map(drop))?;
        }
        tx.put_plan(plan)?;
        left.iter().try_for_each(|file| tx.keep_file(file))?;
        match cause {
            None => tx.put_project_status(&plan.pull, status),
            Some(cause) => invalidate(tx, plan, cause, notices),
        }
    }

    /// Returns true if nobody can apply the plan any more: its lock was deleted, and another pull request has it now. After the merge, also
    /// if another apply has satisfied the merged changes.
    fn is_lost(&self, tx: &Tx<'_>) -> Result<bool> {
        let lock = &self.wanted.lock;
        if self.after_merge && !tx.owed_projects(&lock.holder.pull)?.contains(&lock.project) {
            return Ok(true);
        }
        Ok(other_holder(tx, &self.wanted)?.is_some())
    }
}

fn invalidate(tx: &Tx<'_>, plan: &PlanRecord, cause: InvalidationCause, notices: &NoticeWriter) -> Result<()> {
    let (plans, at) = (vec![plan.id.clone()], Timestamp::now());
    notices.record(tx, &LockEvent::PlansInvalidated { plans, cause, at }).map(drop)
}

impl StateChangeEnd {
    fn record(&self, tx: &Tx<'_>, job: &Job, notices: &NoticeWriter) -> Result<()> {
        self.notifications.iter().try_for_each(|one| tx.notify(one))?;
        self.status.iter().try_for_each(|status| tx.put_project_status(&job.pull, status))?;
        if self.invalidates_plans {
            self.invalidate_plans(tx, job, notices)?;
        }
        self.satisfied.iter().chain(&self.replan).try_for_each(|event| notices.record(tx, event).map(drop))?;
        self.errored.iter().try_for_each(|file| tx.keep_file(file))?;
        if let Some((found, remediation)) = &self.remediation {
            tx.put_drift(found)?;
            tx.put_remediation(remediation)?;
        }
        if self.resets_applied {
            parts::post_overall_statuses(tx, notices.statuses(), job)?;
        }
        tx.audit(&self.audit)
    }

    /// Drops or invalidates the plans that were made before the change, and notifies their pull requests.
    fn invalidate_plans(&self, tx: &Tx<'_>, job: &Job, notices: &NoticeWriter) -> Result<()> {
        let (pull, statuses) = (&job.pull, notices.statuses());
        let project = job.project.clone().context("a state has changed without a project")?;
        let (outputs, at) = (self.outputs, Timestamp::now());
        let event = LockEvent::StateChanged { pull: pull.clone(), project: project.clone(), outputs, at };
        let discards = Discards::before(tx, pull)?;
        let follows = notices.record(tx, &event)?;
        if follows.dropped().iter().any(|plan| plan.project == project && plan.pull == *pull) {
            tx.put_project_status(pull, &discarded_status(&project, job))?;
        }
        discards.post(tx, statuses, &self.because)?;
        let discarded = follows.discarded();
        discarded.iter().for_each(|plan| notices.plan_dropped(plan));
        post_elsewhere(tx, statuses, pull, &discarded, &self.because)?;
        match job.kind == CommandName::Apply.as_str() {
            true => notices.enqueue_discarded(tx, pull, &project, &discarded),
            false => Ok(()),
        }
    }
}

/// Returns the status of a project whose plan is discarded because of this job.
fn discarded_status(project: &ProjectId, job: &Job) -> ProjectStatus {
    let status = ProjectStatus::without_job(project.clone(), ProjectState::PlanDiscarded, job.head.clone());
    ProjectStatus { job: Some(job.id.clone()), ..status }
}
