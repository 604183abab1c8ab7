//! `/runs`: the list of runs with its filters. `/runs/{id}`: one run with its results and jobs.

mod plan;
mod query;
mod results;

use super::actions::{ActionFacts, ActionPanel, PanelScope};
use super::answer::{HttpProblem, Visit};
use super::api::records::{JobRecord, JobsAnswer, MAX_IN_RECORD, PullsAnswer, RunRecord, RunsAnswer};
use super::audit::AuditQuery;
use super::dashboard::JobRow;
use super::filters::{suggested, unusable_filter};
use super::jobs::StepView;
use super::openapi::about;
use super::pages::{ProjectView, PullView, StatusMark, When, duration, shown, web_address};
use super::{Route, Site, TokenScope, Who, pulls, route};
use crate::dispatch::PlaceAtExecutor;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::job_times::JobTimes;
use crate::domain::state::Job;
use crate::domain::{CommitAddress, JobId, RepoId, RunId};
use crate::store::{ListedRun, RunCursor, RunResult, RunsFound, View};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{Method, Uri};
use jiff::Timestamp;
pub(super) use plan::{is_plan, plan_address};
pub(super) use query::{RunQuery, parse_run_cursor, run_cursor};
pub(super) use results::{MarkedPolicySet, RunOutcome};
use results::{ResultRow, labels};
use serde::Serialize;
use std::sync::Arc;

/// Number of runs on one page.
const ROWS: usize = 50;

/// Maximum number of jobs, and of results, on the page of a run.
const MAX_JOBS: usize = 200;

/// Maximum number of named projects of a run in a list.
const MAX_NAMED: usize = 3;

/// Returns the routes of the pages with a history.
pub(super) fn routes() -> Vec<Route> {
    use Who::{Api, People};
    let run = about("The page of a run, with its results and jobs.").part("id", "The run's id.").problems(&[404]);
    let planned = |summary| {
        about(summary)
            .part("id", "The run's id.")
            .optional_query(
                "action",
                "destroy, replace, update, create, import, move, forget, read or other; several times for several.",
            )
            .optional_query("address", "Part of the address of a resource.")
            .optional_query("project", "Name of a project, or directory/workspace.")
            .optional_query("from", "Number of resources before the page.")
            .problems(&[400, 404])
    };
    let changes = planned("What the plans of a run change, up to 200 resources in an answer.");
    let filtered = |summary| {
        about(summary)
            .optional_query("repository", "owner/name, or host/owner/name.")
            .optional_query("pull", "Number of the pull request, or drift.")
            .optional_query("project", "Directory, name, directory/workspace or directory/workspace/name.")
            .optional_query("person", "Who asked.")
            .optional_query("command", "The command.")
            .optional_query("result", "running, succeeded, failed, locked, stopped or ended.")
            .optional_query("after", "Cursor of the page of older runs.")
            .optional_query("before", "Cursor of the page of newer runs.")
            .problems(&[400])
    };
    let jobs =
        about("Jobs of a run, the oldest first; the first 200.").part("id", "The run's id.").json::<JobsAnswer>();
    let pull = about("The page of a pull request: projects, locks, approvals and runs.");
    let pull = pull.part("pull", "host/owner/name/number, each part escaped.");
    let pull = pull.optional_query("request", "Key of a command that a button has asked for.").problems(&[400, 404]);
    let of_pulls = |summary| {
        about(summary)
            .optional_query("repository", "owner/name, or host/owner/name.")
            .optional_query("after", "Cursor of the page of earlier ones.")
            .problems(&[400])
    };
    let pulls = of_pulls("Open pull requests and what they wait for, the latest activity first.");
    let pull_records = of_pulls("Open pull requests with the states of their projects.").json::<PullsAnswer>();
    let run_records = filtered("Runs, newest first, 50 in an answer.").json::<RunsAnswer>();
    vec![
        route(Method::GET, "/runs", People, list, filtered("The list of runs, newest first.").page()),
        route(Method::GET, "/runs/{id}", People, page, run.page()),
        route(Method::GET, "/runs/{id}/plan", People, plan::page, planned("What the plans of a run change.").page()),
        route(Method::GET, "/api/runs", Api(TokenScope::Read), api_list, run_records),
        route(Method::GET, "/api/runs/{id}/jobs", Api(TokenScope::Read), api_jobs, jobs.problems(&[404])),
        route(
            Method::GET,
            "/api/runs/{id}/changes",
            Api(TokenScope::Read),
            plan::api_changes,
            changes.json::<plan::ChangesAnswer>(),
        ),
        route(Method::GET, "/api/pulls", Api(TokenScope::Read), pulls::api_list, pull_records),
        route(Method::GET, "/pulls", People, pulls::list, pulls.page()),
        route(Method::GET, "/pulls/{*pull}", People, pulls::page, pull.page()),
    ]
}

