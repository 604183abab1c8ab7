//! Work that needs no checkout: `cancel`, closing, and deleting a lock on the web page.

use super::actor::fetch_pull;
use super::confirmed::confirm;
use super::inner::Inner;
use super::queues::{Cancelled, Item, Task};
use super::recorder::{self, Commit};
use super::unmerged::UnmergedNoticeWriter;
use super::{PageVisitor, after_merge, reconcile, resume};
use crate::config::permissions::Act;
use crate::domain::command::{Command, CommandName};
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::reply::{Message, Reply};
use crate::domain::state::{AuditEntry, Cause, Effect, Job, JobState, LockHolder, ProjectLock, ProjectState};
use crate::domain::{CommitSha, JobId, Login, PullAction, PullEvent, PullId, PullRequest, PullState, RepoId};
use crate::execute::discarded::Discards;
use crate::execute::notices::NoticeWriter;
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered, unanswered_writer};
use crate::execute::{auto_apply, merged_changes, remove_plan_files, reply_without_run};
use crate::locks::{LockEvent, LockRefusal, MergedInto, MergedPull};
use crate::reply::comments;
use crate::store::logs::Logs;
use crate::store::{Tx, View};
use crate::vcs::HostError;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::Arc;

/// Result of deleting a lock by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discard {
    /// The lock and its plan are deleted.
    Deleted,
    /// There is no such lock.
    Absent,
    /// A job of this pull request that must not be interrupted runs, such as an apply.
    Applying {
        /// Id of the job.
        job: JobId,
    },
    /// The rules of its repository do not permit it to the person.
    NotPermitted {
        /// The people who may, in words.
        because: String,
    },
}

/// Turns a message that is known only inside a transaction into the comments that answer a command.
pub(super) fn answer_later(
    inner: &Inner,
    command: Option<&Command>,
) -> impl FnOnce(&PullId, Message) -> Vec<Effect> + Send + 'static {
    let (command, hosts, rendering) = (command.cloned(), inner.ctx.hosts.clone(), inner.ctx.rendering.clone());
    move |pull, message| {
        comments::effects_on(&hosts, &rendering, &Reply { command, ..reply_without_run(pull, message) })
    }
}

pub(super) fn entry(who: &Login, act: &str, pull: &PullId, cause: &Cause, result: &str) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        act: act.into(),
        subject: pull.to_string(),
        result: result.into(),
        pull: Some(pull.clone()),
        request: Some(cause.to_string()),
        ..AuditEntry::by(who)
    }
}

/// Returns the job that this pull request has begun, that this process runs, and that must not be interrupted unasked, such as an apply.
pub(super) fn begun(view: &View<'_>, logs: &Logs, pull: &PullId) -> Result<Option<Job>> {
    let is_begun = |job: &Job| job.pull == *pull && job.changes_state() && logs.may_run(job);
    Ok(view.unfinished_jobs()?.into_iter().find(is_begun))
}

/// Runs `cancel`: drops waiting commands and stops the running one. An apply is stopped only with `--apply`, by people who may write to
/// the repository. Commands accepted after the `cancel` are left alone, since the host may take long to say who may cancel.
pub(super) async fn cancel(inner: &Arc<Inner>, pull: &PullId, item: &Item) {
    let Task::Command { comment, command } = &item.task else { return };
    match confirm(inner, comment, command, &item.cause).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            tracing::error!(%pull, error = format!("{error:#}"), "a refusal could not be recorded");
            return;
        }
    }
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::of(command));
    if let Some(because) = refusal_of_cancel(inner, &mut gatekeeper, command).await {
        let message = Message::NotPermitted { because };
        if let Err(error) = inner.answer_delivery(pull, &item.cause, Some(command), Some(message)).await {
            tracing::error!(%pull, error = format!("{error:#}"), "a refusal could not be recorded");
        }
        return;
    }
    let cancelled = inner.actors.cancel(pull, command, item.received);
    if let Err(error) = tell_cancelled(inner, pull, item, command, cancelled).await {
        tracing::error!(%pull, error = format!("{error:#}"), "a cancellation could not be recorded");
    }
}

