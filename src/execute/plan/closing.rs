//! Delays a plan while a pull request that holds one of its projects is being closed. Otherwise the plan would be refused for a lock that
//! is about to be released, and made again a moment later.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::wanted_lock;
use crate::domain::state::ProjectLock;
use crate::domain::{Event, PullAction, PullId};
use crate::locks::{WantedLock, blocker};
use crate::schedule::Schedule;
use crate::store::View;
use anyhow::Result;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum wait: a close waits for the end of a plan that it interrupts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until closes and merges that were accepted before this plan have released its projects.
pub(super) async fn wait(ctx: &Context, work: &CommandRun, schedule: &Schedule) -> Result<()> {
    let wanted = schedule.groups.iter().flatten().map(|config| wanted_lock(ctx, work, config));
    let projects: Vec<WantedLock> = wanted.filter(WantedLock::is_locked_by_plan).collect();
    if projects.is_empty() {
        return Ok(());
    }
    let mut ends = ctx.store.deliveries_finished();
    let until_free = async {
        loop {
            // Deliveries that end from here on are not missed.
            ends.borrow_and_update();
            let projects = projects.clone();
            if !ctx.store.read(move |view| is_held_by_closing(view, &projects)).await? {
                return Ok(());
            }
            tokio::select! {
                changed = ends.changed() => changed?,
                () = work.cancel.token.cancelled() => return Ok(()),
            }
        }
    };
    // After the wait the plan goes on: if it is refused, nothing is lost.
    timeout(PATIENCE, until_free).await.unwrap_or(Ok(()))
}

fn is_held_by_closing(view: &View<'_>, projects: &[WantedLock]) -> Result<bool> {
    let mut holders = HashSet::new();
    for wanted in projects {
        holders.extend(holder_of(view, &wanted.lock)?);
    }
    if holders.is_empty() {
        return Ok(false);
    }
    let unfinished = view.unfinished_deliveries()?;
    Ok(unfinished.iter().any(|(delivery, _)| match &delivery.event {
        Event::Pull(event) => matches!(event.action, PullAction::Closed { .. }) && holders.contains(event.pull.id()),
        _ => false,
    }))
}

fn holder_of(view: &View<'_>, wanted: &ProjectLock) -> Result<Option<PullId>> {
    let ProjectLock { repo, project, holder, address, .. } = wanted;
    let (locks, owners) = (view.locks_of_state(repo, project)?, view.owners_of_state(repo, project)?);
    Ok(blocker(&locks, &owners, &holder.pull, project, address).cloned())
}