/// A run in a list.
#[derive(Serialize)]
pub(super) struct RunRow {
    id: RunId,
    typed: String,
    cause: &'static str,
    pull: PullView,
    user: String,
    mark: StatusMark,
    /// Names of the first projects.
    projects: Vec<String>,
    /// Number of further ones.
    more: usize,
    fault: Option<String>,
    commit: String,
    started: When,
    took: Option<String>,
}

/// The page of the list.
#[derive(Serialize)]
struct RunList {
    rows: Vec<RunRow>,
    query: RunQuery,
    /// True if the query has a filter.
    filtered: bool,
    commands: Vec<&'static str>,
    results: Vec<&'static str>,
    /// Names of hosts and repositories that are served, for the form.
    repositories: Vec<String>,
    newer: Option<String>,
    older: Option<String>,
}

/// The page of a run.
#[derive(Serialize)]
struct RunPage {
    run: RunRow,
    commit_address: Option<String>,
    /// Address of its trace (`--trace-page`).
    trace: Option<String>,
    finished: Option<When>,
    /// True if it has plans.
    has_plan: bool,
    results: Vec<ResultRow>,
    /// Number of results that are not shown.
    more_results: usize,
    jobs: Vec<RunJobRow>,
    /// True if there are more jobs.
    more_jobs: bool,
    /// Jobs that wait for a slot of an executor, up to [`MAX_JOBS`].
    waiting: Vec<WaitingRow>,
    before: Option<RunId>,
    after: Option<RunId>,
    /// Filter of the list with the runs of the pull request.
    of_pull: String,
    /// Filter of the audit log with its entries.
    audit: String,
    /// Buttons of the person who looks, for the pull request.
    actions: Option<ActionPanel>,
}

/// A job of the run.
#[derive(Serialize)]
struct RunJobRow {
    #[serde(flatten)]
    job: JobRow,
    steps: Vec<StepView>,
}

/// A job of the run that waits for a slot of an executor.
#[derive(Serialize)]
struct WaitingRow {
    project: ProjectView,
    executor: String,
    place: usize,
    waiting: usize,
    limit: usize,
}

impl WaitingRow {
    fn new(repo: &RepoId, line: PlaceAtExecutor) -> WaitingRow {
        let PlaceAtExecutor { project, executor, place, waiting, limit } = line;
        WaitingRow { project: ProjectView::of(repo, &project), executor, place, waiting, limit }
    }
}

impl From<RunResult> for StatusMark {
    fn from(result: RunResult) -> StatusMark {
        let tone = match result {
            RunResult::Running => "busy",
            RunResult::Succeeded => "good",
            RunResult::Failed => "bad",
            RunResult::Locked | RunResult::Stopped => "warn",
            RunResult::Ended => "quiet",
        };
        StatusMark::new(result.as_str(), tone)
    }
}

/// Returns the cause of a command, after the person's name.
fn cause_words(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Autoplan => "autoplan",
        Trigger::Comment => "comment",
        Trigger::Api => "API",
        Trigger::Replan => "planned again by the server",
        Trigger::Merge => "after the merge",
        Trigger::Drift => "drift run",
        Trigger::Page => "page",
        Trigger::AutoApply => "applied automatically by the server",
    }
}

