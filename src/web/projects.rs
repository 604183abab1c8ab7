//! `/projects`: the known projects of repositories. `/projects/HOST/OWNER/REPO?dir=…&workspace=…`: one of them. A project is a state here: a
//! directory and a workspace, whatever names select it.

mod page;

use super::answer::{HttpProblem, Visit};
use super::filters::{self, GivenFilter, suggested, unusable_filter};
use super::openapi::about;
use super::pages::{ProjectView, PullView, StatusMark, Total, When, shown, totals};
use super::pulls::LastJob;
use super::{Route, Site, Who, route};
use crate::domain::RepoId;
use crate::domain::drift::{DriftFinding, ProjectDrift};
use crate::domain::state::{Job, LockHolder};
use crate::store::{KnownProject, ProjectsFound, Search, View};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::{Method, Uri};
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;

/// Number of projects on one page.
const ROWS: usize = 50;

/// Returns the routes of projects.
pub(super) fn routes() -> Vec<Route> {
    use Who::People;
    let list = about("Known projects, by repository, directory and workspace.")
        .optional_query("repository", "owner/name, or host/owner/name.")
        .optional_query("q", "Words that directory, workspace or name have.")
        .optional_query("after", "Cursor of the next page.")
        .problems(&[400]);
    let one = about("The page of a project: lock, owner, line, drift and runs. Without `dir` it leads to the list.")
        .part("project", "host/owner/name, each part escaped.")
        .optional_query("dir", "The directory.")
        .optional_query("workspace", "The workspace; by default `default`.")
        .optional_query("after", "Cursor of the page of older runs.")
        .optional_query("before", "Cursor of the page of newer runs.")
        .problems(&[400, 404]);
    vec![
        route(Method::GET, "/projects", People, list_page, list.page()),
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
        let after = after.map(cursor_text).unwrap_or_default();
        let parameters = [("repository", self.repository.as_str()), ("q", &self.words), ("after", &after)];
        filters::address("projects", &parameters)
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
    last: Option<(&'static str, LastJob)>,
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

impl ProjectList {
    fn load(view: &View<'_>, query: &ProjectQuery, served: &[RepoId]) -> anyhow::Result<Result<ProjectList, String>> {
        let repos = match filters::repositories(&query.repository, served) {
            Ok(repos) if repos.is_empty() => served.iter().cloned().chain(view.repos_with_drift()?).collect(),
            Ok(repos) => repos,
            Err(why) => return Ok(Err(why)),
        };
        let ProjectsFound { rows, next, looked } =
            view.list_projects(&repos, &Search::new(&query.words), query.after.as_ref(), ROWS)?;
        let now = Timestamp::now();
        let mut list = Vec::new();
        for (repo, project) in &rows {
            let lock = view.locks_of_state(repo, project)?.into_iter().next();
            let owner = view.owners_of_state(repo, project)?.into_iter().next();
            let mut last = None;
            for kind in ["plan", "apply"] {
                if let Some(job) = view.last_job_on(repo, project, kind)?
                    && last.as_ref().is_none_or(|(_, known): &(_, Job)| known.started < job.started)
                {
                    last = Some((kind, job));
                }
            }
            let holder = |holder: &LockHolder| PullView::new(&holder.pull, &holder.title, &holder.url);
            list.push(ProjectListRow {
                repo: shown(&repo.full_name()),
                project: ProjectView::of(repo, project),
                lock: lock.map(|lock| holder(&lock.holder)),
                owner: owner.map(|owner| (holder(&owner.holder), StatusMark::new(owner.state.title(), "quiet"))),
                drift: view.latest_drift_on(repo, project)?.map(|drift| LatestDrift::new(&drift, now)),
                last: last.map(|(kind, job)| (kind, LastJob::new(&job, now))),
            });
        }
        Ok(Ok(ProjectList {
            rows: list,
            repository: query.repository.clone(),
            words: query.words.clone(),
            filtered: !query.repository.is_empty() || !query.words.is_empty(),
            repositories: suggested(served),
            later: query.after.is_some(),
            first: query.address(None),
            next: next.map(|next| query.address(Some(&next))),
            looked,
        }))
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
        ProjectList::load(view, &query, &served)
    });
    let list = found.await?.map_err(unusable_filter)?;
    Ok(site.pages.page("projects.html", &visit, &list)?)
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
