//! Decides on events and runs what they cause: allowlist, trigger, one queue and one actor per pull request, cancel, close, drain.
//!
//! [`Handle::accept`] records an event that causes work before it answers. Commands of one pull request run in order in its actor
//! (`actor`); `cancel`, and `unlock` under a running apply, are answered beside it. `resume` continues the work that another process left
//! unfinished.

mod accept;
mod actor;
mod after_merge;
mod agenda;
mod allowlist;
mod auto_applies;
mod by_host;
mod checks;
mod confirmed;
mod decide;
mod delivery_outcome;
mod drift;
mod drift_schedule;
mod immediate_commands;
mod inner;
mod interrupted;
mod late_jobs;
mod late_outcomes;
mod merge_again;
mod merge_group;
mod orphaned_state_locks;
mod overdue_locks;
mod page_commands;
mod plan_invalidation;
mod queues;
mod reconcile;
mod recorder;
mod reminders;
mod renames;
mod replans;
mod repository_commands;
mod requests;
mod resume;
mod take_up;
mod tasks;
mod unknown_merges;
mod unlock;
mod unmerged;

pub(crate) use crate::execute::RequestRefused;
pub(crate) use crate::execute::drift::Remedy;
pub(crate) use crate::execute::{ExecutorUse, PlaceAtExecutor};
pub(crate) use agenda::Agenda;
pub(crate) use allowlist::Allowlist;
pub(crate) use delivery_outcome::DeliveryOutcome;
pub(crate) use drift::{DriftQuestion, RemediationRun};
pub(crate) use drift_schedule::{ScheduleState, ScheduledRepository};
pub(crate) use immediate_commands::Discard;
pub(crate) use page_commands::{PageCommand, button_command, form_key, page_delivery};
pub(crate) use repository_commands::Lifted;
pub(crate) use requests::{AcceptedRequest, Request, RequestEnd, RequestResult};

use crate::comment::ParserSettings;
use crate::config::global::GlobalConfig;
use crate::domain::state::{AuditEntry, Delivery};
use crate::domain::{Event, RunId};
use crate::execute::{self, Context};
use crate::render::RenderOptions;
use crate::reply::outbox::RefusedPosts;
use crate::settings::Settings;
use crate::vault::inbox::LateOutcome;
use crate::webhook::{Intake, Verified};
use anyhow::Result;
use decide::Decision;
use futures::FutureExt as _;
use inner::{Inner, PresentInner};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::Tasks;

/// Time at the end of a shutdown that is reserved for the last comments and statuses; at most a fifth of the shutdown's limit.
const SAYING_LIMIT: Duration = Duration::from_millis(1500);

/// Person who changes something on a web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageVisitor {
    /// Operates the server: no rule of a repository applies.
    Operator,
    /// Anybody else: the rules of the repository apply.
    Other,
}

/// Interface of dispatch to the rest of the server; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    present: Arc<PresentInner>,
}

/// Configuration that may change while the server runs.
pub(crate) struct DispatchConfiguration {
    pub settings: Arc<Settings>,
    /// Server-side configuration.
    pub global: GlobalConfig,
    /// Wording of comments.
    pub rendering: RenderOptions,
    /// Parser settings without the server's login.
    pub names: ParserSettings,
    pub allowlist: Allowlist,
}

