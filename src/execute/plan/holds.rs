//! Reasons against an apply of a run's plans now, so that the answer offers no apply that would be refused.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::guards;
use super::super::policies::CheckedPlans;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::outcome::{JobOutcome, Outcome, PlanHold};
use crate::domain::state::{ProjectState, ProjectStatus};
use crate::schedule::Schedule;
use anyhow::Result;

/// Sets these reasons in the outcomes. `owned`: projects that other pull requests own.
pub(super) async fn set_reasons(
    ctx: &Context,
    work: &CommandRun,
    schedule: &Schedule,
    owned: &[ProjectId],
    policies: Option<&CheckedPlans>,
    outcomes: &mut [JobOutcome],
) -> Result<()> {
    let pull = work.pull.id.clone();
    let statuses = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let unmet = |project: &ProjectId| {
        let mut checks = policies.iter().flat_map(|checked| &checked.outcomes);
        checks.any(|check| check.project == *project && !check.outcome.is_success())
    };
    let config_of = |project: &ProjectId| schedule.groups.iter().flatten().find(|config| config.id == *project);
    for outcome in outcomes {
        let project = &outcome.project;
        if let Outcome::Planned(planned) = &mut outcome.outcome {
            planned.held = match config_of(project) {
                _ if owned.contains(project) => Some(PlanHold::Owned),
                _ if guards::hold(planned) => Some(PlanHold::Guards),
                _ if unmet(project) => Some(PlanHold::Policies),
                Some(config) if waits(config, &statuses) => Some(PlanHold::Dependency),
                _ => None,
            };
        }
    }
    Ok(())
}

/// Returns true if a project named in its `depends_on` is planned in the pull request and not applied.
fn waits(config: &ProjectConfig, statuses: &[ProjectStatus]) -> bool {
    let is_open = |name: &String| {
        let mut of_name = statuses.iter().filter(|status| status.project.name.as_ref() == Some(name));
        of_name.any(|status| status.state == ProjectState::Planned)
    };
    config.depends_on.iter().any(is_open)
}
