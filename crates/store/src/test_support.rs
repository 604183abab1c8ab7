//! Single changes of locks and plans through lock events, for tests of this package and of packages that use it.

use crate::Tx;
use anyhow::Result;
use jiff::Timestamp;
use tidelock_core::config::LockMode;
use tidelock_core::domain::state::{LockHolder, ProjectLock};
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::{ProjectId, PullId, RepoId};
use tidelock_core::locks::{LockEvent, WantedLock};

/// Returns a project of a command on the pull request that is the lock's holder.
pub(crate) fn wanted(lock: &ProjectLock, mode: LockMode) -> WantedLock {
    WantedLock { lock: lock.clone(), mode }
}

impl Tx<'_> {
    /// Takes a lock for a plan, or returns its present holder.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be read or written.
    pub fn lock_project(&self, lock: &ProjectLock) -> Result<Option<LockHolder>> {
        let projects = vec![wanted(lock, LockMode::OnPlan)];
        let event = LockEvent::PlanBegins { pull: lock.holder.pull.clone(), projects, everything: false };
        Ok(self.record_lock_event(&event)?.held.into_iter().next().map(|(_, holder)| *holder))
    }

    /// Discards the plan of a project. Returns true if there was one.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be read or written.
    pub fn discard_plan(&self, pull: &PullId, project: &ProjectId) -> Result<bool> {
        let (pull, project) = (pull.clone(), project.clone());
        let event = LockEvent::StateChanged { pull, project, outputs: true, at: Timestamp::UNIX_EPOCH };
        Ok(!self.record_lock_event(&event)?.dropped().is_empty())
    }

    /// Uses a plan for a project that is not locked. Returns true if the plan could be used.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be read or written.
    pub fn consume_plan(&self, id: &str, job: &str) -> Result<bool> {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let holder = LockHolder {
            pull: PullId { repo: repo.clone(), number: 1 },
            url: String::new(),
            title: String::new(),
            user: "alice".into(),
            since: Timestamp::UNIX_EPOCH,
            overdue: None,
        };
        let project = ProjectId { dir: "any".into(), workspace: "default".into(), name: None };
        let lock = ProjectLock { repo, project, holder, applied: false, why: None, address: StateAddress::default() };
        let project = wanted(&lock, LockMode::Disabled);
        let event = LockEvent::ApplyBegins { plan: id.into(), job: job.into(), project };
        Ok(self.record_lock_event(&event)?.refusal.is_none())
    }
}
