//! Commands on a pull request that is merged and not applied. People type them, or they follow from a merge, or from a plan with the same
//! changes as the one before the merge.

use super::actor::{expired_command_refusal, fetch_pull, later, not_served, start_with};
use super::inner::Inner;
use super::queues::Item;
use super::recorder::Commit;
use super::resume;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::ownership::OwnerState;
use crate::domain::reply::Message;
use crate::domain::state::Delivery;
use crate::domain::{CommitSha, FollowUp, Login, PullId, PullRequest};
use crate::execute::merged::{self, AfterMerge};
use crate::execute::{CancelReason, Ended, permissions};
use crate::store::Tx;
use anyhow::Result;
use std::sync::Arc;

/// Records, in the transaction of a merge, the apply of the projects that were planned with `on_merge: apply`. The person who merged
/// applies. Returns `None` if there is nothing to apply, or it is recorded already.
pub(super) fn record_apply(tx: &Tx<'_>, pull: &PullId, merged: &CommitSha, by: &Login) -> Result<Option<Delivery>> {
    let mut owners = tx.owners_of(pull)?;
    owners.retain(|owner| owner.state == OwnerState::MergedUnapplied);
    owners.retain(|owner| owner.approved.as_ref().is_some_and(|approved| approved.on_merge));
    if owners.is_empty() {
        return Ok(None);
    }
    let command = Command::new(CommandName::Apply, Trigger::Merge, by.clone());
    let projects = owners.into_iter().map(|owner| owner.project).collect();
    let delivery = FollowUp { pull: pull.clone(), command, projects, round: 0 }.delivery(&format!("merged:{merged}"));
    Ok(tx.accept_delivery(&delivery)?.then_some(delivery))
}

/// Runs the apply that follows from a merge or a plan. Posts nothing if no project is left to apply.
pub(super) async fn follow_up(inner: &Arc<Inner>, follow_up: &FollowUp, item: &Item) -> Result<()> {
    let (id, command) = (&follow_up.pull, &follow_up.command);
    // Nobody waits for an apply that follows from a merge, so it does not become stale.
    let said = format!("{} apply", inner.ctx.rendering.executable);
    if let Some(because) =
        expired_command_refusal(&said, command.name, item.received).filter(|_| command.trigger != Trigger::Merge)
    {
        return inner.answer_delivery(id, &item.cause, Some(command), Some(Message::Interrupted { because })).await;
    }
    if !inner.names.allowed.contains(&CommandName::Apply) {
        let because = "`apply` is not in the server's `--allow-commands`, so nothing is applied after the merge. Ask an operator to add \
                       it".to_owned();
        return inner.answer_delivery(id, &item.cause, Some(command), Some(Message::NotPermitted { because })).await;
    }
    let pull = match fetch_pull(inner, id).await {
        Ok(pull) => pull,
        Err(error) => {
            let because = format!(
                "The pull request could not be read from the host, so nothing was applied: {error}. Comment again: `{said}`"
            );
            return inner.fail_delivery(id, &item.cause, command, &because).await;
        }
    };
    let mut owed = merged::owed(&inner.ctx, &pull, command).await?.unwrap_or_default();
    owed.retain(|project| follow_up.projects.is_empty() || follow_up.asks_for(project));
    if owed.is_empty() || (pull.fork && !inner.ctx.settings.allow_fork_prs) {
        return inner.answer_delivery(id, &item.cause, Some(command), None).await;
    }
    let after = AfterMerge { owed, pull: pull.clone(), guarded: Some(follow_up.clone()), files: None };
    run(inner, pull, command.clone(), after, item).await
}

/// Runs a command at the tip of the base branch.
pub(super) async fn run(
    inner: &Arc<Inner>,
    pull: PullRequest,
    command: Command,
    after: AfterMerge,
    item: &Item,
) -> Result<()> {
    let id = pull.id.clone();
    if !inner.ctx.global.rules(&id.repo, &pull.base.branch).branch_allowed {
        let message = Message::NotPermitted { because: not_served(inner, &pull, &command) };
        return inner.answer_delivery(&id, &item.cause, Some(&command), Some(message)).await;
    }
    let at_tip = match merged::at_tip(&inner.ctx, &pull).await {
        Ok(at_tip) => at_tip,
        Err(error) => {
            let because = format!(
                "The base branch could not be fetched, so nothing was done: {error}. Comment again: `{}`",
                permissions::typed(&inner.ctx, &command)
            );
            return inner.fail_delivery(&id, &item.cause, &command, &because).await;
        }
    };
    let (mut command, mut after) = (command, after);
    if command.name == CommandName::Apply
        && (resume::was_planning(inner, &item.cause).await?
            || !merged::is_planned(&inner.ctx, &at_tip, &command, &after).await?)
    {
        (command, after) = merged::plan_first(&at_tip, command, after);
    }
    match start_with(inner, at_tip, command.clone(), &item.cause, Some(after)).await? {
        Ended::Answered { .. } => Ok(()),
        Ended::Stopped(CancelReason::Shutdown) => later(inner, &id, &item.cause).await,
        // These events are about the pull request before its merge; they change nothing here.
        Ended::Stopped(CancelReason::Push { .. } | CancelReason::Closed) => {
            Commit::about(&id).queued_again(&item.cause).record(inner).await?;
            inner.actors.requeue_front(&id, item.clone());
            Ok(())
        }
        Ended::Stopped(_) => inner.answer_delivery(&id, &item.cause, Some(&command), None).await,
    }
}
