//! What needs no checkout: `unlock`, `cancel`, closing, and deleting a lock on the web page.

use super::actor::fetch_pull;
use super::queues::{Cancelled, Item, Task};
use super::recorder::{self, Commit};
use super::{Inner, after_merge, reconcile, resume};
use crate::config::paths::Glob;
use crate::config::permissions::Act;
use crate::domain::command::{Command, CommandName, Target};
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::state::{AuditEntry, Effect, Job, JobState, LockHolder, ProjectLock, ProjectState};
use crate::domain::{
    DeliveryId, JobId, ProjectId, PullAction, PullEvent, PullId, PullRequest, PullState, RepoId, RunId,
};
use crate::execute::others::Teller;
use crate::execute::permissions::{Asker, Gatekeeper, unanswered};
use crate::execute::{merged_changes, random_bits, remove_plan_files};
use crate::locks::{LockEvent, LockRefusal, MergedPull};
use crate::reply::comments;
use crate::store::View;
use crate::store::logs::Logs;
use crate::vcs::HostError;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::Arc;

/// How deleting a lock by hand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discard {
    /// It is gone, its plan too.
    Deleted,
    /// There is no such lock.
    Absent,
    /// An apply of this pull request runs; its job, if one has begun.
    Applying {
        /// Id of the job.
        job: JobId,
    },
    /// The person may not, by the rules of its repository.
    NotPermitted {
        /// Who may, in words.
        because: String,
    },
}

/// `unlock`: all locks and plans of the pull request go.
pub(super) async fn unlock(inner: &Arc<Inner>, pull: &PullRequest, command: &Command, item: &Item) -> Result<()> {
    let label = inner.ctx.settings.disable_unlock_label.as_ref();
    if let Some(label) = label.filter(|label| pull.labels.contains(label)) {
        let because = format!(
            "The label `{label}` forbids unlocking. Remove it, then say `{} unlock` again.",
            inner.ctx.rendering.executable
        );
        let message = Message::UnlockRefused { because, link: None };
        return inner.answer_delivery(&pull.id, &item.delivery, Some(command), Some(message)).await;
    }
    if let Some(because) = not_permitted(inner, std::slice::from_ref(&pull.id), &pull.base.branch, command).await? {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(&pull.id, &item.delivery, Some(command), Some(message)).await;
    }
    let mut by = entry(command.user.as_str(), "unlock", &pull.id, &item.delivery, "unlocked");
    by.why.clone_from(&command.why);
    if command.accept_drift {
        by.result = "unlocked, accepting drift".into();
    }
    let (target, accept_drift) = (command.target.clone(), command.accept_drift);
    let answer = answer_later(inner, Some(command));
    let (id, silent) = (pull.id.clone(), inner.ctx.settings.silence_no_projects);
    let commit = Commit::about(&pull.id).done(&item.delivery, "unlocked");
    let follows = commit.record_with(inner, move |tx| {
        let held = (!target.is_all()).then(|| held_of(tx, &id)).transpose()?;
        let only = held.map(|held| held.into_iter().filter(|project| is_targeted(&target, project)).collect());
        let follows = tx.record_lock_event(&LockEvent::Unlocked { pull: id.clone(), only, accept_drift, by })?;
        let message = follows.message.clone().filter(|_| !(silent && follows.changes.is_empty()));
        tx.post(&id, message.map(|message| answer(&id, message)).into_iter().flatten())?;
        Ok(follows)
    });
    remove_plan_files(&inner.ctx, &follows.await?.dropped()).await;
    Ok(())
}

/// Projects that a pull request has locked, owns or has planned.
pub(super) fn held_of(view: &View<'_>, pull: &PullId) -> Result<Vec<ProjectId>> {
    let locked = view.locks_of(pull)?.into_iter().map(|lock| lock.project);
    let owned = view.owners_of(pull)?.into_iter().map(|owner| owner.project);
    let planned = view.plans(pull)?.into_iter().map(|plan| plan.project);
    let mut held: Vec<ProjectId> = locked.chain(owned).chain(planned).collect();
    held.sort();
    held.dedup();
    Ok(held)
}

/// Whether `-d`, `-w` and `-p` mean this project. A directory that is no valid glob means itself.
pub(super) fn is_targeted(target: &Target, project: &ProjectId) -> bool {
    let is_dir = |dir: &String| *dir == project.dir || Glob::new(dir).is_ok_and(|glob| glob.matches(&project.dir));
    target.dir.as_ref().is_none_or(is_dir)
        && target.workspace.as_ref().is_none_or(|workspace| *workspace == project.workspace)
        && target.project.as_ref().is_none_or(|name| project.name.as_ref() == Some(name))
}

