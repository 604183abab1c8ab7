//! Who holds a project: the rules of project locks, and of the plans that go with them. Pure.
//!
//! [`step`] takes the rows that a [`LockEvent`] is about and says what follows: which rows change, who is refused, which message
//! and which audit entry it makes. `store` loads those rows and writes what follows, in the transaction of the event.
//!
//! A project lock is known by host, repository, directory, workspace and project name (Atlantis leaves out the host, so that
//! repositories of the same name on two hosts block each other there). Between pull requests the name counts only where both projects are
//! known to have different states: else directory and workspace are one state, whatever it is called.

mod drift;
mod line;
mod merges;
#[cfg(test)]
mod model;
mod names;
mod overtaken;
mod ownership;
mod rules;
#[cfg(test)]
mod tests;

use crate::config::LockMode;
use crate::domain::ownership::{ChangedProjects, FallCause, FallenPlan, ProjectOwner};
use crate::domain::plan_digest::SeenPlans;
use crate::domain::reply::Message;
use crate::domain::state::{ApplyLock, AuditEntry, LockHolder, PlanRecord, ProjectLock, ProjectStatus};
use crate::domain::waiting::{PlaceInLine, WaitingPull};
use crate::domain::{CommitSha, JobId, PlanId, ProjectId, PullId};
pub use drift::drift_block;
use jiff::Timestamp;
pub use line::{blocker, lock_before};
pub use names::is_old_name;
pub use overtaken::overtaken_by;
pub use rules::step;
use std::time::Duration;

/// The rows that an event is about. Others may be among them: they stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Project locks, oldest first.
    pub locks: Vec<ProjectLock>,
    /// Plans that can still be applied, in the order in which they were recorded.
    pub plans: Vec<PlanRecord>,
    /// Where projects of a pull request stand.
    pub statuses: Vec<(PullId, ProjectStatus)>,
    /// The stop on all applies.
    pub apply_lock: Option<ApplyLock>,
    /// Owners of projects in mode `strict`, oldest first.
    pub owners: Vec<ProjectOwner>,
    /// What the pull request of the event changes, as it was last planned.
    pub changed: Option<ChangedProjects>,
    /// Who waits for projects, oldest first.
    pub waiters: Vec<WaitingPull>,
    /// Of a pull request that was merged: the plans that it had.
    pub seen: Vec<SeenPlans>,
}

/// A project that a command works on, with the lock that it would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLock {
    /// The lock, with the pull request of the command as its holder.
    pub lock: ProjectLock,
    /// When it is taken; `Disabled` where the server locks nothing.
    pub mode: LockMode,
}

/// How a pull request was merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedPull {
    /// The head that was merged.
    pub head: CommitSha,
    /// The commit that it became on the base branch; absent where the host does not tell.
    pub commit: Option<CommitSha>,
    /// The base branch.
    pub branch: String,
    /// When this server heard of it.
    pub at: Timestamp,
    /// Whom refusals name for what is not applied yet.
    pub holder: LockHolder,
    /// The kind of the base branch.
    pub into: MergedInto,
}

/// The kind of branch that a pull request was merged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedInto {
    /// A branch that projects are applied from.
    Applied,
    /// The head branch of this other pull request, which is open: what was merged is applied with that one.
    HeadOf(Box<LockHolder>),
    /// It is not known, or not known what was merged.
    Unknown {
        /// Why.
        because: String,
    },
}

impl WantedLock {
    /// Whether a plan of the project takes its lock.
    pub fn is_locked_by_plan(&self) -> bool {
        self.mode == LockMode::OnPlan
    }

    /// Whether whoever changes its state owns the project.
    pub fn is_strict(&self) -> bool {
        matches!(self.mode, LockMode::Strict(_))
    }
}

