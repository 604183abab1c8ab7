//! The latest policy check of each project of a pull request. They are dropped when the pull request is closed.

use super::{Tx, View, json};
use anyhow::Result;
use rusqlite::params;
use tidelock_core::domain::policies::PolicyCheckRecord;
use tidelock_core::domain::{ProjectId, PullId};

impl View<'_> {
    /// Returns the policy checks of a pull request, in the order in which its projects were first checked.
    pub fn policy_checks(&self, pull: &PullId) -> Result<Vec<PolicyCheckRecord>> {
        self.records("SELECT record FROM policy_checks WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Returns the policy check of one project.
    pub fn policy_check(&self, pull: &PullId, project: &ProjectId) -> Result<Option<PolicyCheckRecord>> {
        self.record(
            "SELECT record FROM policy_checks WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
            params![pull.to_string(), project.dir, project.workspace, project.name.as_deref().unwrap_or("")],
        )
    }
}

impl Tx<'_> {
    /// Records the policy check of a project, in place of an earlier one.
    pub fn put_policy_check(&self, check: &PolicyCheckRecord) -> Result<()> {
        let project = &check.project;
        self.execute(
            "INSERT INTO policy_checks (pull, dir, workspace, name, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (pull, dir, workspace, name) DO UPDATE SET record = excluded.record",
            params![
                check.pull.to_string(),
                project.dir,
                project.workspace,
                project.name.as_deref().unwrap_or(""),
                json(check)?
            ],
        )?;
        Ok(())
    }

    /// Drops the policy checks of a pull request.
    pub(super) fn drop_policy_checks(&self, pull: &PullId) -> Result<()> {
        self.execute("DELETE FROM policy_checks WHERE pull = ?1", [pull.to_string()])?;
        Ok(())
    }
}
