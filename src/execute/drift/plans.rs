//! Plans of a drift run: a project is planned only while no pull request holds it. A remediation applies each plan before it plans the next
//! project.

use super::super::capacity;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::groups::{Done, Groups, Projects};
use super::super::ids::random_bits;
use super::super::job::{self, JobRun, JobTask, Ready};
use super::super::job_end::JobChange;
use super::super::not_run::NotRun;
use super::super::permissions::RefusedProjects;
use super::super::plan::remove_plan_files;
use super::super::prepare::Prepared;
use super::super::requirements::PullFacts;
use super::applies::{self, DriftApplies, PlannedDrift};
use super::{DriftRequest, skip_reason};
use crate::config::ProjectConfig;
use crate::domain::drift::{DriftFinding, ProjectDrift};
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Planned, Reason};
use crate::domain::state::PlanRecord;
use crate::domain::{JobId, PlanId, ProjectId};
use crate::runner::spec::Steps;
use crate::schedule::Schedule;
use crate::terraform::summary::{plan_resources, plan_summary};
use anyhow::Result;
use jiff::Timestamp;

/// The plans of one run.
pub(super) struct DriftPlans<'a> {
    pub(super) ctx: &'a Context,
    pub(super) request: &'a DriftRequest,
    pub(super) work: &'a CommandRun,
    pub(super) prepared: &'a Prepared,
    pub(super) facts: &'a PullFacts,
    pub(super) schedule: &'a Schedule,
    /// Applies of the plans; absent if nothing is applied.
    pub(super) applies: Option<DriftApplies<'a>>,
}

/// Drift of a project, with the text of its plan.
pub(super) type DriftFound = (ProjectDrift, Option<String>);

/// Returns true if a project could not be planned.
pub(super) fn is_error(found: &ProjectDrift) -> bool {
    matches!(found.finding, DriftFinding::Failed(_))
}

impl Done for DriftFound {
    fn project(&self) -> &ProjectId {
        &self.0.project
    }

    fn is_success(&self) -> bool {
        self.0.finding.summary().is_some()
    }
}

impl Projects for DriftPlans<'_> {
    type Done = DriftFound;
    const DONE: &'static str = "put right";

    /// Returns true if a project does not start after another one has failed. Plans that are not applied do not depend on each other.
    fn depends(&self, schedule: &Schedule, config: &ProjectConfig, on: &ProjectId) -> bool {
        let is_named = on.name.as_ref().is_some_and(|name| config.depends_on.contains(name));
        let is_unit = schedule.dependencies.get(&config.id).is_some_and(|all| all.contains(on));
        // The dependencies of such a unit are not all known; units that ran before it are of earlier layers.
        let may_be_unit =
            schedule.units.get(&config.id).is_some_and(|of| of.may_be_more) && schedule.units.contains_key(on);
        self.applies.is_some() && (is_named || is_unit || may_be_unit)
    }

    /// Plans one project; an error becomes its own finding.
    async fn run(&self, config: &ProjectConfig, _: &[ProjectId]) -> Result<DriftFound> {
        match self.attempt(config).await {
            Ok(found) => Ok(found),
            Err(reason) => {
                let outcome = reason.outcome(self.ctx, self.work)?;
                Ok(self.failed(job::refused_outcome(self.work, config, outcome)))
            }
        }
    }

    async fn skip(&self, outcome: JobOutcome) -> Result<DriftFound> {
        Ok(self.failed(outcome))
    }
}

