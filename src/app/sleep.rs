//! A server that sleeps (`--idle-release`): a leader with nothing to do releases its lease, and neither it nor a standby that nobody visits
//! makes a request until something wakes it.

use super::job_sweep;
use super::lead::{LeaseRenewal, complain};
use super::retention;
use super::roles::Roles;
use crate::dispatch::Agenda;
use crate::server_status::{Role, Services};
use crate::vault::lease;
use crate::wake::Asked;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Longest sleep: missed deliveries are looked for, and calls that were lost are made up for. On Cloud Run an hourly job wakes the server.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// Pause between two looks for work while there is some.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Times of a lease for which a standby waits before it sleeps: by then it leads if the holder does not renew it.
const TERMS: u32 = 2;

/// A sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleep {
    /// Requests that were served before it.
    seen: Asked,
    /// Its end, if nothing is asked before.
    until: Timestamp,
}

impl Sleep {
    fn new(seen: Asked, due: Option<Timestamp>) -> Sleep {
        let longest = Timestamp::now() + LONGEST;
        Sleep { seen, until: due.map_or(longest, |due| due.min(longest)) }
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
    async fn sleep_after(&self, ready: &Services, renewal: &LeaseRenewal, seen: Asked) -> Option<Sleep> {
        if self.is_busy(ready).await {
            return None;
        }
        self.housekeeping(ready).await;
        // Another server may have stored something since the inbox was read last.
        renewal.read_inbox_again().await;
        let Ok(Agenda::Free(due)) = ready.dispatch.agenda().await else { return None };
        let is_read = renewal.inbox.borrow().has_nothing(&self.meters);
        (is_read && self.attention.asked() == seen).then(|| Sleep::new(seen, due))
    }

    async fn is_busy(&self, ready: &Services) -> bool {
        match ready.dispatch.agenda().await {
            Ok(Agenda::Free(_)) => false,
            Ok(Agenda::Busy(what)) => {
                tracing::debug!("this server stays awake: {what}");
                true
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "what there is to do could not be read");
                true
            }
        }
    }

    /// Does what else happens at intervals, since a server that sleeps often may not lead for as long as one.
    async fn housekeeping(&self, ready: &Services) {
        let data_dir = &self.parts.settings.data_dir;
        complain("old records could not be dropped", retention::sweep(&ready.store, &ready.logs, data_dir).await);
        complain("the journal could not be kept short", ready.store.write_base_if_due().await.map(drop));
        job_sweep::sweep_if_due(&self.vault, &ready.store, &self.swept).await;
    }

    /// Waits until this standby may sleep: nobody asks, and another server leads, as its lease shows.
    pub(super) async fn until_nobody_asks(&self) -> Sleep {
        let Some(idle) = self.parts.settings.sleep.idle_release else { return std::future::pending().await };
        loop {
            self.vault.clock.sleep(self.vault.timing.ttl * TERMS).await;
            let seen = self.attention.unattended(idle).await;
            // While the bucket does not answer, nobody may lead.
            let record = lease::read(&self.vault).await.ok().flatten();
            if record.is_some_and(|record| record.holder.is_some()) {
                return Sleep::new(seen, None);
            }
        }
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
            (now.services, now.intake, now.leader) = (None, false, None);
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
