//! One term of a leader: restore, serve, and the end, which is a signal, a request to hand over, or a deposition.

use super::data_dir;
use super::inbox;
use super::job_sweep;
use super::lease_renewal::LeaseRenewal;
use super::reload::ReloadCause;
use super::retention;
use super::roles::{NextRole, Roles};
use super::sleep::{KeptState, Sleep};
use crate::server_status::{Role, Services};
use crate::store::{ClosedState, Store, is_deposed};
use crate::vault::VaultError;
use crate::vault::bucket::{Bucket, BucketError};
use crate::vault::chain::Chain;
use crate::vault::leader::{LastTerm, Leader};
use crate::vault::lease::Lease;
use anyhow::{Context as _, Error, Result, bail};
use futures::FutureExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Time limit after `--shutdown-grace` for everything else: Cloud Run kills ten seconds after SIGTERM, and the grace is eight by default.
const STOP_LIMIT: Duration = Duration::from_millis(1500);
/// Time limit of the last commit.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Time limit of releasing the lease; otherwise the next leader waits for its end. If the lease was just renewed, the bucket accepts the
/// next write of it only a second later.
pub(super) const RELEASE_LIMIT: Duration = Duration::from_secs(3);
/// During a hand-over, running applies may take this long to end by themselves, or `--shutdown-grace` if that is longer. Plans are
/// requeued at once.
const APPLIES_LIMIT: Duration = Duration::from_secs(300);
/// Time limit of the applies once they are interrupted: SIGINT, SIGKILL (`Settings::interrupt_time`), the last comment.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(30);
/// Pause before the first check for a due base, and after one that failed: other work goes first.
const BASE_PAUSE: Duration = Duration::from_secs(30);
/// Pause between taking the lead and inspecting all objects of the bucket.
const INSPECT_PAUSE: Duration = Duration::from_secs(10);

/// Reason for the end of leadership.
enum LeadershipEnd {
    Stop,
    Handed,
    /// There is nothing to do.
    Idle(Sleep),
    Deposed(String),
}

/// State that a new leader opens.
enum StateToOpen {
    /// It is restored first.
    InBucket(Box<Chain>),
    /// It is on the disk, since this server's last term.
    Closed(ClosedState),
}

