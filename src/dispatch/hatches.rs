//! Escape hatches that need no checkout: `freeze`, `unfreeze`, and `unlock` of other pull requests. They are answered beside the queue of the pull request on
//! which they were typed, so that nobody waits for what runs there; those of one repository in the order in which they were accepted.

use super::Inner;
use super::actor::{ended, fetch_pull, stale};
use super::immediate_commands::{answer_later, begun, entry, held_of, is_targeted, meant_of};
use super::queues::{Item, Task};
use super::recorder::{self, Commit};
use crate::config::permissions::{Act, Hatch};
use crate::domain::command::{Command, CommandName};
use crate::domain::freeze::Freeze;
use crate::domain::reply::Message;
use crate::domain::state::{AuditEntry, Effect, PlanRecord};
use crate::domain::{ProjectId, PullId, RepoId};
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered, unanswered_hatch};
use crate::execute::remove_plan_files;
use crate::locks::LockEvent;
use crate::store::Tx;
use crate::store::logs::Logs;
use crate::vcs::HostError;
use anyhow::Result;
use futures::future::join_all;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How lifting a freeze on the web page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifted {
    /// The repository is not frozen any more.
    Done,
    /// It was not frozen.
    Absent,
    /// The person may not.
    NotPermitted {
        /// Who may, in words.
        because: String,
    },
}

/// What waits for its turn; a repository is here while somebody works off what it has.
#[derive(Default)]
pub(super) struct HatchQueues(Mutex<HashMap<RepoId, VecDeque<(PullId, Item)>>>);

impl HatchQueues {
    fn all(&self) -> MutexGuard<'_, HashMap<RepoId, VecDeque<(PullId, Item)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True: nobody works off what this repository has.
    fn add(&self, pull: PullId, item: Item) -> bool {
        let mut all = self.all();
        let is_first = !all.contains_key(&pull.repo);
        all.entry(pull.repo.clone()).or_default().push_back((pull, item));
        is_first
    }

    fn next(&self, repo: &RepoId) -> Option<(PullId, Item)> {
        let mut all = self.all();
        let next = all.get_mut(repo).and_then(VecDeque::pop_front);
        if next.is_none() {
            all.remove(repo);
        }
        next
    }
}

/// Whether a command is answered here, beside the queue.
pub(super) fn is_answered_beside(command: &Command) -> bool {
    match command.name {
        CommandName::Freeze | CommandName::Unfreeze => true,
        CommandName::Unlock => !command.pulls.is_empty(),
        _ => false,
    }
}

/// Has one answered after those of its repository that came before it.
pub(super) fn enqueue(inner: &Arc<Inner>, pull: PullId, item: Item) {
    let repo = pull.repo.clone();
    if !inner.hatches.add(pull, item) {
        return;
    }
    let ours = Arc::clone(inner);
    let begun = inner.tasks.spawn(async move {
        while let Some((pull, item)) = ours.hatches.next(&repo) {
            if !ended(&ours, &pull, &item.delivery, answer(&ours, &pull, &item)).await {
                return;
            }
        }
    });
    if !begun {
        tracing::debug!("an escape hatch waits for the next start: this server stops");
    }
}

async fn answer(inner: &Arc<Inner>, pull: &PullId, item: &Item) -> Result<()> {
    let Task::Command { comment, command } = &item.task else { return Ok(()) };
    if let Some(because) = stale(&comment.body, command.name, item.received) {
        let message = Message::Interrupted { because };
        return inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await;
    }
    match command.name {
        CommandName::Unlock => unlock_others(inner, pull, item, command).await,
        _ => set_freeze(inner, pull, item, command).await,
    }
}

/// Why the person may not freeze or unfreeze, if that is so. No answer of the host is not a yes.
async fn refusal(inner: &Inner, pull: &PullId, command: &Command, hatch: Hatch) -> Option<String> {
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::OfHost(command.user.as_str()));
    match gatekeeper.hatch_refusal(hatch, None, &typed(&inner.ctx, command)).await {
        Ok(refusal) => refusal,
        Err(error) => Some(unanswered_hatch(&inner.ctx, command, hatch, &error)),
    }
}

