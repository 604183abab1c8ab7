//! Event → who may do what: allowlist, trigger, one queue and one actor per pull request, cancel, close, drain.
//!
//! [`Handle::accept`] records what causes work before it answers. Commands of one pull request run in order in its actor (`actor`); `cancel`,
//! and `unlock` under a running apply, are answered beside it. `resume` goes on with what another process left.

mod actor;
mod after_merge;
mod allowlist;
mod by_host;
mod delivery_outcome;
mod drift;
mod hatches;
mod immediate_commands;
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

use crate::comment::{self, Parsed, ParserSettings};
use crate::domain::command::{Command, CommandName};
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::state::{AuditEntry, Delivery, Effect};
use crate::domain::{CommentEvent, CommitSha, DeliveryId, Event, PullAction, PullEvent, PullId, PullRequest, RunId};
use crate::execute::{self, Context, comment_effects, random_bits};
use crate::reply::outbox::RefusedPosts;
use crate::store::Tx;
use crate::vault::inbox::LateOutcome;
use crate::webhook::{Intake, Verified};
use anyhow::Result;
use futures::FutureExt as _;
use jiff::Timestamp;
use queues::{Actors, Item, Task};
use recorder::Commit;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::Tasks;

/// Kept of a shutdown's time for the last comments and statuses; of a short one, a fifth.
const SAYING_LIMIT: Duration = Duration::from_millis(1500);

/// Said of a delivery to whoever looks at it on the host, and in the log.
const NOT_ALLOWLISTED: &str = "This repository is not in --repo-allowlist, so nothing is done for it.";

/// What the rest of the server asks of dispatch; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    ctx: Context,
    /// Without our login, which differs from host to host: see `names_for`.
    names: ParserSettings,
    allowlist: Allowlist,
    /// Knows what deliveries are known by.
    intake: Intake,
    actors: Actors,
    /// Escape hatches that are answered beside the actors.
    hatches: hatches::HatchQueues,
    /// Branches that plans were made for.
    bases: plan_invalidation::BaseBranches,
    tasks: Tasks,
    /// Plans that nobody asked for, and that no queue has yet.
    replans: replans::WaitingReplans,
    drift: drift::DriftRuns,
    /// One repository follows its host at a time.
    renames: tokio::sync::Mutex<()>,
    /// What was accepted before it may be old news.
    started: Timestamp,
}

/// What is to be done about an event.
enum Decision {
    /// Nothing; the text says why, for the log and the host.
    Ignore(&'static str),
    /// A reply and nothing else.
    Reply(Message),
    /// Work for the pull request's actor.
    Queue(Task),
    /// A push that is not planned; whatever plans an older head is obsolete.
    Obsolete(CommitSha),
    /// A command in an edited comment: it is not run, and a reaction is all that tells it.
    Edited,
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

impl Inner {
    fn decide(&self, event: &Event, pull: &PullId) -> Decision {
        let allowed = self.allowlist.allows(&pull.repo);
        match event {
            Event::Comment(comment) => self.decide_comment(comment, allowed),
            Event::Pull(event) => self.decide_pull(event, allowed),
            Event::MergeGroup(_) if !allowed => self.not_allowlisted(pull, false),
            Event::MergeGroup(event) => Decision::Queue(Task::MergeGroup(event.clone())),
            Event::Request(_) => Decision::Ignore("no host asks for this"),
            _ => Decision::Ignore("nothing to do"),
        }
    }

    fn decide_comment(&self, comment: &CommentEvent, allowed: bool) -> Decision {
        let Some(names) = self.names_for(&comment.pull.repo) else {
            return Decision::Ignore("the host is not configured");
        };
        if comment.author.is(&names.bot_login) {
            return Decision::Ignore("our own comment");
        }
        let parsed = comment::parse(&comment.body, &comment.author, &names);
        if parsed == Parsed::NotForUs {
            return Decision::Ignore("not a command");
        }
        if !allowed {
            return self.not_allowlisted(&comment.pull, true);
        }
        let message = match parsed {
            Parsed::Command(mut command) => {
                // Its own number alone: as without one.
                if command.pulls == [comment.pull.number] {
                    command.pulls.clear();
                }
                return Decision::Queue(Task::Command { comment: comment.clone(), command });
            }
            Parsed::Help(text) => Message::Help { text },
            Parsed::Usage(text) => Message::Usage { text },
            Parsed::Unknown(word) => Message::UnknownCommand { word, allowed: names.allowed },
            Parsed::SwitchedOff(name) => Message::SwitchedOff { name, allowed: names.allowed },
            Parsed::DidYouMean(suggestion) => Message::DidYouMean { suggestion },
            Parsed::NotForUs => return Decision::Ignore("not a command"),
        };
        Decision::Reply(message)
    }

    fn decide_pull(&self, event: &PullEvent, allowed: bool) -> Decision {
        let (settings, pull) = (&self.ctx.settings, &event.pull);
        if !allowed {
            return self.not_allowlisted(&pull.id, event.action == PullAction::Opened);
        }
        if matches!(event.action, PullAction::Closed { .. }) {
            return Decision::Queue(Task::Closed(Box::new(event.clone())));
        }
        let obsolete = Decision::Obsolete(pull.head.commit.clone());
        if pull.fork && !settings.allow_fork_prs {
            let say = !settings.silence_fork_pr_errors && event.action == PullAction::Opened;
            return if say { Decision::Reply(Message::ForkRefused) } else { obsolete };
        }
        match self.no_autoplan(pull) {
            Some(_) => obsolete,
            None => Decision::Queue(Task::Autoplan(Box::new(event.clone()))),
        }
    }

    /// Why a pull request is not planned without being asked, by its draft, its labels and the settings.
    fn no_autoplan(&self, pull: &PullRequest) -> Option<&'static str> {
        let settings = &self.ctx.settings;
        let labelled = |label: &String| pull.labels.iter().any(|known| known == label);
        if settings.disable_autoplan {
            Some("autoplan is off on this server (`--disable-autoplan`)")
        } else if pull.draft && !settings.allow_draft_prs {
            Some("it is a draft")
        } else if settings.disable_autoplan_label.as_ref().is_some_and(labelled) {
            Some("it has the label that keeps it from being planned (`--disable-autoplan-label`)")
        } else {
            (!pull.is_open()).then_some("it is closed")
        }
    }

    /// The same, with what autoplan asks when its turn has come.
    fn autoplan_refusal(&self, pull: &PullRequest) -> Option<&'static str> {
        if !self.allowlist.allows(&pull.id.repo) {
            Some(NOT_ALLOWLISTED)
        } else if pull.fork && !self.ctx.settings.allow_fork_prs {
            Some("it comes from a fork")
        } else if !self.ctx.global.rules(&pull.id.repo, &pull.base.branch).branch_allowed {
            Some("its base branch is not served")
        } else {
            self.no_autoplan(pull)
        }
    }