impl Roles {
    /// Leads with this lease until something ends it. An error ends the process.
    pub(super) async fn lead(&self, lease: Lease) -> Result<NextRole> {
        let (epoch, identity) = (lease.epoch, self.vault.identity.clone());
        self.turn(|now| {
            now.role = Role::Restoring;
            now.why = "it has the lease, and restores the state from the bucket".into();
            (now.epoch, now.leader, now.mismatch) = (Some(epoch), Some(identity), false);
        });
        let kept = self.kept.lock().await.take();
        // `play` releases a lease with which this server does not come to lead.
        let leading = self.vault.lead_after(lease, kept.as_ref().map(|kept| &kept.last)).boxed();
        let Some(led) = self.or_stopped(leading).await else { return Ok(NextRole::End) };
        let (leader, chain) = match led {
            Ok(Some(led)) => led,
            Ok(None) => return Ok(NextRole::Standby),
            Err(error) => return self.failed(error.into()),
        };
        let renewal = LeaseRenewal::start(leader.clone(), Arc::clone(&self.meters), self.vault.timing.renew);
        let state = match chain {
            Some(chain) => StateToOpen::InBucket(Box::new(chain)),
            None => StateToOpen::Closed(kept.context("there is no state to go on from")?.closed),
        };
        let goes_on = matches!(state, StateToOpen::Closed(_));
        let opened = self.or_stopped(self.open(&leader, state, Arc::clone(&renewal.now)).boxed()).await;
        match opened {
            Some(Ok(ready)) => self.serve(leader, Arc::new(ready), renewal).boxed().await,
            None => {
                release(&leader).await;
                Ok(NextRole::End)
            }
            Some(Err(error)) if goes_on && !is_deposed(&error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "this server cannot go on where it was, and restores the state"
                );
                release(&leader).await;
                Ok(NextRole::Standby)
            }
            Some(Err(error)) => {
                release(&leader).await;
                self.failed(error)
            }
        }
    }

    /// Waits for work that should not be interrupted; at most [`CLOSE_LIMIT`] longer once this server is told to end.
    async fn or_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => Some(done),
            () = self.stop.cancelled() => timeout(CLOSE_LIMIT, work).await.ok(),
        }
    }

    /// Decides after an error on the way to the lead: another try, or the end of the process.
    fn failed(&self, error: Error) -> Result<NextRole> {
        match error.chain().find_map(|cause| cause.downcast_ref::<VaultError>()) {
            Some(VaultError::Deposed(_) | VaultError::Bucket(BucketError::Unavailable { .. })) => {
                tracing::warn!(error = format!("{error:#}"), "could not take the lead; standing by again");
                Ok(NextRole::Standby)
            }
            _ => Err(error),
        }
    }

    /// Opens the state in the data directory, and starts the services on it.
    async fn open(&self, leader: &Leader, state: StateToOpen, look: Arc<Notify>) -> Result<Services> {
        let settings = Arc::clone(&self.parts.settings);
        let data_dir = settings.data_dir.clone();
        self.parts.make_room().boxed().await;
        self.reloader.look(ReloadCause::Lead).await;
        tokio::task::spawn_blocking(move || data_dir::prepare(&settings.data_dir, settings.run_as_user)).await??;
        let store = match state {
            StateToOpen::InBucket(chain) => {
                Store::restore(&data_dir, &chain).boxed().await?;
                drop(chain);
                Store::lead(&data_dir, leader.clone()).boxed().await?
            }
            StateToOpen::Closed(closed) => {
                let store = Store::lead_again(&data_dir, leader.clone(), closed).boxed().await?;
                tracing::info!("no other server has led since this one slept, so nothing is restored");
                store
            }
        };
        match self.parts.start(store.clone(), leader.clone(), Arc::clone(&self.vault.bucket), look).boxed().await {
            Ok(ready) => Ok(ready),
            Err(error) => {
                close(&store).await;
                Err(error)
            }
        }
    }

    async fn serve(&self, leader: Leader, ready: Arc<Services>, renewal: LeaseRenewal) -> Result<NextRole> {
        let first = self.meters.leads.fetch_add(1, Ordering::Relaxed) == 0;
        self.lead_on(&ready);
        // Its lock is held only for moments: who leads hears the signal to end, and of its deposition.
        self.reloader.configure(&ready.dispatch);
        // Read at once the objects that arrived in the inbox during the restore.
        renewal.now.notify_one();
        let mut background_tasks = JoinSet::new();
        background_tasks.spawn(Arc::clone(&self.reloader).record(ready.dispatch.clone()));
        background_tasks.spawn(sync(ready.store.clone(), self.parts.settings.vault.sync_interval));
        background_tasks.spawn(write_bases_when_due(ready.store.clone()));
        if first {
            background_tasks.spawn(inspect(Arc::clone(&self.vault.bucket)));
        }
        background_tasks.spawn(retention::run(
            ready.store.clone(),
            ready.logs.clone(),
            self.parts.settings.data_dir.clone(),
        ));
        background_tasks.spawn(job_sweep::run(self.vault.clone(), ready.store.clone()));
        let (intake, inbox) = (&self.parts.intake, renewal.inbox.clone());
        let mut taking_up = inbox::take_up(&self.vault, &ready, intake, &self.meters, inbox).boxed();
        let end = loop {
            let end = tokio::select! {
                biased;
                () = self.stop.cancelled() => LeadershipEnd::Stop,
                reason = leader.deposed() => LeadershipEnd::Deposed(reason),
                () = &mut taking_up => LeadershipEnd::Handed,
                sleep = self.until_nothing_to_do(&ready, &renewal) => LeadershipEnd::Idle(sleep),
            };
            match end {
                LeadershipEnd::Idle(sleep) if !self.closes_for(sleep, &ready).await => {
                    self.lead_on(&ready);
                    self.reloader.configure(&ready.dispatch);
                    background_tasks.spawn(Arc::clone(&self.reloader).record(ready.dispatch.clone()));
                }
                end => break end,
            }
        };
        drop(taking_up);
        // Background tasks continue until everything has ended: logs of an apply are still saved while a hand-over waits for it.
        let next = self.step_down(&leader, &ready, end).boxed().await;
        drop((background_tasks, renewal));
        // The next leader counts anew.
        for gauge in [&self.meters.waiting, &self.meters.unusable] {
            gauge.store(0, Ordering::Relaxed);
        }
        next
    }

    /// Publishes that this server leads.
    fn lead_on(&self, ready: &Arc<Services>) {
        self.turn(|now| {
            now.role = Role::Leading;
            now.why = String::new();
            now.leader = Some(self.vault.identity.clone());
            (now.services, now.intake) = (Some(Arc::clone(ready)), true);
        });
    }

    async fn step_down(&self, leader: &Leader, ready: &Services, mut end: LeadershipEnd) -> Result<NextRole> {
        if let LeadershipEnd::Handed = end {
            self.wind_down_because("another server asked for the lead, and gets it when what runs here has ended");
            end = self.wind_down(leader, ready).await;
        }
        if let LeadershipEnd::Idle(sleep) = end {
            end = tokio::select! {
                biased;
                () = self.stop.cancelled() => LeadershipEnd::Stop,
                reason = leader.deposed() => LeadershipEnd::Deposed(reason),
                () = self.leave_task_for(sleep) => LeadershipEnd::Idle(self.awake_if_busy(sleep, ready).await),
            };
        }
        if let LeadershipEnd::Stop = end
            && !self.patience().is_zero()
        {
            self.wind_down_because("it was told to end, and does when what is applied here has ended");
            end = self.let_applies_end(leader, ready).await;
        }
        match end {
            LeadershipEnd::Deposed(reason) => {
                self.meters.deposed.fetch_add(1, Ordering::Relaxed);
                self.turn(|now| {
                    now.role = Role::Draining;
                    now.why = format!("it does not lead any more ({reason})");
                    (now.services, now.intake, now.leader) = (None, false, None);
                });
                // An open call of /wake is this server's, and the work another's.
                tokio::join!(self.attention.pass_on(), self.abandon(ready)).1
            }
            LeadershipEnd::Handed => {
                self.enter_draining("another server asked for the lead, and gets it now");
                self.let_go(leader, ready).await?;
                self.until_stop(self.attention.pass_on()).await;
                Ok(NextRole::StandBack)
            }
            LeadershipEnd::Idle(sleep) => {
                let kept = self.let_go(leader, ready).await?;
                *self.kept.lock().await = kept;
                Ok(NextRole::Sleep(sleep))
            }
            LeadershipEnd::Stop => {
                let limit = self.parts.settings.interrupt_time();
                let end = Instant::now() + limit + STOP_LIMIT;
                self.enter_draining("it was told to end");
                ready.dispatch.shut_down(limit).await;
                close(&ready.store).await;
                release_until(leader, end.min(Instant::now() + RELEASE_LIMIT)).await;
                Ok(NextRole::End)
            }
        }
    }

    /// Stops all work, and releases the lease. Returns the state, if that was done in order. An error if commands go on, so that the
    /// process has to end.
    async fn let_go(&self, leader: &Leader, ready: &Services) -> Result<Option<KeptState>> {
        let ended = ready.dispatch.shut_down(INTERRUPT_LIMIT).await;
        let closed = match close(&ready.store).await {
            true => ClosedState::of(&self.parts.settings.data_dir).await.ok(),
            false => None,
        };
        let last = release(leader).await;
        if !ended {
            bail!("commands did not end after {INTERRUPT_LIMIT:?}: this process exits, so that none of them continues");
        }
        Ok(last.zip(closed).map(|(last, closed)| KeptState { last, closed }))
    }

    /// Publishes that this server drains. It still records deliveries.
    fn wind_down_because(&self, why: &str) {
        self.turn(|now| (now.role, now.why) = (Role::Draining, why.into()));
    }

    /// Publishes that this server drains, and records no more deliveries: they go into the inbox.
    fn enter_draining(&self, why: &str) {
        self.turn(|now| (now.role, now.why, now.intake) = (Role::Draining, why.into(), false));
    }

    /// Returns the time for which applies may continue after SIGTERM before they are interrupted.
    fn patience(&self) -> Duration {
        self.parts.settings.shutdown_grace.saturating_sub(self.parts.settings.interrupt_time())
    }

    /// Winds down as for a hand-over, but only within the grace.
    async fn let_applies_end(&self, leader: &Leader, ready: &Services) -> LeadershipEnd {
        tokio::select! {
            biased;
            reason = leader.deposed() => LeadershipEnd::Deposed(reason),
            _ = timeout(self.patience(), ready.dispatch.wind_down()) => LeadershipEnd::Stop,
        }
    }

    /// Requeues plans and lets applies end, for a limited time. Deliveries are still recorded meanwhile, and `cancel` still works.
    async fn wind_down(&self, leader: &Leader, ready: &Services) -> LeadershipEnd {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => LeadershipEnd::Stop,
            reason = leader.deposed() => LeadershipEnd::Deposed(reason),
            _ = timeout(APPLIES_LIMIT.max(self.parts.settings.shutdown_grace), ready.dispatch.wind_down()) => LeadershipEnd::Handed,
        }
    }

    /// Ends the work of a deposed leader: it posts and records nothing more. Plans are interrupted. An apply may end, and its end goes
    /// into the inbox.
    async fn abandon(&self, ready: &Services) -> Result<NextRole> {
        ready.dispatch.stop_posting();
        let mut ended = std::pin::pin!(ready.dispatch.wind_down());
        let next = tokio::select! {
            biased;
            () = &mut ended => NextRole::Standby,
            () = self.stop.cancelled() => NextRole::End,
        };
        if next == NextRole::End {
            let _ = timeout(self.patience(), ended).await;
            ready.dispatch.shut_down(self.parts.settings.interrupt_time()).await;
        }
        close(&ready.store).await;
        Ok(next)
    }
}

