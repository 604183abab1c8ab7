//! Notifications about applies and drift to the Slack and HTTP addresses of `webhooks`. They are recorded in the transaction that records
//! the end of the apply or detection, so that a killed server loses none. Each receiver has a worker of its own, so that one which does
//! not answer delays no other. A message is sent at least once, with an id that stays the same.

mod message;
mod send;

use crate::domain::command::Command;
use crate::domain::drift::DriftDetection;
use crate::domain::notification::Notification;
use crate::domain::{JobId, ProjectId, PullRequest};
use crate::settings::{NotificationAddress, NotificationEvent, NotificationReceiver, NotificationSettings};
use crate::store::notifications::PendingNotification;
use crate::store::{Store, is_closed, is_deposed};
use anyhow::Result;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use send::{Sender, Sent};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Age of a record after which a failed attempt is the last one.
const OLDEST: SignedDuration = SignedDuration::from_hours(6);
/// Waits between attempts.
const RETRIES: ExponentialBuilder = tidelock_retry::jittered(Duration::from_secs(1), Duration::from_secs(300));
/// Maximum number of messages that are loaded at once.
const BATCH: usize = 20;
/// Number of bytes of an address' digest that name a receiver.
const NAME_BYTES: usize = 8;

/// Ended apply of a project.
pub struct ApplyEnd<'a> {
    pub job: &'a JobId,
    pub project: &'a ProjectId,
    /// Pull request at that time.
    pub pull: &'a PullRequest,
    /// Command that requested it, with its author.
    pub command: &'a Command,
    /// True if it succeeded.
    pub success: bool,
}

/// Notifies receivers as long as this server leads. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    inner: Arc<NotifierInner>,
}

struct NotifierInner {
    settings: Arc<NotificationSettings>,
    names: Vec<String>,
    kinds: BTreeMap<String, u8>,
    wakes: BTreeMap<String, Arc<Notify>>,
    pauses: Arc<ReceiverPauses>,
    store: Store,
    stop: CancellationToken,
}

/// Receivers that did not take a message, and the time of the next attempt.
#[derive(Default)]
struct ReceiverPauses(Mutex<BTreeMap<String, Instant>>);

impl ReceiverPauses {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notifier {
    /// Starts a worker for each receiver, which begins with the records of an earlier process. `kinds` has Atlantis' number of each
    /// host's kind, by the host's name.
    pub async fn start(
        store: Store,
        settings: Arc<NotificationSettings>,
        kinds: BTreeMap<String, u8>,
    ) -> Result<Notifier> {
        let names: Vec<String> = settings.receivers.iter().map(|receiver| name(&receiver.address)).collect();
        let known: BTreeSet<&String> = names.iter().collect();
        let waiting = store.read(|view| view.notified_receivers()).await?;
        for receiver in waiting.into_iter().filter(|receiver| !known.contains(receiver)) {
            let gone = receiver.clone();
            let count = store.write(move |tx| tx.forget_receiver(&gone)).await?;
            tracing::warn!(
                receiver,
                count,
                "notifications are dropped: their receiver is not among the webhooks any more"
            );
        }
        let wakes: BTreeMap<String, Arc<Notify>> =
            known.into_iter().map(|name| (name.clone(), Arc::default())).collect();
        let stop = CancellationToken::new();
        let sender = Arc::new(Sender::new(Arc::clone(&settings)));
        let pauses = Arc::<ReceiverPauses>::default();
        for (name, wake) in &wakes {
            let Some(place) = names.iter().position(|other| other == name) else { continue };
            let address = settings.receivers[place].address.clone();
            let worker = ReceiverWorker {
                store: store.clone(),
                sender: Arc::clone(&sender),
                address,
                name: name.clone(),
                wake: Arc::clone(wake),
                pauses: Arc::clone(&pauses),
            };
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(worker.run()).await });
        }
        Ok(Notifier { inner: Arc::new(NotifierInner { settings, names, kinds, wakes, pauses, store, stop }) })
    }

    /// Returns the notifications to record of an apply.
    pub fn of_apply(&self, end: &ApplyEnd<'_>) -> Vec<Notification> {
        let is_meant = |receiver: &NotificationReceiver| {
            receiver.event == NotificationEvent::Apply
                && receiver.workspace.is_match(&end.project.workspace)
                && receiver.branch.is_match(&end.pull.base.branch)
        };
        self.to(is_meant, end.job.as_str(), |address| match address {
            NotificationAddress::Slack { channel } => message::slack(channel, end),
            NotificationAddress::Http { .. } => {
                let kind = self.inner.kinds.get(&end.pull.id.repo.host.to_ascii_lowercase()).copied();
                message::http(end, kind.unwrap_or_default())
            }
        })
    }

    /// Returns the notifications to record of a detection; none if no project has drifted. As in Atlantis, filters do not count.
    pub fn of_drift(&self, detection: &DriftDetection) -> Vec<Notification> {
        if !detection.projects.iter().any(|(found, _)| found.finding.has_drift()) {
            return Vec::new();
        }
        let is_meant = |receiver: &NotificationReceiver| receiver.event == NotificationEvent::Drift;
        self.to(is_meant, detection.id.as_str(), |address| match address {
            NotificationAddress::Slack { channel } => message::slack_drift(channel, detection),
            NotificationAddress::Http { .. } => message::http_drift(detection),
        })
    }

    /// Returns a message to each selected receiver.
    fn to(
        &self,
        is_meant: impl Fn(&NotificationReceiver) -> bool,
        id: &str,
        body: impl Fn(&NotificationAddress) -> Value,
    ) -> Vec<Notification> {
        let NotifierInner { settings, names, .. } = &*self.inner;
        let mut all: Vec<Notification> = Vec::new();
        for (receiver, name) in settings.receivers.iter().zip(names).filter(|(receiver, _)| is_meant(receiver)) {
            // Two entries of one address lead to one message; each has filters of its own.
            if !all.iter().any(|other| other.receiver == *name) {
                let body = body(&receiver.address);
                all.push(Notification { id: format!("{id}-{name}"), receiver: name.clone(), body });
            }
        }
        all
    }

    /// Returns the time at which the next message is to be sent; absent if there is none.
    pub async fn next(&self) -> Result<Option<Instant>> {
        let waiting = self.inner.store.read(|view| view.notified_receivers()).await?;
        let (pauses, now) = (self.inner.pauses.lock(), Instant::now());
        Ok(waiting.iter().map(|receiver| pauses.get(receiver).copied().unwrap_or(now)).min())
    }

    /// Wakes the workers after a commit.
    pub fn wake(&self) {
        self.inner.wakes.values().for_each(|wake| wake.notify_one());
    }

    /// Stops sending; the next leader sends the rest.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }
}

