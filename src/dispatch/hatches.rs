//! Escape hatches that need no checkout: `freeze`, `unfreeze`, and `unlock` of other pull requests. They are answered beside the queue of the pull request on
//! which they were typed, so that nobody waits for what runs there.

use super::Inner;
use super::immediate_commands::{answer_later, begun, entry, held_of, is_targeted, not_permitted};
use super::queues::{Item, Task};
use super::recorder::Commit;
use crate::config::permissions::Hatch;
use crate::domain::PullId;
use crate::domain::command::{Command, CommandName};
use crate::domain::freeze::Freeze;
use crate::domain::reply::Message;
use crate::domain::state::{AuditEntry, Effect, PlanRecord};
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered_hatch};
use crate::execute::remove_plan_files;
use crate::locks::LockEvent;
use crate::store::Tx;
use crate::store::logs::Logs;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::Arc;

/// Whether a command is answered here, beside the queue.
pub(super) fn is_answered_beside(command: &Command) -> bool {
    match command.name {
        CommandName::Freeze | CommandName::Unfreeze => true,
        CommandName::Unlock => !command.pulls.is_empty(),
        _ => false,
    }
}

/// Answers one.
pub(super) async fn answer(inner: &Arc<Inner>, pull: &PullId, item: &Item) {
    let Task::Command { command, .. } = &item.task else { return };
    let answered = match command.name {
        CommandName::Unlock => unlock_others(inner, pull, item, command).await,
        _ => set_freeze(inner, pull, item, command).await,
    };
    if let Err(error) = answered {
        tracing::error!(%pull, command = command.name.as_str(), error = format!("{error:#}"), "a command could not be answered");
    }
}

/// Why the person may not use an escape hatch, if that is so. No answer of the host is not a yes.
async fn refusal(inner: &Inner, pull: &PullId, command: &Command, hatch: Hatch) -> Option<String> {
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::OfHost(command.user.as_str()));
    match gatekeeper.hatch_refusal(hatch, None, &typed(&inner.ctx, command)).await {
        Ok(refusal) => refusal,
        Err(error) => Some(unanswered_hatch(&inner.ctx, command, hatch, &error)),
    }
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

/// `unlock #12 #15`: their locks and plans go, unless an apply of theirs runs. Each is told, and one answer tells all.
async fn unlock_others(inner: &Arc<Inner>, pull: &PullId, item: &Item, command: &Command) -> Result<()> {
    let pulls: Vec<PullId> =
        command.pulls.iter().map(|number| PullId { repo: pull.repo.clone(), number: *number }).collect();
    let mut because = refusal(inner, pull, command, Hatch::UnlockOthers).await;
    if because.is_none() {
        because = not_permitted(inner, &pulls, "", command).await?;
    }
    if let Some(because) = because {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(pull, &item.delivery, Some(command), Some(message)).await;
    }
    let unlocking = UnlockingOthers {
        from: inner.pull_name(pull),
        names: pulls.iter().map(|pull| inner.pull_name(pull)).collect(),
        label: inner.ctx.settings.disable_unlock_label.clone(),
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

/// What the transaction of `unlock #12 #15` needs.
struct UnlockingOthers {
    /// The pull request on which it was typed, as its host writes it.
    from: String,
    pulls: Vec<PullId>,
    /// The same as their host writes them.
    names: Vec<String>,
    label: Option<String>,
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

impl UnlockingOthers {
    fn unlock(&self, tx: &Tx<'_>, at: usize) -> Result<Unlocked> {
        let (pull, name) = (&self.pulls[at], &self.names[at]);
        let nothing = |line: String| Unlocked { line, told: None, plans: Vec::new() };
        let held = held_of(tx, pull)?;
        let meant: Vec<_> = held.iter().filter(|project| is_targeted(&self.command.target, project)).cloned().collect();
        if meant.is_empty() {
            return Ok(nothing(format!("Nothing of {name}: it has neither locks nor plans that were meant")));
        }
        let label = self
            .label
            .as_ref()
            .filter(|label| tx.pull(pull).ok().flatten().is_some_and(|known| known.labels.contains(label)));
        if let Some(label) = label {
            let line = format!(
                "Nothing of {name}: its label `{label}` forbids unlocking. Remove it there, then say `{} unlock {name}` again",
                self.executable
            );
            return Ok(nothing(line));
        }
        // Here, where no apply can begin meanwhile: each begins with a transaction of its own.
        if begun(tx, &self.logs, pull)?.is_some() {
            let line = format!(
                "Nothing of {name}: an apply of it runs. Wait for its end, or say `{} cancel --apply` there; then say `{} unlock {name}` again",
                self.executable, self.executable
            );
            tx.audit(&AuditEntry {
                pull: Some(pull.clone()),
                result: "refused: an apply runs".into(),
                ..self.by.clone()
            })?;
            return Ok(nothing(line));
        }
        let by = AuditEntry { pull: Some(pull.clone()), ..self.by.clone() };
        let follows = tx.record_lock_event(&LockEvent::Unlocked {
            pull: pull.clone(),
            only: Some(meant),
            accept_drift: false,
            by,
        })?;
        let projects = match &follows.message {
            Some(Message::Unlocked { projects, kept }) if projects.is_empty() => {
                let kept: Vec<String> = kept.iter().map(|project| format!("`{}`", project.label())).collect();
                let line = format!(
                    "Nothing of {name}: it owns {}, where something was applied or merged by half. Say there \
                     `{} unlock --accept-drift -m 'why'` to leave that as it is",
                    kept.join(", "),
                    self.executable
                );
                return Ok(nothing(line));
            }
            Some(Message::Unlocked { projects, .. }) => projects.clone(),
            _ => return Ok(nothing(format!("Nothing of {name} could be unlocked"))),
        };
        let listed: Vec<String> = projects.iter().map(|project| format!("`{}`", project.label())).collect();
        let told = Message::UnlockedBy {
            projects,
            user: self.command.user.clone(),
            from: self.from.clone(),
            why: self.command.why.clone().unwrap_or_default(),
        };
        let line = format!("Unlocked of {name}: {}", listed.join(", "));
        Ok(Unlocked { line, told: Some(told), plans: follows.dropped() })
    }
}
