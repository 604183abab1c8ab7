//! The plans that pull requests had of their projects, as digests of what they change.

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
    /// The plans that a pull request had of a project.
    pub fn seen_plans(&self, pull: &PullId, project: &ProjectId) -> Result<Option<SeenPlans>> {
        self.record(
            "SELECT record FROM seen_plans WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
            params![pull.to_string(), project.dir, project.workspace, name_of(project)],
        )
    }

    /// The same of all its projects.
    pub(super) fn all_seen_plans(&self, pull: &PullId) -> Result<Vec<SeenPlans>> {
        self.records("SELECT record FROM seen_plans WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }
}

impl Tx<'_> {
    /// Notes a plan that was made; its digest, if it has one, has this key. A digest of another key compares with nothing, and is dropped.
    /// `on_merge`: as in [`SeenPlan`].
    pub fn note_seen_plan(&self, plan: &PlanRecord, key: &str, on_merge: bool) -> Result<()> {
        let project = &plan.project;
        let known = self.seen_plans(&plan.pull, project)?;
        let (plans, others) = (Vec::new(), Vec::new());
        let mut seen =
            known.unwrap_or_else(|| SeenPlans { project: project.clone(), key: key.to_owned(), plans, others });
        let changes = plan.changes.clone().filter(|_| seen.key == key);
        seen.note(SeenPlan {
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

    /// The plans of a run are told from now on: an approval from before that is none of them.
    pub fn tell_seen_plans(&self, pull: &PullId, run: &RunId, at: Timestamp) -> Result<()> {
        let jobs: HashSet<JobId> = self.jobs_of(run)?.into_iter().map(|job| job.id).collect();
        for plan in self.plans(pull)?.into_iter().filter(|plan| jobs.contains(&plan.job)) {
            let Some(mut seen) = self.seen_plans(pull, &plan.project)? else { continue };
            seen.plans.iter_mut().filter(|one| one.id == plan.id).for_each(|one| one.made = at);
            self.put_seen_plans(pull, &seen)?;
        }
        Ok(())
    }

    /// Notes that a pull request, which has had a plan of the project, is told of another one that changes it too. False: it was told before, or
    /// of as many as it is told of.
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

    /// The pull request is closed: what it does not own is forgotten.
    pub fn forget_seen_plans(&self, pull: &PullId) -> Result<()> {
        self.execute(
            "DELETE FROM seen_plans WHERE pull = ?1 AND NOT EXISTS (
               SELECT 1 FROM owners o WHERE o.pull = seen_plans.pull AND o.dir = seen_plans.dir
                 AND o.workspace = seen_plans.workspace AND o.name = seen_plans.name)",
            [pull.to_string()],
        )?;
        Ok(())
    }

    /// An ownership has ended: of a pull request that is closed nothing is compared any more.
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
