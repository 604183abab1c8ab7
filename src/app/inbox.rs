//! The leader's handling of the inbox: deliveries that other servers accepted and sealed, and ends of jobs of deposed servers. It deletes
//! an object only after the commit of its contents. A delivery that cannot be verified is kept for days: the host has received a 2xx for
//! it, and the next leader may know the secret that seals or signs it.

use crate::domain::Event;
use crate::domain::PullId;
use crate::server_status::{Meters, Services};
use crate::vault::bucket::{BucketError, Generation};
use crate::vault::inbox::{self, InboxEntry, InboxEntryKind, LateOutcome, StoredDelivery};
use crate::vault::{Vault, VaultError};
use crate::webhook::{Intake, Verified};
use anyhow::{Context, Result};
use base64::Engine;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Number of objects that are read concurrently; each may be as large as the largest delivery.
const READS_AT_ONCE: usize = 4;
/// Number of objects that are recorded together, and then deleted together.
const BATCH: usize = 64;
/// Number of pull requests whose deliveries are recorded concurrently; those of one pull request are recorded in order.
const PULLS_AT_ONCE: usize = 16;
/// Maximum number of unusable objects and unknown secrets that are remembered, so that each is logged once.
const MAX_COMPLAINTS: usize = 10_000;
/// A delivery that cannot be verified is kept for this long after its arrival, for a leader that knows its secret…
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// …and until one leader has known it for this long by a clock that does not jump: a wrong date alone deletes nothing.
const WATCHED: Duration = Duration::from_secs(3600);

/// The inbox at the last read.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    entries: Vec<InboxEntry>,
    /// True if a standby asks for the lead. Such a request is deleted once it is read, so it is kept here.
    hand_over: bool,
}

impl Inbox {
    /// Replaces the entries, and keeps a request for the lead.
    pub(super) fn put(&mut self, entries: Vec<InboxEntry>) {
        self.hand_over |= entries.iter().any(|one| one.kind == InboxEntryKind::HandOver);
        self.entries = entries;
    }

    /// Returns true if there is nothing to take up, but for objects that this leader cannot use.
    pub(super) fn has_nothing(&self, meters: &Meters) -> bool {
        !self.hand_over && self.entries.len() as u64 <= meters.unusable.load(Ordering::Relaxed)
    }
}

/// Records deliveries and late outcomes in the order of their arrival, until a standby asks for the lead.
pub(super) async fn take_up(
    vault: &Vault,
    ready: &Services,
    intake: &Intake,
    meters: &Meters,
    mut inbox: watch::Receiver<Inbox>,
) {
    let mut taker = Taker { vault, ready, intake, meters, complained: HashSet::new(), unusable: HashMap::new() };
    loop {
        let seen = inbox.borrow_and_update().clone();
        if seen.hand_over {
            return;
        }
        taker.forget_what_is_gone(&seen.entries);
        // The end of an apply in doubt is recorded before anybody's next command.
        taker.ends(taker.usable(&seen.entries, InboxEntryKind::LateOutcome)).await;
        for batch in taker.usable(&seen.entries, InboxEntryKind::Delivery).chunks(BATCH) {
            taker.deliveries(batch).await;
            // A long inbox does not delay the hand-over: the next leader records the rest.
            if inbox.borrow().hand_over {
                return;
            }
        }
        taker.drop_what_nobody_knows().await;
        if inbox.changed().await.is_err() {
            // No more reads: this server is deposed, which others wait for.
            return std::future::pending().await;
        }
    }
}

struct Taker<'a> {
    vault: &'a Vault,
    ready: &'a Services,
    intake: &'a Intake,
    meters: &'a Meters,
    complained: HashSet<String>,
    /// Objects that this leader cannot use, by name and generation; they are not read again.
    unusable: HashMap<(String, Generation), Unusable>,
}

/// An object that this leader cannot use.
struct Unusable {
    entry: InboxEntry,
    /// Time at which this leader found it unusable.
    since: Instant,
    flaw: InboxFlaw,
}

/// Reason for which this leader cannot use an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InboxFlaw {
    /// It is not signed with a secret that this server knows, but otherwise sound.
    Unverified,
    Damaged,
}

