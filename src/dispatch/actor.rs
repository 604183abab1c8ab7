//! One queue and one actor per pull request: commands run in order, a push supersedes a running plan.

use super::confirmed::confirm;
use super::inner::Inner;
use super::queues::{Item, Next, Task, is_late_by_itself};
use super::recorder::Commit;
use super::{
    after_merge, auto_applies, immediate_commands, merge_group, orphaned_state_locks, plan_invalidation, replans,
    requests, resume, take_up, unknown_merges, unlock,
};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::reply::Message;
use crate::domain::state::{Cause, Effect, Run};
use crate::domain::{CommentEvent, CommitSha, Login, PullEvent, PullId, PullRequest};
use crate::execute::measured;
use crate::execute::merged::{self, AfterMerge};
use crate::execute::{self, CancelReason, CommandRun, Ended, permissions};
use crate::store::is_deposed;
use crate::vcs::HostError;
use anyhow::{Result, anyhow, bail};
use backon::{ExponentialBuilder, Retryable as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// An event older than this is checked against the host before it is acted on.
const FRESH: SignedDuration = SignedDuration::from_secs(10);
/// An apply or unlock that waited longer than this is not run any more: the person has moved on.
const COMMAND_EXPIRY: SignedDuration = SignedDuration::from_mins(10);
/// Delays between attempts to read a pull request from the host.
pub(super) const HOST_RETRIES: ExponentialBuilder =
    tidelock_retry::jittered(Duration::from_millis(1500), Duration::from_secs(12)).with_max_times(4);

/// Adds an item to its pull request's queue, and wakes or starts the actor.
pub(super) fn enqueue(inner: &Arc<Inner>, pull: PullId, item: Item) {
    inner.actors.add(&pull, item);
    wake(inner, pull);
}

/// Starts the actor of a pull request, unless it runs. Once all tasks were stopped, recorded items wait for the next start.
pub(super) fn wake(inner: &Arc<Inner>, pull: PullId) {
    if inner.actors.try_start_actor(&pull) {
        inner.tasks.spawn(work_off(Arc::clone(inner), pull));
    }
}

/// Runs the actor: handles one item after the other until none is left.
async fn work_off(inner: Arc<Inner>, pull: PullId) {
    one_by_one(&pull, || turn(inner.now(), &pull).boxed()).await;
    inner.actors.ended.notify_waiters();
}

/// Runs turns until one returns false. A panic ends its turn, never the queue: the items behind it are still handled.
async fn one_by_one<'a>(pull: &'a PullId, mut turn: impl FnMut() -> BoxFuture<'a, bool> + Send) {
    while caught(pull, turn()).await.unwrap_or(true) {
        // So that turns that panic again and again do not starve other tasks.
        tokio::task::yield_now().await;
    }
}

/// Returns the result of the work; absent if it panicked.
async fn caught<T>(pull: &PullId, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.inspect_err(|_| tracing::error!(%pull, "a panic, told above, ended what was done for this pull request")).ok()
}

/// Handles the next item, with one configuration to its end; false if none is left, or another server leads now.
async fn turn(inner: Arc<Inner>, pull: &PullId) -> bool {
    let inner = &inner;
    let item = match inner.actors.next(pull, &inner.ctx.orphaned_locks) {
        Next::Item(item) => item,
        Next::Settle => {
            orphaned_state_locks::settle(inner, pull).await;
            return true;
        }
        Next::End => return false,
    };
    if item.task.command().is_some() {
        inner.ctx.meters.queued(measured::since(item.received));
    }
    let cause = item.cause.clone();
    if ended(inner, pull, &cause, handle(inner, pull, item)).await {
        return true;
    }
    inner.actors.remove_queue(pull);
    false
}

/// Does the work of a delivery or re-plan, and reports it if it breaks off. Returns false if another server leads now.
pub(super) async fn ended(
    inner: &Arc<Inner>,
    pull: &PullId,
    cause: &Cause,
    work: impl Future<Output = Result<()>>,
) -> bool {
    let handled = caught(pull, work).await;
    let Err(error) = handled.unwrap_or_else(|| Err(anyhow!("a panic, told above"))) else { return true };
    if is_deposed(&error) {
        tracing::info!(%pull, %cause, "left to the server that leads now");
        return false;
    }
    tracing::error!(%pull, %cause, error = format!("{error:#}"), "its work could not be done");
    if let Err(error) = resume::broken_off(inner, pull, cause).await {
        tracing::error!(%pull, %cause, error = format!("{error:#}"), "nor could that be told");
    }
    true
}

