//! `/api/drift/remediate`: plans that correct drift, applies of them, and earlier remediations.

use super::{DriftCounts, DriftPath, KEYS, WRONG, is_on, read};
use crate::dispatch::{DriftQuestion, RemediationRun, Remedy};
use crate::domain::drift::{DriftFinding, RemediatedProject, Remediation};
use crate::domain::{JobId, RunId};
use crate::web::Site;
use crate::web::answer::{HttpProblem, Visit};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// What to plan. Case of the keys does not matter, as in Atlantis.
#[derive(Deserialize, ToSchema)]
pub(in crate::web) struct RemediateRequest {
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
    /// Only projects in these workspaces.
    #[serde(default)]
    workspaces: Option<Vec<String>>,
    /// `plan`, or `apply`: then the plans are applied, with `--enable-drift-remediation`.
    #[serde(default)]
    action: Option<String>,
    /// Only projects that are known to have drifted, at this ref and commit. It is always so where they are applied.
    #[serde(default)]
    drift_only: Option<bool>,
}

/// What came of it.
#[derive(Serialize, ToSchema)]
pub(in crate::web) struct RemediationData {
    id: String,
    repository: String,
    #[serde(rename = "ref")]
    reference: String,
    action: &'static str,
    /// `running`, `success`, `partial` or `failed`.
    status: &'static str,
    started_at: String,
    completed_at: Option<String>,
    /// Why nothing was planned, or what broke it as a whole; empty otherwise.
    error: String,
    projects: Vec<RemediatedView>,
    summary: RemediationTotals,
}

/// Those of a repository, the latest first.
#[derive(Serialize, ToSchema)]
pub(in crate::web) struct RemediationList {
    repository: String,
    /// Without texts.
    remediations: Vec<RemediationData>,
}

/// One project.
#[derive(Serialize, ToSchema)]
#[schema(as = RemediatedProject)]
struct RemediatedView {
    project_name: String,
    directory: String,
    workspace: String,
    /// `running`, `success` or `failed`.
    status: &'static str,
    /// Empty too where it is too long to be kept: the log has it.
    plan_output: String,
    /// The same of its apply.
    apply_output: String,
    error: String,
    /// What was known at this commit before.
    drift_before: Option<DriftCounts>,
    /// What the plan has found; where it was applied, what is known since.
    drift_after: Option<DriftCounts>,
    job_url: String,
    /// The log of its apply; empty where none began.
    apply_job_url: String,
}

/// How many projects.
#[derive(Serialize, ToSchema)]
struct RemediationTotals {
    total_projects: usize,
    success_count: usize,
    failure_count: usize,
}

/// Query of earlier remediations.
#[derive(Deserialize)]
struct RepositoryQuery {
    repository: String,
    #[serde(rename = "type")]
    host: String,
}

/// Plans projects, applies the plans if requested, and responds when that is recorded.
pub(in crate::web) async fn remediate(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    body: Body,
) -> Result<Response, HttpProblem> {
    is_on(&site)?;
    let asked: RemediateRequest = read(body, &[&KEYS[..], &["workspaces", "action", "drift_only"]].concat()).await?;
    let apply = match asked.action.as_deref().unwrap_or("plan") {
        "plan" => false,
        "apply" if site.state.drift_remediation => true,
        "apply" => {
            let text = "Drift runs apply nothing on this server. --enable-drift-remediation lets them. Ask for the action `plan`, and put \
                        things right by a pull request.";
            return Err(HttpProblem::new(StatusCode::FORBIDDEN, "Not permitted", text));
        }
        _ => return Err(HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, "action is neither plan nor apply")),
    };
    let paths = asked.paths.unwrap_or_default().into_iter().map(|path| (path.directory, path.workspace));
    let question = DriftQuestion {
        host_type: asked.host,
        repository: asked.repository,
        reference: asked.reference,
        base_branch: asked.base_branch,
        projects: asked.projects.unwrap_or_default(),
        paths: paths.collect(),
        tag: asked.tag,
        except: asked.except.unwrap_or_default(),
    };
    let drift_only = asked.drift_only.unwrap_or_default();
    let remedy = Remedy { apply, drift_only, workspaces: asked.workspaces.unwrap_or_default() };
    let done = site.services()?.dispatch.remediate_drift(question, remedy).await?;
    let data = RemediationData::new(&site, &done, RemediationRun::Ended);
    let status = if data.status == "success" { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    Ok((status, axum::Json(visit.envelope(data))).into_response())
}

