//! Layers, in mode `strict`: a project is planned after its dependencies are applied. A plan that is made earlier reads outputs that are
//! about to change.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::wanted_lock;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::command::Trigger;
use crate::schedule::Schedule;
use anyhow::Result;
use std::collections::BTreeSet;

/// Returns the projects of the pull request that have to be applied before this one is planned. Empty if somebody asks for its plan by
/// name, which gives a preview, and after the merge, where the plan is compared with the approved one.
pub(super) async fn waits_for(
    ctx: &Context,
    work: &CommandRun,
    schedule: &Schedule,
    config: &ProjectConfig,
) -> Result<Vec<ProjectId>> {
    let of_units = schedule.units.get(&config.id).map(|of| &of.on);
    let is_asked_for = work.command.target.names_some() && work.command.trigger != Trigger::Replan;
    let has_none = config.depends_on.is_empty() && of_units.is_none_or(BTreeSet::is_empty);
    if is_asked_for || has_none || work.after_merge.is_some() || !wanted_lock(ctx, work, config).is_strict() {
        return Ok(Vec::new());
    }
    let (pull, head) = (work.pull.id.clone(), &work.pull.head.commit);
    let statuses = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let is_named = |on: &ProjectId| {
        let by_name = config.depends_on.iter().any(|name| on.name.as_ref() == Some(name));
        *on != config.id && (by_name || of_units.is_some_and(|dirs| dirs.contains(&on.dir)))
    };
    let is_done = |on: &ProjectId| {
        let mut of_project = statuses.iter().filter(|status| status.project == *on && status.head == *head);
        of_project.any(|status| status.state.is_done())
    };
    // A project that the pull request does not change has only a preview, which nobody applies: nothing waits for it.
    let changed = schedule.changed.iter().map(|changed| &changed.project);
    Ok(changed.filter(|on| is_named(on) && !is_done(on)).cloned().collect())
}