/// Why the person may not unlock these projects of other pull requests, if that is so.
async fn unlock_refusal(inner: &Inner, pull: &PullId, command: &Command, projects: &[ProjectId]) -> Option<String> {
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::OfHost(command.user.as_str()));
    let (hatch, say) = (Hatch::UnlockOthers, typed(&inner.ctx, command));
    for project in projects.iter().map(Some).chain(projects.is_empty().then_some(None)) {
        let refused = match gatekeeper.hatch_refusal(hatch, project, &say).await {
            Ok(None) => gatekeeper.refusal(Act { command: command.name, project }).await,
            Ok(because) => return because,
            Err(error) => return Some(unanswered_hatch(&inner.ctx, command, hatch, &error)),
        };
        match refused {
            Ok(None) => {}
            Ok(because) => return because,
            Err(error) => return Some(unanswered(&inner.ctx, command, &error)),
        }
    }
    None
}

/// Lifts a freeze for a person on the web page. Who runs the server may do so whatever the rules are.
pub(super) async fn lift_freeze(inner: &Arc<Inner>, named: &str, by: AuditEntry, operator: bool) -> Result<Lifted> {
    let named = named.to_owned();
    let find = inner.ctx.store.read(move |view| {
        let frozen = view.freezes()?.into_iter().map(|freeze| freeze.repo);
        Ok(frozen.into_iter().find(|repo| repo.to_string() == named))
    });
    let Some(repo) = find.await? else { return Ok(Lifted::Absent) };
    if !operator {
        let mut gatekeeper = Gatekeeper::new(&inner.ctx, &repo, "", Asker::OfPage(&by.who));
        let say = format!("{} unfreeze", inner.ctx.rendering.executable);
        if let Some(because) = gatekeeper.hatch_refusal(Hatch::Unfreeze, None, &say).await? {
            let refused = AuditEntry { result: "refused: not permitted".into(), ..by };
            recorder::transaction(inner, move |tx| tx.audit(&refused)).await?;
            return Ok(Lifted::NotPermitted { because });
        }
    }
    let lifted = recorder::transaction(inner, move |tx| {
        let Some(freeze) = tx.unfreeze(&repo)? else { return Ok(Lifted::Absent) };
        tx.audit(&AuditEntry { result: format!("lifted: {}", freeze.words()), ..by })?;
        Ok(Lifted::Done)
    });
    lifted.await
}

/// `freeze` and `unfreeze`.
async fn set_freeze(inner: &Arc<Inner>, pull: &PullId, item: &Item, command: &Command) -> Result<()> {
    let freezes = command.name == CommandName::Freeze;
    let hatch = if freezes { Hatch::Freeze } else { Hatch::Unfreeze };
    if let Some(because) = refusal(inner, pull, command, hatch).await {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await;
    }
    let freeze = Freeze {
        repo: pull.repo.clone(),
        user: command.user.to_string(),
        why: command.why.clone().unwrap_or_default(),
        since: Timestamp::now(),
        pull: Some(pull.clone()),
    };
    let entry = AuditEntry {
        why: command.why.clone(),
        subject: pull.repo.to_string(),
        ..entry(command.user.as_str(), command.name.spoken(), pull, &item.delivery, "done")
    };
    let (answer, id, user) = (answer_later(inner, Some(command)), pull.clone(), command.user.clone());
    let commit = Commit::about(pull).done(&item.delivery, command.name.spoken());
    let recorded = commit.record_with(inner, move |tx| {
        let message = match (freezes, tx.freeze_of(&freeze.repo)?) {
            (true, Some(known)) => Message::Frozen { freeze: known, already: true },
            (true, None) => {
                tx.freeze(&freeze)?;
                Message::Frozen { freeze, already: false }
            }
            (false, _) => Message::Unfrozen { freeze: tx.unfreeze(&freeze.repo)?, user },
        };
        let did_nothing =
            matches!(message, Message::Frozen { already: true, .. } | Message::Unfrozen { freeze: None, .. });
        let result = if did_nothing { "it was so already" } else { "done" };
        tx.audit(&AuditEntry { result: result.into(), ..entry })?;
        tx.post(&id, answer(&id, message))
    });
    recorded.await
}

