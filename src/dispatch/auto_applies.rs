//! Automatic applies (`auto_apply`). A review, a vote, a status, the end of a plan or a round of reconciliation causes a look at the pull
//! request, which is recorded like a delivery. What is due is applied by a command in the name of a person who caused it and may apply.

use super::actor::{fetch_pull, later, start_with};
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::queues::Item;
use super::recorder::{self, Commit};
use super::resume;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::reply::Message;
use crate::domain::state::{DeliveryState, PlanRecord};
use crate::domain::{AutoApplyEvent, DeliveryId, PullId, PullRequest, VerdictEvent};
use crate::execute::auto_apply::{self, Applier};
use crate::execute::{CancelReason, Ended};
use crate::reply::duplicates::HostOrStateError;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Age of the newest plan from which rounds of reconciliation look only once in the same time again: each look is a row of the state.
const OFTEN: SignedDuration = SignedDuration::from_hours(1);

/// Records a look at each pull request that a verdict may be about. Returns `None` if none of them has plans that are applied
/// automatically. `of` is the identity of the verdict's delivery.
pub(super) async fn on_verdict(inner: &Arc<Inner>, verdict: &VerdictEvent, of: &DeliveryId) -> Option<DeliveryOutcome> {
    let about = verdict.clone();
    let found = inner.ctx.store.read(move |view| {
        let mut found = Vec::new();
        for known in view.open_pulls_of(&about.repo)? {
            let (id, head) = (known.pull.id, known.pull.head.commit);
            let is_meant = about.number == Some(id.number) || about.commit.as_ref() == Some(&head);
            if is_meant && !auto_apply::awaited(view, &id, &head)?.is_empty() {
                found.push(id);
            }
        }
        Ok(found)
    });
    let looked = async {
        let found = found.await?;
        for pull in &found {
            record_look(inner, pull, of.as_str()).await?;
        }
        anyhow::Ok(found.is_empty())
    };
    match looked.await {
        Ok(is_about_none) => (!is_about_none).then_some(DeliveryOutcome::Queued),
        Err(error) => {
            Some(DeliveryOutcome::unrecorded(&error, &verdict.repo, "automatic applies could not be looked for"))
        }
    }
}

/// Does the same for a change of a pull request that may be a vote.
pub(super) async fn on_update(inner: &Arc<Inner>, pull: &PullId, of: &DeliveryId) {
    let verdict = VerdictEvent { repo: pull.repo.clone(), number: Some(pull.number), commit: None };
    if inner.allowlist.allows(&pull.repo) {
        on_verdict(inner, &verdict, of).await;
    }
}

/// Records a look at a pull request and enqueues it, unless one waits in its queue. `cause` causes only one.
async fn record_look(inner: &Arc<Inner>, pull: &PullId, cause: &str) -> Result<()> {
    if inner.actors.looks_for_auto_apply(pull) {
        return Ok(());
    }
    let delivery = AutoApplyEvent::delivery(pull, cause);
    if recorder::accept(inner, delivery.clone(), pull, Vec::new(), DeliveryState::Queued, |_| Ok(true)).await? {
        resume::take_up(inner, delivery);
    }
    Ok(())
}

/// Records a look of a round of reconciliation, if the host says that an automatic apply may be due.
pub(super) async fn in_round(inner: &Arc<Inner>, pull: &PullId) -> Result<(), HostOrStateError> {
    let id = pull.clone();
    let awaited = inner.ctx.store.read(move |view| {
        let Some(known) = view.pull(&id)?.filter(PullRequest::is_open) else { return Ok(None) };
        let plans = auto_apply::awaited(view, &id, &known.head.commit)?;
        Ok((!plans.is_empty()).then_some((known, plans)))
    });
    let Some((known, plans)) = awaited.await? else { return Ok(()) };
    let now = Timestamp::now();
    let is_new = plans.iter().any(|plan| now.duration_since(plan.made) < OFTEN);
    if inner.actors.busy(pull) || refusal(inner, &known).is_some() || !(is_new || is_first_round_of_period(inner, now))
    {
        return Ok(());
    }
    let Applier::Person(_) = auto_apply::applier(&inner.ctx, &known, &plans).await? else { return Ok(()) };
    Ok(record_look(inner, pull, &format!("round:{}", now.as_microsecond())).await?)
}

