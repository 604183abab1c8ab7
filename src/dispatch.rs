//! Event → who may do what: allowlist, trigger, one queue and one actor per pull request, cancel, close, drain.
//!
//! [`Handle::accept`] records what causes work before it answers. Commands of one pull request run in order in its actor (`actor`); `cancel`,
//! and `unlock` under a running apply, are answered beside it. `resume` goes on with what another process left.

mod accept;
mod actor;
mod after_merge;
mod allowlist;
mod by_host;
mod decide;
mod delivery_outcome;
mod drift;
mod hatches;
mod immediate_commands;
mod inner;
mod late_outcomes;
mod merge_again;
mod merge_group;
mod orphaned_state_locks;
mod plan_invalidation;
mod queues;
mod reconcile;
mod recorder;
mod reminders;
mod renames;
mod replans;
mod requests;
mod resume;
mod tasks;
mod unknown_merges;
mod unlock;
mod unmerged;

pub(crate) use crate::execute::drift::Remedy;
pub(crate) use allowlist::Allowlist;
pub(crate) use delivery_outcome::DeliveryOutcome;
pub(crate) use drift::DriftQuestion;
pub(crate) use hatches::Lifted;
pub(crate) use immediate_commands::Discard;
pub(crate) use requests::{AcceptedRequest, Request, RequestEnd, RequestRefused, RequestResult};

use crate::comment::ParserSettings;
use crate::domain::Event;
use crate::domain::state::{AuditEntry, Delivery};
use crate::execute::{self, Context};
use crate::reply::outbox::RefusedPosts;
use crate::vault::inbox::LateOutcome;
use crate::webhook::{Intake, Verified};
use anyhow::Result;
use decide::Decision;
use futures::FutureExt as _;
use inner::Inner;
use jiff::Timestamp;
use queues::Actors;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::Tasks;

/// Kept of a shutdown's time for the last comments and statuses; of a short one, a fifth.
const SAYING_LIMIT: Duration = Duration::from_millis(1500);

/// What the rest of the server asks of dispatch; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

impl Handle {
    /// Takes up what an earlier process left, and is ready for events.
    pub async fn start(ctx: Context, names: ParserSettings, allowlist: Allowlist, intake: Intake) -> Result<Handle> {
        let inner = Arc::new(Inner {
            ctx,
            names,
            allowlist,
            intake,
            actors: Actors::default(),
            hatches: hatches::HatchQueues::default(),
            bases: plan_invalidation::BaseBranches::default(),
            tasks: Tasks::new(),
            replans: replans::WaitingReplans::default(),
            drift: drift::DriftRuns::default(),
            renames: tokio::sync::Mutex::default(),
            started: Timestamp::now(),
        });
        resume::recover(&inner).boxed().await?;
        if let Some(closings) = inner.ctx.outbox.closings() {
            inner.tasks.spawn(resume::take_closings(Arc::clone(&inner), closings));
        }
        for host in inner.ctx.hosts.iter() {
            inner.tasks.spawn(reconcile::run(Arc::clone(&inner), Arc::clone(host)));
        }
        inner.tasks.spawn(plan_invalidation::run(Arc::clone(&inner)));
        inner.tasks.spawn(replans::keep(Arc::clone(&inner)));
        inner.tasks.spawn(reminders::keep(Arc::clone(&inner)));
        inner.tasks.spawn(unknown_merges::keep(Arc::clone(&inner)));
        let ours = Arc::clone(&inner);
        inner.tasks.spawn(async move { execute::spare_trees::keep(&ours.ctx).await });
        Ok(Handle { inner })
    }

    /// Takes a verified event: acknowledges at once what causes no work, records what does, and only then answers.
    pub async fn accept(&self, event: Verified<Event>) -> DeliveryOutcome {
        self.accept_of(event, Timestamp::now()).await
    }

