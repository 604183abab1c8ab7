//! Plans that become out of date while they are made. Events invalidate only recorded plans, so the commit that records a plan checks for
//! state changes since the plan began.

use super::not_run::NotRun;
use crate::domain::JobId;
use crate::domain::outcome::Failure;
use crate::domain::ownership::InvalidationCause;
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

/// Begins a plan. Refuses if its lock was lost while it waited for its turn.
pub(super) fn begin(tx: &Tx<'_>, wanted: &WantedLock, since: Timestamp) -> Result<Meanwhile, NotRun> {
    if let Some(holder) = other_holder(tx, wanted)? {
        return Err(Failure::Locked(holder).into());
    }
    Ok(meanwhile(tx, since)?)
}

/// Returns the state changes that may end while a plan is made that began at this time.
pub(super) fn meanwhile(tx: &Tx<'_>, since: Timestamp) -> Result<Meanwhile> {
    let at_work = tx.unfinished_jobs()?.into_iter().filter(Job::changes_state).map(|job| job.id).collect();
    Ok(Meanwhile { since, at_work })
}

/// Takes the lock of a plan, unless it has it already. Returns the other holder if there is one.
pub(super) fn other_holder(tx: &Tx<'_>, wanted: &WantedLock) -> Result<Option<Box<Blocked<LockHolder>>>> {
    let follows = tx.record_lock_event(&LockEvent::PlanGoesOn { projects: vec![wanted.clone()] })?;
    Ok(follows.held_projects().pop().map(|(_, holder)| holder))
}

impl Meanwhile {
    /// Returns the cause by which a plan is invalidated in the commit that records it; `None` if it stays valid.
    pub(super) fn cause(
        &self,
        tx: &Tx<'_>,
        plan: &PlanRecord,
        wanted: &WantedLock,
    ) -> Result<Option<InvalidationCause>> {
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
