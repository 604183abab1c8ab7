//! `unlock`: deletes locks, plans and places in line of a pull request. In mode `strict` it also ends the ownership that the person may
//! end.

mod kept;
mod others;
mod selection;

pub(super) use others::unlock_others;

use super::immediate_commands::{answer_later, entry};
use super::inner::Inner;
use super::queues::Item;
use super::recorder::Commit;
use crate::config::permissions::Act;
use crate::domain::command::Command;
use crate::domain::reply::Message;
use crate::domain::{JobId, ProjectId, PullId, PullRequest};
use crate::execute::discarded::Discards;
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered, unanswered_writer};
use crate::execute::remove_plan_files;
use crate::locks::LockEvent;
use crate::store::View;
use anyhow::Result;
use kept::KeptProjects;
use selection::UnlockSelection;
use std::sync::Arc;

/// Runs `unlock` on the pull request itself.
pub(super) async fn unlock(inner: &Arc<Inner>, pull: &PullRequest, command: &Command, item: &Item) -> Result<()> {
    let label = inner.ctx.settings.disable_unlock_label.as_ref();
    if let Some(label) = label.filter(|label| pull.labels.contains(label)) {
        let because = format!(
            "The label `{label}` forbids unlocking. Remove it, then comment `{} unlock` again.",
            inner.ctx.rendering.executable
        );
        let message = Message::UnlockRefused { because, link: None };
        return inner.answer_delivery(&pull.id, &item.cause, Some(command), Some(message)).await;
    }
    let (mut selection, held) = selection(inner, &pull.id, command).await?;
    if let Some(because) = untrue_target(inner, pull, command, &mut selection, &held).await? {
        let message = Message::UnlockRefused { because, link: None };
        return inner.answer_delivery(&pull.id, &item.cause, Some(command), Some(message)).await;
    }
    if let Some(because) = not_permitted(inner, pull, command, &selection).await? {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(&pull.id, &item.cause, Some(command), Some(message)).await;
    }
    let mut by = entry(&command.asked_by(), "unlock", &pull.id, &item.cause, "unlocked");
    by.why.clone_from(&command.why);
    if command.accept_drift {
        by.result = "unlocked, accepting drift".into();
    }
    let accept_drift = command.accept_drift;
    let answer = answer_later(inner, Some(command));
    let (id, silent) = (pull.id.clone(), inner.ctx.settings.silence_no_projects);
    let (statuses, because) = (inner.ctx.statuses.clone(), format!("unlocked by {}", command.user));
    let command = command.clone();
    let commit = Commit::about(&pull.id).done(&item.cause, "unlocked");
    let follows = commit.record_with(inner, move |tx| {
        let held = (!selection.is_all).then(|| held_or_awaited_by(tx, &id)).transpose()?;
        let only: Option<Vec<ProjectId>> =
            held.map(|held| held.into_iter().filter(|project| selection.means(project)).collect());
        let kept = KeptProjects::before(tx, &id, &command, only.as_deref())?;
        let discards = Discards::before(tx, &id)?;
        let follows = tx.record_lock_event(&LockEvent::Unlocked { pull: id.clone(), only, accept_drift, by })?;
        // Those that are kept are no discarded plans.
        kept.record(tx, &statuses, &because)?;
        discards.post(tx, &statuses, &because)?;
        let message = follows.message.clone().filter(|_| !(silent && follows.changes.is_empty()));
        tx.post(&id, message.map(|message| answer(&id, message)).into_iter().flatten())?;
        Ok(follows)
    });
    remove_plan_files(&inner.ctx, &follows.await?.dropped()).await;
    Ok(())
}

/// Returns the projects that a pull request has locked, owns or has planned.
fn held_by(view: &View<'_>, pull: &PullId) -> Result<Vec<ProjectId>> {
    let locked = view.locks_of(pull)?.into_iter().map(|lock| lock.project);
    let owned = view.owners_of(pull)?.into_iter().map(|owner| owner.project);
    let planned = view.plans(pull)?.into_iter().map(|plan| plan.project);
    let mut held: Vec<ProjectId> = locked.chain(owned).chain(planned).collect();
    held.sort();
    held.dedup();
    Ok(held)
}

/// The same, and those that it waits for.
fn held_or_awaited_by(view: &View<'_>, pull: &PullId) -> Result<Vec<ProjectId>> {
    let mut projects = held_by(view, pull)?;
    projects.extend(view.waits_of(pull)?.into_iter().map(|waiter| waiter.project));
    projects.sort();
    projects.dedup();
    Ok(projects)
}

/// Returns the projects of a pull request that a person has locked by hand, with `lock`.
fn held_by_hand(view: &View<'_>, pull: &PullId) -> Result<Vec<ProjectId>> {
    let locks = view.locks_of(pull)?.into_iter().filter(|lock| lock.why.is_some()).map(|lock| lock.project);
    let owners = view.owners_of(pull)?.into_iter().filter(|owner| !owner.reason.is_empty()).map(|owner| owner.project);
    Ok(locks.chain(owners).collect())
}

