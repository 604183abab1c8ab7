//! Rows of the dashboard's lists.

use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::state::{Job, PlanRecord, ProjectLock, ProjectStatus};
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::WaitingPull;
use crate::domain::{JobId, ProjectId, PullId, PullRequest, RunId};
use crate::store::ListedPull;
use crate::web::locks::lock_address;
use crate::web::pages::{
    ProjectView, PullName, PullView, StatusMark, StatusView, Total, When, duration, kind_words, shown,
};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;

/// Maximum number of named pull requests of those that wait for a project.
const MAX_WAITING: usize = 10;

/// A job.
#[derive(Serialize)]
pub(in crate::web) struct JobRow {
    id: JobId,
    run: RunId,
    kind: String,
    project: Option<ProjectView>,
    pull: PullView,
    user: String,
    mark: StatusMark,
    /// Name of the executor that it runs at; absent for jobs in the server.
    executor: Option<String>,
    summary: String,
    started: When,
    took: Option<String>,
}

/// A project lock and the status of its project.
#[derive(Serialize)]
pub(in crate::web) struct LockRow {
    key: String,
    pub(super) address: String,
    pub(super) project: ProjectView,
    pub(super) pull: PullView,
    user: String,
    pub(super) since: When,
    mark: Option<StatusMark>,
    totals: Vec<Total>,
    /// Time for which the plan may still be applied.
    limit: Option<String>,
    /// Link of the mark.
    link: Option<String>,
    pub(super) waiting: WaitingView,
}

/// An owner of a project in mode `strict`.
#[derive(Serialize)]
pub(in crate::web) struct OwnerRow {
    pub(super) project: ProjectView,
    pub(super) pull: PullView,
    user: String,
    pub(super) since: When,
    pub(super) mark: StatusMark,
    /// Reason for which a person took it.
    pub(super) reason: String,
    /// Command on its pull request that ends it.
    pub(super) way_out: String,
    pub(super) waiting: WaitingView,
}

/// Pull requests that wait for a project, the first in line first.
#[derive(Serialize)]
pub(in crate::web) struct WaitingView {
    pulls: Vec<PullName>,
    /// Number of further ones.
    more: usize,
}

impl WaitingView {
    pub(super) fn none() -> WaitingView {
        WaitingView { pulls: Vec::new(), more: 0 }
    }

    pub(super) fn new(
        waiters: &[WaitingPull],
        holder: &PullId,
        project: &ProjectId,
        address: &StateAddress,
    ) -> WaitingView {
        let behind = waiters.iter().filter(|waiter| waiter.is_behind(holder, project, address));
        let line: Vec<&WaitingPull> = behind.collect();
        let pulls = line.iter().take(MAX_WAITING).map(|waiter| PullName::from(&waiter.pull)).collect();
        WaitingView { pulls, more: line.len().saturating_sub(MAX_WAITING) }
    }
}

impl OwnerRow {
    pub(in crate::web) fn new(owner: &ProjectOwner, executable: &str, known: &RowFacts<'_>) -> OwnerRow {
        let tone = match owner.state {
            OwnerState::Planned | OwnerState::AppliedUnmerged => "good",
            OwnerState::MergedUnapplied | OwnerState::MergedUnknown => "warn",
            OwnerState::ClosedApplied => "bad",
        };
        let holder = &owner.holder;
        OwnerRow {
            project: ProjectView::of(&owner.repo, &owner.project),
            pull: PullView::new(&holder.pull, &holder.title, &holder.url),
            user: holder.user.to_string(),
            since: When::new(holder.since, known.now),
            mark: StatusMark::new(owner.state.title().to_owned(), tone),
            reason: owner.reason.clone(),
            way_out: owner.state.way_out(executable),
            waiting: WaitingView::new(known.waiters, &holder.pull, &owner.project, &StateAddress::default()),
        }
    }
}

/// An open pull request with its projects.
#[derive(Serialize)]
pub(in crate::web) struct PullRow {
    pull: PullView,
    author: String,
    draft: bool,
    branch: String,
    /// Reason for which its plan failed as a whole.
    fault: Option<String>,
    projects: Vec<StatusView>,
    more: usize,
}

/// Returns the mark of a project with a running job.
fn busy(job: &Job) -> StatusMark {
    let word = match job.kind.as_str() {
        "plan" => "planning".into(),
        "apply" => "applying".into(),
        other => format!("{} running", kind_words(other)),
    };
    StatusMark::new(word, "busy")
}

