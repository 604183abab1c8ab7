//! Merges that the host has refused because of a policy or a missing approval. They are tried again after a review, a vote or a status, and
//! in rounds of reconciliation, once the host says that it would merge. A merge is repeated only if everything is still applied.

use super::decide::NOT_ALLOWLISTED;
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::recorder;
use crate::domain::automerge::MergeAttempt;
use crate::domain::state::Effect;
use crate::domain::{PullId, RunId, VerdictEvent};
use crate::execute::random_bits;
use crate::reply::duplicates::HostOrStateError;
use crate::store::View;
use anyhow::Result;
use std::sync::Arc;

/// Cause of another attempt to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergeCause {
    /// A review, a vote or a status, or a change that may be one.
    Verdict,
    /// A round of reconciliation. It tries once: a host that says that it would merge, and refuses, must not cause a comment in each round.
    Round,
}

/// Tries the refused merges of the pull requests that the verdict may be about.
pub(super) async fn on_verdict(inner: &Arc<Inner>, verdict: &VerdictEvent) -> DeliveryOutcome {
    if !inner.allowlist.allows(&verdict.repo) {
        return DeliveryOutcome::Ignored(NOT_ALLOWLISTED);
    }
    let about = verdict.clone();
    let found = inner.ctx.store.read(move |view| {
        let mut found = Vec::new();
        for known in view.open_pulls_of(&about.repo)? {
            let is_meant =
                about.number == Some(known.pull.id.number) || about.commit.as_ref() == Some(&known.pull.head.commit);
            if is_meant && refused_merge(view, &known.pull.id, MergeCause::Verdict)?.is_some() {
                found.push(known.pull.id);
            }
        }
        Ok(found)
    });
    match found.await {
        Ok(found) if found.is_empty() => DeliveryOutcome::Ignored("No merge waits for this."),
        Ok(found) => {
            found.iter().for_each(|pull| try_in_background(inner, pull));
            DeliveryOutcome::Queued
        }
        Err(error) => DeliveryOutcome::unrecorded(&error, &verdict.repo, "merges could not be read"),
    }
}

/// Tries a refused merge again, in the background. If that is lost, the next round tries it.
pub(super) fn try_in_background(inner: &Arc<Inner>, pull: &PullId) {
    let (ours, pull) = (Arc::clone(inner), pull.clone());
    inner.tasks.spawn_work(async move {
        let error = match try_again(&ours, &pull, MergeCause::Verdict).await {
            Ok(()) => return,
            Err(HostOrStateError::Host(error)) => error.to_string(),
            Err(HostOrStateError::State(error)) => format!("{error:#}"),
        };
        tracing::warn!(%pull, "a merge that was refused cannot be tried again now: {error}");
    });
}

/// Returns the last merge, if the host refused it and it was at the present head; for a round, only if it was no repetition.
pub(super) fn refused_merge(view: &View<'_>, pull: &PullId, cause: MergeCause) -> Result<Option<MergeAttempt>> {
    let Some(known) = view.pull(pull)?.filter(|known| known.is_open()) else { return Ok(None) };
    let last = view.last_merge(pull)?.filter(|last| last.head == known.head.commit && last.refusal().is_some());
    Ok(last.filter(|last| cause == MergeCause::Verdict || !last.is_repeated()))
}

/// Records the merge once more, if everything is still applied and the host would merge it now.
pub(super) async fn try_again(inner: &Inner, pull: &PullId, cause: MergeCause) -> Result<(), HostOrStateError> {
    let id = pull.clone();
    let Some(last) = inner.ctx.store.read(move |view| refused_merge(view, &id, cause)).await? else { return Ok(()) };
    let host = inner.ctx.hosts.for_repo(&pull.repo)?;
    let now = host.pull_request(pull).await?;
    if !now.is_open() || last.how.refusal(&now, &last.head).is_some() || inner.actors.busy(pull) {
        return Ok(());
    }
    let stands = host.mergeability(&now).await?;
    if !stands.mergeable {
        tracing::debug!(%pull, "still not merged: {}", stands.detail);
        return Ok(());
    }
    let id = pull.clone();
    let record = move |tx: &crate::store::Tx<'_>| {
        let is_due = refused_merge(tx, &id, cause)?.as_ref() == Some(&last)
            && tx.fault(&id)?.is_none()
            && last.how.is_due(&now, &tx.project_statuses(&id)?);
        if is_due {
            let (head, how, refusal) = (last.head.clone(), last.how.clone(), RunId::from_bits(random_bits()));
            tx.post(&id, [Effect::Merge { head, how, refusal, again: true }])?;
        }
        Ok(is_due)
    };
    if recorder::transaction(inner, record).await? {
        tracing::info!(%pull, "the host would merge it now: automerge is tried again");
        inner.ctx.outbox.wake_merge(pull);
    }
    Ok(())
}
