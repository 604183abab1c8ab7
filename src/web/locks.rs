//! Pages of project locks, the apply lock, and their changes.

use super::Site;
use super::answer::{HttpProblem, Visit};
use super::audit::AuditQuery;
use super::pages::{ProjectView, PullView, StatusView, When};
use crate::comment::checked_reason;
use crate::dispatch::Discard;
use crate::domain::ProjectId;
use crate::domain::state::{ApplyLock, AuditEntry, PlanRecord, ProjectLock, ProjectStatus};
use crate::store::Store;
use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use url::form_urlencoded;

/// Largest form, in bytes.
const MAX_FORM: usize = 16 * 1024;

/// Longest reason of an apply lock, in characters.
const MAX_REASON: usize = 500;

/// Message about a lock that does not exist.
const RELEASED: &str = "There is no such lock: it was released since, by a merge, a close or an unlock.";

/// Returns the address of a lock's page, relative to `/`.
pub(super) fn lock_address(key: &str) -> String {
    format!("lock?id={}", form_urlencoded::byte_serialize(key.as_bytes()).collect::<String>())
}

#[derive(Serialize)]
pub(super) struct LockPage {
    key: String,
    project: ProjectView,
    pull: PullView,
    user: String,
    since: When,
    status: Option<StatusView>,
    head: Option<String>,
    /// Command that plans and locks the project again.
    plan_again: String,
    /// Command that releases all locks of the pull request.
    unlock: String,
    /// Filter of the audit log with the entries of the project.
    audit: String,
}

impl LockPage {
    pub(super) fn new(
        lock: &ProjectLock,
        status: Option<&ProjectStatus>,
        plans: &[PlanRecord],
        executable: &str,
        now: Timestamp,
    ) -> LockPage {
        let project = &lock.project;
        LockPage {
            key: lock.id(),
            project: ProjectView::of(&lock.repo, project),
            pull: PullView::new(&lock.holder.pull, &lock.holder.title, &lock.holder.url),
            user: lock.holder.user.to_string(),
            since: When::new(lock.holder.since, now),
            head: status.map(|status| status.head.short().to_owned()),
            status: status.map(|status| StatusView::from(status).with_limit(status, plans, now)),
            plan_again: format!("{executable} plan {}", target_flags(project)),
            unlock: format!("{executable} unlock"),
            audit: AuditQuery::of_project(&lock.repo, project).address("audit", None),
        }
    }
}

/// Returns the flags of a comment that name a project.
pub(super) fn target_flags(project: &ProjectId) -> String {
    match &project.name {
        Some(name) => format!("-p {}", shell_word(name)),
        None if project.workspace == "default" => format!("-d {}", shell_word(&project.dir)),
        None => format!("-d {} -w {}", shell_word(&project.dir), shell_word(&project.workspace)),
    }
}

/// Quotes a word for the comment parser.
fn shell_word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), |quoted| quoted.into_owned())
}

/// Fields of a request: query first, then a form in the body.
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(super) async fn read(request: Request) -> Result<FormFields, HttpProblem> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = to_bytes(request.into_body(), MAX_FORM).await.map_err(|_| {
            HttpProblem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "Too large",
                format!("The form is larger than {MAX_FORM} bytes."),
            )
        })?;
        let pairs = form_urlencoded::parse(query.as_bytes()).chain(form_urlencoded::parse(&body));
        Ok(FormFields(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns possible keys of the lock: links escape it once or, as Atlantis writes them, twice.
    fn lock_keys(&self) -> Result<Vec<String>, HttpProblem> {
        let id = self.get("id").ok_or_else(|| {
            HttpProblem::new(StatusCode::BAD_REQUEST, "No lock named", "The address has no id=… that names a lock.")
        })?;
        let mut keys = vec![id.to_owned()];
        if id.contains('%') {
            keys.extend(form_urlencoded::parse(id.as_bytes()).next().map(|(key, _)| key.into_owned()));
        }
        Ok(keys)
    }
}

/// Returns the lock of one of these keys and the status of its project.
pub(super) async fn find(
    store: &Store,
    keys: Vec<String>,
) -> anyhow::Result<Option<(ProjectLock, Option<ProjectStatus>)>> {
    store
        .read(move |view| {
            for key in keys {
                if let Some(lock) = view.lock_by_key(&key)? {
                    let statuses = view.project_statuses(&lock.holder.pull)?;
                    let same = |status: &ProjectStatus| status.project == lock.project;
                    let status = statuses.into_iter().find(same);
                    return Ok(Some((lock, status)));
                }
            }
            Ok(None)
        })
        .await
}

/// Serves the page of one lock.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let keys = FormFields::read(request).await?.lock_keys()?;
    let Some((lock, status)) = find(&services.store, keys).await? else {
        return Err(HttpProblem::not_found(RELEASED));
    };
    let pull = lock.holder.pull.clone();
    let plans = services.store.read(move |view| view.plans_with_limit(&pull)).await?;
    let view = LockPage::new(&lock, status.as_ref(), &plans, &site.state.executable_name, Timestamp::now());
    Ok(site.pages.page("lock.html", &visit, &view)?)
}