impl Unusable {
    fn is_over(&self, now: Timestamp) -> bool {
        self.flaw == InboxFlaw::Unverified && is_over(self.entry.created, now, self.since.elapsed())
    }
}

/// Returns true if a delivery that nobody could verify has been kept for long enough.
fn is_over(created: Timestamp, now: Timestamp, watched: Duration) -> bool {
    now.duration_since(created) >= KEPT && watched >= WATCHED
}

/// A stored delivery that is authentic, and the time of its arrival.
pub(super) type Authentic = (InboxEntry, Verified<Event>, Timestamp);
/// The event and the time of its arrival, or the reason for which the delivery is not authentic.
pub(super) type Opened = std::result::Result<(Verified<Event>, Timestamp), String>;

impl Taker<'_> {
    /// Logs something once: about an object that stays in the inbox, or about a secret.
    fn complain(&mut self, about: &str, why: &str) {
        if self.complained.len() < MAX_COMPLAINTS && self.complained.insert(about.to_owned()) {
            tracing::error!(object = about, "an object in the inbox is left there: {why}");
        }
    }

    /// Returns the usable entries of one kind.
    fn usable(&self, entries: &[InboxEntry], kind: InboxEntryKind) -> Vec<InboxEntry> {
        let usable = |entry: &&InboxEntry| !self.unusable.contains_key(&(entry.name.clone(), entry.generation));
        entries.iter().filter(|entry| entry.kind == kind).filter(usable).cloned().collect()
    }

    fn forget_what_is_gone(&mut self, seen: &[InboxEntry]) {
        if self.unusable.is_empty() {
            return;
        }
        let there: HashSet<(&str, Generation)> =
            seen.iter().map(|entry| (entry.name.as_str(), entry.generation)).collect();
        self.unusable.retain(|(name, generation), _| there.contains(&(name.as_str(), *generation)));
        self.count();
    }

    /// Leaves an object in the inbox and remembers it as unusable.
    fn leave(&mut self, entry: InboxEntry, flaw: InboxFlaw) {
        let unusable = Unusable { entry: entry.clone(), since: Instant::now(), flaw };
        self.unusable.insert((entry.name, entry.generation), unusable);
        self.count();
    }

    fn count(&self) {
        self.meters.unusable.store(self.unusable.len() as u64, Ordering::Relaxed);
    }

    /// Leaves a delivery that is not signed with a secret of this server; logs that once for each secret.
    fn leave_unverified(&mut self, entry: InboxEntry, key: Option<&str>, why: &str) {
        let ours = match self.intake.key_ids().join(", ") {
            none if none.is_empty() => "none".to_owned(),
            ids => ids,
        };
        let days = KEPT.as_hours() / 24;
        let (about, signed) = match key {
            Some(key) => (format!("secret {key}"), format!("it is signed with the webhook secret {key}")),
            None => (entry.name.clone(), "it does not say which webhook secret it is signed with".to_owned()),
        };
        let why = format!(
            "{} cannot be verified ({why}): {signed}, and this server knows {ours}. It stays there for {days} days, for a leader that \
             knows that secret. While the secret changes, start every server with both: --gh-webhook-secret and \
             --gh-previous-webhook-secret, or those of another host",
            entry.name
        );
        self.complain(&about, &why);
        self.leave(entry, InboxFlaw::Unverified);
    }

    /// Deletes deliveries that no leader could verify within [`KEPT`].
    async fn drop_what_nobody_knows(&mut self) {
        let now = Timestamp::now();
        let over: Vec<InboxEntry> =
            self.unusable.values().filter(|one| one.is_over(now)).map(|one| one.entry.clone()).collect();
        for entry in &over {
            let days = KEPT.as_hours() / 24;
            tracing::error!(
                object = entry.name,
                "a stored delivery that no leader could verify for {days} days is deleted"
            );
        }
        // Deleted objects are not in the next list.
        self.delete(&over).await;
    }

    /// Returns the content of an object; absent if it is deleted, unusable, or cannot be read now.
    fn found<T>(&mut self, entry: &InboxEntry, read: std::result::Result<Option<T>, VaultError>) -> Option<T> {
        match read {
            Ok(found) => found,
            Err(VaultError::Bucket(error @ BucketError::Unavailable { .. })) => {
                tracing::warn!(object = entry.name, "cannot be read now: {error}");
                None
            }
            // Rights may be restored: it is read again.
            Err(error @ VaultError::Bucket(_)) => {
                self.complain(&entry.name, &error.to_string());
                None
            }
            Err(error) => {
                self.complain(&entry.name, &error.to_string());
                self.leave(entry.clone(), InboxFlaw::Damaged);
                None
            }
        }
    }

    async fn ends(&mut self, ends: Vec<InboxEntry>) {
        for entry in ends {
            let read = inbox::read::<LateOutcome>(self.vault, &entry).await;
            let Some(end) = self.found(&entry, read) else { continue };
            match self.ready.dispatch.take_late_outcome(end).await {
                Ok(()) => self.delete(&[entry]).await,
                Err(error) => self.complain(&entry.name, &format!("{error:#}")),
            }
        }
    }

    async fn deliveries(&mut self, batch: &[InboxEntry]) {
        let reads = futures::stream::iter(batch.to_vec()).map(|entry| {
            let vault = self.vault.clone();
            async move {
                let read = inbox::read::<StoredDelivery>(&vault, &entry).await;
                (entry, read)
            }
        });
        let mut reads = reads.buffered(READS_AT_ONCE);
        let mut by_pull: HashMap<Option<PullId>, Vec<Authentic>> = HashMap::new();
        while let Some((entry, read)) = reads.next().await {
            let Some(stored) = self.found(&entry, read) else { continue };
            let key = stored.key.clone();
            match open(stored, self.intake.clone()).await {
                Ok(Ok((event, received))) => {
                    by_pull.entry(event.get().pull_id().cloned()).or_default().push((entry, event, received));
                }
                Ok(Err(why)) => self.leave_unverified(entry, key.as_deref(), &why),
                Err(error) => self.complain(&entry.name, &format!("{error:#}")),
            }
        }
        let ready = self.ready;
        let taken = futures::stream::iter(by_pull.into_values()).map(|of_pull| record(ready, of_pull));
        let taken: Vec<Vec<InboxEntry>> = taken.buffer_unordered(PULLS_AT_ONCE).collect().await;
        self.delete(&taken.concat()).await;
    }

    /// Deletes recorded objects. If that fails, they are read again, and then recognized as recorded.
    async fn delete(&self, entries: &[InboxEntry]) {
        if entries.is_empty() {
            return;
        }
        if let Err(error) = inbox::delete(self.vault, entries).await {
            tracing::warn!("objects of the inbox could not be deleted, and will be seen again: {error}");
        }
    }
}

