//! Rules of project locks and ownership, and of the plans that go with them. Pure.
//!
//! [`step`] takes the rows that a [`LockEvent`] concerns and returns its consequences: changed rows, a refusal, messages and an audit
//! entry. `store` loads those rows, as [`NeededRows`] and [`LockEvent`] tell, and writes the changes, in the transaction of the event.
//!
//! A project lock is identified by host, repository, directory, workspace and project name. Atlantis leaves out the host, so that
//! repositories of the same name on two hosts block each other there.
//!
//! Between pull requests the name counts only if both projects are known to have different states. Otherwise directory and workspace are
//! one state, under any name.

mod drift;
mod line;
mod merges;
#[cfg(test)]
mod model;
mod names;
#[cfg(test)]
mod near;
mod overtaken;
mod ownership;
mod reach;
mod rules;
#[cfg(test)]
mod tests;
mod turns;

use crate::config::LockMode;
use crate::domain::ownership::{ChangedProjects, InvalidatedPlan, InvalidationCause, ProjectOwner};
use crate::domain::plan_digest::SeenPlans;
use crate::domain::reply::Message;
use crate::domain::state::{ApplyLock, AuditEntry, LockHolder, PlanRecord, ProjectLock, ProjectStatus};
use crate::domain::waiting::{Blocked, PlaceInLine, WaitingPull};
use crate::domain::{CommitSha, JobId, PlanId, ProjectId, PullId};
pub use drift::drift_block;
use jiff::Timestamp;
pub use line::{blocker, lock_before};
pub use names::is_old_name;
pub use overtaken::overtaken_by;
pub use reach::NeededRows;
pub use rules::step;
use std::time::Duration;
pub use turns::{ReplanChange, due_after, queue_replan, replan_ends, replans_of};

/// The rows that an event concerns. Others may be among them: they stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Project locks, oldest first.
    pub locks: Vec<ProjectLock>,
    /// Plans that can still be applied, in the order in which they were recorded.
    pub plans: Vec<PlanRecord>,
    /// Statuses of projects of a pull request.
    pub statuses: Vec<(PullId, ProjectStatus)>,
    /// The apply lock, which stops all applies.
    pub apply_lock: Option<ApplyLock>,
    /// Owners of projects in mode `strict`, oldest first.
    pub owners: Vec<ProjectOwner>,
    /// The projects that the pull request of the event changes, as it was last planned.
    pub changed: Option<ChangedProjects>,
    /// Pull requests that wait for projects, oldest first.
    pub waiters: Vec<WaitingPull>,
    /// Of a pull request that was merged: the plans that it had.
    pub seen: Vec<SeenPlans>,
}

/// A project of a command, with the lock that it would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLock {
    /// The lock, with the pull request of the command as its holder.
    pub lock: ProjectLock,
    /// Event that takes the lock; `Disabled` if the server locks nothing.
    pub mode: LockMode,
}

/// Merge of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedPull {
    /// The head that was merged.
    pub head: CommitSha,
    /// The resulting commit on the base branch; absent if the host does not report it.
    pub commit: Option<CommitSha>,
    /// The base branch.
    pub branch: String,
    /// Time at which this server learned of it.
    pub at: Timestamp,
    /// Holder named by refusals until the merge is applied.
    pub holder: LockHolder,
    /// The kind of the base branch.
    pub into: MergedInto,
}

/// The kind of branch that a pull request was merged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedInto {
    /// A branch that projects are applied from.
    Applied,
    /// The head branch of this other pull request, which is open. The merged changes are applied with that one.
    HeadOf(Box<LockHolder>),
    /// Either the branch or the merged changes are unknown.
    Unknown {
        /// Reason for which it is unknown.
        because: String,
    },
}

impl WantedLock {
    /// Returns true if a plan of the project takes its lock.
    pub fn is_locked_by_plan(&self) -> bool {
        self.mode == LockMode::OnPlan
    }

    /// Returns true if a pull request that changes the project's state becomes its owner.
    pub fn is_strict(&self) -> bool {
        matches!(self.mode, LockMode::Strict(_))
    }
}