/// Returns true if the round before this one was in an earlier period of [`OFTEN`].
fn is_first_round_of_period(inner: &Inner, now: Timestamp) -> bool {
    let before = now.as_second() - inner.ctx.settings.reconcile_interval.as_secs().cast_signed();
    before / OFTEN.as_secs() != now.as_second() / OFTEN.as_secs()
}

/// Looks at a pull request, and applies what is due. Posts nothing if nothing is.
pub(super) async fn look(inner: &Arc<Inner>, event: &AutoApplyEvent, item: &Item) -> Result<()> {
    let id = &event.pull;
    let pull = match fetch_pull(inner, id).await {
        Ok(pull) => pull,
        Err(error) => return not_due(inner, id, item, &format!("the host does not answer: {error}")).await,
    };
    let (of, head) = (id.clone(), pull.head.commit.clone());
    let plans = inner.ctx.store.read(move |view| auto_apply::awaited(view, &of, &head)).await?;
    if let Some(because) = refusal(inner, &pull) {
        return not_due(inner, id, item, because).await;
    }
    let user = match auto_apply::applier(&inner.ctx, &pull, &plans).await {
        Ok(Applier::Person(user)) => user,
        Ok(Applier::NotYet(because)) => return not_due(inner, id, item, &because).await,
        Ok(Applier::Nobody(because)) => return tell_nobody(inner, item, &plans, because).await,
        Err(HostOrStateError::Host(error)) => return not_due(inner, id, item, &error.to_string()).await,
        Err(HostOrStateError::State(error)) => return Err(error),
    };
    let command =
        Command { at: Some(pull.head.commit.clone()), ..Command::new(CommandName::Apply, Trigger::AutoApply, user) };
    match start_with(inner, pull, command, &item.cause, None).await? {
        Ended::Answered { .. } => Ok(()),
        Ended::Stopped(CancelReason::Shutdown) => later(inner, id, &item.cause).await,
        Ended::Stopped(_) => not_due(inner, id, item, "it was stopped").await,
    }
}

/// Returns the reason for which nothing of a pull request is applied automatically, whatever its plans are.
fn refusal(inner: &Inner, pull: &PullRequest) -> Option<&'static str> {
    if !inner.names.allowed.contains(&CommandName::Apply) {
        Some("`apply` is not in `--allow-commands`")
    } else if !inner.allowlist.allows(&pull.id.repo) {
        Some("the repository is not served")
    } else if !pull.is_open() {
        Some("it is not open")
    } else if pull.draft {
        Some("it is a draft")
    } else if pull.fork && !inner.ctx.settings.allow_fork_prs {
        Some("it comes from a fork")
    } else {
        let is_served = inner.ctx.global.rules(&pull.id.repo, &pull.base.branch).branch_allowed;
        (!is_served).then_some("its base branch is not served")
    }
}

async fn not_due(inner: &Inner, pull: &PullId, item: &Item, because: &str) -> Result<()> {
    tracing::info!(%pull, "not applied automatically now: {because}");
    Commit::about(pull).done(&item.cause, because).record(inner).await
}

/// Posts that none of the people who caused it may apply; once for the same plans.
async fn tell_nobody(inner: &Inner, item: &Item, plans: &[PlanRecord], because: String) -> Result<()> {
    let Some(newest) = plans.iter().max_by_key(|plan| plan.made) else { return Ok(()) };
    let (pull, told) = (newest.pull.clone(), AutoApplyEvent::delivery(&newest.pull, &format!("told:{}", newest.id)));
    let because = format!("This was not applied automatically (`auto_apply`). {because}");
    let effects = inner.answer(&pull, None, Message::NotPermitted { because });
    let commit = Commit::about(&pull).done(&item.cause, "nobody who caused it may apply");
    let record = commit.record_with(inner, move |tx| {
        if tx.accept_delivery(&told)? {
            tx.set_delivery_state(&told.identity, DeliveryState::Done, "told")?;
            tx.post(&pull, effects)?;
        }
        Ok(())
    });
    record.await
}
