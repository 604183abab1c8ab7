//! Notices of a command to other pull requests: commit statuses of their invalidated plans, one comment for each cause, and one for each
//! pull request that changes the same projects.

use super::answer::reply_without_run;
use super::context::Context;
use super::plan::remove_plan_files;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Outcome, Reason};
use crate::domain::ownership::{InvalidatedPlan, InvalidationCause, OwnerState};
use crate::domain::policies::PolicyCheckRecord;
use crate::domain::reply::Message;
use crate::domain::state::{Effect, Job, PlanRecord};
use crate::domain::waiting::PlannedAgain;
use crate::domain::{JobId, ProjectId, PullId, RunId};
use crate::locks::{Consequences, LockEvent};
use crate::notifications::{ApprovalsLapsed, JobFailure, Notifier};
use crate::render::RenderOptions;
use crate::render::statuses::Statuses;
use crate::reply::comments;
use crate::store::{Tx, View};
use crate::vcs::Hosts;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of other pull requests changing the same project that one pull request is notified of.
const MAX_TOLD: usize = 5;

/// Enqueues notices to other pull requests in the transaction of the event, and posts them after its commit.
#[derive(Clone)]
pub(crate) struct NoticeWriter {
    hosts: Hosts,
    rendering: RenderOptions,
    statuses: Statuses,
    notifier: Notifier,
    after: Arc<Mutex<AfterCommit>>,
}

/// Work to do after the commit of the transaction.
#[derive(Default)]
struct AfterCommit {
    told: Vec<PullId>,
    dropped: Vec<PlanRecord>,
}

impl NoticeWriter {
    /// Creates a writer for one transaction.
    pub(crate) fn new(ctx: &Context) -> NoticeWriter {
        NoticeWriter {
            hosts: ctx.hosts.clone(),
            rendering: ctx.rendering.clone(),
            statuses: ctx.statuses.clone(),
            notifier: ctx.notifier.clone(),
            after: Arc::default(),
        }
    }

    /// Records an event, and enqueues its notices.
    pub(crate) fn record(&self, tx: &Tx<'_>, event: &LockEvent) -> Result<Consequences> {
        let follows = tx.record_lock_event(event)?;
        self.enqueue(tx, &follows)?;
        Ok(follows)
    }

    /// Enqueues the notices of an event.
    pub(crate) fn enqueue(&self, tx: &Tx<'_>, follows: &Consequences) -> Result<()> {
        let mut told = post_invalidated(tx, &self.statuses, &follows.invalidated)?;
        for ((pull, _, again), (projects, cause)) in by_cause(&follows.invalidated) {
            let (cause, again) = (cause.clone(), again.clone());
            self.say(tx, pull, Message::PlansInvalidated { projects, cause, again })?;
        }
        for (pull, message) in &follows.others {
            self.say(tx, pull, message.clone())?;
            told.push(pull.clone());
        }
        let mut after = self.after.lock().unwrap_or_else(PoisonError::into_inner);
        after.told.extend(told);
        after.dropped.extend(follows.invalidated.iter().map(|invalidated| invalidated.plan.clone()));
        Ok(())
    }

    /// Enqueues, in mode `strict`, notices to the other pull requests that change a project which this run has planned: once for each two
    /// pull requests and project. The comment of the plan informs its own pull request.
    pub(super) fn enqueue_overlaps(&self, tx: &Tx<'_>, pull: &PullId, run: &RunId) -> Result<()> {
        let jobs: HashSet<JobId> = tx.jobs_of(run)?.into_iter().map(|job| job.id).collect();
        let is_of_run = |plan: &PlanRecord| plan.inputs.is_some() && jobs.contains(&plan.job);
        let mut told: BTreeMap<PullId, Vec<ProjectId>> = BTreeMap::new();
        for project in tx.plans(pull)?.into_iter().filter(is_of_run).map(|plan| plan.project) {
            if !changes(tx, pull, &project)? {
                continue;
            }
            for other in concerned(tx, pull, &project)? {
                tx.note_other(pull, &project, other.number, MAX_TOLD)?;
                if tx.note_other(&other, &project, pull.number, MAX_TOLD)? {
                    told.entry(other).or_default().push(project.clone());
                }
            }
        }
        for (other, projects) in &told {
            self.say(tx, other, Message::AlsoChanged { projects: projects.clone(), pull: pull.clone() })?;
        }
        self.after.lock().unwrap_or_else(PoisonError::into_inner).told.extend(told.into_keys());
        Ok(())
    }

    /// Enqueues a notice to each other pull request whose plans were dropped because they were made with outputs of `on`.
    pub(super) fn enqueue_discarded(
        &self,
        tx: &Tx<'_>,
        pull: &PullId,
        on: &ProjectId,
        discarded: &[PlanRecord],
    ) -> Result<()> {
        let mut others: BTreeMap<&PullId, Vec<ProjectId>> = BTreeMap::new();
        for plan in discarded.iter().filter(|plan| plan.pull != *pull) {
            others.entry(&plan.pull).or_default().push(plan.project.clone());
        }
        for (other, projects) in others {
            self.say(tx, other, Message::DependentPlansDiscarded { projects, on: on.clone(), number: pull.number })?;
        }
        Ok(())
    }

    /// After the commit, posts the statuses of a plan that is not recorded any more, and removes its files.
    pub(super) fn plan_dropped(&self, plan: &PlanRecord) {
        let mut after = self.after.lock().unwrap_or_else(PoisonError::into_inner);
        after.told.push(plan.pull.clone());
        after.dropped.push(plan.clone());
    }

