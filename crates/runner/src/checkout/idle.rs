//! Use of trees and mirrors: which are in use, and which can be removed to free space. All of them can be made again.

use super::folder::remove_path;
use super::space::walk;
use super::tree::blocking;
use super::users::UserInUse;
use super::{Checkouts, WorkingTree};
use anyhow::Context;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tidelock_core::domain::PullId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// File in the server's git directory of a tree in which steps left files that are kept nowhere else.
pub(super) const UNKEPT: &str = "tidelock-unkept";
/// Most folders between `mirrors` and a mirror: host, owners, name.
const DEEPEST: usize = 24;

/// Users of folders, and the times of their last use.
#[derive(Clone, Default)]
pub(super) struct Uses(Arc<Mutex<HashMap<PathBuf, Use>>>);

#[derive(Default)]
struct Use {
    lock: Arc<RwLock<()>>,
    last: Option<SystemTime>,
}

impl Uses {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn hold(&self, path: PathBuf) -> OwnedRwLockReadGuard<()> {
        let lock = {
            let mut map = self.map();
            let used = map.entry(path).or_default();
            used.last = Some(SystemTime::now());
            Arc::clone(&used.lock)
        };
        lock.read_owned().await
    }

    /// Holds a folder without recording a use; `None` while it is being removed.
    pub(super) fn try_hold(&self, path: PathBuf) -> Option<OwnedRwLockReadGuard<()>> {
        Arc::clone(&self.map().entry(path).or_default().lock).try_read_owned().ok()
    }

    fn last(&self, path: &Path) -> Option<SystemTime> {
        self.map().get(path)?.last
    }

    /// Returns the right to remove a folder; `None` while it is in use.
    fn alone(&self, path: &Path) -> Option<OwnedRwLockWriteGuard<()>> {
        let lock = Arc::clone(&self.map().entry(path.to_owned()).or_default().lock);
        lock.try_write_owned().ok()
    }

    /// Forgets a removed folder, unless it is in use again.
    pub(super) fn remove(&self, path: &Path) {
        self.map().retain(|known, used| known != path || Arc::strong_count(&used.lock) > 1);
    }
}

/// Guard of a pull request at work: neither its trees nor its repository's mirror are removed to free space while it exists.
pub struct Using {
    _mirror: OwnedRwLockReadGuard<()>,
    _trees: OwnedRwLockReadGuard<()>,
    _user: Option<UserInUse>,
}

/// A folder that can be removed and made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// Time of the last use.
    pub last_used: SystemTime,
    /// Size in bytes.
    pub bytes: u64,
    /// True if steps left files in it that are kept nowhere else.
    pub has_unkept_files: bool,
    /// True if it is kept for a future pull request. Spare trees are removed first.
    is_spare: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// All trees of a pull request, with the server's git directories of them.
    Trees { folder: PathBuf, admin: Vec<PathBuf> },
    /// A mirror without trees.
    Mirror(PathBuf),
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            What::Trees { folder, .. } => write!(f, "the checkouts {}", folder.display()),
            What::Mirror(path) => write!(f, "the mirror {}", path.display()),
        }
    }
}

impl Checkouts {
    /// Records that a command works on this pull request. Waits while its trees are being removed. If each pull request has its own user,
    /// also waits for one.
    ///
    /// # Errors
    ///
    /// If its trees cannot be given to that user.
    pub async fn using(&self, pull: &PullId) -> anyhow::Result<Using> {
        let mirror = self.uses.hold(self.mirror_path(&pull.repo)).await;
        let trees = self.uses.hold(self.pull_path(pull)).await;
        Ok(Using { _mirror: mirror, _trees: trees, _user: self.take_user(pull).await? })
    }

    /// Returns trees in the order of removal: spare ones, then the longest unused. Trees with files that are kept nowhere else come last.
    pub async fn idle_trees(&self) -> anyhow::Result<Vec<Idle>> {
        let (mirrors, uses) = (self.data_dir.join("mirrors"), self.uses.clone());
        let mut found: Vec<Idle> =
            blocking(move || Ok(mirrors_below(&mirrors).iter().flat_map(|mirror| trees_of(mirror, &uses)).collect()))
                .await
                .context("looking for idle checkouts")?;
        in_order(&mut found);
        Ok(found)
    }