/// Returns a refusal if the person may not cancel. An interrupted apply leaves its state half changed, and perhaps locked.
async fn refusal_of_cancel(inner: &Inner, gatekeeper: &mut Gatekeeper<'_>, command: &Command) -> Option<String> {
    const WITH_APPLY: &str = "cancel --apply";
    let act = Act { command: command.name, project: None };
    match gatekeeper.refusal(act).await {
        Ok(None) if command.interrupt_apply => {}
        Ok(None) => {
            let refusal = gatekeeper.page_refusal(command, act).await;
            return refusal
                .unwrap_or_else(|error| Some(unanswered_writer(&inner.ctx, command, command.name.spoken(), &error)));
        }
        Ok(refusal) => return refusal,
        Err(error) => return Some(unanswered(&inner.ctx, command, &error)),
    }
    let say = typed(&inner.ctx, command);
    match gatekeeper.writer_refusal(act, WITH_APPLY, "", &say).await {
        Ok(refusal) => refusal,
        Err(error) => Some(unanswered_writer(&inner.ctx, command, WITH_APPLY, &error)),
    }
}

async fn tell_cancelled(
    inner: &Arc<Inner>,
    pull: &PullId,
    item: &Item,
    command: &Command,
    cancelled: Cancelled,
) -> Result<()> {
    let mut stopped: Vec<String> = cancelled.waiting.iter().map(Item::title).collect();
    stopped.extend(cancelled.stopped.map(|(name, begun)| {
        let how = if begun { "running" } else { "waiting" };
        format!("the {how} `{}`", name.spoken())
    }));
    let of = pull.clone();
    let awaited = inner.ctx.store.read(move |view| {
        let Some(known) = view.pull(&of)? else { return Ok(Vec::new()) };
        auto_apply::awaited(view, &of, &known.head.commit)
    });
    let awaited = awaited.await?;
    if !awaited.is_empty() {
        let labels: Vec<String> = awaited.iter().map(|plan| format!("`{}`", plan.project.label())).collect();
        stopped.push(format!("the automatic `apply` of {}", labels.join(", ")));
    }
    let left = cancelled.left.map(|name| {
        format!("`{}`; to interrupt it: `{} cancel --apply`", name.spoken(), inner.ctx.rendering.executable)
    });
    let effects = inner.answer(pull, Some(command), Message::Cancelled { stopped, left: left.into_iter().collect() });
    let mut commit = Commit::about(pull).posts(effects);
    for dropped in cancelled.waiting {
        commit = commit.done(&dropped.cause, format!("cancelled by {}", command.user));
    }
    let entry = entry(&command.asked_by(), "cancel", pull, &item.cause, "cancelled");
    // A plan that is not recorded yet counts as well: it may be that of a head that the state does not know.
    let (of, newest) = (pull.clone(), inner.actors.newest_head(pull));
    let record = move |tx: &Tx<'_>| {
        let head = match newest {
            Some(head) => Some(head),
            None => tx.pull(&of)?.map(|known| known.head.commit),
        };
        head.iter().try_for_each(|head| tx.cancel_auto_apply(&of, head).map(drop))?;
        tx.audit(&entry)
    };
    commit.done(&item.cause, "cancelled").record_with(inner, record).await
}

/// Returns remarks on applies with unknown results. The locks of their projects are released all the same, to block nobody for ever.
fn in_doubt(view: &View<'_>, pull: &PullId) -> Result<Vec<String>> {
    let mut remarks = Vec::new();
    for status in view.project_statuses(pull)? {
        let Some(job) = status.job.as_ref().map(|id| view.job(id)).transpose()?.flatten() else { continue };
        if status.state == ProjectState::ApplyErrored && job.state == JobState::Interrupted {
            remarks.push(format!(
                "The apply of `{}` was interrupted, and no plan has run since: the next plan there shows what it had changed.",
                status.project.label()
            ));
        }
    }
    Ok(remarks)
}

