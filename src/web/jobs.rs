//! `/jobs/{id}`: a job with its result and its log, which is followed live with JavaScript; and the log as plain text.

mod ansi;
mod init_fold;
mod log;
mod render;
mod search;
mod stream;

use super::actions::{ActionFacts, ActionPanel, PanelScope};
use super::answer::{HttpProblem, Visit, typed};
use super::api::records::JobRecord;
use super::dashboard::JobRow;
use super::filters::address;
use super::openapi::about;
use super::pages::{seconds, web_address};
use super::runs::{is_plan, plan_address};
use super::{Route, Site, TokenScope, Who, header_value, route};
use crate::domain::job_times::{JobTimes, StepTime};
use crate::domain::state::{Job, JobState};
use crate::domain::{CommitAddress, JobId, PullRequest};
use crate::server_status::Services;
use crate::store::Store;
use crate::store::logs::LogReader;
use ansi::TextStyle;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::{Method, header};
use jiff::Timestamp;
use log::plain_piece;
use minijinja::Value;
use render::{LogView, render};
use search::LogSearch;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) use log::{plain as plain_log, put_text, shows_line};
pub(super) use render::LogLines;
pub(super) use stream::MAX_STREAMS;
#[cfg(test)]
pub(super) use stream::log_events;
use stream::stream;

/// Returns the routes of jobs and their logs.
pub(super) fn routes() -> Vec<Route> {
    use Who::{Api, People};
    let read = Api(TokenScope::Read);
    let about = |summary| about(summary).part("id", "The job's id.").problems(&[404]);
    let page = about("The page of a job, with its log.")
        .optional_query("q", "Text to look for in the log; its case is ignored.")
        .optional_query("open", "`all` unfolds all steps.")
        .optional_query("part", "`head` leaves out the log.")
        .page();
    let record = about("A job.").json::<JobRecord>();
    let log = || about("The log of a job.").text("text/plain");
    let growing = || about("The log of a job as it grows.").text("text/event-stream");
    vec![
        route(Method::GET, "/jobs/{id}", People, self::page, page),
        route(Method::GET, "/jobs/{id}/log", People, plain, log()),
        route(Method::GET, "/jobs/{id}/stream", People, stream, growing()),
        route(Method::GET, "/api/jobs/{id}", read, api_one, record),
        route(Method::GET, "/api/jobs/{id}/log", read, plain, log()),
        route(Method::GET, "/api/jobs/{id}/stream", read, stream, growing()),
    ]
}

/// Maximum number of lines of the page: the first [`HEAD_LINES`] and the last ones. The download has all lines.
const MAX_PAGE_LINES: usize = 20_000;

/// Number of lines from the beginning that are shown if not all are.
const HEAD_LINES: usize = 1_000;

#[derive(Serialize)]
pub(super) struct JobPage {
    job: JobRow,
    commit: String,
    /// Address of the commit's page on the host, if there is one.
    commit_address: Option<String>,
    /// Page of what its plan changes, relative to `/`.
    plan: Option<String>,
    /// Steps of the job.
    steps: Vec<StepView>,
    /// Number of lines so far; the stream continues from there.
    lines: usize,
    /// Number of the first line with an error.
    first_error: Option<usize>,
    /// True if the log still grows.
    live: bool,
    /// False if there is no log, or no longer one.
    has_log: bool,
    /// Escaped by [`render`].
    log: Value,
    /// Address of the page without folded sections, relative to `/`; absent if none is folded.
    unfolded: Option<String>,
    /// Text that is looked for; empty for none.
    search: String,
    /// Number of lines that have it.
    matches: usize,
    /// Number of the first of them that is shown.
    first_match: Option<usize>,
    /// Button of the person who looks that cancels it.
    actions: Option<ActionPanel>,
}

/// A step of a job.
#[derive(Serialize)]
pub(super) struct StepView {
    kind: &'static str,
    took: String,
    /// Number of the line with which its output begins; absent if it has none.
    line: Option<u64>,
}

/// What the page of a job is made of.
pub(super) struct JobPageFacts<'a> {
    pub(super) job: &'a Job,
    pub(super) pull: Option<&'a PullRequest>,
    /// Address of commits on the host.
    pub(super) commits: Option<&'a CommitAddress>,
    pub(super) times: &'a JobTimes,
    pub(super) log: Option<&'a dyn LogLines>,
    pub(super) query: &'a PageQuery,
    pub(super) now: Timestamp,
}

/// What is asked of a page.
#[derive(Default, Deserialize)]
pub(super) struct PageQuery {
    /// Text to look for in the log.
    q: Option<String>,
    /// `all` shows every section of the log.
    open: Option<String>,
    /// `head` leaves out the log: a page that is open asks for what is above it.
    part: Option<String>,
}

impl StepView {
    /// Returns the steps of a job.
    pub(super) fn all(times: &JobTimes) -> Vec<StepView> {
        let view = |step: &StepTime| StepView {
            kind: step.kind.as_str(),
            took: seconds(step.millis),
            line: Some(step.line).filter(|line| *line > 0 && step.lines > 0),
        };
        times.steps.iter().map(view).collect()
    }
}

impl StepView {
    /// Returns the step without its line if the page of a log of so many lines leaves it out.
    fn shown_in(self, lines: usize) -> StepView {
        let is_shown = |line: &u64| usize::try_from(*line).is_ok_and(|line| shows_line(line - 1, lines));
        StepView { line: self.line.filter(is_shown), ..self }
    }
}

