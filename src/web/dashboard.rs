//! `/`: whether all is well, what runs, who holds what, open pull requests, the last runs, the apply lock.

use super::Site;
use super::answer::{Problem, Visit};
use super::locks::lock_address;
use super::pages::{Mark, ProjectView, PullView, StatusView, Total, VERSION, When, duration};
use super::standing::Ready;
use crate::domain::command::CommandName;
use crate::domain::state::{ApplyLock, Job, JobState, ProjectLock, ProjectState, ProjectStatus};
use crate::domain::{PullId, PullRequest};
use crate::store::Store;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Most locks, and most running jobs, that are listed.
pub(super) const MAX_ROWS: usize = 200;

/// Most open pull requests that are listed.
pub(super) const MAX_PULLS: usize = 100;

/// How many finished jobs are listed.
pub(super) const MAX_RECENT: usize = 50;

/// What the page is made of, as the state has it.
pub(super) struct Facts {
    pub(super) running: Vec<Job>,
    pub(super) locks: Vec<ProjectLock>,
    /// Up to one more than is listed, so that the page can say that there are more.
    pub(super) pulls: Vec<(PullRequest, Vec<ProjectStatus>)>,
    /// Finished and running ones, newest first.
    pub(super) recent: Vec<Job>,
    pub(super) apply_lock: Option<ApplyLock>,
    /// Project statuses of pull requests that hold locks but are not among `pulls`.
    pub(super) other_statuses: HashMap<PullId, Vec<ProjectStatus>>,
    /// Pull requests of listed jobs that are not among `pulls`.
    pub(super) other_pulls: HashMap<PullId, PullRequest>,
}

impl Facts {
    pub(super) async fn load(store: &Store) -> anyhow::Result<Facts> {
        store
            .read(|view| {
                let mut facts = Facts {
                    running: view.unfinished_jobs()?,
                    locks: view.locks()?,
                    pulls: view.open_pulls(MAX_PULLS + 1)?,
                    recent: view.recent_jobs(MAX_RECENT)?,
                    apply_lock: view.apply_lock()?,
                    other_statuses: HashMap::new(),
                    other_pulls: HashMap::new(),
                };
                facts.locks.sort_by_key(|lock| std::cmp::Reverse(lock.holder.since));
                for lock in facts.locks.iter().take(MAX_ROWS) {
                    let pull = &lock.holder.pull;
                    if !facts.lists(pull) && !facts.other_statuses.contains_key(pull) {
                        facts.other_statuses.insert(pull.clone(), view.project_statuses(pull)?);
                    }
                }
                for job in facts.running.iter().take(MAX_ROWS).chain(&facts.recent) {
                    if !facts.lists(&job.pull)
                        && !facts.other_pulls.contains_key(&job.pull)
                        && let Some(pull) = view.pull(&job.pull)?
                    {
                        facts.other_pulls.insert(job.pull.clone(), pull);
                    }
                }
                Ok(facts)
            })
            .await
    }

    fn lists(&self, id: &PullId) -> bool {
        self.pulls.iter().any(|(pull, _)| pull.id == *id)
    }

    fn pull(&self, id: &PullId) -> Option<&PullRequest> {
        let listed = self.pulls.iter().map(|(pull, _)| pull).find(|pull| pull.id == *id);
        listed.or_else(|| self.other_pulls.get(id))
    }

    fn status_of(&self, lock: &ProjectLock) -> Option<&ProjectStatus> {
        let id = &lock.holder.pull;
        let listed = self.pulls.iter().find(|(pull, _)| pull.id == *id).map(|(_, statuses)| statuses);
        let mut statuses = listed.or_else(|| self.other_statuses.get(id))?.iter();
        statuses.find(|status| status.project == lock.project)
    }
}

/// The server's own state, for the line on top.
pub(super) struct Server {
    pub(super) in_progress: usize,
    pub(super) draining: bool,
    pub(super) apply_allowed: bool,
    /// Pages may set and lift the apply lock.
    pub(super) apply_switch: bool,
}

impl Server {
    fn of(site: &Site, ready: &Ready) -> Server {
        Server {
            in_progress: ready.dispatch.in_progress(),
            draining: ready.dispatch.draining(),
            apply_allowed: site.state.apply_allowed,
            apply_switch: !site.state.disable_global_apply_lock,
        }
    }
}

/// Rows, and how many there are beyond them.
#[derive(Serialize)]
pub(super) struct Listed<T> {
    rows: Vec<T>,
    more: usize,
}

impl<T> Listed<T> {
    fn new<S>(all: &[S], limit: usize, make: impl Fn(&S) -> T) -> Listed<T> {
        Listed { rows: all.iter().take(limit).map(make).collect(), more: all.len().saturating_sub(limit) }
    }
}

#[derive(Serialize)]
pub(super) struct JobRow {
    id: String,
    kind: String,
    project: Option<ProjectView>,
    pull: PullView,
    user: String,
    mark: Mark,
    summary: String,
    started: When,
    took: Option<String>,
}

#[derive(Serialize)]
struct LockRow {
    key: String,
    address: String,
    project: ProjectView,
    pull: PullView,
    user: String,
    since: When,
    mark: Option<Mark>,
    totals: Vec<Total>,
    job: Option<String>,
}

#[derive(Serialize)]
struct PullRow {
    pull: PullView,
    author: String,
    draft: bool,
    branch: String,
    projects: Vec<StatusView>,
    more: usize,
}

