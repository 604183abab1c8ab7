//! Restores a plan in a tree: its file, and the files that its steps left.

use super::context::Context;
use super::not_run::NotRun;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::outcome::Failure;
use crate::domain::state::PlanRecord;
use crate::runner::local::{Place, PlanGone, has_commands, missing_preparation};
use crate::runner::spec::PlanReference;

/// Puts the plan file into the tree if commands may read it there, and the plan's artifacts if its own tree is gone. Returns the steps to
/// run before the stage.
pub(super) async fn bring(
    ctx: &Context,
    config: &ProjectConfig,
    plan: &PlanRecord,
    place: &Place,
    stage: &[Step],
) -> Result<Vec<Step>, NotRun> {
    let (runner, reference) = (&ctx.runner, PlanReference::from(plan));
    // Another tree than that of the plan lacks the files that its steps left, and its providers.
    let mut first = Vec::new();
    if plan.left.tree.as_ref().is_some_and(|made| *made != place.tree.made) {
        runner.put_back(&reference, place).await?;
        first = missing_preparation(config, stage);
    }
    match has_commands(stage) || has_commands(&first) {
        true => runner.restore_plan_file(&reference, place).await?,
        false => runner.check_plan_file(&reference).await?,
    }
    Ok(first)
}

impl From<PlanGone> for NotRun {
    fn from(gone: PlanGone) -> NotRun {
        const TREE: &str = "its checkout is gone since the server was started again or had to make room, and";
        let because = match gone {
            PlanGone::LeftTooMuch(what) => format!("{TREE} its steps had left {what} there"),
            PlanGone::LeftFiles => format!("{TREE} the files that its steps had left there are too"),
            PlanGone::File => "its plan file is gone or is not the one that was made".to_owned(),
            PlanGone::Broken(error) => return error.into(),
        };
        Failure::StalePlan { because }.into()
    }
}
