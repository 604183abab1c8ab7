//! Renamed projects: ownership under a name that the configuration does not have any more moves to the present name of the same state.

use super::command_run::CommandRun;
use super::context::Context;
use super::{plan, recorder};
use crate::domain::state::PlanRecord;
use crate::domain::{ProjectId, PullId};
use crate::locks::{LockEvent, is_old_name};
use crate::store::Tx;
use anyhow::Result;

/// Records the present names of the projects of a pull request. Returns the plans that were dropped with an old name.
pub(super) fn record(tx: &Tx<'_>, pull: &PullId, projects: Vec<ProjectId>) -> Result<Vec<PlanRecord>> {
    let owns_another = tx.owners_of(pull)?.iter().any(|owner| !projects.contains(&owner.project));
    if projects.is_empty()
        || !(owns_another || tx.plans(pull)?.iter().any(|plan| is_old_name(&plan.project, &projects)))
    {
        return Ok(Vec::new());
    }
    let event = LockEvent::ProjectsNamed { pull: pull.clone(), projects };
    Ok(tx.record_lock_event(&event)?.dropped())
}

/// Does the same for unapplied projects after the merge, if the base branch has renamed one.
pub(super) async fn record_owed(ctx: &Context, work: &CommandRun, projects: Option<Vec<ProjectId>>) -> Result<()> {
    let known = work.after_merge.as_ref().map(|after| &after.owed);
    let Some(projects) = projects.filter(|projects| Some(projects) != known) else { return Ok(()) };
    let pull = work.pull.id.clone();
    let dropped = recorder::facts(ctx, move |tx| record(tx, &pull, projects)).await?;
    plan::remove_plan_files(ctx, &dropped).await;
    Ok(())
}