impl RunRow {
    pub(super) fn new(listed: &ListedRun, now: Timestamp) -> RunRow {
        let run = &listed.run;
        let (projects, more) = labels(run, MAX_NAMED);
        let typed = if run.typed.is_empty() { run.command.spoken() } else { run.typed.as_str() };
        RunRow {
            id: run.id.clone(),
            typed: shown(typed),
            cause: cause_words(run.trigger),
            pull: PullView::find(&run.pull, listed.pull.as_ref()),
            user: run.user.to_string(),
            mark: StatusMark::from(listed.result),
            projects,
            more,
            fault: run.fault.as_deref().map(shown),
            commit: run.head.short().to_owned(),
            started: When::new(run.started, now),
            took: run.finished.map(|end| duration(run.started, end)),
        }
    }
}

impl RunList {
    fn new(found: &RunsFound, query: &RunQuery, served: &[RepoId], now: Timestamp) -> RunList {
        RunList {
            rows: found.rows.iter().map(|listed| RunRow::new(listed, now)).collect(),
            filtered: query.has_filter(),
            commands: query::commands_with_run().map(CommandName::as_str).collect(),
            results: RunResult::ALL.iter().map(|result| result.as_str()).collect(),
            repositories: suggested(served),
            newer: found.newer.map(|cursor| query.address(cursor)),
            older: found.older.map(|cursor| query.address(cursor)),
            query: query.clone(),
        }
    }
}

/// Loads the runs for the query of an address, and the repositories that are served.
async fn load(site: &Site, uri: &Uri) -> Result<(RunQuery, RunsFound, Vec<RepoId>), HttpProblem> {
    let services = site.services()?;
    let query = RunQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let asked = query.clone();
    let found = services.store.read(move |view| {
        let served = view.served_repos()?;
        let mut among = served.clone();
        if asked.is_of_drift_runs() {
            among.extend(view.repos_with_drift()?);
        }
        let filter = match asked.filter(&among) {
            Ok(filter) => filter,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok((view.list_runs(&filter, asked.cursor, ROWS)?, served)))
    });
    let (found, served) = found.await?.map_err(unusable_filter)?;
    Ok((query, found, served))
}

/// Serves the list.
pub(super) async fn list(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let (query, found, served) = load(&site, &uri).await?;
    Ok(site.pages.page("runs.html", &visit, &RunList::new(&found, &query, &served, Timestamp::now()))?)
}

