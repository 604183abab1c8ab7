//! The `lock` command: locks all projects that the pull request changes, or none if another one holds any of them.

use super::answer::CommandAnswer;
use super::command_run::{CommandRun, audit_entry};
use super::context::Context;
use super::plan::wanted_lock;
use super::prepare::{self, Prepared, ScheduleScope, Stop};
use super::{permissions, recorder};
use crate::config::{LockMode, ProjectConfig};
use crate::domain::ProjectId;
use crate::domain::outcome::{Failure, Fault, Reason};
use crate::domain::reply::Message;
use crate::domain::state::{AuditEntry, LockHolder, ProjectLock};
use crate::locks::{LockEvent, WantedLock, lock_before};
use anyhow::Result;

/// Maximum number of projects that a refusal names.
const MAX_NAMED: usize = 10;

/// Takes the locks, and returns the answer.
pub(super) async fn answer(ctx: &Context, work: &CommandRun, prepared: &Prepared) -> Result<CommandAnswer, Stop> {
    let schedule = prepare::schedule(ctx, work, prepared, ScheduleScope::Plan).await?;
    let configs: Vec<&ProjectConfig> = schedule.groups.iter().flatten().collect();
    for config in &configs {
        if let Some(Failure::Refused { because, .. }) = permissions::denial(ctx, work, config).await? {
            let fault = Fault { reason: Reason::NotPermitted, message: because, output: String::new() };
            return Ok(CommandAnswer::refusal(fault));
        }
    }
    let why = work.command.why.clone().unwrap_or_default();
    let wanted: Vec<(WantedLock, AuditEntry)> = configs
        .iter()
        .map(|config| (by_hand(wanted_lock(ctx, work, config), &why), audit_entry(work, &config.id, "locked".into())))
        .filter(|(wanted, _)| wanted.mode != LockMode::Disabled)
        .collect();
    if wanted.is_empty() {
        let because = match configs.is_empty() {
            true => "This pull request changes no project, so there is nothing to lock.",
            false => "Locking is disabled for these projects (`repo_locks: {mode: disabled}`).",
        };
        return Ok(CommandAnswer::message(Message::NoProjects { because: because.into() }));
    }
    let projects: Vec<ProjectId> = wanted.iter().map(|(wanted, _)| wanted.lock.project.clone()).collect();
    let pull = work.pull.id.clone();
    let held = recorder::facts(ctx, move |tx| {
        let mut held: Vec<(ProjectId, LockHolder)> = Vec::new();
        for (wanted, _) in &wanted {
            let ProjectLock { repo, project, address, .. } = &wanted.lock;
            let known = tx.locks_of_state(repo, project)?;
            let other = lock_before(&known, &pull, project, address);
            held.extend(other.map(|known| (project.clone(), known.holder.clone())));
        }
        if held.is_empty() {
            let (projects, entries): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
            tx.record_lock_event(&LockEvent::PlanGoesOn { projects })?;
            entries.iter().try_for_each(|entry| tx.audit(entry))?;
        }
        Ok(held)
    });
    let held = held.await?;
    Ok(CommandAnswer::message(match held.is_empty() {
        true => Message::Locked { projects, why },
        false => Message::NotLocked { lines: refusals(ctx, work, &held) },
    }))
}

/// Converts a plan's lock into one by hand: taken unless the project is never locked, and kept when a plan fails.
fn by_hand(mut wanted: WantedLock, why: &str) -> WantedLock {
    if wanted.mode != LockMode::Disabled {
        wanted.mode = LockMode::OnPlan;
    }
    wanted.lock.why = Some(why.to_owned());
    wanted
}

fn refusals(ctx: &Context, work: &CommandRun, held: &[(ProjectId, LockHolder)]) -> Vec<String> {
    let executable = &ctx.rendering.executable;
    let name = |number: u64| {
        let host = ctx.hosts.for_repo(&work.pull.id.repo);
        host.map_or_else(|_| format!("#{number}"), |host| host.profile().pull_name(number))
    };
    let line = |(project, holder): &(ProjectId, LockHolder)| {
        let pull = name(holder.pull.number);
        let (user, since) = (&holder.user, holder.since.strftime("%Y-%m-%d %H:%M UTC"));
        format!(
            "`{}` is held by {pull} ({user}, since {since}). It is released when {pull} is merged or closed, or by \
             `{executable} unlock {pull}`",
            project.label()
        )
    };
    let mut lines: Vec<String> = held.iter().take(MAX_NAMED).map(line).collect();
    if held.len() > MAX_NAMED {
        lines.push(format!("{} more held by other pull requests", held.len() - MAX_NAMED));
    }
    lines
}
