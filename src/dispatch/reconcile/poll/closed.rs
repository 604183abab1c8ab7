//! Pull requests that the list of open ones does not have any more.

use super::look::Look;
use crate::dispatch::decide::Decision;
use crate::dispatch::queues::Task;
use crate::dispatch::reconcile::{HostOrStateError, MISSED, tolerate};
use crate::domain::state::{PollMark, Watermark};
use crate::domain::{DeliveryId, Event, Login, PullAction, PullEvent, PullRequest, PullState, PullVersion};
use crate::store::{KnownPull, Tx};
use crate::vcs::HostError;
use jiff::Timestamp;

impl Look<'_> {
    /// Takes up a closing or a merge. A list may pass over a pull request, so the host is asked for that one first.
    pub(super) async fn gone(&self, known: &KnownPull) -> Result<(), HostOrStateError> {
        let (inner, id) = (self.round.inner, known.pull.id.clone());
        let mark = known.watermark.clone();
        let is_closing = mark.as_ref().and_then(|mark| mark.polled.as_ref()).is_some_and(|polled| polled.closing);
        if is_closing {
            let of = id.clone();
            if inner.ctx.store.read(move |view| view.has_unfinished_work(&of)).await? {
                return Ok(());
            }
        }
        let found = match self.round.host.pull_request(&id).await {
            Ok(found) if found.is_open() => {
                tracing::debug!(pull = %id, "the list of open pull requests passes it over");
                return Ok(());
            }
            Ok(found) => Some(found),
            Err(HostError::NotFound { .. }) if self.round.host.is_gone(&id).await? => None,
            Err(error) => return Err(error.into()),
        };
        // Comments on a merged one are taken up after its closing, if it owns projects then.
        if let Some(found) = found.as_ref().filter(|found| found.state == PullState::Closed) {
            tolerate(&id, self.last_comments(known, found).await.map(drop))?;
        }
        let pull = found.unwrap_or_else(|| PullRequest { state: PullState::Closed, ..known.pull.clone() });
        let action = PullAction::Closed { merged: pull.state != PullState::Closed };
        let identity = DeliveryId::new(format!("{MISSED}{id}:closed:{}", self.at.as_microsecond()));
        let version = PullVersion::default();
        let event = PullEvent { action, pull: pull.into(), sender: Login::unknown(), version };
        let decision = Decision::Queue(Task::Closed(Box::new(event.clone())));
        let after = mark.clone().map(|mark| Watermark {
            polled: mark.polled.clone().map(|polled| PollMark { closing: true, ..polled }),
            ..mark
        });
        let record = move |tx: &Tx<'_>| {
            let is_same = tx.known_pull(&id)?.is_some_and(|known| known.open && known.watermark == mark);
            if let Some(after) = after.filter(|_| is_same) {
                tx.set_watermark(&id, &after)?;
            }
            Ok(is_same)
        };
        self.round.take_up(identity, Event::Pull(event), Timestamp::now(), decision, record).await?;
        Ok(())
    }
}