async fn handle(inner: &Arc<Inner>, pull: &PullId, item: Item) -> Result<()> {
    match &item.task {
        Task::Closed(event) => immediate_commands::close(inner, event, &item).boxed().await,
        Task::Autoplan(event) => autoplan(inner, event, &item).boxed().await,
        Task::MergeGroup(event) => merge_group::answer(inner, event, &item).boxed().await,
        Task::Replan(id) => replans::plan(inner, pull, *id, &item).boxed().await,
        Task::TakeUp(taken_up) => {
            let taken_up = (**taken_up).clone();
            take_up::follow(inner, taken_up, &item).boxed().await
        }
        Task::FollowUp(follow_up) => after_merge::follow_up(inner, follow_up, &item).boxed().await,
        Task::AutoApply(event) => auto_applies::look(inner, event, &item).boxed().await,
        Task::Command { comment, command } => {
            let command = (**command).clone();
            let comment = comment.clone();
            if !inner.allowlist.allows(&pull.repo) {
                let reply = inner.removed_reply(pull);
                return inner.answer_delivery(pull, &item.cause, Some(&command), reply).await;
            }
            comment_command(inner, pull, &comment, command, item).boxed().await
        }
    }
}

/// Returns the pull request as the host has it now; retries transient errors.
pub(super) async fn fetch_pull(inner: &Inner, pull: &PullId) -> Result<PullRequest, HostError> {
    let host = inner.ctx.hosts.for_repo(&pull.repo)?;
    let found = (|| host.pull_request(pull)).retry(HOST_RETRIES).when(HostError::is_transient).await?;
    inner.check_told(&**host, &pull.repo).await?;
    Ok(found)
}

/// Asks the host who pushed the head, for deliveries that do not say. A person who stays unknown has no permissions.
pub(super) async fn pusher(inner: &Inner, pull: &PullRequest) -> Login {
    let ask = || async { inner.ctx.hosts.for_repo(&pull.id.repo)?.pusher(pull).await };
    ask.retry(HOST_RETRIES).when(HostError::is_transient).await.unwrap_or_else(|error| {
        tracing::warn!(pull = %pull.id, "the host does not say who pushed: {error}");
        Login::unknown()
    })
}

async fn autoplan(inner: &Arc<Inner>, event: &PullEvent, item: &Item) -> Result<()> {
    let Some(pull) = present(inner, event, item).await else {
        // The next round of reconciliation looks at it again.
        return inner.answer_delivery(event.pull.id(), &item.cause, None, None).await;
    };
    let skip = if let Some(why) = inner.autoplan_refusal(&pull) {
        Some((why, None))
    } else if event.pull.head().is_some_and(|head| *head != pull.head.commit) {
        Some(("a newer push follows", None))
    } else if let Some(trigger) = planned_since(inner, &pull, item).await? {
        // An automatic plan is the answer to every delivery about its commit; a plan by a command was an answer to that person.
        let message = (!trigger.is_unasked()).then(|| Message::PlannedAlready { head: pull.head.commit.clone() });
        Some(("this head was planned meanwhile", message))
    } else {
        None
    };
    if let Some((why, message)) = skip {
        tracing::info!(pull = %pull.id, "no autoplan: {why}");
        return inner.answer_delivery(&pull.id, &item.cause, None, message).await;
    }
    let sender = if event.sender.is_unknown() { pusher(inner, &pull).await } else { event.sender.clone() };
    let command = Command::new(CommandName::Plan, Trigger::Autoplan, sender);
    plan_unasked(inner, pull, command, &item.cause).await
}

