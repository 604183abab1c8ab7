//! Detections of drift that `repos.yaml` schedules (`drift`). The record of a detection is committed before it begins, and its end with its
//! results: a killed server neither repeats nor loses one. What was missed is made up for once, within the window of the schedule.

use super::drift::Counted;
use super::inner::Inner;
use super::recorder;
use super::{Handle, PageVisitor};
use crate::config::drift::DriftSchedule;
use crate::config::permissions::Act;
use crate::domain::command::{BranchTargets, CommandName};
use crate::domain::drift::{DriftCheck, DriftCheckEnd};
use crate::domain::drift_issue::DriftIssue;
use crate::domain::state::AuditEntry;
use crate::domain::{Login, PullId, RepoId};
use crate::execute::RequestRefused;
use crate::execute::drift::{self, DriftRequest, ScheduledDetection};
use crate::execute::permissions::{Asker, Gatekeeper};
use crate::reply::comments;
use crate::store::is_deposed;
use crate::vcs::HostError;
use anyhow::Result;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// User of such runs, in records and on pages.
const USER: &str = "schedule";
/// Most scheduled detections that run at once; the others wait.
const MAX_AT_ONCE: usize = 2;
/// Longest time between two looks: a pattern may match a repository that the server has come to know.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Shortest time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// A repository with a schedule.
#[derive(Debug, Clone)]
pub(crate) struct ScheduledRepository {
    pub(crate) repo: RepoId,
    pub(crate) schedule: DriftSchedule,
    /// Its last detection.
    pub(crate) check: Option<DriftCheck>,
    pub(crate) state: ScheduleState,
}

/// What the schedule of a repository waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScheduleState {
    /// A detection runs.
    Running,
    /// The detection of this scheduled time begins as soon as there is room.
    Due(Timestamp),
    /// The next one begins at this time; absent if none follows.
    Later(Option<Timestamp>),
}

impl ScheduledRepository {
    /// Returns the latest scheduled time, if none has begun for it in its window.
    pub(crate) fn missed(&self, now: Timestamp) -> Option<Timestamp> {
        self.schedule.missed(&self.repo, self.check.as_ref(), now)
    }

    /// Returns true if the last detection was cut off, and is not begun again.
    pub(crate) fn is_given_up(&self) -> bool {
        let is_open = self.check.as_ref().is_some_and(|check| check.end.is_none());
        is_open && matches!(self.state, ScheduleState::Later(_))
    }
}

impl Handle {
    /// Returns the repositories with a schedule, by their names.
    pub(crate) async fn drift_schedules(&self) -> Result<Vec<ScheduledRepository>> {
        scheduled(&self.inner()).await
    }

    /// Returns true if a person on a page may ask for a drift detection of this repository, as far as that is known without a host.
    pub(crate) fn may_check_drift(&self, one: &ScheduledRepository, person: &str, visitor: PageVisitor) -> bool {
        let inner = self.inner();
        let branch = one.schedule.branch.as_deref().unwrap_or_default();
        let asker = Asker::of_page(&inner.ctx, &one.repo, person);
        let mut gatekeeper = Gatekeeper::new(&inner.ctx, &one.repo, branch, asker);
        visitor == PageVisitor::Operator
            || (gatekeeper.may_be_permitted(CommandName::Plan) && gatekeeper.may_have_access(CommandName::Plan))
    }