/// Returns the remediations of a repository, without texts.
pub(in crate::web) async fn list(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let asked = query(&site, &uri)?;
    let found = site.services()?.dispatch.remediations(&asked.host, &asked.repository, None).await?;
    let mut remediations: Vec<RemediationData> =
        found.iter().map(|(one, run)| RemediationData::new(&site, one, *run)).collect();
    for project in remediations.iter_mut().flat_map(|one| &mut one.projects) {
        project.plan_output.clear();
        project.apply_output.clear();
    }
    let data = RemediationList { repository: asked.repository, remediations };
    Ok(axum::Json(visit.envelope(data)).into_response())
}

/// Returns one remediation.
pub(in crate::web) async fn one(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let asked = query(&site, &uri)?;
    let none = || {
        HttpProblem::not_found("There is no such remediation of this repository, or it is so old that it was dropped.")
    };
    let id = RunId::parse(&id).ok_or_else(none)?;
    let found = site.services()?.dispatch.remediations(&asked.host, &asked.repository, Some(id)).await?;
    let (found, run) = found.first().ok_or_else(none)?;
    Ok(axum::Json(visit.envelope(RemediationData::new(&site, found, *run))).into_response())
}

fn query(site: &Site, uri: &Uri) -> Result<RepositoryQuery, HttpProblem> {
    is_on(site)?;
    let query = Query::try_from_uri(uri);
    let Query(asked) = query.map_err(|error| HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, error.body_text()))?;
    Ok(asked)
}

impl RemediationData {
    fn new(site: &Site, one: &Remediation, run: RemediationRun) -> RemediationData {
        let all = one.projects().iter();
        let projects: Vec<RemediatedView> = all.map(|project| RemediatedView::new(site, project, run)).collect();
        let count = |status: &str| projects.iter().filter(|project| project.status == status).count();
        let (failures, successes) = (count("failed"), count("success"));
        let refused = one.ended.as_ref().map(|end| end.refused.clone().unwrap_or_default());
        let error = match (&refused, run) {
            (Some(refused), _) => refused.clone(),
            (None, RemediationRun::Running) => String::new(),
            (None, RemediationRun::Ended) if one.applies => {
                "the server ended before it did, and does not go on with it: projects that are not named here \
                                             were not applied"
                    .to_owned()
            }
            (None, RemediationRun::Ended) => "the server ended before it did; ask again".to_owned(),
        };
        let status = match (run == RemediationRun::Running && refused.is_none(), error.is_empty(), failures) {
            (true, ..) => "running",
            (_, false, _) => "failed",
            (_, true, 0) => "success",
            (_, true, failed) if failed == projects.len() => "failed",
            _ => "partial",
        };
        let total = projects.len();
        RemediationData {
            id: one.id.to_string(),
            repository: one.repo.full_name(),
            reference: one.reference.clone(),
            action: if one.applies { "apply" } else { "plan" },
            status,
            started_at: one.started.to_string(),
            completed_at: one.ended.as_ref().map(|end| end.at.to_string()),
            error,
            projects,
            summary: RemediationTotals { total_projects: total, success_count: successes, failure_count: failures },
        }
    }
}

impl RemediatedView {
    fn new(site: &Site, one: &RemediatedProject, run: RemediationRun) -> RemediatedView {
        let found = &one.found;
        let ended = one.apply.as_ref().map(|apply| apply.end.as_ref());
        let error = match &found.finding {
            // The apply was killed, and its end is not known.
            DriftFinding::Planned(_) if ended == Some(None) && run == RemediationRun::Ended => {
                "it may have been applied: the server ended before it did. A new detection shows what is left"
                    .to_owned()
            }
            DriftFinding::Planned(_) => String::new(),
            DriftFinding::Skipped { because, .. } => format!("skipped: {because}"),
            DriftFinding::Failed(because) => because.clone(),
        };
        let status = match (ended, error.is_empty()) {
            (Some(None), true) => "running",
            (_, true) => "success",
            (_, false) => "failed",
        };
        let log = |job: Option<&JobId>| job.map(|job| format!("{}/jobs/{job}", site.state.url)).unwrap_or_default();
        RemediatedView {
            project_name: found.project.name.clone().unwrap_or_default(),
            directory: found.project.dir.clone(),
            workspace: found.project.workspace.clone(),
            status,
            plan_output: one.output.clone(),
            apply_output: ended.flatten().map(|end| end.output.clone()).unwrap_or_default(),
            error,
            drift_before: one.before.as_ref().map(DriftCounts::new),
            drift_after: found.finding.summary().map(DriftCounts::new),
            job_url: log(found.job.as_ref()),
            apply_job_url: log(one.apply.as_ref().map(|apply| &apply.job)),
        }
    }
}
