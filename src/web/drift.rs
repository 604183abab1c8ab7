//! `/api/drift/*` in Atlantis' format: detects drift, and returns earlier findings; `/drift` for people.

mod page;
mod remediate;

use super::answer::{HttpProblem, Visit};
use super::commands::{MAX_BODY, with_keys};
use super::openapi::about;
use super::{Route, Site, TokenScope, Who, route};
use crate::dispatch::DriftQuestion;
use crate::domain::drift::{DriftDetection, DriftFinding, ProjectDrift};
use crate::domain::drift_issue::IssuePlace;
use crate::domain::outcome::PlanSummary;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Prefix of all these routes. Their problems have a format of their own.
pub(super) const PREFIX: &str = "/api/drift/";
/// Title of a wrong request.
const WRONG: &str = "Wrong request";

/// Returns the routes of drift runs. With `--enable-drift-detection` off, those of the API respond so.
pub(super) fn routes() -> Vec<Route> {
    use TokenScope::{Apply, Drift, Read};
    use Who::{People, Token};
    use remediate::{RemediateRequest, RemediationData, RemediationList};
    let of_repository = |summary| {
        let doc = about(summary).query("repository", "owner/name.");
        doc.query("type", "Host, as in /api/plan.").problems(&[400])
    };
    let of_detect = about("Plans projects of a branch and tells which have drifted.").takes::<DetectRequest>();
    let of_detect = of_detect.drift::<DetectData>(&[200, 207]).problems(&[400, 404, 413, 502]);
    let of_status = of_repository("The last that is known of the drift of a repository's projects.")
        .optional_query("project", "Name of a project.")
        .optional_query("path", "Its directory.")
        .optional_query("workspace", "Its workspace.")
        .optional_query("ref", "The branch or commit that was asked for.")
        .optional_query("base_branch", "The branch.");
    let plans =
        about("Plans what would put things right, and applies it with the action `apply`.").takes::<RemediateRequest>();
    let plans = plans.drift::<RemediationData>(&[200, 207]).problems(&[400, 404, 409, 413, 502]);
    let list = of_repository("Remediations of a repository, the latest first.").drift::<RemediationList>(&[200]);
    let one = of_repository("A remediation.").part("id", "Its id.").drift::<RemediationData>(&[200]).problems(&[404]);
    let page = about("The page of drift: schedules, and projects that are not clean.")
        .optional_query("repository", "owner/name, or host/owner/name.")
        .optional_query("state", "drifted, failed, skipped or clean.")
        .optional_query("after", "Cursor of the next page.")
        .problems(&[400]);
    let check = about("Begins a detection of a repository with a schedule.").query("repo", "host/owner/name.");
    let check = check.change().problems(&[404, 409, 413, 502]);
    vec![
        route(Method::GET, "/drift", People, page::page, page.page()),
        route(Method::POST, "/drift/check", People, page::check_now, check),
        route(Method::POST, "/api/drift/detect", Token(Drift), detect, of_detect),
        route(Method::GET, "/api/drift/status", Token(Read), status, of_status.drift::<StatusData>(&[200])),
        route(Method::POST, "/api/drift/remediate", Token(Apply), remediate::remediate, plans),
        route(Method::GET, "/api/drift/remediate", Token(Read), remediate::list, list),
        route(Method::GET, "/api/drift/remediate/{id}", Token(Read), remediate::one, one),
    ]
}

/// Envelope of every response; `openapi` describes it.
#[derive(Serialize)]
pub(super) struct DriftAnswer<T> {
    /// True if the request was carried out. Results of single projects are in `data`.
    success: bool,
    data: Option<T>,
    error: Option<DriftError>,
    /// The caller's `X-Request-ID`, or one of the server's own.
    request_id: String,
    timestamp: String,
}

