//! Notifications of projects that a pull request has locked for long. Each lock has one. The note is part of the state, so that a restart
//! neither repeats nor skips one.

use super::inner::Inner;
use super::recorder;
use crate::domain::PullId;
use crate::notifications::LocksOverdue;
use crate::store::is_deposed;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest time between two looks at the locks.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Shortest time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Records the notifications that are due, for as long as this server leads. Does nothing if no receiver is notified of overdue locks.
pub(super) async fn run(inner: Arc<Inner>) {
    let Some(after) = inner.ctx.notifier.overdue_after() else { return };
    // A lock that is taken during the pause is not overdue before its end.
    let pause = after.unsigned_abs().clamp(PAUSE, LOOK_AGAIN);
    while !inner.actors.draining() {
        match notify(&inner.now()).await {
            Ok(()) => {}
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "locks could not be read, or a notification of them not recorded");
            }
        }
        let due = next(&inner).await.ok().flatten();
        let left = due.map(|due| due.duration_since(Timestamp::now()).max(SignedDuration::ZERO).unsigned_abs());
        tokio::time::sleep(left.unwrap_or(pause).clamp(PAUSE, pause)).await;
    }
}

/// Returns the time of each pull request's next notification.
async fn due(inner: &Inner) -> Result<BTreeMap<PullId, Timestamp>> {
    let Some(after) = inner.ctx.notifier.overdue_after() else { return Ok(BTreeMap::new()) };
    let holds = inner.ctx.store.read(|view| view.untold_holds()).await?;
    let mut by_pull = BTreeMap::new();
    for held in holds {
        let at = held.holder.since.checked_add(after).unwrap_or(Timestamp::MAX);
        by_pull.entry(held.holder.pull).and_modify(|known: &mut Timestamp| *known = at.min(*known)).or_insert(at);
    }
    Ok(by_pull)
}

/// Returns the time of the next notification; absent if none follows.
pub(super) async fn next(inner: &Inner) -> Result<Option<Timestamp>> {
    Ok(due(inner).await?.into_values().min())
}

/// Records the notifications that are due: one for each pull request, about all of its locks.
async fn notify(inner: &Arc<Inner>) -> Result<()> {
    let Some(after) = inner.ctx.notifier.overdue_after() else { return Ok(()) };
    let now = Timestamp::now();
    for (pull, _) in due(inner).await?.into_iter().filter(|(_, at)| *at <= now) {
        let (notifier, until) = (inner.ctx.notifier.clone(), now.checked_sub(after).unwrap_or(Timestamp::MIN));
        recorder::transaction(inner, move |tx| {
            let holds = tx.note_overdue(&pull, until, now)?;
            let since = holds.iter().map(|held| held.holder.since).min();
            let (Some(since), Some(pull)) = (since, tx.pull(&pull)?) else { return Ok(()) };
            let projects = holds.into_iter().map(|held| held.project).collect();
            let overdue = LocksOverdue { pull: &pull, projects, since };
            notifier.of_overdue(&overdue).iter().try_for_each(|one| tx.notify(one))
        })
        .await?;
        inner.ctx.notifier.wake();
    }
    Ok(())
}
