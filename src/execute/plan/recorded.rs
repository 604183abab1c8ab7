//! The schedule of a plan as it is recorded with its locks, and what a process finds that goes on with the run of another one.

use super::super::{CommandRun, Context};
use crate::config::ProjectConfig;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::PlanRecord;
use crate::schedule::Schedule;
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The schedule of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedSchedule {
    /// Commit of the base branch that the run began with.
    pub(super) base: String,
    base_branch: String,
    groups: Vec<Vec<ProjectConfig>>,
    /// Plans that this run replaces.
    pub(super) earlier: Vec<PlanRecord>,
}

impl RecordedSchedule {
    pub(super) fn new(work: &CommandRun, base: &str, schedule: &Schedule) -> RecordedSchedule {
        RecordedSchedule {
            base: base.to_owned(),
            base_branch: work.pull.base.branch.clone(),
            groups: schedule.groups.clone(),
            earlier: Vec::new(),
        }
    }
}

/// A run that another process has begun.
pub(super) struct Resumed {
    pub(super) recorded: RecordedSchedule,
    /// What its finished jobs came to, as far as that is still valid: plans that can be applied.
    pub(super) finished: Vec<(JobOutcome, PlanRecord)>,
}

impl Resumed {
    /// Absent where the run has got no further than its beginning, or the pull request is for another branch now.
    pub(super) async fn load(ctx: &Context, work: &CommandRun) -> Result<Option<Resumed>> {
        let (run, pull) = (work.run.id.clone(), work.pull.id.clone());
        let loaded = ctx.store.read(move |view| {
            let Some(recorded) = view.schedule::<RecordedSchedule>(&run)? else { return Ok(None) };
            let plans = view.plans(&pull)?;
            let mut finished = Vec::new();
            for job in view.jobs_of(&run)? {
                let Some(outcome) = job.outcome.filter(|outcome| matches!(outcome.outcome, Outcome::Planned(_))) else {
                    continue;
                };
                let config = recorded.groups.iter().flatten().find(|config| config.id == outcome.project);
                let is_its_plan = |plan: &&PlanRecord| {
                    let is_same = config.is_some_and(|config| config.digest() == plan.config_digest);
                    plan.job == job.id && plan.head == job.head && is_same
                };
                if let Some(plan) = plans.iter().find(is_its_plan) {
                    finished.push((outcome, plan.clone()));
                }
            }
            Ok(Some(Resumed { recorded, finished }))
        });
        Ok(loaded.await?.filter(|resumed| resumed.recorded.base_branch == work.pull.base.branch))
    }

    /// Whether the configuration still leads to the schedule that was recorded.
    pub(super) fn is_of(&self, schedule: &Schedule) -> bool {
        self.recorded.groups == schedule.groups
    }

    /// Whether this project is finished.
    pub(super) fn has(&self, config: &ProjectConfig) -> bool {
        self.finished.iter().any(|(outcome, _)| outcome.project == config.id)
    }
}
