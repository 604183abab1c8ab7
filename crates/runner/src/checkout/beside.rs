//! Choice of a pull request's tree: a workspace's own, or a separate one for a plan that was made on another base commit.
//!
//! Plans of one pull request may have different bases, and jobs run at the same time. So an apply never moves a tree. A plan that does not
//! fit the workspace's tree gets a separate one, which is removed when the command has ended.

use super::folder::remove_path;
use super::tree::{TreeLocation, blocking};
use super::{CheckoutError, Checkouts, Credentials, Fetched, LONGEST_NAME, WorkingTree, named};
use anyhow::Context;
use std::path::{Path, PathBuf};
use tidelock_core::domain::{CommitSha, PullId, PullRequest};

/// Separator of workspace and base commit in the name of a tree. No workspace contains it ([`named`] encodes it as `%40`).
const BESIDE: char = '@';
/// Hex digits of the base commit in the name of a tree.
const DIGITS: usize = 16;

/// One tree of a pull request.
pub(super) struct Which {
    /// Name of its folder.
    pub(super) name: String,
}

impl Which {
    /// Returns the workspace's own tree.
    pub(super) fn own(workspace: &str) -> Which {
        Which { name: named(workspace, LONGEST_NAME) }
    }

    /// Returns the separate tree for this base commit.
    fn beside(workspace: &str, base: &CommitSha) -> Which {
        let base: String = base.as_str().chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
        Which { name: format!("{}{BESIDE}{base}", named(workspace, LONGEST_NAME)) }
    }

    /// Returns the separate tree of this base commit alone.
    fn of_base(workspace: &str, base: &CommitSha) -> Which {
        Which { name: format!("{}{BESIDE}base", Which::beside(workspace, base).name) }
    }
}

impl Checkouts {
    /// Returns the tree for applying a plan that was made on `fetched`: the workspace's own, or a separate one if that would have to move.
    /// Do not call it for two trees of a workspace at once. `dirs` are as in [`Checkouts::tree`].
    pub async fn tree_of_plan(
        &self,
        pull: &PullRequest,
        workspace: &str,
        fetched: &Fetched,
        dirs: Option<&[String]>,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        let dirs = dirs.filter(|_| self.sparse);
        let own = TreeLocation::for_pull(self, pull, &Which::own(workspace))?;
        if !own.would_move(fetched, dirs) {
            return own.at(pull, fetched, dirs, credentials).await;
        }
        let beside = TreeLocation::for_pull(self, pull, &Which::beside(workspace, &fetched.base_tip))?;
        beside.at(pull, fetched, dirs, credentials).await
    }

    /// Returns the whole tree of a commit of the base branch, without the head: beside all trees with the head, so that nothing that a job
    /// of the head has left is in it. Do not call it for two trees of a workspace at once.
    pub async fn tree_of_base(
        &self,
        pull: &PullRequest,
        workspace: &str,
        commit: &CommitSha,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        let fetched = Fetched { head: commit.clone(), base_tip: commit.clone() };
        TreeLocation::for_pull(self, pull, &Which::of_base(workspace, commit))?
            .at(pull, &fetched, None, credentials)
            .await
    }

    /// Returns the base commit of the default workspace's tree, if the tree exists and has the pull request's head.
    pub fn base_of_tree(&self, pull: &PullRequest) -> Option<CommitSha> {
        let present = TreeLocation::for_pull(self, pull, &Which::own("default")).ok()?.present()?;
        (present.head == pull.head.commit).then_some(present.base_tip)
    }

    /// Returns the paths of the trees of this workspace, the workspace's own first, which may not exist.
    pub fn tree_paths(&self, pull: &PullId, workspace: &str) -> Vec<PathBuf> {
        let start = format!("{}{BESIDE}", named(workspace, LONGEST_NAME));
        let folder = self.pull_path(pull);
        let beside = names_in(&folder).into_iter().filter(|name| name.starts_with(&start));
        std::iter::once(self.tree_path(pull, workspace)).chain(beside.map(|name| folder.join(name))).collect()
    }

    /// Removes separate trees, in which no job may run. A tree that cannot be removed is logged, and removed with the pull request.
    pub async fn remove_trees_of_plans(&self, pull: &PullId) {
        let (folder, admin) = (self.pull_path(pull), self.mirror_path(&pull.repo).join("worktrees"));
        let number = pull.number;
        let removed = blocking(move || {
            for name in names_in(&folder).into_iter().filter(|name| name.contains(BESIDE)) {
                // The server's record is removed first: without it a remaining tree is not trusted.
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

pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
