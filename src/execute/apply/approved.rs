//! The text that a plan file must have to be applied: that which people have approved, by the server's own record. A plan that is applied with
//! the identity that made it is not compared, as its job could have done by itself whatever its file does.

use super::super::context::Context;
use super::super::not_run::NotRun;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::outcome::{Failure, Outcome, Reason};
use crate::domain::state::PlanRecord;
use crate::executors::made_at;

/// Returns the text that the plan file must have in an apply at this executor, or in the server; `None` if it is not compared. A plan that
/// should be compared and cannot be is refused.
pub(super) async fn text(
    ctx: &Context,
    config: &ProjectConfig,
    plan: &PlanRecord,
    at: Option<&str>,
) -> Result<Option<String>, NotRun> {
    let Some(executor) = plan.tree.as_ref().and_then(made_at).filter(|made_at| at != Some(made_at.as_str())) else {
        return Ok(None);
    };
    if plan.path.is_none() {
        // The apply takes nothing over from the plan: its commands run in the checkout.
        return Ok(Some(String::new()));
    }
    if let Some(what) = not_comparable(config) {
        let applies = at.map_or_else(|| "the server".to_owned(), |name| format!("the executor `{name}`"));
        let because = format!(
            "The executor `{executor}` has made this plan and {applies} would apply it, so its plan file has to be compared with the text \
             that was approved. {what}. Let one executor do both: in `repos.yaml`, a rule of `executor` with the same name for `plan` and \
             `apply`"
        );
        return Err(Failure::Refused { reason: Reason::Config, because }.into());
    }
    let job = plan.job.clone();
    let job = ctx.store.read(move |view| view.job(&job)).await?;
    match job.and_then(|job| job.outcome).map(|ended| ended.outcome) {
        Some(Outcome::Planned(planned)) => Ok(Some(planned.output)),
        _ => {
            let because = format!(
                "its text, which the server keeps for 30 days, is gone. The executor `{executor}` made its file, and another executor \
                 applies this file only after a comparison with the text"
            );
            Err(Failure::StalePlan { because }.into())
        }
    }
}

/// Returns the reason that plan files of a project cannot be compared with texts, as a sentence.
fn not_comparable(config: &ProjectConfig) -> Option<&'static str> {
    if config.terragrunt {
        return Some("That is not possible with Terragrunt");
    }
    let has_init = config.workflow.plan.iter().any(|step| matches!(step, Step::Init { .. }));
    (!has_init).then_some("That needs the built-in step `init` in the stage `plan` of its workflow, which has none")
}
