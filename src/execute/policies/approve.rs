//! `approve_policies`: an owner of a policy set approves its findings for the plan that was checked, or clears the approvals.

use super::super::answer::CommandAnswer;
use super::super::command_run::{CommandRun, audit_entry};
use super::super::context::Context;
use super::super::permissions::MAX_ASKED;
use super::super::prepare::{self, Prepared, ScheduleScope, Stop};
use super::super::status_update::StatusUpdate;
use super::super::{job, permissions, recorder};
use super::{digest, rules, set_of, status};
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::policies::PolicySet;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::policies::{PolicyApproval, PolicyCheckRecord, PolicySetRecord};
use crate::domain::reply::Message;
use crate::domain::state::PlanRecord;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use std::collections::HashMap;

/// Records or clears approvals, project by project, and returns the answer.
pub(in super::super) async fn answer(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
) -> Result<CommandAnswer, Stop> {
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let (mut checks, plans) = ctx.store.read(move |view| Ok((view.policy_checks(&pull)?, view.plans(&pull)?))).await?;
    checks.retain(|check| check.head == head);
    if checks.is_empty() {
        let again = format!("{} plan", ctx.rendering.executable);
        let because = format!("No plan of this commit was checked against policies. Plan first: `{again}`");
        return Ok(CommandAnswer::message(Message::NoProjects { because }));
    }
    if let Some(fault) = unknown_set(ctx, work) {
        return Err(Stop::Fault(fault));
    }
    let ids: Vec<ProjectId> = checks.iter().map(|check| check.project.clone()).collect();
    let schedule = prepare::schedule(ctx, work, prepared, ScheduleScope::Planned(&ids)).await?;
    let mut owners = OwnerCheck { ctx, work, members: HashMap::new() };
    let mut outcomes = Vec::new();
    for config in schedule.groups.iter().flatten() {
        let plan = plans.iter().find(|plan| plan.project == config.id);
        let outcome = match checks.iter().find(|check| check.project == config.id) {
            Some(check) => owners.project(config, check, plan).await?,
            None => continue,
        };
        outcomes.push(outcome);
    }
    let status = status(ctx, work).await?.into_iter().collect();
    Ok(CommandAnswer::results(work, outcomes, Vec::new(), StatusUpdate::These(status)))
}

fn unknown_set(ctx: &Context, work: &CommandRun) -> Option<Fault> {
    let name = work.command.policy_set.as_ref().filter(|name| set_of(ctx, name).is_none())?;
    let known: Vec<String> = ctx.global.policies.sets.iter().map(|set| format!("`{}`", set.name)).collect();
    let message = format!("There is no policy set {name:?}; there are: {}", known.join(", "));
    Some(Fault { reason: Reason::Config, message, output: String::new() })
}

/// Decision on the approvals of one set.
#[derive(Default)]
struct SetDecision {
    /// Remark for people; empty for none.
    note: String,
    /// True if the person may not change them, for the reason in the note.
    refused: bool,
}

impl SetDecision {
    fn taken(note: String) -> SetDecision {
        SetDecision { note, refused: false }
    }

    fn refused(note: String) -> SetDecision {
        SetDecision { note, refused: true }
    }
}

/// The person who approves, and their known team memberships.
struct OwnerCheck<'a> {
    ctx: &'a Context,
    work: &'a CommandRun,
    members: HashMap<String, bool>,
}