    /// Begins a detection of a repository with a schedule, `host/owner/name`, for a person on a page who may `plan` there. The audit log
    /// gets `by`.
    ///
    /// # Errors
    ///
    /// The reason, if none begins.
    pub(crate) async fn check_drift_now(
        &self,
        repo: &str,
        by: AuditEntry,
        visitor: PageVisitor,
    ) -> Result<(), RequestRefused> {
        let inner = &self.inner();
        let found = scheduled(inner).await?.into_iter().find(|one| one.repo.to_string() == repo);
        let one = found.ok_or_else(|| RequestRefused::NotFound("No such repository has a schedule.".to_owned()))?;
        if visitor != PageVisitor::Operator {
            let asker = Asker::of_page(&inner.ctx, &one.repo, &by.who);
            let branch = one.schedule.branch.as_deref().unwrap_or_default();
            let mut gatekeeper = Gatekeeper::new(&inner.ctx, &one.repo, branch, asker);
            let act = Act { command: CommandName::Plan, project: None };
            let unanswered = |error: HostError| RequestRefused::Host(inner.ctx.redactor.redact(&error.to_string()));
            let mut refusal = gatekeeper.refusal(act).await.map_err(unanswered)?;
            if refusal.is_none() {
                let refused = gatekeeper.writer_refusal(act, "Check now", "", "Check now").await;
                refusal = refused.map_err(unanswered)?;
            }
            if let Some(because) = refusal {
                return Err(RequestRefused::Forbidden(format!("{because}.")));
            }
        }
        if running(inner).contains(&one.repo) {
            return Err(RequestRefused::Conflict("A detection of this repository runs already.".to_owned()));
        }
        if running(inner).len() >= MAX_AT_ONCE || !begin(inner, one, Timestamp::now(), Some(by)).await? {
            return Err(RequestRefused::Busy);
        }
        Ok(())
    }
}

/// Begins the detections that are due, for as long as this server leads.
pub(super) async fn run(mut inner: Arc<Inner>) {
    let mut runs = inner.drift.changes();
    drop_unscheduled(&inner).await;
    loop {
        runs.borrow_and_update();
        let now = inner.now();
        if !Arc::ptr_eq(&now, &inner) {
            inner = now;
            drop_unscheduled(&inner).await;
        }
        let wait = match begin_due(&inner).await {
            Ok(wait) => wait,
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "scheduled drift detections could not be read, or one not recorded"
                );
                // An attempt that failed has changed the number of runs as well.
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
        };
        if inner.actors.draining() {
            return;
        }
        tokio::select! {
            changed = runs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait.clamp(PAUSE, LOOK_AGAIN)) => {}
        }
    }
}

/// Drops detections and issues that the configuration does not ask for any more.
async fn drop_unscheduled(inner: &Inner) {
    let dropped = async {
        forget_others(inner).await?;
        end_issues(inner).await
    };
    if let Err(error) = dropped.await
        && !is_deposed(&error)
    {
        tracing::error!(
            error = format!("{error:#}"),
            "drift detections and issues without a schedule could not be dropped"
        );
    }
}

/// Drops the records of repositories that have no schedule any more, so that their age is not measured.
async fn forget_others(inner: &Inner) -> Result<()> {
    let scheduled = scheduled(inner).await?;
    let mut others = inner.ctx.store.read(|view| view.drift_checks()).await?;
    others.retain(|check| !scheduled.iter().any(|one| is_same(&one.repo, &check.repo)));
    if others.is_empty() {
        return Ok(());
    }
    recorder::transaction(inner, move |tx| others.iter().try_for_each(|check| tx.forget_drift_check(&check.repo))).await
}

/// Closes the issues of repositories whose schedule does not ask for issues any more. Those of a repository that is not served are left
/// alone.
async fn end_issues(inner: &Inner) -> Result<()> {
    let scheduled = scheduled(inner).await?;
    let keeps = |issue: &DriftIssue| {
        let asks = |one: &ScheduledRepository| one.schedule.issue.is_some() && is_same(&one.repo, &issue.repo);
        issue.closing || scheduled.iter().any(asks)
    };
    let mut others = inner.ctx.store.read(|view| view.drift_issues()).await?;
    others.retain(|issue| !keeps(issue));
    if others.is_empty() {
        return Ok(());
    }
    let ctx = &inner.ctx;
    let repos: BTreeSet<RepoId> = others.iter().map(|issue| issue.repo.clone()).collect();
    let is_served = |issue: &DriftIssue| ctx.hosts.for_repo(&issue.repo).is_ok() && inner.allowlist.allows(&issue.repo);
    let ends: Vec<_> = others
        .into_iter()
        .map(|issue| {
            let options = is_served(&issue).then(|| comments::at_present(&ctx.hosts, &ctx.rendering, &issue.repo));
            (issue, options)
        })
        .collect();
    recorder::transaction(inner, move |tx| {
        ends.iter().try_for_each(|(issue, options)| match options {
            Some(options) => drift::switch_off_issue(tx, issue, options),
            None => tx.forget_drift_issue(&issue.id),
        })
    })
    .await?;
    repos.into_iter().for_each(|repo| ctx.outbox.wake(&PullId::of_branches(repo)));
    Ok(())
}

