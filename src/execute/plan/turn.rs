//! The turn of a pull request whose projects the rules of autoplan leave out: whoever waited for them is told that they are free.

use crate::comment::command_for;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::waiting::WaitCause;
use crate::domain::{ProjectId, PullId};
use crate::execute::permissions::RefusedProjects;
use crate::execute::{CommandRun, Context};
use crate::schedule::Schedule;
use anyhow::Result;

/// Those of the projects that the pull request waited for because it was refused. Of plans that fell it was told as they fell.
pub async fn waited_for(ctx: &Context, pull: &PullId, mut projects: Vec<ProjectId>) -> Result<Vec<ProjectId>> {
    let repo = pull.repo.clone();
    let waiters = ctx.store.read(move |view| view.waiters_in(&repo)).await?;
    projects.retain(|project| {
        let mut own = waiters.iter().filter(|waiter| waiter.pull == *pull && waiter.project == *project);
        own.any(|waiter| waiter.cause != WaitCause::Fall)
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
    let is_planned = |project: &ProjectId| {
        schedule.groups.iter().flatten().any(|config| config.id == *project)
            || refused.outcomes.iter().any(|outcome| outcome.project == *project)
    };
    let left: Vec<ProjectId> =
        work.command.target.exactly.iter().filter(|project| !is_planned(project)).cloned().collect();
    if left.is_empty() { Ok(left) } else { waited_for(ctx, &work.pull.id, left).await }
}

/// Why they are not planned.
pub(super) const NOT_BY_ITSELF: &str = "autoplan leaves them out";

/// What is said of one beside the plans of the others.
pub(super) fn remark(ctx: &Context, project: &ProjectId) -> String {
    let command = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
    format!("`{}` is free again, and autoplan leaves it out. To plan it: `{command}`", project.label())
}
