//! `/projects`: the known projects of repositories. `/projects/HOST/OWNER/REPO?dir=…&workspace=…`: one of them. A project is a state here: a
//! directory and a workspace, whatever names select it.

mod page;

use super::access::TokenScope;
use super::answer::{HttpProblem, Visit};
use super::api::records::{DriftRecord, KnownProjectRecord, LastJobRecord, ProjectRecord, ProjectsAnswer};
use super::filters::{self, GivenFilter, suggested, unusable_filter};
use super::openapi::about;
use super::pages::{ProjectView, PullView, StatusMark, Total, When, project_address, shown, totals};
use super::pulls::LastJob;
use super::{Route, Site, Who, route};
use crate::domain::drift::{DriftFinding, ProjectDrift};
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::{Job, LockHolder, ProjectLock};
use crate::domain::{ProjectId, RepoId};
use crate::store::{KnownProject, ProjectsFound, Search, View};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Method, Uri};
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;

/// Number of projects on one page.
const ROWS: usize = 50;

/// Returns the routes of projects.
pub(super) fn routes() -> Vec<Route> {
    use Who::{Api, People};
    let listed = |summary| {
        about(summary)
            .optional_query("repository", "owner/name, or host/owner/name.")
            .optional_query("q", "Words that directory, workspace or name have.")
            .optional_query("after", "Cursor of the next page.")
            .problems(&[400])
    };
    let list = listed("Known projects, by repository, directory and workspace.");
    let records = listed("Known projects with their locks, owners, drift and last jobs, 50 in an answer.");
    let one = about("The page of a project: lock, owner, line, drift and runs. Without `dir` it leads to the list.")
        .part("project", "host/owner/name, each part escaped.")
        .optional_query("dir", "The directory.")
        .optional_query("workspace", "The workspace; by default `default`.")
        .optional_query("after", "Cursor of the page of older runs.")
        .optional_query("before", "Cursor of the page of newer runs.")
        .problems(&[400, 404]);
    vec![
        route(Method::GET, "/projects", People, list_page, list.page()),
        route(Method::GET, "/api/projects", Api(TokenScope::Read), api_list, records.json::<ProjectsAnswer>()),
        route(Method::GET, "/projects/{*project}", People, page::page, one.page().redirect()),
    ]
}

/// Parsed query of the list's address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ProjectQuery {
    repository: String,
    words: String,
    after: Option<KnownProject>,
}

impl ProjectQuery {
    fn parse(query: &str) -> Result<ProjectQuery, String> {
        let mut parsed = ProjectQuery::default();
        for given in GivenFilter::all(query)? {
            match &*given.name {
                "repository" => parsed.repository.clone_from(&given.value),
                "q" => parsed.words.clone_from(&given.value),
                "after" => {
                    let place = cursor(&given.value);
                    parsed.after = Some(place.ok_or_else(|| given.unusable("it comes from a link to another page."))?);
                }
                _ => return Err(given.unusable("the filters are repository and q.")),
            }
        }
        Ok(parsed)
    }

    fn address(&self, after: Option<&KnownProject>) -> String {
        self.address_of("projects", after)
    }

    /// Returns the address of another list with the same filters.
    fn address_of(&self, list: &str, after: Option<&KnownProject>) -> String {
        let after = after.map(cursor_text).unwrap_or_default();
        let parameters = [("repository", self.repository.as_str()), ("q", &self.words), ("after", &after)];
        filters::address(list, &parameters)
    }
}

/// Parses a cursor: a list in JSON of the repository and, if it is within one, the directory and the workspace.
fn cursor(text: &str) -> Option<KnownProject> {
    let parts: Vec<String> = serde_json::from_str(text).ok()?;
    let (repo, place) = match parts.as_slice() {
        [repo] => (repo, None),
        [repo, dir, workspace] => (repo, Some((dir.clone(), workspace.clone()))),
        _ => return None,
    };
    Some(KnownProject { repo: RepoId::of_whole_name(repo)?, place })
}

