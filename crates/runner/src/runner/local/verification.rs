//! A plan at the end of an apply, which shows whether the apply has left anything to change. It changes nothing about how the job ends.

use super::{Io, JobSteps, Local, Place};
use crate::process::Redactor;
use crate::runner::spec::{JobSpec, PlanUse, Steps};
use crate::terraform::parts::flag;
use crate::terraform::summary::plan_summary;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::outcome::Verification;

impl Local {
    /// Runs the plan stage of the workflow again, with the arguments of the plan that was applied and the secrets of plans. Its plan file is
    /// not kept. `redactor` is that of the apply, whose values the state may have.
    pub(super) async fn verify(
        &self,
        spec: &JobSpec,
        place: &Place,
        io: &Io<'_>,
        steps: &JobSteps<'_>,
        redactor: &Redactor,
    ) -> Option<Verification> {
        let (PlanUse::Apply(plan), Some(timeout)) = (&spec.plan, spec.verify) else { return None };
        (io.log)("Planning again, to see whether the apply has left anything to change");
        let mut again = spec.clone();
        again.command.name = CommandName::Plan;
        again.command.extra_args = without_replacements(&plan.arguments);
        // Its code is that of the plan, whose guards somebody has overridden.
        again.command.overrides.extend(plan.guards.iter().map(|guard| guard.name.clone()));
        again.limits.timeout = timeout;
        again.steps = Steps::Stage { first: Vec::new(), steps: spec.project.workflow.plan.clone() };
        again.plan = PlanUse::None;
        let Ok(secrets) = self.secrets(&again, io).await else { return Some(Verification::Failed) };
        let secrets = secrets.masked_like(redactor);
        Some(match self.steps(&again, place, io, &JobSteps { secrets: &secrets, ..*steps }).await {
            Ok(ran) => Verification::Planned(plan_summary(&ran.output)),
            Err(_) => Verification::Failed,
        })
    }
}

/// Returns the arguments of a plan without `-replace`, which every plan with it carries out again.
fn without_replacements(arguments: &[String]) -> Vec<String> {
    let (mut kept, mut is_value) = (Vec::new(), false);
    for argument in arguments {
        let is_replacement = flag(argument) == Some("-replace");
        if !is_value && !is_replacement {
            kept.push(argument.clone());
        }
        is_value = is_replacement && !argument.contains('=');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_left_out_with_their_values() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let left = without_replacements(&words("-var a=b -replace=c.d --replace e.f -replaced=x -target g.h"));
        assert_eq!(left, words("-var a=b -replaced=x -target g.h"));
    }
}
