//! Plans: at most one per project of a pull request, used at most once.

use super::{Tx, View, json, micros};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::{Params, params};
use tidelock_core::domain::state::PlanRecord;
use tidelock_core::domain::{JobId, PlanId, ProjectId, PullId, RepoId};

impl View<'_> {
    /// Returns a plan that a job has consumed; absent if there is none with this ID, or it is not consumed.
    pub fn consumed_plan(&self, id: &PlanId) -> Result<Option<PlanRecord>> {
        self.record("SELECT record FROM plans WHERE id = ?1 AND consumed_by IS NOT NULL", [id.as_str()])
    }

    /// Returns the plans of a pull request that can still be applied, in the order in which they were recorded.
    pub fn plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        self.records(
            "SELECT record FROM plans WHERE pull = ?1 AND consumed_by IS NULL ORDER BY seq",
            [pull.to_string()],
        )
    }

    /// Returns plans of other pull requests of the same repository that were made with outputs of this project.
    pub fn plans_elsewhere_with_outputs_of(&self, pull: &PullId, project: &ProjectId) -> Result<Vec<PlanRecord>> {
        // Pull requests of a repository are adjacent in the index: `$` follows `#`. Few plans have dependencies; the others are
        // excluded by their text, without parsing it.
        self.records(
            "SELECT record FROM plans WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND pull <> ?2 AND consumed_by IS NULL
               AND (instr(record, ?5) AND EXISTS (SELECT 1 FROM json_each(record, '$.dependencies') WHERE value = ?3)
                 OR instr(record, ?6) AND EXISTS (SELECT 1 FROM json_each(record, '$.inputs.depends_on') WHERE value = ?4))
             ORDER BY seq",
            params![
                pull.repo.to_string(),
                pull.to_string(),
                project.dir,
                project.name,
                "\"dependencies\":[",
                "\"depends_on\":["
            ],
        )
    }

    /// Returns the plans of a pull request that can still be applied and have a maximum age.
    pub fn plans_with_limit(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        self.records(
            "SELECT record FROM plans WHERE pull = ?1 AND consumed_by IS NULL AND json_extract(record, '$.max_age') IS NOT NULL
             ORDER BY seq",
            [pull.to_string()],
        )
    }

    /// Returns plans whose trees are kept in the bucket, also those that a job has consumed.
    pub(super) fn plans_with_tree(&self) -> Result<Vec<PlanRecord>> {
        self.records("SELECT record FROM plans WHERE json_extract(record, '$.tree') IS NOT NULL ORDER BY seq", [])
    }

    /// Returns the plan of one project that can still be applied.
    pub(super) fn plan_of(&self, pull: &PullId, project: &ProjectId) -> Result<Option<PlanRecord>> {
        self.record(
            "SELECT record FROM plans
             WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4 AND consumed_by IS NULL",
            params![pull.to_string(), project.dir, project.workspace, project.name.as_deref().unwrap_or("")],
        )
    }

    /// Returns plans for one state that can still be applied, under any name and of any pull request of the repository.
    pub fn plans_of_state(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<PlanRecord>> {
        let mut plans: Vec<PlanRecord> = self.records(
            "SELECT record FROM plans WHERE dir = ?1 AND workspace = ?2 AND consumed_by IS NULL ORDER BY seq",
            params![project.dir, project.workspace],
        )?;
        plans.retain(|plan| plan.pull.repo == *repo);
        Ok(plans)
    }

    /// Returns plans in mode `strict` for this base branch, of any pull request of the repository.
    pub fn strict_plans_for(&self, repo: &RepoId, branch: &str) -> Result<Vec<PlanRecord>> {
        let mut plans: Vec<PlanRecord> = self.records(
            "SELECT record FROM plans WHERE consumed_by IS NULL AND json_extract(record, '$.inputs') IS NOT NULL
               AND json_extract(record, '$.base_branch') = ?1 ORDER BY seq",
            [branch],
        )?;
        plans.retain(|plan| plan.pull.repo == *repo);
        Ok(plans)
    }

    /// Returns the base branches of a repository's plans in mode `strict`.
    pub fn branches_of_strict_plans(&self, repo: &RepoId) -> Result<Vec<String>> {
        self.records(
            "SELECT DISTINCT json_quote(json_extract(record, '$.base_branch')) FROM plans INDEXED BY plans_strict
             WHERE consumed_by IS NULL AND json_extract(record, '$.inputs') IS NOT NULL
               AND pull > ?1 || '#' AND pull < ?1 || '$'",
            [repo.to_string()],
        )
    }

    /// Returns plans in mode `strict` that exceed their maximum age.
    pub fn strict_plans_too_old(&self, now: Timestamp) -> Result<Vec<PlanRecord>> {
        self.records(
            "SELECT record FROM plans INDEXED BY plans_strict
             WHERE consumed_by IS NULL AND json_extract(record, '$.inputs') IS NOT NULL
               AND made + 1000000 * json_extract(record, '$.max_age.secs') < ?1 ORDER BY seq",
            [micros(now)],
        )
    }

    /// Returns a plan that was neither used nor replaced nor discarded.
    pub(super) fn usable_plan(&self, id: &PlanId) -> Result<Option<PlanRecord>> {
        self.record("SELECT record FROM plans WHERE id = ?1 AND consumed_by IS NULL", [id.as_str()])
    }
}