#[derive(Serialize)]
struct ApplySwitch {
    locked: bool,
    user: String,
    reason: String,
    since: Option<When>,
    /// `apply` is among the allowed commands.
    allowed: bool,
    /// The buttons are there.
    switch: bool,
}

#[derive(Serialize)]
pub(super) struct Dashboard {
    role: &'static str,
    tone: &'static str,
    version: &'static str,
    in_progress: usize,
    failed: usize,
    running: Listed<JobRow>,
    locks: Listed<LockRow>,
    pulls: Listed<PullRow>,
    recent: Listed<JobRow>,
    apply: ApplySwitch,
    notice: Option<&'static str>,
}

/// What kind of work a job does, for people.
pub(super) fn kind_words(kind: &str) -> String {
    if kind == CommandName::StateRm.as_str() { "state rm".into() } else { kind.replace('_', " ") }
}

impl JobRow {
    pub(super) fn new(job: &Job, pull: Option<&PullRequest>, now: Timestamp) -> JobRow {
        JobRow {
            id: job.id.clone(),
            kind: kind_words(&job.kind),
            project: job.project.as_ref().map(ProjectView::from),
            pull: PullView::find(&job.pull, pull),
            user: job.user.clone(),
            mark: Mark::from(job.state),
            summary: job.summary.clone(),
            started: When::new(job.started, now),
            took: job.finished.map(|end| duration(job.started, end)),
        }
    }
}

impl Dashboard {
    pub(super) fn new(facts: &Facts, server: &Server, notice: Option<&'static str>, now: Timestamp) -> Dashboard {
        let job_row = |job: &Job| JobRow::new(job, facts.pull(&job.pull), now);
        let finished: Vec<Job> = facts.recent.iter().filter(|job| job.state != JobState::Running).cloned().collect();
        let (role, tone) = if server.draining { ("shutting down", "warn") } else { ("leading", "good") };
        let failing = |status: &ProjectStatus| {
            matches!(status.state, ProjectState::PlanErrored | ProjectState::ApplyErrored) && !status.was_not_planned()
        };
        Dashboard {
            role,
            tone,
            version: VERSION,
            in_progress: server.in_progress,
            failed: facts.pulls.iter().flat_map(|(_, statuses)| statuses).filter(|status| failing(status)).count(),
            running: Listed::new(&facts.running, MAX_ROWS, job_row),
            locks: Listed::new(&facts.locks, MAX_ROWS, |lock| lock_row(lock, facts.status_of(lock), now)),
            pulls: Listed::new(&facts.pulls, MAX_PULLS, pull_row),
            recent: Listed::new(&finished, MAX_RECENT, job_row),
            apply: apply_switch(facts.apply_lock.as_ref(), server, now),
            notice,
        }
    }
}

fn lock_row(lock: &ProjectLock, status: Option<&ProjectStatus>, now: Timestamp) -> LockRow {
    let status = status.map(StatusView::from);
    let key = lock.key();
    LockRow {
        address: lock_address(&key),
        key,
        project: ProjectView::from(&lock.project),
        pull: PullView::new(&lock.holder.pull, &lock.holder.title, &lock.holder.url),
        user: lock.holder.user.clone(),
        since: When::new(lock.holder.since, now),
        mark: status.as_ref().map(|status| status.mark.clone()),
        totals: status.as_ref().map(|status| status.totals.clone()).unwrap_or_default(),
        job: status.and_then(|status| status.job),
    }
}

fn pull_row((pull, statuses): &(PullRequest, Vec<ProjectStatus>)) -> PullRow {
    PullRow {
        pull: PullView::new(&pull.id, &pull.title, &pull.url),
        author: pull.author.clone(),
        draft: pull.draft,
        branch: pull.head.branch.clone(),
        projects: statuses.iter().take(MAX_ROWS).map(StatusView::from).collect(),
        more: statuses.len().saturating_sub(MAX_ROWS),
    }
}

fn apply_switch(lock: Option<&ApplyLock>, server: &Server, now: Timestamp) -> ApplySwitch {
    ApplySwitch {
        locked: lock.is_some(),
        user: lock.map(|lock| lock.user.clone()).unwrap_or_default(),
        reason: lock.map(|lock| lock.reason.clone()).unwrap_or_default(),
        since: lock.map(|lock| When::new(lock.since, now)),
        allowed: server.apply_allowed,
        switch: server.apply_switch,
    }
}

/// What was just done, from the address that a change sends the browser to; free text would let a link put words on our page.
#[derive(Deserialize)]
pub(super) struct Notice {
    notice: Option<String>,
}

impl Notice {
    fn words(&self) -> Option<&'static str> {
        match self.notice.as_deref()? {
            "unlocked" => Some("The lock and its plan are gone. The pull request is told."),
            "applies-stopped" => Some("Applies are stopped until somebody allows them again."),
            "applies-allowed" => Some("Applies are allowed again."),
            _ => None,
        }
    }
}

/// The page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Query(notice): Query<Notice>,
) -> Result<Response, Problem> {
    let ready = site.ready()?;
    let facts = Facts::load(&ready.store).await?;
    let view = Dashboard::new(&facts, &Server::of(&site, &ready), notice.words(), Timestamp::now());
    Ok(site.pages.page("dashboard.html", &visit, &view)?)
}
