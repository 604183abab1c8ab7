//! The outbox performs recorded effects on the host: at least once, and exactly once when no request is under way.
//!
//! Each pull request has three lanes. Comments are posted one after another, in the order in which they were recorded. Marks (statuses
//! and reactions) are posted a few at a time and recorded as done together; a status that a later one replaces is not sent. The effect
//! that folds older comments is a mark that waits for the comments before it (`hide`). A merge follows all effects that were recorded
//! before it (`merge`). Before every attempt of a comment, the outbox searches our own comments since it was recorded for its marker: an
//! earlier process, an attempt whose response was lost, or another leader may have posted it. Before each effect it checks with the store
//! that this server may still act. Changes of issues about drift are in the lane of comments of the repository's stand-in (`issue`).
//!
//! No comment or final status is given up while it can still succeed: posts that the host refuses wait until the token or its rights are
//! fixed (`refusals`). Posts keep the rate limit of the host (`pace`), and one repository cannot use all slots.

mod deliver;
mod hide;
mod idle;
mod issue;
mod lane;
mod merge;
mod overwrite;
mod pace;
mod refusals;
mod search;
mod slots;
mod wording;

use crate::domain::state::{Delivery, PendingEffect};
use crate::domain::{PullId, RepoId};
use crate::render::RenderOptions;
use crate::store::{Lane, Store, is_closed, is_deposed};
use crate::traces::Traces;
use crate::vcs::Hosts;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use deliver::{PostResult, counted};
use futures::StreamExt as _;
pub(super) use hide::effect_of as hiding_effect;
pub(super) use overwrite::scope_of as overwrite_scope;
use pace::Pacer;
use refusals::Refusals;
pub(crate) use refusals::RefusedPosts;
use search::SearchStart;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wording::PresentWording;

/// Concurrent statuses and reactions of one pull request.
const MARKS_AT_ONCE: usize = 4;
/// A pending status waits this long for its successor: for a quick job only the result is then sent, which halves the requests.
const COALESCE_DELAY: Duration = Duration::from_millis(400);
/// A stopping server does not wait for effects that are due later than this. They are recorded for the next leader.
const PATIENCE: Duration = Duration::from_secs(10);
/// Note on a status that was not sent.
const SUPERSEDED: &str = "superseded by a later status";
/// Maximum number of closings of merged pull requests that wait for their receiver.
const CLOSINGS: usize = 64;
/// Maximum number of effects of one lane that are loaded at once.
const BATCH: usize = 200;
/// Maximum number of attempts of pending statuses and reactions, across restarts; with the pauses this takes about an hour.
/// Attempts of effects that are never given up are not counted beyond this.
const MAX_TRIES: u32 = 20;

/// Pauses between attempts.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pauses after failed attempts.
    retries: ExponentialBuilder,
    /// Pause between two reads of the marks of one pull request, so that several are sent and recorded together. Sending a mark twice is
    /// harmless, so a crash in between is too.
    marks: Duration,
    /// Time after which an effect is given up if neither it nor its repository is found.
    gone: jiff::SignedDuration,
}

/// First wait after a failed attempt; doubles…
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// …up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(200);
/// Number of attempts after which waits do not grow any more.
const LONGEST_AFTER: u32 = 16;

const PACE: Pace = Pace {
    retries: tidelock_retry::jittered(FIRST_WAIT, LONGEST_WAIT),
    marks: Duration::from_millis(100),
    gone: deliver::GONE,
};