impl JobPage {
    /// Builds the page with a log that does not grow.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub(super) fn new(facts: &JobPageFacts<'_>) -> anyhow::Result<JobPage> {
        let JobPageFacts { job, pull, commits, times, log, query, now } = *facts;
        let search = LogSearch::new(query.q.as_deref().unwrap_or_default());
        let opens_all = query.open.as_deref() == Some("all");
        let view = LogView { times, started: job.started, search: search.as_ref(), opens_all };
        let rendered = render(log.unwrap_or(&""), &view)?;
        let (path, words) = (format!("jobs/{}", job.id), search.map(|search| search.text).unwrap_or_default());
        Ok(JobPage {
            commit: job.head.short().to_owned(),
            commit_address: commits
                .and_then(|commits| commits.url_of(&job.pull.repo, &job.head))
                .map(|page| web_address(&page).to_owned()),
            plan: job.project.as_ref().filter(|_| is_plan(job)).map(|project| plan_address(&job.run, project)),
            job: JobRow::new(job, pull, now),
            steps: StepView::all(times).into_iter().map(|step| step.shown_in(rendered.lines)).collect(),
            lines: rendered.lines,
            first_error: rendered.first_error,
            live: false,
            has_log: log.is_some(),
            log: Value::from_safe_string(rendered.html),
            unfolded: rendered.is_folded.then(|| address(&path, &[("open", "all"), ("q", &words)])),
            search: words,
            matches: rendered.matches,
            first_match: rendered.first_match,
            actions: None,
        })
    }

    /// Has the page follow the log, which still grows.
    pub(super) fn following(self) -> JobPage {
        JobPage { live: true, ..self }
    }
}

/// Parses a job ID of an address; an invalid one is not looked up in the state or on disk.
fn checked(id: &str) -> Result<JobId, HttpProblem> {
    JobId::parse(id).ok_or_else(no_such_job)
}

fn no_such_job() -> HttpProblem {
    HttpProblem::not_found("There is no such job, or it is so old that it was dropped.")
}

/// Returns a job and its pull request.
pub(super) async fn find(store: &Store, id: &JobId) -> anyhow::Result<Option<(Job, Option<PullRequest>)>> {
    let id = id.clone();
    store
        .read(move |view| {
            let Some(job) = view.job(&id)? else { return Ok(None) };
            let pull = view.pull(&job.pull)?;
            Ok(Some((job, pull)))
        })
        .await
}

/// Serves the page.
async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let id = checked(&id)?;
    // The log is opened first: a job that ends in between is then shown as ended, not as running.
    let mut log = services.logs.read(&id).await?;
    let (job, pull) = find(&services.store, &id).await?.ok_or_else(no_such_job)?;
    let live = log.as_ref().is_some_and(LogReader::is_live);
    if live && job.state != JobState::Running {
        log = services.logs.read(&id).await?;
    }
    let times = times_of(&services.store, &id).await?;
    let text = log.as_mut().map(LogReader::text);
    let actions = buttons_of_running(&services, &visit, &job).await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let commits = site.state.commit_addresses.get(&job.pull.repo.host.to_ascii_lowercase());
        let is_head = query.part.as_deref() == Some("head");
        let log = text.as_ref().map(|text| if is_head { &"" as &dyn LogLines } else { text });
        let (pull, times, query, now) = (pull.as_ref(), &times, &query, Timestamp::now());
        let mut view = JobPage::new(&JobPageFacts { job: &job, pull, commits, times, log, query, now })?;
        if live && job.state == JobState::Running {
            view = view.following();
        }
        view.actions = actions;
        site.pages.page("job.html", &visit, &view)
    });
    Ok(rendered.await.map_err(anyhow::Error::from)??)
}

async fn times_of(store: &Store, id: &JobId) -> anyhow::Result<JobTimes> {
    let id = id.clone();
    store.read(move |view| view.job_times(&id)).await
}

/// Returns a job as JSON.
async fn api_one(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, HttpProblem> {
    let id = checked(&id)?;
    let services = site.services()?;
    let (job, _) = find(&services.store, &id).await?.ok_or_else(no_such_job)?;
    let times = times_of(&services.store, &id).await?;
    Ok(axum::Json(JobRecord::new(&job, &times, &site.state.url)).into_response())
}

/// Returns the button that cancels a job which runs, for the person who looks.
async fn buttons_of_running(services: &Services, visit: &Visit, job: &Job) -> anyhow::Result<Option<ActionPanel>> {
    if visit.actor().is_none() || job.state != JobState::Running {
        return Ok(None);
    }
    let pull = job.pull.clone();
    let facts = services.store.read(move |view| ActionFacts::load(view, &pull)).await?;
    Ok(facts.and_then(|facts| ActionPanel::new(&facts, &services.dispatch, visit, PanelScope::Job)))
}

/// Serves the log so far, without colours.
async fn plain(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let id = checked(&id)?;
    let log = services.logs.read(&id).await?.ok_or_else(|| HttpProblem::not_found("This job has no log."))?;
    // One piece of at most 32 KiB at a time: nobody holds the whole log.
    let pieces = futures::stream::try_unfold((log.until_now(), TextStyle::default()), |(mut log, mut style)| async {
        let Some(piece) = log.next().await? else { return anyhow::Ok(None) };
        Ok(Some((plain_piece(&piece, &mut style), (log, style))))
    });
    let mut response = typed("text/plain; charset=utf-8", Body::from_stream(pieces));
    let name = format!("inline; filename=\"tidelock-{}.log\"", &id.as_str()[..12]);
    response.headers_mut().insert(header::CONTENT_DISPOSITION, header_value(&name));
    Ok(response)
}
