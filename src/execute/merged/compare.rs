//! Compares plans after the merge with those that were approved before it. Plans with the same changes are applied without another review.

use super::super::answer::CommandAnswer;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::prepare::{self, Prepared, ScheduleScope, Stop};
use crate::config::ProjectConfig;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::plan_digest::{ChangesDigest, SeenPlan};
use crate::domain::state::{Delivery, PlanRecord};
use crate::domain::{FollowUp, ProjectId};
use crate::schedule::Schedule;
use anyhow::Result;

/// Maximum number of times that an apply plans again because the base branch has moved.
const MAX_ROUNDS: u8 = 5;

/// Result of the comparison for a plan after the merge.
#[derive(Default)]
pub(in crate::execute) struct Compared {
    /// The apply of plans with the same changes as before.
    pub(in crate::execute) follows: Option<Delivery>,
    /// Remarks for people.
    pub(in crate::execute) remarks: Vec<String>,
}

/// Reason for which a project is not applied at once.
#[derive(Clone, PartialEq, Eq)]
enum LeftBecause {
    /// Its changes or inputs differ from those before the merge, in these parts as far as they are known.
    Differs(Vec<&'static str>),
    /// Its changes, or those before the merge, are unknown for this reason.
    Unknown(String),
    /// It is to be applied by a person.
    NotAsked,
}

/// Compares the plans after the merge, in the order of the schedule: later groups wait for projects that people have to review.
pub(in crate::execute) async fn compared(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    schedule: &Schedule,
    outcomes: &[JobOutcome],
) -> Result<Compared, Stop> {
    let Some(after) = &work.after_merge else { return Ok(Compared::default()) };
    let (branch, tip) = (&work.pull.base.branch, work.pull.head.commit.short());
    let planned = format!("The pull request is merged: this is planned at the tip of `{branch}`, {tip}.");
    let by_hand = format!("To apply it: `{} apply`", ctx.rendering.executable);
    let Some(guarded) = &after.guarded else {
        return Ok(Compared { follows: None, remarks: vec![format!("{planned} {by_hand}")] });
    };
    if outcomes.iter().any(|outcome| !outcome.outcome.is_success()) {
        return Ok(Compared {
            follows: None,
            remarks: vec![format!("{planned} As not all could be planned, nothing is applied.")],
        });
    }
    let id = work.pull.id.clone();
    let (owners, plans) = ctx.store.read(move |view| Ok((view.owners_of(&id)?, view.plans(&id)?))).await?;
    let not_asked = not_asked(ctx, work, prepared, guarded, &owners).await?;
    let (same, shown, later) = Default::default();
    let mut sorted = Sorted { guarded, owners: &owners, plans: &plans, same, shown, later };
    sorted.sort(schedule, outcomes, &not_asked);
    let before = format!("the one of {}, before the merge", after.pull.head.commit.short());
    let mut remarks = vec![planned];
    remarks.extend(sorted.of_shown(&before));
    remarks.extend(sorted.of_later(&not_asked, &ctx.rendering.executable));
    remarks.extend((!sorted.shown.is_empty()).then_some(by_hand));
    if guarded.round >= MAX_ROUNDS && !sorted.same.is_empty() {
        remarks.push(format!(
            "The base branch has moved {MAX_ROUNDS} times since this was to be applied, so nothing is applied automatically."
        ));
        return Ok(Compared { follows: None, remarks });
    }
    let names = listed(sorted.same.iter());
    remarks
        .extend(names.map(|names| format!("{names}: the plan has the same changes as {before}. It is applied now.")));
    let follow_up = FollowUp { projects: sorted.same, round: guarded.round + 1, ..guarded.clone() };
    let follows = (!follow_up.projects.is_empty()).then(|| follow_up.delivery(&format!("apply:{}", work.run.id)));
    Ok(Compared { follows, remarks })
}

fn listed<'a>(projects: impl Iterator<Item = &'a ProjectId>) -> Option<String> {
    let names: Vec<String> = projects.map(|project| format!("`{}`", project.label())).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the other unapplied projects of a pull request whose merge triggers the apply: a person has to apply them.
async fn not_asked(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    guarded: &FollowUp,
    owners: &[ProjectOwner],
) -> Result<Vec<ProjectConfig>, Stop> {
    if guarded.command.trigger != Trigger::Merge {
        return Ok(Vec::new());
    }
    let owed = owners.iter().filter(|owner| owner.state == OwnerState::MergedUnapplied).map(|owner| &owner.project);
    let others: Vec<ProjectId> = owed.filter(|project| !guarded.asks_for(project)).cloned().collect();
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let known = prepare::schedule(ctx, work, prepared, ScheduleScope::Known(&others)).await?;
    Ok(known.groups.concat())
}

struct Sorted<'a> {
    guarded: &'a FollowUp,
    owners: &'a [ProjectOwner],
    plans: &'a [PlanRecord],
    same: Vec<ProjectId>,
    shown: Vec<(ProjectId, LeftBecause)>,
    /// Projects of later groups than the `shown` ones, or than unapplied ones that nobody asked for.
    later: Vec<ProjectConfig>,
}