impl Pace {
    /// Returns the pause after this many attempts, which the state counts.
    fn after(self, tries: u32) -> Duration {
        let before = tries.saturating_sub(1).min(LONGEST_AFTER) as usize;
        self.retries.build().nth(before).unwrap_or(LONGEST_WAIT)
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
    /// Wording of comments.
    rendering: PresentWording,
    traces: Traces,
    /// Closings of pull requests that were merged here, each recorded already.
    merged: mpsc::Sender<Delivery>,
    closings: Mutex<Option<mpsc::Receiver<Delivery>>>,
    /// Slots of each host, so that the hanging requests of one do not block the others.
    host_slots: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Slots of repositories with requests under way.
    repo_slots: Mutex<HashMap<RepoId, Arc<Semaphore>>>,
    lanes: Mutex<HashMap<(PullId, Lane), LaneState>>,
    /// Notifies that a lane ended or became idle.
    ended: Notify,
    /// Hosts that requested a pause, and its end.
    pauses: Mutex<HashMap<String, Instant>>,
    /// Rate limiters of hosts that limit posts.
    pacers: Mutex<HashMap<String, Pacer>>,
    search: SearchStart,
    refusals: Refusals,
    pace: Pace,
    runtime: tokio::runtime::Handle,
    stop: CancellationToken,
}

/// A lane with a worker.
struct LaneState {
    wake: Arc<Notify>,
    /// True if effects were recorded since it last read them.
    more: bool,
    /// Time until which it waits; absent while it works.
    until: Option<Instant>,
}

impl Outbox {
    /// Starts the workers, beginning with the effects that an earlier process recorded.
    pub async fn start(store: Store, hosts: Hosts, rendering: RenderOptions, traces: Traces) -> anyhow::Result<Outbox> {
        Outbox::with_pace(store, hosts, rendering, traces, PACE).await
    }

    async fn with_pace(
        store: Store,
        hosts: Hosts,
        rendering: RenderOptions,
        traces: Traces,
        pace: Pace,
    ) -> anyhow::Result<Outbox> {
        let read = store.read(|view| Ok((view.pulls_with_effects()?, view.last_effect()?)));
        let (pulls, inherited) = read.await?;
        let (merged, closings) = mpsc::channel(CLOSINGS);
        let shared = OutboxInner {
            store,
            hosts,
            rendering: PresentWording::new(rendering),
            traces,
            merged,
            closings: Mutex::new(Some(closings)),
            host_slots: Mutex::default(),
            repo_slots: Mutex::default(),
            lanes: Mutex::default(),
            ended: Notify::new(),
            pauses: Mutex::default(),
            pacers: Mutex::default(),
            search: SearchStart::new(inherited),
            refusals: Refusals::default(),
            pace,
            runtime: tokio::runtime::Handle::current(),
            stop: CancellationToken::new(),
        };
        let outbox = Outbox { shared: Arc::new(shared) };
        for pull in &pulls {
            outbox.wake(pull);
            outbox.wake_merge(pull);
        }
        Ok(outbox)
    }

    /// Returns the closings of pull requests that were merged here, as deliveries that are recorded already. Only the first caller gets
    /// them.
    pub fn closings(&self) -> Option<mpsc::Receiver<Delivery>> {
        lock(&self.shared.closings).take()
    }

    /// Starts on effects of this pull request that were just committed.
    pub fn wake(&self, pull: &PullId) {
        self.wake_lane(pull, Lane::Comments);
        self.wake_marks(pull);
    }

    /// Starts on effects of this pull request that were just committed, none of them a comment.
    pub fn wake_marks(&self, pull: &PullId) {
        self.wake_lane(pull, Lane::Marks);
    }

    /// Starts on a merge of this pull request that was just committed.
    pub fn wake_merge(&self, pull: &PullId) {
        self.wake_lane(pull, Lane::Merge);
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
                    finished: false,
                };
                free.insert(LaneState { wake: Arc::clone(&worker.wake), more: false, until: None });
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

    /// Returns the posts that the host refuses until the token or its rights are fixed; `None` if there are none.
    pub fn refused_posts(&self) -> Option<RefusedPosts> {
        self.shared.refusals.all()
    }

    /// Stops at once; recorded effects stay for the current leader.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }
}

impl OutboxInner {
    /// Wakes the merge that waits for other effects of this pull request.
    fn wake_merge(&self, pull: &PullId) {
        if let Some(waiting) = lock(&self.lanes).get(&(pull.clone(), Lane::Merge)) {
            waiting.wake.notify_one();
        }
    }

