//! Brings a plan that was made back into a tree: its file, and what its steps left there.

use super::context::Context;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::outcome::Failure;
use crate::domain::state::PlanRecord;
use crate::runner::local::{Place, PlanGone, has_commands, missing_preparation};
use crate::runner::spec::PlanReference;
use anyhow::Result;

/// Puts the plan file into the tree where commands may look for it, and what the plan's steps left if that tree is gone. What has to run before the stage then; the
/// inner error: the plan is useless.
pub(super) async fn bring(
    ctx: &Context,
    config: &ProjectConfig,
    plan: &PlanRecord,
    place: &Place,
    stage: &[Step],
) -> Result<Result<Vec<Step>, Failure>> {
    let (runner, reference) = (&ctx.runner, PlanReference::from(plan));
    let stale = |gone: PlanGone| Failure::StalePlan { because: gone_because(gone) };
    // In another tree than the plan was made in, what its steps left, and its providers, are missing.
    let mut first = Vec::new();
    if plan.left.tree.as_ref().is_some_and(|made| *made != place.tree.made) {
        if let Err(gone) = runner.put_back(&reference, place).await? {
            return Ok(Err(stale(gone)));
        }
        first = missing_preparation(config, stage);
    }
    let with_copy = has_commands(stage) || has_commands(&first);
    Ok(runner.restore_plan_file(&reference, place, with_copy).await?.map(|()| first).map_err(stale))
}

/// Why a plan that cannot be brought back is useless, for people.
fn gone_because(gone: PlanGone) -> String {
    const TREE: &str = "its checkout is gone since the server was started again or had to make room, and";
    match gone {
        PlanGone::LeftTooMuch(what) => format!("{TREE} its steps had left {what} there"),
        PlanGone::LeftFiles => format!("{TREE} the files that its steps had left there are too"),
        PlanGone::File => "its plan file is gone or is not the one that was made".to_owned(),
    }
}