/// Returns true if the closing of a pull request is unsigned: this server concluded it from a list, or takes unsigned deliveries.
fn is_guess(inner: &Inner, repo: &RepoId, item: &Item) -> bool {
    inner.intake.takes_unsigned(repo)
        || item.cause.delivery().is_some_and(|identity| identity.as_str().starts_with(reconcile::MISSED))
}

/// Returns true if the host confirms that a pull request was deleted.
async fn is_deleted(inner: &Inner, id: &PullId) -> bool {
    match inner.ctx.hosts.for_repo(&id.repo) {
        Ok(host) => host.is_gone(id).await.unwrap_or(false),
        Err(_) => false,
    }
}

/// Handles a closed pull request: confirms that with the host, then frees its locks, plans and trees. A guess that the host does not
/// confirm frees nothing; a signed event is believed if the host does not answer.
pub(super) async fn close(inner: &Arc<Inner>, event: &PullEvent, item: &Item) -> Result<()> {
    let id = event.pull.id().clone();
    let mut closed = event.pull.whole().cloned();
    match fetch_pull(inner, &id).await {
        Ok(now) if now.is_open() => {
            tracing::info!(pull = %id, "told to be closed, but the host says it is open: nothing is freed");
            return inner.answer_delivery(&id, &item.cause, None, None).await;
        }
        Ok(now) => closed = Some(now),
        Err(HostError::NotFound { .. }) if !is_guess(inner, &id.repo, item) || is_deleted(inner, &id).await => {}
        Err(error) if is_guess(inner, &id.repo, item) => {
            tracing::warn!(pull = %id, "it seems to be closed, but the host does not confirm it, so nothing is freed: {error}");
            return inner.answer_delivery(&id, &item.cause, None, None).await;
        }
        Err(error) => {
            tracing::warn!(pull = %id, "the closing could not be confirmed, its signed event is believed: {error}")
        }
    }
    if closed.is_none() {
        closed = known_as_told(inner, event).await?;
    }
    let Some(closed) = closed else {
        // What was never worked on holds nothing. Whether its merge is owed an apply, nobody can tell without the host.
        tracing::warn!(pull = %id, "its closing has no effect: the host does not describe it, and no command ran on it");
        return inner.answer_delivery(&id, &item.cause, None, None).await;
    };
    let answer = answer_later(inner, None);
    let pull = id.clone();
    let (mut merged, by) = (merged(&closed, event), event.sender.clone());
    let merged_into = merged.as_ref().map(|merged| merged.branch.clone());
    let mut unplanned = None;
    if let Some(merged) = &mut merged {
        // Changes that nobody has planned are determined now: otherwise nobody would know that they are to be applied.
        let facts = merged_changes::of_merge(&inner.ctx, &closed).await;
        (merged.into, unplanned) = (facts.into, facts.changed);
    }
    let head = merged.as_ref().map(|merged| merged.head.clone());
    let notices = NoticeWriter::new(&inner.ctx);
    let writer = notices.clone();
    let unmerged = UnmergedNoticeWriter::new(inner);
    let follows = Commit::about(&id).done(&item.cause, "closed").record_with(inner, move |tx| {
        let changes = if merged.is_none() { unmerged.changes(tx, &closed)? } else { None };
        if let Some(changed) = &unplanned {
            tx.put_changed_projects(changed)?;
        }
        if merged.is_some() {
            tx.put_pull(&closed)?;
        }
        let remarks = in_doubt(tx, &pull)?;
        let mut follows = tx.record_lock_event(&LockEvent::Closed { pull: pull.clone(), remarks, merged })?;
        unmerged.report(tx, &closed, changes, &mut follows)?;
        writer.enqueue(tx, &follows)?;
        let next = head.map(|head| after_merge::record_apply(tx, &pull, &head, &by)).transpose()?.flatten();
        tx.forget_pull(&pull)?;
        tx.forget_changed_projects(&pull)?;
        tx.forget_seen_plans(&pull)?;
        tx.post(&pull, follows.message.clone().map(|message| answer(&pull, message)).into_iter().flatten())?;
        Ok((follows, next))
    });
    let (follows, next) = follows.await?;
    remove_plan_files(&inner.ctx, &follows.dropped()).await;
    notices.after_commit(&inner.ctx).await;
    if let Some(branch) = merged_into {
        inner.bases.look_at(&id.repo, &branch);
    }
    next.into_iter().for_each(|next| resume::take_up(inner, next));
    inner.ctx.checkouts.remove_pull(&id).await
}

