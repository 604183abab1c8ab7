//! The tree of a closed pull request, kept for the repository's next one: git writes only what differs between the two commits.
//!
//! Nothing that steps left stays in it. What git does not track goes, `.git` and `.terraform` too, and every tracked file that was
//! touched is written again: git compares the time of its last change of state, which steps cannot set
//! ([`pristine::distrust`]).

use super::beside::Which;
use super::folder::{Folder, remove_path};
use super::git::Git;
use super::tree::{self, blocking, remove_file};
use super::{Checkouts, LONGEST_NAME, named, pristine};
use crate::domain::{PullId, RepoId};
use crate::process::RunAs;
use anyhow::{Context, ensure};
use rustix::fs::FileType;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A tree of fewer files is written as quickly as it is cleaned.
const WORTH_KEEPING: usize = if cfg!(test) { 20 } else { 1_000 };
/// The workspace whose tree is kept: every pull request has one.
const WORKSPACE: &str = "default";

/// Where a tree lies, and the server's git directory of it.
#[derive(Clone)]
pub(super) struct TreePaths {
    pub(super) root: PathBuf,
    pub(super) admin: PathBuf,
}

impl Checkouts {
    /// The spare tree of a repository, which need not be there. Repositories of one name on two hosts have one each.
    fn spare_paths(&self, repo: &RepoId) -> TreePaths {
        let place = PullId { repo: repo.clone(), number: 0 };
        let folder = format!("spare-{}", named(&repo.host, LONGEST_NAME));
        let root = self.pull_path(&place).with_file_name(folder).join(WORKSPACE);
        TreePaths { root, admin: self.mirror_path(repo).join("worktrees").join("spare") }
    }

    /// Keeps the tree of a pull request as the repository's spare one, if it has none; returns whether it did. The caller has the
    /// mirror's lock, and removes what is left of the pull request.
    pub(super) async fn keep_as_spare(&self, pull: &PullId) -> anyhow::Result<bool> {
        let name = Which::own(WORKSPACE).name;
        let admin = self.mirror_path(&pull.repo).join("worktrees").join(format!("{}-{name}", pull.number));
        let (from, to) = (TreePaths { root: self.pull_path(pull).join(name), admin }, self.spare_paths(&pull.repo));
        let is_worth_it = pristine::indexed(&from.admin.join("index")).is_some_and(|files| files >= WORTH_KEEPING);
        let has_one = to.admin.exists() && is_usable(&to, self.owner);
        if !is_worth_it || has_one || !is_usable(&from, self.owner) {
            return Ok(false);
        }
        let tracked = Git::new(self, &from.admin, &["ls-files", "-z", "--cached"]).look();
        let tracked = tracked.env("GIT_WORK_TREE", from.root.to_string_lossy()).output().await?;
        blocking(move || {
            clean(&from.root, &tracked)?;
            if !pristine::distrust(&from.root, &from.admin)? {
                return Ok(false);
            }
            remove_path(&to.admin)?;
            remove_path(&to.root)?;
            exchange(&from, &to).map(|()| true)
        })
        .await
        .context("keeping a checkout for the next pull request")
    }

    /// Makes the repository's spare tree this one, which is not there yet; returns whether there was a spare one.
    pub(super) async fn take_spare(&self, repo: &RepoId, to: TreePaths) -> anyhow::Result<bool> {
        let (from, owner) = (self.spare_paths(repo), self.owner);
        if !from.admin.exists() || fs::symlink_metadata(&to.root).is_ok() {
            return Ok(false);
        }
        let _one_at_a_time = self.locks.lock(&self.mirror_path(repo)).await;
        blocking(move || {
            if !is_usable(&from, owner) {
                return Ok(false);
            }
            remove_path(&to.admin)?;
            let taken = exchange(&from, &to);
            if taken.is_err() {
                remove_path(&to.admin)?;
            }
            taken.map(|()| true)
        })
        .await
        .context("taking a checkout that was kept")
    }
}

/// Whether the tree was finished since the machine started, is whole, and belongs to the user that steps run as.
fn is_usable(tree: &TreePaths, owner: Option<RunAs>) -> bool {
    tree::is_whole(&tree.admin) && Folder::open(&tree.root).is_ok_and(|top| top.belongs_to(owner))
}

/// Moves a tree and its git directory. The git directory goes first: only one caller gets it.
fn exchange(from: &TreePaths, to: &TreePaths) -> anyhow::Result<()> {
    if let Some(above) = to.root.parent() {
        fs::create_dir_all(above)?;
    }
    fs::rename(&from.admin, &to.admin)?;
    fs::rename(&from.root, &to.root)?;
    fs::write(to.admin.join("gitdir"), format!("{}\n", to.root.join(".git").display()))?;
    // What steps left is not there any more.
    remove_file(&to.admin.join(super::idle::UNKEPT))?;
    pristine::forget(&to.admin)
}

/// Removes everything that git does not track. `tracked`: paths, each followed by a zero.
fn clean(root: &Path, tracked: &str) -> anyhow::Result<()> {
    let files: HashSet<&str> = tracked.split('\0').filter(|path| !path.is_empty()).collect();
    let dirs: HashSet<&str> =
        files.iter().flat_map(|file| file.match_indices('/').map(|(at, _)| &file[..at])).collect();
    let top = Folder::open(root)?;
    let mut foreign = Vec::new();
    let everywhere = top.walk(&mut |entry| {
        let path = entry.path.to_str();
        if entry.kind == FileType::Directory {
            let stays = path.is_some_and(|path| dirs.contains(path));
            if !stays {
                foreign.push(entry.path.to_owned());
            }
            return Ok(stays);
        }
        if !path.is_some_and(|path| files.contains(path)) {
            entry.remove_file()?;
        }
        Ok(false)
    })?;
    ensure!(everywhere, "not all of the checkout can be looked at");
    foreign.iter().try_for_each(|path| top.remove(path)).context("cannot remove what steps left")
}