/// Projects that any of these pull requests has locked or planned, as far as they are meant.
pub(super) async fn meant_of(inner: &Inner, pulls: &[PullId], target: &Target) -> Result<Vec<ProjectId>> {
    let ids = pulls.to_vec();
    let held = inner.ctx.store.read(move |view| {
        let all: Result<Vec<_>> = ids.iter().map(|id| held_of(view, id)).collect();
        Ok(all?.concat())
    });
    let mut held: Vec<ProjectId> = held.await?;
    held.retain(|project| is_targeted(target, project));
    Ok(held)
}

/// Why a person may not unlock, if that is so: each project that the pull requests hold or have a plan of has to be allowed, as far as it
/// is meant. No answer of the host is not a yes.
pub(super) async fn not_permitted(
    inner: &Inner,
    pulls: &[PullId],
    base_branch: &str,
    command: &Command,
) -> Result<Option<String>> {
    let Some(first) = pulls.first() else { return Ok(None) };
    let held = meant_of(inner, pulls, &command.target).await?;
    let person = Asker::OfHost(command.user.as_str());
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &first.repo, base_branch, person);
    let projects = held.iter().map(Some).chain(held.is_empty().then_some(None));
    for project in projects {
        match gatekeeper.refusal(Act { command: command.name, project }).await {
            Ok(None) => {}
            Ok(because) => return Ok(because),
            Err(error) => return Ok(Some(unanswered(&inner.ctx, command, &error))),
        }
    }
    Ok(None)
}

/// Turns a message that is known only inside a transaction into the comments that answer a command.
pub(super) fn answer_later(
    inner: &Inner,
    command: Option<&Command>,
) -> impl FnOnce(&PullId, Message) -> Vec<Effect> + Send + 'static {
    let (command, hosts, rendering) = (command.cloned(), inner.ctx.hosts.clone(), inner.ctx.rendering.clone());
    move |pull, message| {
        let (pull, body) = (pull.clone(), ReplyBody::Message(message));
        let run = RunId::of(random_bits());
        comments::effects_on(&hosts, &rendering, &Reply { run, pull, command, head: None, body })
    }
}

pub(super) fn entry(who: &str, act: &str, pull: &PullId, delivery: &DeliveryId, result: &str) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        who: who.into(),
        act: act.into(),
        subject: pull.to_string(),
        result: result.into(),
        pull: Some(pull.clone()),
        request: Some(delivery.to_string()),
        ..AuditEntry::default()
    }
}

/// `unlock` while an apply of this pull request runs: refused at once, with the apply's link.
pub(super) async fn refuse_unlock(inner: &Arc<Inner>, pull: &PullId, item: &Item, command: &Command) {
    let link = match running_job(inner, pull).await {
        Ok(job) => job.map(|job| format!("{}/jobs/{job}", inner.ctx.settings.atlantis_url)),
        Err(error) => {
            tracing::error!(%pull, error = format!("{error:#}"), "the running job could not be looked up");
            None
        }
    };
    let executable = &inner.ctx.rendering.executable;
    let because = format!(
        "An apply of this pull request is running. Wait for its end, then say `{executable} unlock` again; \
         `{executable} cancel --apply` interrupts it."
    );
    let message = Message::UnlockRefused { because, link };
    if let Err(error) = inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await {
        tracing::error!(%pull, error = format!("{error:#}"), "a refusal could not be recorded");
    }
}

async fn running_job(inner: &Inner, pull: &PullId) -> Result<Option<JobId>> {
    let pull = pull.clone();
    let find = move |view: &crate::store::View<'_>| {
        let jobs = view.unfinished_jobs()?;
        Ok(jobs.into_iter().find(|job| job.pull == pull).map(|job| job.id))
    };
    inner.ctx.store.read(find).await
}

/// The job of an apply, or of what else must not be interrupted unasked, that this pull request has begun and this process has in
/// hand.
pub(super) fn begun(view: &View<'_>, logs: &Logs, pull: &PullId) -> Result<Option<JobId>> {
    let once_only = [CommandName::Apply, CommandName::Import, CommandName::StateRm];
    let of_pull = |job: &Job| job.pull == *pull && once_only.iter().any(|name| name.as_str() == job.kind);
    let jobs = view.unfinished_jobs()?;
    Ok(jobs.into_iter().find(|job| of_pull(job) && logs.is_being_written(&job.id)).map(|job| job.id))
}

