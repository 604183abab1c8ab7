//! Plans: at most one per project of a pull request, used at most once.

use super::{Tx, View, json, micros};
use crate::domain::state::PlanRecord;
use crate::domain::{ProjectId, PullId};
use anyhow::Result;
use rusqlite::{Params, params};

impl View<'_> {
    /// Plans of a pull request that can still be applied, in the order in which they were recorded.
    pub fn plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        self.records(
            "SELECT record FROM plans WHERE pull = ?1 AND consumed_by IS NULL ORDER BY seq",
            [pull.to_string()],
        )
    }
}

impl Tx<'_> {
    /// Records a plan, replaces the project's earlier one, and keeps the plan file, which must exist. An ID that exists
    /// already is an error.
    pub fn put_plan(&self, plan: &PlanRecord) -> Result<()> {
        let (pull, name) = (plan.pull.to_string(), plan.project.name.as_deref().unwrap_or(""));
        self.drop_plans(
            "DELETE FROM plans WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4 AND id <> ?5
             RETURNING record",
            params![pull, plan.project.dir, plan.project.workspace, name, plan.id],
        )?;
        self.execute(
            "INSERT INTO plans (id, pull, dir, workspace, name, made, consumed_by, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                plan.id,
                pull,
                plan.project.dir,
                plan.project.workspace,
                name,
                micros(plan.made),
                plan.consumed_by,
                json(plan)?
            ],
        )?;
        match (&plan.path, &plan.sha256) {
            (Some(path), Some(sha256)) if plan.consumed_by.is_none() => self.keep_plan_file(path, sha256),
            _ => Ok(()),
        }
    }

    /// Marks a plan as consumed by a job. `false` if it was consumed, replaced or discarded before: then it must not be
    /// applied.
    pub fn consume_plan(&self, id: &str, job: &str) -> Result<bool> {
        let Some(mut plan) =
            self.record::<PlanRecord>("SELECT record FROM plans WHERE id = ?1 AND consumed_by IS NULL", [id])?
        else {
            return Ok(false);
        };
        plan.consumed_by = Some(job.to_owned());
        let changed = self.execute(
            "UPDATE plans SET consumed_by = ?2, record = ?3 WHERE id = ?1 AND consumed_by IS NULL",
            params![id, job, json(&plan)?],
        )?;
        self.drop_plan_files(&plan)?;
        Ok(changed == 1)
    }

    /// Drops the plan of one project and returns whether there was one to apply. A consumed plan stays: it belongs to
    /// its apply.
    pub fn discard_plan(&self, pull: &PullId, project: &ProjectId) -> Result<bool> {
        let dropped = self.drop_plans(
            "DELETE FROM plans
             WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4 AND consumed_by IS NULL
             RETURNING record",
            params![pull.to_string(), project.dir, project.workspace, project.name.as_deref().unwrap_or("")],
        )?;
        Ok(dropped > 0)
    }

    /// Drops all plans of a pull request that could still be applied, and returns them so that their files can be
    /// removed.
    pub fn discard_plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        let plans = self.plans(pull)?;
        self.drop_plans(
            "DELETE FROM plans WHERE pull = ?1 AND consumed_by IS NULL RETURNING record",
            [pull.to_string()],
        )?;
        Ok(plans)
    }

    /// Runs a `DELETE … RETURNING record`, stops keeping the files of the deleted plans, and returns their number.
    pub(super) fn drop_plans(&self, sql: &str, params: impl Params) -> Result<usize> {
        let plans: Vec<PlanRecord> = self.records(sql, params)?;
        plans.iter().try_for_each(|plan| self.drop_plan_files(plan))?;
        Ok(plans.len())
    }

    /// Stops keeping the plan file and the plan artifacts.
    fn drop_plan_files(&self, plan: &PlanRecord) -> Result<()> {
        if let Some(path) = &plan.path {
            self.drop_file(path)?;
        }
        self.drop_file(&format!("left/{}.tar.zst", plan.id))
    }
}