impl DriftPlans<'_> {
    /// Plans all projects in the order of the schedule. An error means that this server does not lead any more.
    pub(super) async fn run_all(&self) -> Result<Vec<DriftFound>> {
        // Each plan is applied before the next project is planned.
        let in_parallel = self.schedule.parallel_plan && self.applies.is_none();
        let at_once = if in_parallel { self.ctx.settings.parallel_pool_size } else { 1 };
        Groups { schedule: self.schedule, refused: &RefusedProjects::default(), at_once }.run(self.work, self).await
    }

    async fn attempt(&self, config: &ProjectConfig) -> Result<DriftFound, NotRun> {
        self.work.cancel.check()?;
        if let Some(refused) = self.applies.and_then(|_| applies::refusal(self.ctx, config)) {
            return Err(refused.into());
        }
        if let Some(skipped) = self.skipped(&config.id, None).await? {
            return Ok(skipped);
        }
        let ready = job::ready(self.ctx, self.work, self.prepared, config).await?;
        // Terragrunt asks the units that it depends on for their outputs, in their directories.
        let on = self.schedule.units.get(&config.id).into_iter().flat_map(|of| &of.on);
        let dirs = on.filter_map(|dir| job::project_dir(&ready.place.tree.root, dir).ok());
        let dirs = dirs.chain([ready.place.dir.clone()]).collect();
        let _directories = self.ctx.runner.directories.lock_all(dirs).await;
        let (found, plan) = self.plan(config, &ready).await?;
        match (self.applies, found, plan) {
            (Some(applies), (found, output), Some(plan)) if found.finding.has_drift() => {
                let output = output.unwrap_or_default();
                Ok(self.apply(applies, PlannedDrift { config, ready: &ready, found, output, plan }).await?)
            }
            (_, found, plan) => {
                remove_plan_files(self.ctx, plan.as_slice()).await;
                Ok(found)
            }
        }
    }

    /// Plans a project. Returns its drift, with the plan if that is to be applied.
    async fn plan(&self, config: &ProjectConfig, ready: &Ready) -> Result<(DriftFound, Option<PlanRecord>), NotRun> {
        let permit = capacity::enter_for_plan(self.ctx, self.work, &config.id).await?;
        let (mut job, ()) = JobRun::begin(self.ctx, self.work, config, |_, _| Ok(())).await?;
        let steps = Steps::Stage { first: Vec::new(), steps: config.workflow.plan.clone() };
        let id = PlanId::from_bits(random_bits());
        let task = match self.applies {
            None => JobTask::Steps(steps),
            Some(_) => JobTask::Plan { steps, id: id.clone(), dirs: vec![config.id.dir.clone()], changes_key: None },
        };
        let mut ran = job.run(config, ready, self.facts, task, permit).await;
        let plan = ran.plan.take().map(|made| job.bound_plan(config, id, &ready.place, made, &ran.output));
        let outcome = match job.failed(config, &ran) {
            Some(outcome) => outcome,
            None => planned(ran.output),
        };
        let outcome = job.outcome(outcome);
        // Somebody may have begun to change the project while it was planned.
        let skipped = self.skipped(&config.id, outcome.job.clone()).await?;
        let outcome = job.end(outcome, JobChange::Nothing).await?;
        if let Some(skipped) = skipped {
            return Ok((skipped, plan));
        }
        let JobOutcome { project, job, outcome: Outcome::Planned(made), .. } = outcome else {
            return Ok((self.failed(outcome), plan));
        };
        Ok(((self.found(&project, job, DriftFinding::Planned(made.summary)), Some(made.output)), plan))
    }

    /// Returns the record of a project that a pull request holds; `None` if it is free.
    pub(super) async fn skipped(&self, project: &ProjectId, job: Option<JobId>) -> Result<Option<DriftFound>> {
        let (repo, asked) = (self.request.repo.clone(), project.clone());
        let block = self.ctx.store.read(move |view| view.drift_block(&repo, &asked)).await?;
        Ok(block.map(|block| {
            let because = skip_reason(self.ctx, &block);
            (self.found(project, job, DriftFinding::Skipped { block, because }), None)
        }))
    }

    pub(super) fn failed(&self, outcome: JobOutcome) -> DriftFound {
        let text = self.ctx.statuses.one_line(&outcome);
        (self.found(&outcome.project, outcome.job, DriftFinding::Failed(text)), None)
    }

    fn found(&self, project: &ProjectId, job: Option<JobId>, finding: DriftFinding) -> ProjectDrift {
        ProjectDrift {
            detection: self.work.run.id.clone(),
            repo: self.request.repo.clone(),
            branch: self.request.branch.clone(),
            reference: self.request.reference.clone(),
            commit: self.work.pull.head.commit.clone(),
            project: project.clone(),
            checked: Timestamp::now(),
            job,
            finding,
        }
    }
}

/// Returns the outcome of a plan by the totals in its text, which are all that is known of drift.
fn planned(output: String) -> Outcome {
    match plan_summary(&output) {
        Some(summary) => {
            Outcome::Planned(Planned { summary, resources: plan_resources(&output), output, ..Planned::default() })
        }
        None => Outcome::Errored(Fault {
            reason: Reason::Plan,
            message: "The output of the plan has no totals, so nobody knows whether there is drift".to_owned(),
            output,
        }),
    }
}
