//! The part of an automatic apply before its projects begin: it applies those that are due, and says nothing if none is.

use super::super::answer::CommandAnswer;
use super::super::auto_apply;
use super::super::command_run::{CommandRun, Ended};
use super::super::context::Context;
use super::super::not_run::NotRun;
use super::super::permissions::RefusedProjects;
use super::super::plan::{answer_stop, answer_stop_with_hooks};
use super::super::preconditions::Preconditions;
use super::super::prepare::{Prepared, Stop};
use super::super::status_update::StatusUpdate;
use super::super::{hooks, recorder};
use super::{ApplyRun, destroys};
use crate::config::ProjectConfig;
use crate::domain::auto_apply::{PlannedProject, Readiness, due};
use crate::domain::outcome::{Fault, Reason};
use crate::domain::state::PlanRecord;
use crate::domain::{AutoApply, ProjectId};
use crate::schedule::Schedule;
use anyhow::Result;
use std::sync::PoisonError;

/// Ends an apply that stops before its projects begin. The next event looks again whether an automatic one is due.
pub(super) async fn stopped(
    ctx: &Context,
    work: &CommandRun,
    prepared: Option<&Prepared>,
    stop: Stop,
) -> Result<Ended> {
    match (stop, prepared) {
        (Stop::Fault(fault), Some(prepared)) if auto_apply::is_automatic(work) => {
            not_due_after_hooks(ctx, work, prepared, &fault.message).await
        }
        (Stop::Fault(fault), None) if auto_apply::is_automatic(work) => not_due(ctx, work, &fault.message).await,
        (stop, Some(prepared)) => answer_stop_with_hooks(ctx, work, prepared, stop).await,
        (stop, None) => answer_stop(ctx, work, stop).await,
    }
}

/// Ends an automatic apply of which nothing is due, without a comment.
pub(super) async fn not_due(ctx: &Context, work: &CommandRun, because: &str) -> Result<Ended> {
    tracing::info!(pull = %work.pull.id, "not applied automatically now: {because}");
    if work.has_hooks() {
        // The run was recorded before its hooks.
        return recorder::answer(ctx, work, CommandAnswer::new(None, StatusUpdate::Nothing)).await;
    }
    let cause = work.run.cause.clone();
    recorder::facts(ctx, move |tx| tx.end_cause(&cause, "nothing is due")).await?;
    Ok(Ended::answered())
}

/// Does the same once the hooks before the command have run: those after it give back what they took.
pub(super) async fn not_due_after_hooks(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    because: &str,
) -> Result<Ended> {
    let ended = not_due(ctx, work, because).await?;
    hooks::after(ctx, work, &prepared.tree, false).await;
    Ok(ended)
}

/// Projects of an apply that may be automatic.
pub(super) enum DueProjects {
    /// Some are applied; always for an apply that is not automatic.
    Some,
    /// None is due.
    Nothing,
}

/// Takes out of the schedule what does not begin now. An automatic apply keeps only projects that are due, and later groups only once all
/// earlier ones are applied. Any other apply keeps only destroys that it names.
pub(super) async fn narrow(
    run: &ApplyRun<'_>,
    schedule: &mut Schedule,
    refused: &mut RefusedProjects,
) -> Result<DueProjects, Stop> {
    if auto_apply::is_automatic(run.work) {
        run.keep_due(schedule, refused.first_group).await?;
        schedule.abort_on_execution_order_fail = true;
        *refused = RefusedProjects::default();
        if schedule.groups.iter().all(Vec::is_empty) {
            return Ok(DueProjects::Nothing);
        }
    } else {
        let remark = destroys::keep_named(run.ctx, run.work, schedule, refused);
        run.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remark);
    }
    Ok(DueProjects::Some)
}

/// Returns the remark on an automatic apply; `None` for any other.
pub(super) fn remark(work: &CommandRun) -> Option<String> {
    let user = &work.command.user;
    let name = if user.is_unknown() { String::new() } else { format!(", in the name of {user}") };
    auto_apply::is_automatic(work).then(|| format!("Applied automatically (`auto_apply`){name}."))
}

impl ApplyRun<'_> {
    /// Removes the projects that are not due from the schedule of an automatic apply. `refused`: projects that the person may not apply.
    async fn keep_due(&self, schedule: &mut Schedule, refused: Option<i64>) -> Result<(), Stop> {
        let (mut planned, mut ready): (Vec<PlannedProject>, Vec<ProjectId>) = (Vec::new(), Vec::new());
        for (group, projects) in schedule.groups.iter().enumerate() {
            for config in projects {
                let is_behind = refused.is_some_and(|first| first < config.execution_order_group);
                let readiness = if is_behind { Readiness::Waits } else { self.readiness(config, &ready).await? };
                planned.push(PlannedProject { project: config.id.clone(), group, readiness });
            }
            ready = due(&planned);
        }
        schedule.groups.iter_mut().for_each(|group| group.retain(|config| ready.contains(&config.id)));
        Ok(())
    }

    async fn readiness(&self, config: &ProjectConfig, applied: &[ProjectId]) -> Result<Readiness, Stop> {
        let Some(plan) = self.plans_to_apply.plan(&config.id) else { return Ok(Readiness::Waits) };
        let when = config.auto_apply.and(plan.auto_apply);
        if plan.has_nothing_to_do() {
            return Ok(Readiness::Done);
        }
        if when.is_never() {
            return Ok(Readiness::Waits);
        }
        match self.would_apply(config, plan, applied).await {
            Ok(()) if when == AutoApply::Approved && !self.is_approved(plan).await? => Ok(Readiness::Waits),
            Ok(()) => Ok(Readiness::Ready),
            Err(NotRun::Failure(failure)) => {
                let project = config.id.label();
                tracing::debug!(pull = %self.work.pull.id, project, "not applied automatically: {failure:?}");
                Ok(Readiness::Waits)
            }
            Err(NotRun::Stop(stop)) => Err(stop),
        }
    }

    /// Checks what an apply of the project checks, as far as that needs no place to apply in.
    async fn would_apply(
        &self,
        config: &ProjectConfig,
        plan: &PlanRecord,
        applied: &[ProjectId],
    ) -> Result<(), NotRun> {
        let mut preconditions = Preconditions::load(self.ctx, self.work, config, &self.work.cancel).await?;
        preconditions.draft = self.current.draft(self.ctx, self.work, config).await;
        preconditions.apply = Some(self.preconditions(config, plan, applied, None));
        preconditions.check(self.ctx).await?;
        self.outputs_are_there(plan, applied)?;
        self.require(config, plan, self.facts).await
    }

    /// Returns true if the person in whose name it is applied approved what the plan shows.
    async fn is_approved(&self, plan: &PlanRecord) -> Result<bool, Stop> {
        let reviews = self.facts.reviews(self.ctx, self.work).await.map_err(|error| {
            let message = format!("the host did not report the reviews: {error}");
            Stop::Fault(Fault { reason: Reason::Internal, message, output: String::new() })
        })?;
        let user = &self.work.command.user;
        let mut approvers = auto_apply::approvers(reviews, &self.work.pull.author, plan);
        Ok(approvers.any(|approver| user.is_unknown() || approver.is(user)))
    }
}