/// Records deliveries of one pull request in their order, and returns the recorded ones.
pub(super) async fn record(ready: &Services, deliveries: Vec<Authentic>) -> Vec<InboxEntry> {
    let mut recorded = Vec::new();
    for (entry, event, received) in deliveries {
        let outcome = ready.dispatch.accept_of(event, received).await;
        if !outcome.is_final() {
            break;
        }
        tracing::info!(object = entry.name, outcome = %outcome, "a delivery was taken from the inbox");
        recorded.push(entry);
    }
    recorded
}

/// Opens a stored delivery by its seal, or verifies it like a new one. Runs off the async threads, as a body has up to 25 MB.
pub(super) async fn open(stored: StoredDelivery, intake: Intake) -> Result<Opened> {
    let verify = move || {
        let body = base64::engine::general_purpose::STANDARD.decode(&stored.body).map_err(|error| error.to_string())?;
        let event = intake.open(&stored.headers, &body).map_err(|rejection| rejection.message)?;
        Ok((event, stored.received))
    };
    tokio::task::spawn_blocking(verify).await.context("verifying panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_could_verify_is_kept_for_days_and_a_jump_of_the_clock_ends_none_of_them() {
        let came: Timestamp = "2026-11-02T10:00:00Z".parse().unwrap();
        let (day, hour) = (SignedDuration::from_hours(24), Duration::from_secs(3600));
        assert!(!is_over(came, came + day * 6, hour * 24));
        assert!(is_over(came, came + day * 7, hour * 24));
        // A leader that has just begun, or whose date has just jumped by years, deletes nothing.
        assert!(!is_over(came, came + day * 2000, hour / 2));
        assert!(!is_over(came, came - day * 2000, hour * 24));
    }
}
