//! The `plan` command: its projects, their locks, and the answer. The plan of each project is in [`projects`].

mod closing;
mod deferred;
mod holds;
mod overlaps;
mod pointers;
mod projects;
mod recorded;
mod taken_up;
mod turn;

pub(super) use projects::{KeptPlan, MadePlan, PlanRun};
pub(crate) use turn::waited_for;

use super::answer::CommandAnswer;
use super::cancel::CancelReason;
use super::command_run::{CommandRun, Ended};
use super::context::Context;
use super::prepare::{self, Need, Prepared, ScheduleScope, Stop};
use super::requirements::PullFacts;
use super::status_update::StatusUpdate;
use super::{auto_apply, base_moves, discarded_approvals, hooks, merged, names, permissions, policies, recorder};
use crate::checkout::{Strategy, WorkingTree};
use crate::config::{LockMode, ProjectConfig};
use crate::domain::command::Trigger;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::domain::ownership::ChangedProjects;
use crate::domain::reply::Message;
use crate::domain::state::{LockHolder, PlanRecord, ProjectLock};
use crate::domain::waiting::{Blocked, PlaceInLine};
use crate::domain::{CommitSha, PlanId, ProjectId};
use crate::locks::{self, HeldProjects, LockEvent, WantedLock};
use crate::runner::local::archive_path;
use crate::schedule::Schedule;
use anyhow::Result;
use jiff::Timestamp;
use projects::OfPull;
use recorded::{FinishedProjects, RecordedSchedule, Resumed};
use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Maximum number of starts of a plan: it begins anew if a pull request is merged before it has its locks.
const MAX_STARTS: usize = 3;

pub(super) async fn run(ctx: &Context, work: &CommandRun) -> Result<Ended> {
    recorder::begin(ctx, work).await?;
    for starts_left in (0..MAX_STARTS).rev() {
        if let Some(ended) = start(ctx, work, starts_left).await? {
            return Ok(ended);
        }
        tracing::info!(pull = %work.pull.id, "the plan begins anew: another pull request was merged before it had its locks");
    }
    Ok(Ended::answered())
}

/// Runs a plan from the checkout on. If there are starts left, returns `None` if the base branch has moved in the meantime, by a merge
/// that releases locks.
async fn start(ctx: &Context, work: &CommandRun, starts_left: usize) -> Result<Option<Ended>> {
    let resumed = Resumed::load(ctx, work).await?;
    let activity = ctx.store.read(|view| view.last_activity()).await?;
    let prepared = match prepare::check_out(ctx, work, Need::Changes).await {
        Ok(prepared) => prepared,
        Err(stop) => return answer_stop(ctx, work, stop).await.map(Some),
    };
    if let Some(answer) = hooks::before(ctx, work, &prepared.tree).await? {
        return recorder::answer(ctx, work, answer).await.map(Some);
    }
    let answer = match plan(ctx, work, &prepared, resumed, (starts_left > 0).then_some(activity)).await {
        Ok(PlanEnd::Answer(answer)) => *answer,
        Ok(PlanEnd::Anew) => return Ok(None),
        Ok(PlanEnd::Stopped) => {
            let why = work.cancel.reason().cloned().unwrap_or(CancelReason::Shutdown);
            return recorder::stopped(ctx, work, why).await.map(Some);
        }
        Err(stop) => return answer_stop_with_hooks(ctx, work, &prepared, stop).await.map(Some),
    };
    hooks::answer_before(ctx, work, &prepared.tree, answer).await.map(Some)
}

/// End of a plan.
enum PlanEnd {
    Answer(Box<CommandAnswer>),
    /// It was stopped for a reason with which dispatch decides about its cause.
    Stopped,
    /// Its tree lacks changes that were merged before it had its locks.
    Anew,
}

impl From<CommandAnswer> for PlanEnd {
    fn from(answer: CommandAnswer) -> PlanEnd {
        PlanEnd::Answer(Box::new(answer))
    }
}

/// Records the answer to a command that ended before its projects began.
pub(super) async fn answer_stop(ctx: &Context, work: &CommandRun, stop: Stop) -> Result<Ended> {
    answer_stop_in(ctx, work, None, stop).await
}

/// Records the answer to a command that ended after its pre-workflow hooks, and runs those after it.
pub(super) async fn answer_stop_with_hooks(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    stop: Stop,
) -> Result<Ended> {
    answer_stop_in(ctx, work, Some(&prepared.tree), stop).await
}

