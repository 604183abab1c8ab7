//! The apply stage of a consumed plan: for a pull request, and for a drift run.

use super::super::errored_state::{kept_file_or_none, with_errored};
use super::super::job::{JobRun, JobTask, Ready};
use super::super::requirements::PullFacts;
use super::bound::as_stale_plan;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::outcome::{Applied, Fault, Outcome, Reason, Verification};
use crate::domain::state::PlanRecord;
use crate::locks::ConsumedPlan;
use crate::runner::result::Ran;
use crate::runner::spec::Steps;
use crate::store::{KeptFile, is_deposed};
use crate::terraform::summary::apply_counts;
use anyhow::Result;

/// A consumed plan for the stage.
pub(in super::super) struct PlanToApply<'a> {
    pub(in super::super) plan: &'a ConsumedPlan,
    /// The text that its file must have; absent if it is not compared.
    pub(in super::super) approved: Option<String>,
    /// Steps that run before the stage, in a tree that was made again.
    pub(in super::super) first: Vec<Step>,
}

/// Runs the stage. Returns the outcome, and the state that Terraform could not save.
/// An error means that this server does not lead any more, and that nothing was started, or that the job goes on at its executor.
pub(in super::super) async fn run(
    job: &mut JobRun<'_>,
    config: &ProjectConfig,
    to_apply: PlanToApply<'_>,
    ready: &Ready,
    facts: &PullFacts,
) -> Result<(Outcome, Option<KeptFile>)> {
    let ctx = job.ctx;
    // The beginning is committed. A server that leads since then has reported the job as interrupted.
    if let Err(error) = ctx.store.may_act().await {
        if is_deposed(&error) {
            return Err(error);
        }
        ctx.runner.remove_plan_file(&ready.place).await;
        let message = format!("Terraform was not started, because the vault cannot be reached: {error:#}");
        return Ok((Outcome::Errored(Fault { reason: Reason::Internal, message, output: String::new() }), None));
    }
    let PlanToApply { plan, approved, first } = to_apply;
    let steps = Steps::Stage { first, steps: config.workflow.apply.clone() };
    let ran = job.run(config, ready, facts, JobTask::Apply { steps, plan, approved }, ()).await?;
    Ok(self::outcome(job, config, plan.record(), ran).await)
}

/// Returns the outcome of an apply whose stage has ended, and the state that Terraform could not save.
pub(in super::super) async fn outcome(
    job: &JobRun<'_>,
    config: &ProjectConfig,
    plan: &PlanRecord,
    ran: Ran,
) -> (Outcome, Option<KeptFile>) {
    let outcome = match job.failed(config, &ran) {
        None => applied(ran.output, ran.verification, &config.workflow.apply, plan),
        Some(outcome) => as_stale_plan(outcome),
    };
    let errored = match ran.errored_state {
        Some(state) => kept_file_or_none(job.ctx, state.path).await,
        None => None,
    };
    let outcome = if errored.is_some() { with_errored(outcome, &job.record.id) } else { outcome };
    (outcome, errored)
}

/// Returns the outcome with the counts of Terraform's output, which a workflow of `run` steps may not print.
fn applied(output: String, verification: Option<Verification>, steps: &[Step], plan: &PlanRecord) -> Outcome {
    let builtin = steps.iter().any(|step| matches!(step, Step::Apply { .. }));
    let (added, changed, destroyed) = apply_counts(&output).unwrap_or(if builtin {
        (plan.summary.add, plan.summary.change, plan.summary.destroy)
    } else {
        (0, 0, 0)
    });
    Outcome::Applied(Applied { added, changed, destroyed, output, part: plan.part.clone(), verification })
}
