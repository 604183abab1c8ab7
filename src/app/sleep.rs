//! A server that sleeps (`--idle-release`): a leader with nothing to do releases its lease, and neither it nor a standby that nobody visits
//! makes a request until something wakes it.

use super::job_sweep;
use super::lead::complain;
use super::lease_renewal::LeaseRenewal;
use super::retention;
use super::roles::Roles;
use crate::dispatch::Agenda;
use crate::server_status::{Role, Services};
use crate::settings::SleepSettings;
use crate::store::ClosedState;
use crate::vault::bucket::Generation;
use crate::vault::leader::LastTerm;
use crate::vault::lease;
use crate::wake::RequestCount;
use crate::wake::queue::WakeQueue;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Longest sleep: missed deliveries are looked for, and calls that were lost are made up for. On Cloud Run an hourly job wakes the server.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// Shortest sleep that something due ends: what fails at each attempt must not keep the server awake.
const SHORTEST: SignedDuration = SignedDuration::from_mins(5);
/// Pause between two looks for work while there is some.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleep {
    /// Requests that were served before it.
    seen: RequestCount,
    /// Its end, if nothing is asked before.
    until: Timestamp,
}

/// State that a server has while it sleeps.
pub(super) struct KeptState {
    /// End of the term in the bucket.
    pub(super) last: LastTerm,
    /// Its copy in the data directory.
    pub(super) closed: ClosedState,
}

impl Sleep {
    fn new(seen: RequestCount, due: Option<Timestamp>) -> Sleep {
        let now = Timestamp::now();
        Sleep { seen, until: due.unwrap_or(Timestamp::MAX).clamp(now + SHORTEST, now + LONGEST) }
    }
}

impl Roles {
    /// Waits until this leader may sleep: nobody has asked for `--idle-release`, and there is nothing to do. Never returns without that
    /// setting.
    pub(super) async fn until_nothing_to_do(&self, ready: &Services, renewal: &LeaseRenewal) -> Sleep {
        let Some(idle) = self.parts.settings.sleep.idle_release else { return std::future::pending().await };
        loop {
            let seen = self.attention.unattended(idle).await;
            if let Some(sleep) = self.sleep_after(ready, renewal, seen).await {
                return sleep;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the sleep that may begin if nothing is asked after these requests; absent if there is something to do.
    async fn sleep_after(&self, ready: &Services, renewal: &LeaseRenewal, seen: RequestCount) -> Option<Sleep> {
        let is_empty = || renewal.inbox.borrow().has_nothing(&self.meters);
        if !is_empty() || due(ready).await.is_none() {
            return None;
        }
        self.housekeeping(ready).await;
        // Another server may have stored something since the inbox was read last.
        renewal.read_inbox_again().await;
        let due = due(ready).await?;
        (is_empty() && self.attention.asked() == seen).then(|| Sleep::new(seen, due))
    }

    /// Begins nothing new from now on. False if something was asked meanwhile: then this server goes on.
    pub(super) async fn closes_for(&self, sleep: Sleep, ready: &Services) -> bool {
        self.turn(|now| {
            now.role = Role::Draining;
            now.why = "there is nothing to do, and it releases the lease".into();
            (now.services, now.intake, now.leader) = (None, false, None);
        });
        self.attention.asked() == sleep.seen && due(ready).await.is_some()
    }

    /// Does what else happens at intervals, since a server that sleeps often may not lead for as long as one.
    async fn housekeeping(&self, ready: &Services) {
        let data_dir = &self.parts.settings.data_dir;
        complain("old records could not be dropped", retention::sweep(&ready.store, &ready.logs, data_dir).await);
        complain("the journal could not be kept short", ready.store.write_base_if_due().await.map(drop));
        job_sweep::sweep_if_due(&self.vault, &ready.store, &self.swept).await;
    }

    /// Returns a sleep that is over at once if something began meanwhile, such as a command that reconciliation found.
    pub(super) async fn awake_if_busy(&self, sleep: Sleep, ready: &Services) -> Sleep {
        if due(ready).await.is_some() { sleep } else { Sleep { until: Timestamp::now(), ..sleep } }
    }

    /// Waits until this standby may sleep: nobody asks, and another server renews its lease. One that has asked for the lead gets it when
    /// the leader's work has ended, and does not sleep; one that never leads, because of its settings, needs no leader.
    pub(super) async fn until_nobody_asks(&self, has_asked: bool) -> Sleep {
        let Some(idle) = self.parts.settings.sleep.idle_release else { return std::future::pending().await };
        loop {
            let seen = self.attention.unattended(idle).await;
            let before = self.foreign_lease().await;
            self.vault.clock.sleep(self.vault.timing.ttl).await;
            let after = self.foreign_lease().await;
            let is_renewed = before.is_some() && after.is_some() && before != after;
            let is_useless = self.server_status.borrow().mismatch;
            if (is_useless || (is_renewed && !has_asked)) && self.attention.asked() == seen {
                return Sleep::new(seen, None);
            }
        }
    }

    /// Returns the generation of the lease, if another server holds it.
    async fn foreign_lease(&self) -> Option<Generation> {
        let (generation, record) = lease::observe(&self.vault).await.ok()?;
        record.holder.filter(|holder| holder.nonce != self.vault.identity.nonce).map(|_| generation)
    }

    /// Leaves the task that ends a sleep, if the hourly one is too late.
    pub(super) async fn leave_task_for(&self, sleep: Sleep) {
        if sleep.until.duration_since(Timestamp::now()) >= LONGEST - SignedDuration::from_mins(1) {
            return;
        }
        if let Err(error) = self.attention.leave_task(sleep.until).await {
            tracing::warn!(
                "no task was left for what is due at {}, so it may wait for the next one: {error}",
                sleep.until
            );
        }
    }

    /// Sleeps until something is asked or due.
    pub(super) async fn sleep(&self, sleep: Sleep) {
        self.turn(|now| {
            now.role = Role::Asleep;
            now.why =
                format!("there is nothing to do: the next request wakes it, or what is due at {:.0}", sleep.until);
            // A standby that sleeps knows its leader.
            (now.services, now.intake) = (None, false);
        });
        self.attention.fall_asleep(sleep.seen);
        let left = Duration::try_from(sleep.until.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::select! {
            () = self.attention.asked_after(sleep.seen) => {}
            () = tokio::time::sleep(left) => {}
        }
        self.attention.wake_up();
    }
}

/// Returns the queue whose tasks wake the server; absent if there is none.
pub(super) fn wake_queue(settings: &SleepSettings) -> Option<WakeQueue> {
    let (queue, endpoint) = (settings.wake_queue.clone()?, settings.cloud_tasks_endpoint.clone());
    Some(WakeQueue::new(queue, settings.wake_url.clone()?, settings.wake_account.clone()?, endpoint))
}

/// Returns the time at which something is due, which may be none; absent if there is something to do now.
async fn due(ready: &Services) -> Option<Option<Timestamp>> {
    match ready.dispatch.agenda().await {
        Ok(Agenda::Free(due)) => Some(due),
        Ok(Agenda::Busy(what)) => {
            tracing::debug!("this server stays awake: {what}");
            None
        }
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "what there is to do could not be read");
            None
        }
    }
}
