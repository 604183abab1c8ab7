//! Directories that people name through a link, where no command checks the pull request out.

use super::context::Context;
use crate::checkout::disk::DiskTree;
use crate::config::DEFAULT_WORKSPACE;
use crate::domain::PullId;
use crate::inputs::Tree;
use anyhow::Context as _;

/// The real paths of these directories in the tree that the pull request was planned in last. Without a tree, and where a path leads out
/// of it, a directory stays as it was named.
pub(crate) async fn real_dirs(ctx: &Context, pull: &PullId, dirs: &[String]) -> anyhow::Result<Vec<String>> {
    let (tree, dirs) = (DiskTree { root: ctx.checkouts.tree_path(pull, DEFAULT_WORKSPACE) }, dirs.to_vec());
    let resolved = move || dirs.into_iter().map(|dir| tree.resolve(&dir).map_or(dir, |real| real.path)).collect();
    tokio::task::spawn_blocking(resolved).await.context("looking for links among directories")
}
