//! Projects whose directory a pull request deletes: their configuration in the tree of the base branch.

use super::command_run::CommandRun;
use super::context::Context;
use super::job;
use super::prepare::{self, Prepared, ScheduleScope, Stop};
use crate::checkout::disk::DiskTree;
use crate::config::repo::RepoConfig;
use crate::config::{ConfigError, DeletedProjects, ProjectConfig};
use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::{Failure, Reason};
use crate::domain::ownership::OwnerState;
use crate::domain::{CommitSha, ProjectId};
use crate::inputs::has_terraform;
use crate::schedule::{self, Deletions, Facts, NoSchedule};
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Trees of the base branch in which deleted projects are looked for.
pub(super) enum BaseTrees {
    /// The tree before the pull request, the files that the pull request changes in git, and the directories that have lost all their
    /// Terraform files by that.
    Changed { root: PathBuf, modified: Vec<String>, emptied: BTreeSet<String> },
    /// The trees of plans, with their projects.
    Planned(Vec<(PathBuf, Vec<ProjectId>)>),
}

impl BaseTrees {
    /// Makes the trees that a schedule needs; `None` if no project is deleted.
    pub(super) async fn prepare(
        ctx: &Context,
        work: &CommandRun,
        prepared: &Prepared,
        wanted: ScheduleScope<'_>,
    ) -> Result<Option<BaseTrees>, Stop> {
        if work.rules.deleted_projects == DeletedProjects::Ignore {
            return Ok(None);
        }
        let base = match wanted {
            ScheduleScope::Plan if work.after_merge.is_none() && knows_deleted(work.command.name) => {
                &prepared.fetched.base_tip
            }
            ScheduleScope::Merged { from, .. } => from,
            ScheduleScope::Planned(ids) | ScheduleScope::Known(ids) => return planned(ctx, work, ids).await,
            ScheduleScope::Plan | ScheduleScope::Branch(_) => return Ok(None),
        };
        let (rules, root, modified) = (work.rules.clone(), prepared.tree.root.clone(), prepared.modified.clone());
        let looking = move || schedule::emptied(&rules, &modified, &DiskTree { root });
        let emptied = tokio::task::spawn_blocking(looking).await.context("looking for deleted directories")?;
        if emptied.is_empty() {
            return Ok(None);
        }
        // No job of the pull request runs now, and other plans get their tree again.
        ctx.checkouts.remove_trees_of_plans(&work.pull.id).await;
        let root = job::base_tree(ctx, work, base).await?.root;
        Ok(Some(BaseTrees::Changed { root, modified: prepared.modified.clone(), emptied }))
    }

    /// Finds the deleted projects. `branch`: the base branch. Blocks.
    pub(super) fn deletions(&self, command: &Command, branch: &str, head: &Facts<'_>) -> Result<Deletions, NoSchedule> {
        match self {
            BaseTrees::Changed { root, modified, emptied } => {
                let (head, tree) = (&Facts { modified, ..*head }, DiskTree { root: root.clone() });
                match prepare::read_config(head.rules, branch, &tree) {
                    Ok(config) => schedule::deletions(command, emptied, head, &of_base(&tree, config.as_ref(), head)),
                    Err(_) => Ok(schedule::kept_by_broken_config(emptied, &tree, head)),
                }
            }
            BaseTrees::Planned(trees) => {
                let mut projects = Vec::new();
                for (root, ids) in trees {
                    let tree = DiskTree { root: root.clone() };
                    let config = prepare::read_config(head.rules, branch, &tree).map_err(ConfigError::from)?;
                    projects.extend(schedule::planned_deletions(ids, head, &of_base(&tree, config.as_ref(), head)));
                }
                Ok(Deletions { projects, kept: Vec::new() })
            }
        }
    }
}

/// Returns true if a command accepts projects that the pull request deletes.
fn knows_deleted(name: CommandName) -> bool {
    matches!(name, CommandName::Plan | CommandName::Lock | CommandName::ForceUnlock)
}

/// Returns the trees of the plans of deleted projects among these.
async fn planned(ctx: &Context, work: &CommandRun, ids: &[ProjectId]) -> Result<Option<BaseTrees>, Stop> {
    let pull = work.pull.id.clone();
    let mut plans = ctx.store.read(move |view| view.plans(&pull)).await?;
    plans.retain(|plan| plan.deleted && ids.contains(&plan.project));
    let mut by_base: BTreeMap<String, (CommitSha, Vec<ProjectId>)> = BTreeMap::new();
    for plan in plans {
        let of_base = by_base.entry(plan.base.to_string()).or_insert_with(|| (plan.base.clone(), Vec::new()));
        of_base.1.push(plan.project);
    }
    let mut trees = Vec::new();
    for (base, projects) in by_base.into_values() {
        trees.push((job::base_tree(ctx, work, &base).await?.root, projects));
    }
    Ok((!trees.is_empty()).then_some(BaseTrees::Planned(trees)))
}

/// Returns the facts of a tree of the base branch.
fn of_base<'a>(tree: &'a DiskTree, config: Option<&'a RepoConfig>, head: &Facts<'a>) -> Facts<'a> {
    Facts { repo_config: config, tree, config_change: None, applied: &[], deletions: None, ..*head }
}

/// Returns the root of the tree that has the code of a project: for a deleted one, that of this commit of the base branch.
pub(super) async fn root_of(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
    base: &CommitSha,
) -> Result<PathBuf, Stop> {
    match config.deleted {
        true => Ok(job::base_tree(ctx, work, base).await?.root),
        false => Ok(prepared.tree.root.clone()),
    }
}

/// Returns the refusal of a plan that has no code any more, as its directory was merged as deleted.
pub(super) async fn refusal(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
) -> Result<Option<Failure>, Stop> {
    let executable = &ctx.rendering.executable;
    if work.after_merge.is_none() || work.rules.deleted_projects == DeletedProjects::Ignore {
        return Ok(None);
    }
    let (tree, dir) = (DiskTree { root: prepared.tree.root.clone() }, config.id.dir.clone());
    let looking = tokio::task::spawn_blocking(move || has_terraform(&tree, &dir));
    if looking.await.context("looking for a merged directory")? {
        return Ok(None);
    }
    let because = format!(
        "its directory was merged as deleted before its destroy was applied. The base branch has no code for it any more, and its \
         resources remain. To destroy them, restore the directory in a pull request, and apply its deletion before the merge. To leave \
         them alone, comment here: `{}`",
        OwnerState::AppliedUnmerged.way_out(executable)
    );
    Ok(Some(Failure::Refused { reason: Reason::Config, because }))
}
