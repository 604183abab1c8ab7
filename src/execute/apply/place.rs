//! Where a plan is applied, for a pull request and for a drift run.

use super::super::cancel::Cancel;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job;
use super::super::not_run::NotRun;
use super::super::prepare::Stop;
use super::approved;
use crate::checkout::WorkingTree;
use crate::config::ProjectConfig;
use crate::domain::outcome::Failure;
use crate::domain::state::PlanRecord;
use crate::executors::UnpackedTree;

/// Where a plan is applied.
pub(in super::super) struct ApplyPlace<'a> {
    /// The executor; absent if the server applies it.
    pub(in super::super) executor: Option<&'a str>,
    /// The text that its file must have; absent if it is not compared.
    pub(in super::super) approved: Option<String>,
    /// The tree of a plan of an executor that the server applies.
    unpacked: Option<UnpackedTree>,
}

impl<'a> ApplyPlace<'a> {
    /// Finds the place of a plan's apply. Waits for the place of its tree on this machine, unless it is stopped by `cancel`.
    pub(in super::super) async fn find(
        ctx: &Context,
        work: &CommandRun,
        config: &'a ProjectConfig,
        plan: &PlanRecord,
        cancel: &Cancel,
    ) -> Result<ApplyPlace<'a>, NotRun> {
        let executor = job::executor(ctx, work, config);
        if let (Some(executor), None) = (executor, &plan.tree) {
            return Err(made_here(executor).into());
        }
        let approved = approved::text(ctx, config, plan, executor).await?;
        let unpacked = match (executor, &plan.tree) {
            (None, Some(tree)) => {
                let unpacked = tokio::select! {
                    unpacked = ctx.executors.unpack(tree, plan, &cancel.token) => unpacked?,
                    () = cancel.leave.cancelled() => None,
                };
                Some(unpacked.ok_or(Stop::Cancelled)?)
            }
            _ => None,
        };
        Ok(ApplyPlace { executor, approved, unpacked })
    }

    /// Returns the tree on this machine: the one that was planned at an executor, or this one.
    pub(in super::super) fn tree(&self, tree: WorkingTree) -> WorkingTree {
        self.unpacked.as_ref().map_or(tree, |unpacked| unpacked.tree.clone())
    }

    /// Removes the tree that was unpacked.
    pub(in super::super) async fn leave(self) {
        if let Some(unpacked) = self.unpacked {
            unpacked.remove().await;
        }
    }
}

/// Returns the failure of a plan that the server has made itself, for an apply at an executor.
fn made_here(executor: &str) -> Failure {
    let because = format!("the server made it, and its paths do not exist on the executor `{executor}`");
    Failure::StalePlan { because }
}