    /// One commit before the 2xx: the delivery, what is said at once, and `also` if the delivery is new. Where `also` says no, nothing is
    /// recorded.
    async fn record(
        self: &Arc<Self>,
        delivery: Delivery,
        pull: PullId,
        decision: Decision,
        also: impl FnOnce(&Tx<'_>) -> Result<bool> + Send + 'static,
    ) -> DeliveryOutcome {
        let reaction = self.reaction(&delivery.event, &decision);
        let (task, replies) = match decision {
            Decision::Queue(task) => (Some(task), Vec::new()),
            Decision::Reply(message) => (None, self.answer(&pull, None, message)),
            Decision::Ignore(_) | Decision::Obsolete(_) | Decision::Edited => (None, Vec::new()),
        };
        let (identity, received) = (delivery.identity.clone(), delivery.received);
        let effects = reaction.into_iter().chain(replies).collect();
        match recorder::accept(self, delivery, &pull, effects, task.is_none(), also).await {
            Ok(true) => {}
            Ok(false) => return DeliveryOutcome::Known,
            Err(error) => {
                return DeliveryOutcome::unrecorded(&error, &pull, "a delivery could not be recorded");
            }
        }
        let Some(task) = task else { return DeliveryOutcome::Answered };
        self.take(pull, Item { delivery: identity, received, task }).await;
        DeliveryOutcome::Queued
    }

    /// Puts a recorded item where it belongs: aside, or into the queue. Waits for no host: whoever delivered it waits for this.
    async fn take(self: &Arc<Self>, pull: PullId, item: Item) {
        match &item.task {
            Task::Command { command, .. } if command.name == CommandName::Cancel => {
                let inner = Arc::clone(self);
                let begun = self.tasks.spawn(async move { immediate_commands::cancel(&inner, &pull, &item).await });
                if !begun {
                    tracing::debug!("a cancellation waits for the next start: this server stops");
                }
            }
            Task::Command { command, .. } if hatches::is_answered_beside(command) => {
                hatches::enqueue(self, pull, item);
            }
            Task::Command { command, .. } if command.name == CommandName::Unlock && self.actors.applying(&pull) => {
                unlock::refuse_unlock(self, &pull, &item, command).await;
            }
            _ => actor::enqueue(self, pull, item),
        }
    }

    fn reaction(&self, event: &Event, decision: &Decision) -> Option<Effect> {
        let Event::Comment(comment) = event else { return None };
        let usual = self.ctx.settings.emoji_reaction.as_deref()?;
        let reaction = if matches!(decision, Decision::Edited) { "confused" } else { usual }.to_owned();
        let reacts = self.ctx.hosts.of(&comment.pull.repo).is_ok_and(|host| host.profile().reactions);
        let refused = matches!(decision, Decision::Reply(Message::NotAllowlisted));
        (reacts && !refused).then_some(Effect::React { comment_id: comment.comment_id, reaction })
    }

    /// A reply outside of any run, as effects.
    fn answer(&self, pull: &PullId, command: Option<&Command>, message: Message) -> Vec<Effect> {
        self.reply(pull, command, ReplyBody::Message(message))
    }

    fn reply(&self, pull: &PullId, command: Option<&Command>, body: ReplyBody) -> Vec<Effect> {
        let reply =
            Reply { run: RunId::of(random_bits()), pull: pull.clone(), command: command.cloned(), head: None, body };
        comment_effects(&self.ctx, &reply)
    }

    /// Records a message as the answer to a delivery.
    async fn answer_delivery(
        &self,
        pull: &PullId,
        delivery: &DeliveryId,
        command: Option<&Command>,
        message: Option<Message>,
    ) -> Result<()> {
        self.answer_delivery_with(pull, delivery, command, message.map(ReplyBody::Message)).await
    }

    /// The same with any reply.
    async fn answer_delivery_with(
        &self,
        pull: &PullId,
        delivery: &DeliveryId,
        command: Option<&Command>,
        body: Option<ReplyBody>,
    ) -> Result<()> {
        let effects = body.map(|body| self.reply(pull, command, body)).unwrap_or_default();
        let outcome = if effects.is_empty() { "nothing to say" } else { "answered" };
        Commit::about(pull).posts(effects).done(delivery, outcome).record(self).await
    }
}
