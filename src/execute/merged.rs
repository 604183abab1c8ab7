//! `plan` and `apply` on a pull request that was merged before all of it was applied. They run at the tip of the base branch.

mod compare;
mod reviewed;

pub(super) use compare::{Compared, compared, guard, is_guarded, nothing_same, remark, stops_at_failed_group};
pub(super) use reviewed::reviewed;

use super::command_run::CommandRun;
use super::context::Context;
use super::prepare;
use crate::checkout::{CheckoutError, Strategy};
use crate::config::ProjectConfig;
use crate::config::paths::is_glob;
use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::{Failure, Reason};
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::state::PlanRecord;
use crate::domain::{Base, CommitSha, FollowUp, Head, ProjectId, PullRequest, PullState};
use crate::locks::LockEvent;
use crate::schedule::{NoSchedule, Schedule};
use anyhow::Result;

/// Returns the projects that a pull request has merged and not applied, oldest first, for a command that runs after the merge. `None` if
/// there is nothing for it to do.
pub(crate) async fn owed(ctx: &Context, pull: &PullRequest, command: &Command) -> Result<Option<Vec<ProjectId>>> {
    let is_merged = matches!(pull.state, PullState::Merged { .. });
    if !is_merged || !matches!(command.name, CommandName::Plan | CommandName::Apply) {
        return Ok(None);
    }
    let id = pull.id.clone();
    let owed = ctx.store.read(move |view| view.owed_projects(&id)).await?;
    Ok(Some(owed).filter(|owed| !owed.is_empty()))
}

/// Returns the merged pull request as commands see it: its head is the present tip of the base branch.
pub(crate) async fn at_tip(ctx: &Context, pull: &PullRequest) -> Result<PullRequest, CheckoutError> {
    let commit = match &pull.state {
        PullState::Merged { commit: Some(commit) } => commit.clone(),
        // Its own commits are on the base branch, or the host keeps them for it.
        _ => pull.head.commit.clone(),
    };
    let branch = pull.base.branch.clone();
    let (repo_owner, repo_name) = (pull.id.repo.owner.clone(), pull.id.repo.name.clone());
    let on_base = |commit: CommitSha| PullRequest {
        head: Head {
            branch: branch.clone(),
            commit: commit.clone(),
            repo_owner: repo_owner.clone(),
            repo_name: repo_name.clone(),
            clone_url: None,
        },
        base: Base { branch: branch.clone(), commit },
        fork: false,
        ..pull.clone()
    };
    let credentials = prepare::credentials_of(ctx, &pull.id.repo).await;
    let fetched = ctx.checkouts.fetch(&on_base(commit), credentials.as_ref()).await?;
    Ok(on_base(fetched.base_tip))
}

/// Data of a command on a merged pull request.
#[derive(Debug, Clone)]
pub(crate) struct AfterMerge {
    /// Projects that are merged and not applied.
    pub owed: Vec<ProjectId>,
    /// The pull request as it was merged, with its own head.
    pub pull: PullRequest,
    /// For an apply: it takes only plans that change the same as those before the merge. For a plan: such an apply follows.
    pub guarded: Option<FollowUp>,
    /// Files that it has changed, if they are known already.
    pub files: Option<Vec<String>>,
}

/// Returns true if an apply on a merged pull request finds plans of this tip.
pub(crate) async fn is_planned(
    ctx: &Context,
    at_tip: &PullRequest,
    apply: &Command,
    after: &AfterMerge,
) -> Result<bool> {
    let (pull, tip) = (at_tip.id.clone(), at_tip.head.commit.clone());
    let plans = ctx.store.read(move |view| view.plans(&pull)).await?;
    let has_plan = |project: &ProjectId| plans.iter().any(|plan| plan.head == tip && plan.project == *project);
    let mut meant = after.owed.iter().filter(|project| means(apply, project));
    Ok(match after.guarded {
        Some(_) => meant.all(has_plan),
        None => meant.any(has_plan),
    })
}

