//! What a merged pull request changes whose head nobody has planned: found at the merge, from what was merged, so that it is known what is
//! to be applied. Nothing of the repository is run for it, hooks neither.

use super::prepare::{self, Need, ScheduleScope, Stop};
use super::{CommandRun, Context, merged, random_bits};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::ownership::ChangedProjects;
use crate::domain::state::Run;
use crate::domain::{CommitSha, Login, PullRequest, PullState, RunId};
use anyhow::{Result, anyhow};
use jiff::Timestamp;

/// What it changes, where nobody has planned what was merged and a project may be in mode `strict`. What cannot be found out is told in the
/// log: the merge is recorded all the same.
pub async fn of_unplanned(ctx: &Context, pull: &PullRequest) -> Option<ChangedProjects> {
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    if !rules.branch_allowed || !rules.may_be_strict() || ctx.settings.disable_repo_locking {
        return None;
    }
    let id = pull.id.clone();
    let found = match ctx.store.read(move |view| Ok((view.changed_projects(&id)?, view.known_pull(&id)?))).await {
        Ok((Some(changed), _)) if changed.head == pull.head.commit => return None,
        // Its merge is recorded already.
        Ok((_, Some(known))) if !known.open => return None,
        Ok(_) => find(ctx, pull).await,
        Err(error) => Err(error),
    };
    let unknown = |error: &anyhow::Error| {
        tracing::error!(pull = %pull.id, error = format!("{error:#}"), "it was merged without a plan, and what it changes could not be found");
    };
    found.inspect_err(unknown).ok()
}

async fn find(ctx: &Context, pull: &PullRequest) -> Result<ChangedProjects> {
    let MergedFiles { files, from, to } = files(ctx, pull).await?;
    let at_tip = merged::at_tip(ctx, pull).await?;
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    let command = Command::new(CommandName::Plan, Trigger::Autoplan, Login::unknown());
    // Nothing of it is recorded: it only says on what the schedule is made.
    let run = Run {
        id: RunId::of(random_bits()),
        pull: pull.id.clone(),
        command: command.name,
        trigger: command.trigger,
        user: command.user.clone(),
        head: at_tip.head.commit.clone(),
        delivery: None,
        everything: true,
        started: Timestamp::now(),
        finished: None,
        answered: false,
        results: Vec::new(),
        automerge: None,
    };
    let (after_merge, cancel, begun, unrecorded, automerge, follows) = Default::default();
    let work =
        CommandRun { run, pull: at_tip, command, rules, after_merge, cancel, begun, unrecorded, automerge, follows };
    let looked = async {
        let prepared = prepare::check_out(ctx, &work, Need::Listed(&files)).await?;
        prepare::schedule(ctx, &work, &prepared, ScheduleScope::Merged { from: &from, to: &to }).await
    };
    let schedule = looked.await.map_err(|stop| match stop {
        Stop::Other(error) => error,
        Stop::Fault(fault) => anyhow!(fault.message),
        Stop::Refused(refusal) => anyhow!("{refusal:?}"),
        Stop::Cancelled => anyhow!("cancelled"),
    })?;
    Ok(ChangedProjects { pull: pull.id.clone(), head: pull.head.commit.clone(), projects: schedule.changed })
}

/// The files that differ between two commits.
struct MergedFiles {
    files: Vec<String>,
    from: CommitSha,
    to: CommitSha,
}

/// The files that its merge has changed: from where its head left what it was merged into. Where the host gives its head no more, what the
/// commit of the merge differs in from the one before it.
async fn files(ctx: &Context, pull: &PullRequest) -> Result<MergedFiles> {
    let PullState::Merged { commit: Some(merge) } = &pull.state else {
        return Err(anyhow!("the host does not tell which commit it became"));
    };
    let credentials = prepare::credentials_of(ctx, &pull.id.repo).await;
    let head = match ctx.checkouts.fetch(pull, credentials.as_ref(), true).await {
        Ok(fetched) => Some(fetched.head).filter(|head| head != merge),
        Err(error) => {
            tracing::debug!(pull = %pull.id, "its head cannot be fetched: {error}");
            merged::at_tip(ctx, pull).await?;
            None
        }
    };
    let before = ctx.checkouts.parent(&pull.id.repo, merge).await?;
    let from = match &head {
        Some(head) => ctx.checkouts.forked_at(&pull.id.repo, &before, head).await?.unwrap_or_else(|| before.clone()),
        None => before,
    };
    let to = head.unwrap_or_else(|| merge.clone());
    let files = ctx.checkouts.differing_files(&pull.id.repo, &from, &to).await?;
    let files = files
        .ok_or_else(|| anyhow!("the commit before it is not in the mirror, or more files differ than can be listed"))?;
    Ok(MergedFiles { files, from, to })
}