impl Tx<'_> {
    /// Records a plan, replaces the project's earlier one, and keeps the plan file, which must exist. Fails if the ID exists
    /// already.
    pub fn put_plan(&self, plan: &PlanRecord) -> Result<()> {
        let (pull, name) = (plan.pull.to_string(), plan.project.name.as_deref().unwrap_or(""));
        self.drop_plans(
            "DELETE FROM plans WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4 AND id <> ?5
             RETURNING record",
            params![pull, plan.project.dir, plan.project.workspace, name, plan.id.as_str()],
        )?;
        self.execute(
            "INSERT INTO plans (id, pull, dir, workspace, name, made, consumed_by, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                plan.id.as_str(),
                pull,
                plan.project.dir,
                plan.project.workspace,
                name,
                micros(plan.made),
                plan.consumed_by.as_ref().map(JobId::as_str),
                json(plan)?
            ],
        )?;
        match (&plan.path, &plan.sha256) {
            (Some(path), Some(sha256)) if plan.consumed_by.is_none() => self.keep_plan_file(path, sha256),
            _ => Ok(()),
        }
    }

    /// Records that a plan is not applied automatically any more. Returns false, and changes nothing, if it would not have been.
    pub fn end_auto_apply(&self, id: &PlanId) -> Result<bool> {
        let changed = self.execute(
            "UPDATE plans SET record = json_remove(record, '$.auto_apply')
             WHERE id = ?1 AND consumed_by IS NULL AND json_extract(record, '$.auto_apply') IS NOT NULL",
            params![id.as_str()],
        )?;
        Ok(changed == 1)
    }

    /// Records that a job has used a plan. The record stays; its files are dropped. Fails if the plan cannot be applied.
    pub(super) fn use_plan(&self, used: &PlanRecord) -> Result<()> {
        let changed = self.execute(
            "UPDATE plans SET consumed_by = ?2, record = ?3 WHERE id = ?1 AND consumed_by IS NULL",
            params![used.id.as_str(), used.consumed_by.as_ref().map(JobId::as_str), json(used)?],
        )?;
        ensure!(changed == 1, "the plan {} is used or gone", used.id);
        self.drop_plan_files(used)
    }

    /// Drops a plan that could still be applied. Fails if it could not.
    pub(super) fn drop_plan(&self, id: &PlanId) -> Result<()> {
        let dropped =
            self.drop_plans("DELETE FROM plans WHERE id = ?1 AND consumed_by IS NULL RETURNING record", [id.as_str()])?;
        ensure!(dropped == 1, "the plan {id} is used or gone");
        Ok(())
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
