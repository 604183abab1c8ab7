//! Applies that are refused or answered as a whole, before any project is checked.

use super::super::answer::CommandAnswer;
use super::super::applicable_plans::ApplicablePlans;
use super::super::command_run::{CommandRun, Ended};
use super::super::context::Context;
use super::super::preconditions::apply_lock_text;
use super::super::prepare::{self, Need};
use super::super::status_update::StatusUpdate;
use super::super::{auto_apply, automerge, hooks, merged, recorder};
use super::automatic;
use crate::domain::reply::Message;
use anyhow::Result;

/// Returns the answer to an apply that has nothing to do or may not begin; `None` if it goes on.
pub(super) async fn refused_as_a_whole(
    ctx: &Context,
    work: &mut CommandRun,
    plans_to_apply: &ApplicablePlans,
) -> Result<Option<CommandAnswer>> {
    if let Some(answer) = disabled(ctx, work).await? {
        return Ok(Some(answer));
    }
    if merged::is_guarded(work) && plans_to_apply.is_empty() {
        return Ok(Some(merged::nothing_same(ctx)));
    }
    if plans_to_apply.is_empty()
        && let Some(how) = automerge::pending_merge(ctx, work).await?
    {
        work.run.automerge = Some(how);
        return Ok(Some(CommandAnswer::new(None, StatusUpdate::AfterApply { failed: None })));
    }
    Ok(plans_to_apply.refusal(ctx, work))
}

/// Answers an apply that is refused as a whole. Hooks run for it as well, as in Atlantis; a tree that cannot be made does not change
/// the refusal. An automatic apply is not due then, and nothing is posted.
pub(super) async fn refuse(
    ctx: &Context,
    work: &CommandRun,
    plans_to_apply: &ApplicablePlans,
    answer: CommandAnswer,
) -> Result<Ended> {
    if auto_apply::is_automatic(work) {
        return automatic::not_due(ctx, work, "it is refused as a whole").await;
    }
    if work.has_hooks()
        && let Ok(prepared) = prepare::check_out(ctx, work, Need::Plans(plans_to_apply)).await
    {
        hooks::before(ctx, work, &prepared.tree).await?;
        return hooks::answer_before(ctx, work, &prepared.tree, answer).await;
    }
    recorder::answer(ctx, work, answer).await
}

/// Returns the answer if applies are stopped.
async fn disabled(ctx: &Context, work: &CommandRun) -> Result<Option<CommandAnswer>> {
    let lock = ctx.store.read(|view| view.apply_lock()).await?;
    let because = if let Some(lock) = lock {
        apply_lock_text(&lock)
    } else if ctx.settings.disable_apply_all && !work.command.target.names_some() {
        "`--disable-apply-all` is set: apply one project at a time, with `-d`, `-w` or `-p`".to_owned()
    } else {
        return Ok(None);
    };
    Ok(Some(CommandAnswer::message(Message::ApplyDisabled { because })))
}
