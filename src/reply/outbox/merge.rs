//! Merges a pull request once the effects recorded before it are done: a status that the host requires is set then.
//!
//! A merge names the applied head, so that it happens once even if it is tried several times: a pull request that is already merged
//! counts as merged. Its end is recorded together with its consequence: the closing, as if its delivery had arrived, or the comment
//! about a refusal. A refusal is final, and so is a host that does not respond for long.

use super::{Outbox, OutboxInner, Worker, lock};
use crate::domain::automerge::{Automerge, MergeAttempt};
use crate::domain::reply::{Message, Reply};
use crate::domain::state::{Delivery, Effect, PendingEffect};
use crate::domain::{CommitSha, DeliveryId, Event, Login, PullAction, PullEvent, PullRequest, PullState, PullVersion};
use crate::reply::comments;
use crate::reply::duplicates::HostOrStateError;
use crate::store::{Lane, View};
use crate::vcs::{HostError, Merging, SourceBranch};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for effects recorded before it: those that the host refuses do not delay it without limit.
const FOR_OTHERS: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of attempts while the host does not respond; with the pauses this takes some minutes.
const MAX_TRIES: u32 = 10;
/// Reason of a refusal if the state has changed since the end of the apply.
const NOT_DUE: &str = "not all projects are applied any more: one was planned again or unlocked after the apply";

/// Result of a merge.
enum MergeEnd {
    Merged(Box<PullRequest>),
    /// The host merges it when its turn in the merge queue comes.
    Queued,
    /// It was closed meanwhile; the closing itself reports that.
    Closed,
    Refused(String),
}

impl Worker {
    /// Runs one round of the merge: tries it or waits. Returns true if none is left. `waits` has the times before which it must not be
    /// tried again.
    pub(super) async fn merge_round(&self, waits: &mut HashMap<i64, Instant>) -> anyhow::Result<bool> {
        let (shared, pull) = (&self.shared, self.key.0.clone());
        let found = shared.store.read(move |view| {
            let Some(merge) = view.effects_of(&pull, Lane::Merge, 1)?.pop() else { return Ok(None) };
            let is_first = !view.has_effects_before(&pull, merge.id)?;
            Ok(Some((merge, is_first)))
        });
        let Some((merge, is_first)) = found.await? else { return Ok(true) };
        let now = Instant::now();
        let paused = lock(&shared.pauses).get(&self.key.0.repo.host).copied();
        let retried = waits.get(&merge.id).copied().max(paused).filter(|until| *until > now);
        if let Some(until) = retried {
            self.wait_until(until).await;
            return Ok(false);
        }
        if !is_first && let Some(left) = for_others(&merge) {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.wake.notified() => {}
            }
            return Ok(false);
        }
        let Effect::Merge { head, how, .. } = &merge.effect else { return Ok(true) };
        let Some(_slot) = shared.slot(&merge.pull.repo).await else { return Ok(true) };
        let end = match shared.merge(&merge, head, how).await {
            Ok(end) => end,
            Err(HostOrStateError::State(error)) => return Err(error),
            Err(HostOrStateError::Host(error)) if error.is_transient() && merge.attempts + 1 < MAX_TRIES => {
                let pause = shared.pause_after(&merge, &error);
                tracing::warn!(pull = %merge.pull, "{error}; trying to merge again in {pause:?}");
                waits.insert(merge.id, now + pause);
                let id = merge.id;
                shared.store.write(move |tx| tx.effect_tried(id)).await?;
                return Ok(false);
            }
            Err(HostOrStateError::Host(error)) => MergeEnd::Refused(told(&error)),
        };
        shared.record_merge(&merge, end).await?;
        Outbox { shared: Arc::clone(shared) }.wake(&merge.pull);
        Ok(false)
    }
}

/// Returns the time for which it still waits for effects that were recorded before it.
fn for_others(merge: &PendingEffect) -> Option<Duration> {
    let age = Timestamp::now().duration_since(merge.recorded?);
    let left = Duration::try_from(FOR_OTHERS.checked_sub(age)?).ok()?;
    (!left.is_zero()).then_some(left)
}

/// Returns the host's reason, and what can be done about it.
fn told(error: &HostError) -> String {
    match error {
        HostError::Rejected { message, .. } => format!("the host does not merge this pull request: {}", message.trim()),
        HostError::Denied { message, .. } => format!(
            "the host does not let the server's account merge: {}. `tidelock doctor` says what its token lacks",
            message.trim().trim_end_matches('.')
        ),
        error => error.to_string(),
    }
}

