//! Turns of pull requests whose projects autoplan leaves out: the pull request that waited for them is notified that they are free.

use super::super::answer::CommandAnswer;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use crate::comment::command_for;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::reply::{Message, ReplyBody};
use crate::domain::state::{ProjectState, ProjectStatus};
use crate::domain::waiting::WaitCause;
use crate::domain::{ProjectId, PullId};
use crate::execute::permissions::RefusedProjects;
use crate::schedule::Schedule;
use anyhow::Result;
use std::collections::BTreeSet;

/// Returns the projects that the pull request waited for because it was refused, or because of other projects of its own. It was notified
/// of invalidated plans and failed applies when that happened.
pub(crate) async fn waited_for(ctx: &Context, pull: &PullId, mut projects: Vec<ProjectId>) -> Result<Vec<ProjectId>> {
    let pull = pull.clone();
    let (waits, statuses) =
        ctx.store.read(move |view| Ok((view.waits_of(&pull)?, view.project_statuses(&pull)?))).await?;
    projects.retain(|project| {
        let is_deferred = |status: &ProjectStatus| status.project == *project && status.state == ProjectState::Deferred;
        waits.iter().any(|wait| wait.project == *project && wait.cause.is_refusal()) || statuses.iter().any(is_deferred)
    });
    Ok(projects)
}

/// Returns the projects of this turn that are neither planned nor refused.
pub(super) async fn left_out(
    ctx: &Context,
    work: &CommandRun,
    schedule: &Schedule,
    refused: &RefusedProjects,
) -> Result<Vec<ProjectId>> {
    if work.command.trigger != Trigger::Replan {
        return Ok(Vec::new());
    }
    let asked = &work.command.target.exactly;
    let is_planned = |project: &ProjectId| {
        // It may be planned under a new name.
        let is_it = |id: &ProjectId| id == project || (id.is_same_state(project) && !asked.contains(id));
        schedule.groups.iter().flatten().any(|config| is_it(&config.id))
            || refused.outcomes.iter().any(|outcome| outcome.project == *project)
    };
    let left: Vec<ProjectId> = asked.iter().filter(|project| !is_planned(project)).cloned().collect();
    if left.is_empty() { Ok(left) } else { waited_for(ctx, &work.pull.id, left).await }
}

/// Returns the causes of this turn, from the waits and statuses before its locks are taken; none for other plans.
pub(super) async fn causes(ctx: &Context, work: &CommandRun) -> Result<BTreeSet<&'static str>> {
    if work.command.trigger != Trigger::Replan {
        return Ok(BTreeSet::new());
    }
    let pull = work.pull.id.clone();
    let (waits, statuses) =
        ctx.store.read(move |view| Ok((view.waits_of(&pull)?, view.project_statuses(&pull)?))).await?;
    let cause = |project: &ProjectId| {
        let wait = waits.iter().find(|wait| wait.project == *project).map(|wait| wait.cause);
        let state = statuses.iter().find(|status| status.project == *project).map(|status| status.state);
        match (wait, state) {
            (_, Some(ProjectState::Deferred)) => Some("a dependency was applied"),
            (Some(WaitCause::Plan | WaitCause::Apply), _) => Some("a project was released"),
            // A plan that goes on after a restart has left the line.
            (Some(WaitCause::ApplyFailed), _) | (None, Some(ProjectState::ApplyErrored)) => Some("the apply failed"),
            (Some(WaitCause::Invalidated), _) | (None, Some(ProjectState::PlanInvalidated)) => {
                Some("the last plan was invalidated")
            }
            (None, _) => None,
        }
    };
    Ok(work.command.target.exactly.iter().filter_map(cause).collect())
}

/// Returns the answer to a turn without any plan: a notice of the free projects, if there are any.
pub(super) fn told(free: Vec<ProjectId>, answer: CommandAnswer) -> CommandAnswer {
    if free.is_empty() {
        return answer;
    }
    let because = match free.len() {
        1 => "autoplan does not include this project".to_owned(),
        _ => "autoplan does not include these projects".to_owned(),
    };
    CommandAnswer { body: Some(ReplyBody::Message(Message::LockFreed { projects: free, because })), ..answer }
}

/// Returns the remarks below the plans of a turn: on each free project that is left out, and on the causes of the other plans.
pub(super) fn remarks(ctx: &Context, work: &CommandRun, free: &[ProjectId], causes: &BTreeSet<&str>) -> Vec<String> {
    let of_free = |project: &ProjectId| {
        let command = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
        format!("`{}` is released, but autoplan does not include it. To plan it: `{command}`", project.label())
    };
    let mut remarks: Vec<String> = free.iter().map(of_free).collect();
    if work.command.trigger == Trigger::Replan {
        let causes = causes.iter().copied().collect::<Vec<_>>().join(", ");
        let separator = if causes.is_empty() { "" } else { ": " };
        remarks.push(format!("Planned automatically{separator}{causes}."));
    }
    remarks
}