/// A problem.
#[derive(Serialize, ToSchema)]
pub(super) struct DriftError {
    /// Such as `VALIDATION_ERROR`.
    code: &'static str,
    message: String,
    #[schema(value_type = Option<Object>)]
    details: Option<()>,
}

/// What to look at. Case of the keys does not matter, as in Atlantis.
#[derive(Deserialize, ToSchema)]
pub(super) struct DetectRequest {
    /// `owner/name`.
    #[schema(example = "acme/infra")]
    repository: String,
    /// A branch, or the whole id of a commit of `base_branch`, or a tag of one.
    #[serde(rename = "ref")]
    reference: String,
    /// Type of the host by Atlantis' name, such as `Github`.
    #[serde(rename = "type")]
    host: String,
    /// The branch; needed where `ref` is a commit or a tag.
    #[serde(default)]
    base_branch: Option<String>,
    /// Names of projects. Without these and paths: all projects.
    #[serde(default)]
    projects: Option<Vec<String>>,
    /// Directories.
    #[serde(default)]
    paths: Option<Vec<DriftPath>>,
    /// Query of tags that the projects have to fulfil, as for `--tag`.
    #[serde(default)]
    #[schema(example = "env:prod and not legacy")]
    tag: Option<String>,
    /// Names and directories to leave out, or globs of them, as for `--except`.
    #[serde(default)]
    except: Option<Vec<String>>,
    /// The answer has the texts of the plans.
    #[serde(default)]
    include_plan_output: Option<bool>,
}

/// One project by its place.
#[derive(Deserialize, ToSchema)]
struct DriftPath {
    directory: String,
    /// `default` where it is left out.
    #[serde(default)]
    workspace: Option<String>,
}

/// Keys of requests and of paths.
const KEYS: [&str; 11] = [
    "repository",
    "ref",
    "type",
    "base_branch",
    "projects",
    "paths",
    "tag",
    "except",
    "include_plan_output",
    "directory",
    "workspace",
];

/// What a detection has found.
#[derive(Serialize, ToSchema)]
pub(super) struct DetectData {
    id: String,
    repository: String,
    projects: Vec<DriftProjectView>,
    detected_at: String,
    summary: DriftTotals,
}

/// What is known of a repository.
#[derive(Serialize, ToSchema)]
pub(super) struct StatusData {
    repository: String,
    projects: Vec<DriftProjectView>,
    checked_at: String,
    summary: DriftTotals,
}

/// One project.
#[derive(Serialize, ToSchema)]
#[schema(as = DriftProject)]
struct DriftProjectView {
    project_name: String,
    directory: String,
    workspace: String,
    #[serde(rename = "ref")]
    reference: String,
    base_branch: String,
    resolved_commit: String,
    detection_id: String,
    /// False also where nobody knows: then `error` says why.
    has_drift: bool,
    /// Absent where it could not be planned, or was left alone.
    drift: Option<DriftCounts>,
    #[serde(skip_serializing_if = "String::is_empty")]
    plan_output: String,
    last_checked: String,
    /// Why it could not be planned, or was left alone; empty otherwise.
    error: String,
    /// A pull request holds it, so it was left alone.
    skipped: bool,
    /// Number of that pull request.
    skipped_for: Option<u64>,
    /// Its log, for people; empty where no job began.
    job_url: String,
    /// Its issue on the host, in a status; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    issue_url: Option<String>,
}

/// How much differs.
#[derive(Serialize, ToSchema)]
struct DriftCounts {
    to_add: u64,
    to_change: u64,
    to_destroy: u64,
    to_import: u64,
    to_forget: u64,
    total_changes: u64,
    summary: String,
    changes_outside: bool,
}

/// How many projects.
#[derive(Default, Serialize, ToSchema)]
struct DriftTotals {
    total_projects: usize,
    projects_with_drift: usize,
    projects_without_drift: usize,
    projects_with_errors: usize,
    projects_skipped: usize,
}

