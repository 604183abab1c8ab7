//! Requests that a leader makes at intervals: it renews the lease, and reads the inbox.

use super::inbox::Inbox;
use super::roles::Quiet;
use crate::server_status::Meters;
use crate::vault::VaultError;
use crate::vault::leader::Leader;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Renews the lease and reads the inbox, each in a task of its own, until it is dropped.
pub(super) struct LeaseRenewal {
    /// The inbox at the last read.
    pub(super) inbox: watch::Receiver<Inbox>,
    /// Triggers a read of the inbox at once.
    pub(super) now: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl LeaseRenewal {
    pub(super) fn start(leader: Leader, meters: Arc<Meters>, renew: Duration) -> LeaseRenewal {
        let (found, inbox) = watch::channel(Inbox::default());
        let now = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(renewals(leader.clone(), renew));
        tasks.spawn(looks(leader, meters, renew, found, Arc::clone(&now)));
        LeaseRenewal { inbox, now, _tasks: tasks }
    }

    /// Reads the inbox, and waits until that was done. A read that is under way does not count.
    pub(super) async fn read_inbox_again(&self) {
        let mut inbox = self.inbox.clone();
        for _ in 0..2 {
            inbox.mark_unchanged();
            self.now.notify_one();
            // Without another read this server is deposed, which others wait for.
            let _ = inbox.changed().await;
        }
    }
}

/// Renews the lease and does nothing else: other work may take longer than the lease lives.
async fn renewals(leader: Leader, renew: Duration) {
    let mut quiet = Quiet::default();
    loop {
        match leader.renew().await {
            Ok(()) => {}
            // Others wait for the deposition itself.
            Err(VaultError::Deposed(_)) => return,
            Err(error) if quiet.may_say() => tracing::warn!("the lease could not be renewed, trying again: {error}"),
            Err(_) => {}
        }
        tokio::time::sleep(renew).await;
    }
}

/// Reads the inbox at each interval, and at once when notified.
async fn looks(leader: Leader, meters: Arc<Meters>, every: Duration, found: watch::Sender<Inbox>, now: Arc<Notify>) {
    let mut quiet = Quiet::default();
    let mut commits = 0;
    loop {
        match leader.list_inbox().await {
            Ok(entries) => {
                meters.waiting.store(entries.len() as u64, Ordering::Relaxed);
                found.send_modify(|inbox| inbox.put(entries));
            }
            Err(VaultError::Deposed(_)) => return,
            Err(error) if quiet.may_say() => tracing::warn!("the inbox could not be read, trying again: {error}"),
            Err(_) => {}
        }
        let so_far = leader.figures().commits;
        if so_far != commits {
            commits = so_far;
            meters.last_commit.store(Timestamp::now().as_second().unsigned_abs(), Ordering::Relaxed);
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = now.notified() => {}
        }
    }
}
