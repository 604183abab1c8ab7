//! Policy checks: selects the plans to check, judges a plan by its policy sets, and makes the result a requirement of its apply. The check
//! is in [`check`], approvals are in [`approve`].

pub(super) mod approve;
pub(super) mod check;

use super::command_run::CommandRun;
use super::context::Context;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::policies::{PolicyOwners, PolicySet};
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, RequirementCheck};
use crate::domain::policies::{ApprovalRule, PolicyCheckRecord};
use crate::domain::state::{CommitStatus, PlanRecord, ProjectState};
use crate::domain::{PlanId, ProjectId};
use anyhow::Result;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Results of policy checks for the answer to a plan.
#[derive(Clone)]
pub(super) struct CheckedPlans {
    /// One for each project; they have a comment of their own.
    pub(super) outcomes: Vec<JobOutcome>,
    /// `atlantis/policy_check`; absent if nothing of this head was checked.
    pub(super) status: Option<CommitStatus>,
}

/// Returns true if plans of this project are checked.
pub(super) fn is_on(ctx: &Context, config: &ProjectConfig) -> bool {
    ctx.settings.enable_policy_checks && config.policy_check
}

/// Returns the SHA-256, in hex, of the configuration that plans of this project are checked with: sets with their owners, engine, and
/// steps. The texts of the policies are not included.
fn digest(ctx: &Context, config: &ProjectConfig) -> String {
    let of_set = |set: &PolicySet| {
        let owners = (set.owners.users.clone(), set.owners.teams.clone());
        (set.name.clone(), set.path.clone(), owners, set.prevent_self_approve)
    };
    let policies = &ctx.global.policies;
    let facts = serde_json::json!({
        "sets": policies.sets.iter().map(of_set).collect::<Vec<_>>(),
        "engine": format!("{:?} {:?}", ctx.settings.policy_engine, policies.conftest_version),
        "custom": config.custom_policy_check,
        "steps": config.workflow.policy_check,
    });
    hex::encode(Sha256::digest(facts.to_string()))
}

fn set_of<'a>(ctx: &'a Context, name: &str) -> Option<&'a PolicySet> {
    ctx.global.policies.sets.iter().find(|set| set.name == name)
}

/// Returns the configured rule for approvals of each set of a check. A result that belongs to no set has no owners to approve it.
fn rules(ctx: &Context, check: &PolicyCheckRecord) -> Vec<ApprovalRule> {
    let rule = |name: &str| match set_of(ctx, name) {
        Some(set) => ApprovalRule { required: set.approve_count, owners: owners(&set.owners) },
        None => ApprovalRule { required: 1, owners: String::new() },
    };
    check.sets.iter().map(|set| rule(&set.name)).collect()
}

/// Returns the owners in words; empty for nobody.
fn owners(owners: &PolicyOwners) -> String {
    let teams = owners.teams.iter().map(|team| format!("team {team}"));
    owners.users.iter().cloned().chain(teams).collect::<Vec<_>>().join(", ")
}

/// Returns the requirement of an apply of this plan that its policy check is met; `None` if the project has no checks.
pub(super) async fn requirement(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    plan: &PlanRecord,
) -> Result<Option<RequirementCheck>> {
    if !is_on(ctx, config) {
        return Ok(None);
    }
    let (pull, project) = (work.pull.id.clone(), config.id.clone());
    let check = ctx.store.read(move |view| view.policy_check(&pull, &project)).await?;
    let (met, detail) = judged(ctx, config, plan, check.as_ref());
    Ok(Some(RequirementCheck { name: "policies_passed".to_owned(), met, detail }))
}

/// Returns true if the policy check of a plan permits its apply, and the reason as text for people.
fn judged(
    ctx: &Context,
    config: &ProjectConfig,
    plan: &PlanRecord,
    check: Option<&PolicyCheckRecord>,
) -> (bool, String) {
    let command = |name| command_for(&ctx.rendering.executable, name, &config.id, &[]);
    let again = |why: &str| (false, format!("{why}: `{}`", command(CommandName::Plan)));
    let Some(check) = check.filter(|check| check.plan == plan.id) else {
        return again("this plan was not checked against the policies, so plan again");
    };
    if check.policies_digest != digest(ctx, config) {
        return again("the policy sets have changed since this plan was checked, so plan again");
    }
    let report = check.report(&rules(ctx, check));
    let unmet: Vec<String> = report
        .sets
        .iter()
        .filter(|set| !set.is_met())
        .map(|set| {
            let who = match set.owners.as_str() {
                "" => "and nobody may approve".to_owned(),
                owners => {
                    let approvals = if set.required == 1 { "approval" } else { "approvals" };
                    format!("and has {} of {} {approvals}; {owners} may approve", set.approvals, set.required)
                }
            };
            format!("`{}` did not pass, {who}", set.name)
        })
        .collect();
    match unmet.is_empty() {
        true => (true, "policies have passed or are approved".to_owned()),
        false => (false, format!("{}: `{}`", unmet.join("; "), command(CommandName::ApprovePolicies))),
    }
}

/// Returns `atlantis/policy_check` for the head of this command from the records; `None` if nothing of the head was checked.
pub(super) async fn status(ctx: &Context, work: &CommandRun) -> Result<Option<CommitStatus>> {
    if !ctx.settings.enable_policy_checks {
        return Ok(None);
    }
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let (checks, plans, statuses) = ctx
        .store
        .read(move |view| Ok((view.policy_checks(&pull)?, view.plans(&pull)?, view.project_statuses(&pull)?)))
        .await?;
    let current: HashSet<&PlanId> = plans.iter().map(|plan| &plan.id).collect();
    // The apply consumed its plan. A refused apply leaves it.
    let applied: HashSet<&ProjectId> = statuses
        .iter()
        .filter(|status| {
            matches!(status.state, ProjectState::Applied | ProjectState::AppliedInPart | ProjectState::ApplyErrored)
        })
        .filter(|status| plans.iter().all(|plan| plan.project != status.project))
        .map(|status| &status.project)
        .collect();
    let of_head: Vec<&PolicyCheckRecord> = checks.iter().filter(|check| check.head == head).collect();
    let met = |check: &&&PolicyCheckRecord| {
        let counts = current.contains(&check.plan) || applied.contains(&check.project);
        counts && check.report(&rules(ctx, check)).is_met()
    };
    let (all, met) = (of_head.len(), of_head.iter().filter(met).count());
    Ok((all > 0).then(|| ctx.statuses.policies(met, all)))
}
