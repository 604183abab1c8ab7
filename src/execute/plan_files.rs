//! Restores a plan in a tree: its file, and the files that its steps left.

use super::context::Context;
use super::not_run::NotRun;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::outcome::{Failure, Reason};
use crate::executors::untrusted;
use crate::runner::local::{Place, PlanGone, has_commands, missing_preparation};
use crate::runner::spec::PlanReference;

/// Puts the plan file into the tree if commands may read it there, and the plan's artifacts if its own tree is gone. A job at an executor
/// does so itself, in its own tree. Returns the steps to run before the stage.
pub(super) async fn bring(
    ctx: &Context,
    config: &ProjectConfig,
    plan: &PlanReference,
    place: &Place,
    stage: &[Step],
    executor: Option<&str>,
) -> Result<Vec<Step>, NotRun> {
    let runner = &ctx.runner;
    // Another tree than that of the plan lacks the files that its steps left, and its providers.
    let mut first = Vec::new();
    if plan.left.tree.as_ref().is_some_and(|made| *made != place.tree.made) {
        if executor.is_none() {
            runner.put_back(plan, place).await?;
        }
        // What is compared is compared before the stage, so it cannot be left to the stage to prepare the tree.
        first = missing_preparation(config, if plan.approved.is_some() { &[] } else { stage });
    }
    match executor.is_none() && (has_commands(stage) || has_commands(&first)) {
        true => runner.restore_plan_file(plan, place).await?,
        false => runner.check_plan_file(plan).await?,
    }
    Ok(first)
}

impl From<PlanGone> for NotRun {
    fn from(gone: PlanGone) -> NotRun {
        const TREE: &str = "its checkout is gone (server restart or full disk),";
        let because = match gone {
            PlanGone::LeftTooMuch(what) => format!("{TREE} and its steps had left {what} there"),
            PlanGone::LeftFiles => format!("{TREE} with the files that its steps left"),
            PlanGone::File => "its plan file is missing or was changed".to_owned(),
            PlanGone::Untrusted(file) => {
                return Failure::Refused { reason: Reason::Config, because: untrusted(&file) }.into();
            }
            PlanGone::Broken(error) => return error.into(),
        };
        Failure::StalePlan { because }.into()
    }
}
