//! Automatic re-plans: of pull requests whose turn it is, of invalidated plans, and after failed applies. The rules of `locks` select them,
//! and the same transaction records them. Here they are enqueued: a few at a time, behind all commands of people, and when the machine has
//! time.

use super::actor::{enqueue, fetch_pull, plan_unasked, pusher};
use super::inner::Inner;
use super::queues::{Item, Task};
use super::recorder;
use crate::domain::command::{Command, CommandName, Target, Trigger};
use crate::domain::reply::Message;
use crate::domain::state::Cause;
use crate::domain::waiting::{Replan, ReplanId, ReplanState, WaitingPull};
use crate::domain::{ProjectId, PullId, PullRequest};
use crate::execute::permissions::{self, Planner};
use crate::execute::{self, measured};
use crate::notifications::{Notifier, TurnCome};
use crate::store::{Tx, is_deposed};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Pull requests that are re-planned at the same time.
const MAX_CONCURRENT: usize = 2;
/// A re-plan waits no longer than this for a machine that has time.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between two looks at the waiting ones, so that plans of a pull request that are invalidated one after the other are made together.
const PAUSE: Duration = Duration::from_millis(200);

/// Number of re-plans that are in no queue yet, for the count of commands in progress.
#[derive(Default)]
pub(super) struct WaitingReplans {
    /// The last commit that was read.
    seen: AtomicU64,
    count: AtomicUsize,
}

impl WaitingReplans {
    /// Returns the number of known ones, plus one if any was recorded since they were read.
    pub(super) fn count(&self, inner: &Inner) -> usize {
        let unseen = *inner.ctx.store.replans_recorded().borrow() != self.seen.load(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst) + usize::from(unseen)
    }
}

