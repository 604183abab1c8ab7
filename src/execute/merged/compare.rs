//! Plans after the merge, compared with those that were approved before it: what changes the same is applied without a second look.

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
#[derive(Clone, PartialEq, Eq)]
enum LeftBecause {
    /// It changes something else than before the merge, or is made of something else: in these parts, as far as they are known.
    Differs(Vec<&'static str>),
    /// Nobody knows what it changes, or what it changed, for this reason.
    Unknown(String),
    /// It is to be applied by a person.
    NotAsked,
}

/// Compares what was planned after the merge, in the order of the schedule: what is applied later waits for what people have to look at.
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

/// What else a pull request owes, where nobody asks for the apply: it has been merged with it, and is to be applied by a person.
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
    /// What comes after that, or after what nobody asked for, in the order of groups.
    later: Vec<ProjectConfig>,
}

impl Sorted<'_> {
    /// Sorts what is planned, group by group.
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

    /// What is said of what people have to look at, once for all that is left for one reason.
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
                    Some(format!("{names}: the plan differs from {before}. Look at it."))
                }
                LeftBecause::Differs(parts) => {
                    Some(format!("{names}: the plan differs from {before}: {}. Look at it.", parts.join(", ")))
                }
                LeftBecause::Unknown(because) => Some(format!(
                    "{names}: nobody knows whether the plan changes the same as {before}, because {because}. Look at it."
                )),
                LeftBecause::NotAsked => None,
            }
        };
        reasons.into_iter().filter_map(said).collect()
    }

    /// What is said of what comes later.
    fn of_later(&self, not_asked: &[ProjectConfig], executable: &str) -> Option<String> {
        let names = listed(self.later.iter().map(|config| &config.id))?;
        let is_earlier = |before: &&ProjectConfig| self.later.iter().any(|config| is_before(before, config));
        let owed = not_asked.iter().filter(is_earlier).map(|config| &config.id);
        let before = listed(self.shown.iter().map(|(project, _)| project).chain(owed.clone()))?;
        let way_out = match owed.count() {
            0 => String::new(),
            // An apply takes what is planned, and they are not.
            _ => format!(" To apply them in order: `{executable} plan`, then `{executable} apply`"),
        };
        Some(format!("{names}: not applied yet, as {before} comes first and is not applied.{way_out}"))
    }

    /// Sorts one project that is planned; whether it stays for people.
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
            match known(plan, approved) {
                Ok((plan, approved)) => LeftBecause::Differs(approved.differing(plan)),
                Err(because) => LeftBecause::Unknown(because),
            }
        };
        self.shown.push((config.id.clone(), shown));
        true
    }
}

/// What a plan changes, and what the approved one changed; or why that is not known.
fn known<'a>(
    plan: Option<&'a PlanRecord>,
    approved: Option<&'a SeenPlan>,
) -> Result<(&'a ChangesDigest, &'a ChangesDigest), String> {
    let plan = plan.ok_or("there is no plan of it")?;
    let changes = plan
        .changes
        .as_ref()
        .ok_or_else(|| plan.incomparable.clone().unwrap_or_else(|| "what it changes was not looked at".to_owned()))?;
    let approved = approved.ok_or("no plan of the head that was merged is known")?;
    let before = approved.changes.as_ref().ok_or_else(|| match &approved.incomparable {
        Some(because) => format!("of the plan before the merge: {because}"),
        None => "what the plan before the merge changes was not looked at".to_owned(),
    })?;
    Ok((changes, before))
}

fn is_before(one: &ProjectConfig, other: &ProjectConfig) -> bool {
    one.execution_order_group < other.execution_order_group
}

/// Whether an order group that fails stops the later ones, whatever the repo config says: nobody has asked for this apply.
pub(in crate::execute) fn stops_at_failed_group(work: &CommandRun) -> bool {
    is_guarded(work) && work.command.trigger == Trigger::Merge
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
