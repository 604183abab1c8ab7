//! What the server remembers, in SQLite. Nothing outside knows how it is kept.
//!
//! All changes go through [`Store::write`]: closures run one after the other on one thread, those that wait together are
//! committed together, and each caller is answered only when its change is durable. Reads see committed state only.

pub mod logs;

use crate::domain::state::*;
use crate::domain::*;
use anyhow::Result;
use std::path::Path;

/// Handle to the state; cheap to clone.
#[derive(Clone)]
pub struct Store {}

/// Read access to committed state (or, inside a write, to the state so far).
pub struct View<'a> {
    _connection: &'a rusqlite::Connection,
}

/// Write access; dereferences to [`View`].
pub struct Tx<'a> {
    view: View<'a>,
}

impl<'a> std::ops::Deref for Tx<'a> {
    type Target = View<'a>;
    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

/// A try to take a project lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockAttempt {
    /// Ours; `new` unless this pull request had it before.
    Acquired {
        /// It was free.
        new: bool,
    },
    /// Another pull request has it.
    HeldBy(Box<LockHolder>),
}

impl Store {
    /// Opens or makes `<data_dir>/tidelock.db`; refuses a newer format by name.
    pub fn open(_data_dir: &Path) -> Result<Store> {
        todo!()
    }

    /// Runs `change` in the writer's next transaction; returns when it is durable. An `Err` of `change` undoes it alone.
    pub async fn write<T: Send + 'static>(
        &self,
        _change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        todo!()
    }

    /// Runs `query` on committed state, off the async threads.
    pub async fn read<T: Send + 'static>(
        &self,
        _query: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        todo!()
    }

    /// Waits for all accepted writes and closes the database.
    pub async fn close(&self) -> Result<()> {
        todo!()
    }
}

#[expect(clippy::unused_self, unused_variables, missing_docs, reason = "stubs")]
impl View<'_> {
    // deliveries
    pub fn unfinished_deliveries(&self) -> Result<Vec<(Delivery, DeliveryState)>> {
        todo!()
    } // oldest first
    // runs and jobs
    pub fn unfinished_runs(&self) -> Result<Vec<Run>> {
        todo!()
    }
    pub fn unfinished_jobs(&self) -> Result<Vec<Job>> {
        todo!()
    }
    pub fn job(&self, id: &str) -> Result<Option<Job>> {
        todo!()
    }
    pub fn run(&self, id: &str) -> Result<Option<Run>> {
        todo!()
    }
    pub fn recent_jobs(&self, limit: usize) -> Result<Vec<Job>> {
        todo!()
    } // newest first
    // locks
    pub fn locks(&self) -> Result<Vec<ProjectLock>> {
        todo!()
    }
    pub fn locks_of(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        todo!()
    }
    pub fn lock_by_key(&self, key: &str) -> Result<Option<ProjectLock>> {
        todo!()
    } // `lock_key` form
    pub fn apply_lock(&self) -> Result<Option<ApplyLock>> {
        todo!()
    }
    // pull requests
    pub fn pull(&self, pull: &PullId) -> Result<Option<PullRequest>> {
        todo!()
    }
    pub fn open_pulls(&self, limit: usize) -> Result<Vec<(PullRequest, Vec<ProjectStatus>)>> {
        todo!()
    } // latest activity first
    pub fn project_statuses(&self, pull: &PullId) -> Result<Vec<ProjectStatus>> {
        todo!()
    } // in the order they were planned
    // plans
    pub fn plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        todo!()
    } // not consumed, not discarded; execution order
    // outbox
    pub fn pending_effects(&self, pull: Option<&PullId>, limit: usize) -> Result<Vec<PendingEffect>> {
        todo!()
    } // in order
    // audit
    pub fn audit_log(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        todo!()
    }
}

#[expect(clippy::unused_self, unused_variables, missing_docs, reason = "stubs")]
impl Tx<'_> {
    // deliveries
    pub fn accept_delivery(&self, delivery: &Delivery) -> Result<bool> {
        todo!()
    } // false: known already
    pub fn set_delivery_state(&self, identity: &str, state: DeliveryState, outcome: &str) -> Result<()> {
        todo!()
    }
    // runs and jobs
    pub fn put_run(&self, run: &Run) -> Result<()> {
        todo!()
    }
    pub fn put_job(&self, job: &Job) -> Result<()> {
        todo!()
    }
    // locks
    pub fn lock_project(&self, lock: &ProjectLock) -> Result<LockAttempt> {
        todo!()
    }
    pub fn unlock_project(&self, repo: &RepoId, project: &ProjectId, pull: &PullId) -> Result<bool> {
        todo!()
    } // only if that pull request has it
    pub fn unlock_pull(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        todo!()
    }
    pub fn set_apply_lock(&self, lock: Option<&ApplyLock>) -> Result<()> {
        todo!()
    }
    // pull requests
    pub fn put_pull(&self, pull: &PullRequest) -> Result<()> {
        todo!()
    }
    pub fn put_project_status(&self, pull: &PullId, status: &ProjectStatus) -> Result<()> {
        todo!()
    }
    pub fn clear_project_statuses(&self, pull: &PullId) -> Result<()> {
        todo!()
    }
    pub fn forget_pull(&self, pull: &PullId) -> Result<()> {
        todo!()
    } // closed: statuses, plans, and it is no longer listed as open
    // plans
    pub fn put_plan(&self, plan: &PlanRecord) -> Result<()> {
        todo!()
    } // replaces the project's earlier one
    pub fn consume_plan(&self, id: &str, job: &str) -> Result<bool> {
        todo!()
    } // false: used or gone already
    pub fn discard_plan(&self, pull: &PullId, project: &ProjectId) -> Result<bool> {
        todo!()
    }
    pub fn discard_plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        todo!()
    }
    // outbox
    pub fn enqueue(&self, effect: &NewEffect) -> Result<i64> {
        todo!()
    }
    pub fn effect_tried(&self, id: i64) -> Result<()> {
        todo!()
    }
    pub fn effect_done(&self, id: i64, note: &str) -> Result<()> {
        todo!()
    } // also for given up; the note says how
    // audit
    pub fn audit(&self, entry: &AuditEntry) -> Result<()> {
        todo!()
    }
    /// Drops what retention allows: finished deliveries and effects, old runs, jobs, audit entries; returns ids of jobs whose logs may go.
    pub fn prune(&self, now: jiff::Timestamp) -> Result<Vec<String>> {
        todo!()
    }
}