/// Returns the selection of a command among the projects that a pull request holds or waits for, without `--tag`, and these projects.
async fn selection(inner: &Inner, pull: &PullId, command: &Command) -> Result<(UnlockSelection, Vec<ProjectId>)> {
    let id = pull.clone();
    let held = inner.ctx.store.read(move |view| held_or_awaited_by(view, &id)).await?;
    Ok((UnlockSelection::new(inner, pull, &command.target, &held).await?, held))
}

/// Reads the tags for `--tag`. Returns a refusal if they are not known, or if a flag may be a typing error, with which the command would
/// unlock more than is meant.
async fn untrue_target(
    inner: &Inner,
    pull: &PullRequest,
    command: &Command,
    selection: &mut UnlockSelection,
    held: &[ProjectId],
) -> Result<Option<String>> {
    let executable = &inner.ctx.rendering.executable;
    if let Some(query) = &command.target.tag {
        if !selection.read_tags(inner, pull, query).await? {
            return Ok(Some(format!(
                "The tags of the projects are not known here: `--tag` reads them in the checkout of the last plan. Name the projects \
                 with `-p` or `-d`, or plan again, then comment `{executable} unlock --tag` again."
            )));
        }
        if let Some(tag) = selection.unknown_tag() {
            return Ok(Some(format!(
                "No project has the tag `{tag}`. Comment `{executable} unlock --tag` with another tag."
            )));
        }
    }
    Ok(selection.idle_exceptions(held).first().map(|text| idle_exception(text, executable)))
}

/// Returns the refusal of a value of `--except` that leaves out nothing.
fn idle_exception(text: &str, executable: &str) -> String {
    format!(
        "`--except` leaves out no locked, planned or waiting project: {text}. Comment `{executable} unlock` with another value."
    )
}

/// Returns a refusal if the person may not unlock each targeted project that the pull request holds. Write access to the repository is
/// required to end changes that are applied or merged in part, and locks by hand. A host that does not answer is a refusal.
async fn not_permitted(
    inner: &Inner,
    pull: &PullRequest,
    command: &Command,
    selection: &UnlockSelection,
) -> Result<Option<String>> {
    let id = pull.id.clone();
    let found = inner.ctx.store.read(move |view| Ok((held_by(view, &id)?, held_by_hand(view, &id)?)));
    let (mut held, by_hand) = found.await?;
    held.retain(|project| selection.means(project));
    let person = Asker::of(command);
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.id.repo, &pull.base.branch, person);
    for project in held.iter().map(Some).chain(held.is_empty().then_some(None)) {
        match gatekeeper.refusal(Act { command: command.name, project }).await {
            Ok(None) => {}
            Ok(because) => return Ok(because),
            Err(error) => return Ok(Some(unanswered(&inner.ctx, command, &error))),
        }
        match gatekeeper.page_refusal(command, Act { command: command.name, project }).await {
            Ok(None) => {}
            Ok(because) => return Ok(because),
            Err(error) => return Ok(Some(unanswered_writer(&inner.ctx, command, command.name.spoken(), &error))),
        }
        match writer_refusal(inner, &mut gatekeeper, command, project, &by_hand).await {
            Ok(None) => {}
            Ok(because) => return Ok(because),
            Err(because) => return Ok(Some(because)),
        }
    }
    Ok(None)
}

/// Returns a refusal if a person who may `unlock` may not end more than plans and their locks, and that is asked for. The error is a text:
/// the host did not answer.
async fn writer_refusal(
    inner: &Inner,
    gatekeeper: &mut Gatekeeper<'_>,
    command: &Command,
    project: Option<&ProjectId>,
    by_hand: &[ProjectId],
) -> Result<Option<String>, String> {
    let (what, because) = match project {
        _ if command.accept_drift => ("unlock --accept-drift", String::new()),
        Some(project) if by_hand.contains(project) => {
            ("unlock", format!("`{}` is locked by hand, and ", project.label()))
        }
        _ => return Ok(None),
    };
    let (act, say) = (Act { command: command.name, project }, typed(&inner.ctx, command));
    let refusal = gatekeeper.writer_refusal(act, what, &because, &say).await;
    refusal.map_err(|error| unanswered_writer(&inner.ctx, command, what, &error))
}

/// Refuses `unlock` at once while an apply of this pull request runs, with the apply's link.
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
        "An apply of this pull request is running. Wait until it ends, then comment `{executable} unlock` again; \
         `{executable} cancel --apply` interrupts it."
    );
    let message = Message::UnlockRefused { because, link };
    if let Err(error) = inner.answer_delivery(pull, &item.cause, Some(command), Some(message)).await {
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