/// Returns the name of a receiver in the state and the log: a channel, or the digest of an address, which may contain a secret.
fn name(address: &NotificationAddress) -> String {
    match address {
        NotificationAddress::Slack { channel } => format!("slack:{channel}"),
        NotificationAddress::Http { url } => {
            let digest = Sha256::digest(url.expose_secret());
            format!("http:{}", hex::encode(&digest[..NAME_BYTES]))
        }
    }
}

/// Worker that sends the records for one receiver, one after the other.
struct ReceiverWorker {
    store: Store,
    sender: Arc<Sender>,
    address: NotificationAddress,
    name: String,
    wake: Arc<Notify>,
    pauses: Arc<ReceiverPauses>,
}

impl ReceiverWorker {
    async fn run(self) {
        let mut waits = RETRIES.build();
        loop {
            let pause = match self.round().await {
                Ok(None) => {
                    waits = RETRIES.build();
                    self.wake.notified().await;
                    continue;
                }
                Ok(Some(least)) => waits.next().unwrap_or_default().max(least),
                // The present or next leader sends the rest.
                Err(error) if is_deposed(&error) || is_closed(&error) => return,
                Err(error) => {
                    tracing::warn!(receiver = self.name, "notifications wait for the state: {error:#}");
                    waits.next().unwrap_or_default()
                }
            };
            self.pauses.lock().insert(self.name.clone(), Instant::now() + pause);
            tokio::time::sleep(pause).await;
            self.pauses.lock().remove(&self.name);
        }
    }

    /// Sends all records; returns the shortest wait if one has to be sent again.
    async fn round(&self) -> Result<Option<Duration>> {
        loop {
            let name = self.name.clone();
            let pending = self.store.read(move |view| view.notifications_to(&name, BATCH)).await?;
            if pending.is_empty() {
                return Ok(None);
            }
            for one in pending {
                if let Some(pause) = self.one(&one).await? {
                    return Ok(Some(pause));
                }
                let row = one.row;
                self.store.write(move |tx| tx.notification_done(row)).await?;
            }
        }
    }

    /// Makes one attempt; returns the shortest wait if it has to be sent again.
    async fn one(&self, one: &PendingNotification) -> Result<Option<Duration>> {
        let (receiver, id) = (&self.name, &one.notification.id);
        self.store.may_act().await?;
        match self.sender.send(&self.address, &one.notification).await {
            Sent::Taken => Ok(None),
            Sent::Refused(why) => {
                tracing::error!(receiver, id, "a notification is given up: {why}");
                Ok(None)
            }
            Sent::Later(why, _) if Timestamp::now().duration_since(one.at) > OLDEST => {
                tracing::error!(receiver, id, "a notification is given up, it was tried for hours: {why}");
                Ok(None)
            }
            Sent::Later(why, least) => {
                tracing::warn!(receiver, id, "a notification was not taken, and is tried again: {why}");
                Ok(Some(least))
            }
        }
    }
}

/// Checks the token of Slack; absent if no receiver is a channel. For the doctor.
pub(crate) async fn slack_account(settings: &Arc<NotificationSettings>) -> Option<Result<String, String>> {
    let is_slack = |receiver: &NotificationReceiver| matches!(receiver.address, NotificationAddress::Slack { .. });
    if !settings.receivers.iter().any(is_slack) {
        return None;
    }
    Some(Sender::new(Arc::clone(settings)).slack_account().await)
}