/// `cancel`: waiting commands are dropped, running ones stopped; an apply only when asked for by name. What was accepted after it is
/// left alone: the host may take long to tell who may cancel.
pub(super) async fn cancel(inner: &Arc<Inner>, pull: &PullId, item: &Item) {
    let Task::Command { command, .. } = &item.task else { return };
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::OfHost(command.user.as_str()));
    let refusal = match gatekeeper.refusal(Act { command: command.name, project: None }).await {
        Ok(refusal) => refusal,
        Err(error) => Some(unanswered(&inner.ctx, command, &error)),
    };
    if let Some(because) = refusal {
        let message = Message::NotPermitted { because };
        if let Err(error) = inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await {
            tracing::error!(%pull, error = format!("{error:#}"), "a refusal could not be recorded");
        }
        return;
    }
    let cancelled = inner.actors.cancel(pull, &command.user, command.interrupt_apply, item.received);
    if let Err(error) = tell_cancelled(inner, pull, item, command, cancelled).await {
        tracing::error!(%pull, error = format!("{error:#}"), "a cancellation could not be recorded");
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
    let left = cancelled.left.map(|name| {
        format!(
            "the running `{}` goes on; `{} cancel --apply` interrupts it",
            name.spoken(),
            inner.ctx.rendering.executable
        )
    });
    let effects = inner.answer(pull, Some(command), Message::Cancelled { stopped, left: left.into_iter().collect() });
    let mut commit = Commit::about(pull).posts(effects);
    for dropped in cancelled.waiting {
        commit = commit.done(&dropped.delivery, format!("cancelled by {}", command.user));
    }
    let entry = entry(command.user.as_str(), "cancel", pull, &item.delivery, "cancelled");
    commit.done(&item.delivery, "cancelled").record_with(inner, move |tx| tx.audit(&entry)).await
}

/// What is known of applies whose end nobody knows: their projects' locks go all the same, so that nobody is blocked for ever.
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

/// Whether nobody signed that a pull request was closed: this server concluded it from a list, or takes unsigned deliveries.
fn is_guess(inner: &Inner, repo: &RepoId, item: &Item) -> bool {
    inner.intake.takes_unsigned(repo) || item.delivery.as_str().starts_with(reconcile::MISSED)
}

/// A pull request was closed: confirmed with the host, then its locks, plans and trees go. A guess that the host does not confirm
/// frees nothing; a signed event is believed when the host does not answer.
pub(super) async fn close(inner: &Arc<Inner>, event: &PullEvent, item: &Item) -> Result<()> {
    let id = event.pull.id.clone();
    let mut closed = event.pull.clone();
    match fetch_pull(inner, &id).await {
        Ok(now) if now.is_open() => {
            tracing::info!(pull = %id, "told to be closed, but the host says it is open: nothing is freed");
            return inner.answer_delivery(&id, &item.delivery, None, None).await;
        }
        Ok(now) => closed = now,
        Err(error) if is_guess(inner, &id.repo, item) => {
            tracing::warn!(pull = %id, "it seems to be closed, but the host does not confirm it, so nothing is freed: {error}");
            return inner.answer_delivery(&id, &item.delivery, None, None).await;
        }
        Err(HostError::NotFound { .. }) => {}
        Err(error) => {
            tracing::warn!(pull = %id, "the closing could not be confirmed, its signed event is believed: {error}")
        }
    }
    let answer = answer_later(inner, None);
    let pull = id.clone();
    let (merged, by) = (merged(&closed, event), event.sender.clone());
    let merged_into = merged.as_ref().map(|merged| merged.branch.clone());
    // What nobody has planned is looked at now: else nobody would know that it is to be applied.
    let unplanned = if merged_into.is_some() { merged_changes::of_unplanned(&inner.ctx, &closed).await } else { None };
    let head = merged.as_ref().map(|merged| merged.head.clone());
    let teller = Teller::new(&inner.ctx);
    let telling = teller.clone();
    let follows = Commit::about(&id).done(&item.delivery, "closed").record_with(inner, move |tx| {
        if let Some(changed) = &unplanned {
            tx.put_changed_projects(changed)?;
            tx.put_pull(&closed)?;
        }
        let remarks = in_doubt(tx, &pull)?;
        let follows = tx.record_lock_event(&LockEvent::Closed { pull: pull.clone(), remarks, merged })?;
        telling.tell(tx, &follows)?;
        let next = head.map(|head| after_merge::record_apply(tx, &pull, &head, &by)).transpose()?.flatten();
        tx.forget_pull(&pull)?;
        tx.forget_changed_projects(&pull)?;
        tx.forget_seen_plans(&pull)?;
        tx.post(&pull, follows.message.clone().map(|message| answer(&pull, message)).into_iter().flatten())?;
        Ok((follows, next))
    });
    let (follows, next) = follows.await?;
    remove_plan_files(&inner.ctx, &follows.dropped()).await;
    teller.committed(&inner.ctx).await;
    if let Some(branch) = merged_into {
        inner.bases.look_at(&id.repo, &branch);
    }
    next.into_iter().for_each(|next| resume::take_up(inner, next));
    inner.ctx.checkouts.remove_pull(&id).await
}