/// What takes locks, frees them, or uses plans up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockEvent {
    /// Projects are about to be planned.
    PlanBegins {
        /// By this pull request.
        pull: PullId,
        /// These.
        projects: Vec<WantedLock>,
        /// The plan is of everything: it starts over. A targeted one leaves other projects alone.
        everything: bool,
    },
    /// A plan that was broken off goes on with these projects: their locks may have been lost meanwhile.
    PlanGoesOn {
        /// The projects.
        projects: Vec<WantedLock>,
    },
    /// A project ends up without a plan: it failed, was cancelled or was refused.
    NotPlanned {
        /// Of this pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
    },
    /// The apply of a plan is about to begin.
    ApplyBegins {
        /// Id of the plan.
        plan: PlanId,
        /// Id of the job that uses it up.
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
        /// The head that it works on.
        head: CommitSha,
    },
    /// A job has changed the state of a project, or may have: a plan of it is worth nothing. Nor are plans of other pull requests of the
    /// repository that are known to depend on it.
    StateChanged {
        /// Of this pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
        /// Its outputs may be others now: plans of projects that depend on it are worth nothing either.
        outputs: bool,
        /// When.
        at: Timestamp,
    },
    /// A project is as its code says: applied, or planned without changes, at a commit that contains these merges.
    Satisfied {
        /// By this pull request.
        pull: PullId,
        /// The project.
        project: ProjectId,
        /// Commits that pull requests were merged as.
        merges: Vec<CommitSha>,
        /// No other project of that commit has its directory and workspace: it stands for all names of the state.
        alone: bool,
    },
    /// How the projects of a pull request are called now: what it has under another name of the same state follows.
    ProjectsNamed {
        /// The pull request.
        pull: PullId,
        /// All its projects, as they are called.
        projects: Vec<ProjectId>,
    },
    /// It is known now what a merged pull request has changed, of which it was not known at its merge.
    MergeKnown {
        /// The pull request.
        pull: PullId,
        /// Its merge.
        merged: MergedPull,
    },
    /// Plans fall, whoever made them.
    PlansInvalidated {
        /// The plans; others of them may be gone.
        plans: Vec<PlanId>,
        /// Why.
        cause: FallCause,
        /// When.
        at: Timestamp,
    },
    /// A person takes all projects in mode `strict` that a pull request changes.
    OwnershipTaken {
        /// For this pull request, and why they do it.
        holder: LockHolder,
        /// Why.
        reason: String,
    },
    /// It is time to look whether a pull request that owes something is told again.
    ReminderDue {
        /// The pull request.
        pull: PullId,
        /// How often, where a project did not say.
        usual: Duration,
        /// Now.
        at: Timestamp,
    },
    /// A plan without being asked has ended, or did not come about.
    TurnEnds {
        /// Of this pull request.
        pull: PullId,
        /// Of these projects.
        projects: Vec<ProjectId>,
    },
    /// A pull request that was closed is open again.
    Reopened {
        /// The pull request.
        pull: PullId,
    },
    /// Somebody said `unlock` on a pull request.
    Unlocked {
        /// The pull request.
        pull: PullId,
        /// Only these projects; absent: all.
        only: Option<Vec<ProjectId>>,
        /// What was applied and is not merged, or merged and is not applied, stays so: its projects are free all the same.
        accept_drift: bool,
        /// Who, when, and on what request.
        by: AuditEntry,
    },
    /// Somebody deletes one lock, on the page or through the API.
    LockDeleted {
        /// What names the lock: [`ProjectLock::id`], or [`ProjectLock::key`] where only one host has a lock with it.
        key: String,
        /// Job of an apply, or of what else must not be interrupted, that the holder has begun and that still runs.
        applying: Option<JobId>,
        /// Who, when, and on what request; its result is filled in.
        by: AuditEntry,
    },
    /// A pull request was merged or closed.
    Closed {
        /// The pull request.
        pull: PullId,
        /// What people have to know of projects that are freed by it.
        remarks: Vec<String>,
        /// How it was merged; absent where it was closed without a merge.
        merged: Option<MergedPull>,
    },
}

/// What follows from an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequences {
    /// Rows to change, in this order.
    pub changes: Vec<LockChange>,
    /// Projects of a plan that another pull request holds: they are not planned.
    pub held: Vec<(ProjectId, Box<LockHolder>)>,
    /// Where whoever is kept out waits, by the project that it waits for.
    pub places: Vec<(ProjectId, PlaceInLine)>,
    /// Whose turn it is: they are planned without being asked.
    pub turns: Vec<(PullId, ProjectId)>,
    /// The event is refused as a whole: it changes nothing but who waits.
    pub refusal: Option<LockRefusal>,
    /// What its pull request is told.
    pub message: Option<Message>,
    /// What the audit log gets.
    pub audit: Option<AuditEntry>,
    /// Plans that fell, whoever made them. They are among the dropped ones.
    pub fallen: Vec<FallenPlan>,
    /// What other pull requests are told.
    pub others: Vec<(PullId, Message)>,
}