/// Events that take locks, release them, or use plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockEvent {
    /// Projects are about to be planned.
    PlanBegins {
        /// The pull request.
        pull: PullId,
        /// The projects.
        projects: Vec<WantedLock>,
        /// True for a plan of all projects, which starts over. A targeted one does not affect other projects.
        everything: bool,
    },
    /// An interrupted plan continues with these projects: their locks may have been lost meanwhile.
    PlanGoesOn {
        /// The projects.
        projects: Vec<WantedLock>,
    },
    /// A project ends up without a plan: it failed, was cancelled or was refused.
    NotPlanned {
        /// The pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
    },
    /// The apply of a plan is about to begin.
    ApplyBegins {
        /// Id of the plan.
        plan: PlanId,
        /// Id of the job that uses it.
        job: JobId,
        /// Its project.
        project: WantedLock,
    },
    /// `import` or `state rm` is about to begin.
    StateChangeBegins {
        /// Its project.
        project: WantedLock,
        /// Its job.
        job: JobId,
        /// The head that it runs on.
        head: CommitSha,
    },
    /// A job has changed the state of a project, or may have. That invalidates plans of the project, and plans of other pull requests of
    /// the repository that are known to depend on it.
    StateChanged {
        /// The pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
        /// True if its outputs may have changed, which also invalidates plans of projects that depend on it.
        outputs: bool,
        /// Time of the change.
        at: Timestamp,
    },
    /// The apply of a project has failed, so that it is planned again.
    ApplyFailed {
        /// The pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
        /// Time of the end of the apply.
        at: Timestamp,
    },
    /// A project matches its code: it was applied, or planned without changes, at a commit that contains these merges.
    Satisfied {
        /// The pull request that applied or planned it.
        pull: PullId,
        /// The project.
        project: ProjectId,
        /// Commits that pull requests were merged as.
        merges: Vec<CommitSha>,
        /// True if no other project of that commit has its directory and workspace, so that it stands for all names of the state.
        alone: bool,
    },
    /// Current names of the projects of a pull request. Ownership under another name of the same state is renamed.
    ProjectsNamed {
        /// The pull request.
        pull: PullId,
        /// All its projects, by their current names.
        projects: Vec<ProjectId>,
    },
    /// The changes of a merged pull request, unknown at its merge, are known now.
    MergeKnown {
        /// The pull request.
        pull: PullId,
        /// Its merge.
        merged: MergedPull,
    },
    /// Plans of any pull request are invalidated.
    PlansInvalidated {
        /// The plans; some of them may be deleted already.
        plans: Vec<PlanId>,
        /// Cause of the invalidation.
        cause: InvalidationCause,
        /// Time of the event.
        at: Timestamp,
    },
    /// A person takes all projects in mode `strict` that a pull request changes.
    OwnershipTaken {
        /// The pull request, and the person who does it.
        holder: LockHolder,
        /// The person's reason.
        reason: String,
    },
    /// A check for due reminders to a pull request with unapplied or unmerged changes.
    ReminderDue {
        /// The pull request.
        pull: PullId,
        /// Interval for a project without one.
        usual: Duration,
        /// Present time.
        at: Timestamp,
    },
    /// An automatic re-plan is about to begin.
    TurnBegins {
        /// The pull request.
        pull: PullId,
        /// The projects.
        projects: Vec<ProjectId>,
        /// Present time.
        at: Timestamp,
    },
    /// An automatic re-plan has ended, or did not begin.
    TurnEnds {
        /// The pull request.
        pull: PullId,
        /// The projects.
        projects: Vec<ProjectId>,
    },
    /// A pull request that was closed is open again.
    Reopened {
        /// The pull request.
        pull: PullId,
    },
    /// A person gave the command `unlock` on a pull request.
    Unlocked {
        /// The pull request.
        pull: PullId,
        /// Only these projects; absent: all.
        only: Option<Vec<ProjectId>>,
        /// True if projects with unmerged applied changes, or with unapplied merged changes, are released as well.
        accept_drift: bool,
        /// Person, time and request.
        by: AuditEntry,
    },
    /// A person deletes one lock, on the page or through the API.
    LockDeleted {
        /// Name of the lock: [`ProjectLock::id`], or [`ProjectLock::key`] if only one host has a lock with it.
        key: String,
        /// Running job of the holder that must not be interrupted, such as an apply.
        applying: Option<JobId>,
        /// Person, time and request; the result is filled in.
        by: AuditEntry,
    },
    /// A pull request was merged or closed.
    Closed {
        /// The pull request.
        pull: PullId,
        /// Remarks for people on projects that it releases.
        remarks: Vec<String>,
        /// Its merge; absent if it was closed without a merge.
        merged: Option<MergedPull>,
    },
}

/// Consequences of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequences {
    /// Rows to change, in this order.
    pub changes: Vec<LockChange>,
    /// Projects of a plan that another pull request holds, so that they are not planned.
    pub held: Vec<(ProjectId, Box<LockHolder>)>,
    /// Positions in line of the blocked pull request, by the project that it waits for.
    pub places: Vec<(ProjectId, PlaceInLine)>,
    /// Next in line: pull requests and projects that are planned automatically.
    pub turns: Vec<(PullId, ProjectId)>,
    /// Projects of a re-plan that begins whose turn it is.
    pub due: Vec<ProjectId>,
    /// Its other projects: their turn ends when its beginning is recorded.
    pub passed: Vec<ProjectId>,
    /// Reason for which the event is refused as a whole. It then only changes the line.
    pub refusal: Option<LockRefusal>,
    /// Message to its pull request.
    pub message: Option<Message>,
    /// Entry for the audit log.
    pub audit: Option<AuditEntry>,
    /// Invalidated plans, of any pull request. They are among the dropped ones.
    pub invalidated: Vec<InvalidatedPlan>,
    /// Messages to other pull requests.
    pub others: Vec<(PullId, Message)>,
}