/// `unlock #12 #15`: their locks and plans go, unless a command of theirs runs. Each is told, and one answer tells all.
async fn unlock_others(inner: &Arc<Inner>, pull: &PullId, item: &Item, command: &Command) -> Result<()> {
    let pulls: Vec<PullId> =
        command.pulls.iter().map(|number| PullId { repo: pull.repo.clone(), number: *number }).collect();
    let checked = meant_of(inner, &pulls, &command.target).await?;
    if let Some(because) = unlock_refusal(inner, pull, command, &checked).await {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await;
    }
    let unlocking = UnlockingOthers {
        from: inner.pull_name(pull),
        names: pulls.iter().map(|pull| inner.pull_name(pull)).collect(),
        forbidden: join_all(pulls.iter().map(|pull| forbidden(inner, pull))).await,
        checked: checked.into_iter().collect(),
        inner: Arc::clone(inner),
        executable: inner.ctx.rendering.executable.clone(),
        logs: inner.ctx.logs.clone(),
        pulls: pulls.clone(),
        command: command.clone(),
        by: AuditEntry {
            why: command.why.clone(),
            ..entry(command.user.as_str(), "unlock of others", pull, &item.delivery, "unlocked")
        },
    };
    let (to_asker, to_other) =
        (answer_later(inner, Some(command)), |pull: &PullId| (pull.clone(), answer_later(inner, None)));
    let mut to_others: Vec<_> = pulls.iter().map(to_other).collect();
    let asker = pull.clone();
    let dropped = Commit::about(pull).done(&item.delivery, "answered").record_with(inner, move |tx| {
        let (mut lines, mut dropped) = (Vec::new(), Vec::new());
        for (at, (other, word)) in to_others.drain(..).enumerate() {
            let Unlocked { line, told, plans } = unlocking.unlock(tx, at)?;
            lines.push(line);
            dropped.extend(plans);
            let effects: Vec<Effect> = told.map(|message| word(&other, message)).unwrap_or_default();
            tx.post(&other, effects)?;
        }
        tx.post(&asker, to_asker(&asker, Message::UnlockedOthers { lines }))?;
        Ok(dropped)
    });
    remove_plan_files(&inner.ctx, &dropped.await?).await;
    pulls.iter().for_each(|other| inner.ctx.outbox.wake(other));
    Ok(())
}

/// Why the label of a pull request forbids to unlock it, as its host has it now. No answer is not a yes.
async fn forbidden(inner: &Inner, pull: &PullId) -> Option<String> {
    let label = inner.ctx.settings.disable_unlock_label.as_ref()?;
    let (name, executable) = (inner.pull_name(pull), &inner.ctx.rendering.executable);
    let again = format!("say `{executable} unlock {name}` again");
    match fetch_pull(inner, pull).await {
        Ok(now) if now.labels.contains(label) => {
            Some(format!("its label `{label}` forbids unlocking. Remove it there, then {again}"))
        }
        Ok(_) | Err(HostError::NotFound { .. }) => None,
        Err(error) => {
            let line = format!("the host did not say whether it has the label `{label}`: {error}. Then: {again}");
            Some(inner.ctx.redactor.redact(&line))
        }
    }
}

/// What the transaction of `unlock #12 #15` needs.
struct UnlockingOthers {
    /// The pull request on which it was typed, as its host writes it.
    from: String,
    pulls: Vec<PullId>,
    /// The same as their host writes them.
    names: Vec<String>,
    /// Why each of them must not be unlocked, if that is so.
    forbidden: Vec<Option<String>>,
    /// Projects that the person may unlock. What was planned or locked meanwhile was not looked at.
    checked: HashSet<ProjectId>,
    inner: Arc<Inner>,
    executable: String,
    logs: Logs,
    command: Command,
    by: AuditEntry,
}

/// What became of one pull request.
struct Unlocked {
    /// For who asked.
    line: String,
    /// For the pull request itself.
    told: Option<Message>,
    plans: Vec<PlanRecord>,
}

/// Says that a pull request is left alone, as a command of it runs.
fn still_runs(running: CommandName, name: &str, executable: &str) -> String {
    let what = match running {
        CommandName::Apply => "an apply".to_owned(),
        other => format!("`{}`", other.spoken()),
    };
    let cancel = if running.changes_state() { "cancel --apply" } else { "cancel" };
    format!(
        "Nothing of {name}: {what} of it runs. Wait for its end, or say `{executable} {cancel}` there; then say `{executable} unlock {name}` again"
    )
}