/// One changed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockChange {
    /// A lock that was free is held.
    Take(ProjectLock),
    /// Something is applied under a lock from now on, or it is held by hand; the lock as it becomes.
    NoteApplied(ProjectLock),
    /// A lock is free.
    Free(ProjectLock),
    /// A plan can be applied no more.
    DropPlan(PlanRecord),
    /// A plan is used up; the plan as it becomes, with the job that uses it.
    UsePlan(ConsumedPlan),
    /// A project of a pull request stands differently.
    SetStatus(PullId, ProjectStatus),
    /// A pull request owns a project from now on.
    Own(ProjectOwner),
    /// An owner stands differently; the row as it becomes.
    ChangeOwner(ProjectOwner),
    /// What is owned has another name; the row as it becomes.
    RenameOwner {
        /// The name that it had.
        from: ProjectId,
        /// The owner, with its new name.
        owner: ProjectOwner,
    },
    /// Another pull request is the owner from now on; the row as it becomes.
    PassOn {
        /// The former owner.
        from: PullId,
        /// The row.
        owner: ProjectOwner,
    },
    /// A pull request owns a project no more.
    Disown(ProjectOwner),
    /// A pull request waits in line.
    Wait(WaitingPull),
    /// It waits no more.
    Leave(WaitingPull),
}

/// A plan that the job of an apply uses up. Only the rules make one, when they let the apply begin. The job of an apply is made of it
/// alone, and gets it from the transaction that has recorded the plan's use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedPlan(PlanRecord);

impl ConsumedPlan {
    /// The plan, with the job that uses it.
    pub fn record(&self) -> &PlanRecord {
        &self.0
    }
}

/// Why an event is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRefusal {
    /// Another pull request has the lock.
    HeldBy(Box<LockHolder>),
    /// Another pull request owns the project, or one that this pull request changes too.
    OwnedBy(Box<ProjectOwner>),
    /// The pull request does not change the project: its plan is a preview.
    NotChanged,
    /// What the pull request changes was not recorded for this head.
    ChangesUnknown,
    /// All applies are stopped.
    AppliesStopped(ApplyLock),
    /// The plan is not there any more: used, dropped or replaced.
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
    /// The place of whoever waits for this project because of the event.
    pub fn place(&self, project: &ProjectId) -> Option<PlaceInLine> {
        self.places.iter().find(|(of, _)| of == project).map(|(_, place)| place.clone())
    }

    /// Locks that are free now, oldest first.
    pub fn freed(&self) -> impl Iterator<Item = &ProjectLock> {
        self.changes.iter().filter_map(|change| match change {
            LockChange::Free(lock) => Some(lock),
            _ => None,
        })
    }

    /// Dropped plans that did not fall: they are told in another way.
    pub fn outdated(&self) -> Vec<PlanRecord> {
        let mut outdated = self.dropped();
        outdated.retain(|plan| self.fallen.iter().all(|fallen| fallen.plan.id != plan.id));
        outdated
    }

    /// The plan that is used up.
    pub fn consumed(&self) -> Option<&ConsumedPlan> {
        self.changes.iter().find_map(|change| match change {
            LockChange::UsePlan(plan) => Some(plan),
            _ => None,
        })
    }

    /// Plans that can be applied no more, so that their files can go.
    pub fn dropped(&self) -> Vec<PlanRecord> {
        let dropped = self.changes.iter().filter_map(|change| match change {
            LockChange::DropPlan(plan) => Some(plan.clone()),
            _ => None,
        });
        dropped.collect()
    }
}

/// Whether a project of a pull request that stands like this waits for whoever holds this lock.
pub fn waits_for(pull: &PullId, status: &ProjectStatus, lock: &ProjectLock) -> bool {
    let is_other = lock.repo == pull.repo && lock.holder.pull != *pull;
    status.was_not_planned() && lock.project.is_same_state(&status.project) && is_other
}
