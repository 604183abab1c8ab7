//! What a leader still has to do. A server that sleeps asks for it before it releases its lease.

use super::inner::Inner;
use super::late_jobs::NextLateLook;
use super::{drift_schedule, overdue_locks, reminders};
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// What is due within this time is awaited: people wait for a comment that is tried again.
const SOON: Duration = Duration::from_secs(60);
/// Pause after which merges whose changes are unknown are looked at again.
const UNKNOWN_MERGES: SignedDuration = SignedDuration::from_mins(10);

/// Work of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agenda {
    /// There is something to do now, such as this.
    Busy(&'static str),
    /// There is nothing to do before this time; absent if nothing is due at all.
    Free(Option<Timestamp>),
}

/// Reads what there is to do. Missed deliveries are due whenever a server takes the lead, and are not counted again.
pub(super) async fn read(inner: &Inner) -> Result<Agenda> {
    if inner.actors.count() + inner.replans.count(inner) + inner.drift.count() > 0 {
        return Ok(Agenda::Busy("commands run or wait"));
    }
    if inner.tasks.work() {
        return Ok(Agenda::Busy("commands beside the queues run"));
    }
    if !inner.first_rounds.have_ended() {
        return Ok(Agenda::Busy("missed deliveries are looked for"));
    }
    if !inner.bases.is_empty() {
        return Ok(Agenda::Busy("base branches are compared with plans"));
    }
    let read = inner.ctx.store.read(|view| Ok((view.unfinished_jobs()?.is_empty(), view.unknown_merges()?.is_empty())));
    let (no_job, no_unknown_merge) = read.await?;
    if !no_job {
        return Ok(Agenda::Busy("jobs go on at executors"));
    }
    let NextLateLook::Known(late_look) = inner.late_looks.next() else {
        return Ok(Agenda::Busy("jobs that were given up are looked at"));
    };
    let now = Timestamp::now();
    let on_clock = |at: Instant| now.checked_add(at.saturating_duration_since(Instant::now())).unwrap_or(now);
    let due = [
        (inner.ctx.outbox.next().map(on_clock), "comments or statuses are to be posted"),
        (inner.ctx.notifier.next().await?.map(on_clock), "notifications are to be sent"),
        (late_look.map(on_clock), "jobs that were given up are looked at"),
        (reminders::next(inner).await?, "reminders are due"),
        (overdue_locks::next(inner).await?, "a notification of overdue locks is due"),
        (drift_schedule::next(inner).await?, "a drift detection is due"),
        ((!no_unknown_merge).then(|| now + UNKNOWN_MERGES), "merges are looked at"),
    ];
    let soon = now + SignedDuration::try_from(SOON)?;
    if let Some((_, what)) = due.iter().find(|(at, _)| at.is_some_and(|at| at <= soon)) {
        return Ok(Agenda::Busy(what));
    }
    Ok(Agenda::Free(due.into_iter().filter_map(|(at, _)| at).min()))
}