/// Returns the last known state of a pull request, with what its event tells; absent if no command ran on it.
async fn known_as_told(inner: &Inner, event: &PullEvent) -> Result<Option<PullRequest>> {
    let pull = event.pull.id().clone();
    let known = inner.ctx.store.read(move |view| view.known_pull(&pull)).await?;
    Ok(known.map(|known| {
        let mut pull = PullRequest { state: event.pull.state().clone(), ..known.pull };
        if let Some(head) = event.pull.head() {
            pull.head.commit = head.clone();
        }
        pull
    }))
}

/// Restores the ownership that a reopened pull request had when it was closed.
pub(super) async fn note_reopened(inner: &Inner, pull: &PullRequest) -> Result<()> {
    let id = pull.id.clone();
    let is_closed = |owner: &ProjectOwner| owner.state == OwnerState::ClosedApplied;
    if !pull.is_open() || !inner.ctx.store.read(move |view| view.owners_of(&id)).await?.iter().any(is_closed) {
        return Ok(());
    }
    let reopened = LockEvent::Reopened { pull: pull.id.clone() };
    recorder::transaction(inner, move |tx| tx.record_lock_event(&reopened).map(drop)).await
}

/// Returns the merge of a pull request, as the host reports it; absent if it was closed without a merge.
fn merged(pull: &PullRequest, event: &PullEvent) -> Option<MergedPull> {
    let commit = match &pull.state {
        PullState::Merged { commit } => commit.clone(),
        _ if event.action == (PullAction::Closed { merged: true }) => None,
        _ => return None,
    };
    Some(merged_as(pull, commit))
}

/// Describes a pull request that was merged as this commit.
pub(super) fn merged_as(pull: &PullRequest, commit: Option<CommitSha>) -> MergedPull {
    let holder = LockHolder {
        pull: pull.id.clone(),
        title: pull.title.clone(),
        url: pull.url.clone(),
        user: pull.author.clone(),
        since: Timestamp::now(),
        overdue: None,
    };
    let (head, branch) = (pull.head.commit.clone(), pull.base.branch.clone());
    MergedPull { head, commit, branch, at: Timestamp::now(), holder, into: MergedInto::Applied }
}

/// Returns true if the key still names the lock that was read, and nobody has taken it anew.
fn is_still(view: &View<'_>, key: &str, lock: &ProjectLock) -> Result<bool> {
    let now = view.lock_by_key(key)?;
    let is_same = |now: ProjectLock| now.id() == lock.id() && now.holder == lock.holder;
    Ok(now.is_some_and(is_same))
}

