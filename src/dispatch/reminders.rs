//! Reminders: a pull request that was closed after an apply, or merged before one, gets a notice from time to time until that has ended.
//! The time of the last one is part of the state, so that a restart neither repeats nor skips one.

use super::inner::Inner;
use super::recorder;
use crate::domain::PullId;
use crate::domain::ownership::ProjectOwner;
use crate::execute::notices::NoticeWriter;
use crate::locks::LockEvent;
use crate::store::is_deposed;
use anyhow::Result;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest time between two checks for due reminders.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Shortest time between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// Records due reminders, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut changes = inner.ctx.store.replans_recorded();
    loop {
        changes.borrow_and_update();
        let wait = match remind(&inner.now()).await {
            Ok(wait) => wait,
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "what is owed could not be read, or a reminder not recorded"
                );
                LOOK_AGAIN
            }
        };
        if inner.actors.draining() {
            return;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait.clamp(PAUSE, LOOK_AGAIN)) => {}
        }
    }
}

/// A pull request that owes an apply.
struct OwedPull {
    pull: PullId,
    owners: Vec<ProjectOwner>,
    /// Usual time between two reminders.
    usual: Duration,
}

impl OwedPull {
    /// Returns the time of the next reminder; absent if none follows. One that was never told is due at once.
    fn due(&self) -> Option<Timestamp> {
        if self.owners.iter().any(|owner| owner.told.is_none()) {
            return Some(Timestamp::MIN);
        }
        self.owners.iter().filter_map(|owner| owner.reminder_due(self.usual)).min()
    }
}

async fn owed(inner: &Inner) -> Result<Vec<OwedPull>> {
    let owed = inner.ctx.store.read(|view| {
        let mut by_pull: BTreeMap<PullId, (Vec<ProjectOwner>, String)> = BTreeMap::new();
        for owner in view.owed()? {
            let pull = owner.holder.pull.clone();
            let branch = view.pull(&pull)?.map(|pull| pull.base.branch).unwrap_or_default();
            by_pull.entry(pull).or_insert_with(|| (Vec::new(), branch)).0.push(owner);
        }
        Ok(by_pull)
    });
    let with_interval = |(pull, (owners, branch)): (PullId, (Vec<ProjectOwner>, String))| {
        let usual = inner.ctx.global.rules(&pull.repo, &branch).reminder_interval;
        OwedPull { pull, owners, usual }
    };
    Ok(owed.await?.into_iter().map(with_interval).collect())
}

/// Returns the time of the next reminder; absent if none follows.
pub(super) async fn next(inner: &Inner) -> Result<Option<Timestamp>> {
    Ok(owed(inner).await?.iter().filter_map(OwedPull::due).min())
}

/// Records the reminders that are due. Returns the time until the next one may be.
async fn remind(inner: &Arc<Inner>) -> Result<Duration> {
    let mut next = LOOK_AGAIN;
    for owed in owed(inner).await? {
        let (at, due) = (Timestamp::now(), owed.due());
        if due.is_none_or(|due| due > at) {
            let left = due.and_then(|due| Duration::try_from(due.duration_since(at)).ok());
            next = next.min(left.unwrap_or(LOOK_AGAIN));
            continue;
        }
        let OwedPull { pull, usual, .. } = owed;
        let notices = NoticeWriter::new(&inner.ctx);
        let writer = notices.clone();
        let event = LockEvent::ReminderDue { pull, usual, at };
        recorder::transaction(inner, move |tx| writer.record(tx, &event).map(drop)).await?;
        notices.after_commit(&inner.ctx).await;
        next = PAUSE;
    }
    Ok(next)
}