/// Returns the pull request of an event: as the event tells it if that is all of it and fresh, else as the host has it now. If the host does
/// not answer, a whole pull request of the event is believed; absent if the event has only a part of it.
async fn present(inner: &Inner, event: &PullEvent, item: &Item) -> Option<PullRequest> {
    let id = event.pull.id();
    let late = inner.actors.is_late(id, &event.version);
    let lacks_labels = inner.ctx.settings.disable_autoplan_label.is_some()
        && inner.ctx.hosts.for_repo(&id.repo).is_ok_and(|host| !host.profile().deliveries_tell_labels);
    let old = item.received < inner.started || Timestamp::now().duration_since(item.received) > FRESH;
    let told = event.pull.whole();
    if let Some(told) = told.filter(|_| !late && !lacks_labels && !old) {
        return Some(told.clone());
    }
    match fetch_pull(inner, id).await {
        Ok(now) => Some(now),
        Err(error) => {
            let instead = if told.is_some() { "goes by its event" } else { "waits for the next round" };
            tracing::warn!(pull = %id, "autoplan {instead}, the host does not answer: {error}");
            told.cloned()
        }
    }
}

/// Runs a plan without a command. If it is stopped, the status says why, without a comment.
pub(super) async fn plan_unasked(inner: &Arc<Inner>, pull: PullRequest, command: Command, cause: &Cause) -> Result<()> {
    match start(inner, pull.clone(), command, cause).await? {
        Ended::Stopped(CancelReason::Push { head, .. }) => {
            let because = superseded_by(&head);
            let told = Commit::about(&pull.id).posts([ended_status(inner, &pull, &because)]);
            told.done(cause, because).record(inner).await
        }
        Ended::Stopped(CancelReason::Shutdown) => later(inner, &pull.id, cause).await,
        Ended::Stopped(why) => {
            let because = match why {
                CancelReason::Person(user) => format!("cancelled by {user}"),
                _ => "the pull request was closed".to_owned(),
            };
            let told = Commit::about(&pull.id).posts([ended_status(inner, &pull, &because)]);
            told.done(cause, "nothing to say").record(inner).await
        }
        Ended::Answered { .. } => Ok(()),
    }
}

/// Returns the reason why a command does nothing on a pull request for a base branch that `repos.yaml` rules out.
pub(super) fn not_served(inner: &Inner, pull: &PullRequest, command: &Command) -> String {
    format!(
        "The server does not accept pull requests for `{}`: `branch` in `repos.yaml` does not match. Change the base branch of the \
         pull request, or ask an operator to change `branch`; then comment `{} {}` again",
        pull.base.branch,
        inner.ctx.rendering.executable,
        command.name.spoken()
    )
}

fn superseded_by(head: &CommitSha) -> String {
    format!("superseded by {}", head.short())
}

/// Returns the status of a plan that was stopped, with the reason: a head that is not planned any more must not keep a pending status.
fn ended_status(inner: &Inner, pull: &PullRequest, because: &str) -> Effect {
    Effect::Status { commit: pull.head.commit.clone(), status: inner.ctx.statuses.failed(CommandName::Plan, because) }
}

/// Returns the trigger of a whole plan of this head that began after the event was accepted: it answers the event as well.
async fn planned_since(inner: &Inner, pull: &PullRequest, item: &Item) -> Result<Option<Trigger>> {
    let (id, head, received) = (pull.id.clone(), pull.head.commit.clone(), item.received);
    inner.ctx.store.read(move |view| view.planned_since(&id, &head, received)).await
}

/// Returns the reason not to run a command that waited for too long. `said` is the text that asked for it.
pub(super) fn expired_command_refusal(said: &str, name: CommandName, received: Timestamp) -> Option<String> {
    let waited = Timestamp::now().duration_since(received);
    (waited > COMMAND_EXPIRY && is_late_by_itself(name)).then(|| {
        format!(
            "This command waited {} minutes, more than the limit, and was not run. To run it now: `{}`",
            waited.as_mins(),
            said.trim().trim_matches('`')
        )
    })
}

/// Returns the answer to a command whose pull request the host did not give.
fn unread_refusal(inner: &Inner, command: &Command, error: &HostError) -> String {
    format!(
        "The pull request could not be read from the host, so nothing was done: {error}. Comment again: `{}`",
        permissions::typed(&inner.ctx, command)
    )
}