/// Returns the list as JSON.
pub(super) async fn api_list(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, HttpProblem> {
    let (query, found, _) = load(&site, &uri).await?;
    let record = |listed: &ListedRun| {
        let (projects, _) = labels(&listed.run, MAX_IN_RECORD);
        RunRecord::new(listed, projects, &site.state.url)
    };
    let runs = found.rows.iter().map(record).collect();
    let next = found.older.map(|cursor| query.address_of("api/runs", cursor));
    Ok(axum::Json(RunsAnswer { runs, next }).into_response())
}

/// Returns the jobs of a run as JSON.
pub(super) async fn api_jobs(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, HttpProblem> {
    let id = RunId::parse(&id).ok_or_else(no_such_run)?;
    let services = site.services()?;
    let found = services.store.read(move |view| {
        let Some(_) = view.run(&id)? else { return Ok(None) };
        Ok(Some(first_jobs(view, &id)?))
    });
    let (jobs, times) = found.await?.ok_or_else(no_such_run)?;
    let more = jobs.len() > MAX_JOBS;
    let jobs = jobs
        .iter()
        .zip(&times)
        .take(MAX_JOBS)
        .map(|(job, times)| JobRecord::new(job, times, &site.state.url))
        .collect();
    Ok(axum::Json(JobsAnswer { jobs, more }).into_response())
}

/// Returns the first jobs of a run, one more than pages show, with their times.
fn first_jobs(view: &View<'_>, run: &RunId) -> anyhow::Result<(Vec<Job>, Vec<JobTimes>)> {
    let jobs = view.first_jobs_of(run, MAX_JOBS + 1)?;
    let times = jobs.iter().map(|job| view.job_times(&job.id)).collect::<anyhow::Result<_>>()?;
    Ok((jobs, times))
}

fn no_such_run() -> HttpProblem {
    HttpProblem::not_found("There is no such run, or it is so old that it was dropped.")
}

/// What the state has of a run.
struct StoredRun {
    listed: ListedRun,
    jobs: Vec<Job>,
    /// Times of the jobs.
    times: Vec<JobTimes>,
    before: Option<RunId>,
    after: Option<RunId>,
}

impl RunPage {
    fn new(
        records: &StoredRun,
        executable: &str,
        commits: Option<&CommitAddress>,
        now: Timestamp,
    ) -> anyhow::Result<RunPage> {
        let StoredRun { listed, jobs, times, before, after } = records;
        let run = &listed.run;
        let outcomes = RunOutcome::all(run, MAX_JOBS)?;
        let job_of = |outcome: &RunOutcome| -> Option<JobId> {
            jobs.iter().find(|job| outcome.is_of(job)).map(|job| job.id.clone())
        };
        let job_row = |(job, times): (&Job, &JobTimes)| RunJobRow {
            job: JobRow::new(job, listed.pull.as_ref(), now),
            steps: StepView::all(times),
        };
        Ok(RunPage {
            trace: None,
            run: RunRow::new(listed, now),
            commit_address: commits
                .and_then(|commits| commits.url_of(&run.pull.repo, &run.head))
                .map(|page| web_address(&page).to_owned()),
            finished: run.finished.map(|end| When::new(end, now)),
            has_plan: jobs.iter().any(is_plan),
            results: outcomes.iter().map(|outcome| ResultRow::new(outcome, run, job_of(outcome), executable)).collect(),
            more_results: run.results.len().saturating_sub(MAX_JOBS),
            jobs: jobs.iter().zip(times).take(MAX_JOBS).map(job_row).collect(),
            more_jobs: jobs.len() > MAX_JOBS,
            waiting: Vec::new(),
            before: before.clone(),
            after: after.clone(),
            of_pull: RunQuery::of_pull(&run.pull).address(RunCursor::Newest),
            audit: AuditQuery::of_run(run).address("audit", None),
            actions: None,
        })
    }
}

/// Serves the page of a run.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(id): Path<String>,
) -> Result<Response, HttpProblem> {
    let id = RunId::parse(&id).ok_or_else(no_such_run)?;
    let services = site.services()?;
    let is_actor = visit.actor().is_some();
    let found = services.store.read(move |view| {
        let Some(listed) = view.run_with_result(&id)? else { return Ok(None) };
        let (jobs, times) = first_jobs(view, &id)?;
        let (before, after) = (view.run_before(&listed.run)?, view.run_after(&listed.run)?);
        let facts = if is_actor { ActionFacts::load(view, &listed.run.pull)? } else { None };
        Ok(Some((StoredRun { listed, jobs, times, before, after }, facts)))
    });
    let (records, facts) = found.await?.ok_or_else(no_such_run)?;
    let host = records.listed.run.pull.repo.host.to_ascii_lowercase();
    let commits = site.state.commit_addresses.get(&host);
    let mut view = RunPage::new(&records, &site.state.executable_name, commits, Timestamp::now())?;
    let run = &records.listed.run;
    // The results of a run are about its commit: nothing is applied below those of an earlier one.
    let scope = |facts: &ActionFacts| if facts.is_head(&run.head) { PanelScope::Pull } else { PanelScope::Job };
    view.actions = facts.and_then(|facts| ActionPanel::new(&facts, &services.dispatch, &visit, scope(&facts)));
    let places = services.dispatch.places_in_line(&run.id, MAX_JOBS);
    view.waiting = places.into_iter().map(|place| WaitingRow::new(&run.pull.repo, place)).collect();
    view.trace = site.state.trace_page.as_ref().map(|page| page.replace("{trace}", run.id.as_str()));
    Ok(site.pages.page("run.html", &visit, &view)?)
}
