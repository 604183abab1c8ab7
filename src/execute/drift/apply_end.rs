//! The end of an apply of a remediation: what follows from its outcome, whichever server has begun it.

use super::super::command_run::{CommandRun, audit_entry};
use super::super::context::Context;
use super::super::job_end::{JobChange, StateChangeEnd};
use super::super::state_locks;
use super::remedy::MAX_OUTPUT;
use crate::domain::RunId;
use crate::domain::drift::{DriftApplyEnd, ProjectDrift, Remediation};
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{AuditEntry, PlanRecord};
use crate::store::KeptFile;
use anyhow::{Context as _, Result};

/// Returns the end of an apply for its remediation.
pub(super) async fn of_outcome(ctx: &Context, work: &CommandRun, outcome: &JobOutcome) -> DriftApplyEnd {
    let remark = state_locks::remark(ctx, &work.pull.id, outcome).await;
    let words = [Some(ctx.statuses.one_line(outcome)), remark];
    let error = (!outcome.outcome.is_success()).then(|| words.into_iter().flatten().collect::<Vec<_>>().join(". "));
    let output = match &outcome.outcome {
        Outcome::Applied(applied) => applied.output.clone(),
        Outcome::Errored(fault) => fault.output.clone(),
        _ => String::new(),
    };
    DriftApplyEnd { output, error }
}

/// Returns the change that comes with the end of an apply: it releases the lock, and invalidates plans of pull requests that were made from
/// the earlier state.
pub(super) fn change(
    plan: &PlanRecord,
    errored: Option<KeptFile>,
    remediation: Option<(ProjectDrift, Remediation)>,
    audit: AuditEntry,
) -> JobChange {
    JobChange::StateChanged(Box::new(StateChangeEnd {
        invalidates_plans: true,
        outputs: !plan.summary.no_changes,
        because: format!("{} was applied", plan.project.label()),
        errored,
        remediation,
        audit,
        ..StateChangeEnd::default()
    }))
}

/// Returns the change that comes with the end of an apply that an earlier server has begun.
pub(in super::super) async fn of_taken_up(
    ctx: &Context,
    work: &CommandRun,
    plan: &PlanRecord,
    outcome: &JobOutcome,
    errored: Option<KeptFile>,
) -> Result<JobChange> {
    let mut end = of_outcome(ctx, work, outcome).await;
    if end.output.len() > MAX_OUTPUT {
        end.output.clear();
    }
    let (repo, job) = (work.pull.id.repo.clone(), outcome.job.clone().context("an apply without a job")?);
    let known = ctx.store.read(move |view| view.remediations(&repo)).await?;
    let remediation = known.into_iter().find_map(|mut remediation| {
        let project = remediation.applied_by(&job)?;
        project.end_apply(end.clone());
        Some((project.found.clone(), remediation))
    });
    let request = remediation.as_ref().map(|(_, remediation)| remediation.id.clone());
    let result = if outcome.outcome.is_success() { "applied" } else { "failed" };
    Ok(change(plan, errored, remediation, audit(work, request.as_ref(), plan, result)))
}

/// Returns an entry of the audit log on an apply of this plan. `request` is the remediation.
pub(super) fn audit(work: &CommandRun, request: Option<&RunId>, plan: &PlanRecord, result: &str) -> AuditEntry {
    AuditEntry {
        plan: plan.sha256.clone(),
        request: request.map(RunId::to_string),
        ..audit_entry(work, &plan.project, result.to_owned())
    }
}