/// Records the answer, and runs the post-workflow hooks in the tree if there is one. A command that no person cancelled gets no answer:
/// dispatch decides about its cause.
async fn answer_stop_in(ctx: &Context, work: &CommandRun, tree: Option<&WorkingTree>, stop: Stop) -> Result<Ended> {
    let answer = match stop {
        Stop::Fault(fault) => CommandAnswer::error(fault),
        Stop::Silent => CommandAnswer::new(None, StatusUpdate::AfterPlan),
        Stop::Cancelled => match work.cancel.reason().cloned() {
            Some(CancelReason::Person(user)) => CommandAnswer::error(Fault {
                reason: Reason::Cancelled,
                message: format!("Cancelled by {user} before any project began"),
                output: String::new(),
            }),
            why => return recorder::stopped(ctx, work, why.unwrap_or(CancelReason::Shutdown)).await,
        },
        Stop::Other(error) => return Err(error),
    };
    match tree {
        Some(tree) => hooks::answer_before(ctx, work, tree, answer).await,
        None => recorder::answer(ctx, work, answer).await,
    }
}

/// Plans in a tree. `activity`: the last one before the tree was made; absent if later merges are not checked.
async fn plan(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    resumed: Option<Resumed>,
    activity: Option<i64>,
) -> Result<PlanEnd, Stop> {
    let schedule = prepare::schedule(ctx, work, prepared, ScheduleScope::Plan).await?;
    let (schedule, refused) = permissions::split(ctx, work, schedule).await?;
    let facts = PullFacts::default();
    let is_whole = refused.outcomes.is_empty();
    let scope = PlanScope { schedule: &schedule, is_whole, base: &prepared.tree.base, activity };
    let causes = turn::causes(ctx, work).await?;
    let locked = lock(ctx, work, scope, resumed, &facts).await?;
    let Some((held, earlier, finished)) = locked else { return Ok(PlanEnd::Anew) };
    let free = turn::left_out(ctx, work, &schedule, &refused).await?;
    if schedule.groups.iter().all(Vec::is_empty) && refused.outcomes.is_empty() {
        return Ok(turn::told(free, nothing_to_plan(ctx, work, &schedule.remarks)).into());
    }
    let remarks = Mutex::new(schedule.remarks.iter().map(|remark| ctx.redactor.redact(remark)).collect());
    let pull = work.pull.id.clone();
    let others = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let planned = schedule.groups.iter().flatten().map(|config| &config.id);
    let dirs: BTreeSet<String> =
        planned.chain(others.iter().map(|status| &status.project)).map(|id| id.dir.clone()).collect();
    let dirs: Vec<String> = dirs.into_iter().collect();
    let inputs = base_moves::inputs(ctx, work, prepared, &schedule).await?;
    let running = taken_up::running(ctx, work).await?;
    let slots = if schedule.parallel_plan { ctx.settings.parallel_pool_size.max(1) } else { 1 };
    let run = PlanRun {
        ctx,
        work,
        prepared,
        facts: &facts,
        schedule: &schedule,
        slots: Semaphore::new(slots),
        of: OfPull {
            remarks: &remarks,
            earlier: &earlier,
            finished: &finished,
            running: &running,
            held: &held,
            dirs: &dirs,
            inputs: &inputs,
        },
    };
    let mut outcomes = run.run_all(&refused).await?;
    let overlaps = overlaps::find(ctx, work, &schedule).await?;
    outcomes.extend(permissions::record_unplanned(ctx, work, refused.outcomes).await?);
    let policies = policies::check::run(ctx, work, prepared, &schedule, slots, &outcomes).await?;
    let checked = policies.iter().flat_map(|checked| &checked.outcomes);
    let cancelled =
        outcomes.iter().chain(checked).any(|o| matches!(o.outcome, Outcome::Failed(Failure::Cancelled { .. })));
    if cancelled && !matches!(work.cancel.reason(), Some(CancelReason::Person(_))) {
        return Ok(PlanEnd::Stopped);
    }
    let mut remarks = remarks.into_inner().unwrap_or_else(PoisonError::into_inner);
    holds::set_reasons(ctx, work, &schedule, &overlaps.owned, policies.as_ref(), &mut outcomes).await?;
    remarks.extend(overlaps.remarks);
    remarks.extend(pointers::remark(ctx, work, prepared, &schedule).await);
    remarks.sort();
    remarks.dedup();
    let merged::Compared { follows, remarks: more } =
        merged::compared(ctx, work, prepared, &schedule, &outcomes).await?;
    remarks.extend(more);
    remarks.extend(turn::remarks(ctx, work, &free, &causes));
    remarks.extend(auto_apply::remark(ctx, work, &outcomes).await?);
    let answer = CommandAnswer::results(work, outcomes, remarks, StatusUpdate::AfterPlan);
    Ok(CommandAnswer { policies, follows, ..answer }.into())
}

/// Scope of a plan's locks.
struct PlanScope<'a> {
    schedule: &'a Schedule,
    /// True if the person may plan all that the pull request changes.
    is_whole: bool,
    /// The commit of the base branch that the tree was made of.
    base: &'a CommitSha,
    /// The last activity before the tree was made; absent if later merges are not checked.
    activity: Option<i64>,
}

