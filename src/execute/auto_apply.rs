//! Automatic applies (`auto_apply`): the plans that are applied without a command, and the person in whose name.
//!
//! The record of a plan says that it is applied automatically. What may make that due records a delivery, in the transaction of its own
//! facts where it has any. The apply is a command like that of a comment: it checks all requirements, and its plans are used once.

use super::command_run::CommandRun;
use super::context::Context;
use super::permissions::{self, Planner};
use crate::config::{ProjectConfig, Requirement};
use crate::domain::command::{CommandName, Trigger};
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Delivery, JobState, PlanRecord, ProjectState, Run};
use crate::domain::{AutoApply, AutoApplyEvent, CommitSha, Login, PullId, PullRequest};
use crate::reply::duplicates::HostOrStateError;
use crate::store::{Tx, View};
use crate::vcs::{Review, ReviewVerdict, is_since};
use anyhow::Result;

/// Person in whose name plans are applied automatically.
pub(crate) enum Applier {
    /// This person caused it, and may apply; unknown only if the rules need no name.
    Person(Login),
    /// None of those who caused it may apply; the text is the reason.
    Nobody(String),
    /// It is not due, for this reason.
    NotYet(String),
}

/// Returns the value that the record of a new plan gets. A plan with arguments of a person, of a part of the project, or after an apply
/// of this head that failed, is applied by a person only.
pub(super) async fn of_plan(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    plan: &PlanRecord,
) -> Result<AutoApply> {
    let is_of_pull = work.after_merge.is_none() && !work.pull.id.is_branch();
    let is_as_usual = work.command.extra_args.is_empty() && plan.part.is_none();
    // An override was for a command that a person gives.
    let is_guarded = !plan.guards.is_empty();
    if config.auto_apply.is_never()
        || plan.deleted
        || !is_of_pull
        || !is_as_usual
        || is_guarded
        || plan.has_nothing_to_do()
    {
        return Ok(AutoApply::Never);
    }
    let (pull, project, head) = (plan.pull.clone(), plan.project.clone(), plan.head.clone());
    let is_stopped = ctx.store.read(move |view| {
        let last = view.last_job_of(&pull, &project, CommandName::Apply.as_str())?;
        let has_failed = last.is_some_and(|job| job.head == head && job.state != JobState::Succeeded);
        Ok(has_failed || is_cancelled(view, &pull, &head)?)
    });
    Ok(if is_stopped.await? { AutoApply::Never } else { config.auto_apply })
}

fn is_cancelled(view: &View<'_>, pull: &PullId, head: &CommitSha) -> Result<bool> {
    Ok(view.auto_apply_cancelled(pull)?.as_deref() == Some(head.as_str()))
}

/// Returns the plans of this head that are applied automatically once that is due.
pub(crate) fn awaited(view: &View<'_>, pull: &PullId, head: &CommitSha) -> Result<Vec<PlanRecord>> {
    let mut plans = view.plans(pull)?;
    plans.retain(|plan| plan.head == *head && !plan.auto_apply.is_never());
    if !plans.is_empty() && is_cancelled(view, pull, head)? {
        plans.clear();
    }
    Ok(plans)
}

/// Records, in the transaction of a run's end, that automatic applies may be due. An automatic apply that applied nothing records nothing,
/// so that it does not follow itself. One that was answered as a whole ends all of them: a person who reads why decides what is next.
pub(super) fn record_look(tx: &Tx<'_>, run: &Run, outcomes: &[JobOutcome]) -> Result<Option<Delivery>> {
    if run.trigger == Trigger::AutoApply && run.fault.is_some() && outcomes.is_empty() {
        for plan in awaited(tx, &run.pull, &run.head)? {
            tx.end_auto_apply(&plan.id)?;
        }
        return Ok(None);
    }
    let may_be_due = match run.command {
        CommandName::Plan | CommandName::ApprovePolicies => true,
        CommandName::Apply => outcomes.iter().any(|outcome| outcome.outcome.is_success()),
        _ => false,
    };
    if !may_be_due || awaited(tx, &run.pull, &run.head)?.is_empty() {
        return Ok(None);
    }
    let delivery = AutoApplyEvent::delivery(&run.pull, run.id.as_str());
    Ok(tx.accept_delivery(&delivery)?.then_some(delivery))
}

/// Returns the person in whose name these plans of the pull request are applied, as far as the state and few requests to the host tell that
/// it is due. Asks for everything else once the apply begins.
pub(crate) async fn applier(
    ctx: &Context,
    pull: &PullRequest,
    plans: &[PlanRecord],
) -> Result<Applier, HostOrStateError> {
    let because = if plans.is_empty() {
        Some("no plan is applied automatically".to_owned())
    } else if ctx.settings.disable_apply_all {
        Some("`--disable-apply-all` is set".to_owned())
    } else {
        let pull = pull.clone();
        ctx.store.read(move |view| blocker(view, &pull)).await?
    };
    if let Some(because) = because {
        return Ok(Applier::NotYet(because));
    }
    let reviews = ctx.hosts.for_repo(&pull.id.repo)?.reviews(pull).await?;
    let mut people: Vec<Login> =
        plans.iter().flat_map(|plan| approvers(&reviews, &pull.author, plan)).cloned().collect();
    let is_approved = !people.is_empty();
    if plans.iter().any(|plan| plan.auto_apply == AutoApply::Met) {
        let (id, head) = (pull.id.clone(), pull.head.commit.clone());
        people.extend(ctx.store.read(move |view| view.pushers(&id, &head)).await?);
    } else if !is_approved {
        return Ok(Applier::NotYet("nobody has approved its plans".to_owned()));
    }
    let projects: Vec<_> = plans.iter().map(|plan| plan.project.clone()).collect();
    Ok(match permissions::applier(ctx, pull, &projects, people).await {
        Planner::Person(person) => Applier::Person(person),
        Planner::Nobody(because) if is_approved || !waits_for_approval(ctx, pull) => Applier::Nobody(because),
        Planner::Nobody(because) => Applier::NotYet(because),
    })
}

