//! Plans that are overtaken while they are made. Events drop the plans that are recorded; one that is still being made is not among them, so
//! what has happened to its project meanwhile is looked up in the commit that records it.

use super::held_projects;
use crate::domain::JobId;
use crate::domain::ownership::FallCause;
use crate::domain::state::{Job, LockHolder, PlanRecord};
use crate::domain::waiting::Blocked;
use crate::locks::{LockEvent, WantedLock, overtaken_by};
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;

/// Which changes of states may end while a plan is made.
#[derive(Clone)]
pub(super) struct Meanwhile {
    /// When it began.
    since: Timestamp,
    /// Jobs that changed a state then.
    at_work: Vec<JobId>,
}

/// The beginning of a plan: its lock may have been lost while it waited for its turn. The inner error is who has the project now.
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

/// Takes the lock of a plan, unless it has it; whoever has it instead.
fn taken_by(tx: &Tx<'_>, wanted: &WantedLock) -> Result<Option<Box<Blocked<LockHolder>>>> {
    let follows = tx.record_lock_event(&LockEvent::PlanGoesOn { projects: vec![wanted.clone()] })?;
    Ok(held_projects(&follows).pop().map(|(_, holder)| holder))
}

/// Whether nobody can apply a plan any more, so that it is not kept: somebody has deleted its lock, and another one has it; or after the
/// merge, another one's apply has satisfied what it was made for.
pub(super) fn is_lost(tx: &Tx<'_>, wanted: &WantedLock, after_merge: bool) -> Result<bool> {
    let lock = &wanted.lock;
    if after_merge && !tx.owed_projects(&lock.holder.pull)?.contains(&lock.project) {
        return Ok(true);
    }
    Ok(taken_by(tx, wanted)?.is_some())
}

impl Meanwhile {
    /// Why a plan falls in the commit that records it, if that is so.
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