/// Takes the locks. Returns the projects that others hold, the plans that this run replaces, and the projects that are finished already. A
/// new run first dismisses approvals, if so configured; a resumed one has done so. `None`: the tree lacks changes merged since `activity`.
async fn lock(
    ctx: &Context,
    work: &CommandRun,
    mut scope: PlanScope<'_>,
    resumed: Option<Resumed>,
    facts: &PullFacts,
) -> Result<Option<(HeldProjects, Vec<PlanRecord>, FinishedProjects)>, Stop> {
    let schedule = scope.schedule;
    closing::wait(ctx, work, schedule).await?;
    if let Some(resumed) = resumed.filter(|resumed| resumed.is_of(schedule)) {
        let (held, finished) = take_locks_again(ctx, work, schedule, resumed.finished).await?;
        return Ok(Some((held, resumed.recorded.earlier, finished)));
    }
    if schedule.groups.iter().any(|group| !group.is_empty()) {
        discarded_approvals::discard(ctx, work, facts).await?;
    }
    // A plan of the head alone does not include merged changes.
    if ctx.checkouts.strategy == Strategy::Branch || work.after_merge.is_some() {
        scope.activity = None;
    }
    loop {
        if let Some((held, earlier)) = take_locks(ctx, work, &scope).await? {
            return Ok(Some((held, earlier, Vec::new())));
        }
        scope.activity = Some(ctx.store.read(|view| view.last_activity()).await?);
        if base_moves::tip(ctx, &work.pull).await? != *scope.base {
            return Ok(None);
        }
    }
}

fn nothing_to_plan(ctx: &Context, work: &CommandRun, remarks: &[String]) -> CommandAnswer {
    let settings = &ctx.settings;
    let unasked = work.command.trigger.is_unasked();
    let quiet = settings.silence_vcs_status_no_projects || (unasked && settings.silence_vcs_status_no_plans);
    let statuses = match work.command.trigger {
        _ if quiet => StatusUpdate::Nothing,
        // This is about these projects only: others may be planned.
        Trigger::Replan => StatusUpdate::AfterPlan,
        _ => StatusUpdate::These(ctx.statuses.nothing_to_do()),
    };
    let nothing = "This pull request changes no project of this repository.".to_owned();
    let because = std::iter::once(nothing).chain(remarks.iter().map(|remark| ctx.redactor.redact(remark)));
    let mut answer =
        CommandAnswer::message(Message::NoProjects { because: because.collect::<Vec<String>>().join(" ") });
    if (unasked && remarks.is_empty()) || settings.silence_no_projects {
        answer.body = None;
    }
    answer.statuses = statuses;
    answer
}

/// Takes the locks of the unfinished projects for a resumed run: the pull request may have lost them meanwhile. Returns the projects that
/// others hold, and those that are still finished: their plans may have been dropped meanwhile, too.
async fn take_locks_again(
    ctx: &Context,
    work: &CommandRun,
    schedule: &Schedule,
    mut finished: FinishedProjects,
) -> Result<(HeldProjects, FinishedProjects)> {
    let pull = work.pull.id.clone();
    let mut projects: Vec<WantedLock> =
        schedule.groups.iter().flatten().map(|config| wanted_lock(ctx, work, config)).collect();
    recorder::facts(ctx, move |tx| {
        let plans: HashSet<PlanId> = tx.plans(&pull)?.into_iter().map(|plan| plan.id).collect();
        finished.retain(|(_, plan)| plans.contains(&plan.id));
        let done: HashSet<&ProjectId> = finished.iter().map(|(outcome, _)| &outcome.project).collect();
        projects.retain(|wanted| !done.contains(&wanted.lock.project));
        let held = tx.record_lock_event(&LockEvent::PlanGoesOn { projects })?.held_projects();
        Ok((held, finished))
    })
    .await
}