/// Returns true if the server's rules require an approval, whose author may be permitted to apply.
fn waits_for_approval(ctx: &Context, pull: &PullRequest) -> bool {
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    rules.approvals.is_some() || rules.apply_requirements.contains(&Requirement::Approved)
}

/// Returns the reason in the state for which nothing of a pull request is applied automatically now.
fn blocker(view: &View<'_>, pull: &PullRequest) -> Result<Option<String>> {
    let (id, head) = (&pull.id, &pull.head.commit);
    let is_in_order = |state: ProjectState| {
        matches!(state, ProjectState::Planned | ProjectState::PlannedNoChanges | ProjectState::Applied)
    };
    Ok(if view.apply_lock()?.is_some() {
        Some("the apply lock is set".to_owned())
    } else if let Some(freeze) = view.freeze_of(&id.repo)? {
        Some(freeze.describe())
    } else if view.fault(id)?.is_some() || !view.is_planned_at(id, head)? {
        Some("not all of it is planned".to_owned())
    } else {
        let statuses = view.project_statuses(id)?;
        let open = statuses.iter().find(|status| status.head != *head || !is_in_order(status.state));
        open.map(|status| format!("{}: {}", status.project.label(), status.state.title()))
    })
}

/// Returns the people who approved what a plan shows: its head, and after it was made if the host tells the time. Approvals of the author
/// and of people without write access do not count.
pub(super) fn approvers<'a>(
    reviews: &'a [Review],
    author: &'a Login,
    plan: &'a PlanRecord,
) -> impl Iterator<Item = &'a Login> {
    let counts = move |review: &&Review| {
        review.verdict == ReviewVerdict::Approved
            && review.can_write
            && !review.user.is(author)
            && review.commit.as_ref() == Some(&plan.head)
            && review.at.is_none_or(|at| is_since(at, plan.made))
    };
    reviews.iter().filter(counts).map(|review| &review.user)
}

/// Returns the remark below plans that are applied automatically; `None` if none of these is.
pub(super) async fn remark(ctx: &Context, work: &CommandRun, outcomes: &[JobOutcome]) -> Result<Option<String>> {
    if work.after_merge.is_some() || work.pull.draft {
        return Ok(None);
    }
    let (id, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let mut plans = ctx.store.read(move |view| awaited(view, &id, &head)).await?;
    let is_of_run = |plan: &PlanRecord| {
        let mut planned = outcomes.iter().filter(|outcome| matches!(outcome.outcome, Outcome::Planned(_)));
        planned.any(|outcome| outcome.project == plan.project)
    };
    plans.retain(is_of_run);
    let of = |when: AutoApply| {
        let labels = plans.iter().filter(move |plan| plan.auto_apply == when);
        labels.map(|plan| format!("`{}`", plan.project.label())).collect::<Vec<_>>().join(", ")
    };
    let told = [(of(AutoApply::Approved), "somebody approves"), (of(AutoApply::Met), "all requirements are met")];
    let told: Vec<String> = (told.into_iter().filter(|(labels, _)| !labels.is_empty()))
        .map(|(labels, event)| format!("To be applied automatically when {event}: {labels}."))
        .collect();
    let prevent = format!("To prevent that: `{} cancel`", ctx.rendering.executable);
    Ok((!told.is_empty()).then(|| format!("{} {prevent}", told.join(" "))))
}

/// Returns true if the command is an automatic apply.
pub(super) fn is_automatic(work: &CommandRun) -> bool {
    work.command.trigger == Trigger::AutoApply
}

#[cfg(test)]
mod tests {
    use super::super::apply::bound::tests::plan;
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn an_approval_counts_for_the_plan_that_it_saw() {
        let made = Timestamp::from_second(100).unwrap();
        let plan = PlanRecord { made, ..plan() };
        let review = |user: &str, at: Option<i64>| Review {
            user: user.into(),
            can_write: true,
            verdict: ReviewVerdict::Approved,
            commit: Some(plan.head.clone()),
            at: at.map(|second| Timestamp::from_second(second).unwrap()),
        };
        let reviews = [
            review("bob", Some(100)),
            review("untimed", None),
            review("early", Some(99)),
            review("author", Some(101)),
            Review { can_write: false, ..review("outsider", Some(101)) },
            Review { commit: Some("other".into()), ..review("behind", Some(101)) },
            Review { commit: None, ..review("unknown", Some(101)) },
            Review { verdict: ReviewVerdict::ChangesRequested, ..review("critic", Some(101)) },
        ];
        let author = Login::from("Author");
        let counted: Vec<_> = approvers(&reviews, &author, &plan).map(Login::as_str).collect();
        assert_eq!(counted, ["bob", "untimed"]);
    }
}