impl Handle {
    /// Resumes the work that an earlier process left unfinished, and starts the background tasks.
    pub async fn start(ctx: Context, names: ParserSettings, allowlist: Allowlist, intake: Intake) -> Result<Handle> {
        let first_rounds = reconcile::FirstRounds::of(ctx.hosts.iter().count());
        let present = PresentInner::new(|present| Inner {
            present,
            ctx,
            names,
            allowlist,
            intake,
            actors: Arc::default(),
            repository_commands: Arc::default(),
            bases: Arc::default(),
            tasks: Arc::new(Tasks::new()),
            replans: Arc::default(),
            drift: Arc::default(),
            first_rounds: Arc::new(first_rounds),
            late_looks: Arc::default(),
            last_looks: Arc::default(),
            renames: Arc::default(),
            started: Timestamp::now(),
        });
        let inner = present.get();
        resume::recover(&inner).boxed().await?;
        if let Some(closings) = inner.ctx.outbox.closings() {
            inner.tasks.spawn(resume::take_closings(Arc::clone(&inner), closings));
        }
        for host in inner.ctx.hosts.iter() {
            inner.tasks.spawn(reconcile::run(Arc::clone(&inner), Arc::clone(host)));
            inner.tasks.spawn(reconcile::poll::run(Arc::clone(&inner), Arc::clone(host)));
        }
        inner.tasks.spawn(plan_invalidation::run(Arc::clone(&inner)));
        inner.tasks.spawn(replans::run(Arc::clone(&inner)));
        inner.tasks.spawn(reminders::run(Arc::clone(&inner)));
        inner.tasks.spawn(overdue_locks::run(Arc::clone(&inner)));
        inner.tasks.spawn(drift_schedule::run(Arc::clone(&inner)));
        inner.tasks.spawn(unknown_merges::run(Arc::clone(&inner)));
        inner.tasks.spawn(take_up::run(Arc::clone(&inner)));
        inner.tasks.spawn(late_jobs::run(Arc::clone(&inner)));
        let ours = Arc::clone(&inner);
        inner.tasks.spawn(async move { execute::spare_trees::run(&ours.ctx).await });
        Ok(Handle { present })
    }

    fn inner(&self) -> Arc<Inner> {
        self.present.get()
    }

    /// Replaces the configuration for everything that begins from now on; what has begun keeps its own.
    pub(crate) fn configure(&self, to: DispatchConfiguration) {
        let inner = self.inner();
        let DispatchConfiguration { settings, global, rendering, names, allowlist } = to;
        inner.ctx.outbox.word_as(rendering.clone());
        let ctx = Context { settings, global, rendering, ..inner.ctx.clone() };
        self.present.set(Inner { ctx, names, allowlist, ..Inner::clone(&inner) });
        // Another schedule may be due earlier.
        inner.drift.wake();
    }

    /// Records an entry of the audit log.
    pub(crate) async fn record_audit(&self, entry: AuditEntry) -> Result<()> {
        recorder::transaction(&self.inner(), move |tx| tx.audit(&entry)).await
    }

    /// Accepts a verified event. One that causes no work is acknowledged at once; any other is recorded before the answer.
    pub async fn accept(&self, event: Verified<Event>) -> DeliveryOutcome {
        self.accept_of(event, Timestamp::now()).await
    }

    /// The same with the time of receipt, for an event that waited in the inbox.
    pub async fn accept_of(&self, event: Verified<Event>, received: Timestamp) -> DeliveryOutcome {
        let inner = self.inner();
        if let Some(outcome) = inner.turned_away(event.sight()).await {
            return outcome;
        }
        if let Some(outcome) = inner.handle_unrecorded(event.get(), event.identity()).await {
            return outcome;
        }
        if let Event::Check(check) = event.get() {
            let (identity, host_id) = (event.identity().clone(), event.host_id().to_owned());
            return self.accept_check(check, identity, host_id, received).await;
        }
        let Some(pull) = event.get().pull_id().cloned() else {
            tracing::debug!(delivery = event.host_id(), "not acted on: it is about no pull request");
            return DeliveryOutcome::without_work(event.get()).unwrap_or(DeliveryOutcome::Ignored("Nothing to do."));
        };
        let (identity, host_id) = (event.identity().clone(), event.host_id().to_owned());
        let event = match inner.compared(event.into_inner()).await {
            Ok(event) => event,
            Err(error) => {
                return DeliveryOutcome::unrecorded(&error, &pull, "what is known of a pull request could not be read");
            }
        };
        match inner.decide(&event, &pull) {
            Decision::Ignore(why) => {
                tracing::debug!(%pull, delivery = host_id, "not acted on: {why}");
                DeliveryOutcome::Ignored(why)
            }
            Decision::Superseded(head) => {
                inner.actors.cancel_superseded_plan(&pull, &head);
                DeliveryOutcome::HeadNoted
            }
            decision => {
                let delivery = Delivery { identity, host_id, received, event };
                inner.record(delivery, pull, decision, |_| Ok(true)).await
            }
        }
    }

