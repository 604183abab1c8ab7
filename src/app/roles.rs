//! The roles, one after the other: `standby → restoring → leading → draining`, and back to standby, until the server is told to end.
//! Only this file publishes the role; the work of a leader is in `lead`.

use super::lead::{CLOSE_LIMIT, RELEASE_LIMIT};
use super::reload::Reloader;
use super::services::Parts;
use super::sleep::{KeptState, Sleep};
use crate::server_status::{Meters, Role, ServerStatus};
use crate::vault::bucket::BucketError;
use crate::vault::lease::{self, Lease};
use crate::vault::{Vault, VaultError};
use crate::wake::Attention;
use anyhow::{Result, anyhow};
use futures::FutureExt as _;
use jiff::Timestamp;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Interval between two log lines about one lasting problem.
pub(super) const SAY_AGAIN: Duration = Duration::from_secs(30);
/// Shortest pause before a standby repeats a rejected attempt.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// One server, through its roles.
pub(super) struct Roles {
    pub(super) parts: Arc<Parts>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) vault: Vault,
    pub(super) meters: Arc<Meters>,
    pub(super) server_status: watch::Sender<Arc<ServerStatus>>,
    /// Requests that keep this server awake.
    pub(super) attention: Arc<Attention>,
    /// Time at which objects of jobs were swept before a sleep.
    pub(super) swept: Mutex<Option<Instant>>,
    /// State of the last term, if this server has slept since.
    pub(super) kept: Mutex<Option<KeptState>>,
    /// Cancelled when the process is to end.
    pub(super) stop: CancellationToken,
}

/// Role that follows the end of leadership.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRole {
    /// Standby.
    Standby,
    /// Standby that first lets the server that asked for the lead have it.
    StandBack,
    /// Asleep.
    Sleep(Sleep),
    /// None: the server was told to end.
    End,
}

/// Cause for which a server stands by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StandbyCause {
    Started,
    /// It does not lead any more, or could not lead.
    Deposed,
    /// It gave the lead to the server that asked for it.
    HandedOver,
    /// It was woken.
    Woken,
}

/// End of a standby.
enum StandbyEnd {
    /// It has the lease.
    Leads(Lease),
    /// Another server leads, and nobody asks this one.
    Sleeps(Sleep),
}

impl Roles {
    /// Plays the roles until the server is told to end; an error if the state cannot be used.
    pub(super) async fn play(self) -> Result<()> {
        let played = self.one_by_one().boxed().await;
        self.give_up().await;
        played
    }

    async fn one_by_one(&self) -> Result<()> {
        let mut cause = StandbyCause::Started;
        if self.until_stop(self.check().boxed()).await.transpose()?.is_none() {
            return Ok(());
        }
        while let Some(end) = self.until_stop(self.standby(cause).boxed()).await.transpose()? {
            let next = match end {
                StandbyEnd::Leads(lease) => self.lead(lease).boxed().await?,
                StandbyEnd::Sleeps(sleep) => {
                    // It may have taken the lease at this moment.
                    self.give_up().await;
                    NextRole::Sleep(sleep)
                }
            };
            cause = match next {
                NextRole::Standby => StandbyCause::Deposed,
                NextRole::StandBack => StandbyCause::HandedOver,
                NextRole::Sleep(sleep) => match self.until_stop(self.sleep(sleep)).await {
                    Some(()) => StandbyCause::Woken,
                    None => break,
                },
                NextRole::End => break,
            };
        }
        Ok(())
    }

    /// Releases a lease that this server still has when it ends: it was told to end, or failed, on the way to the lead. Otherwise the
    /// next server would wait for the lease's end.
    async fn give_up(&self) {
        let Ok(Ok(Some(lease))) = timeout(CLOSE_LIMIT, lease::ours(&self.vault)).await else { return };
        match timeout(RELEASE_LIMIT, self.vault.give_up(lease)).await {
            Ok(Ok(())) => tracing::info!("the lease was given up before this server led with it"),
            Ok(Err(VaultError::Deposed(_))) => {}
            Ok(Err(error)) => tracing::warn!("the lease was not given up, the next server waits for its end: {error}"),
            Err(_) => tracing::warn!("giving the lease up took too long, the next server waits for its end"),
        }
    }

