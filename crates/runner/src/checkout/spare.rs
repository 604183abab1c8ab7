//! The tree of a closed pull request, kept for the repository's next one: git writes only the files that differ between the two commits.
//!
//! Nothing that steps left stays in it. Files that git does not track are removed, with `.git` and `.terraform`. Every tracked file that
//! was touched is written again: git compares the time of its last status change, which steps cannot set ([`pristine::distrust`]). Then the
//! tree is recorded. A spare tree that differs from its record when it would be taken is removed. One that does not is moved without
//! reading the files that stay. A tree in which steps have changed the permissions of a directory is not kept.

use super::beside::Which;
use super::folder::{Folder, remove_path};
use super::git::Git;
use super::tree::{blocking, remove_file};
use super::{Checkouts, LONGEST_NAME, marker, named, pristine};
use crate::process::RunAs;
use anyhow::{Context, ensure};
use rustix::fs::{FileType, Mode};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tidelock_core::domain::{PullId, RepoId};
use tokio::sync::OwnedRwLockReadGuard;

/// Fewest files of a tree that is kept. A smaller tree is written as quickly as it is cleaned.
pub(super) const WORTH_KEEPING: usize = if cfg!(test) { 20 } else { 1_000 };
/// The workspace whose tree is kept: every pull request has one.
const WORKSPACE: &str = "default";
/// Name of the server's git directory of a spare tree, and prefix of that name while the tree is made.
const ADMIN: &str = "spare";
/// Mode of the folder of a spare tree: steps of another user cannot enter it.
const CLOSED: u32 = 0o700;

/// State of the files of a spare tree that was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpareFiles {
    /// All are as git wrote them.
    AsWritten,
    /// Not known: git finds out, by its index, which files it has to write.
    Unknown,
}

/// Paths of a tree and of the server's git directory of it.
#[derive(Clone)]
pub(super) struct TreePaths {
    pub(super) root: PathBuf,
    pub(super) admin: PathBuf,
}

impl Checkouts {
    /// Returns the paths of a repository's spare tree, which may not exist. Repositories of one name on two hosts have one each.
    pub(super) fn spare_paths(&self, repo: &RepoId) -> TreePaths {
        let place = PullId { repo: repo.clone(), number: 0 };
        let folder = format!("spare-{}", named(&repo.host, LONGEST_NAME));
        let root = self.pull_path(&place).with_file_name(folder).join(WORKSPACE);
        TreePaths { root, admin: self.mirror_path(repo).join("worktrees").join(ADMIN) }
    }

    /// Returns a guard that prevents the removal of the spare tree to free space. Waits while it is being removed.
    pub(super) async fn hold_spare(&self, spare: &TreePaths) -> OwnedRwLockReadGuard<()> {
        self.uses.hold(folder_of(spare)).await
    }

    /// Returns true if there is a spare tree that can be taken.
    pub(super) fn has_spare(&self, spare: &TreePaths) -> bool {
        spare.admin.exists() && is_usable(spare, self.owner_of_spares())
    }

    /// Makes this tree, which has a record, the repository's spare one. The caller holds the spare tree.
    pub(super) async fn put_spare(&self, repo: &RepoId, from: TreePaths) -> anyhow::Result<()> {
        let to = self.spare_paths(repo);
        let _one_at_a_time = self.locks.lock(&self.mirror_path(repo)).await;
        blocking(move || replace(&from, &to)).await
    }

    /// Keeps the tree of a pull request as the repository's spare one, if it has none; returns true if it is kept. The caller holds the
    /// mirror's lock, and removes the rest of the pull request.
    pub(super) async fn keep_as_spare(&self, pull: &PullId) -> anyhow::Result<bool> {
        let name = Which::own(WORKSPACE).name;
        let admin = self.mirror_path(&pull.repo).join("worktrees").join(format!("{}-{name}", pull.number));
        let (from, to) = (TreePaths { root: self.pull_path(pull).join(name), admin }, self.spare_paths(&pull.repo));
        let is_worth_it = pristine::indexed(&from.admin.join("index")).is_some_and(|files| files >= WORTH_KEEPING);
        let is_ours = is_usable(&from, self.owner_of_spares());
        if !is_worth_it || self.has_spare(&to) || !is_ours {
            return Ok(false);
        }
        let _not_removed_meanwhile = self.hold_spare(&to).await;
        let tracked = self.tracked(&from).await?;
        let why = "keeping a checkout for the next pull request";
        let tree = from.clone();
        if !blocking(move || Ok(purge(&tree, &tracked)? && has_made_modes(&tree)?)).await.context(why)? {
            return Ok(false);
        }
        let git = Git::new(self, &from.admin, &["read-tree", "--reset", "-u", "HEAD"]);
        git.env("GIT_WORK_TREE", from.root.to_string_lossy()).output().await.context(why)?;
        let noted = from.clone();
        blocking(move || pristine::record(&noted.root, &noted.admin)).await.context(why)?;
        // A process that a step left may have written between git's check and the record.
        // Submodules have a configuration that a step may have written, and git would start another git in them.
        let git =
            Git::new(self, &from.admin, &["diff-files", "--quiet", "--ignore-submodules=all"]).with_short_timeout();
        if !git.env("GIT_WORK_TREE", from.root.to_string_lossy()).finish().await?.success() {
            return Ok(false);
        }
        blocking(move || replace(&from, &to).map(|()| true)).await.context(why)
    }

