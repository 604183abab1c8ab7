//! Finds, at the merge of a pull request, the kind of its base branch, and the projects to apply. Projects are found from the merged files
//! if nobody has planned the head. This runs nothing of the repository, not even hooks.

use super::cancel::Cancel;
use super::command_run::{CommandRun, new_run};
use super::context::Context;
use super::merged;
use super::prepare::{self, Need, ScheduleScope, Stop};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::{Fault, Reason};
use crate::domain::ownership::ChangedProjects;
use crate::domain::state::LockHolder;
use crate::domain::{CommitSha, Login, PullRequest, PullState};
use crate::locks::MergedInto;
use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;

/// Maximum length of the recorded reason for unknown changes, in characters.
const MAX_REASON: usize = 500;

/// The facts that are found at a merge.
pub(crate) struct MergeFacts {
    /// Kind of the base branch, or the reason for which the merge is not known yet.
    pub into: MergedInto,
    /// The merged projects, if nobody has planned the head and a project may be in mode `strict`.
    pub changed: Option<ChangedProjects>,
}

impl MergeFacts {
    fn plain() -> MergeFacts {
        MergeFacts { into: MergedInto::Applied, changed: None }
    }
}

/// Finds the kind of the base branch and, if nobody has planned the merged head, the projects that it changes. If they cannot be found, the
/// merge is not known yet.
pub(crate) async fn of_merge(ctx: &Context, pull: &PullRequest) -> MergeFacts {
    if !may_be_strict(ctx, pull) {
        return MergeFacts::plain();
    }
    let id = pull.id.clone();
    match ctx.store.read(move |view| Ok((view.changed_projects(&id)?, view.known_pull(&id)?))).await {
        Ok((Some(changed), _)) if changed.head == pull.head.commit => {
            // If this is unknown, the changes count as unapplied here, which loses nothing.
            let into = merged_into(ctx, pull).await.unwrap_or_else(|error| {
                tracing::warn!(pull = %pull.id, "whether its base branch is that of another one could not be found: {error:#}");
                MergedInto::Applied
            });
            MergeFacts { into, changed: None }
        }
        Ok((_, Some(known))) if !known.open && matches!(known.pull.state, PullState::Merged { .. }) => {
            // Its merge is recorded already.
            MergeFacts::plain()
        }
        Ok(_) => of_unplanned(ctx, pull).await,
        Err(error) => unknown(ctx, pull, &error),
    }
}

/// Does the same for a recorded merge whose changes were unknown.
pub(crate) async fn of_unknown(ctx: &Context, pull: &PullRequest) -> MergeFacts {
    if may_be_strict(ctx, pull) { of_unplanned(ctx, pull).await } else { MergeFacts::plain() }
}

fn may_be_strict(ctx: &Context, pull: &PullRequest) -> bool {
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    rules.branch_allowed && rules.may_be_strict() && !ctx.settings.disable_repo_locking
}

async fn of_unplanned(ctx: &Context, pull: &PullRequest) -> MergeFacts {
    let found = async {
        let into = merged_into(ctx, pull).await?;
        Ok((into, find(ctx, pull).await))
    };
    match found.await {
        Ok((into, Ok(changed))) => MergeFacts { into, changed: Some(changed) },
        // Its changes are found with the other pull request.
        Ok((into @ MergedInto::HeadOf(_), Err(error))) => {
            tracing::debug!(pull = %pull.id, "what it changes could not be found: {error:#}");
            MergeFacts { into, changed: None }
        }
        Ok((_, Err(error))) | Err(error) => unknown(ctx, pull, &error),
    }
}

fn unknown(ctx: &Context, pull: &PullRequest, error: &anyhow::Error) -> MergeFacts {
    let text = format!("{error:#}");
    tracing::error!(pull = %pull.id, error = text, "it was merged without a plan, and what it changes could not be found");
    let text = ctx.redactor.redact(text.lines().next().unwrap_or_default());
    let because =
        format!("The server could not determine the changes: {}", text.chars().take(MAX_REASON).collect::<String>());
    MergeFacts { into: MergedInto::Unknown { because }, changed: None }
}

/// Returns the kind of the base branch of a merged pull request: the head branch of another open one, or a branch that is applied. A branch
/// that the operator names, and the default branch, are always applied: a pull request could make any branch its head.
async fn merged_into(ctx: &Context, pull: &PullRequest) -> Result<MergedInto> {
    let (repo, branch) = (&pull.id.repo, &pull.base.branch);
    if ctx.global.names_branch_alone(repo, branch) {
        return Ok(MergedInto::Applied);
    }
    let of = repo.clone();
    let mut open = ctx.store.read(move |view| view.open_pulls_of(&of)).await?;
    let is_head = |other: &PullRequest| {
        other.head.branch == *branch && !other.fork && other.id != pull.id && other.base.branch != *branch
    };
    open.retain(|known| is_head(&known.pull));
    let Some(onto) = open.into_iter().map(|known| known.pull).min_by_key(|other| other.id.number) else {
        return Ok(MergedInto::Applied);
    };
    let credentials = prepare::credentials_of(ctx, repo).await;
    let default = ctx.checkouts.default_branch(repo, &pull.clone_url, credentials.as_ref()).await?;
    if default.is_none_or(|default| default == *branch) {
        return Ok(MergedInto::Applied);
    }
    let (title, url, user, since) = (onto.title, onto.url, onto.author, Timestamp::now());
    Ok(MergedInto::HeadOf(Box::new(LockHolder { pull: onto.id, title, url, user, since, overdue: None })))
}

async fn find(ctx: &Context, pull: &PullRequest) -> Result<ChangedProjects> {
    let MergedFiles { files, from, to } = files(ctx, pull).await?;
    let at_tip = merged::at_tip(ctx, pull).await?;
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    let command = Command::new(CommandName::Plan, Trigger::Autoplan, Login::unknown());
    // The run is not recorded: it only says on what the schedule is made.
    let run = new_run(&at_tip, &command);
    let work = CommandRun::new(run, at_tip, command, rules, Cancel::default());
    let looked = async {
        let prepared = prepare::check_out(ctx, &work, Need::Listed(&files)).await?;
        prepare::schedule(ctx, &work, &prepared, ScheduleScope::Merged { from: &from, to: &to }).await
    };
    let projects = match looked.await {
        Ok(schedule) => schedule.changed,
        // No project, and no message about that.
        Err(Stop::Silent) => Vec::new(),
        Err(Stop::Fault(Fault { reason: Reason::Config, message, .. })) => {
            bail!("the merged configuration cannot be read: {message}")
        }
        Err(Stop::Fault(fault)) => bail!(fault.message),
        Err(Stop::Cancelled) => bail!("cancelled"),
        Err(Stop::Other(error)) => return Err(error),
    };
    Ok(ChangedProjects { pull: pull.id.clone(), head: pull.head.commit.clone(), projects })
}

/// The files that differ between two commits.
struct MergedFiles {
    files: Vec<String>,
    from: CommitSha,
    to: CommitSha,
}

/// Returns the files that a merge has changed, from the commit at which its head forked from the base branch. If the host does not provide
/// the head any more, they are the difference of the merge commit from the one before it.
async fn files(ctx: &Context, pull: &PullRequest) -> Result<MergedFiles> {
    let PullState::Merged { commit: Some(merge) } = &pull.state else {
        return Err(anyhow!("the host does not tell which commit it became"));
    };
    let credentials = prepare::credentials_of(ctx, &pull.id.repo).await;
    let head = match ctx.checkouts.fetch(pull, credentials.as_ref()).await {
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
