//! `unlock #12 #15`: deletes locks, plans and places in line of other pull requests.

use super::super::actor::fetch_pull;
use super::super::immediate_commands::{answer_later, begun, entry};
use super::super::inner::Inner;
use super::super::queues::Item;
use super::super::recorder::Commit;
use super::{UnlockSelection, held_by_hand, held_or_awaited_by, idle_exception, writer_refusal};
use crate::config::permissions::{Act, EscapeHatch};
use crate::domain::command::{Command, CommandName};
use crate::domain::reply::Message;
use crate::domain::state::{AuditEntry, Effect, PlanRecord};
use crate::domain::{ProjectId, PullId};
use crate::execute::discarded::Discards;
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered, unanswered_hatch};
use crate::execute::remove_plan_files;
use crate::locks::LockEvent;
use crate::store::Tx;
use crate::store::logs::Logs;
use crate::vcs::HostError;
use anyhow::Result;
use futures::future::join_all;
use std::sync::Arc;

/// Deletes their locks and plans, unless a command of theirs runs. Each gets a comment, and one answer lists the results, or the reasons
/// for none.
pub(in super::super) async fn unlock_others(
    inner: &Arc<Inner>,
    pull: &PullId,
    item: &Item,
    command: &Command,
) -> Result<()> {
    let pulls: Vec<PullId> =
        command.pulls.iter().map(|number| PullId { repo: pull.repo.clone(), number: *number }).collect();
    let looked = match check_all(inner, pull, command, &pulls).await? {
        AllChecked::Unlock(looked) => looked,
        AllChecked::Refuse(because) => {
            let message = Message::NotPermitted { because };
            return inner.answer_delivery(pull, &item.cause, Some(command), Some(message)).await;
        }
    };
    let result = if command.accept_drift { "unlocked, accepting drift" } else { "unlocked" };
    let unlocking = UnlockingOthers {
        asker: pull.clone(),
        from: inner.pull_name(pull),
        names: pulls.iter().map(|pull| inner.pull_name(pull)).collect(),
        looked,
        inner: Arc::clone(inner),
        executable: inner.ctx.rendering.executable.clone(),
        logs: inner.ctx.logs.clone(),
        pulls: pulls.clone(),
        command: command.clone(),
        by: AuditEntry {
            why: command.why.clone(),
            ..entry(&command.user, "unlock of others", pull, &item.cause, result)
        },
    };
    let (to_asker, to_other) =
        (answer_later(inner, Some(command)), |pull: &PullId| (pull.clone(), answer_later(inner, None)));
    let mut to_others: Vec<_> = pulls.iter().map(to_other).collect();
    let asker = pull.clone();
    let dropped = Commit::about(pull).done(&item.cause, "answered").record_with(inner, move |tx| {
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

/// Facts about one pull request, gathered before it is unlocked.
struct Looked {
    /// Projects that the person may unlock. Those planned, locked or waited for since were not checked.
    checked: Vec<ProjectId>,
    /// Reason not to unlock it, if there is one.
    refusal: Option<String>,
}

/// Result of the checks of all of them.
enum AllChecked {
    Unlock(Vec<Looked>),
    /// Reason to unlock none: each is refused, or the host does not answer.
    Refuse(String),
}

/// Checks each of them.
async fn check_all(inner: &Inner, pull: &PullId, command: &Command, pulls: &[PullId]) -> Result<AllChecked> {
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::of(command));
    let mut looked = Vec::new();
    let mut idle = command.target.except.clone();
    for other in pulls {
        let id = other.clone();
        let found = inner.ctx.store.read(move |view| Ok((held_or_awaited_by(view, &id)?, held_by_hand(view, &id)?)));
        let (mut checked, by_hand) = found.await?;
        let selection = UnlockSelection::new(inner, other, &command.target, &checked).await?;
        let idle_here = selection.idle_exceptions(&checked);
        idle.retain(|text| idle_here.contains(&text.as_str()));
        checked.retain(|project| selection.means(project));
        // On its own pull request it is an `unlock` like any other.
        let own = (other == pull).then_some(by_hand.as_slice());
        match not_permitted(inner, &mut gatekeeper, command, own, &checked).await {
            Ok(refusal) => looked.push(Looked { checked, refusal }),
            Err(because) => return Ok(AllChecked::Refuse(because)),
        }
    }
    if let Some(text) = idle.first() {
        return Ok(AllChecked::Refuse(idle_exception(text, &inner.ctx.rendering.executable)));
    }
    if looked.iter().all(|one| one.refusal.is_some()) {
        let mut reasons: Vec<String> = looked.into_iter().filter_map(|one| one.refusal).collect();
        reasons.dedup();
        return Ok(AllChecked::Refuse(reasons.join(". ")));
    }
    let forbidden = pulls
        .iter()
        .zip(&looked)
        .map(|(pull, one)| async { if one.refusal.is_some() { None } else { forbidden(inner, pull).await } });
    for (one, because) in join_all(forbidden).await.into_iter().enumerate() {
        if let Some(one) = looked.get_mut(one).filter(|_| because.is_some()) {
            one.refusal = because;
        }
    }
    Ok(AllChecked::Unlock(looked))
}

/// Returns a refusal if the person may not unlock these projects of one pull request. `own`: projects locked by hand, of the pull request
/// on which the command was typed; absent for another one. The error is a text: the host did not answer.
async fn not_permitted(
    inner: &Inner,
    gatekeeper: &mut Gatekeeper<'_>,
    command: &Command,
    own: Option<&[ProjectId]>,
    projects: &[ProjectId],
) -> Result<Option<String>, String> {
    let (hatch, say) = (EscapeHatch::UnlockOthers, typed(&inner.ctx, command));
    for project in projects.iter().map(Some).chain(projects.is_empty().then_some(None)) {
        if own.is_none() {
            let refusal = gatekeeper.escape_hatch_refusal(hatch, project, &say).await;
            let refusal = refusal.map_err(|error| unanswered_hatch(&inner.ctx, command, hatch, &error))?;
            if refusal.is_some() {
                return Ok(refusal);
            }
        }
        let refusal = gatekeeper.refusal(Act { command: command.name, project }).await;
        let refusal = refusal.map_err(|error| unanswered(&inner.ctx, command, &error))?;
        if refusal.is_some() {
            return Ok(refusal);
        }
        let refusal = writer_refusal(inner, gatekeeper, command, project, own.unwrap_or_default()).await?;
        if refusal.is_some() {
            return Ok(refusal);
        }
    }
    Ok(None)
}

/// Returns a refusal if a pull request has the label that forbids unlocking, on its host now, or if the host does not answer.
async fn forbidden(inner: &Inner, pull: &PullId) -> Option<String> {
    let label = inner.ctx.settings.disable_unlock_label.as_ref()?;
    let (name, executable) = (inner.pull_name(pull), &inner.ctx.rendering.executable);
    let again = format!("comment `{executable} unlock {name}` again");
    match fetch_pull(inner, pull).await {
        Ok(now) if now.labels.contains(label) => {
            Some(format!("its label `{label}` forbids unlocking. Remove it there, then {again}"))
        }
        Ok(_) | Err(HostError::NotFound { .. }) => None,
        Err(error) => {
            let line =
                format!("the host did not say whether it has the label `{label}`: {error}. To try again, {again}");
            Some(inner.ctx.redactor.redact(&line))
        }
    }
}

/// Input of the transaction of `unlock #12 #15`.
struct UnlockingOthers {
    /// The pull request on which it was typed.
    asker: PullId,
    /// Its name on its host.
    from: String,
    pulls: Vec<PullId>,
    /// Their names on their host.
    names: Vec<String>,
    looked: Vec<Looked>,
    inner: Arc<Inner>,
    executable: String,
    logs: Logs,
    command: Command,
    by: AuditEntry,
}

/// Result for one pull request.
struct Unlocked {
    /// Line of the answer.
    line: String,
    /// Comment on the pull request itself.
    told: Option<Message>,
    plans: Vec<PlanRecord>,
}

/// Returns the line for a pull request that is left alone because a command of it runs.
fn still_runs(running: CommandName, name: &str, executable: &str) -> String {
    let what = match running {
        CommandName::Apply => "an apply".to_owned(),
        other => format!("`{}`", other.spoken()),
    };
    let cancel = if running.changes_state() { "cancel --apply" } else { "cancel" };
    format!(
        "Nothing unlocked for {name}: {what} of it runs. Wait until it ends, or comment `{executable} {cancel}` there; then comment \
         `{executable} unlock {name}` again"
    )
}

impl UnlockingOthers {
    fn unlock(&self, tx: &Tx<'_>, at: usize) -> Result<Unlocked> {
        let (pull, name, looked) = (&self.pulls[at], &self.names[at], &self.looked[at]);
        let nothing = |line: String| Unlocked { line, told: None, plans: Vec::new() };
        if let Some(because) = &looked.refusal {
            return Ok(nothing(format!("Nothing unlocked for {name}: {because}")));
        }
        let mut meant = held_or_awaited_by(tx, pull)?;
        meant.retain(|project| looked.checked.contains(project));
        if meant.is_empty() {
            return Ok(nothing(format!("Nothing unlocked for {name}: it has no matching locks or plans")));
        }
        // Read in this transaction, so that no job can begin meanwhile: each begins with a transaction of its own.
        let begun = begun(tx, &self.logs, pull)?;
        let begun = begun.map(|job| CommandName::of_word(&job.kind).unwrap_or(CommandName::Apply));
        if let Some(running) = self.inner.actors.running(pull).or(begun) {
            let line = still_runs(running, name, &self.executable);
            let result = format!("refused: {} runs", running.spoken());
            tx.audit(&AuditEntry { pull: Some(pull.clone()), result, ..self.by.clone() })?;
            return Ok(nothing(line));
        }
        let by = AuditEntry { pull: Some(pull.clone()), ..self.by.clone() };
        let mut waited: Vec<ProjectId> = tx.waits_of(pull)?.into_iter().map(|waiter| waiter.project).collect();
        waited.retain(|project| meant.contains(project));
        let accept_drift = self.command.accept_drift;
        let event = LockEvent::Unlocked { pull: pull.clone(), only: Some(meant), accept_drift, by };
        let discards = Discards::before(tx, pull)?;
        let follows = tx.record_lock_event(&event)?;
        discards.post(tx, &self.inner.ctx.statuses, &format!("unlocked by {}", self.command.user))?;
        let Some(Message::Unlocked { mut projects, kept, next, .. }) = follows.message.clone() else {
            return Ok(nothing(format!("Nothing unlocked for {name}")));
        };
        waited.retain(|project| !projects.contains(project));
        let line = self.line(name, &projects, &waited, &kept);
        projects.extend(waited);
        // The pull request on which it was typed gets the answer instead.
        let told = (!projects.is_empty() && *pull != self.asker).then(|| Message::UnlockedBy {
            projects,
            user: self.command.user.clone(),
            from: self.from.clone(),
            why: self.command.why.clone().unwrap_or_default(),
            next,
        });
        Ok(Unlocked { line, told, plans: follows.dropped() })
    }

    /// Returns the line of the answer for one of them.
    fn line(&self, name: &str, unlocked: &[ProjectId], waited: &[ProjectId], kept: &[ProjectId]) -> String {
        let listed = |projects: &[ProjectId]| {
            projects.iter().map(|project| format!("`{}`", project.label())).collect::<Vec<_>>().join(", ")
        };
        let waiting_ends = format!("it no longer waits for {}", listed(waited));
        let mut line = match (unlocked.is_empty(), waited.is_empty()) {
            (true, true) => format!("Nothing unlocked for {name}"),
            (false, true) => format!("Unlocked for {name}: {}", listed(unlocked)),
            (true, false) => format!("Unlocked for {name}: {waiting_ends}"),
            (false, false) => format!("Unlocked for {name}: {}; {waiting_ends}", listed(unlocked)),
        };
        if !kept.is_empty() {
            let separator = if unlocked.is_empty() && waited.is_empty() { ": it" } else { ". It still" };
            line += &format!(
                "{separator} owns {}, with a change that is not both applied and merged. To accept that: \
                 `{} unlock {name} --accept-drift -m 'why'`",
                listed(kept),
                self.executable
            );
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
