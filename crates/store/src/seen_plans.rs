//! Earlier and present plans of pull requests, as digests of their changes.

use super::locks::name_of;
use super::{Tx, View, json};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::params;
use std::collections::HashSet;
use tidelock_core::domain::ownership::{OwnerState, ProjectOwner};
use tidelock_core::domain::plan_digest::{SeenPlan, SeenPlans};
use tidelock_core::domain::state::PlanRecord;
use tidelock_core::domain::{JobId, ProjectId, PullId, RunId};

impl View<'_> {
    /// Returns the plans that a pull request has had of a project.
    pub fn seen_plans(&self, pull: &PullId, project: &ProjectId) -> Result<Option<SeenPlans>> {
        self.record(
            "SELECT record FROM seen_plans WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
            params![pull.to_string(), project.dir, project.workspace, name_of(project)],
        )
    }

    /// Returns the plans that a pull request has had of all its projects.
    pub(super) fn all_seen_plans(&self, pull: &PullId) -> Result<Vec<SeenPlans>> {
        self.records("SELECT record FROM seen_plans WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }
}

impl Tx<'_> {
    /// Records a new plan. `key`: key of its digest, if it has one. A digest whose key differs from that of the earlier plans cannot be
    /// compared with them and is dropped. `on_merge`: as in [`SeenPlan`].
    pub fn note_seen_plan(&self, plan: &PlanRecord, key: &str, on_merge: bool) -> Result<()> {
        let project = &plan.project;
        let known = self.seen_plans(&plan.pull, project)?;
        let (plans, others) = (Vec::new(), Vec::new());
        let mut seen =
            known.unwrap_or_else(|| SeenPlans { project: project.clone(), key: key.to_owned(), plans, others });
        let changes = plan.changes.clone().filter(|_| seen.key == key);
        seen.add(SeenPlan {
            id: plan.id.clone(),
            head: plan.head.clone(),
            base: plan.base.clone(),
            made: plan.made,
            changes,
            incomparable: plan.incomparable.clone(),
            on_merge,
        });
        self.put_seen_plans(&plan.pull, &seen)
    }

    /// Records that the plans of a run were posted at `at`: an earlier approval does not apply to them.
    pub fn tell_seen_plans(&self, pull: &PullId, run: &RunId, at: Timestamp) -> Result<()> {
        let jobs: HashSet<JobId> = self.jobs_of(run)?.into_iter().map(|job| job.id).collect();
        for plan in self.plans(pull)?.into_iter().filter(|plan| jobs.contains(&plan.job)) {
            let Some(mut seen) = self.seen_plans(pull, &plan.project)? else { continue };
            seen.plans.iter_mut().filter(|one| one.id == plan.id).for_each(|one| one.made = at);
            self.put_seen_plans(pull, &seen)?;
        }
        Ok(())
    }

    /// Records that a pull request is notified of another one that changes the project too. Returns false if it has had no plan of the
    /// project, if it was notified before, or if it was notified of `at_most` pull requests that are still open.
    pub fn note_other(&self, pull: &PullId, project: &ProjectId, other: u64, at_most: usize) -> Result<bool> {
        let Some(mut seen) = self.seen_plans(pull, project)? else { return Ok(false) };
        if seen.others.contains(&other) {
            return Ok(false);
        }
        if seen.others.len() >= at_most {
            let mut open = Vec::new();
            for number in seen.others {
                let changed = self.changed_projects(&PullId { repo: pull.repo.clone(), number })?;
                open.extend(changed.map(|_| number));
            }
            seen.others = open;
        }
        if seen.others.len() >= at_most {
            return Ok(false);
        }
        seen.others.push(other);
        self.put_seen_plans(pull, &seen)?;
        Ok(true)
    }

    fn put_seen_plans(&self, pull: &PullId, seen: &SeenPlans) -> Result<()> {
        let project = &seen.project;
        self.execute(
            "INSERT INTO seen_plans (pull, dir, workspace, name, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (pull, dir, workspace, name) DO UPDATE SET record = excluded.record",
            params![pull.to_string(), project.dir, project.workspace, name_of(project), json(seen)?],
        )?;
        Ok(())
    }

    /// Drops the seen plans of a closed pull request, except those of projects that it owns.
    pub fn forget_seen_plans(&self, pull: &PullId) -> Result<()> {
        self.execute(
            "DELETE FROM seen_plans WHERE pull = ?1 AND NOT EXISTS (
               SELECT 1 FROM owners o WHERE o.pull = seen_plans.pull AND o.dir = seen_plans.dir
                 AND o.workspace = seen_plans.workspace AND o.name = seen_plans.name)",
            [pull.to_string()],
        )?;
        Ok(())
    }

    /// Drops the seen plans of an ended ownership if its pull request is merged or closed: they are not compared any more.
    pub(super) fn forget_seen_plans_of(&self, owner: &ProjectOwner) -> Result<()> {
        if matches!(owner.state, OwnerState::MergedUnapplied | OwnerState::ClosedApplied) {
            let (pull, project) = (owner.holder.pull.to_string(), &owner.project);
            self.execute(
                "DELETE FROM seen_plans WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
                params![pull, project.dir, project.workspace, name_of(project)],
            )?;
        }
        Ok(())
    }
}
