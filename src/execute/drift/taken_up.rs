//! Applies of a remediation that went on at executors while no server led: this server follows them to their ends. Nothing else of the
//! remediation goes on.

use super::super::cancel::Cancel;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job::is_left;
use super::super::{recorder, taken_up};
use super::remedy::{apply_command, end_of_run};
use super::stand_in;
use crate::domain::state::Run;
use anyhow::Result;

/// Follows the unfinished applies of a run to their ends, and ends the run. Leaves them if this server stops first.
///
/// # Errors
///
/// That an end could not be recorded, or that this server does not lead any more.
pub(crate) async fn follow(ctx: &Context, run: &Run, cancel: &Cancel) -> Result<()> {
    let (id, repo) = (run.id.clone(), run.pull.repo.clone());
    let (jobs, remediations) = ctx.store.read(move |view| Ok((view.jobs_of(&id)?, view.remediations(&repo)?))).await?;
    let is_of_run = |job: &_| jobs.iter().any(|known| known.id == *job);
    let mut begun = remediations.iter().flat_map(|remediation| remediation.projects());
    let begun = begun.find(|one| one.apply.as_ref().is_some_and(|apply| is_of_run(&apply.job)));
    let branch = begun.map(|one| one.found.branch.clone()).unwrap_or_default();
    let rules = ctx.global.rules(&run.pull.repo, &branch);
    let pull = stand_in(&run.pull.repo, branch, &run.user, run.head.clone(), String::new());
    let command = apply_command(&run.user, &run.head);
    let work = CommandRun::new(run.clone(), pull, command, rules, cancel.clone());
    for job in jobs.into_iter().filter(|job| job.finished.is_none()) {
        match taken_up::ended(ctx, &work, job).await {
            Err(error) if is_left(&error) => {
                tracing::info!(run = run.id.as_str(), "{error}");
                return Ok(());
            }
            ended => ended.map(drop)?,
        }
    }
    let end = end_of_run(&work);
    recorder::ends_with(ctx, Some(&work), end).await
}