/// Query of a status.
#[derive(Deserialize)]
struct StatusQuery {
    repository: String,
    #[serde(rename = "type")]
    host: String,
    #[serde(default)]
    project: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    workspace: String,
    #[serde(default, rename = "ref")]
    reference: String,
    #[serde(default)]
    base_branch: String,
}

/// Detects drift, and responds when all projects are done.
pub(super) async fn detect(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    body: Body,
) -> Result<Response, HttpProblem> {
    is_on(&site)?;
    let DetectRequest { repository, reference, host, base_branch, projects, paths, tag, except, include_plan_output } =
        read(body, &KEYS).await?;
    let question = DriftQuestion {
        host_type: host,
        repository: repository.clone(),
        reference,
        base_branch,
        projects: projects.unwrap_or_default(),
        paths: paths.unwrap_or_default().into_iter().map(|path| (path.directory, path.workspace)).collect(),
        tag,
        except: except.unwrap_or_default(),
    };
    let DriftDetection { id, at, projects, .. } = site.services()?.dispatch.detect_drift(question).await?;
    let with_output = include_plan_output.unwrap_or_default();
    let summary = DriftTotals::count(projects.iter().map(|(found, _)| found));
    let view = |(found, output): (ProjectDrift, Option<String>)| DriftProjectView {
        plan_output: output.filter(|_| with_output).unwrap_or_default(),
        ..DriftProjectView::new(&site, &found)
    };
    let projects: Vec<DriftProjectView> = projects.into_iter().map(view).collect();
    let is_whole = summary.projects_with_errors + summary.projects_skipped == 0;
    let data = DetectData { id: id.to_string(), repository, projects, detected_at: at.to_string(), summary };
    let status = if is_whole { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    Ok((status, axum::Json(visit.envelope(data))).into_response())
}

/// Returns the known drift without a new detection.
pub(super) async fn status(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    is_on(&site)?;
    let Query(asked): Query<StatusQuery> = Query::try_from_uri(&uri)
        .map_err(|error| HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, error.body_text()))?;
    let services = site.services()?;
    let mut known = services.dispatch.drift_status(&asked.host, &asked.repository).await?;
    let is = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
    known.retain(|found| {
        is(&asked.project, found.project.name.as_deref().unwrap_or_default())
            && is(&asked.path, &found.project.dir)
            && is(&asked.workspace, &found.project.workspace)
            && is(&asked.reference, &found.reference)
            && is(&asked.base_branch, &found.branch)
    });
    let summary = DriftTotals::count(known.iter());
    let checked = known.iter().map(|found| found.checked).max().unwrap_or_else(Timestamp::now);
    let asked_for = known.clone();
    let issues = services
        .store
        .read(move |view| asked_for.iter().map(|found| view.issue_of_drift(found)).collect::<anyhow::Result<Vec<_>>>());
    let view = |(found, issue): (&ProjectDrift, Option<IssuePlace>)| DriftProjectView {
        issue_url: issue.map(|issue| issue.url).filter(|url| !url.is_empty()),
        ..DriftProjectView::new(&site, found)
    };
    let projects = std::iter::zip(&known, issues.await?).map(view).collect();
    let data = StatusData { repository: asked.repository, projects, checked_at: checked.to_string(), summary };
    Ok(axum::Json(visit.envelope(data)).into_response())
}

fn is_on(site: &Site) -> Result<(), HttpProblem> {
    match site.state.drift_detection {
        true => Ok(()),
        false => Err(HttpProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Not switched on",
            "Drift runs are off on this server. --enable-drift-detection switches them on.",
        )),
    }
}

async fn read<T: DeserializeOwned>(body: Body, keys: &[&str]) -> Result<T, HttpProblem> {
    let wrong = |text: String| HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, text);
    let too_large = |_| {
        let text = format!("The request is larger than {MAX_BODY} bytes.");
        HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", text)
    };
    let body = to_bytes(body, MAX_BODY).await.map_err(too_large)?;
    let value = serde_json::from_slice(&body).map_err(|error| wrong(format!("This is not JSON: {error}")))?;
    serde_json::from_value(with_keys(value, keys)).map_err(|error| wrong(format!("{error}")))
}