impl Sorted<'_> {
    /// Sorts the planned projects, group by group.
    fn sort(&mut self, schedule: &Schedule, outcomes: &[JobOutcome], not_asked: &[ProjectConfig]) {
        let is_empty = |outcome: &JobOutcome| matches!(&outcome.outcome, Outcome::Planned(planned) if planned.summary.no_changes && planned.part.is_none());
        let changes =
            |config: &&ProjectConfig| !outcomes.iter().any(|outcome| outcome.project == config.id && is_empty(outcome));
        let mut waits = false;
        for group in &schedule.groups {
            waits |= group.iter().any(|config| not_asked.iter().any(|before| is_before(before, config)));
            let changing = group.iter().filter(changes);
            match waits {
                true => self.later.extend(changing.cloned()),
                false => waits = changing.filter(|config| self.stays(config)).count() > 0,
            }
        }
    }

    /// Returns the remarks on projects that people have to review, one for each reason.
    fn of_shown(&self, before: &str) -> Vec<String> {
        let mut reasons: Vec<&LeftBecause> = Vec::new();
        for (_, why) in &self.shown {
            if !reasons.contains(&why) {
                reasons.push(why);
            }
        }
        let said = |why: &LeftBecause| {
            let names = listed(self.shown.iter().filter(|(_, shown)| shown == why).map(|(project, _)| project))?;
            match why {
                LeftBecause::Differs(parts) if parts.is_empty() => {
                    Some(format!("{names}: the plan differs from {before}. Review it."))
                }
                LeftBecause::Differs(parts) => {
                    Some(format!("{names}: the plan differs from {before}: {}. Review it.", parts.join(", ")))
                }
                LeftBecause::Unknown(because) => {
                    Some(format!("{names}: the server cannot compare the plan with {before}: {because}. Review it."))
                }
                LeftBecause::NotAsked => None,
            }
        };
        reasons.into_iter().filter_map(said).collect()
    }

    /// Returns the remark on projects of later groups.
    fn of_later(&self, not_asked: &[ProjectConfig], executable: &str) -> Option<String> {
        let names = listed(self.later.iter().map(|config| &config.id))?;
        let is_earlier = |before: &&ProjectConfig| self.later.iter().any(|config| is_before(before, config));
        let owed = not_asked.iter().filter(is_earlier).map(|config| &config.id);
        let before = listed(self.shown.iter().map(|(project, _)| project).chain(owed.clone()))?;
        let way_out = match owed.count() {
            0 => String::new(),
            // An apply takes only planned projects, which these are not.
            _ => format!(" To apply them in order: `{executable} plan`, then `{executable} apply`"),
        };
        Some(format!("{names}: not applied yet, as {before} comes first and is not applied.{way_out}"))
    }

    /// Sorts one planned project. Returns true if it is left for people.
    fn stays(&mut self, config: &ProjectConfig) -> bool {
        let plan = self.plans.iter().find(|plan| plan.project == config.id);
        let owner = self.owners.iter().find(|owner| owner.project == config.id);
        let approved = owner.and_then(|owner| owner.approved.as_ref());
        let is_same = plan.is_some_and(|plan| owner.is_some_and(|owner| owner.approves(plan)));
        let is_asked = self.guarded.command.trigger != Trigger::Merge || config.applies_on_merge();
        let shown = if !is_asked {
            LeftBecause::NotAsked
        } else if is_same {
            self.same.push(config.id.clone());
            return false;
        } else {
            match known_changes(plan, approved) {
                Ok((plan, approved)) => LeftBecause::Differs(approved.differing(plan)),
                Err(because) => LeftBecause::Unknown(because),
            }
        };
        self.shown.push((config.id.clone(), shown));
        true
    }
}

/// Returns the changes of a plan and those of the approved one, or the reason for which they are unknown.
fn known_changes<'a>(
    plan: Option<&'a PlanRecord>,
    approved: Option<&'a SeenPlan>,
) -> Result<(&'a ChangesDigest, &'a ChangesDigest), String> {
    let plan = plan.ok_or("there is no plan of it")?;
    let changes = plan
        .changes
        .as_ref()
        .ok_or_else(|| plan.incomparable.clone().unwrap_or_else(|| "its changes are not known".to_owned()))?;
    let approved = approved.ok_or("no plan of the head that was merged is known")?;
    let before = approved.changes.as_ref().ok_or_else(|| match &approved.incomparable {
        Some(because) => format!("of the plan before the merge: {because}"),
        None => "the changes of the plan before the merge are not known".to_owned(),
    })?;
    Ok((changes, before))
}

fn is_before(one: &ProjectConfig, other: &ProjectConfig) -> bool {
    one.execution_order_group < other.execution_order_group
}

/// Returns true if a failed order group stops the later ones regardless of the repo config, as nobody has asked for this apply.
pub(in crate::execute) fn stops_at_failed_group(work: &CommandRun) -> bool {
    is_guarded(work) && work.command.trigger == Trigger::Merge
}

/// Returns true if this apply takes only plans that, by the record of the owner, change the same as before the merge.
pub(in crate::execute) fn is_guarded(work: &CommandRun) -> bool {
    work.command.name == CommandName::Apply && work.after_merge.as_ref().is_some_and(|after| after.guarded.is_some())
}

/// Returns the refusal of a plan that such an apply does not take.
pub(in crate::execute) fn guard(plan: &PlanRecord, owners: &[ProjectOwner]) -> Option<Failure> {
    let because = "its changes differ from those of the plan before the merge".to_owned();
    (!owners.iter().any(|owner| owner.approves(plan))).then_some(Failure::StalePlan { because })
}

/// Returns the remark of such an apply below its results, if not all of it succeeded.
pub(in crate::execute) fn remark(ctx: &Context, work: &CommandRun) -> Option<String> {
    is_guarded(work).then(|| {
        format!("The server does not try it again. To apply what is left: `{} apply`", ctx.rendering.executable)
    })
}

/// Returns the answer to an apply that takes only plans with the same changes as before the merge, if there are none left.
pub(in crate::execute) fn nothing_same(ctx: &Context) -> CommandAnswer {
    let message = format!(
        "Nothing was applied automatically: no plan has the same changes as before the merge. Review the plans, then: `{} apply`",
        ctx.rendering.executable
    );
    CommandAnswer::refusal(Fault { reason: Reason::StalePlan, message, output: String::new() })
}