async fn comment_command(
    inner: &Arc<Inner>,
    id: &PullId,
    comment: &CommentEvent,
    command: Command,
    item: Item,
) -> Result<()> {
    if let Some(because) = expired_command_refusal(&comment.body, command.name, item.received) {
        return inner.answer_delivery(id, &item.cause, Some(&command), Some(Message::Interrupted { because })).await;
    }
    let pull = match fetch_pull(inner, id).await {
        Ok(pull) => pull,
        Err(error) => {
            tracing::error!(pull = %id, error = %error, "the pull request could not be read");
            return inner.fail_delivery(id, &item.cause, &command, &unread_refusal(inner, &command, &error)).await;
        }
    };
    if !confirm(inner, comment, &command, &item.cause).await? {
        return Ok(());
    }
    if let Some(moved) = requests::not_at(&command, &pull) {
        return inner.answer_delivery(id, &item.cause, Some(&command), Some(moved)).await;
    }
    let settings = &inner.ctx.settings;
    let unlocks = command.name == CommandName::Unlock;
    if pull.fork && !settings.allow_fork_prs {
        let message = (!settings.silence_fork_pr_errors).then_some(Message::ForkRefused);
        return inner.answer_delivery(id, &item.cause, Some(&command), message).await;
    }
    if let Some(unknown) = unknown_merges::asked(inner, &pull, &command).await? {
        return inner.answer_delivery(id, &item.cause, Some(&command), Some(unknown)).await;
    }
    if let Some(owed) = merged::owed(&inner.ctx, &pull, &command).await? {
        let after = AfterMerge { owed, pull: pull.clone(), guarded: None, files: None };
        return after_merge::run(inner, pull, command, after, &item).await;
    }
    if !pull.is_open() && !unlocks {
        return inner.answer_delivery(id, &item.cause, Some(&command), Some(Message::ClosedPull)).await;
    }
    if unlocks {
        // From here on nobody can cancel it. A person who cancelled it before has been answered already.
        if inner.actors.make_uncancellable(id) {
            return unlock::unlock(inner, &pull, &command, &item).await;
        }
        return inner.answer_delivery(id, &item.cause, Some(&command), None).await;
    }
    if !inner.ctx.global.rules(&id.repo, &pull.base.branch).branch_allowed {
        let message = Message::NotPermitted { because: not_served(inner, &pull, &command) };
        return inner.answer_delivery(id, &item.cause, Some(&command), Some(message)).await;
    }
    let ended = start(inner, pull.clone(), command.clone(), &item.cause).await?;
    let because = match &ended {
        Ended::Stopped(CancelReason::Push { head, .. }) => Some(superseded_by(head)),
        Ended::Stopped(CancelReason::Closed) => Some("the pull request was closed".to_owned()),
        _ => None,
    };
    if let Some(because) = because.filter(|_| command.name == CommandName::Plan) {
        Commit::about(id).posts([ended_status(inner, &pull, &because)]).record(inner).await?;
    }
    match ended {
        Ended::Answered { .. } => Ok(()),
        Ended::Stopped(CancelReason::Shutdown) => later(inner, id, &item.cause).await,
        Ended::Stopped(CancelReason::Push { head, .. }) if settings.disable_autoplan => {
            let message = Message::Superseded { head, asked_at: None };
            inner.answer_delivery(id, &item.cause, Some(&command), Some(message)).await
        }
        Ended::Stopped(CancelReason::Push { .. }) => {
            Commit::about(id).queued_again(&item.cause).record(inner).await?;
            let task = Task::Command { comment: comment.clone(), command: Box::new(command) };
            let again = Item { cause: item.cause, received: item.received, task };
            inner.actors.requeue_front(id, again);
            Ok(())
        }
        Ended::Stopped(_) => inner.answer_delivery(id, &item.cause, Some(&command), None).await,
    }
}

/// Leaves a delivery or re-plan to the next server. Fails if this server is not shutting down: then the answer could not be recorded.
pub(super) async fn later(inner: &Inner, pull: &PullId, cause: &Cause) -> Result<()> {
    if !inner.actors.draining() {
        inner.ctx.store.may_act().await?;
        bail!("the answer could not be recorded");
    }
    Commit::about(pull).queued_again(cause).record(inner).await
}

