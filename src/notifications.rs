//! Notifications of events to the receivers of `webhooks`: Slack, HTTP addresses, Teams, Google Chat, Pub/Sub and e-mail. They are recorded
//! in the transaction that records the event, so that a killed server loses none. Each receiver has a worker of its own, so that one which
//! does not answer delays no other. A message is sent at least once, with an id that stays the same.

pub(crate) mod doctor;
mod form;
mod message;
mod notice;
mod send;
mod smtp;

use crate::domain::command::{Command, CommandName};
use crate::domain::drift::DriftDetection;
use crate::domain::notification::Notification;
use crate::domain::waiting::ReplanId;
use crate::domain::{JobId, Login, ProjectId, PullRequest};
use crate::settings::{NotificationAddress, NotificationEvent, NotificationReceiver, NotificationSettings};
use crate::store::notifications::PendingNotification;
use crate::store::{Store, is_closed, is_deposed};
use anyhow::Result;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use jiff::{SignedDuration, Timestamp};
use notice::EventNotice;
use secrecy::ExposeSecret as _;
use send::{Sender, Sent};
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
    /// Its result in one line.
    pub reason: &'a str,
}

/// A plan or an apply that failed.
pub struct JobFailure<'a> {
    /// Id of its job, or of its run if no job began.
    pub id: &'a str,
    pub command: CommandName,
    /// Absent if the command failed before any project began.
    pub project: Option<&'a ProjectId>,
    pub pull: &'a PullRequest,
    /// The person who requested it.
    pub user: &'a Login,
    /// Its result in one line.
    pub reason: &'a str,
}

/// A pull request whose turn for projects has come.
pub struct TurnCome<'a> {
    pub replan: ReplanId,
    pub pull: &'a PullRequest,
    /// The projects that it waited for.
    pub projects: &'a [ProjectId],
}

/// Approvals that do not count any more.
pub struct ApprovalsLapsed<'a> {
    /// Id of the job or run that has ended them.
    pub id: &'a str,
    pub pull: &'a PullRequest,
    /// Absent for approvals of the pull request.
    pub project: Option<&'a ProjectId>,
    /// The approvals in words.
    pub approvals: Vec<String>,
    pub because: &'a str,
}

/// Projects that a pull request has locked for long.
pub struct LocksOverdue<'a> {
    pub pull: &'a PullRequest,
    pub projects: Vec<ProjectId>,
    /// Time of the oldest lock.
    pub since: Timestamp,
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

    /// Returns true if a receiver is notified of this event.
    pub fn wants(&self, event: NotificationEvent) -> bool {
        self.inner.settings.receivers.iter().any(|receiver| receiver.event == event)
    }

    /// Returns the age of a lock after which receivers are notified; absent if there are none.
    pub fn overdue_after(&self) -> Option<SignedDuration> {
        let after = SignedDuration::try_from(self.inner.settings.lock_overdue_after).unwrap_or(SignedDuration::MAX);
        self.wants(NotificationEvent::LockOverdue).then_some(after)
    }

    /// Returns the notifications to record of an apply: of its end and, if it failed, of its failure.
    pub fn of_apply(&self, end: &ApplyEnd<'_>) -> Vec<Notification> {
        let kind = self.inner.kinds.get(&end.pull.id.repo.host.to_ascii_lowercase()).copied();
        let mut all = self.of(&EventNotice::of_apply(end, kind.unwrap_or_default()));
        if !end.success {
            let ApplyEnd { job, project, pull, command, reason, .. } = end;
            let project = Some(*project);
            let (id, user) = (job.as_str(), &command.user);
            all.extend(self.of_failure(&JobFailure { id, command: CommandName::Apply, project, pull, user, reason }));
        }
        all
    }

    /// Returns the notifications to record of a detection; none if no project has drifted.
    pub fn of_drift(&self, detection: &DriftDetection) -> Vec<Notification> {
        if !detection.projects.iter().any(|(found, _)| found.finding.has_drift()) {
            return Vec::new();
        }
        self.of(&EventNotice::of_drift(detection))
    }

    /// Returns the notifications to record of a failed plan or apply.
    pub fn of_failure(&self, failure: &JobFailure<'_>) -> Vec<Notification> {
        self.of(&EventNotice::of_failure(failure))
    }

    /// Returns the notifications to record of a turn.
    pub fn of_turn(&self, turn: &TurnCome<'_>) -> Vec<Notification> {
        self.of(&EventNotice::of_turn(turn))
    }

    /// Returns the notifications to record of approvals that do not count any more.
    pub fn of_lapsed(&self, lapsed: &ApprovalsLapsed<'_>) -> Vec<Notification> {
        self.of(&EventNotice::of_lapsed(lapsed))
    }

    /// Returns the notifications to record of projects that are locked for long.
    pub fn of_overdue(&self, overdue: &LocksOverdue<'_>) -> Vec<Notification> {
        self.of(&EventNotice::of_overdue(overdue))
    }

    /// Returns a message to each receiver that is meant.
    fn of(&self, notice: &EventNotice<'_>) -> Vec<Notification> {
        let NotifierInner { settings, names, .. } = &*self.inner;
        let word = match notice.event {
            // These had no word in their ids before there were others.
            NotificationEvent::Apply | NotificationEvent::Drift => String::new(),
            event => format!("{}-", event.word()),
        };
        let mut all: Vec<Notification> = Vec::new();
        for (receiver, name) in settings.receivers.iter().zip(names).filter(|(receiver, _)| is_meant(receiver, notice))
        {
            // Two entries of one address lead to one message; each has filters of its own.
            if !all.iter().any(|other| other.receiver == *name) {
                let (id, body) = (format!("{word}{}-{name}", notice.id), form::of(&receiver.address, notice));
                all.push(Notification { id, receiver: name.clone(), body });
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

/// Returns true if the receiver is notified of this event, and its expressions match. As in Atlantis, they do not count for drift. A notice
/// without projects is in every workspace.
fn is_meant(receiver: &NotificationReceiver, notice: &EventNotice<'_>) -> bool {
    let is_in = |project: &&ProjectId| receiver.workspace.is_match(&project.workspace);
    let matches = || {
        receiver.branch.is_match(notice.base_branch)
            && (notice.projects.is_empty() || notice.projects.iter().any(is_in))
    };
    receiver.event == notice.event && (notice.event == NotificationEvent::Drift || matches())
}

/// Returns the name of a receiver in the state and the log: a channel, a topic, or the digest of an address, which may contain a secret or
/// the names of people.
fn name(address: &NotificationAddress) -> String {
    let digest = |kind: &str, text: &str| {
        let digest = Sha256::digest(text);
        format!("{kind}:{}", hex::encode(&digest[..NAME_BYTES]))
    };
    match address {
        NotificationAddress::Slack { channel } => format!("slack:{channel}"),
        NotificationAddress::Http { url } => digest("http", url.expose_secret()),
        NotificationAddress::Teams { url } => digest("teams", url.expose_secret()),
        NotificationAddress::GoogleChat { url } => digest("google_chat", url.expose_secret()),
        NotificationAddress::PubSub { topic } => format!("pubsub:{topic}"),
        NotificationAddress::Email { to } => {
            digest("email", &to.iter().map(|one| one.email.to_string()).collect::<Vec<_>>().join(","))
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
        match self.sender.send(&self.address, one).await {
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
