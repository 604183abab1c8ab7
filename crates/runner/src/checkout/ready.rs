//! A spare tree made in the background, for a repository whose trees take long to write: its next pull request takes it as it would take
//! the tree of a closed one.
//!
//! It has what git has and nothing else, of a commit whose files are here already: no step ran in it, and no host is asked. Whoever writes
//! a tree that somebody waits for ends the making.

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

/// Trees that took longer to write are worth a spare one.
const LONG: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
/// Names of a spare tree that is being made, and of the server's git directory of it.
const UNFINISHED: (&str, &str) = ("unfinished", "spare-unfinished");

/// A spare tree that a repository's next pull request would be served by.
#[derive(Debug, Clone)]
pub struct WantedSpare {
    /// The tree that was written last: its commit is the spare one's, as all of its files are here.
    pub(super) like: PathBuf,
    pub(super) pull: PullRequest,
    pub(super) fetched: Fetched,
    pub(super) commit: CommitSha,
}

impl WantedSpare {
    /// A tree of the same size.
    pub fn like(&self) -> &Path {
        &self.like
    }
}

/// How the making of a spare tree ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpareMaking {
    /// It is there.
    Made,
    /// There is one, or no pull request with a tree any more.
    NotNeeded,
    /// Somebody else goes first; it is still wanted.
    Ended,
}

/// Which repositories want a spare tree, and who goes first.
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
    /// By mirror.
    wanted: HashMap<PathBuf, WantedSpare>,
    /// Fetches and trees that somebody waits for.
    in_front: usize,
    /// Ends the making that is under way.
    end: CancellationToken,
}

/// While it exists, no spare tree is made.
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

    /// Somebody waits for a fetch or a tree: whatever is made in the background ends.
    pub(super) fn in_front(&self) -> InFront {
        let mut state = self.state();
        state.in_front += 1;
        state.end.cancel();
        InFront(self.clone())
    }

    /// A tree was written, of so many files, in this time; or a spare one was taken, with no time. Another is wanted where that takes long.
    pub(super) fn note(&self, mirror: &Path, files: usize, took: Option<Duration>, wanted: WantedSpare) {
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

    /// False while somebody goes first.
    fn begin(&self, end: &CancellationToken) -> bool {
        let mut state = self.state();
        state.end = end.clone();
        state.in_front == 0
    }

    fn is_wanted_no_more(&self, mirror: &Path) {
        self.state().wanted.remove(mirror);
    }

    /// It was not made; a newer wish comes first.
    fn is_still_wanted(&self, mirror: &Path, wanted: &WantedSpare) {
        self.state().wanted.entry(mirror.to_owned()).or_insert_with(|| wanted.clone());
        self.0.changed.notify_one();
    }
}

impl Checkouts {
    /// Waits until a spare tree is wanted, and nobody waits for another one.
    pub async fn spare_wanted(&self) -> WantedSpare {
        self.demand.next().await
    }

    /// It is not wanted any more.
    pub fn do_without_spare(&self, wanted: &WantedSpare) {
        self.demand.is_wanted_no_more(&self.mirror_path(&wanted.pull.id.repo));
    }

    /// Makes it. `end` and whoever waits for a tree end that.
    pub async fn make_spare(&self, wanted: &WantedSpare, end: &CancellationToken) -> anyhow::Result<SpareMaking> {
        let repo = &wanted.pull.id.repo;
        let (mirror, spare) = (self.mirror_path(repo), self.spare_paths(repo));
        let _not_removed_meanwhile = (self.uses.hold(mirror.clone()).await, self.hold_spare(&spare).await);
        let unfinished = TreePaths {
            root: spare.root.with_file_name(UNFINISHED.0),
            admin: spare.admin.with_file_name(UNFINISHED.1),
        };
        // Whoever takes one from now on wants another.
        self.demand.is_wanted_no_more(&mirror);
        let is_needed = has_trees(&mirror) && !self.has_spare(&spare);
        if is_needed && !self.demand.begin(end) {
            self.demand.is_still_wanted(&mirror, wanted);
            return Ok(SpareMaking::Ended);
        }
        let made = async {
            // What was ended stays until now: removing it would be in the way of who waits for a tree.
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

    /// The files, and what the server remembers of them; false if it was ended.
    async fn write_spare(&self, wanted: &WantedSpare, to: &TreePaths, end: &CancellationToken) -> anyhow::Result<bool> {
        let location = TreeLocation::at_paths(Mirror::of(self, &wanted.pull)?, self, to.clone());
        if !location.write_in_background(&wanted.fetched, &wanted.commit, end).await? {
            return Ok(false);
        }
        let (to, owner) = (to.clone(), self.owner_of_spares());
        blocking(move || {
            if let Some(owner) = owner {
                super::owner::give(&to.root, owner)?;
            }
            pristine::note(&to.root, &to.admin)
        })
        .await?;
        Ok(!end.is_cancelled())
    }
}

/// Whether a pull request has a tree of this mirror.
fn has_trees(mirror: &Path) -> bool {
    let names = fs::read_dir(mirror.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with(|first: char| first.is_ascii_digit()))
}