fn cursor_text(cursor: &KnownProject) -> String {
    let mut parts = vec![cursor.repo.to_string()];
    parts.extend(cursor.place.iter().flat_map(|(dir, workspace)| [dir.clone(), workspace.clone()]));
    serde_json::Value::from(parts).to_string()
}

/// The latest finding of drift runs on a project.
#[derive(Serialize)]
struct LatestDrift {
    mark: StatusMark,
    totals: Vec<Total>,
    because: Option<String>,
    checked: When,
    branch: String,
    commit: String,
    /// Link of the mark, relative to `/`.
    link: Option<String>,
}

impl LatestDrift {
    fn new(drift: &ProjectDrift, now: Timestamp) -> LatestDrift {
        let (word, tone, because) = match &drift.finding {
            DriftFinding::Planned(_) if drift.finding.has_drift() => ("drift", "warn", None),
            DriftFinding::Planned(_) => ("no drift", "good", None),
            DriftFinding::Skipped { because, .. } => ("not checked", "quiet", Some(shown(because))),
            DriftFinding::Failed(why) => ("check failed", "bad", Some(shown(why))),
        };
        let planned = drift.finding.summary().filter(|_| drift.finding.has_drift());
        LatestDrift {
            mark: StatusMark::new(word, tone),
            totals: planned.map(totals).unwrap_or_default(),
            because,
            checked: When::new(drift.checked, now),
            branch: shown(&drift.branch),
            commit: drift.commit.short().to_owned(),
            link: drift.job.as_ref().map(|job| format!("jobs/{job}")),
        }
    }
}

/// A project in the list.
#[derive(Serialize)]
struct ProjectListRow {
    repo: String,
    project: ProjectView,
    lock: Option<PullView>,
    /// The owner, and how it owns the project.
    owner: Option<(PullView, StatusMark)>,
    drift: Option<LatestDrift>,
    /// The last plan or apply: its kind, and the job.
    last: Option<(String, LastJob)>,
}

/// The list.
#[derive(Serialize)]
struct ProjectList {
    rows: Vec<ProjectListRow>,
    repository: String,
    words: String,
    filtered: bool,
    repositories: Vec<String>,
    later: bool,
    first: String,
    next: Option<String>,
    /// Number of repositories that were looked at before the search ended.
    looked: Option<usize>,
}

/// What the state has of a project in the list.
struct ProjectFacts {
    repo: RepoId,
    project: ProjectId,
    lock: Option<ProjectLock>,
    owner: Option<ProjectOwner>,
    drift: Option<ProjectDrift>,
    /// The last plan or apply.
    last: Option<Job>,
}

impl ProjectFacts {
    fn load(view: &View<'_>, repo: &RepoId, project: &ProjectId) -> anyhow::Result<ProjectFacts> {
        let (plan, apply) = (view.last_job_on(repo, project, "plan")?, view.last_job_on(repo, project, "apply")?);
        Ok(ProjectFacts {
            repo: repo.clone(),
            project: project.clone(),
            lock: view.locks_of_state(repo, project)?.into_iter().next(),
            owner: view.owners_of_state(repo, project)?.into_iter().next(),
            drift: view.latest_drift_on(repo, project)?,
            last: plan.into_iter().chain(apply).max_by_key(|job| job.started),
        })
    }

    fn row(&self, now: Timestamp) -> ProjectListRow {
        let holder = |holder: &LockHolder| PullView::new(&holder.pull, &holder.title, &holder.url);
        let owned = |owner: &ProjectOwner| (holder(&owner.holder), StatusMark::new(owner.state.title(), "quiet"));
        ProjectListRow {
            repo: shown(&self.repo.full_name()),
            project: ProjectView::of(&self.repo, &self.project),
            lock: self.lock.as_ref().map(|lock| holder(&lock.holder)),
            owner: self.owner.as_ref().map(owned),
            drift: self.drift.as_ref().map(|drift| LatestDrift::new(drift, now)),
            last: self.last.as_ref().map(|job| (job.kind.clone(), LastJob::new(job, now))),
        }
    }