impl Visit {
    fn answer<T>(&self, data: Option<T>, error: Option<DriftError>) -> DriftAnswer<T> {
        let request_id = self.caller_id.clone().unwrap_or_else(|| self.id.clone());
        DriftAnswer { success: error.is_none(), data, error, request_id, timestamp: Timestamp::now().to_string() }
    }

    fn envelope<T>(&self, data: T) -> DriftAnswer<T> {
        self.answer(Some(data), None)
    }

    /// Returns a problem in the format of these routes.
    pub(super) fn drift_problem(&self, status: StatusCode, message: String) -> DriftAnswer<()> {
        let code = match status.as_u16() {
            400 | 413 => "VALIDATION_ERROR",
            401 => "UNAUTHORIZED",
            403 => "FORBIDDEN",
            404 => "NOT_FOUND",
            409 => "CONFLICT",
            429 => "RATE_LIMITED",
            503 => "SERVICE_UNAVAILABLE",
            _ => "INTERNAL_ERROR",
        };
        self.answer(None, Some(DriftError { code, message, details: None }))
    }
}

impl DriftProjectView {
    fn new(site: &Site, found: &ProjectDrift) -> DriftProjectView {
        let (drift, error, skipped_for) = match &found.finding {
            DriftFinding::Planned(summary) => (Some(DriftCounts::new(summary)), String::new(), None),
            DriftFinding::Skipped { block, because } => (None, format!("skipped: {because}"), Some(block.pull.number)),
            DriftFinding::Failed(because) => (None, because.clone(), None),
        };
        DriftProjectView {
            project_name: found.project.name.clone().unwrap_or_default(),
            directory: found.project.dir.clone(),
            workspace: found.project.workspace.clone(),
            reference: found.reference.clone(),
            base_branch: found.branch.clone(),
            resolved_commit: found.commit.to_string(),
            detection_id: found.detection.to_string(),
            has_drift: found.finding.has_drift(),
            drift,
            plan_output: String::new(),
            last_checked: found.checked.to_string(),
            error,
            skipped: skipped_for.is_some(),
            skipped_for,
            job_url: found.job.as_ref().map(|job| format!("{}/jobs/{job}", site.state.url)).unwrap_or_default(),
            issue_url: None,
        }
    }
}

impl DriftCounts {
    fn new(summary: &PlanSummary) -> DriftCounts {
        let PlanSummary { add, change, destroy, import, forget, no_changes, changes_outside, outputs_only } = *summary;
        let mut words = match (no_changes, outputs_only) {
            (true, _) => "No changes.".to_owned(),
            (_, true) => "Changes to outputs only.".to_owned(),
            _ => format!("Plan: {add} to add, {change} to change, {destroy} to destroy."),
        };
        if changes_outside {
            words.push_str(" Objects have changed outside of Terraform.");
        }
        DriftCounts {
            to_add: add,
            to_change: change,
            to_destroy: destroy,
            to_import: import,
            to_forget: forget,
            total_changes: add + change + destroy + import + forget,
            summary: words,
            changes_outside,
        }
    }
}

impl DriftTotals {
    fn count<'a>(found: impl Iterator<Item = &'a ProjectDrift>) -> DriftTotals {
        found.fold(DriftTotals::default(), |mut totals, found| {
            totals.total_projects += 1;
            match &found.finding {
                DriftFinding::Skipped { .. } => totals.projects_skipped += 1,
                DriftFinding::Failed(_) => totals.projects_with_errors += 1,
                finding if finding.has_drift() => totals.projects_with_drift += 1,
                DriftFinding::Planned(_) => totals.projects_without_drift += 1,
            }
            totals
        })
    }
}