/// Makes the last commit. False if that fails; the effect is that of a process killed before it.
async fn close(store: &Store) -> bool {
    match timeout(CLOSE_LIMIT, store.close()).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) if is_deposed(&error) => {}
        Ok(Err(error)) => tracing::warn!(error = format!("{error:#}"), "the state was not closed in order"),
        Err(_) => tracing::warn!("the last commit took longer than {CLOSE_LIMIT:?}"),
    }
    false
}

async fn release(leader: &Leader) -> Option<LastTerm> {
    release_until(leader, Instant::now() + RELEASE_LIMIT).await
}

async fn release_until(leader: &Leader, end: Instant) -> Option<LastTerm> {
    match timeout_at(end, leader.release()).await {
        Ok(Ok(last)) => return last,
        Ok(Err(VaultError::Deposed(_))) => {}
        Ok(Err(error)) => tracing::warn!("the lease was not given up, the next server waits for its end: {error}"),
        Err(_) => tracing::warn!("giving the lease up took too long, the next server waits for its end"),
    }
    None
}

/// Commits at each interval writes that nobody waits for.
async fn sync(store: Store, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        complain("logs of running jobs could not be saved", store.sync().await);
    }
}

/// Writes a base and deletes old objects as soon as that is due. Waits for [`BASE_PAUSE`] at the start of a term, and after a failure.
async fn write_bases_when_due(store: Store) {
    tokio::time::sleep(BASE_PAUSE).await;
    loop {
        let written = store.write_base_if_due().await;
        let failed = written.is_err();
        complain("the journal could not be kept short", written);
        if failed {
            tokio::time::sleep(BASE_PAUSE).await;
        } else {
            store.base_due().await;
        }
    }
}

/// Warns once of objects in the bucket that the state does not need: a restore does not read them.
async fn inspect(bucket: Arc<dyn Bucket>) {
    tokio::time::sleep(INSPECT_PAUSE).await;
    match bucket.inspect().await {
        Ok(warnings) => warnings.into_iter().for_each(|warning| tracing::warn!("{warning}")),
        Err(error) => tracing::warn!("the objects of the bucket could not be looked through: {error}"),
    }
}

/// Logs the failure of work that nobody waits for, unless this server is deposed.
pub(super) fn complain(what: &str, result: Result<()>) {
    match result {
        Err(error) if !is_deposed(&error) => tracing::warn!(error = format!("{error:#}"), "{what}; trying again"),
        _ => {}
    }
}