/// Enqueues them, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut turns = inner.ctx.store.replans_recorded();
    loop {
        let ended = inner.actors.ended.notified();
        let left = match enqueue_some(&inner.now()).await {
            Ok(left) => left,
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "what is to be planned again could not be read");
                true
            }
        };
        if inner.actors.draining() {
            return;
        }
        tokio::select! {
            changed = turns.changed() => if changed.is_err() { return },
            () = ended, if left => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Enqueues those that may begin. Returns true if some have to wait for others to end.
async fn enqueue_some(inner: &Arc<Inner>) -> Result<bool> {
    let seen = *inner.ctx.store.replans_recorded().borrow();
    let mut left = inner.ctx.store.read(|view| view.replans()).await?;
    left.retain(|replan| !inner.actors.replans(&replan.scope.pull));
    inner.replans.count.store(left.len(), Ordering::SeqCst);
    inner.replans.seen.store(seen, Ordering::SeqCst);
    while let Some(at) = left.iter().position(|replan| !inner.actors.busy(&replan.scope.pull)) {
        if inner.actors.replans_in_hand() >= MAX_CONCURRENT {
            break;
        }
        execute::calm(&inner.ctx, PATIENCE).await;
        if inner.actors.draining() {
            return Ok(false);
        }
        take_up(inner, left.remove(at));
        inner.replans.count.store(left.len(), Ordering::SeqCst);
    }
    Ok(!left.is_empty())
}

/// Enqueues one.
pub(super) fn take_up(inner: &Arc<Inner>, replan: Replan) {
    let Replan { id, queued, scope, .. } = replan;
    enqueue(inner, scope.pull, Item { cause: Cause::Replan(id), received: queued, task: Task::Replan(id) });
}

/// Plans the due projects of one, by the rules of autoplan.
pub(super) async fn plan(inner: &Arc<Inner>, id: &PullId, replan: ReplanId, item: &Item) -> Result<()> {
    let of = id.clone();
    let notifier = inner.ctx.notifier.clone();
    let begun = recorder::transaction(inner, move |tx| {
        let is_new = tx.replan(replan)?.is_some_and(|known| known.state == ReplanState::Queued);
        let due = tx.begin_replan(replan, &of)?;
        if is_new {
            notify(tx, &notifier, replan, &of, due.as_deref().unwrap_or_default())?;
        }
        Ok(due)
    });
    let begun = begun.await?;
    inner.ctx.notifier.wake();
    // After a rename it is enqueued again under the new name.
    let Some(due) = begun else { return Ok(()) };
    if let Err(error) = note_waits(inner, id, &due).await {
        tracing::warn!(pull = %id, error = format!("{error:#}"), "waits could not be measured");
    }
    if due.is_empty() {
        return inner.answer_delivery(id, &item.cause, None, None).await;
    }
    let pull = match fetch_pull(inner, id).await {
        Ok(pull) => pull,
        Err(error) => {
            let because = inner.ctx.redactor.redact(&format!("the host did not answer: {error}"));
            return told_free(inner, id, item, due, because).await;
        }
    };
    let of = id.clone();
    let known = inner.ctx.store.read(move |view| view.pull(&of)).await?;
    let is_pushed = known.is_some_and(|known| known.head.commit != pull.head.commit);
    if !pull.is_open() || is_pushed {
        tracing::info!(pull = %id, "not planned again: it is closed, or its newer push is planned as a whole");
        return inner.answer_delivery(id, &item.cause, None, None).await;
    }
    if let Some(because) = inner.autoplan_refusal(&pull) {
        return give_up(inner, id, item, due, because.to_owned()).await;
    }
    let sender = match planner(inner, &pull, &due).await? {
        Planner::Person(person) => person,
        // A plan was promised, so each of its projects is reported, whatever the cause of the re-plan.
        Planner::Nobody(because) => return told_free(inner, id, item, due, because).await,
    };
    let target = Target { exactly: due, ..Target::default() };
    let command = Command { target, ..Command::new(CommandName::Plan, Trigger::Replan, sender) };
    plan_unasked(inner, pull, command, &item.cause).await
}

/// Records the notifications of a turn: the pull request was refused these projects, and has them now.
fn notify(tx: &Tx<'_>, notifier: &Notifier, replan: ReplanId, of: &PullId, due: &[ProjectId]) -> Result<()> {
    let waits = tx.waits_of(of)?.into_iter();
    let waited = waits.filter(|wait| wait.cause.is_refusal() && due.contains(&wait.project));
    let projects: Vec<ProjectId> = waited.map(|wait| wait.project).collect();
    let Some(pull) = tx.pull(of)?.filter(|_| !projects.is_empty()) else { return Ok(()) };
    let turn = TurnCome { replan, pull: &pull, projects: &projects };
    notifier.of_turn(&turn).iter().try_for_each(|one| tx.notify(one))
}

/// Measures for how long the pull request was in line for the projects whose turn it is now.
async fn note_waits(inner: &Inner, id: &PullId, due: &[ProjectId]) -> Result<()> {
    let of = id.clone();
    let waits = inner.ctx.store.read(move |view| view.waits_of(&of)).await?;
    let is_due = |wait: &&WaitingPull| due.contains(&wait.project) && wait.cause.is_refusal();
    for wait in waits.iter().filter(is_due) {
        inner.ctx.meters.waited_in_line(measured::since(wait.since));
    }
    Ok(())
}

/// Reports those projects as free that the pull request waited for, because it was refused. Invalidated plans and failed applies were
/// reported before.
async fn give_up(
    inner: &Arc<Inner>,
    id: &PullId,
    item: &Item,
    projects: Vec<ProjectId>,
    because: String,
) -> Result<()> {
    let projects = execute::waited_for(&inner.ctx, id, projects).await?;
    told_free(inner, id, item, projects, because).await
}

/// Returns the person to plan for: the latest who may plan, of those for whom this head was planned before and the one who pushed it. A
/// push by others is another head, for which the earlier people do not count.
async fn planner(inner: &Arc<Inner>, pull: &PullRequest, due: &[ProjectId]) -> Result<Planner> {
    let (id, head) = (pull.id.clone(), pull.head.commit.clone());
    let mut people = inner.ctx.store.read(move |view| view.planners(&id, &head)).await?;
    let pusher = pusher(inner, pull).await;
    if !pusher.is_unknown() && !people.iter().any(|known| known.is(&pusher)) {
        people.push(pusher);
    }
    Ok(permissions::planner(&inner.ctx, pull, due, people).await)
}

/// Posts that these projects are free, with the command. The turn passes to the next pull request.
async fn told_free(
    inner: &Arc<Inner>,
    id: &PullId,
    item: &Item,
    projects: Vec<ProjectId>,
    because: String,
) -> Result<()> {
    tracing::info!(pull = %id, "not planned again: {because}");
    let message = (!projects.is_empty()).then_some(Message::LockFreed { projects, because });
    inner.answer_delivery(id, &item.cause, None, message).await
}
