//! Plans of a drift run: a project is planned only while no pull request holds it. A remediation applies each plan before it plans the next
//! project.

use super::super::groups::{Done, Projects};
use super::super::job;
use super::super::job_end::JobChange;
use super::super::not_run::NotRun;
use super::super::plan::{KeptPlan, MadePlan, PlanRun, remove_plan_files};
use super::applies::{self, DriftApplies, PlannedDrift};
use super::{DriftRequest, skip_reason};
use crate::config::ProjectConfig;
use crate::domain::drift::{DriftFinding, ProjectDrift};
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Planned, Reason};
use crate::domain::{JobId, ProjectId};
use crate::terraform::summary::{plan_resources, plan_summary};
use anyhow::Result;
use jiff::Timestamp;

/// The plans of one drift run.
pub(super) type DriftPlans<'a> = PlanRun<'a, OfBranch<'a>>;

/// Data shared by the projects of a drift run.
pub(super) struct OfBranch<'a> {
    pub(super) request: &'a DriftRequest,
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

impl Projects for PlanRun<'_, OfBranch<'_>> {
    type Done = DriftFound;
    const DONE: &'static str = "put right";

    async fn attempt(&self, config: &ProjectConfig, _: &[ProjectId]) -> Result<DriftFound, NotRun> {
        if self.of.request.scheduled.is_some() {
            tokio::select! {
                () = self.work.cancel.token.cancelled() => {}
                () = self.ctx.admission.let_others_pass() => {}
            }
        }
        self.work.cancel.check()?;
        if let Some(refused) = self.of.applies.and_then(|_| applies::refusal(self.ctx, config)) {
            return Err(refused.into());
        }
        if let Some(skipped) = self.skipped(&config.id, None).await? {
            return Ok(skipped);
        }
        let kept = self.of.applies.map(|_| KeptPlan { dirs: vec![config.id.dir.clone()], changes_key: None });
        let ready = job::ready(self.ctx, self.work, self.prepared, config);
        let (job, (), made) = self.plan(config, ready, kept, |_, _| Ok(())).await?;
        let (outcome, plan) = match made {
            Ok(MadePlan { ready, output, record }) => (planned(output), record.map(|record| (ready, record))),
            Err(outcome) => (outcome, None),
        };
        let outcome = job.outcome(outcome);
        // Somebody may have begun to change the project while it was planned.
        let skipped = self.skipped(&config.id, outcome.job.clone()).await?;
        let outcome = job.end(outcome, JobChange::Nothing).await?;
        let (found, output) = skipped.unwrap_or_else(|| self.ended(outcome));
        match (self.of.applies, plan) {
            (Some(applies), Some((ready, plan))) if found.finding.has_drift() => {
                let output = output.unwrap_or_default();
                Ok(self.apply(applies, PlannedDrift { config, ready: &ready, found, output, plan }).await?)
            }
            (_, plan) => {
                let plan = plan.map(|(_, plan)| plan);
                remove_plan_files(self.ctx, plan.as_slice()).await;
                Ok((found, output))
            }
        }
    }

    async fn refused(&self, outcome: JobOutcome) -> Result<DriftFound> {
        Ok(self.failed(outcome))
    }
}

impl DriftPlans<'_> {
    /// Returns the drift that a plan has found.
    fn ended(&self, outcome: JobOutcome) -> DriftFound {
        match outcome {
            JobOutcome { project, job, outcome: Outcome::Planned(made), .. } => {
                (self.found(&project, job, DriftFinding::Planned(made.summary)), Some(made.output))
            }
            outcome => self.failed(outcome),
        }
    }

    /// Returns the record of a project that a pull request holds; `None` if it is free.
    pub(super) async fn skipped(&self, project: &ProjectId, job: Option<JobId>) -> Result<Option<DriftFound>> {
        let (repo, asked) = (self.of.request.repo.clone(), project.clone());
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
            repo: self.of.request.repo.clone(),
            branch: self.of.request.branch.clone(),
            reference: self.of.request.reference.clone(),
            commit: self.work.pull.head.commit.clone(),
            project: project.clone(),
            checked: Timestamp::now(),
            job,
            finding,
            // The record knows them.
            since: None,
            planned: None,
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
