//! Remarks below applies that left something to change, or that could not be verified.

use super::context::Context;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome, Verification};
use crate::wording;

/// Returns the remark below an apply after which something is left to change, or which could not be verified; `None` for others.
pub(super) fn remark(ctx: &Context, job: &JobOutcome) -> Option<String> {
    let Outcome::Applied(applied) = &job.outcome else { return None };
    let verification = applied.verification.filter(|found| !found.is_clean())?;
    let label = job.project.label();
    let found = match verification {
        Verification::Planned(Some(summary)) => format!(
            "`{label}` is applied, but a plan right after it still has changes ({})",
            wording::plan_counts(&summary)
        ),
        Verification::Planned(None) => format!(
            "Whether the apply of `{label}` left anything to change is unknown: the plan stage of its workflow prints no totals"
        ),
        Verification::Failed => format!(
            "Whether the apply of `{label}` left anything to change is unknown: the plan after it failed, and the log has the reason"
        ),
    };
    let command = command_for(&ctx.rendering.executable, CommandName::Plan, &job.project, &[]);
    Some(format!("{found}. To plan again: `{command}`"))
}
