//! Pull requests that a look sees open for the first time, or again.

use super::first::{changed_at, first_mark, new_mark, readable_comments};
use super::look::Look;
use crate::dispatch::decide::Decision;
use crate::dispatch::reconcile::{COMMENTS_KNOWN, HostOrStateError, MISSED, tolerate};
use crate::dispatch::recorder;
use crate::domain::{DeliveryId, Event, Login, PullAction, PullEvent};
use crate::store::Tx;
use crate::vcs::{OpenPull, is_since};
use jiff::Timestamp;

impl Look<'_> {
    /// Takes up an opening. On a new pull request everything was said after the first look at its repository. On one that was closed before,
    /// or that was opened long ago, nothing that was said so far runs.
    pub(super) async fn opened(&self, now: &OpenPull) -> Result<(), HostOrStateError> {
        let (inner, id) = (self.round.inner, now.pull.id.clone());
        let of = id.clone();
        let known = inner.ctx.store.read(move |view| view.known_pull(&of)).await?;
        if known.as_ref().is_some_and(|known| known.open) {
            return Ok(());
        }
        let is_young = self.at.duration_since(now.created) < COMMENTS_KNOWN;
        let mark = if known.is_none() && is_young && is_since(now.created, self.since) {
            let comments = readable_comments(self.round.host, &id, None).await?;
            new_mark(now, changed_at(now, comments.as_deref(), self.at))
        } else {
            let mark = first_mark(self.round.host, now, self.at).await?;
            tolerate(&id, self.refuse_earlier(now, known.as_ref(), &mark).await)?;
            mark
        };
        let Some(pull) = self.whole(now).await? else { return Ok(()) };
        let event = Event::Pull(PullEvent {
            action: PullAction::Opened,
            pull: pull.clone().into(),
            sender: Login::unknown(),
            version: now.version.clone(),
        });
        let decision = inner.decide(&event, &id);
        let target = id.clone();
        let record = move |tx: &Tx<'_>| {
            let is_same = tx.known_pull(&target)? == known;
            if is_same {
                tx.put_pull(&pull)?;
                tx.set_watermark(&target, &mark)?;
            }
            Ok(is_same)
        };
        match decision {
            Decision::Ignore(_) | Decision::Superseded(_) => {
                recorder::transaction(inner, record).await?;
            }
            decision => {
                let moment = self.at.as_microsecond();
                let identity = DeliveryId::new(format!("{MISSED}{id}:opened:{}:{moment}", now.pull.head.commit));
                self.round.take_up(identity, event, Timestamp::now(), decision, record).await?;
            }
        }
        Ok(())
    }
}