    /// Deletes a project lock and its plan on behalf of a person on the web page, and posts that on the pull request.
    /// The audit log gets `by`, with the result.
    pub async fn discard_lock(&self, key: &str, by: AuditEntry, visitor: PageVisitor) -> Result<Discard> {
        immediate_commands::discard_lock(&self.inner(), key, by, visitor).await
    }

    /// Lifts the freeze of a repository, `host/owner/name`, on behalf of a person on the web page. The audit log gets `by`.
    pub async fn lift_freeze(&self, repo: &str, by: AuditEntry, visitor: PageVisitor) -> Result<Lifted> {
        repository_commands::lift_freeze(&self.inner(), repo, by, visitor).await
    }

    /// Returns the number of commands, re-plans and drift runs that run or wait.
    pub fn in_progress(&self) -> usize {
        let inner = self.inner();
        // The actors are counted twice, so that a re-plan that moves to them meanwhile is not missed.
        let (before, others) = (inner.actors.count(), inner.replans.count(&inner));
        before.max(inner.actors.count()) + others + inner.drift.count()
    }

    /// Returns the time since the last successful look of polling, for each host that is polled.
    pub(crate) fn last_looks(&self) -> Vec<(String, Duration)> {
        self.inner().last_looks.ages()
    }

    /// Returns what there is to do, now or later.
    pub(crate) async fn agenda(&self) -> Result<Agenda> {
        agenda::read(&self.inner()).await
    }

    /// Returns the present use of each executor but `local`.
    pub(crate) fn executors(&self) -> Vec<ExecutorUse> {
        self.inner().ctx.executors.in_use()
    }

    /// Returns the places of the jobs of a run that wait for a slot of an executor, at most `most`.
    pub(crate) fn places_in_line(&self, run: &RunId, most: usize) -> Vec<PlaceAtExecutor> {
        self.inner().ctx.executors.places_in_line(run, most)
    }

    /// Returns the posts that the host refuses until an operator corrects the token or its rights.
    pub fn refused_posts(&self) -> Option<RefusedPosts> {
        self.inner().ctx.outbox.refused_posts()
    }

    /// Returns true once a shutdown has begun.
    pub fn draining(&self) -> bool {
        self.inner().actors.draining()
    }

    /// Stops all work: plans go back into the queue for the next start, applies are interrupted and reported. Deliveries accepted from now
    /// on wait for the next start. Returns when all actors have ended and everything is posted, at the latest after `limit`; true if all
    /// actors have ended.
    pub async fn shut_down(&self, limit: Duration) -> bool {
        let inner = self.inner();
        let until = Instant::now() + limit;
        inner.actors.interrupt_all();
        inner.drift.stop();
        inner.drift.interrupt();
        let for_actors = limit.saturating_sub(SAYING_LIMIT.min(limit / 5));
        let all = async { tokio::join!(inner.actors.ended(), inner.drift.ended()) };
        let ended = tokio::time::timeout(for_actors, all).await.is_ok();
        if !ended {
            tracing::warn!(left = inner.actors.count(), "commands did not end in time");
        }
        if !inner.ctx.outbox.wait_until_idle(until.saturating_duration_since(Instant::now())).await {
            tracing::warn!("not all was said; the next start says the rest");
        }
        // So that no background task keeps the state open.
        inner.tasks.stop().await;
        inner.ctx.outbox.stop();
        inner.ctx.notifier.stop();
        ended
    }

    /// Begins no new work, stops plans, which go back into the queue, and waits for the end of work that must not be interrupted.
    /// Deliveries accepted meanwhile are recorded for the next start; `cancel` still works.
    pub async fn wind_down(&self) {
        let inner = self.inner();
        inner.actors.wind_down();
        inner.drift.stop();
        inner.actors.ended().await;
        inner.drift.ended().await;
        inner.tasks.stop().await;
    }

    /// Records the outcome of a job that ended on a server deposed meanwhile; returns when it is recorded.
    pub async fn take_late_outcome(&self, end: LateOutcome) -> Result<()> {
        late_outcomes::record(&self.inner(), end).await
    }

    /// Stops all posts: another server makes them. Recorded effects stay recorded.
    pub fn stop_posting(&self) {
        let inner = self.inner();
        inner.ctx.outbox.stop();
        inner.ctx.notifier.stop();
    }
}
