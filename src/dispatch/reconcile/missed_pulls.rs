//! Pushes and openings of which no delivery came.

use super::{COMMENTS_KNOWN, Decision, FRESH, HostOrStateError, MISSED, Round, is_as_looked_at};
use crate::dispatch::queues::Task;
use crate::domain::state::Watermark;
use crate::domain::{DeliveryId, Event, Login, PullAction, PullEvent, PullRequest};
use crate::store::{KnownPull, Tx};
use crate::vcs::OpenPull;
use anyhow::Result;
use jiff::Timestamp;

impl Round<'_> {
    /// Takes up a push. The watermark is recorded with it, so that its delivery is late from then on. Returns false, and does nothing, if
    /// something else was recorded since `known` was read.
    pub(super) async fn pushed(&self, now: &OpenPull, known: KnownPull, mark: &mut Watermark) -> Result<bool> {
        let pull = now.pull.clone();
        let (id, head) = (pull.id.clone(), pull.head.commit.clone());
        let identity = DeliveryId::new(format!("{MISSED}{id}:push:{head}"));
        mark.taken = Some((head, now.version.clone()));
        let taken = mark.clone();
        // The pusher is unknown, and need not be the author.
        let sender = Login::unknown();
        let event = PullEvent { action: PullAction::Pushed, pull: pull.into(), sender, version: now.version.clone() };
        let event = Event::Pull(event);
        let decision = self.inner.decide(&event, &id);
        let record = move |tx: &Tx<'_>| {
            let is_as_looked_at = is_as_looked_at(tx, &id, Some(&known))?;
            if is_as_looked_at {
                tx.set_watermark(&id, &taken)?;
            }
            Ok(is_as_looked_at)
        };
        self.take_up(identity, event, Timestamp::now(), decision, record).await
    }

    /// Plans a pull request of which no delivery came, opened since its repository is served, if its `opened` would have been planned.
    pub(super) async fn unknown(&self, now: &OpenPull) -> Result<(), HostOrStateError> {
        let id = now.pull.id.clone();
        let fresh = Timestamp::now().duration_since(now.created) < FRESH;
        if !self.inner.ctx.settings.reconcile_unknown || fresh || self.inner.actors.busy(&id) {
            return Ok(());
        }
        let event = |pull: &PullRequest| PullEvent {
            action: PullAction::Opened,
            pull: pull.clone().into(),
            sender: Login::unknown(),
            version: now.version.clone(),
        };
        let autoplans =
            |pull| matches!(self.inner.decide(&Event::Pull(event(pull)), &id), Decision::Queue(Task::Autoplan(_)));
        // A reopened one has the same head, so the time of its version is part of the identity.
        let moment = now.version.moment().map(|moment| moment.to_string()).unwrap_or_default();
        let identity = DeliveryId::new(format!("{MISSED}{id}:opened:{}:{moment}", now.pull.head.commit));
        let asked = identity.clone();
        let met = self.inner.ctx.store.read(move |view| view.knows_delivery(&asked));
        if !autoplans(&now.pull) || met.await? {
            return Ok(());
        }
        // The list may be out of date by now.
        let pull = self.host.pull_request(&id).await?;
        let target = id.clone();
        let known = self.inner.ctx.store.read(move |view| view.known_pull(&target)).await?;
        let same = pull.is_open() && pull.head.commit == now.pull.head.commit;
        if !same || !autoplans(&pull) || known.as_ref().is_some_and(|known| known.open) || self.inner.actors.busy(&id) {
            return Ok(());
        }
        let least = Timestamp::now().checked_sub(COMMENTS_KNOWN).unwrap_or(now.created);
        let taken = Some((pull.head.commit.clone(), now.version.clone()));
        let mark = Watermark { taken, ..Watermark::at(now.created.max(least)) };
        let event = event(&pull);
        let decision = Decision::Queue(Task::Autoplan(Box::new(event.clone())));
        let record = move |tx: &Tx<'_>| {
            let is_as_looked_at = is_as_looked_at(tx, &id, known.as_ref())?;
            if is_as_looked_at {
                tx.put_pull(&pull)?;
                tx.set_watermark(&id, &mark)?;
            }
            Ok(is_as_looked_at)
        };
        self.take_up(identity, Event::Pull(event), Timestamp::now(), decision, record).await?;
        Ok(())
    }
}
