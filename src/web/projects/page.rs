//! The page of one project.

use super::LatestDrift;
use crate::domain::drift::ProjectDrift;
use crate::domain::drift_issue::IssuePlace;
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::{Job, ProjectLock, ProjectStatus};
use crate::domain::waiting::WaitingPull;
use crate::domain::{ProjectId, PullId, RepoId};
use crate::store::{RunCursor, RunFilter, RunsFound, View};
use crate::web::Site;
use crate::web::actions::{ActionFacts, ActionPanel, PanelScope};
use crate::web::answer::{HttpProblem, Visit};
use crate::web::audit::AuditQuery;
use crate::web::dashboard::{LockRow, OwnerRow, RowFacts};
use crate::web::filters::{self, GivenFilter, unusable_filter};
use crate::web::pages::{ProjectView, PullView, When, project_address, shown};
use crate::web::pulls::{LastJob, place_in, wait_words};
use crate::web::runs::{RunRow, parse_run_cursor, run_cursor};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::Uri;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use url::form_urlencoded;

/// Number of runs on one page.
const RUNS: usize = 20;

/// Maximum number of locks, owners, waiters and names, each.
const MAX_LISTED: usize = 100;

/// Longest directory, and longest workspace, in characters.
const MAX_NAME: usize = 4096;

/// What the state has of a project, under all its names.
struct ProjectTraces {
    /// Its names, with none among them if it is known without one.
    names: Vec<Option<String>>,
    locks: Vec<(ProjectLock, Option<ProjectStatus>)>,
    owners: Vec<ProjectOwner>,
    line: Vec<WaitingPull>,
    plan: Option<Job>,
    apply: Option<Job>,
    at_work: Vec<Job>,
    drift: Option<ProjectDrift>,
    /// Issue on the host about that drift.
    issue: Option<IssuePlace>,
    runs: RunsFound,
}

impl ProjectTraces {
    fn load(view: &View<'_>, repo: &RepoId, project: &ProjectId, cursor: RunCursor) -> anyhow::Result<ProjectTraces> {
        let filter = RunFilter {
            repos: vec![repo.clone()],
            state: Some((repo.clone(), project.clone())),
            ..RunFilter::default()
        };
        let mut locks = Vec::new();
        for lock in view.locks_of_state(repo, project)? {
            let statuses = view.project_statuses(&lock.holder.pull)?;
            let status = statuses.into_iter().find(|status| status.project == lock.project);
            locks.push((lock, status));
        }
        let drift = view.latest_drift_on(repo, project)?;
        Ok(ProjectTraces {
            names: view.names_of_state(repo, project, MAX_LISTED)?,
            locks,
            owners: view.owners_of_state(repo, project)?,
            line: view.line(repo, project)?,
            plan: view.last_job_on(repo, project, "plan")?,
            apply: view.last_job_on(repo, project, "apply")?,
            at_work: view.unfinished_jobs()?,
            issue: drift.as_ref().map(|drift| view.issue_of_drift(drift)).transpose()?.flatten(),
            drift,
            runs: view.list_runs(&filter, cursor, RUNS)?,
        })
    }

    /// Returns the pull request that has the project, and its name of it.
    fn holder(&self) -> Option<(&PullId, &ProjectId)> {
        let lock = self.locks.first().map(|(lock, _)| (&lock.holder.pull, &lock.project));
        lock.or_else(|| self.owners.first().map(|owner| (&owner.holder.pull, &owner.project)))
    }

    /// Returns true if the state has no trace of the project.
    fn is_unknown(&self) -> bool {
        self.names.is_empty() && self.line.is_empty() && self.runs.rows.is_empty()
    }
}

/// A pull request in the line.
#[derive(Serialize)]
struct LineRow {
    pull: PullView,
    place: usize,
    because: &'static str,
    since: When,
}

/// The entries of the audit log that call the project so.
#[derive(Serialize)]
struct AuditLink {
    label: String,
    address: String,
}

/// The page.
#[derive(Serialize)]
struct ProjectPage {
    repo: String,
    project: ProjectView,
    names: Vec<String>,
    locks: Vec<LockRow>,
    owners: Vec<OwnerRow>,
    line: Vec<LineRow>,
    /// Number of pull requests in line that are not shown.
    more: usize,
    plan: Option<LastJob>,
    apply: Option<LastJob>,
    drift: Option<LatestDrift>,
    /// Issue on the host about that drift.
    issue: Option<IssuePlace>,
    runs: Vec<RunRow>,
    newer: Option<String>,
    older: Option<String>,
    of_repository: String,
    audit: Vec<AuditLink>,
    /// Buttons of the person who looks, for the pull request that has the project.
    actions: Option<ActionPanel>,
}

