//! All commits of `dispatch`: the progress of deliveries and re-plans, the end of runs that no command ends, and the comments and statuses
//! about it, in one transaction each. Nothing else in `dispatch` writes to the state. The commits of a running command are in the recorder of `execute`.

use super::inner::Inner;
use super::reconcile;
use crate::domain::state::{Cause, Delivery, DeliveryState, Effect};
use crate::domain::{DeliveryId, PullId};
use crate::store::Tx;
use anyhow::Result;

/// One commit about a pull request.
pub(super) struct Commit {
    pull: PullId,
    effects: Vec<Effect>,
    /// Causes that end, with the outcomes.
    done: Vec<(Cause, String)>,
    /// Deliveries to be handled again.
    again: Vec<DeliveryId>,
}

impl Commit {
    /// A commit about this pull request that changes nothing yet.
    pub(super) fn about(pull: &PullId) -> Commit {
        Commit { pull: pull.clone(), effects: Vec::new(), done: Vec::new(), again: Vec::new() }
    }

    /// Adds comments, statuses and reactions to post.
    pub(super) fn posts(mut self, effects: impl IntoIterator<Item = Effect>) -> Commit {
        self.effects.extend(effects);
        self
    }

    /// Ends a delivery or re-plan, with its outcome.
    pub(super) fn done(mut self, cause: &Cause, outcome: impl Into<String>) -> Commit {
        self.done.push((cause.clone(), outcome.into()));
        self
    }

    /// Marks a delivery to be handled again, by this process or the next. A re-plan goes on in any case, until it ends.
    pub(super) fn queued_again(mut self, cause: &Cause) -> Commit {
        self.again.extend(cause.delivery().cloned());
        self
    }

    /// Commits, and then has the outbox post.
    pub(super) async fn record(self, inner: &Inner) -> Result<()> {
        self.record_with(inner, |_| Ok(())).await
    }

    /// The same, with `change` before it in the same transaction. An error of `change` rolls back everything.
    pub(super) async fn record_with<T: Send + 'static>(
        self,
        inner: &Inner,
        change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Commit { pull, effects, done, again } = self;
        let target = pull.clone();
        let written = inner.ctx.store.write(move |tx| {
            let changed = change(tx)?;
            tx.post(&target, effects)?;
            done.iter().try_for_each(|(cause, outcome)| tx.end_cause(cause, outcome))?;
            for delivery in again {
                tx.set_delivery_state(&delivery, DeliveryState::Queued, "to be run again")?;
            }
            Ok(changed)
        });
        let changed = written.await?;
        inner.ctx.outbox.wake(&pull);
        Ok(changed)
    }
}

/// Commits a delivery with its immediate effects and `also`. Returns false, and changes nothing, if it was recorded before or is late, or
/// if `also` returns false. `state` is `Queued`, or `Done` if its effects are all that it causes.
pub(super) async fn accept(
    inner: &Inner,
    delivery: Delivery,
    pull: &PullId,
    effects: Vec<Effect>,
    state: DeliveryState,
    also: impl FnOnce(&Tx<'_>) -> Result<bool> + Send + 'static,
) -> Result<bool> {
    let target = pull.clone();
    let written = inner.ctx.store.write(move |tx| {
        let mark = tx.known_pull(&target)?.and_then(|known| known.watermark);
        let known = reconcile::comes_late(&delivery, mark.as_ref()) || tx.knows_delivery(&delivery.identity)?;
        if known || !also(tx)? || !tx.accept_delivery(&delivery)? {
            return Ok(false);
        }
        tx.post(&target, effects)?;
        if state == DeliveryState::Done {
            tx.set_delivery_state(&delivery.identity, state, "answered at once")?;
        }
        Ok(true)
    });
    let new = written.await?;
    if new {
        inner.ctx.outbox.wake(pull);
    }
    Ok(new)
}

/// Commits a change about no pull request, or about several. The caller wakes the outbox for those whose effects it enqueues.
pub(super) async fn transaction<T: Send + 'static>(
    inner: &Inner,
    change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    inner.ctx.store.write(change).await
}