/// Runs a command as the running one of its pull request.
async fn start(inner: &Arc<Inner>, pull: PullRequest, command: Command, cause: &Cause) -> Result<Ended> {
    start_with(inner, pull, command, cause, None).await
}

/// The same; `after_merge` as in [`CommandRun`].
pub(super) async fn start_with(
    inner: &Arc<Inner>,
    pull: PullRequest,
    command: Command,
    cause: &Cause,
    after_merge: Option<AfterMerge>,
) -> Result<Ended> {
    immediate_commands::note_reopened(inner, &pull).await?;
    let cancel = inner.actors.run(&pull.id, command.name, &pull.head.commit);
    // Stopped before it began: no begin is recorded or posted.
    if let Some(why) = cancel.reason().cloned() {
        return Ok(Ended::Stopped(why));
    }
    let begun = resume::to_go_on(inner, cause, &pull, &command).await?;
    take_up::stop_unwanted(inner, Some(&pull.id), &cancel.leave).await?;
    let goes_on = begun.is_some();
    let run = begun.unwrap_or_else(|| {
        let received = inner.actors.received(&pull.id).filter(|_| matches!(cause, Cause::Delivery(_)));
        Run { cause: cause.clone(), received, ..execute::new_run(&pull, &command) }
    });
    let what = if goes_on { "goes on" } else { "begins" };
    tracing::info!(pull = %pull.id, command = command.name.as_str(), user = command.user.as_str(), head = pull.head.commit.as_str(), run = run.id.as_str(), "{what}");
    let rules = inner.ctx.global.rules(&pull.id.repo, &pull.base.branch);
    let mut work = CommandRun { after_merge, ..CommandRun::new(run, pull, command, rules, cancel) };
    let ended = execute::run(&inner.ctx, &mut work).await;
    if work.command.name == CommandName::Plan {
        plan_invalidation::note_planned(inner, &work.pull).await?;
    }
    if let Ended::Answered { follows: Some(next) } = &ended {
        match work.cancel.reason() {
            // Cancelled while the last hooks ran.
            Some(CancelReason::Person(user)) => {
                let because = format!("cancelled by {user}");
                Commit::about(&work.pull.id).done(&next.identity.clone().into(), because).record(inner).await?;
            }
            _ => resume::take_up(inner, (**next).clone()),
        }
    }
    let stopped = match &ended {
        Ended::Answered { .. } => None,
        Ended::Stopped(why) => Some(format!("{why:?}")),
    };
    tracing::info!(pull = %work.pull.id, run = work.run.id.as_str(), stopped, "ended");
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;
    use std::sync::Mutex;

    #[test]
    fn what_undoes_something_is_not_run_long_after_it_was_asked_for() {
        let now = Timestamp::now();
        let late = now - COMMAND_EXPIRY - SignedDuration::from_secs(60);
        for (name, received, runs) in [
            (CommandName::Unfreeze, now, true),
            (CommandName::Unfreeze, late, false),
            (CommandName::Unlock, late, false),
            (CommandName::Freeze, late, true),
        ] {
            let because = expired_command_refusal("atlantis unfreeze", name, received);
            assert_eq!(because.is_none(), runs, "{name:?}");
            assert!(
                because.is_none_or(
                    |because| because.contains("waited 11 minutes") && because.contains("`atlantis unfreeze`")
                )
            );
        }
    }

    #[tokio::test]
    async fn a_panic_ends_its_turn_and_never_the_queue() {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let pull = PullId { repo, number: 1 };
        let done = Mutex::new(Vec::new());
        let mut turns = 0;
        let whole = one_by_one(&pull, || {
            turns += 1;
            let (number, done) = (turns, &done);
            let turn = async move {
                assert_ne!(number, 2, "something is wrong with this one");
                done.lock().unwrap().push(number);
                number < 4
            };
            turn.boxed()
        });
        whole.await;
        assert_eq!(*done.lock().unwrap(), [1, 3, 4]);
    }
}
