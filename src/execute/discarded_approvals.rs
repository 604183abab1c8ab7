//! `--discard-approval-on-plan`: a plan that somebody asks for dismisses earlier approvals, as they were for another plan.
//!
//! This is recorded only as notifications: a plan that is interrupted before its projects begin runs again, and dismisses the present
//! approvals again. A plan whose projects have begun is resumed without that.

use super::command_run::CommandRun;
use super::context::Context;
use super::prepare::Stop;
use super::recorder;
use super::requirements::PullFacts;
use crate::domain::command::Trigger;
use crate::domain::outcome::{Fault, Reason};
use crate::notifications::ApprovalsLapsed;
use crate::reply::duplicates::HostOrStateError;
use crate::vcs::{HostError, ReviewVerdict};
use anyhow::Result;

/// Dismisses all approvals, if there are any; if that fails, nothing is planned. Requirements of the plan are checked with the reviews from
/// before.
pub(super) async fn discard(ctx: &Context, work: &CommandRun, facts: &PullFacts) -> Result<(), Stop> {
    let is_of_person = matches!(work.command.trigger, Trigger::Comment | Trigger::Page);
    let is_asked_for = is_of_person && work.after_merge.is_none();
    if !ctx.settings.discard_approval_on_plan || !is_asked_for {
        return Ok(());
    }
    let dismissed = async {
        let reviews = facts.reviews(ctx, work).await?;
        let given = reviews.iter().filter(|review| review.verdict == ReviewVerdict::Approved);
        let approvals: Vec<String> = given.map(|review| review.user.shown().to_owned()).collect();
        if approvals.is_empty() {
            return Ok(());
        }
        ctx.store.may_act().await?;
        let user = &work.command.user;
        let because = format!("{user} asked for a new plan: approve what it shows.");
        ctx.hosts.for_repo(&work.pull.id.repo)?.dismiss_approvals(&work.pull, &because).await?;
        tracing::info!(pull = %work.pull.id, user = user.as_str(), "approvals are taken back, as a plan is asked for");
        let because = format!("{user} asked for a new plan");
        notify(ctx, work, approvals, &because).await.map_err(HostOrStateError::State)
    };
    match dismissed.await {
        Ok(()) => Ok(()),
        Err(HostOrStateError::State(error)) => Err(Stop::Other(error)),
        Err(HostOrStateError::Host(error)) => Err(Stop::Fault(fault(ctx, work, &error))),
    }
}

/// Records the notifications of dismissed approvals. A server that is killed before this record notifies nobody.
async fn notify(ctx: &Context, work: &CommandRun, approvals: Vec<String>, because: &str) -> Result<()> {
    let lapsed = ApprovalsLapsed { id: work.run.id.as_str(), pull: &work.pull, project: None, approvals, because };
    let notifications = ctx.notifier.of_lapsed(&lapsed);
    if notifications.is_empty() {
        return Ok(());
    }
    recorder::facts(ctx, move |tx| notifications.iter().try_for_each(|one| tx.notify(one))).await?;
    ctx.notifier.wake();
    Ok(())
}

fn fault(ctx: &Context, work: &CommandRun, error: &HostError) -> Fault {
    let again = super::permissions::typed(ctx, &work.command);
    let message = format!(
        "The server could not dismiss the approvals of this pull request (`--discard-approval-on-plan`), so nothing was planned: {error}. \
         Comment again: `{again}`"
    );
    Fault { reason: Reason::Requirement, message: ctx.redactor.redact(&message), output: String::new() }
}
