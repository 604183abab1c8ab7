//! Which tree of a pull request: that of a workspace, or one beside it for a plan that was made on another base commit.
//!
//! Plans of one pull request may be of several bases, and jobs run at the same time. So an apply never moves a tree: what does not
//! fit into its workspace's own tree gets one of its own, which goes when the command has ended.

use super::folder::remove_path;
use super::tree::{TreeLocation, blocking};
use super::{CheckoutError, Checkouts, Credentials, Fetched, LONGEST_NAME, WorkingTree, named};
use crate::domain::{PullId, PullRequest};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Between workspace and base in the name of a tree; no name of a workspace has it ([`named`] writes it as `%40`).
const BESIDE: char = '@';
/// Digits of the base commit in the name of a tree.
const DIGITS: usize = 16;

/// One tree of a pull request.
pub(super) struct Which {
    /// Its folder's name.
    pub(super) name: String,
}

impl Which {
    /// That of a workspace.
    pub(super) fn own(workspace: &str) -> Which {
        Which { name: named(workspace, LONGEST_NAME) }
    }

    /// The one beside it for this base commit.
    fn beside(workspace: &str, base: &str) -> Which {
        let base: String = base.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
        Which { name: format!("{}{BESIDE}{base}", named(workspace, LONGEST_NAME)) }
    }
}

impl Checkouts {
    /// The tree for the apply of a plan that was made on `fetched`: its workspace's own one, unless that would have to be moved.
    /// Call it for one tree of a workspace at a time; `dirs` are as in [`Checkouts::tree`].
    pub async fn tree_of_plan(
        &self,
        pull: &PullRequest,
        workspace: &str,
        fetched: &Fetched,
        dirs: Option<&[String]>,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        let dirs = dirs.filter(|_| self.sparse);
        let own = TreeLocation::of(self, pull, &Which::own(workspace))?;
        if !own.would_move(fetched, dirs) {
            return own.at(pull, fetched, dirs, credentials).await;
        }
        let beside = TreeLocation::of(self, pull, &Which::beside(workspace, &fetched.base_tip))?;
        beside.at(pull, fetched, dirs, credentials).await
    }

    /// The base commit that the tree of the default workspace is on, if it is there and of the pull request's head.
    pub fn base_of_tree(&self, pull: &PullRequest) -> Option<String> {
        let present = TreeLocation::of(self, pull, &Which::own("default")).ok()?.present()?;
        (present.head == pull.head.commit).then_some(present.base_tip)
    }

    /// Where trees of this workspace are or would be, its own one first.
    pub fn tree_paths(&self, pull: &PullId, workspace: &str) -> Vec<PathBuf> {
        let start = format!("{}{BESIDE}", named(workspace, LONGEST_NAME));
        let folder = self.pull_path(pull);
        let beside = names_in(&folder).into_iter().filter(|name| name.starts_with(&start));
        std::iter::once(self.tree_path(pull, workspace)).chain(beside.map(|name| folder.join(name))).collect()
    }

    /// Removes the trees beside those of workspaces, when no job is at work in them. What cannot be removed is logged, and goes with
    /// the pull request.
    pub async fn remove_trees_of_plans(&self, pull: &PullId) {
        let (folder, admin) = (self.pull_path(pull), self.mirror_path(&pull.repo).join("worktrees"));
        let number = pull.number;
        let removed = blocking(move || {
            for name in names_in(&folder).into_iter().filter(|name| name.contains(BESIDE)) {
                // Our own record first: without it a tree that is left over is not trusted.
                remove_path(&admin.join(format!("{number}-{name}")))?;
                remove_path(&folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
            }
            Ok(())
        });
        if let Err(error) = removed.await {
            tracing::warn!(%pull, error = format!("{error:#}"), "checkouts of plans on other bases could not be removed");
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