/// Returns the plan of this tip that an apply becomes. Plans with the same changes as before the merge are applied next.
pub(crate) fn plan_first(at_tip: &PullRequest, apply: Command, after: AfterMerge) -> (Command, AfterMerge) {
    let (pull, command) = (at_tip.id.clone(), apply.clone());
    let guarded = after.guarded.unwrap_or(FollowUp { pull, command, projects: Vec::new(), round: 0 });
    let Command { target, verbose, trigger, user, .. } = apply;
    let plan = Command { target, verbose, ..Command::new(CommandName::Plan, trigger, user) };
    (plan, AfterMerge { guarded: Some(guarded), ..after })
}

/// Returns true if the target of a command may include this project.
pub(super) fn means(command: &Command, project: &ProjectId) -> bool {
    let target = &command.target;
    let is_name = |name: &String| is_glob(name) || project.name.as_ref() == Some(name);
    (target.projects.is_empty() || target.projects.iter().any(is_name))
        && (target.dirs.is_empty() || target.dirs.iter().any(|dir| is_glob(dir) || *dir == project.dir))
        && target.workspace.as_ref().is_none_or(|workspace| *workspace == project.workspace)
}

/// Refuses other projects: after the merge only unapplied merged projects can be planned and applied.
pub(super) fn only_owed(schedule: Schedule, owed: Option<&[ProjectId]>) -> Result<Schedule, NoSchedule> {
    let Some(owed) = owed else { return Ok(schedule) };
    let other = schedule.groups.iter().flatten().find(|config| !owed.contains(&config.id));
    match other {
        None => Ok(schedule),
        Some(other) => Err(NoSchedule::Target(format!(
            "the pull request is merged, and `{}` is not one of its unapplied projects: {}",
            other.id.label(),
            owed.iter().map(|project| format!("`{}`", project.label())).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Returns the refusal of the next project if the host reports that the pull request is not merged any more.
pub(super) fn refusal(now: &PullRequest) -> Option<Failure> {
    let is_merged = matches!(now.state, PullState::Merged { .. });
    (!is_merged).then(|| Failure::Refused {
        reason: Reason::NotPermitted,
        because: "the pull request is no longer merged, so this project was not started".to_owned(),
    })
}

/// Returns the event for a project that is as this plan's commit says: applied, or planned without changes. `None` if it has no unapplied
/// merged changes.
pub(super) async fn satisfied(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    plan: &PlanRecord,
) -> Option<LockEvent> {
    let (pull, project) = (plan.pull.clone(), plan.project.clone());
    let (repo, asked) = (pull.repo.clone(), project.clone());
    let owners = match ctx.store.read(move |view| view.owners_of_state(&repo, &asked)).await {
        Ok(owners) => owners,
        Err(error) => {
            tracing::error!(%pull, error = format!("{error:#}"), "what was merged and not applied could not be read");
            return None;
        }
    };
    // Several projects with one directory and workspace are unapplied each by itself.
    let alone = !config.shares_state;
    let is_meant = |owner: &&ProjectOwner| alone || owner.project == project;
    let owing = owners.iter().filter(|owner| owner.state == OwnerState::MergedUnapplied).filter(is_meant);
    let mut merges = Vec::new();
    let mut owes = false;
    for owner in owing {
        owes |= owner.holder.pull == pull && work.after_merge.is_some();
        let Some(merge) = &owner.merged else { continue };
        // With the strategy `merge` the tree contains the base branch.
        let with_base = ctx.checkouts.strategy == Strategy::Merge;
        for commit in [Some(&plan.head), Some(&plan.base).filter(|_| with_base)].into_iter().flatten() {
            match ctx.checkouts.contains(&pull.repo, commit, merge).await {
                Ok(true) => merges.push(merge.clone()),
                Ok(false) => {}
                Err(error) => tracing::warn!(%pull, "whether {merge} is contained could not be found: {error}"),
            }
        }
    }
    (owes || !merges.is_empty()).then_some(LockEvent::Satisfied { pull, project, merges, alone })
}
