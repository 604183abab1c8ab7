//! Working trees: one bare mirror per repository, fetched by exact commit; a cheap tree per pull request and workspace from it.

use crate::domain::{PullId, PullRequest, RepoId};
use crate::process::Redactor;
use secrecy::SecretString;
use std::path::PathBuf;

/// `--checkout-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The head commit as it is.
    Branch,
    /// The head merged into the base branch's tip.
    Merge,
}

/// User and token for git.
#[derive(Clone)]
pub struct Credentials {
    /// User name.
    pub username: String,
    /// Token.
    pub password: SecretString,
}

/// Mirrors and working trees under the data directory.
#[derive(Clone)]
pub struct Checkouts {
    /// Data directory.
    pub data_dir: PathBuf,
    /// How trees are made.
    pub strategy: Strategy,
    /// Only the directories of the projects, their modules and parents' files; off by default.
    pub sparse: bool,
    /// Masks secrets in git's messages.
    pub redactor: Redactor,
}

/// What a fetch found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The head commit, now in the mirror.
    pub head: String,
    /// Tip of the base branch now.
    pub base_tip: String,
}

/// A working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingTree {
    /// Its root.
    pub root: PathBuf,
    /// Head commit in it.
    pub head: String,
    /// Tip of the base branch that it was merged with, or that was known when it was made.
    pub base: String,
}

/// Why there is no tree; for people, secrets masked.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The merge strategy met a conflict; git's own words.
    #[error("the head branch does not merge into the base branch:\n{0}")]
    Conflict(String),
    /// The commit is not there (any more).
    #[error("commit {0} is not in the repository")]
    MissingCommit(String),
    /// git failed.
    #[error("{0}")]
    Git(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Checkouts {
    /// Brings head commit and base branch of the pull request into the repository's mirror. One fetch, none if both are there
    /// and `refresh_base` is false.
    pub async fn fetch(
        &self,
        _pull: &PullRequest,
        _credentials: Option<&Credentials>,
        _refresh_base: bool,
    ) -> Result<Fetched, CheckoutError> {
        todo!()
    }

    /// Files that the pull request changes, both names of renamed ones: merge base of `base_tip` and head, against head.
    pub async fn modified_files(&self, _pull: &PullRequest, _fetched: &Fetched) -> Result<Vec<String>, CheckoutError> {
        todo!()
    }

    /// Files that changed on the base branch since the pull request left it (for `undiverged`): merge base against base tip.
    pub async fn diverged_files(&self, _pull: &PullRequest, _fetched: &Fetched) -> Result<Vec<String>, CheckoutError> {
        todo!()
    }

    /// The tree of this pull request and workspace at `fetched`, made or moved there. `.terraform` folders and untracked files
    /// survive a move; `*.tfplan` do not. It shares no writable file with another tree. Call it for one tree at a time.
    pub async fn tree(
        &self,
        _pull: &PullRequest,
        _workspace: &str,
        _fetched: &Fetched,
        _credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        todo!()
    }

    /// Where the tree of this workspace is or would be: `<data-dir>/repos/<owner>/<repo>/<number>/<workspace>`.
    pub fn tree_path(&self, _pull: &PullId, _workspace: &str) -> PathBuf {
        todo!()
    }

    /// Files in a tree that git does not track (`git ls-files --others --exclude-standard`).
    pub async fn untracked_files(&self, _tree: &WorkingTree) -> Result<Vec<String>, CheckoutError> {
        todo!()
    }

    /// Removes all trees of a pull request; absent is fine.
    pub async fn remove_pull(&self, _pull: &PullId) -> anyhow::Result<()> {
        todo!()
    }

    /// Where the mirror of a repository lies: `<data-dir>/mirrors/<host>/<owner>/<name>.git`.
    pub fn mirror_path(&self, _repo: &RepoId) -> PathBuf {
        todo!()
    }
}

/// Resolves `dir` below `root`; refused if it leads out of it, by `..`, an absolute path or a symlink.
pub fn inside(_root: &std::path::Path, _dir: &str) -> anyhow::Result<PathBuf> {
    todo!()
}
