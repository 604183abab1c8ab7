//! A project that is applied in part, such as with `-target`, or whose state was changed after its apply, is not done: what people read of
//! that.

use super::context::Context;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Effect, Job};
use crate::reply::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;

/// What is said below a plan of a part, and below its apply.
pub(super) fn remark(ctx: &Context, job: &JobOutcome) -> Option<String> {
    let part = job.outcome.part()?.replace(", ", "`, `");
    let label = job.project.label();
    let command = |name| command_for(&ctx.rendering.executable, name, &job.project, &[]);
    let next = format!("`{}`, then `{}`", command(CommandName::Plan), command(CommandName::Apply));
    Some(match &job.outcome {
        Outcome::Applied(_) => format!(
            "`{label}` is applied in part (`{part}`), which does not count as its apply. To apply all of it: {next}"
        ),
        _ => format!(
            "The plan of `{label}` is of a part of the project (`{part}`): to apply it does not count as the project's apply. For all of \
             it: {next}"
        ),
    })
}

/// Tells how the plans and applies of a pull request stand, as this job has taken back that one of its projects is done.
pub(super) fn tell(tx: &Tx<'_>, statuses: &Statuses, job: &Job) -> Result<()> {
    let projects = tx.project_statuses(&job.pull)?;
    let told = [Some(statuses.plan(&projects)), statuses.apply(&projects, true)].into_iter().flatten();
    tx.post(&job.pull, told.map(|status| Effect::Status { commit: job.head.clone(), status }))
}
