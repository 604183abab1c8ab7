//! Guards of plans: what of the runner's findings is recorded, who may override a guard, and the requirements of an apply that follow.

use super::command_run::{CommandRun, audit_entry};
use super::context::Context;
use super::people::is_one_of;
use super::prepare::Stop;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::guards::Guard;
use crate::domain::command::CommandName;
use crate::domain::guards::{GuardPass, TrippedGuard, are_passed};
use crate::domain::outcome::{Failure, Planned, RequirementCheck};
use crate::domain::state::{AuditEntry, PlanRecord};
use crate::guards::plan::{NoPlan, unreadable, without_file};
use crate::wording::guard_requirement;

/// Returns the tripped guards for the record of a plan. A job of an executor may have told anything, so only guards of the configuration
/// count. One that only the code trips is passed by an override of the plan's command.
pub(super) fn recorded(
    work: &CommandRun,
    config: &ProjectConfig,
    found: Option<Vec<TrippedGuard>>,
) -> Vec<TrippedGuard> {
    // A job of an earlier version does not know guards.
    let found = found.unwrap_or_else(|| unreadable(&config.guards, "the job did not do so", NoPlan::Broken));
    let known = |name: &str| config.guards.iter().find(|guard| guard.name == name);
    let guards = found.into_iter().filter_map(|tripped| {
        let who = known(&tripped.name)?.people();
        let passed = (tripped.of_code && is_overridden(work, &tripped.name)).then(|| pass(work));
        Some(TrippedGuard { who, passed, ..tripped })
    });
    guards.collect()
}

fn is_overridden(work: &CommandRun, name: &str) -> bool {
    work.command.overrides.iter().any(|own| own == name)
}

fn pass(work: &CommandRun) -> GuardPass {
    GuardPass { by: work.command.user.clone(), why: work.command.why.clone().unwrap_or_default() }
}

/// Returns true if an apply of a plan would be refused because of a guard.
pub(super) fn hold(planned: &Planned) -> bool {
    !are_passed(&planned.guards)
}

/// Returns the refusal of a project whose guards a job has found to refuse it.
pub(super) fn refusal(ctx: &Context, work: &CommandRun, config: &ProjectConfig, found: &[TrippedGuard]) -> Failure {
    let found = recorded(work, config, Some(found.to_vec()));
    let command = match work.command.name {
        // An apply has used its plan up, and others have no such flag.
        CommandName::Plan | CommandName::Apply => CommandName::Plan,
        name => name,
    };
    let line = command_for(&ctx.rendering.executable, command, &config.id, &work.command.extra_args);
    Failure::Requirements(found.iter().map(|guard| unmet(guard, command, &line)).collect())
}

fn unmet(guard: &TrippedGuard, command: CommandName, line: &str) -> RequirementCheck {
    let who = match (guard.who.as_str(), command) {
        ("", _) => "nobody may override it".to_owned(),
        (who, CommandName::Plan | CommandName::Apply) => {
            format!("only {who} may override it: `{}`", guard.command(line))
        }
        _ => "only `plan` and `apply` override it".to_owned(),
    };
    let detail = format!("{}. {}{}", guard.describe(), who[..1].to_uppercase(), &who[1..]);
    RequirementCheck { name: guard_requirement(&guard.name), met: false, detail }
}

/// Returns the guards of a project that the command overrides without its person's right to do so, as unmet requirements.
///
/// # Errors
///
/// The host did not say who is in a team: nothing is done then.
pub(super) async fn not_permitted(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
) -> Result<Vec<RequirementCheck>, Stop> {
    let mut unmet = Vec::new();
    for guard in config.guards.iter().filter(|guard| is_overridden(work, &guard.name)) {
        let question = format!("The guard `{}` is to be overridden", guard.name);
        if !is_one_of(ctx, work, &guard.overriders, &question).await? {
            let who = match guard.people().as_str() {
                "" => "nobody may override it".to_owned(),
                who => format!("only {who} may override it"),
            };
            let detail = format!("{} may not override it: {who}", work.command.user.described());
            unmet.push(RequirementCheck { name: guard_requirement(&guard.name), met: false, detail });
        }
    }
    Ok(unmet)
}

/// Returns the requirements of an apply of this plan that its guards are.
pub(super) async fn requirements(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    plan: &PlanRecord,
) -> Result<Vec<RequirementCheck>, Stop> {
    let mut checks = not_permitted(ctx, work, config).await?;
    let line = command_for(&ctx.rendering.executable, CommandName::Apply, &config.id, &[]);
    for guard in tripped(config, plan) {
        let name = guard_requirement(&guard.name);
        if checks.iter().any(|check| check.name == name) {
            continue;
        }
        checks.push(match (&guard.passed, is_overridden(work, &guard.name)) {
            (Some(GuardPass { by, why }), _) => RequirementCheck {
                name,
                met: true,
                detail: format!("overridden by {} (reason: {why})", by.described()),
            },
            (None, true) => {
                let (by, why) = (work.command.user.described(), work.command.why.as_deref().unwrap_or_default());
                let detail = format!("overridden by {by} (reason: {why}): {}", guard.describe());
                RequirementCheck { name, met: true, detail }
            }
            (None, false) => unmet(&guard, CommandName::Apply, &line),
        });
    }
    Ok(checks)
}

/// Returns the guards that a plan trips. A job at an executor might leave out that there is no plan file to read.
fn tripped(config: &ProjectConfig, plan: &PlanRecord) -> Vec<TrippedGuard> {
    let mut found: Vec<TrippedGuard> = plan.guards.clone();
    // The people are those of the present configuration.
    for guard in &mut found {
        guard.who = config.guards.iter().find(|own| own.name == guard.name).map(Guard::people).unwrap_or_default();
    }
    for guard in config.guards.iter().filter(|guard| plan.path.is_none() && guard.has_limits()) {
        without_file(&mut found, guard);
    }
    found
}

/// Returns remarks on the guards that an apply overrides.
pub(super) fn remarks(work: &CommandRun, config: &ProjectConfig, plan: &PlanRecord) -> Vec<String> {
    let overridden = tripped(config, plan).into_iter().filter(|guard| is_overridden(work, &guard.name));
    overridden
        .map(|guard| {
            let (user, why) = (work.command.user.described(), work.command.why.as_deref().unwrap_or_default());
            format!("{user} overrode the guard `{}` (reason: {why}): {}.", guard.name, guard.describe())
        })
        .collect()
}

/// Returns the audit entry of a plan whose command overrides guards of the project; `None` if it overrides none.
pub(super) fn audit_of_plan(work: &CommandRun, config: &ProjectConfig) -> Option<AuditEntry> {
    let is_any = config.guards.iter().any(|guard| is_overridden(work, &guard.name));
    is_any.then(|| audit_entry(work, &config.id, "begun".to_owned()))
}

/// Returns the failure of a drift run's apply of this plan, as nobody may override a guard there; `None` if it trips none.
pub(super) fn refusal_of_drift(config: &ProjectConfig, plan: &PlanRecord) -> Option<Failure> {
    let found = tripped(config, plan);
    let check = |guard: &TrippedGuard| {
        let detail = format!("{}. Correct the drift by a pull request", guard.describe());
        RequirementCheck { name: guard_requirement(&guard.name), met: false, detail }
    };
    (!are_passed(&found)).then(|| Failure::Requirements(found.iter().map(check).collect()))
}
