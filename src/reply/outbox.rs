//! The outbox: does recorded effects on the host, at least once, and at rest exactly once.
//!
//! Each pull request has two lanes: comments go one after the other in the order they were recorded; marks (statuses and
//! reactions) go a few at a time, are recorded as done together, and a status that a later one replaces is not sent at all. Before
//! every try of a comment our own comments since it was recorded are searched for its marker: an earlier process, a try whose answer was lost, or a server
//! that leads meanwhile may have posted it. Right before each effect the store is asked whether this server may still act.
//!
//! Nothing that people learn a result from is given up while it can still succeed: what the host refuses waits until somebody has
//! mended the token (`refusals`). Posts keep the pace that the host asks for (`pace`), and one repository takes no more than its part.

mod deliver;
mod lane;
mod pace;
mod refusals;

use crate::domain::state::PendingEffect;
use crate::domain::{PullId, RepoId};
use crate::store::{Store, is_closed, is_deposed};
use crate::vcs::Hosts;
use deliver::PostResult;
use futures::StreamExt as _;
use lane::Lane;
use pace::Pacer;
use refusals::Refusals;
pub use refusals::RefusedPosts;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Effects under way at once on one host, over all its pull requests, ...
const AT_ONCE: usize = 24;
/// ... and over those of one repository: when its requests hang, others have room.
const OF_ONE_REPO: usize = 8;
/// Statuses and reactions of one pull request under way at once.
const MARKS_AT_ONCE: usize = 4;
/// A pending status waits this long for its successor: of a quick job only the result is sent, half the requests.
const LINGER: Duration = Duration::from_millis(400);
/// A server that ends does not wait for what is done later than this; it is recorded, for whoever leads next.
const PATIENCE: Duration = Duration::from_secs(10);
/// Why a status was not sent.
const SUPERSEDED: &str = "superseded by a later status";
/// Effects of one lane that are looked at together.
const BATCH: usize = 200;
/// How often what only passes is tried, over restarts, before it is given up: more than an hour with the pauses between. Tries of
/// what is never given up are not counted any further.
const MAX_TRIES: u32 = 20;

/// Pauses.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// After the first failed try, ...
    first: Duration,
    /// ... and the longest one.
    longest: Duration,
    /// Between two looks at the marks of one pull request: what comes meanwhile is read, done and recorded together. Sending one
    /// twice changes nothing, so that a server that dies in between does no harm.
    marks: Duration,
}

const PACE: Pace =
    Pace { first: Duration::from_secs(1), longest: Duration::from_secs(300), marks: Duration::from_millis(100) };

impl Pace {
    /// The pause after so many tries: doubling, with a quarter of chance so that lanes do not knock together.
    fn after(self, tries: u32) -> Duration {
        let pause = self.first.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(self.longest);
        let mut random = [0_u8];
        // Without chance the pause is as good.
        let _ = getrandom::fill(&mut random);
        pause + pause.mul_f64(f64::from(random[0]) / 1024.0)
    }
}

/// Handle to the workers; cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<OutboxInner>,
}

struct OutboxInner {
    store: Store,
    hosts: Hosts,
    /// Of hosts that something was posted on: one that hangs leaves the others their own.
    host_slots: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Of repositories that have something under way.
    repo_slots: Mutex<HashMap<RepoId, Arc<Semaphore>>>,
    lanes: Mutex<HashMap<(PullId, Lane), Working>>,
    /// A lane ended, or rests.
    ended: Notify,
    /// Hosts that asked us to wait, until when.
    pauses: Mutex<HashMap<String, Instant>>,
    /// What may still be posted on hosts that limit posts.
    pacers: Mutex<HashMap<String, Pacer>>,
    refusals: Refusals,
    pace: Pace,
    runtime: tokio::runtime::Handle,
    stop: CancellationToken,
}

/// A lane at work.
struct Working {
    wake: Arc<Notify>,
    /// More was recorded since it looked.
    more: bool,
    /// It has nothing to do for longer than [`PATIENCE`].
    rests: bool,
}

impl Outbox {
    /// Starts with what an earlier process left.
    pub async fn start(store: Store, hosts: Hosts) -> anyhow::Result<Outbox> {
        Outbox::with_pace(store, hosts, PACE).await
    }

    async fn with_pace(store: Store, hosts: Hosts, pace: Pace) -> anyhow::Result<Outbox> {
        let left = store.read(|view| view.pulls_with_effects()).await?;
        let shared = OutboxInner {
            store,
            hosts,
            host_slots: Mutex::default(),
            repo_slots: Mutex::default(),
            lanes: Mutex::default(),
            ended: Notify::new(),
            pauses: Mutex::default(),
            pacers: Mutex::default(),
            refusals: Refusals::default(),
            pace,
            runtime: tokio::runtime::Handle::current(),
            stop: CancellationToken::new(),
        };
        let outbox = Outbox { shared: Arc::new(shared) };
        left.iter().for_each(|pull| outbox.wake(pull));
        Ok(outbox)
    }

