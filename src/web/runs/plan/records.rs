//! `/api/runs/{id}/changes`: what the plans of a run change, as JSON.

use super::groups::{FoundChange, PlanGroups};
use super::texts::ProjectText;
use super::{ACTIONS, PlanJobs, PlanQuery, ROWS, load};
use crate::domain::RunId;
use crate::web::Site;
use crate::web::answer::HttpProblem;
use crate::web::api::records::ProjectRecord;
use crate::web::filters::unusable_filter;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::Uri;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// Longest text of a change, and size of all texts of an answer from which the next part begins, in bytes.
const MAX_TEXT: usize = 64 << 10;
const ANSWER_SIZE: usize = 1 << 20;

/// Maximum number of named projects that have a change.
const MAX_PROJECTS: usize = 200;

/// Planned changes, the most dangerous first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::web::runs) struct ChangesAnswer {
    changes: Vec<ChangeRecord>,
    /// Number of all changes that meet the filters.
    found: usize,
    /// Projects whose changes are not known, or not all of them.
    incomplete: Vec<IncompletePlan>,
    /// True if the run has more jobs than are looked at.
    more_jobs: bool,
    /// Address of the next ones, relative to the server's; absent after the last.
    next: Option<String>,
}

/// A planned change of a resource, which several projects may share.
#[derive(Debug, Serialize, ToSchema)]
struct ChangeRecord {
    /// `destroy`, `replace`, `update`, `create`, `import`, `move`, `forget`, `read` or `other`.
    action: &'static str,
    /// Address of the resource.
    address: String,
    /// Address of its module; empty for the root module.
    module: String,
    /// Id of the deposed object that it is about.
    deposed: Option<String>,
    /// The first 200 projects that have it.
    projects: Vec<ProjectRecord>,
    /// Number of all projects that have it.
    project_count: usize,
    /// Terraform's words, with sensitive values as Terraform masks them, up to 64 KiB.
    text: String,
    /// True if the text is longer.
    is_cut: bool,
}

/// A plan that is not read, or not wholly.
#[derive(Debug, Serialize, ToSchema)]
struct IncompletePlan {
    project: Option<ProjectRecord>,
    because: String,
}

impl ChangeRecord {
    fn new(found: &FoundChange<'_>) -> ChangeRecord {
        let mut end = found.text.len().min(MAX_TEXT);
        while !found.text.is_char_boundary(end) {
            end -= 1;
        }
        let projects = found.members.iter().filter_map(|member| member.job.project.as_ref());
        ChangeRecord {
            action: ACTIONS[found.rank].1,
            address: found.change.address.to_owned(),
            module: found.change.module().to_owned(),
            deposed: found.change.deposed.map(str::to_owned),
            projects: projects.take(MAX_PROJECTS).map(ProjectRecord::from).collect(),
            project_count: found.members.len(),
            text: found.text[..end].to_owned(),
            is_cut: end < found.text.len(),
        }
    }
}

impl ChangesAnswer {
    fn new(run: &RunId, jobs: &PlanJobs, texts: &[ProjectText], query: &PlanQuery) -> ChangesAnswer {
        let plans = PlanGroups::new(texts);
        let (mut changes, mut found, mut size) = (Vec::new(), 0, 0);
        for change in plans.changes(query) {
            found += 1;
            if found > query.from && changes.len() < ROWS && size < ANSWER_SIZE {
                let record = ChangeRecord::new(&change);
                size += record.text.len();
                changes.push(record);
            }
        }
        let last = query.from + changes.len();
        let incomplete = plans.incomplete().map(|(project, because)| IncompletePlan {
            project: project.job.project.as_ref().map(ProjectRecord::from),
            because: because.to_owned(),
        });
        ChangesAnswer {
            changes,
            found,
            incomplete: incomplete.collect(),
            more_jobs: jobs.has_more,
            next: (last < found).then(|| query.address_of(&format!("api/runs/{run}/changes"), last)),
        }
    }
}

/// Returns what the plans of a run change.
pub(in crate::web::runs) async fn api_changes(
    State(site): State<Arc<Site>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let query = PlanQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let (listed, jobs, texts) = load(&site, &id, &query).await?;
    let answer = tokio::task::spawn_blocking(move || ChangesAnswer::new(&listed.run.id, &jobs, &texts, &query));
    Ok(axum::Json(answer.await.map_err(anyhow::Error::from)?).into_response())
}
