//! What Terraform's output says: totals and resources of a plan, totals of an apply, text for people. Pure.

use crate::domain::outcome::{PlanSummary, ResourceChange};

/// Totals of a plan from its text (ANSI codes removed): all `Plan:` lines summed, or one of the two "No changes" sentences.
/// Absent when the text has neither (nor `Changes to Outputs:`).
pub fn plan_summary(_text: &str) -> Option<PlanSummary> {
    todo!()
}

/// Resources in the order of the text: `# addr will be created` and the like, with the attributes that change or force replacement.
pub fn plan_resources(_text: &str) -> Vec<ResourceChange> {
    todo!()
}

/// Added, changed, destroyed of `Apply complete!` lines, summed.
pub fn apply_counts(_text: &str) -> Option<(u64, u64, u64)> {
    todo!()
}

/// The part of `terraform plan`'s output that people read: after the last `Refreshing state...` line, without ANSI codes.
pub fn plan_text(_output: &str) -> String {
    todo!()
}

/// Without ANSI escape sequences and other control characters but newline and tab.
pub fn strip_ansi(_text: &str) -> String {
    todo!()
}

/// Moves `+ - ~` markers to column 0 and turns `~` into `!`, for `diff` fences; aware of heredocs.
pub fn diff_markdown(_text: &str) -> String {
    todo!()
}