impl ProjectPage {
    fn new(records: &ProjectTraces, repo: &RepoId, project: &ProjectId, executable: &str) -> ProjectPage {
        let now = Timestamp::now();
        let ProjectTraces { names, locks, owners, line, plan, apply, at_work, drift, issue, runs } = records;
        let facts = RowFacts { at_work, plans: &HashMap::new(), waiters: line, now };
        let address = |cursor: &RunCursor| {
            let (side, place) = run_cursor(*cursor);
            format!("{}&{side}={place}", project_address(repo, project))
        };
        let last = |job: &Option<Job>| job.as_ref().map(|job| LastJob::new(job, now));
        let audit = |name: &Option<String>| {
            let named = ProjectId { name: name.clone(), ..project.clone() };
            let address = AuditQuery::of_project(repo, &named).address("audit", None);
            AuditLink { label: shown(&named.label()), address }
        };
        ProjectPage {
            repo: shown(&repo.full_name()),
            project: ProjectView::from(project),
            names: names.iter().flatten().map(|name| shown(name)).collect(),
            locks: locks
                .iter()
                .take(MAX_LISTED)
                .map(|(lock, status)| LockRow::new(lock, status.as_ref(), &facts))
                .collect(),
            owners: owners.iter().take(MAX_LISTED).map(|owner| OwnerRow::new(owner, executable, &facts)).collect(),
            line: line
                .iter()
                .take(MAX_LISTED)
                .map(|wait| LineRow {
                    pull: PullView::find(&wait.pull, None),
                    place: place_in(line, wait),
                    because: wait_words(wait.cause),
                    since: When::new(wait.since, now),
                })
                .collect(),
            more: line.len().saturating_sub(MAX_LISTED),
            plan: last(plan),
            apply: last(apply),
            drift: drift.as_ref().map(|drift| LatestDrift::new(drift, now)),
            issue: issue.clone(),
            runs: runs.rows.iter().map(|listed| RunRow::new(listed, now)).collect(),
            newer: runs.newer.as_ref().map(address),
            older: runs.older.as_ref().map(address),
            of_repository: filters::address("projects", &[("repository", &repo.to_string())]),
            audit: if names.is_empty() { vec![audit(&None)] } else { names.iter().map(audit).collect() },
            actions: None,
        }
    }
}

/// Parses the query of the page: the project, if there is a directory, and the cursor of its runs. Names are taken as they are, also with
/// spaces around them.
fn parse(query: &str) -> Result<(Option<ProjectId>, RunCursor), String> {
    let (mut dir, mut workspace, mut cursor) = (None, "default".to_owned(), RunCursor::Newest);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value: String = value.chars().take(MAX_NAME).collect();
        match &*name {
            "dir" => dir = Some(value),
            "workspace" => workspace = value,
            _ => {
                let given = GivenFilter { name, value };
                cursor = match &*given.name {
                    "after" | "before" => parse_run_cursor(&given)?,
                    _ => return Err(given.unusable("a project is named by dir and workspace.")),
                };
            }
        }
    }
    Ok((dir.map(|dir| ProjectId { dir, workspace, name: None }), cursor))
}

/// Serves the page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(path): Path<String>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let none = || HttpProblem::not_found("This server knows no such project, or it is so old that it was dropped.");
    let repo = RepoId::of_whole_name(&path).ok_or_else(none)?;
    let (project, cursor) = parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let Some(project) = project else {
        let list = filters::address("projects", &[("repository", &repo.to_string())]);
        return Ok(Redirect::to(&format!("{}{list}", visit.root)).into_response());
    };
    let services = site.services()?;
    let asked = (repo.clone(), project.clone());
    let is_actor = visit.actor().is_some();
    let found = services.store.read(move |view| {
        let records = ProjectTraces::load(view, &asked.0, &asked.1, cursor)?;
        let holder = records.holder().filter(|_| is_actor);
        let facts = holder.map(|(pull, _)| ActionFacts::load(view, pull)).transpose()?.flatten();
        Ok((records, facts))
    });
    let (records, facts) = found.await?;
    if records.is_unknown() {
        return Err(none());
    }
    let mut view = ProjectPage::new(&records, &repo, &project, &site.state.executable_name);
    if let (Some(facts), Some((_, held))) = (&facts, records.holder()) {
        view.actions = ActionPanel::new(facts, &services.dispatch, &visit, PanelScope::Project(held));
    }
    Ok(site.pages.page("project.html", &visit, &view)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_from_the_address_of_its_page() {
        for (owner, name, dir, workspace) in [
            ("acme", "infra", ".", "default"),
            ("acme/Two Words", "in fra", "a b/c%2Fd", "100%"),
            ("acme", "r&d", "a?b=c&d#e", "ä+ö"),
            ("acme", "infra", "-", "\"'<x>"),
            ("acme", "infra", " a ", ".."),
        ] {
            let repo = RepoId { host: "dev.azure.com".into(), owner: owner.into(), name: name.into() };
            let project = ProjectId { dir: dir.into(), workspace: workspace.into(), name: None };
            let address = format!("http://localhost/{}", project_address(&repo, &project));
            let url = url::Url::parse(&address).unwrap();
            let path = url.path().strip_prefix("/projects/").unwrap();
            let (path, _) = form_urlencoded::parse(path.as_bytes()).next().unwrap();
            assert_eq!(RepoId::of_whole_name(&path), Some(repo), "{address}");
            assert_eq!(parse(url.query().unwrap()).unwrap(), (Some(project), RunCursor::Newest), "{address}");
        }
    }
}
