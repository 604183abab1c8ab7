//! Directories that people name through a symlink, where no command checks out the pull request.

use super::context::Context;
use crate::checkout::disk::DiskTree;
use crate::config::DEFAULT_WORKSPACE;
use crate::domain::PullId;
use crate::inputs::Tree;
use anyhow::Context as _;

/// Returns the real paths of these directories in the tree in which the pull request was planned last. Without a tree, and if a path leads
/// out of it, a directory stays as it was named.
pub(crate) async fn real_dirs(ctx: &Context, pull: &PullId, dirs: &[String]) -> anyhow::Result<Vec<String>> {
    let (tree, dirs) = (DiskTree { root: ctx.checkouts.tree_path(pull, DEFAULT_WORKSPACE) }, dirs.to_vec());
    let resolved = move || dirs.into_iter().map(|dir| tree.resolve(&dir).map_or(dir, |real| real.path)).collect();
    tokio::task::spawn_blocking(resolved).await.context("looking for links among directories")
}