/// Compares names without case, as hosts do.
fn is_same(one: &RepoId, other: &RepoId) -> bool {
    one.host.eq_ignore_ascii_case(&other.host) && one.is_named(&other.owner, &other.name)
}

/// Returns the time at which the next detection begins; absent if none follows.
pub(super) async fn next(inner: &Inner) -> Result<Option<Timestamp>> {
    let at = |one: &ScheduledRepository| match one.state {
        ScheduleState::Running => None,
        ScheduleState::Due(_) => Some(Timestamp::now()),
        ScheduleState::Later(next) => next,
    };
    Ok(scheduled(inner).await?.iter().filter_map(at).min())
}

/// Returns the repositories that the server serves and that have a schedule: those that the state knows, and those that `repos.yaml` names
/// without a pattern.
async fn scheduled(inner: &Inner) -> Result<Vec<ScheduledRepository>> {
    let global = &inner.ctx.global;
    if !global.has_drift_schedules() {
        return Ok(Vec::new());
    }
    let (mut repos, checks) = inner.ctx.store.read(|view| Ok((view.served_repos()?, view.drift_checks()?))).await?;
    for named in global.ids_with_drift_schedule().filter_map(RepoId::of_whole_name) {
        if !repos.iter().any(|known| is_same(known, &named)) {
            repos.push(named);
        }
    }
    repos.sort();
    let (running, now) = (running(inner).clone(), Timestamp::now());
    let of_repo = |repo: RepoId| {
        let host = inner.ctx.hosts.for_repo(&repo).ok()?.hostname().to_owned();
        let repo = RepoId { host, ..repo };
        let schedule = global.drift_schedule(&repo).filter(|_| inner.allowlist.allows(&repo))?.clone();
        // Two records of one repository differ in the case of its name.
        let check = checks.iter().filter(|check| is_same(&check.repo, &repo)).max_by_key(|check| check.due).cloned();
        let state = match schedule.due(&repo, check.as_ref(), now) {
            _ if running.contains(&repo) => ScheduleState::Running,
            Some(due) => ScheduleState::Due(due),
            None => ScheduleState::Later(schedule.next(&repo, now)),
        };
        Some(ScheduledRepository { repo, schedule, check, state })
    };
    Ok(repos.into_iter().filter_map(of_repo).collect())
}

fn running(inner: &Inner) -> MutexGuard<'_, BTreeSet<RepoId>> {
    inner.drift.scheduled.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins detections that are due, as far as there is room. Returns the time until another one may be.
async fn begin_due(inner: &Arc<Inner>) -> Result<Duration> {
    let now = Timestamp::now();
    let (mut due, mut wait) = (Vec::new(), LOOK_AGAIN);
    for one in scheduled(inner).await? {
        match one.state {
            ScheduleState::Running | ScheduleState::Later(None) => {}
            ScheduleState::Due(time) => due.push((time, one)),
            ScheduleState::Later(Some(next)) => {
                wait = wait.min(Duration::try_from(next.duration_since(now)).unwrap_or_default());
            }
        }
    }
    // Those whose last detection is longest ago come first, so that none is left out for good where there is no time for all.
    due.sort_by_key(|(time, one)| (one.check.as_ref().map(|check| check.began), *time));
    for (time, one) in due {
        if running(inner).len() >= MAX_AT_ONCE || inner.actors.draining() || !begin(inner, one, time, None).await? {
            break;
        }
    }
    Ok(wait)
}

