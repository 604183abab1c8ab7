//! A spare tree made in the background, for a repository whose trees take long to write. The repository's next pull request takes it, as it
//! would take the tree of a closed one.
//!
//! It has only git's files, of a commit whose objects are in the mirror already: no step ran in it, and no request is sent to the host. A
//! fetch or checkout that somebody waits for interrupts the making of a spare tree.

use super::folder::remove_path;
use super::mirror::Mirror;
use super::spare::{TreePaths, WORTH_KEEPING};
use super::tree::{TreeLocation, blocking};
use super::{Checkouts, Fetched, pristine};
use anyhow::Context;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidelock_core::domain::{CommitSha, PullRequest};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Shortest time to write a tree for which a spare one is made.
const LONG: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
/// Names of a spare tree that is being made, and of the server's git directory of it.
const UNFINISHED: (&str, &str) = ("unfinished", "spare-unfinished");

/// Spare tree that the next pull request of a repository would use.
#[derive(Debug, Clone)]
pub struct WantedSpare {
    /// Path of the last written tree. The spare one gets the same commit, whose files are all in the mirror.
    pub(super) like: PathBuf,
    pub(super) pull: PullRequest,
    pub(super) fetched: Fetched,
    pub(super) commit: CommitSha,
}

impl WantedSpare {
    /// Returns the path of a tree of the same size.
    pub fn like(&self) -> &Path {
        &self.like
    }
}

/// Result of making a spare tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpareMaking {
    /// The spare tree was made.
    Made,
    /// There is a spare tree already, or no pull request with a tree any more.
    NotNeeded,
    /// It was interrupted, and is still wanted.
    Ended,
}

/// Demand for spare trees by repository, and the work that takes precedence.
#[derive(Clone, Default)]
pub(super) struct SpareDemand(Arc<Demand>);

#[derive(Default)]
struct Demand {
    state: Mutex<DemandState>,
    changed: Notify,
}

#[derive(Default)]
struct DemandState {
    /// Mirrors of repositories whose trees take long to write.
    slow: HashSet<PathBuf>,
    /// Wanted spare trees, by mirror.
    wanted: HashMap<PathBuf, WantedSpare>,
    /// Number of fetches and checkouts that somebody waits for.
    in_front: usize,
    /// Interrupts the making in progress.
    end: CancellationToken,
}

/// Guard of a fetch or checkout that somebody waits for: no spare tree is made while it exists.
pub(super) struct InFront(SpareDemand);

impl Drop for InFront {
    fn drop(&mut self) {
        self.0.state().in_front -= 1;
        self.0.0.changed.notify_one();
    }
}

impl SpareDemand {
    fn state(&self) -> MutexGuard<'_, DemandState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a fetch or checkout that somebody waits for, and interrupts work in the background.
    pub(super) fn in_front(&self) -> InFront {
        let mut state = self.state();
        state.in_front += 1;
        state.end.cancel();
        InFront(self.clone())
    }

    /// Records that a tree of `files` files was written in this time, or that a spare one was taken, with no time. Registers a wish for
    /// another one if trees of this mirror take long.
    pub(super) fn record_tree(&self, mirror: &Path, files: usize, took: Option<Duration>, wanted: WantedSpare) {
        let mut state = self.state();
        match took {
            Some(took) if took >= LONG && files >= WORTH_KEEPING => {
                state.slow.insert(mirror.to_owned());
            }
            Some(_) => {
                state.slow.remove(mirror);
            }
            None => {}
        }
        if state.slow.contains(mirror) {
            state.wanted.insert(mirror.to_owned(), wanted);
            self.0.changed.notify_one();
        }
    }

    async fn next(&self) -> WantedSpare {
        loop {
            let changed = self.0.changed.notified();
            {
                let state = self.state();
                if let Some(wanted) = state.wanted.values().next().filter(|_| state.in_front == 0) {
                    return wanted.clone();
                }
            }
            changed.await;
        }
    }

