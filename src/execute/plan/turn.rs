//! The turn of a pull request whose projects the rules of autoplan leave out: whoever waited for them is told that they are free.

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

/// Those of the projects that the pull request waited for because it was refused, or because of others of its own. Of plans that fell it
/// was told as they fell.
pub(crate) async fn waited_for(ctx: &Context, pull: &PullId, mut projects: Vec<ProjectId>) -> Result<Vec<ProjectId>> {
    let pull = pull.clone();
    let (waits, statuses) =
        ctx.store.read(move |view| Ok((view.waits_of(&pull)?, view.project_statuses(&pull)?))).await?;
    projects.retain(|project| {
        let is_deferred = |status: &ProjectStatus| status.project == *project && status.state == ProjectState::Deferred;
        waits.iter().any(|wait| wait.project == *project && wait.cause != WaitCause::Fall)
            || statuses.iter().any(is_deferred)
    });
    Ok(projects)
}

/// Projects of this turn that are neither planned nor refused.
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
        // Under a new name, where it has one.
        let is_it = |id: &ProjectId| id == project || (id.is_same_state(project) && !asked.contains(id));
        schedule.groups.iter().flatten().any(|config| is_it(&config.id))
            || refused.outcomes.iter().any(|outcome| outcome.project == *project)
    };
    let left: Vec<ProjectId> = asked.iter().filter(|project| !is_planned(project)).cloned().collect();
    if left.is_empty() { Ok(left) } else { waited_for(ctx, &work.pull.id, left).await }
}

/// The answer to a turn without any plan: it tells what is free, where there is something.
pub(super) fn told(free: Vec<ProjectId>, answer: CommandAnswer) -> CommandAnswer {
    if free.is_empty() {
        return answer;
    }
    let because = "autoplan leaves them out".to_owned();
    CommandAnswer { body: Some(ReplyBody::Message(Message::LockFreed { projects: free, because })), ..answer }
}

/// What is said under the plans of a turn: of each project that is free and left out, and why the others are planned.
pub(super) fn remarks(ctx: &Context, work: &CommandRun, free: &[ProjectId]) -> Vec<String> {
    let of_free = |project: &ProjectId| {
        let command = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
        format!("`{}` is free again, and autoplan leaves it out. To plan it: `{command}`", project.label())
    };
    let mut remarks: Vec<String> = free.iter().map(of_free).collect();
    if work.command.trigger == Trigger::Replan {
        remarks.push(
            "Planned without being asked: it got free, its last plan fell, or what it waited for is applied."
                .to_owned(),
        );
    }
    remarks
}
