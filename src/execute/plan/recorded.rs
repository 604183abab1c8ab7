//! The schedule of a plan as it is recorded with its locks, and the records from which another process resumes the run.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::PlanRecord;
use crate::domain::{JobId, ProjectId};
use crate::schedule::Schedule;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The schedule of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedSchedule {
    base_branch: String,
    groups: Vec<Vec<RecordedProject>>,
    /// Plans that this run replaces.
    pub(super) earlier: Vec<PlanRecord>,
}

/// A project of a schedule. The digest stands for its configuration, which may contain settings of the operator's `repos.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RecordedProject {
    project: ProjectId,
    config_digest: String,
}

impl RecordedSchedule {
    pub(super) fn new(work: &CommandRun, schedule: &Schedule) -> RecordedSchedule {
        let base_branch = work.pull.base.branch.clone();
        RecordedSchedule { base_branch, groups: recorded(schedule), earlier: Vec::new() }
    }
}

fn recorded(schedule: &Schedule) -> Vec<Vec<RecordedProject>> {
    let groups = schedule.groups.iter().map(|group| {
        let projects = group.iter();
        projects.map(|config| RecordedProject { project: config.id.clone(), config_digest: config.digest() }).collect()
    });
    groups.collect()
}

/// Projects that are planned, with the plans that can be applied.
pub(super) type FinishedProjects = Vec<(JobOutcome, PlanRecord)>;

/// A run that another process has begun.
pub(super) struct Resumed {
    pub(super) recorded: RecordedSchedule,
    /// Outcomes of its finished jobs that are still valid.
    pub(super) finished: FinishedProjects,
}

impl Resumed {
    /// Loads the run to resume; with `None` the run begins anew. That is so without a recorded schedule, if the pull request is for another
    /// branch now, or if another version of the server recorded the schedule in an unknown format.
    pub(super) async fn load(ctx: &Context, work: &CommandRun) -> Result<Option<Resumed>> {
        let (run, pull, branch) = (work.run.id.clone(), work.pull.id.clone(), work.pull.base.branch.clone());
        let loaded = ctx.store.read(move |view| {
            let recorded = match view.schedule::<RecordedSchedule>(&run) {
                Ok(Some(recorded)) if recorded.base_branch == branch => recorded,
                Ok(_) => return Ok(None),
                Err(error) => {
                    tracing::warn!(%pull, run = run.as_str(), error = format!("{error:#}"), "a run begins anew: its schedule cannot be read");
                    return Ok(None);
                }
            };
            let digests: HashMap<&ProjectId, &str> =
                recorded.groups.iter().flatten().map(|one| (&one.project, one.config_digest.as_str())).collect();
            let mut plans: HashMap<JobId, PlanRecord> =
                view.plans(&pull)?.into_iter().map(|plan| (plan.job.clone(), plan)).collect();
            let mut finished = Vec::new();
            for job in view.jobs_of(&run)? {
                let Some(outcome) = job.outcome.filter(|outcome| matches!(outcome.outcome, Outcome::Planned(_))) else {
                    continue;
                };
                let digest = digests.get(&outcome.project);
                let is_valid =
                    |plan: &PlanRecord| plan.head == job.head && digest.is_some_and(|digest| *digest == plan.config_digest);
                if let Some(plan) = plans.remove(&job.id).filter(is_valid) {
                    finished.push((outcome, plan));
                }
            }
            Ok(Some(Resumed { recorded, finished }))
        });
        loaded.await
    }

    /// Returns true if the configuration still leads to the recorded schedule.
    pub(super) fn is_of(&self, schedule: &Schedule) -> bool {
        self.recorded.groups == recorded(schedule)
    }
}
