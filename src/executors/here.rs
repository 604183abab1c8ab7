//! The tree of a plan that was made at an executor, on this machine: the server applies the plan itself.

use super::Executors;
use super::run_job::{JobNotRun, JobPlace, fetch_tree, unpack};
use super::transfer::remote_tree;
use crate::checkout::WorkingTree;
use crate::domain::state::{PlanRecord, PlanTree};
use anyhow::{Result, anyhow};
use tokio_util::sync::CancellationToken;

/// A tree at the place where its plan was made. It is removed when this value is dropped; call [`UnpackedTree::remove`] in async code.
pub(crate) struct UnpackedTree {
    /// The tree.
    pub(crate) tree: WorkingTree,
    place: JobPlace,
}

impl UnpackedTree {
    /// Removes the tree.
    pub(crate) async fn remove(self) {
        self.place.leave().await;
    }
}

impl Executors {
    /// Unpacks the tree of a plan where the plan was made. Waits for a job that has the place, until `stop`.
    pub(crate) async fn unpack(
        &self,
        tree: &PlanTree,
        plan: &PlanRecord,
        stop: &CancellationToken,
    ) -> Result<UnpackedTree> {
        let (prefix, tree) = remote_tree(tree, &plan.head, &plan.base)?;
        let place = JobPlace::take(tree.root.clone(), stop, |_| {}).await.map_err(|reason| match reason {
            JobNotRun::Stopped => anyhow!("it was cancelled"),
            JobNotRun::Refused(why) => anyhow!(why),
        })?;
        fetch_tree(&self.objects_at(prefix), &tree, &place).await?;
        let tree = unpack(&tree, &place).await?;
        Ok(UnpackedTree { tree, place })
    }
}