impl UnlockingOthers {
    fn unlock(&self, tx: &Tx<'_>, at: usize) -> Result<Unlocked> {
        let (pull, name) = (&self.pulls[at], &self.names[at]);
        let nothing = |line: String| Unlocked { line, told: None, plans: Vec::new() };
        let held = held_of(tx, pull)?;
        let is_meant =
            |project: &&ProjectId| is_targeted(&self.command.target, project) && self.checked.contains(project);
        let meant: Vec<_> = held.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() {
            return Ok(nothing(format!("Nothing of {name}: it has neither locks nor plans that were meant")));
        }
        if let Some(because) = &self.forbidden[at] {
            return Ok(nothing(format!("Nothing of {name}: {because}")));
        }
        // Here, where no job can begin meanwhile: each begins with a transaction of its own.
        let begun = begun(tx, &self.logs, pull)?.map(|_| CommandName::Apply);
        if let Some(running) = self.inner.actors.running(pull).or(begun) {
            let line = still_runs(running, name, &self.executable);
            let result = format!("refused: {} runs", running.spoken());
            tx.audit(&AuditEntry { pull: Some(pull.clone()), result, ..self.by.clone() })?;
            return Ok(nothing(line));
        }
        let by = AuditEntry { pull: Some(pull.clone()), ..self.by.clone() };
        let follows = tx.record_lock_event(&LockEvent::Unlocked {
            pull: pull.clone(),
            only: Some(meant),
            accept_drift: false,
            by,
        })?;
        let (projects, next) = match &follows.message {
            Some(Message::Unlocked { projects, kept, .. }) if projects.is_empty() => {
                let kept: Vec<String> = kept.iter().map(|project| format!("`{}`", project.label())).collect();
                let line = format!(
                    "Nothing of {name}: it owns {}, where something was applied or merged by half. Say there \
                     `{} unlock --accept-drift -m 'why'` to leave that as it is",
                    kept.join(", "),
                    self.executable
                );
                return Ok(nothing(line));
            }
            Some(Message::Unlocked { projects, next, .. }) => (projects.clone(), next.clone()),
            _ => return Ok(nothing(format!("Nothing of {name} could be unlocked"))),
        };
        let listed: Vec<String> = projects.iter().map(|project| format!("`{}`", project.label())).collect();
        let told = Message::UnlockedBy {
            projects,
            user: self.command.user.clone(),
            from: self.from.clone(),
            why: self.command.why.clone().unwrap_or_default(),
            next,
        };
        let line = format!("Unlocked of {name}: {}", listed.join(", "));
        Ok(Unlocked { line, told: Some(told), plans: follows.dropped() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::CommentEvent;
    use crate::domain::command::Trigger;

    fn item(pull: &PullId, name: CommandName, delivery: &str) -> (PullId, Item) {
        let (clone_url, body) = Default::default();
        let comment = CommentEvent { pull: pull.clone(), clone_url, comment_id: 1, author: "alice".into(), body };
        let command = Box::new(Command::new(name, Trigger::Comment, "alice"));
        let task = Task::Command { comment, command };
        (pull.clone(), Item { delivery: delivery.into(), received: Timestamp::now(), task })
    }

    #[test]
    fn those_of_one_repository_are_answered_in_their_order_by_one() {
        let pull = |name: &str, number| PullId {
            repo: RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() },
            number,
        };
        let queues = HatchQueues::default();
        let add = |pull: &PullId, name, delivery| {
            let (pull, item) = item(pull, name, delivery);
            queues.add(pull, item)
        };
        let (first, second, other) = (pull("infra", 1), pull("infra", 2), pull("other", 1));
        assert!(add(&first, CommandName::Unfreeze, "a"), "somebody has to begin");
        assert!(!add(&second, CommandName::Freeze, "b"), "somebody is at it");
        assert!(add(&other, CommandName::Freeze, "c"), "another repository does not wait");
        let next = || queues.next(&first.repo).map(|(pull, item)| (pull.number, item.delivery.to_string()));
        assert_eq!(next(), Some((1, "a".to_owned())));
        assert!(!add(&first, CommandName::Unlock, "d"), "it goes on with what comes meanwhile");
        assert_eq!((next(), next()), (Some((2, "b".to_owned())), Some((1, "d".to_owned()))));
        assert_eq!(next(), None);
        assert!(add(&first, CommandName::Freeze, "e"), "whoever was at it has ended");
    }

    #[test]
    fn what_runs_is_named_with_what_stops_it() {
        for (name, what, cancel) in [
            (CommandName::Apply, "an apply of it runs", "`atlantis cancel --apply` there"),
            (CommandName::Import, "`import` of it runs", "`atlantis cancel --apply` there"),
            (CommandName::Plan, "`plan` of it runs", "`atlantis cancel` there"),
        ] {
            let line = still_runs(name, "#12", "atlantis");
            assert!(
                line.contains(what) && line.contains(cancel) && line.ends_with("`atlantis unlock #12` again"),
                "{line}"
            );
        }
    }
}