    /// Registers the making of a spare tree; false while a fetch or checkout takes precedence.
    fn begin(&self, end: &CancellationToken) -> bool {
        let mut state = self.state();
        state.end = end.clone();
        state.in_front == 0
    }

    fn is_wanted_no_more(&self, mirror: &Path) {
        self.state().wanted.remove(mirror);
    }

    /// Registers the wish again after an interruption, unless there is a newer one.
    fn is_still_wanted(&self, mirror: &Path, wanted: &WantedSpare) {
        self.state().wanted.entry(mirror.to_owned()).or_insert_with(|| wanted.clone());
        self.0.changed.notify_one();
    }
}

impl Checkouts {
    /// Waits until a spare tree is wanted and nobody waits for a fetch or another tree.
    pub async fn spare_wanted(&self) -> WantedSpare {
        self.demand.next().await
    }

    /// Withdraws the wish for a spare tree.
    pub fn do_without_spare(&self, wanted: &WantedSpare) {
        self.demand.is_wanted_no_more(&self.mirror_path(&wanted.pull.id.repo));
    }

    /// Makes the spare tree, until `end` is cancelled or somebody waits for a tree.
    pub async fn make_spare(&self, wanted: &WantedSpare, end: &CancellationToken) -> anyhow::Result<SpareMaking> {
        let repo = &wanted.pull.id.repo;
        let (mirror, spare) = (self.mirror_path(repo), self.spare_paths(repo));
        let _not_removed_meanwhile = (self.uses.hold(mirror.clone()).await, self.hold_spare(&spare).await);
        let unfinished = TreePaths {
            root: spare.root.with_file_name(UNFINISHED.0),
            admin: spare.admin.with_file_name(UNFINISHED.1),
        };
        // A spare tree that is taken from now on registers a new wish.
        self.demand.is_wanted_no_more(&mirror);
        let is_needed = has_trees(&mirror) && !self.has_spare(&spare);
        if is_needed && !self.demand.begin(end) {
            self.demand.is_still_wanted(&mirror, wanted);
            return Ok(SpareMaking::Ended);
        }
        let made = async {
            // An interrupted tree is removed only now: removing it at once would delay the work that takes precedence.
            if !is_needed {
                return Ok(SpareMaking::NotNeeded);
            }
            if !self.write_spare(wanted, &unfinished, end).await? {
                return Ok(SpareMaking::Ended);
            }
            self.put_spare(repo, unfinished.clone()).await?;
            anyhow::Ok(SpareMaking::Made)
        };
        let made = made.await.context("making a checkout for the next pull request");
        if matches!(made, Ok(SpareMaking::Ended)) {
            self.demand.is_still_wanted(&mirror, wanted);
        } else {
            let left = blocking(move || {
                remove_path(&unfinished.admin)?;
                Ok(remove_path(&unfinished.root)?)
            });
            left.await.context("removing an unfinished checkout")?;
        }
        made
    }

    /// Writes the files and the server's record of them; false if it was interrupted.
    async fn write_spare(&self, wanted: &WantedSpare, to: &TreePaths, end: &CancellationToken) -> anyhow::Result<bool> {
        let location = TreeLocation::at_paths(Mirror::of(self, &wanted.pull)?, self, to.clone());
        if !location.write_in_background(&wanted.fetched, &wanted.commit, end).await? {
            return Ok(false);
        }
        let (to, owner) = (to.clone(), self.owner_of_spares());
        blocking(move || {
            if let Some(owner) = owner {
                super::owner::change_owner_of_tree(&to.root, owner)?;
            }
            pristine::record(&to.root, &to.admin)
        })
        .await?;
        Ok(!end.is_cancelled())
    }
}

/// Returns true if a pull request has a tree of this mirror.
fn has_trees(mirror: &Path) -> bool {
    let names = fs::read_dir(mirror.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with(|first: char| first.is_ascii_digit()))
}
