//! `/api/drift/remediate`: plans that show what would put things right, and those that were asked for before.

use super::{DriftCounts, DriftPath, KEYS, WRONG, is_on, read};
use crate::dispatch::{DriftQuestion, Remedy};
use crate::domain::RunId;
use crate::domain::drift::{DriftFinding, RemediatedProject, Remediation};
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
    /// A branch, or the whole id of a commit of `base_branch`.
    #[serde(rename = "ref")]
    reference: String,
    /// Host: `Github` or `AzureDevops`.
    #[serde(rename = "type")]
    host: String,
    /// The branch; needed where `ref` is a commit.
    #[serde(default)]
    base_branch: Option<String>,
    /// Names of projects. Without these and paths: all projects.
    #[serde(default)]
    projects: Option<Vec<String>>,
    /// Directories.
    #[serde(default)]
    paths: Option<Vec<DriftPath>>,
    /// Only projects in these workspaces.
    #[serde(default)]
    workspaces: Option<Vec<String>>,
    /// `plan`.
    #[serde(default)]
    action: Option<String>,
    /// Only projects that are known to have drifted, at this ref and commit.
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
    /// Why nothing was planned; empty otherwise.
    error: String,
    projects: Vec<RemediatedView>,
    summary: RemediationTotals,
}

/// Those of a repository, the latest first.
#[derive(Serialize, ToSchema)]
pub(in crate::web) struct RemediationList {
    repository: String,
    /// Without the texts of their plans.
    remediations: Vec<RemediationData>,
}

/// One project.
#[derive(Serialize, ToSchema)]
#[schema(as = RemediatedProject)]
struct RemediatedView {
    project_name: String,
    directory: String,
    workspace: String,
    /// `success` or `failed`.
    status: &'static str,
    /// Empty too where it is too long to be kept: the log has it.
    plan_output: String,
    apply_output: String,
    error: String,
    /// What was known at this commit before.
    drift_before: Option<DriftCounts>,
    /// What the plan has found.
    drift_after: Option<DriftCounts>,
    job_url: String,
}

/// How many projects.
#[derive(Serialize, ToSchema)]
struct RemediationTotals {
    total_projects: usize,
    success_count: usize,
    failure_count: usize,
}

/// The query of what was asked for before.
#[derive(Deserialize)]
struct RepositoryQuery {
    repository: String,
    #[serde(rename = "type")]
    host: String,
}

/// Plans projects, and answers when that is recorded.
pub(in crate::web) async fn remediate(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    body: Body,
) -> Result<Response, HttpProblem> {
    is_on(&site)?;
    let asked: RemediateRequest = read(body, &[&KEYS[..], &["workspaces", "action", "drift_only"]].concat()).await?;
    match asked.action.as_deref().unwrap_or("plan") {
        "plan" => {}
        "apply" => {
            let text = "Applies against drift are not built (enable-drift-remediation). Ask for the action `plan`, and put things right \
                        by a pull request.";
            return Err(HttpProblem::new(StatusCode::FORBIDDEN, "Not permitted", text));
        }
        _ => return Err(HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, "action is neither plan nor apply")),
    }
    let paths = asked.paths.unwrap_or_default().into_iter().map(|path| (path.directory, path.workspace));
    let question = DriftQuestion {
        host_type: asked.host,
        repository: asked.repository,
        reference: asked.reference,
        base_branch: asked.base_branch,
        projects: asked.projects.unwrap_or_default(),
        paths: paths.collect(),
    };
    let remedy =
        Remedy { drift_only: asked.drift_only.unwrap_or_default(), workspaces: asked.workspaces.unwrap_or_default() };
    let done = site.services()?.dispatch.remediate_drift(question, remedy).await?;
    let data = RemediationData::new(&site, &done, false);
    let status = if data.status == "success" { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    Ok((status, axum::Json(visit.envelope(data))).into_response())
}

/// Those of a repository.
pub(in crate::web) async fn list(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let asked = query(&site, &uri)?;
    let found = site.services()?.dispatch.remediations(&asked.host, &asked.repository, None).await??;
    let mut remediations: Vec<RemediationData> =
        found.iter().map(|(one, runs)| RemediationData::new(&site, one, *runs)).collect();
    for project in remediations.iter_mut().flat_map(|one| &mut one.projects) {
        project.plan_output.clear();
    }
    let data = RemediationList { repository: asked.repository, remediations };
    Ok(axum::Json(visit.envelope(data)).into_response())
}

/// One of them.
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
    let found = site.services()?.dispatch.remediations(&asked.host, &asked.repository, Some(id)).await??;
    let (found, runs) = found.first().ok_or_else(none)?;
    Ok(axum::Json(visit.envelope(RemediationData::new(&site, found, *runs))).into_response())
}

fn query(site: &Site, uri: &Uri) -> Result<RepositoryQuery, HttpProblem> {
    is_on(site)?;
    let query = Query::try_from_uri(uri);
    let Query(asked) = query.map_err(|error| HttpProblem::new(StatusCode::BAD_REQUEST, WRONG, error.body_text()))?;
    Ok(asked)
}

impl RemediationData {
    fn new(site: &Site, one: &Remediation, runs: bool) -> RemediationData {
        let all = one.ended.iter().flat_map(|end| &end.projects);
        let projects: Vec<RemediatedView> = all.map(|project| RemediatedView::new(site, project)).collect();
        let failures = projects.iter().filter(|project| project.status == "failed").count();
        let refused = one.ended.as_ref().map(|end| end.refused.clone().unwrap_or_default());
        let error = match (&refused, runs) {
            (Some(refused), _) => refused.clone(),
            (None, true) => String::new(),
            (None, false) => "the server ended before it did; ask again".to_owned(),
        };
        let status = match (runs && refused.is_none(), error.is_empty(), failures) {
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
            action: "plan",
            status,
            started_at: one.started.to_string(),
            completed_at: one.ended.as_ref().map(|end| end.at.to_string()),
            error,
            projects,
            summary: RemediationTotals {
                total_projects: total,
                success_count: total - failures,
                failure_count: failures,
            },
        }
    }
}

impl RemediatedView {
    fn new(site: &Site, one: &RemediatedProject) -> RemediatedView {
        let found = &one.found;
        let error = match &found.finding {
            DriftFinding::Planned(_) => String::new(),
            DriftFinding::Skipped { because, .. } => format!("skipped: {because}"),
            DriftFinding::Failed(because) => because.clone(),
        };
        RemediatedView {
            project_name: found.project.name.clone().unwrap_or_default(),
            directory: found.project.dir.clone(),
            workspace: found.project.workspace.clone(),
            status: if error.is_empty() { "success" } else { "failed" },
            plan_output: one.output.clone(),
            apply_output: String::new(),
            error,
            drift_before: one.before.as_ref().map(DriftCounts::new),
            drift_after: found.finding.summary().map(DriftCounts::new),
            job_url: found.job.as_ref().map(|job| format!("{}/jobs/{job}", site.state.url)).unwrap_or_default(),
        }
    }
}