    /// Records the notifications of a plan that broke. That of an apply comes with its end.
    pub(super) fn notify_of_plan(&self, tx: &Tx<'_>, job: &Job) -> Result<()> {
        let has_failed = job.outcome.as_ref().is_some_and(|outcome| {
            outcome.command == CommandName::Plan
                && matches!(&outcome.outcome, Outcome::Errored(fault) if is_failure(fault.reason))
        });
        if !has_failed || job.pull.is_branch() {
            return Ok(());
        }
        let Some(pull) = tx.pull(&job.pull)? else { return Ok(()) };
        let (id, project) = (job.id.as_str(), job.project.as_ref());
        let (command, user, reason) = (CommandName::Plan, &job.user, job.summary.as_str());
        let failure = JobFailure { id, command, project, pull: &pull, user, reason };
        self.notifier.of_failure(&failure).iter().try_for_each(|one| tx.notify(one))
    }

    /// Records the notifications of the policy approvals that end with this check, which replaces an earlier one.
    pub(super) fn notify_of_check(&self, tx: &Tx<'_>, job: &Job, check: &PolicyCheckRecord) -> Result<()> {
        let Some(earlier) = tx.policy_check(&check.pull, &check.project)? else { return Ok(()) };
        let lapsed = check.lapsed_since(&earlier).into_iter();
        let approvals: Vec<String> =
            lapsed.map(|lapsed| format!("{} of policy set {}", lapsed.by.shown(), lapsed.set)).collect();
        let Some(pull) = tx.pull(&check.pull)?.filter(|_| !approvals.is_empty()) else { return Ok(()) };
        let lapsed = ApprovalsLapsed {
            id: job.id.as_str(),
            pull: &pull,
            project: Some(&check.project),
            approvals,
            because: "a new plan has findings that these approvals do not cover",
        };
        self.notifier.of_lapsed(&lapsed).iter().try_for_each(|one| tx.notify(one))
    }

    pub(super) fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    fn say(&self, tx: &Tx<'_>, pull: &PullId, message: Message) -> Result<()> {
        tx.post(pull, comments::effects_on(&self.hosts, &self.rendering, &reply_without_run(pull, message)))
    }

    /// Posts the notices and removes the files of dropped plans. To be called once the transaction is committed.
    pub(crate) async fn after_commit(&self, ctx: &Context) {
        let after = std::mem::take(&mut *self.after.lock().unwrap_or_else(PoisonError::into_inner));
        after.told.iter().for_each(|pull| ctx.outbox.wake(pull));
        remove_plan_files(ctx, &after.dropped).await;
    }
}

/// Returns true if something broke, and neither a rule nor a person has stopped it.
pub(super) fn is_failure(reason: Reason) -> bool {
    use Reason::{Apply, Config, Init, Internal, Plan, Timeout};
    matches!(reason, Init | Plan | Apply | Timeout | Config | Internal)
}

/// Returns true if a pull request, as it was planned last, changes a project in mode `strict`.
pub(super) fn changes(view: &View<'_>, pull: &PullId, project: &ProjectId) -> Result<bool> {
    Ok(view
        .changed_projects(pull)?
        .is_some_and(|changed| changed.strict().any(|changed| changed.is_same_state(project))))
}

/// Returns the open pull requests besides this one that change a project, and have planned it or own it.
fn concerned(view: &View<'_>, pull: &PullId, project: &ProjectId) -> Result<BTreeSet<PullId>> {
    let mut owners = view.owners_of_state(&pull.repo, project)?;
    owners.retain(|owner| matches!(owner.state, OwnerState::Planned | OwnerState::AppliedUnmerged));
    let mut plans = view.plans_of_state(&pull.repo, project)?;
    plans.retain(|plan| plan.inputs.is_some());
    let known = owners.into_iter().map(|owner| owner.holder.pull).chain(plans.into_iter().map(|plan| plan.pull));
    let mut concerned = BTreeSet::new();
    for other in known.filter(|other| other != pull && !other.is_branch()) {
        if changes(view, &other, project)? {
            concerned.insert(other);
        }
    }
    Ok(concerned)
}

/// Key of a group of invalidated plans: pull request, cause, and automatic re-plan.
type InvalidationGroup<'a> = (&'a PullId, String, &'a PlannedAgain);

/// Groups the projects of invalidated plans by the comment that names them.
fn by_cause(invalidated: &[InvalidatedPlan]) -> BTreeMap<InvalidationGroup<'_>, (Vec<ProjectId>, &InvalidationCause)> {
    let mut grouped: BTreeMap<InvalidationGroup<'_>, (Vec<ProjectId>, &InvalidationCause)> = BTreeMap::new();
    for InvalidatedPlan { plan, cause, again } in invalidated {
        let group = grouped.entry((&plan.pull, format!("{cause:?}"), again)).or_insert_with(|| (Vec::new(), cause));
        group.0.push(plan.project.clone());
    }
    grouped
}

/// Enqueues the commit statuses of invalidated plans, and returns their pull requests.
pub(super) fn post_invalidated(
    tx: &Tx<'_>,
    statuses: &Statuses,
    invalidated: &[InvalidatedPlan],
) -> Result<Vec<PullId>> {
    let mut told = Vec::new();
    for InvalidatedPlan { plan, cause, .. } in invalidated {
        let status =
            |project| Effect::Status { commit: plan.head.clone(), status: statuses.plan_invalidated(project, cause) };
        tx.post(&plan.pull, [status(Some(&plan.project))])?;
        if !told.contains(&plan.pull) {
            tx.post(&plan.pull, [status(None)])?;
            told.push(plan.pull.clone());
        }
    }
    Ok(told)
}