/// Commits the beginning of a plan: records the schedule, drops earlier plans, and releases and takes locks. Returns the projects that
/// others hold, and the dropped plans. Plans and locks of projects beyond a scope that is not whole stay. `None`, with nothing recorded, if
/// a lock to take may have been released by a merge after the scope's activity.
async fn take_locks(
    ctx: &Context,
    work: &CommandRun,
    scope: &PlanScope<'_>,
) -> Result<Option<(HeldProjects, Vec<PlanRecord>)>> {
    let PlanScope { schedule, is_whole, activity, .. } = *scope;
    let mut recorded = RecordedSchedule::new(work, schedule);
    let (run, pull, head) = (work.run.id.clone(), work.pull.id.clone(), work.pull.head.commit.clone());
    let everything = is_whole && work.command.target.is_all();
    let projects: Vec<WantedLock> =
        schedule.groups.iter().flatten().map(|config| wanted_lock(ctx, work, config)).collect();
    let is_empty = projects.is_empty();
    let activity = activity.filter(|_| projects.iter().any(WantedLock::is_locked_by_plan));
    let changed = changed_projects(ctx, work, schedule);
    let event = LockEvent::PlanBegins { pull: pull.clone(), projects, everything };
    let names = changed.iter().flat_map(|changed| &changed.projects).map(|changed| changed.project.clone()).collect();
    let taken = recorder::facts(ctx, move |tx| {
        if let Some(activity) = activity
            && tx.closed_since(&pull.repo, activity)?
        {
            return Ok(None);
        }
        let mut dropped = names::record(tx, &pull, names)?;
        let follows = tx.record_lock_event(&event)?;
        match &changed {
            Some(changed) => tx.put_changed_projects(changed)?,
            None => tx.forget_changed_projects(&pull)?,
        }
        if everything || tx.project_statuses(&pull)?.iter().any(|status| status.head != head) {
            tx.clear_project_statuses(&pull)?;
        }
        dropped.extend(follows.dropped());
        if !is_empty {
            recorded.earlier.clone_from(&dropped);
            tx.put_schedule(&run, &recorded)?;
        }
        Ok(Some((follows.held_projects(), dropped)))
    })
    .await?;
    remove_plan_files(ctx, taken.as_ref().map(|(_, dropped)| dropped.as_slice()).unwrap_or_default()).await;
    Ok(taken)
}

/// Returns the projects that the pull request changes, to be recorded for this head; `None` if nothing needs them.
fn changed_projects(ctx: &Context, work: &CommandRun, schedule: &Schedule) -> Option<ChangedProjects> {
    // In a repository with projects in mode `strict`, an empty list records that this head was checked.
    if schedule.changed.is_empty() && !work.rules.may_be_strict() {
        return None;
    }
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let mut projects = schedule.changed.clone();
    projects.iter_mut().for_each(|changed| changed.strict &= !ctx.settings.disable_repo_locking);
    Some(ChangedProjects { pull, head, projects })
}

fn holder(work: &CommandRun) -> LockHolder {
    LockHolder {
        pull: work.pull.id.clone(),
        title: work.pull.title.clone(),
        url: work.pull.url.clone(),
        user: work.command.user.clone(),
        since: Timestamp::now(),
        overdue: None,
    }
}

/// Returns the lock that a command takes for a project of its pull request, with the lock mode.
pub(super) fn wanted_lock(ctx: &Context, work: &CommandRun, config: &ProjectConfig) -> WantedLock {
    let (repo, project) = (work.pull.id.repo.clone(), config.id.clone());
    let mode = if ctx.settings.disable_repo_locking { LockMode::Disabled } else { config.repo_locks };
    let address = config.state_address();
    WantedLock { lock: ProjectLock { repo, project, holder: holder(work), applied: false, why: None, address }, mode }
}

/// Returns the failure of a project whose lock is refused, with its place in line if it waits.
pub(super) fn lock_failure(refusal: locks::LockRefusal, place: Option<PlaceInLine>) -> Failure {
    let not_permitted = |because: String| Failure::Refused { reason: Reason::NotPermitted, because };
    match refusal {
        locks::LockRefusal::HeldBy(holder) => Failure::Locked(Box::new(Blocked { by: *holder, place })),
        locks::LockRefusal::OwnedBy(owner) => Failure::Owned(Box::new(Blocked { by: *owner, place })),
        locks::LockRefusal::NotChanged => {
            not_permitted("this pull request does not change the project, so its plan is only a preview".into())
        }
        locks::LockRefusal::ChangesUnknown => {
            Failure::StalePlan { because: "the server does not know which projects this head changes".into() }
        }
        locks::LockRefusal::AppliesStopped(lock) => not_permitted(super::preconditions::apply_lock_text(&lock)),
        locks::LockRefusal::NoPlan => Failure::NoPlan { because: "Its plan was used or discarded meanwhile.".into() },
        locks::LockRefusal::NoLock => not_permitted("its lock was released meanwhile".into()),
        locks::LockRefusal::ApplyRuns { job } => not_permitted(format!("the job {job} is changing it")),
    }
}

/// Removes the stored files of plans that no record names any more.
pub(crate) async fn remove_plan_files(ctx: &Context, plans: &[PlanRecord]) {
    for plan in plans {
        let archive = plan.left.archive.as_ref().map(|_| archive_path(&plan.id));
        for path in plan.path.iter().chain(&archive) {
            let _ = tokio::fs::remove_file(ctx.settings.data_dir.join(path)).await;
        }
    }
}