/// A pull request that is open again owns what it owned when it was closed.
pub(super) async fn note_reopened(inner: &Inner, pull: &PullRequest) -> Result<()> {
    let id = pull.id.clone();
    let is_closed = |owner: &ProjectOwner| owner.state == OwnerState::ClosedApplied;
    if !pull.is_open() || !inner.ctx.store.read(move |view| view.owners_of(&id)).await?.iter().any(is_closed) {
        return Ok(());
    }
    let reopened = LockEvent::Reopened { pull: pull.id.clone() };
    recorder::transaction(inner, move |tx| tx.record_lock_event(&reopened).map(drop)).await
}

/// How a pull request was merged, as the host tells it; absent where it was closed without a merge.
fn merged(pull: &PullRequest, event: &PullEvent) -> Option<MergedPull> {
    let commit = match &pull.state {
        PullState::Merged { commit } => commit.clone(),
        _ if event.action == (PullAction::Closed { merged: true }) => None,
        _ => return None,
    };
    let holder = LockHolder {
        pull: pull.id.clone(),
        title: pull.title.clone(),
        url: pull.url.clone(),
        user: pull.author.clone(),
        since: Timestamp::now(),
    };
    let (head, branch) = (pull.head.commit.clone(), pull.base.branch.clone());
    Some(MergedPull { head, commit, branch, at: Timestamp::now(), holder })
}

/// Whether what the key names is still the lock that was looked at, and nobody has taken it anew.
fn is_still(view: &View<'_>, key: &str, lock: &ProjectLock) -> Result<bool> {
    let now = view.lock_by_key(key)?;
    let is_same = |now: ProjectLock| now.id() == lock.id() && now.holder == lock.holder;
    Ok(now.is_some_and(is_same))
}

/// Deletes one lock and its plan for a person on the web page. Who runs the server may do so whatever the rules of the repository are.
pub(super) async fn discard_lock(inner: &Arc<Inner>, key: &str, by: AuditEntry, operator: bool) -> Result<Discard> {
    let key = key.to_owned();
    let named = key.clone();
    let Some(lock) = inner.ctx.store.read(move |view| view.lock_by_key(&named)).await? else {
        return Ok(Discard::Absent);
    };
    if !operator {
        let mut gatekeeper = Gatekeeper::new(&inner.ctx, &lock.repo, "", Asker::OfPage(&by.who));
        let act = Act { command: CommandName::Unlock, project: Some(&lock.project) };
        if let Some(because) = gatekeeper.refusal(act).await? {
            let refused = AuditEntry { result: "refused: not permitted".into(), ..by };
            recorder::transaction(inner, move |tx| tx.audit(&refused)).await?;
            return Ok(Discard::NotPermitted { because });
        }
    }
    let (logs, answer) = (inner.ctx.logs.clone(), answer_later(inner, None));
    let follows = recorder::transaction(inner, move |tx| {
        if !is_still(tx, &key, &lock)? {
            return Ok(None);
        }
        // Here, where no apply can begin meanwhile: each begins with a transaction of its own.
        let applying = begun(tx, &logs, &lock.holder.pull)?;
        let follows = tx.record_lock_event(&LockEvent::LockDeleted { key, applying, by })?;
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
    use crate::domain::RepoId;
    use crate::domain::state::StateLockTrace;
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
            },
            why: None,
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
            id: JobId::of(number.into()),
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
        };
        let jobs = [job("apply", 1), job("plan", 2), job("import", 3), job("apply", 4), job("state_rm", 5)];
        // Nobody has the fourth one in hand.
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