    fn record(&self, server: &str) -> KnownProjectRecord {
        KnownProjectRecord {
            repository: self.repo.to_string(),
            project: ProjectRecord::from(&self.project),
            locked_by: self.lock.as_ref().map(|lock| lock.holder.pull.number),
            owned_by: self.owner.as_ref().map(|owner| owner.holder.pull.number),
            owner_state: self.owner.as_ref().map(|owner| owner.state.as_str().to_owned()),
            drift: self.drift.as_ref().map(DriftRecord::from),
            last: self.last.as_ref().map(LastJobRecord::from),
            url: format!("{server}/{}", project_address(&self.repo, &self.project)),
        }
    }
}

/// A part of the list.
struct ProjectsPart {
    facts: Vec<ProjectFacts>,
    next: Option<KnownProject>,
    looked: Option<usize>,
}

impl ProjectsPart {
    /// Loads a part of the list; the text is the reason why the filter cannot be used.
    fn load(view: &View<'_>, query: &ProjectQuery, served: &[RepoId]) -> anyhow::Result<Result<ProjectsPart, String>> {
        let repos = match filters::repositories(&query.repository, served) {
            Ok(repos) if repos.is_empty() => served.iter().cloned().chain(view.repos_with_drift()?).collect(),
            Ok(repos) => repos,
            Err(why) => return Ok(Err(why)),
        };
        let ProjectsFound { rows, next, looked } =
            view.list_projects(&repos, &Search::new(&query.words), query.after.as_ref(), ROWS)?;
        let facts = rows.iter().map(|(repo, project)| ProjectFacts::load(view, repo, project));
        Ok(Ok(ProjectsPart { facts: facts.collect::<anyhow::Result<_>>()?, next, looked }))
    }
}

impl ProjectList {
    fn new(part: &ProjectsPart, query: &ProjectQuery, served: &[RepoId]) -> ProjectList {
        let now = Timestamp::now();
        ProjectList {
            rows: part.facts.iter().map(|facts| facts.row(now)).collect(),
            repository: query.repository.clone(),
            words: query.words.clone(),
            filtered: !query.repository.is_empty() || !query.words.is_empty(),
            repositories: suggested(served),
            later: query.after.is_some(),
            first: query.address(None),
            next: part.next.as_ref().map(|next| query.address(Some(next))),
            looked: part.looked,
        }
    }
}

/// Serves the list.
async fn list_page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = ProjectQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let found = services.store.read(move |view| {
        let served = view.served_repos()?;
        let part = ProjectsPart::load(view, &query, &served)?;
        Ok(part.map(|part| ProjectList::new(&part, &query, &served)))
    });
    let list = found.await?.map_err(unusable_filter)?;
    Ok(site.pages.page("projects.html", &visit, &list)?)
}

/// Returns the list as JSON.
async fn api_list(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = ProjectQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let asked = query.clone();
    let found = services.store.read(move |view| ProjectsPart::load(view, &asked, &view.served_repos()?));
    let part = found.await?.map_err(unusable_filter)?;
    let projects = part.facts.iter().map(|facts| facts.record(&site.state.url)).collect();
    let next = part.next.map(|next| query.address_of("api/projects", Some(&next)));
    Ok(axum::Json(ProjectsAnswer { projects, next }).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_any_place() {
        let repo = RepoId { host: "dev.azure.com".into(), owner: "acme/Two Words".into(), name: "in\"fra".into() };
        for place in [None, Some(("a,b/[\"c\"] %2f".to_owned(), "ä".to_owned()))] {
            let at = KnownProject { repo: repo.clone(), place };
            assert_eq!(cursor(&cursor_text(&at)), Some(at.clone()));
            let query = ProjectQuery { words: "a b".into(), after: Some(at), ..ProjectQuery::default() };
            let address = query.address(query.after.as_ref());
            assert_eq!(ProjectQuery::parse(address.strip_prefix("projects?").unwrap()), Ok(query), "{address}");
        }
        for text in ["", "x", "[]", "[\"h/o/r\",\"a\"]", "[1]", "[\"h\"]", "{}"] {
            assert_eq!(cursor(text), None, "{text}");
        }
    }
}