    /// Effects of this pull request were committed: do them.
    pub fn wake(&self, pull: &PullId) {
        self.wake_lane(pull, Lane::Comments);
        self.wake_marks(pull);
    }

    /// The same, where none of them is a comment.
    pub fn wake_marks(&self, pull: &PullId) {
        self.wake_lane(pull, Lane::Marks);
    }

    fn wake_lane(&self, pull: &PullId, lane: Lane) {
        match lock(&self.shared.lanes).entry((pull.clone(), lane)) {
            Entry::Occupied(mut working) => {
                working.get_mut().more = true;
                working.get().wake.notify_one();
            }
            Entry::Vacant(free) => {
                let worker = Worker {
                    shared: Arc::clone(&self.shared),
                    key: free.key().clone(),
                    wake: Arc::default(),
                    left: false,
                };
                free.insert(Working { wake: Arc::clone(&worker.wake), more: false, rests: false });
                let stop = self.shared.stop.clone();
                self.shared.runtime.spawn(async move {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = worker.run() => {}
                    }
                });
            }
        }
    }

    /// What the host refuses until somebody mends the token or its rights; absent when it takes all.
    pub fn refused(&self) -> Option<RefusedPosts> {
        self.shared.refusals.all()
    }

    /// Does nothing more, at once: effects that are recorded stay so, for whoever leads now.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Waits until nothing is left to do, or only what will not be done soon, at most this long; whether that was reached.
    pub async fn drain(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.idle()).await.is_ok()
    }

    async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            if lock(&self.shared.lanes).values().all(|working| working.rests) {
                return;
            }
            ended.await;
        }
    }
}

impl OutboxInner {
    /// Room for one request about a repository; absent when there will be none any more.
    async fn slot(&self, repo: &RepoId) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let of_host = {
            let mut all = lock(&self.host_slots);
            Arc::clone(all.entry(repo.host.clone()).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        let of_repo = {
            let mut all = lock(&self.repo_slots);
            all.retain(|_, slots| Arc::strong_count(slots) > 1);
            Arc::clone(all.entry(repo.clone()).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE_REPO))))
        };
        Some((of_repo.acquire_owned().await.ok()?, of_host.acquire_owned().await.ok()?))
    }

    /// Lanes of this repository look again.
    fn wake_all(&self, repo: &RepoId) {
        let lanes = lock(&self.lanes);
        lanes.iter().filter(|((pull, _), _)| pull.repo == *repo).for_each(|(_, working)| working.wake.notify_one());
    }
}

/// A lock whose holder cannot leave it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works off one lane of one pull request, and ends when nothing is left in it.
struct Worker {
    shared: Arc<OutboxInner>,
    key: (PullId, Lane),
    wake: Arc<Notify>,
    left: bool,
}

impl Drop for Worker {
    /// When it broke off: the next wake starts another.
    fn drop(&mut self) {
        if !self.left {
            lock(&self.shared.lanes).remove(&self.key);
            self.shared.ended.notify_waiters();
        }
    }
}

impl Worker {
    async fn run(mut self) {
        let mut waits = HashMap::new();
        let mut notes = HashMap::new();
        let mut store_failures = 0;
        loop {
            let began = Instant::now();
            match self.round(&mut waits, &mut notes).await {
                Ok(true) if self.leave() => return,
                Ok(_) => store_failures = 0,
                Err(error) if is_deposed(&error) => {
                    tracing::info!(pull = %self.key.0, "another server says what is left to say");
                    return;
                }
                // What is left is recorded, for the next start.
                Err(error) if is_closed(&error) => return,
                Err(error) => {
                    store_failures = MAX_TRIES.min(store_failures + 1);
                    tracing::warn!(pull = %self.key.0, "the outbox cannot reach the state, trying again: {error:#}");
                    tokio::time::sleep(self.shared.pace.after(store_failures)).await;
                }
            }
            if self.key.1 == Lane::Marks {
                tokio::time::sleep_until(began + self.shared.pace.marks).await;
            }
        }
    }

    /// Ends this lane, unless more was recorded meanwhile.
    fn leave(&mut self) -> bool {
        let mut lanes = lock(&self.shared.lanes);
        if lanes.get_mut(&self.key).is_some_and(|working| std::mem::take(&mut working.more)) {
            return false;
        }
        lanes.remove(&self.key);
        self.left = true;
        self.shared.ended.notify_waiters();
        true
    }

