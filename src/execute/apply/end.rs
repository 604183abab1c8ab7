//! The end of an apply of a pull request: what follows from its outcome.

use super::super::command_run::{CommandRun, audit_entry};
use super::super::context::Context;
use super::super::job::JobRun;
use super::super::job_end::{JobChange, StateChangeEnd};
use super::super::merged;
use crate::config::ProjectConfig;
use crate::domain::outcome::{Failure, JobOutcome, Outcome, Reason};
use crate::domain::state::{AuditEntry, PlanRecord, ProjectState, ProjectStatus};
use crate::locks::LockEvent;
use crate::notifications::ApplyEnd;
use crate::store::KeptFile;
use crate::terraform::state_lock::find_lock;
use jiff::Timestamp;

/// Returns the change that comes with the end of an apply. `errored`: the state that Terraform could not save.
pub(in super::super) async fn change(
    ctx: &Context,
    job: &JobRun<'_>,
    config: &ProjectConfig,
    plan: &PlanRecord,
    outcome: &JobOutcome,
    errored: Option<KeptFile>,
) -> JobChange {
    let (work, success) = (job.work, outcome.outcome.is_success());
    let status = ProjectStatus {
        project: config.id.clone(),
        state: if success { ProjectState::after_apply(plan.part.as_deref()) } else { ProjectState::ApplyErrored },
        head: work.pull.head.commit.clone(),
        summary: Some(plan.summary),
        job: Some(job.record.id.clone()),
        updated: Timestamp::now(),
        waits_for: Vec::new(),
    };
    let reason = ctx.statuses.one_line(outcome);
    let (id, pull, command) = (&job.record.id, &work.pull, &work.command);
    let end = ApplyEnd { job: id, project: &config.id, pull, command, success, reason: &reason };
    let whole = success && plan.part.is_none();
    JobChange::StateChanged(Box::new(StateChangeEnd {
        invalidates_plans: true,
        // An apply of no changes leaves the outputs as they were.
        outputs: !plan.summary.no_changes,
        because: format!("{} was applied", config.id.label()),
        notifications: ctx.notifier.of_apply(&end),
        satisfied: if whole { merged::satisfied(ctx, work, config, plan).await } else { None },
        replan: replan(job, config, outcome, errored.as_ref()),
        status: Some(status),
        errored,
        audit: entry(work, config, plan, if success { "applied" } else { "failed" }),
        ..StateChangeEnd::default()
    }))
}

/// Returns the event that queues a re-plan after a failed apply, if `repos.yaml` asks for it. There is none after an apply that was
/// cancelled, was killed or took too long, and none after the merge. There is none either where a plan would fail or mislead: the state
/// is locked, or Terraform could not save it.
fn replan(
    job: &JobRun<'_>,
    config: &ProjectConfig,
    outcome: &JobOutcome,
    errored: Option<&KeptFile>,
) -> Option<LockEvent> {
    let work = job.work;
    let has_failed = match &outcome.outcome {
        Outcome::Errored(fault) => {
            matches!(fault.reason, Reason::Apply | Reason::Init)
                && find_lock(&fault.output).is_none()
                // The file may be there without a copy of it.
                && !fault.output.contains("errored.tfstate")
        }
        // Terraform has found that the plan is out of date.
        Outcome::Failed(failure) => matches!(failure, Failure::StalePlan { .. }),
        _ => false,
    };
    let is_wanted = has_failed
        && work.rules.replan_after_failed_apply
        && work.after_merge.is_none()
        && errored.is_none()
        && !job.was_killed()
        && work.cancel.check().is_ok();
    let (pull, project, at) = (work.pull.id.clone(), config.id.clone(), Timestamp::now());
    is_wanted.then_some(LockEvent::ApplyFailed { pull, project, at })
}

/// Returns an entry of the audit log on an apply of this plan.
pub(super) fn entry(work: &CommandRun, config: &ProjectConfig, plan: &PlanRecord, result: &str) -> AuditEntry {
    let result = if plan.deleted { format!("{result}: destroy of a deleted project") } else { result.to_owned() };
    AuditEntry { plan: plan.sha256.clone(), ..audit_entry(work, &config.id, result) }
}