    /// Moves the repository's spare tree to these paths, where no tree is yet; `None` if there is no spare tree.
    pub(super) async fn take_spare(&self, repo: &RepoId, to: TreePaths) -> anyhow::Result<Option<SpareFiles>> {
        let from = self.spare_paths(repo);
        if !from.admin.exists() || fs::symlink_metadata(&to.root).is_ok() {
            return Ok(None);
        }
        let _one_at_a_time = self.locks.lock(&self.mirror_path(repo)).await;
        // A tree that is being removed to free space is not taken.
        let Some(_not_removed_meanwhile) = self.uses.try_hold(folder_of(&from)) else { return Ok(None) };
        if !self.has_spare(&from) {
            return Ok(None);
        }
        let noted = from.clone();
        let is_as_noted = blocking(move || match has_made_modes(&noted) {
            Ok(true) => pristine::is_as_noted(&noted.root, &noted.admin),
            _ => Ok(Some(false)),
        })
        .await?;
        let known = match is_as_noted {
            Some(true) => SpareFiles::AsWritten,
            Some(false) => {
                tracing::warn!(tree = %from.root.display(), "a spare checkout is not as it was left, and is removed");
                let gone = blocking(move || {
                    remove_path(&from.admin)?;
                    Ok(remove_path(&from.root)?)
                });
                return gone.await.context("removing a spare checkout").map(|()| None);
            }
            None => {
                // Too large for a record.
                let (tree, tracked) = (from.clone(), self.tracked(&from).await?);
                if !blocking(move || purge(&tree, &tracked)).await? {
                    return Ok(None);
                }
                SpareFiles::Unknown
            }
        };
        blocking(move || {
            remove_path(&to.admin)?;
            let taken = exchange(&from, &to);
            if taken.is_err() {
                remove_path(&to.admin)?;
            }
            taken
        })
        .await
        .context("taking a checkout that was kept")
        .map(|()| Some(known))
    }

    /// Returns the paths of git's index, each followed by a zero.
    async fn tracked(&self, tree: &TreePaths) -> anyhow::Result<String> {
        let git = Git::new(self, &tree.admin, &["ls-files", "-z", "--cached"]).with_short_timeout();
        Ok(git.env("GIT_WORK_TREE", tree.root.to_string_lossy()).output().await?)
    }
}

/// Returns true if the tree was finished since the machine started, is whole, and belongs to the user that steps run as.
fn is_usable(tree: &TreePaths, owner: Option<RunAs>) -> bool {
    marker::is_whole(&tree.admin) && Folder::open(&tree.root).is_ok_and(|top| top.belongs_to(owner))
}

/// Returns true if the server's git directory is that of a spare tree, finished or not.
pub(super) fn is_spare(admin: &Path) -> bool {
    admin.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ADMIN))
}

/// Returns the folder of a repository's spare tree.
fn folder_of(spare: &TreePaths) -> PathBuf {
    spare.root.parent().unwrap_or(&spare.root).to_owned()
}

/// Makes a tree the spare one, in place of any remains there.
fn replace(from: &TreePaths, to: &TreePaths) -> anyhow::Result<()> {
    remove_path(&to.admin)?;
    remove_path(&to.root)?;
    let folder = folder_of(to);
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(CLOSED))?;
    exchange(from, to)
}

/// Removes files that git does not track, and has git write touched files again. Returns false if these cannot be determined yet.
fn purge(tree: &TreePaths, tracked: &str) -> anyhow::Result<bool> {
    clean(&tree.root, tracked)?;
    let settled = pristine::distrust(&tree.root, &tree.admin)?;
    pristine::remove_record(&tree.admin)?;
    Ok(settled)
}

/// Returns true if each directory has the permissions that it was made with: git changes none. An unwritable directory makes the checkout
/// of the next pull request fail, and one that everybody can write to opens it to others.
fn has_made_modes(tree: &TreePaths) -> anyhow::Result<bool> {
    // The server made this directory together with the tree, and steps do not write there.
    let made = Folder::open(&tree.admin.join("info"))?.mode()?;
    let top = Folder::open(&tree.root)?;
    let mut same = top.mode()? == made;
    let everywhere = top.walk(&mut |entry| {
        let is_folder = entry.kind == FileType::Directory;
        if is_folder {
            same &= entry.stat()?.is_some_and(|stat| Mode::from_raw_mode(stat.st_mode) == made);
        }
        Ok(is_folder && same)
    })?;
    Ok(everywhere && same)
}

/// Moves a tree and its git directory. The git directory is moved first: only one caller gets it.
fn exchange(from: &TreePaths, to: &TreePaths) -> anyhow::Result<()> {
    if let Some(above) = to.root.parent() {
        fs::create_dir_all(above)?;
    }
    fs::rename(&from.admin, &to.admin)?;
    fs::rename(&from.root, &to.root)?;
    fs::write(to.admin.join("gitdir"), format!("{}\n", to.root.join(".git").display()))?;
    // The files that steps left have been removed.
    Ok(remove_file(&to.admin.join(super::idle::UNKEPT))?)
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
