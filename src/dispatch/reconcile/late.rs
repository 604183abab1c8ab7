//! Races between a round and a delivery: both are recorded one after the other, so each checks in its own transaction whether the other one
//! came first.

use super::MISSED;
use crate::domain::state::{Delivery, Watermark};
use crate::domain::{Event, PullAction, PullId};
use crate::store::{KnownPull, View};
use anyhow::Result;

/// Returns true if a pull request's record is as it was read, and no delivery accepted meanwhile waits for it, such as the one believed to
/// be missed.
pub(super) fn is_as_looked_at(view: &View<'_>, pull: &PullId, known: Option<&KnownPull>) -> Result<bool> {
    Ok(view.known_pull(pull)?.as_ref() == known && !view.has_unfinished_work(pull)?)
}

/// Returns true if a delivery comes after its push was taken up without it.
pub(in crate::dispatch) fn comes_late(delivery: &Delivery, mark: Option<&Watermark>) -> bool {
    let (Event::Pull(event), Some((head, version))) = (&delivery.event, mark.and_then(|mark| mark.taken.as_ref()))
    else {
        return false;
    };
    let of_push = !matches!(event.action, PullAction::Closed { .. }) && !delivery.identity.as_str().starts_with(MISSED);
    of_push && event.pull.may_have_head(head) && (event.version == *version || event.version.is_before(version))
}