/// Deletes one lock and its plan for a person on the web page. An operator may do so whatever the rules of the repository are.
pub(super) async fn discard_lock(
    inner: &Arc<Inner>,
    key: &str,
    by: AuditEntry,
    visitor: PageVisitor,
) -> Result<Discard> {
    let key = key.to_owned();
    let named = key.clone();
    let Some(lock) = inner.ctx.store.read(move |view| view.lock_by_key(&named)).await? else {
        return Ok(Discard::Absent);
    };
    if visitor != PageVisitor::Operator {
        let person = Asker::of_page(&inner.ctx, &lock.repo, &by.who);
        let mut gatekeeper = Gatekeeper::new(&inner.ctx, &lock.repo, "", person);
        let act = Act { command: CommandName::Unlock, project: Some(&lock.project) };
        if let Some(because) = gatekeeper.refusal(act).await? {
            let refused = AuditEntry { result: "refused: not permitted".into(), ..by };
            recorder::transaction(inner, move |tx| tx.audit(&refused)).await?;
            return Ok(Discard::NotPermitted { because });
        }
    }
    let (logs, answer) = (inner.ctx.logs.clone(), answer_later(inner, None));
    let statuses = inner.ctx.statuses.clone();
    let because = match by.who.as_str() {
        "" => "its lock was deleted".to_owned(),
        who => format!("{who} deleted its lock"),
    };
    let follows = recorder::transaction(inner, move |tx| {
        if !is_still(tx, &key, &lock)? {
            return Ok(None);
        }
        // Read in this transaction, so that no apply can begin meanwhile: each begins with a transaction of its own.
        let applying = begun(tx, &logs, &lock.holder.pull)?.map(|job| job.id);
        let discards = Discards::before(tx, &lock.holder.pull)?;
        let follows = tx.record_lock_event(&LockEvent::LockDeleted { key, applying, by })?;
        discards.post(tx, &statuses, &because)?;
        if let (Some(lock), Some(message)) = (follows.freed().next(), follows.message.clone()) {
            let pull = &lock.holder.pull;
            tx.post(pull, answer(pull, message))?;
        }
        Ok(Some(follows))
    });
    let Some(follows) = follows.await? else { return Ok(Discard::Absent) };
    remove_plan_files(&inner.ctx, &follows.dropped()).await;
    follows.freed().for_each(|lock| inner.ctx.outbox.wake(&lock.holder.pull));
    Ok(match follows.refusal {
        None => Discard::Deleted,
        Some(LockRefusal::ApplyRuns { job }) => Discard::Applying { job },
        Some(_) => Discard::Absent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::StateLockTrace;
    use crate::domain::{ProjectId, RepoId};
    use crate::store::Store;

    #[tokio::test]
    async fn a_lock_that_was_taken_anew_is_not_the_one_that_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let lock = |number, second| ProjectLock {
            repo: repo.clone(),
            project: ProjectId { dir: "net".into(), workspace: "default".into(), name: None },
            holder: LockHolder {
                pull: PullId { repo: repo.clone(), number },
                title: String::new(),
                url: String::new(),
                user: "alice".into(),
                since: Timestamp::from_second(second).unwrap(),
                overdue: None,
            },
            why: None,
            address: Default::default(),
            applied: false,
        };
        let held = lock(1, 1);
        store.write(move |tx| tx.lock_project(&held).map(drop)).await.unwrap();
        for (looked_at, expected) in [(lock(1, 1), true), (lock(1, 2), false), (lock(2, 1), false)] {
            let found = store.read(move |view| is_still(view, &looked_at.id(), &looked_at));
            assert_eq!(found.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn what_must_not_be_interrupted_has_begun_once_it_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (store, logs) = (Store::open(dir.path()).unwrap(), Logs::new(dir.path()));
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let pull = |number| PullId { repo: repo.clone(), number };
        let job = |kind: &str, number: u64| Job {
            id: JobId::from_bits(number.into()),
            run: "r".into(),
            pull: pull(number),
            kind: kind.into(),
            project: None,
            user: "alice".into(),
            head: "h".into(),
            state: JobState::Running,
            summary: String::new(),
            outcome: None,
            started: Timestamp::now(),
            finished: None,
            state_lock: StateLockTrace::default(),
            remote: None,
        };
        let jobs = [job("apply", 1), job("plan", 2), job("import", 3), job("apply", 4), job("state_rm", 5)];
        // No process runs the fourth one.
        let writing: Vec<_> =
            jobs.iter().filter(|job| job.pull.number != 4).map(|job| logs.create(&job.id).unwrap()).collect();
        store.write(move |tx| jobs.iter().try_for_each(|job| tx.put_job(job))).await.unwrap();
        let pulls: Vec<PullId> = (1..=6).map(pull).collect();
        let found = store.read(move |view| {
            pulls.iter().map(|pull| Ok(begun(view, &logs, pull)?.is_some())).collect::<Result<Vec<bool>>>()
        });
        assert_eq!(found.await.unwrap(), [true, false, true, false, true, false]);
        drop(writing);
    }
}