/// Deletes a lock and its plan.
pub(super) async fn delete(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let fields = FormFields::read(request).await?;
    let why = fields.get("reason").map_or(Ok(None), checked_reason).map_err(|problem| {
        HttpProblem::new(StatusCode::BAD_REQUEST, "Wrong request", format!("The reason {problem}."))
    })?;
    for key in fields.lock_keys()? {
        let entry = AuditEntry { why: why.clone(), ..visit.entry("unlock", &key, "") };
        match services.dispatch.discard_lock(&key, entry, visit.visitor).await? {
            Discard::Absent => {}
            Discard::Deleted => return Ok(visit.done("unlocked", format!("Deleted lock id {key:?}"))),
            Discard::NotPermitted { because } => {
                return Err(HttpProblem::new(StatusCode::FORBIDDEN, "Not permitted", format!("{because}.")));
            }
            Discard::Applying { job } => {
                let url = &site.state.url;
                let text = format!(
                    "An apply of this project runs, so its lock stays until that has ended: {url}/jobs/{job}. \
                     To interrupt it, comment on its pull request: {} cancel --apply",
                    site.state.executable_name
                );
                return Err(HttpProblem::new(StatusCode::CONFLICT, "An apply runs", text).with_job(job));
            }
        }
    }
    Err(HttpProblem::not_found(RELEASED))
}

/// Stops all applies until they are allowed again.
pub(super) async fn stop_applies(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let fields = FormFields::read(request).await?;
    let printable = fields.get("reason").unwrap_or_default().chars().filter(|c| !c.is_control());
    let reason: String = printable.take(MAX_REASON).collect();
    let reason = reason.trim().to_owned();
    // Scripts written for Atlantis give no reason.
    if visit.browser && reason.is_empty() {
        return Err(HttpProblem::new(
            StatusCode::BAD_REQUEST,
            "No reason given",
            "Applies were not stopped: say why, so that everyone who tries to apply can read it. Go back and fill in the reason.",
        ));
    }
    let lock = ApplyLock { user: visit.name.clone(), reason, since: Timestamp::now() };
    let text = format!("Apply Lock is acquired on {}", lock.since);
    set_apply_lock(&services.store, visit.entry("apply lock", &lock.reason, "done"), Some(lock)).await?;
    Ok(visit.done("applies-stopped", text))
}

/// Allows applies again.
pub(super) async fn allow_applies(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
) -> Result<Response, HttpProblem> {
    set_apply_lock(&site.services()?.store, visit.entry("apply unlock", "", "done"), None).await?;
    Ok(visit.done("applies-allowed", "Deleted apply lock".into()))
}

/// Sets or lifts the apply lock and records an audit entry, in one transaction.
pub(super) async fn set_apply_lock(store: &Store, entry: AuditEntry, lock: Option<ApplyLock>) -> anyhow::Result<()> {
    store
        .write(move |tx| {
            tx.set_apply_lock(lock.as_ref())?;
            tx.audit(&entry)
        })
        .await
}
