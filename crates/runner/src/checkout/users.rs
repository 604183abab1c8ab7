//! Users that the steps of pull requests run as, if they are not the server's own.

use super::Checkouts;
use super::beside::names_in;
use super::folder::Folder;
use super::owner;
use crate::process::{RunAs, RunAsUsers};
use anyhow::{Context as _, Result};
use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::PullId;
use tokio::sync::Notify;

/// Users of steps: one for all, or a separate one for each pull request at work.
#[derive(Clone)]
pub struct StepUsers {
    all: RunAsUsers,
    held: Arc<Mutex<HashMap<PullId, UserHeld>>>,
    freed: Arc<Notify>,
}

struct UserHeld {
    user: RunAs,
    holders: usize,
}

/// Guard of a user in use: no other pull request gets the same user while it exists.
pub(super) struct UserInUse {
    users: StepUsers,
    pull: PullId,
}

/// Owner that a tree is given to.
#[derive(Clone, Copy)]
pub(super) struct TreeOwner {
    user: RunAs,
    /// True if no other user can enter the tree.
    alone: bool,
}

impl TreeOwner {
    /// Gives a tree to this owner. Blocks.
    pub(super) fn take_over(self, root: &Path) -> Result<()> {
        if self.alone {
            owner::change_owner_of_lone_tree(root, self.user)
        } else {
            owner::change_owner_of_tree(root, self.user)
        }
    }
}

impl StepUsers {
    /// Returns these users, none of them in use.
    pub fn new(all: RunAsUsers) -> StepUsers {
        StepUsers { all, held: Arc::default(), freed: Arc::default() }
    }

    /// Returns the one user of all steps; `None` if there are several.
    pub(super) fn shared(&self) -> Option<RunAs> {
        self.all.only()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PullId, UserHeld>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the user of this pull request, which must be at work.
    fn user_of(&self, pull: &PullId) -> RunAs {
        if let Some(shared) = self.shared() {
            return shared;
        }
        self.held().get(pull).map_or_else(
            || {
                tracing::error!(%pull, "a pull request is at work without a user of its own");
                self.all.first()
            },
            |held| held.user,
        )
    }

    /// Waits until there is a user for the pull request. `before` is the preferred one.
    async fn hold(&self, pull: &PullId, before: Option<u32>) -> UserInUse {
        loop {
            let freed = self.freed.notified();
            if self.try_hold(pull, before) {
                return UserInUse { users: self.clone(), pull: pull.clone() };
            }
            freed.await;
        }
    }

    fn try_hold(&self, pull: &PullId, before: Option<u32>) -> bool {
        let mut held = self.held();
        if let Some(held) = held.get_mut(pull) {
            held.holders += 1;
            return true;
        }
        let is_free = |user: &RunAs| held.values().all(|held| held.user != *user);
        let before = before.and_then(|uid| self.all.iter().find(|user| user.uid == uid)).filter(is_free);
        let Some(user) = before.or_else(|| self.all.iter().find(is_free)) else { return false };
        held.insert(pull.clone(), UserHeld { user, holders: 1 });
        true
    }
}

impl Drop for UserInUse {
    fn drop(&mut self) {
        let mut held = self.users.held();
        if let Some(one) = held.get_mut(&self.pull) {
            one.holders -= 1;
            if one.holders == 0 {
                held.remove(&self.pull);
                self.users.freed.notify_waiters();
            }
        }
    }
}

impl Checkouts {
    /// Returns the user that owns the trees of a pull request at work, and that its steps run as. `None` is the server's own.
    pub fn owner(&self, pull: &PullId) -> Option<RunAs> {
        self.users.as_ref().map(|users| users.user_of(pull))
    }

    /// Returns the owner of the pull request's trees.
    pub(super) fn tree_owner(&self, pull: &PullId) -> Option<TreeOwner> {
        self.owner(pull).map(|user| TreeOwner { user, alone: self.has_users() })
    }

    /// Returns true if each pull request at work has a user of its own.
    pub fn has_users(&self) -> bool {
        self.users.as_ref().is_some_and(|users| users.shared().is_none())
    }

    /// Returns the owner of trees that belong to no pull request.
    pub(super) fn owner_of_spares(&self) -> Option<RunAs> {
        self.users.as_ref().and_then(StepUsers::shared)
    }

    /// Returns true if a tree belongs to a user of steps.
    pub(super) fn is_of_steps(&self, top: &Folder) -> bool {
        match &self.users {
            None => top.belongs_to(None),
            Some(users) => users.all.contains(top.uid()),
        }
    }

    /// Gives the pull request a user, and that user its trees.
    pub(super) async fn take_user(&self, pull: &PullId) -> Result<Option<UserInUse>> {
        let Some(users) = self.users.as_ref().filter(|_| self.has_users()) else { return Ok(None) };
        let folder = self.pull_path(pull);
        let trees: Vec<_> = names_in(&folder).into_iter().map(|name| folder.join(name)).collect();
        let owner_of = |tree: &Path| tree.symlink_metadata().ok().filter(|meta| meta.is_dir()).map(|meta| meta.uid());
        let held = users.hold(pull, trees.iter().find_map(|tree| owner_of(tree))).await;
        let user = users.user_of(pull);
        let of_trees = TreeOwner { user, alone: true };
        let cache = self.data_dir.join("plugin-cache").join(user.uid.to_string());
        let given = tokio::task::spawn_blocking(move || {
            if !cache.exists() {
                DirBuilder::new().recursive(true).mode(0o700).create(&cache)?;
                owner::change_owner_of_tree(&cache, user)?;
            }
            let mut others = trees.iter().filter(|tree| owner_of(tree).is_some_and(|uid| uid != user.uid));
            others.try_for_each(|tree| of_trees.take_over(tree))
        });
        given.await?.context("trees could not be given to the user of steps")?;
        Ok(Some(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tidelock_core::domain::RepoId;

    fn pull(number: u64) -> PullId {
        PullId { repo: RepoId { host: "h".into(), owner: "o".into(), name: "n".into() }, number }
    }

    #[tokio::test]
    async fn pull_requests_at_work_have_different_users() {
        let users = StepUsers::new(RunAsUsers::new(10, 11).unwrap());
        let first = users.hold(&pull(1), Some(11)).await;
        assert_eq!(users.user_of(&pull(1)).uid, 11);
        let second = users.hold(&pull(2), Some(11)).await;
        assert_eq!(users.user_of(&pull(2)), RunAs { uid: 10, gid: 10 });
        let again = users.hold(&pull(1), Some(10)).await;
        assert_eq!(users.user_of(&pull(1)).uid, 11);
        let another = pull(3);
        let mut third = Box::pin(users.hold(&another, None));
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        drop(again);
        let _third = third.await;
        assert_eq!(users.user_of(&pull(3)).uid, 11);
        drop(second);
    }
}
