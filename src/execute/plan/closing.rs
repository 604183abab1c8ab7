//! A plan does not begin while a pull request that holds one of its projects is being closed: it would be refused by what is about to be
//! free, and planned again a moment later.

use super::super::{CommandRun, Context};
use super::wanted_lock;
use crate::domain::{Event, ProjectId, PullAction, PullId, RepoId};
use crate::locks::blocker;
use crate::schedule::Schedule;
use crate::store::View;
use anyhow::Result;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait: a close waits for the end of a plan that it interrupts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until closes and merges that were accepted before this plan have freed its projects.
pub(super) async fn wait(ctx: &Context, work: &CommandRun, schedule: &Schedule) -> Result<()> {
    let wanted = schedule.groups.iter().flatten().map(|config| wanted_lock(ctx, work, config));
    let projects: Vec<ProjectId> =
        wanted.filter(|wanted| wanted.is_locked_by_plan()).map(|wanted| wanted.lock.project).collect();
    if projects.is_empty() {
        return Ok(());
    }
    let mut ends = ctx.store.ends();
    let until_free = async {
        loop {
            // What ends from here on is not missed.
            ends.borrow_and_update();
            let (pull, projects) = (work.pull.id.clone(), projects.clone());
            if !ctx.store.read(move |view| is_held_by_closing(view, &pull, &projects)).await? {
                return Ok(());
            }
            tokio::select! {
                changed = ends.changed() => changed?,
                () = work.cancel.token.cancelled() => return Ok(()),
            }
        }
    };
    // Nothing is wrong with a plan that is refused.
    timeout(PATIENCE, until_free).await.unwrap_or(Ok(()))
}

fn is_held_by_closing(view: &View<'_>, pull: &PullId, projects: &[ProjectId]) -> Result<bool> {
    let mut holders = HashSet::new();
    for project in projects {
        holders.extend(holder_of(view, &pull.repo, pull, project)?);
    }
    if holders.is_empty() {
        return Ok(false);
    }
    let unfinished = view.unfinished_deliveries()?;
    Ok(unfinished.iter().any(|(delivery, _)| match &delivery.event {
        Event::Pull(event) => matches!(event.action, PullAction::Closed { .. }) && holders.contains(&event.pull.id),
        _ => false,
    }))
}

fn holder_of(view: &View<'_>, repo: &RepoId, pull: &PullId, project: &ProjectId) -> Result<Option<PullId>> {
    let locks: Vec<_> = view.project_lock(repo, project)?.into_iter().collect();
    let owners = view.owners_of_project(repo, project)?;
    Ok(blocker(&locks, &owners, pull, project).cloned())
}
