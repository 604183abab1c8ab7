//! The trees of jobs.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::prepare::{Prepared, Stop, credentials};
use crate::checkout::{Fetched, WorkingTree};
use crate::config::{DEFAULT_WORKSPACE, ProjectConfig};
use crate::domain::CommitSha;
use crate::domain::state::PlanRecord;
use crate::runner::spec::TreeSpec;

/// Returns the tree of a project's workspace. Only a plan moves it to another commit, so all projects of a command find the same one.
/// A deleted project has a tree of the base branch alone.
pub(in super::super) async fn tree(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
) -> Result<(TreeSpec, WorkingTree), Stop> {
    let of_base = config.deleted;
    let spec = TreeSpec { movable: !of_base, ..tree_spec(work, prepared, config, &prepared.fetched) };
    let credentials = credentials(ctx, work).await;
    let tree = match spec.workspace == "default" && !of_base {
        true => ctx.runner.with_history(&spec, prepared.tree.clone(), credentials.as_ref()).await?,
        false => ctx.runner.tree(&spec, credentials.as_ref()).await?,
    };
    Ok((spec, tree))
}

/// Returns the tree in which a plan is applied: that of its workspace, or one beside it if that is on another commit. No tree is moved, as
/// another job of the command may use it.
pub(in super::super) async fn tree_of_plan(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
    plan: &PlanRecord,
) -> Result<(TreeSpec, WorkingTree), Stop> {
    let commits = Fetched { head: plan.head.clone(), base_tip: plan.base.clone() };
    let spec = tree_spec(work, prepared, config, &commits);
    let tree = ctx.runner.tree(&spec, credentials(ctx, work).await.as_ref()).await?;
    Ok((spec, tree))
}

fn tree_spec(work: &CommandRun, prepared: &Prepared, config: &ProjectConfig, commits: &Fetched) -> TreeSpec {
    let of_base = config.deleted;
    TreeSpec {
        pull: work.pull.clone(),
        workspace: config.id.workspace.clone(),
        head: if of_base { commits.base_tip.clone() } else { commits.head.clone() },
        base: commits.base_tip.clone(),
        dirs: prepared.dirs.clone().filter(|_| !of_base),
        movable: false,
        of_base,
        history: config.workflow.has_commands(),
    }
}

/// Returns the default workspace's tree of a commit of the base branch alone.
pub(in super::super) async fn base_tree(
    ctx: &Context,
    work: &CommandRun,
    commit: &CommitSha,
) -> Result<WorkingTree, Stop> {
    let spec = TreeSpec {
        pull: work.pull.clone(),
        workspace: DEFAULT_WORKSPACE.to_owned(),
        head: commit.clone(),
        base: commit.clone(),
        dirs: None,
        movable: false,
        of_base: true,
        history: false,
    };
    Ok(ctx.runner.tree(&spec, credentials(ctx, work).await.as_ref()).await?)
}