/// One changed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockChange {
    /// A free lock is taken.
    Take(ProjectLock),
    /// An apply begins under a lock, or the lock is taken by hand; the new row.
    NoteApplied(ProjectLock),
    /// A lock is released.
    Free(ProjectLock),
    /// A plan can no longer be applied.
    DropPlan(PlanRecord),
    /// A plan is used; the new row, with the job that uses it.
    UsePlan(ConsumedPlan),
    /// A project status of a pull request changes.
    SetStatus(PullId, ProjectStatus),
    /// A pull request owns a project from now on.
    Own(ProjectOwner),
    /// An ownership changes; the new row.
    ChangeOwner(ProjectOwner),
    /// An owned project gets another name; the new row.
    RenameOwner {
        /// The old name.
        from: ProjectId,
        /// The owner, with its new name.
        owner: ProjectOwner,
    },
    /// The ownership passes to another pull request; the new row.
    PassOn {
        /// The former owner.
        from: PullId,
        /// The row.
        owner: ProjectOwner,
    },
    /// An ownership ends.
    Disown(ProjectOwner),
    /// A pull request waits in line.
    Wait(WaitingPull),
    /// A pull request leaves the line.
    Leave(WaitingPull),
}

/// A plan that the job of an apply uses. Only the rules create one, when they let the apply begin. The job of an apply can only be created
/// from it, and gets it from the transaction that has recorded the use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedPlan(PlanRecord);

impl ConsumedPlan {
    /// The plan, with the job that uses it.
    pub fn record(&self) -> &PlanRecord {
        &self.0
    }
}

/// Reason for which an event is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRefusal {
    /// Another pull request has the lock.
    HeldBy(Box<LockHolder>),
    /// Another pull request owns the project, or another project that this pull request changes.
    OwnedBy(Box<ProjectOwner>),
    /// The pull request does not change the project: its plan is a preview.
    NotChanged,
    /// The changed projects of the pull request were not recorded for this head.
    ChangesUnknown,
    /// All applies are stopped.
    AppliesStopped(ApplyLock),
    /// The plan no longer exists: it was used, dropped or replaced.
    NoPlan,
    /// There is no such lock.
    NoLock,
    /// An apply of the holder runs.
    ApplyRuns {
        /// Its job.
        job: JobId,
    },
}

impl Consequences {
    /// Returns the position in line for this project, if the event made its pull request wait.
    pub fn place(&self, project: &ProjectId) -> Option<PlaceInLine> {
        self.places.iter().find(|(of, _)| of == project).map(|(_, place)| place.clone())
    }

    /// Returns the released locks, oldest first.
    pub fn freed(&self) -> impl Iterator<Item = &ProjectLock> {
        self.changes.iter().filter_map(|change| match change {
            LockChange::Free(lock) => Some(lock),
            _ => None,
        })
    }

    /// Returns the dropped plans that were not invalidated; these are reported in another way.
    pub fn discarded(&self) -> Vec<PlanRecord> {
        let mut discarded = self.dropped();
        discarded.retain(|plan| self.invalidated.iter().all(|invalidated| invalidated.plan.id != plan.id));
        discarded
    }

    /// Returns the projects that others hold, with their holders and the pull request's places in line.
    pub fn held_projects(&self) -> HeldProjects {
        let blocked = |(project, holder): &(ProjectId, Box<LockHolder>)| {
            let blocked = Blocked { by: (**holder).clone(), place: self.place(project) };
            (project.clone(), Box::new(blocked))
        };
        self.held.iter().map(blocked).collect()
    }

    /// Returns the plan that is used.
    pub fn consumed(&self) -> Option<&ConsumedPlan> {
        self.changes.iter().find_map(|change| match change {
            LockChange::UsePlan(plan) => Some(plan),
            _ => None,
        })
    }

    /// Returns the plans that can no longer be applied, so that their files can be deleted.
    pub fn dropped(&self) -> Vec<PlanRecord> {
        let dropped = self.changes.iter().filter_map(|change| match change {
            LockChange::DropPlan(plan) => Some(plan.clone()),
            _ => None,
        });
        dropped.collect()
    }
}

/// Projects that others hold, with their holders.
pub type HeldProjects = Vec<(ProjectId, Box<Blocked<LockHolder>>)>;

/// Returns true if a project of a pull request, with this status, waits for the holder of this lock.
pub fn waits_for(pull: &PullId, status: &ProjectStatus, lock: &ProjectLock) -> bool {
    let is_other = lock.repo == pull.repo && lock.holder.pull != *pull;
    status.was_not_planned() && lock.project.is_same_state(&status.project) && is_other
}