    /// Wakes all lanes of this repository.
    fn wake_all(&self, repo: &RepoId) {
        let lanes = lock(&self.lanes);
        lanes.iter().filter(|((pull, _), _)| pull.repo == *repo).for_each(|(_, working)| working.wake.notify_one());
    }
}

/// Locks a mutex whose holders leave no partial changes behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs the effects of one lane of one pull request, and ends when none is left.
struct Worker {
    shared: Arc<OutboxInner>,
    key: (PullId, Lane),
    wake: Arc<Notify>,
    finished: bool,
}

impl Drop for Worker {
    /// After a panic or stop, the next wake starts another worker.
    fn drop(&mut self) {
        if !self.finished {
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
            let round = match self.key.1 {
                Lane::Merge => self.merge_round(&mut waits).await,
                Lane::Comments | Lane::Marks => self.round(&mut waits, &mut notes).await,
            };
            match round {
                Ok(true) if self.leave() => return,
                Ok(_) => store_failures = 0,
                Err(error) if is_deposed(&error) => {
                    tracing::info!(pull = %self.key.0, "another server leads now, and posts the remaining effects");
                    return;
                }
                // Remaining effects are recorded for the next start.
                Err(error) if is_closed(&error) => return,
                Err(error) => {
                    store_failures = MAX_TRIES.min(store_failures + 1);
                    tracing::warn!(pull = %self.key.0, "the outbox cannot read or write the state, and tries again: {error:#}");
                    tokio::time::sleep(self.shared.pace.after(store_failures)).await;
                }
            }
            if self.key.1 == Lane::Marks {
                tokio::time::sleep_until(began + self.shared.pace.marks).await;
            }
        }
    }

    /// Ends this lane, unless effects were recorded meanwhile.
    fn leave(&mut self) -> bool {
        let mut lanes = lock(&self.shared.lanes);
        if lanes.get_mut(&self.key).is_some_and(|working| std::mem::take(&mut working.more)) {
            return false;
        }
        lanes.remove(&self.key);
        self.finished = true;
        self.shared.ended.notify_waiters();
        true
    }

    /// Runs one round of the lane: performs ready effects or waits. Returns true if none is left. `waits` has the times before which
    /// effects must not be tried; `notes` has results that are not recorded yet.
    async fn round(&self, waits: &mut HashMap<i64, Instant>, notes: &mut HashMap<i64, String>) -> anyhow::Result<bool> {
        let (pull, lane) = self.key.clone();
        let comments = lane == Lane::Comments;
        let mut pending = self.shared.store.read(move |view| view.effects_of(&pull, lane, BATCH)).await?;
        pending.retain(|effect| !notes.contains_key(&effect.id));
        let now = Instant::now();
        for effect in pending.iter().filter(|effect| !comments && lane::may_be_replaced(&effect.effect)) {
            waits.entry(effect.id).or_insert_with(|| now + COALESCE_DELAY);
        }
        let mut until = waits.clone();
        for effect in &pending {
            if let Some(suspended) = self.shared.refusals.suspended_until(effect, now) {
                until.entry(effect.id).and_modify(|other| *other = suspended.max(*other)).or_insert(suspended);
            }
        }
        let step = lane::NextEffects::select(lane, pending, &until, now);
        for id in step.superseded {
            waits.remove(&id);
            self.shared.refusals.remove(id);
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
            self.wait_until(until).await;
            return Ok(false);
        }
        self.deliver_all(step.ready, waits, notes).await?;
        Ok(false)
    }

    /// Waits until this time, or until it is woken.
    async fn wait_until(&self, until: Instant) {
        self.set_waiting(Some(until));
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = self.wake.notified() => {}
        }
        self.set_waiting(None);
    }

    /// Notes until when this lane waits; none: it works.
    fn set_waiting(&self, until: Option<Instant>) {
        if let Some(working) = lock(&self.shared.lanes).get_mut(&self.key) {
            working.until = until;
        }
        if until.is_some() {
            self.shared.ended.notify_waiters();
        }
    }

    /// Performs the ready effects. Comments are recorded one by one, since each attempt begins with a search for them; marks together.
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
                    self.shared.refusals.remove(effect.id);
                    self.shared.search.remove(effect.id);
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

    /// Records results and attempts; the notes are kept until they are recorded.
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
        self.shared.wake_merge(&self.key.0);
        if self.key.1 == Lane::Comments && self.shared.rendering.get().hide_replaced {
            // The effect that hides older comments may have waited for this one.
            Outbox { shared: Arc::clone(&self.shared) }.wake_marks(&self.key.0);
        }
        notes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
