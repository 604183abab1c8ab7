//! The tree of a plan that was made at an executor, on this machine: the server applies the plan itself.

use super::Executors;
use super::run_job::{JobNotRun, JobPlace, fetch_tree, make_parent, unpack};
use super::transfer::{TREES, remote_tree};
use crate::checkout::WorkingTree;
use crate::domain::state::{PlanRecord, PlanTree};
use anyhow::{Context as _, Result, anyhow};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Makes the directory in which jobs of this machine have their trees. Blocks.
///
/// # Errors
///
/// If it cannot be made, or another user has it.
pub(crate) fn make_place_of_trees() -> Result<()> {
    make_parent(Path::new(TREES)).context("jobs at executors have no place for their trees")
}

/// A tree at the place where its plan was made. It is removed when this value is dropped; call
/// [`UnpackedTree::remove`] to wait for that.
pub(crate) struct UnpackedTree {
    /// The tree.
    pub(crate) tree: WorkingTree,
    place: Option<JobPlace>,
}

impl Drop for UnpackedTree {
    fn drop(&mut self) {
        // Removing a tree blocks.
        if let Some(place) = self.place.take() {
            std::thread::spawn(move || drop(place));
        }
    }
}

impl UnpackedTree {
    /// Removes the tree.
    pub(crate) async fn remove(mut self) {
        if let Some(place) = self.place.take() {
            place.leave().await;
        }
    }
}

impl Executors {
    /// Unpacks the tree of a plan where the plan was made. Waits for a job that has the place; `None` if `stop` comes first.
    pub(crate) async fn unpack(
        &self,
        tree: &PlanTree,
        plan: &PlanRecord,
        stop: &CancellationToken,
    ) -> Result<Option<UnpackedTree>> {
        let (prefix, tree) = remote_tree(tree, &plan.head, &plan.base)?;
        let place = match JobPlace::take(tree.root.clone(), stop, |_| {}).await {
            Ok(place) => place,
            Err(JobNotRun::Stopped) => return Ok(None),
            Err(JobNotRun::Refused(why)) => return Err(anyhow!(why)),
        };
        fetch_tree(&self.objects_at(prefix), &tree, &place).await?;
        let tree = unpack(&tree, &place).await?;
        Ok(Some(UnpackedTree { tree, place: Some(place) }))
    }
}
