//! Facts of the tree in which a pull request was planned last, for commands that check out nothing.

use super::context::Context;
use super::prepare::read_config;
use crate::checkout::disk::DiskTree;
use crate::config::DEFAULT_WORKSPACE;
use crate::domain::{ProjectId, PullId, PullRequest};
use crate::inputs::Tree;
use anyhow::Context as _;
use std::collections::HashMap;

fn tree(ctx: &Context, pull: &PullId) -> DiskTree {
    DiskTree { root: ctx.checkouts.tree_path(pull, DEFAULT_WORKSPACE) }
}

/// Returns the real paths of directories that people may name through a symlink. Without a tree, and if a path leads out of it, a directory
/// stays as it was named.
pub(crate) async fn real_dirs(ctx: &Context, pull: &PullId, dirs: &[String]) -> anyhow::Result<Vec<String>> {
    let (tree, dirs) = (tree(ctx, pull), dirs.to_vec());
    let resolved = move || dirs.into_iter().map(|dir| tree.resolve(&dir).map_or(dir, |real| real.path)).collect();
    tokio::task::spawn_blocking(resolved).await.context("looking for links among directories")
}

/// Returns the tags of the projects that the repo config lists. Absent without a tree, and without a valid repo config in it.
pub(crate) async fn tags(ctx: &Context, pull: &PullRequest) -> anyhow::Result<Option<HashMap<ProjectId, Vec<String>>>> {
    let (tree, branch) = (tree(ctx, &pull.id), pull.base.branch.clone());
    let rules = ctx.global.rules(&pull.id.repo, &branch);
    let read = move || {
        let config = read_config(&rules, &branch, &tree).ok().flatten()?;
        Some(config.projects.into_iter().map(|project| (project.id, project.tags)).collect())
    };
    tokio::task::spawn_blocking(read).await.context("reading the tags of projects")
}