/// Marks a repository for as long as its detection runs.
struct RunningCheck {
    repo: RepoId,
    counted: Counted,
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        // Before the count changes, which wakes the loop above.
        running(&self.counted.0).remove(&self.repo);
    }
}

/// Records that a detection begins, and runs it in the background; `by` is about the person who asked for it, if one did. False if one of
/// the repository is at work, or too many drift runs are.
async fn begin(inner: &Arc<Inner>, one: ScheduledRepository, due: Timestamp, by: Option<AuditEntry>) -> Result<bool> {
    let ScheduledRepository { repo, schedule, check: last, .. } = one;
    let Some(counted) = Counted::one_more(inner) else { return Ok(false) };
    if !running(inner).insert(repo.clone()) {
        return Ok(false);
    }
    let marked = RunningCheck { repo: repo.clone(), counted };
    let user = Login::new(by.as_ref().map_or(USER, |by| by.who.as_str()));
    let issues = last.as_ref().map(|last| last.issues.clone()).unwrap_or_default();
    let before = last.filter(|last| last.due == due).map_or(0, |last| last.attempts);
    let check = DriftCheck { repo, due, began: Timestamp::now(), attempts: before + 1, end: None, issues };
    let record = check.clone();
    recorder::transaction(inner, move |tx| {
        // The repository was known under its name in another case.
        let known = tx.drift_checks()?;
        let is_other = |other: &RepoId| *other != record.repo && is_same(other, &record.repo);
        let mut others = known.iter().map(|known| &known.repo).filter(|other| is_other(other));
        others.try_for_each(|other| tx.forget_drift_check(other))?;
        by.iter().try_for_each(|by| tx.audit(by))?;
        tx.put_drift_check(&record)
    })
    .await?;
    inner.tasks.spawn(async move {
        let inner = &marked.counted.0;
        if let Err(error) = detect(inner, check, schedule, user).await
            && !is_deposed(&error)
        {
            tracing::error!(
                error = format!("{error:#}"),
                "the end of a scheduled drift detection could not be recorded"
            );
        }
    });
    Ok(true)
}

/// Runs a detection. Its end is recorded with its results; if there are none, here. One that is stopped has no end: the next leader begins
/// it again.
async fn detect(inner: &Arc<Inner>, check: DriftCheck, schedule: DriftSchedule, user: Login) -> Result<()> {
    let refused = match detection(inner, &check, schedule, user).await {
        Ok(()) | Err(RequestRefused::Stopped) => return Ok(()),
        Err(refused) => refused,
    };
    let because = inner.ctx.redactor.redact(&refused.describe());
    match &refused {
        RequestRefused::Broken(error) => {
            tracing::error!(repo = %check.repo, error = format!("{error:#}"), "a scheduled drift detection broke");
        }
        _ => tracing::warn!(repo = %check.repo, "a scheduled drift detection has no result: {because}"),
    }
    let end = DriftCheckEnd { at: Timestamp::now(), run: None, refused: Some(because) };
    recorder::transaction(inner, move |tx| tx.end_drift_check(&check, end)).await
}

async fn detection(
    inner: &Inner,
    check: &DriftCheck,
    schedule: DriftSchedule,
    user: Login,
) -> Result<(), RequestRefused> {
    let DriftSchedule { projects, notifies, branch, issue, .. } = schedule;
    let stop = inner.drift.stopper();
    let branch = match branch {
        Some(branch) => branch,
        None => drift::default_branch(&inner.ctx, &check.repo, stop).await?,
    };
    let request = DriftRequest {
        repo: check.repo.clone(),
        reference: branch.clone(),
        branch,
        commit: None,
        tag: None,
        wanted: BranchTargets::default(),
        user,
        scheduled: Some(ScheduledDetection { check: check.clone(), projects, notifies, issue }),
    };
    drift::detect(&inner.ctx, &request, stop).await.map(drop)
}