impl OwnerCheck<'_> {
    async fn project(
        &mut self,
        config: &ProjectConfig,
        check: &PolicyCheckRecord,
        plan: Option<&PlanRecord>,
    ) -> Result<JobOutcome, Stop> {
        let (ctx, work) = (self.ctx, self.work);
        let refused = |failure| Ok(job::refused_outcome(work, config, Outcome::Failed(failure)));
        if let Some(failure) = permissions::denial(ctx, work, config).await? {
            return refused(failure);
        }
        if plan.is_none_or(|plan| plan.id != check.plan) || check.policies_digest != digest(ctx, config) {
            let again = command_for(&ctx.rendering.executable, CommandName::Plan, &config.id, &[]);
            let because = format!("The plan or the policy sets have changed since the check. Plan again: `{again}`");
            return refused(Failure::NoPlan { because });
        }
        let (mut after, mut decisions) = (check.clone(), Vec::new());
        for set in &mut after.sets {
            let asked = work.command.policy_set.as_ref().is_none_or(|name| *name == set.name);
            decisions.push(if asked { self.decide(set).await? } else { SetDecision::default() });
        }
        let refusals: Vec<&str> = decisions.iter().filter(|one| one.refused).map(|one| one.note.as_str()).collect();
        if after == *check && !refusals.is_empty() {
            let because = refusals.join(". ");
            return refused(Failure::Refused { reason: Reason::NotPermitted, because });
        }
        if after != *check {
            self.record(config, check, &after).await?;
        }
        let mut report = after.report(&rules(ctx, &after));
        for (set, decision) in report.sets.iter_mut().zip(decisions) {
            set.note = decision.note;
        }
        Ok(job::refused_outcome(work, config, Outcome::PoliciesApproved(report)))
    }

    /// Changes the approvals of a set, if the person may.
    async fn decide(&mut self, set: &mut PolicySetRecord) -> Result<SetDecision, Stop> {
        let (user, clears) = (self.work.command.user.clone(), self.work.command.clear_policy_approval);
        let Some(rule) = set_of(self.ctx, &set.name) else {
            let note = format!("`{}` is no policy set of the server, so nobody may approve it", set.name);
            return Ok(SetDecision::refused(note));
        };
        let missing = usize::try_from(rule.approve_count).unwrap_or(usize::MAX);
        if !clears && (set.passed || set.valid_approvals().count() >= missing) {
            return Ok(SetDecision::default());
        }
        if !self.work.command.is_of_host() {
            let note = format!(
                "{user} has no host login in `repos.yaml` (`people`), so the server cannot tell if {user} may approve `{}`",
                set.name
            );
            return Ok(SetDecision::refused(note));
        }
        if !self.owns(rule).await? {
            let owners = match super::owners(&rule.owners).as_str() {
                "" => "it has no owners".to_owned(),
                owners => format!("its owners are {owners}"),
            };
            let who = user.described();
            return Ok(SetDecision::refused(format!("{who} is not a policy owner of `{}`: {owners}", set.name)));
        }
        if clears {
            set.approvals.clear();
            return Ok(SetDecision::taken(format!("{user} withdrew earlier approvals")));
        }
        if rule.prevent_self_approve && user.is(&self.work.pull.author) {
            let note = format!("{user} is the author, who may not approve `{}` (`prevent_self_approve`)", set.name);
            return Ok(SetDecision::refused(note));
        }
        if set.valid_approvals().any(|approval| approval.by.is(&user)) {
            let note = format!("{user} has approved `{}` already: another owner has to", set.name);
            return Ok(SetDecision::refused(note));
        }
        set.approvals.retain(|approval| !approval.by.is(&user));
        set.approvals.push(PolicyApproval { by: user.clone(), at: Timestamp::now(), items: set.items.clone() });
        Ok(SetDecision::taken(format!("approved by {user}")))
    }

    /// Returns true if the person owns a set, by name or by team.
    async fn owns(&mut self, set: &PolicySet) -> Result<bool, Stop> {
        let (ctx, work) = (self.ctx, self.work);
        let login = work.command.user.as_str();
        if login.is_empty() {
            return Ok(false);
        }
        if set.owners.users.iter().any(|user| user.eq_ignore_ascii_case(login)) {
            return Ok(true);
        }
        for team in &set.owners.teams {
            let is_member = match self.members.get(team) {
                Some(known) => *known,
                None if self.members.len() >= MAX_ASKED => false,
                None => {
                    let told = ctx.teams.is_member(ctx, &work.pull.id.repo, team, login).await.map_err(|error| {
                        let message = permissions::unanswered(ctx, &work.command, &error);
                        Stop::Fault(Fault { reason: Reason::Internal, message, output: String::new() })
                    })?;
                    let is_member = told == Some(true);
                    self.members.insert(team.clone(), is_member);
                    is_member
                }
            };
            if is_member {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Commits the approvals, if the check has not changed since it was read.
    async fn record(
        &self,
        config: &ProjectConfig,
        before: &PolicyCheckRecord,
        after: &PolicyCheckRecord,
    ) -> Result<()> {
        let (before, after) = (before.clone(), after.clone());
        let cleared = self.work.command.clear_policy_approval;
        let entry = audit_entry(self.work, &config.id, if cleared { "taken back" } else { "approved" }.into());
        recorder::facts(self.ctx, move |tx| {
            let now = tx.policy_check(&after.pull, &after.project)?;
            ensure!(now.as_ref() == Some(&before), "the policies were checked again meanwhile");
            tx.put_policy_check(&after)?;
            tx.audit(&entry)
        })
        .await
    }
}
