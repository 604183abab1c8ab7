//! Plans that become out of date while they are made. Events invalidate only recorded plans, so the commit that records a plan checks for
//! state changes since the plan began.

use super::held_projects;
use crate::domain::JobId;
use crate::domain::ownership::FallCause;
use crate::domain::state::{Job, LockHolder, PlanRecord};
use crate::domain::waiting::Blocked;
use crate::locks::{LockEvent, WantedLock, overtaken_by};
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;

/// State changes that may end while a plan is made.
#[derive(Clone)]
pub(super) struct Meanwhile {
    /// Time at which the plan began.
    since: Timestamp,
    /// Jobs that were changing a state at that time.
    at_work: Vec<JobId>,
}

/// Begins a plan, whose lock may have been lost while it waited for its turn. The inner error is the present holder of the project.
pub(super) fn begin(
    tx: &Tx<'_>,
    wanted: &WantedLock,
    since: Timestamp,
) -> Result<Result<Meanwhile, Box<Blocked<LockHolder>>>> {
    if let Some(holder) = taken_by(tx, wanted)? {
        return Ok(Err(holder));
    }
    let at_work = tx.unfinished_jobs()?.into_iter().filter(Job::changes_state).map(|job| job.id).collect();
    Ok(Ok(Meanwhile { since, at_work }))
}

/// Takes the lock of a plan, unless it has it already. Returns the other holder if there is one.
fn taken_by(tx: &Tx<'_>, wanted: &WantedLock) -> Result<Option<Box<Blocked<LockHolder>>>> {
    let follows = tx.record_lock_event(&LockEvent::PlanGoesOn { projects: vec![wanted.clone()] })?;
    Ok(held_projects(&follows).pop().map(|(_, holder)| holder))
}

/// Returns true if nobody can apply a plan any more, so that it is not kept: its lock was deleted, and another pull request has it now.
/// After the merge, also if another apply has satisfied the merged changes.
pub(super) fn is_lost(tx: &Tx<'_>, wanted: &WantedLock, after_merge: bool) -> Result<bool> {
    let lock = &wanted.lock;
    if after_merge && !tx.owed_projects(&lock.holder.pull)?.contains(&lock.project) {
        return Ok(true);
    }
    Ok(taken_by(tx, wanted)?.is_some())
}

impl Meanwhile {
    /// Returns the cause by which a plan is invalidated in the commit that records it; `None` if it stays valid.
    pub(super) fn cause(&self, tx: &Tx<'_>, plan: &PlanRecord, wanted: &WantedLock) -> Result<Option<FallCause>> {
        let mut ended = tx.changes_ended_since(self.since)?;
        for id in &self.at_work {
            ended.extend(tx.job(id)?.filter(|job| job.finished.is_some()));
        }
        for job in &ended {
            let Some(project) = &job.project else { continue };
            let locks = tx.locks_of_state(&job.pull.repo, project)?;
            let lock = locks.into_iter().find(|lock| lock.project == *project && lock.holder.pull == job.pull);
            let address = lock.map(|lock| lock.address).unwrap_or_default();
            let cause = overtaken_by(plan, wanted, &job.pull, project, &address);
            if cause.is_some() {
                return Ok(cause);
            }
        }
        Ok(None)
    }
}