    /// Returns mirrors without trees, the longest unused first.
    pub async fn idle_mirrors(&self) -> anyhow::Result<Vec<Idle>> {
        let (mirrors, uses) = (self.data_dir.join("mirrors"), self.uses.clone());
        let idle = move |path: PathBuf| {
            is_empty(&path.join("worktrees")).then(|| Idle {
                last_used: uses.last(&path).unwrap_or_else(|| modified(&path)),
                bytes: walk(&path, &mut |_| {}),
                has_unkept_files: false,
                is_spare: false,
                what: What::Mirror(path),
            })
        };
        let mut found: Vec<Idle> = blocking(move || Ok(mirrors_below(&mirrors).into_iter().filter_map(idle).collect()))
            .await
            .context("looking for idle mirrors")?;
        in_order(&mut found);
        Ok(found)
    }

    /// Removes it, unless it is in use; returns true if it was removed.
    pub async fn remove_idle(&self, idle: Idle) -> anyhow::Result<bool> {
        let path = match &idle.what {
            What::Trees { folder, .. } => folder.clone(),
            What::Mirror(path) => path.clone(),
        };
        let Some(alone) = self.uses.alone(&path) else { return Ok(false) };
        let removed = blocking(move || match &idle.what {
            What::Trees { folder, admin } => {
                // The server's records are removed first: without them a remaining tree is not trusted.
                admin.iter().try_for_each(|dir| remove_path(dir))?;
                remove_path(folder)?;
                Ok(true)
            }
            What::Mirror(path) => {
                let still_idle = is_empty(&path.join("worktrees"));
                if still_idle {
                    remove_path(path)?;
                }
                Ok(still_idle)
            }
        });
        let removed = removed.await.with_context(|| format!("cannot remove {}", path.display()))?;
        drop(alone);
        self.uses.remove(&path);
        Ok(removed)
    }

    /// Records that steps left files in a tree that are kept nowhere else.
    pub(super) fn is_not_kept(&self, tree: &WorkingTree) -> std::io::Result<()> {
        fs::write(tree.git_dir.join(UNKEPT), "")
    }
}

fn in_order(found: &mut [Idle]) {
    found.sort_by_key(|idle| (idle.has_unkept_files, !idle.is_spare, idle.last_used));
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Returns the mirrors at any depth: an owner may have several parts, and any name.
fn mirrors_below(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![(dir.to_owned(), 0)]);
    while let Some((dir, depth)) = dirs.pop() {
        if dir.join("worktrees").is_dir() && dir.join("config").is_file() {
            found.push(dir);
        } else if depth < DEEPEST {
            let folders = fs::read_dir(&dir).into_iter().flatten().flatten();
            dirs.extend(folders.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| (e.path(), depth + 1)));
        }
    }
    found
}

/// Returns the trees of a mirror by pull request. Each of the server's git directories names its tree.
fn trees_of(mirror: &Path, uses: &Uses) -> Vec<Idle> {
    let mut pulls: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(mirror.join("worktrees")).into_iter().flatten().flatten() {
        let admin = entry.path();
        let Ok(git) = fs::read_to_string(admin.join("gitdir")) else { continue };
        // <pull request>/<workspace>/.git
        let Some(folder) = Path::new(git.trim_end()).ancestors().nth(2) else { continue };
        pulls.entry(folder.to_owned()).or_default().push(admin);
    }
    let idle = |(folder, admin): (PathBuf, Vec<PathBuf>)| {
        let mut has_unkept_files = admin.iter().any(|dir| dir.join(UNKEPT).exists());
        let bytes = walk(&folder, &mut |file| has_unkept_files |= is_local_state(file));
        let written = || admin.iter().map(|dir| modified(dir)).max();
        let last_used = uses.last(&folder).or_else(written).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_spare = admin.iter().all(|dir| super::spare::is_spare(dir));
        // All files in a spare tree are git's.
        has_unkept_files &= !is_spare;
        Idle { last_used, bytes, has_unkept_files, is_spare, what: What::Trees { folder, admin } }
    };
    pulls.into_iter().map(idle).collect()
}

/// Returns true if a file is a state, as Terraform's local backend writes it.
fn is_local_state(file: &Path) -> bool {
    super::gone::is_state(file) && !file.components().any(|part| part.as_os_str() == ".terraform")
}
