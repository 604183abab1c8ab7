//! Messages about projects that do not count as applied: those applied in part, such as with `-target`, or whose state was changed after
//! their apply.

use super::context::Context;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Effect, Job};
use crate::render::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;

/// Returns the remark below a plan of part of a project, or below its apply; `None` for whole projects.
pub(super) fn remark(ctx: &Context, job: &JobOutcome) -> Option<String> {
    let part = job.outcome.part()?.replace(", ", "`, `");
    let label = job.project.label();
    let command = |name| command_for(&ctx.rendering.executable, name, &job.project, &[]);
    let next = format!("`{}`, then `{}`", command(CommandName::Plan), command(CommandName::Apply));
    Some(match &job.outcome {
        Outcome::Applied(_) => format!("Only a part of `{label}` is applied (`{part}`). To apply all of it: {next}"),
        _ => format!(
            "The plan of `{label}` covers a part of the project (`{part}`); applying it does not apply the project. For all of it: {next}"
        ),
    })
}

/// Enqueues the overall plan and apply statuses of a pull request, after this job has reset the applied status of one of its projects.
pub(super) fn post_overall_statuses(tx: &Tx<'_>, statuses: &Statuses, job: &Job) -> Result<()> {
    let projects = tx.project_statuses(&job.pull)?;
    let told = [statuses.plan(&projects), statuses.apply(&projects)];
    tx.post(&job.pull, told.map(|status| Effect::Status { commit: job.head.clone(), status }))
}