    /// The same for an event that came earlier, and waited in the inbox.
    pub async fn accept_of(&self, event: Verified<Event>, received: Timestamp) -> DeliveryOutcome {
        if let Some(outcome) = self.inner.turned_away(event.sight()).await {
            return outcome;
        }
        if let Some(outcome) = self.inner.heard(event.get()).await {
            return outcome;
        }
        let Some(pull) = event.get().pull_id().cloned() else {
            tracing::debug!(delivery = event.host_id(), "not acted on: it is about no pull request");
            return DeliveryOutcome::without_work(event.get()).unwrap_or(DeliveryOutcome::Ignored("Nothing to do."));
        };
        let (identity, host_id) = (event.identity().clone(), event.host_id().to_owned());
        let event = match self.inner.compared(event.into_inner()).await {
            Ok(event) => event,
            Err(error) => {
                return DeliveryOutcome::unrecorded(&error, &pull, "what is known of a pull request could not be read");
            }
        };
        match self.inner.decide(&event, &pull) {
            Decision::Ignore(why) => {
                tracing::debug!(%pull, delivery = host_id, "not acted on: {why}");
                DeliveryOutcome::Ignored(why)
            }
            Decision::Obsolete(head) => {
                self.inner.actors.cancel_obsolete(&pull, &head);
                DeliveryOutcome::HeadNoted
            }
            decision => {
                let delivery = Delivery { identity, host_id, received, event };
                self.inner.record(delivery, pull, decision, |_| Ok(true)).await
            }
        }
    }

    /// Deletes a project lock and its plan on behalf of a person on the web page, and tells the pull request.
    /// The audit log gets `by`, with how it ended. `operator`: the person runs the server; others are held against the rules of the
    /// lock's repository.
    pub async fn discard_lock(&self, key: &str, by: AuditEntry, operator: bool) -> Result<Discard> {
        immediate_commands::discard_lock(&self.inner, key, by, operator).await
    }

    /// Lifts the freeze of a repository, `host/owner/name`, on behalf of a person on the web page. The audit log gets `by`. `operator`: the
    /// person runs the server; others need the right to do so.
    pub async fn lift_freeze(&self, repo: &str, by: AuditEntry, operator: bool) -> Result<Lifted> {
        hatches::lift_freeze(&self.inner, repo, by, operator).await
    }

    /// How many commands run or wait.
    pub fn in_progress(&self) -> usize {
        // What goes from one to the other while they are counted is counted.
        let (before, others) = (self.inner.actors.count(), self.inner.replans.count(&self.inner));
        before.max(self.inner.actors.count()) + others + self.inner.drift.count()
    }

    /// What the host refuses to take from us, until somebody mends the token or its rights.
    pub fn refused(&self) -> Option<RefusedPosts> {
        self.inner.ctx.outbox.refused()
    }

    /// Whether a shutdown has begun.
    pub fn draining(&self) -> bool {
        self.inner.actors.draining()
    }

    /// Stops all work: plans go back into the queue for the next start, applies are interrupted and told. What is accepted
    /// from now on waits for the next start. Returns when all actors have ended and all is said, at the latest after `limit`;
    /// whether all actors have ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.inner.actors.drain();
        self.inner.drift.stop();
        self.inner.drift.interrupt();
        let for_actors = limit.saturating_sub(SAYING_LIMIT.min(limit / 5));
        let all = async { tokio::join!(self.inner.actors.ended(), self.inner.drift.ended()) };
        let ended = tokio::time::timeout(for_actors, all).await.is_ok();
        if !ended {
            tracing::warn!(left = self.inner.actors.count(), "commands did not end in time");
        }
        if !self.inner.ctx.outbox.drain(until.saturating_duration_since(Instant::now())).await {
            tracing::warn!("not all was said; the next start says the rest");
        }
        // Nothing of it goes on, and nothing keeps the state open.
        self.inner.tasks.stop().await;
        self.inner.ctx.outbox.stop();
        self.inner.ctx.notifier.stop();
        ended
    }

    /// Begins no new work, stops plans, which go back into the queue, and waits until what must not be interrupted has ended.
    /// What is accepted meanwhile is recorded for the next start; `cancel` works.
    pub async fn wind_down(&self) {
        self.inner.actors.wind_down();
        self.inner.drift.stop();
        self.inner.actors.ended().await;
        self.inner.drift.ended().await;
        self.inner.tasks.stop().await;
    }

    /// Takes up how a job ended on a server that had been deposed meanwhile; returns when that is recorded.
    pub async fn take_late_outcome(&self, end: LateOutcome) -> Result<()> {
        late_outcomes::take(&self.inner, end).await
    }

    /// Nothing more is posted: another server says it. Recorded effects stay recorded.
    pub fn fall_silent(&self) {
        self.inner.ctx.outbox.stop();
        self.inner.ctx.notifier.stop();
    }
}
