//! Frozen repositories: for scripts, on the dashboard, and the button that ends a freeze.

use super::Site;
use super::answer::{HttpProblem, Visit};
use super::locks::FormFields;
use super::pages::When;
use crate::dispatch::Lifted;
use crate::domain::freeze::Freeze;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A frozen repository as scripts read it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct FreezeJson {
    repo: String,
    user: String,
    why: String,
    since: String,
    /// The pull request where it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pull: Option<u64>,
}

/// All frozen repositories.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Freezes {
    freezes: Vec<FreezeJson>,
}

/// Returns all frozen repositories, for scripts.
pub(super) async fn api(State(site): State<Arc<Site>>) -> Result<Response, HttpProblem> {
    let freezes = site.services()?.store.read(|view| view.freezes()).await?;
    let one = |freeze: Freeze| FreezeJson {
        repo: freeze.repo.to_string(),
        user: freeze.user,
        why: freeze.why,
        since: freeze.since.to_string(),
        pull: freeze.pull.map(|pull| pull.number),
    };
    Ok(axum::Json(Freezes { freezes: freezes.into_iter().map(one).collect() }).into_response())
}

/// A frozen repository on the dashboard.
#[derive(Serialize)]
pub(super) struct FreezeRow {
    /// `host/owner/name`, for the button.
    id: String,
    repo: String,
    user: String,
    why: String,
    since: When,
}

impl FreezeRow {
    pub(super) fn new(freeze: &Freeze, now: Timestamp) -> FreezeRow {
        FreezeRow {
            id: freeze.repo.to_string(),
            repo: freeze.repo.full_name(),
            user: freeze.user.clone(),
            why: freeze.why.clone(),
            since: When::new(freeze.since, now),
        }
    }
}

/// Allows applies of one repository again.
pub(super) async fn lift(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let fields = FormFields::read(request).await?;
    let named = fields.get("repo").unwrap_or_default().to_owned();
    let entry = visit.entry("unfreeze", &named, "done");
    match services.dispatch.lift_freeze(&named, entry, visit.visitor).await? {
        Lifted::Done => Ok(visit.done("unfrozen", "Unfrozen".into())),
        Lifted::Absent => Err(HttpProblem::new(StatusCode::NOT_FOUND, "Not frozen", "No such repository is frozen.")),
        Lifted::NotPermitted { because } => {
            Err(HttpProblem::new(StatusCode::FORBIDDEN, "Not permitted", format!("{because}.")))
        }
    }
}