/// Facts for rows besides their records.
pub(in crate::web) struct RowFacts<'a> {
    /// Running jobs.
    pub(in crate::web) at_work: &'a [Job],
    /// Plans with a limited time to apply them, by pull request.
    pub(in crate::web) plans: &'a HashMap<PullId, Vec<PlanRecord>>,
    /// Pull requests that wait for projects, oldest first.
    pub(in crate::web) waiters: &'a [WaitingPull],
    pub(in crate::web) now: Timestamp,
}

/// Returns the status of a project of this pull request; a running job takes precedence over the last result.
pub(in crate::web) fn status_view(status: &ProjectStatus, pull: &PullId, known: &RowFacts<'_>) -> StatusView {
    let RowFacts { at_work, plans, now, .. } = *known;
    let of_pull = plans.get(pull).map(Vec::as_slice).unwrap_or_default();
    let mut view = StatusView::from(status).with_limit(status, of_pull, now);
    view.project = ProjectView::of(&pull.repo, &status.project);
    let running = at_work.iter().find(|job| job.pull == *pull && job.project.as_ref() == Some(&status.project));
    if let Some(job) = running {
        view.mark = busy(job);
        view.link = Some(format!("jobs/{}", job.id));
    }
    view
}

impl JobRow {
    pub(in crate::web) fn new(job: &Job, pull: Option<&PullRequest>, now: Timestamp) -> JobRow {
        JobRow {
            id: job.id.clone(),
            run: job.run.clone(),
            kind: kind_words(&job.kind),
            project: job.project.as_ref().map(|project| ProjectView::of(&job.pull.repo, project)),
            pull: PullView::find(&job.pull, pull),
            user: job.user.to_string(),
            mark: StatusMark::from(job.state),
            executor: job.remote.as_ref().map(|remote| remote.executor.clone()),
            summary: job.summary.clone(),
            started: When::new(job.started, now),
            took: job.finished.map(|end| duration(job.started, end)),
        }
    }
}

impl LockRow {
    pub(in crate::web) fn new(lock: &ProjectLock, status: Option<&ProjectStatus>, known: &RowFacts<'_>) -> LockRow {
        let status = status.map(|status| status_view(status, &lock.holder.pull, known));
        let key = lock.id();
        LockRow {
            address: lock_address(&key),
            key,
            project: ProjectView::of(&lock.repo, &lock.project),
            pull: PullView::new(&lock.holder.pull, &lock.holder.title, &lock.holder.url),
            user: lock.holder.user.to_string(),
            since: When::new(lock.holder.since, known.now),
            mark: status.as_ref().map(|status| status.mark.clone()),
            totals: status.as_ref().map(|status| status.totals.clone()).unwrap_or_default(),
            limit: status.as_ref().and_then(|status| status.limit.clone()),
            link: status.and_then(|status| status.link),
            waiting: WaitingView::new(known.waiters, &lock.holder.pull, &lock.project, &lock.address),
        }
    }
}

impl PullRow {
    /// Builds a row with up to `limit` projects, failed ones first.
    pub(in crate::web) fn new(listed: &ListedPull, limit: usize, known: &RowFacts<'_>) -> PullRow {
        let ListedPull { pull, statuses, fault, blocked_by } = listed;
        let project = |status: &ProjectStatus| {
            let mut view = status_view(status, &pull.id, known);
            let blocker =
                blocked_by.iter().find(|lock| status.was_not_planned() && lock.project.is_same_state(&status.project));
            if let (Some(lock), None) = (blocker, &view.link) {
                view.mark.word = "waits for".to_owned();
                view.mark.pull = Some(PullName::from(&lock.holder.pull));
                view.link = Some(lock_address(&lock.id()));
            }
            view
        };
        let mut first: Vec<&ProjectStatus> = statuses.iter().collect();
        first.sort_by_key(|status| !status.has_failed());
        PullRow {
            pull: PullView::new(&pull.id, &pull.title, &pull.url),
            author: pull.author.to_string(),
            draft: pull.draft,
            branch: pull.head.branch.clone(),
            fault: fault.as_deref().map(shown),
            projects: first.into_iter().take(limit).map(project).collect(),
            more: statuses.len().saturating_sub(limit),
        }
    }
}