impl OutboxInner {
    /// Reads the present pull request from the host, and merges it if it is still the one that was applied.
    async fn merge(
        &self,
        effect: &PendingEffect,
        head: &CommitSha,
        how: &Automerge,
    ) -> Result<MergeEnd, HostOrStateError> {
        let host = self.hosts.for_repo(&effect.pull.repo)?;
        let now = host.pull_request(&effect.pull).await?;
        let merged = match now.state {
            PullState::Merged { .. } => now,
            PullState::Closed => return Ok(MergeEnd::Closed),
            PullState::Open => {
                if let Some(because) = how.refusal(&now, head) {
                    return Ok(MergeEnd::Refused(because));
                }
                if !self.is_still_due(&now, how).await? {
                    return Ok(MergeEnd::Refused(NOT_DUE.to_owned()));
                }
                self.store.may_act().await?;
                let source = if how.delete_branch { SourceBranch::Delete } else { SourceBranch::Keep };
                match host.merge(&now, how.method.as_deref(), source).await? {
                    Merging::Queued => return Ok(MergeEnd::Queued),
                    Merging::Merged(commit) => PullRequest { state: PullState::Merged { commit }, ..now },
                }
            }
        };
        if how.delete_branch && !merged.fork && merged.head.commit == *head {
            self.store.may_act().await?;
            if let Err(error) = host.delete_source_branch(&merged).await {
                tracing::warn!(pull = %effect.pull, "it is merged, and its source branch stays: {error}");
            }
        }
        Ok(MergeEnd::Merged(Box::new(merged)))
    }

    /// Returns true if everything is still applied: while the merge waited, projects may have been planned again, or unlocked.
    async fn is_still_due(&self, now: &PullRequest, how: &Automerge) -> anyhow::Result<bool> {
        let (now, how) = (now.clone(), how.clone());
        let read = move |view: &View<'_>| {
            Ok(view.fault(&now.id)?.is_none() && how.is_due(&now, &view.project_statuses(&now.id)?))
        };
        self.store.read(read).await
    }

    /// Records in one commit that the effect is done, and its consequence. Then passes that on to dispatch, or to the lane of comments.
    async fn record_merge(&self, effect: &PendingEffect, end: MergeEnd) -> anyhow::Result<()> {
        let Effect::Merge { head, refusal, again, .. } = &effect.effect else { return Ok(()) };
        let (id, pull) = (effect.id, effect.pull.clone());
        let mut because_again = None;
        let (note, delivery, effects) = match end {
            MergeEnd::Merged(merged) => ("merged".to_owned(), Some(closing(*merged, head)), Vec::new()),
            MergeEnd::Queued => ("queued by the host".to_owned(), None, Vec::new()),
            MergeEnd::Closed => ("closed meanwhile".to_owned(), None, Vec::new()),
            MergeEnd::Refused(because) => {
                let reply = Reply::new(refusal.clone(), &pull, Message::NotMerged { because: because.clone() });
                let told = comments::effects_on(&self.hosts, &self.rendering.get(), &reply);
                let note_on = if *again { MergeAttempt::repeated_refusal_note } else { MergeAttempt::refusal_note };
                let note = note_on(&because);
                because_again = again.then_some(because);
                (note, None, told)
            }
        };
        tracing::info!(%pull, head = head.as_str(), "automerge: {note}");
        let (of, accepted) = (pull.clone(), delivery.clone());
        let recorded = self.store.write(move |tx| {
            if let Some(delivery) = &accepted {
                tx.accept_delivery(delivery)?;
            }
            let before = tx.merge_before(&of, id)?;
            let is_told =
                because_again.is_some() && before.is_some_and(|one| one.refusal() == because_again.as_deref());
            if !is_told {
                tx.post(&of, effects)?;
            }
            tx.effect_done(id, &note)
        });
        recorded.await?;
        if let Some(delivery) = delivery {
            // Without a receiver this server is stopping: the next start handles it.
            let _ = self.merged.send(delivery).await;
        }
        Ok(())
    }
}

/// Returns the closing as a delivery of our own, so that this server releases locks and plans by what it knows.
fn closing(pull: PullRequest, head: &CommitSha) -> Delivery {
    let identity = DeliveryId::new(format!("merged:{}:{head}", pull.id));
    let action = PullAction::Closed { merged: true };
    let event =
        Event::Pull(PullEvent { action, pull: pull.into(), sender: Login::unknown(), version: PullVersion::default() });
    Delivery { identity, host_id: "merged".to_owned(), received: Timestamp::now(), event }
}
