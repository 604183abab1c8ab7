//! Plans after the merge, compared with those that were approved before it: what changes the same is applied without a second look.

use super::super::{CommandAnswer, CommandRun, Context};
use crate::config::ProjectConfig;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::{Delivery, PlanRecord};
use crate::domain::{FollowUp, ProjectId};
use crate::schedule::Schedule;
use anyhow::Result;

/// How often an apply plans again because the base branch has moved once more.
const MAX_ROUNDS: u8 = 5;

/// What a plan after the merge comes to.
#[derive(Default)]
pub(in crate::execute) struct Compared {
    /// The apply of what changes the same as before.
    pub(in crate::execute) follows: Option<Delivery>,
    /// What people read of it.
    pub(in crate::execute) remarks: Vec<String>,
}

/// Why a project is not applied at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftBecause {
    /// It changes something else than before the merge.
    Differs,
    /// Nobody knows what it changes, or what it changed.
    Unknown,
    /// It is to be applied by a person.
    NotAsked,
}

/// Compares what was planned after the merge, in the order of the schedule: what is applied later waits for what people have to look at.
pub(in crate::execute) async fn compared(
    ctx: &Context,
    work: &CommandRun,
    schedule: &Schedule,
    outcomes: &[JobOutcome],
) -> Result<Compared> {
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
    let mut sorted = Sorted { guarded, owners: &owners, plans: &plans, same: Vec::new(), shown: Vec::new() };
    for group in &schedule.groups {
        let stay = group.iter().filter(|config| sorted.stays(config, outcomes)).count();
        if stay > 0 {
            break;
        }
    }
    let before = format!("the one of {}, before the merge", after.pull.head.commit.short());
    let mut remarks = vec![planned];
    let names = |why| listed(sorted.shown.iter().filter(|(_, shown)| *shown == why).map(|(project, _)| project));
    remarks.extend(
        names(LeftBecause::Differs).map(|names| format!("{names}: the plan differs from {before}. Look at it.")),
    );
    remarks.extend(
        names(LeftBecause::Unknown)
            .map(|names| format!("{names}: nobody knows whether the plan changes the same as {before}. Look at it.")),
    );
    remarks.extend((!sorted.shown.is_empty()).then_some(by_hand));
    if guarded.round >= MAX_ROUNDS && !sorted.same.is_empty() {
        remarks.push(format!("The base branch has moved {MAX_ROUNDS} times since this was to be applied, so nothing is applied by itself."));
        return Ok(Compared { follows: None, remarks });
    }
    let names = listed(sorted.same.iter());
    remarks.extend(names.map(|names| format!("{names}: the plan changes the same as {before}. It is applied now.")));
    let follow_up = FollowUp { projects: sorted.same, round: guarded.round + 1, ..guarded.clone() };
    let follows = (!follow_up.projects.is_empty()).then(|| follow_up.delivery(&format!("apply:{}", work.run.id)));
    Ok(Compared { follows, remarks })
}

fn listed<'a>(projects: impl Iterator<Item = &'a ProjectId>) -> Option<String> {
    let names: Vec<String> = projects.map(|project| format!("`{}`", project.label())).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

struct Sorted<'a> {
    guarded: &'a FollowUp,
    owners: &'a [ProjectOwner],
    plans: &'a [PlanRecord],
    same: Vec<ProjectId>,
    shown: Vec<(ProjectId, LeftBecause)>,
}

impl Sorted<'_> {
    /// Sorts one project that is planned; whether it stays for people.
    fn stays(&mut self, config: &ProjectConfig, outcomes: &[JobOutcome]) -> bool {
        let is_empty =
            |outcome: &JobOutcome| matches!(&outcome.outcome, Outcome::Planned(planned) if planned.summary.no_changes);
        if outcomes.iter().any(|outcome| outcome.project == config.id && is_empty(outcome)) {
            return false;
        }
        let plan = self.plans.iter().find(|plan| plan.project == config.id);
        let owner = self.owners.iter().find(|owner| owner.project == config.id);
        let approved = owner.and_then(|owner| owner.approved.as_ref());
        let is_known =
            plan.is_some_and(|plan| plan.changes.is_some()) && approved.is_some_and(|seen| seen.changes.is_some());
        let is_same = plan.is_some_and(|plan| owner.is_some_and(|owner| owner.approves(plan)));
        let is_asked = self.guarded.command.trigger != Trigger::Merge || config.applies_on_merge();
        let shown = match (is_known, is_same) {
            _ if !is_asked => LeftBecause::NotAsked,
            (_, true) => {
                self.same.push(config.id.clone());
                return false;
            }
            (true, false) => LeftBecause::Differs,
            (false, false) => LeftBecause::Unknown,
        };
        self.shown.push((config.id.clone(), shown));
        true
    }
}

/// Whether this apply takes a plan only where the owner says that it changes the same as before the merge.
pub(in crate::execute) fn is_guarded(work: &CommandRun) -> bool {
    work.command.name == CommandName::Apply && work.after_merge.as_ref().is_some_and(|after| after.guarded.is_some())
}

/// The refusal of a plan that such an apply does not take.
pub(in crate::execute) fn guard(plan: &PlanRecord, owners: &[ProjectOwner]) -> Option<Failure> {
    let because = "it does not change the same as the plan before the merge".to_owned();
    (!owners.iter().any(|owner| owner.approves(plan))).then_some(Failure::StalePlan { because })
}

/// What such an apply says below its results, where not all of it succeeded.
pub(in crate::execute) fn remark(ctx: &Context, work: &CommandRun) -> Option<String> {
    is_guarded(work).then(|| {
        format!("It is not tried again by itself. To apply what is left: `{} apply`", ctx.rendering.executable)
    })
}

/// The answer to an apply that was to take only what changes the same as before the merge, where nothing of that is left.
pub(in crate::execute) fn nothing_same(ctx: &Context) -> CommandAnswer {
    let message = format!(
        "Nothing was applied by itself: no plan of this commit changes the same as one before the merge. Look at the plans, or make new \
         ones. To apply them: `{} apply`",
        ctx.rendering.executable
    );
    CommandAnswer::refused(Fault { reason: Reason::StalePlan, message, output: String::new() })
}