    /// One look at the lane: does what is ready or waits; whether nothing is left. `waits` says which effects have to wait
    /// until when; `notes` keeps what is done but not recorded so.
    async fn round(&self, waits: &mut HashMap<i64, Instant>, notes: &mut HashMap<i64, String>) -> anyhow::Result<bool> {
        let (pull, lane) = self.key.clone();
        let comments = lane == Lane::Comments;
        let mut pending = self.shared.store.read(move |view| view.effects_of(&pull, comments, BATCH)).await?;
        pending.retain(|effect| !notes.contains_key(&effect.id));
        let now = Instant::now();
        for effect in pending.iter().filter(|effect| !comments && lane::may_be_replaced(&effect.effect)) {
            waits.entry(effect.id).or_insert_with(|| now + LINGER);
        }
        let mut until = waits.clone();
        for effect in &pending {
            if let Some(closed) = self.shared.refusals.closed(effect, now) {
                until.entry(effect.id).and_modify(|other| *other = closed.max(*other)).or_insert(closed);
            }
        }
        let step = lane.next(pending, &until, now);
        for id in step.superseded {
            waits.remove(&id);
            self.shared.refusals.forget(id);
            notes.insert(id, SUPERSEDED.to_owned());
        }
        if step.ready.is_empty() && step.wait_until.is_none() {
            self.record(notes, Vec::new()).await?;
            return Ok(true);
        }
        let paused =
            lock(&self.shared.pauses).get(&self.key.0.repo.host).copied().filter(|until| *until > Instant::now());
        if let Some(until) = paused.or(step.wait_until.filter(|_| step.ready.is_empty())) {
            self.record(notes, Vec::new()).await?;
            self.rest(until > Instant::now() + PATIENCE);
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.wake.notified() => {}
            }
            self.rest(false);
            return Ok(false);
        }
        self.deliver_all(step.ready, waits, notes).await?;
        Ok(false)
    }

    /// Tells whether this lane has something to do soon.
    fn rest(&self, rests: bool) {
        if let Some(working) = lock(&self.shared.lanes).get_mut(&self.key) {
            working.rests = rests;
        }
        if rests {
            self.shared.ended.notify_waiters();
        }
    }

    /// Comments are recorded one by one, as the next try of one begins with a search for it; marks all together.
    async fn deliver_all(
        &self,
        ready: Vec<PendingEffect>,
        waits: &mut HashMap<i64, Instant>,
        notes: &mut HashMap<i64, String>,
    ) -> anyhow::Result<()> {
        let is_comments = self.key.1 == Lane::Comments;
        let at_once = if is_comments { 1 } else { MARKS_AT_ONCE };
        let mut tried = Vec::new();
        let verdicts = futures::stream::iter(ready.into_iter().map(|effect| self.deliver(effect)));
        let mut verdicts = verdicts.buffered(at_once);
        while let Some((effect, verdict)) = verdicts.next().await {
            let done = matches!(verdict, PostResult::Done(_));
            match verdict {
                PostResult::Done(note) => {
                    waits.remove(&effect.id);
                    self.shared.refusals.forget(effect.id);
                    notes.insert(effect.id, note);
                    if is_comments {
                        self.record(notes, Vec::new()).await?;
                    }
                }
                PostResult::Halt(error) => return Err(error),
                PostResult::Later(at) => _ = at.map(|at| waits.insert(effect.id, at)),
                PostResult::Refused => tried.extend(counted(&effect)),
                PostResult::Again(pause) => {
                    waits.insert(effect.id, Instant::now() + pause);
                    tried.extend(counted(&effect));
                }
            }
            if is_comments && !done {
                break;
            }
        }
        self.record(notes, tried).await
    }

    async fn deliver(&self, effect: PendingEffect) -> (PendingEffect, PostResult) {
        let verdict = self.shared.deliver(&effect).await;
        (effect, verdict)
    }

    /// Records what is done, and what was tried; the notes are kept until that is so.
    async fn record(&self, notes: &mut HashMap<i64, String>, tried: Vec<i64>) -> anyhow::Result<()> {
        if notes.is_empty() && tried.is_empty() {
            return Ok(());
        }
        let done = notes.clone();
        let write = self.shared.store.write(move |tx| {
            tried.iter().try_for_each(|id| tx.effect_tried(*id))?;
            done.iter().try_for_each(|(id, note)| tx.effect_done(*id, note))
        });
        write.await?;
        notes.clear();
        Ok(())
    }
}

/// The effect, if its try is to be recorded: what is never given up is tried for as long as it takes.
fn counted(effect: &PendingEffect) -> Option<i64> {
    (effect.attempts < MAX_TRIES).then_some(effect.id)
}

#[cfg(test)]
mod tests;