    /// Returns the result of the work; none if this server is told to end first.
    pub(super) async fn until_stop<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            done = work => Some(done),
        }
    }

    /// Publishes a change of this server's status, and logs a new role or reason.
    pub(super) fn turn(&self, change: impl FnOnce(&mut ServerStatus)) {
        self.server_status.send_if_modified(|now| {
            let mut next = (**now).clone();
            change(&mut next);
            let (new_role, new_why) = (next.role != now.role, next.why != now.why);
            if new_role {
                next.since = Timestamp::now();
            }
            if new_role || (new_why && !next.why.is_empty()) {
                say(&next);
            }
            *now = Arc::new(next);
            true
        });
    }

    /// Checks that the bucket can be used; repeats that while it does not answer.
    async fn check(&self) -> Result<()> {
        let mut quiet = Quiet::default();
        loop {
            match self.vault.bucket.check().await {
                Ok(warnings) => {
                    for warning in warnings {
                        tracing::warn!("{warning}");
                    }
                    return Ok(());
                }
                Err(error @ BucketError::Unavailable { .. }) => self.unreachable(&error.into(), &mut quiet).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stands by until this server gets the lease, or may sleep.
    async fn standby(&self, cause: StandbyCause) -> Result<StandbyEnd> {
        self.turn(|now| {
            now.role = Role::Standby;
            (now.services, now.intake, now.leader) = (None, false, None);
            now.why = match cause {
                StandbyCause::Started => "it has just started, and checks which server leads",
                StandbyCause::HandedOver => "it has given the lead to the server that asked for it",
                StandbyCause::Deposed => "it does not lead any more, and checks which server does",
                StandbyCause::Woken => "it was woken, and checks which server leads",
            }
            .into();
        });
        let acquiring = async {
            let mut quiet = Quiet::default();
            // The lead is requested once, at the start: a server that was deposed or handed the lead over does not ask for it back.
            let ask = cause == StandbyCause::Started;
            if matches!(cause, StandbyCause::Deposed | StandbyCause::HandedOver) {
                self.vault.clock.sleep(TRY_AGAIN).await;
            }
            if cause == StandbyCause::HandedOver {
                self.let_another_lead().await;
            }
            loop {
                let acquired = if ask { self.vault.acquire_asking().await } else { self.vault.acquire().await };
                match acquired {
                    Ok(lease) => return Ok(StandbyEnd::Leads(lease)),
                    Err(VaultError::Damaged(what)) => return Err(anyhow!(what)),
                    Err(VaultError::Deposed(_)) => self.vault.clock.sleep(TRY_AGAIN).await,
                    Err(error) => self.unreachable(&error, &mut quiet).await,
                }
            }
        };
        tokio::select! {
            end = acquiring => end,
            sleep = self.until_nobody_asks(cause == StandbyCause::Started) => Ok(StandbyEnd::Sleeps(sleep)),
            never = self.watch_leader() => match never {},
        }
    }

    /// Waits until another server holds the lease, at most for a lease's life: the server that asked for the lead reads it only at
    /// intervals.
    async fn let_another_lead(&self) {
        let until = self.vault.clock.now() + self.vault.timing.ttl;
        while self.vault.clock.now() < until {
            if let Ok(Some(record)) = lease::read(&self.vault).await
                && record.holder.is_some_and(|holder| holder.nonce != self.vault.identity.nonce)
            {
                return;
            }
            self.vault.clock.sleep(self.vault.timing.poll).await;
        }
    }

    /// Keeps the published leader up to date while this server stands by.
    async fn watch_leader(&self) -> Infallible {
        loop {
            // First a pause: a free lease is ours before there is anything to publish.
            self.vault.clock.sleep(self.vault.timing.poll).await;
            let Ok(record) = lease::read(&self.vault).await else { continue };
            let refusal = record.as_ref().and_then(|record| lease::held_back(&self.vault, record));
            let (epoch, leader) = record.map_or((None, None), |record| (Some(record.epoch), record.holder));
            let why = match (&refusal, &leader) {
                (Some(refusal), _) => refusal.clone(),
                (None, Some(leader)) => format!("{} leads, with epoch {}", leader.machine, epoch.unwrap_or_default()),
                (None, None) => "no server leads, and it takes the lead".into(),
            };
            self.turn(|now| {
                now.mismatch = refusal.is_some();
                (now.epoch, now.leader, now.why) = (epoch, leader, why);
            });
        }
    }

    /// Waits after a failure to reach the bucket, and logs it at intervals. Pages show no details, because they are public.
    async fn unreachable(&self, error: &VaultError, quiet: &mut Quiet) {
        if quiet.may_say() {
            tracing::warn!("standing by, the bucket cannot be used now and is tried again: {error}");
        }
        self.turn(|now| now.why = "the bucket does not answer; the log says more".into());
        self.vault.clock.sleep(self.vault.timing.poll.max(TRY_AGAIN)).await;
    }
}

fn say(now: &ServerStatus) {
    let (role, epoch) = (now.role.name(), now.epoch);
    match (now.role, now.mismatch) {
        (Role::Leading, _) => tracing::info!(role, epoch, "ready"),
        (_, true) => tracing::error!(role, epoch, "{}", now.why),
        (_, false) => tracing::info!(role, epoch, "{}", now.why),
    }
}

/// Rate limit of log lines about a lasting problem.
#[derive(Default)]
pub(super) struct Quiet(Option<Instant>);

impl Quiet {
    /// Returns true if it may be logged now: the first time, and every [`SAY_AGAIN`].
    pub(super) fn may_say(&mut self) -> bool {
        let due = self.0.is_none_or(|last| last.elapsed() >= SAY_AGAIN);
        if due {
            self.0 = Some(Instant::now());
        }
        due
    }
}
