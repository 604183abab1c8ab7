//! `/jobs/{id}`: a job with its result and its log, which is followed live with JavaScript; and the log as plain text.

mod ansi;
mod log;
mod stream;

use super::actions::{ActionFacts, ActionPanel, PanelScope};
use super::answer::{HttpProblem, Visit, typed};
use super::api::records::JobRecord;
use super::dashboard::JobRow;
use super::openapi::about;
use super::pages::web_address;
use super::runs::{is_plan, plan_address};
use super::{Route, Site, TokenScope, Who, header_value, route};
use crate::domain::state::{Job, JobState};
use crate::domain::{CommitAddress, JobId, PullRequest};
use crate::server_status::Services;
use crate::store::Store;
use crate::store::logs::LogReader;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{Method, header};
use jiff::Timestamp;
use minijinja::Value;
use serde::Serialize;
use std::sync::Arc;

pub(super) use log::{plain as plain_log, put_text, shows_line};
pub(super) use stream::MAX_STREAMS;
#[cfg(test)]
pub(super) use stream::log_events;
use stream::stream;

/// Returns the routes of jobs and their logs.
pub(super) fn routes() -> Vec<Route> {
    use Who::{Api, People};
    let read = Api(TokenScope::Read);
    let about = |summary| about(summary).part("id", "The job's id.").problems(&[404]);
    let page = about("The page of a job, with its log.").page();
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
    /// Number of lines so far; the stream continues from there.
    lines: usize,
    /// Number of the first line with an error.
    first_error: Option<usize>,
    /// True if the log still grows.
    live: bool,
    /// False if there is no log, or no longer one.
    has_log: bool,
    /// Escaped by [`log`].
    log: Value,
    /// Button of the person who looks that cancels it.
    actions: Option<ActionPanel>,
}

impl JobPage {
    /// Builds the page with a log that does not grow. `text` is the log, `commits` the address of commits on the host.
    pub(super) fn new(
        job: &Job,
        pull: Option<&PullRequest>,
        commits: Option<&CommitAddress>,
        text: Option<&str>,
        now: Timestamp,
    ) -> JobPage {
        let rendered = log::render(text.unwrap_or_default());
        JobPage {
            commit: job.head.short().to_owned(),
            commit_address: commits
                .and_then(|commits| commits.url_of(&job.pull.repo, &job.head))
                .map(|page| web_address(&page).to_owned()),
            plan: job.project.as_ref().filter(|_| is_plan(job)).map(|project| plan_address(&job.run, project)),
            job: JobRow::new(job, pull, now),
            lines: rendered.lines,
            first_error: rendered.first_error,
            live: false,
            has_log: text.is_some(),
            log: Value::from_safe_string(rendered.html),
            actions: None,
        }
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
    let text = match &mut log {
        Some(log) => Some(log.so_far().await?),
        None => None,
    };
    let actions = buttons_of_running(&services, &visit, &job).await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let commits = site.state.commit_addresses.get(&job.pull.repo.host.to_ascii_lowercase());
        let mut view = JobPage::new(&job, pull.as_ref(), commits, text.as_deref(), Timestamp::now());
        if live && job.state == JobState::Running {
            view = view.following();
        }
        view.actions = actions;
        site.pages.page("job.html", &visit, &view)
    });
    Ok(rendered.await.map_err(anyhow::Error::from)??)
}

/// Returns a job as JSON.
async fn api_one(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, HttpProblem> {
    let id = checked(&id)?;
    let (job, _) = find(&site.services()?.store, &id).await?.ok_or_else(no_such_job)?;
    Ok(axum::Json(JobRecord::new(&job, &site.state.url)).into_response())
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
    let mut log = services.logs.read(&id).await?.ok_or_else(|| HttpProblem::not_found("This job has no log."))?;
    let text = log.so_far().await?;
    let text = tokio::task::spawn_blocking(move || log::plain(&text)).await.map_err(anyhow::Error::from)?;
    let mut response = typed("text/plain; charset=utf-8", text);
    let name = format!("inline; filename=\"tidelock-{}.log\"", &id.as_str()[..12]);
    response.headers_mut().insert(header::CONTENT_DISPOSITION, header_value(&name));
    Ok(response)
}
