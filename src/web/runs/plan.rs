//! `/runs/{id}/plan`: what the plans of a run change, by project and module. It is read from the logs of its jobs, whose texts are masked.

mod block;
mod groups;
mod records;
mod texts;

use super::{MAX_JOBS, RunRow, no_such_run};
use crate::domain::command::CommandName;
use crate::domain::outcome::ResourceAction;
use crate::domain::state::Job;
use crate::domain::{ProjectId, RunId};
use crate::store::ListedRun;
use crate::web::Site;
use crate::web::answer::{HttpProblem, Visit};
use crate::web::filters::{GivenFilter, address, one_of, unusable_filter};
use crate::web::pages::shown;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use groups::{PlanGroupView, PlanGroups, UnreadProject};
use http::Uri;
use jiff::Timestamp;
pub(in crate::web::runs) use records::{ChangesAnswer, api_changes};
use serde::Serialize;
use std::sync::Arc;
use texts::ProjectText;

/// Number of resources on one page; fewer if their lines are long.
const ROWS: usize = 200;

/// Maximum number of jobs among which a project is searched.
const MAX_SEARCHED: usize = 10_000;

/// Actions as the filter and the page name them, the most dangerous first, each with the tone of its mark.
const ACTIONS: [(Option<ResourceAction>, &str, &str); 9] = [
    (Some(ResourceAction::Destroy), "destroy", "bad"),
    (Some(ResourceAction::Replace), "replace", "bad"),
    (Some(ResourceAction::Update), "update", "warn"),
    (Some(ResourceAction::Create), "create", "good"),
    (Some(ResourceAction::Import), "import", "quiet"),
    (Some(ResourceAction::Move), "move", "quiet"),
    (Some(ResourceAction::Forget), "forget", "quiet"),
    (Some(ResourceAction::Read), "read", "quiet"),
    (None, "other", "quiet"),
];

/// Returns the place of an action in [`ACTIONS`].
fn rank(action: Option<ResourceAction>) -> usize {
    ACTIONS.iter().position(|(known, ..)| *known == action).unwrap_or(ACTIONS.len() - 1)
}

/// Parsed query of the address. An empty text means no filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct PlanQuery {
    /// Places in [`ACTIONS`]; all if empty.
    actions: Vec<usize>,
    address: String,
    project: String,
    /// Number of resources before the page.
    from: usize,
}

impl PlanQuery {
    /// Parses a query. The error names the filter and the reason.
    fn parse(query: &str) -> Result<PlanQuery, String> {
        let mut parsed = PlanQuery::default();
        for given in GivenFilter::all(query)? {
            match &*given.name {
                "action" => {
                    let place = ACTIONS.iter().position(|(_, word, _)| *word == given.value);
                    let all = || one_of(ACTIONS.iter().map(|(_, word, _)| *word));
                    let place = place.ok_or_else(|| given.unusable(&all()))?;
                    if !parsed.actions.contains(&place) {
                        parsed.actions.push(place);
                    }
                }
                "address" => parsed.address = given.value,
                "project" => parsed.project = given.value,
                "from" => {
                    let from = given.value.parse().ok();
                    parsed.from = from.ok_or_else(|| given.unusable("it comes from a link to another page."))?;
                }
                _ => return Err(given.unusable("the filters are action, address and project.")),
            }
        }
        parsed.actions.sort_unstable();
        Ok(parsed)
    }

    /// Returns true if it selects resources.
    fn has_filter(&self) -> bool {
        !self.actions.is_empty() || !self.address.is_empty()
    }

    /// Returns the address of the page that begins after so many resources.
    fn address_from(&self, run: &RunId, from: usize) -> String {
        self.address_of(&format!("runs/{run}/plan"), from)
    }

    /// Returns the address of another list with the same filters.
    fn address_of(&self, list: &str, from: usize) -> String {
        let from = if from == 0 { String::new() } else { from.to_string() };
        let mut parameters: Vec<(&str, &str)> =
            self.actions.iter().map(|place| ("action", ACTIONS[*place].1)).collect();
        parameters.extend([("address", &*self.address), ("project", &self.project), ("from", &from)]);
        address(list, &parameters)
    }
}

/// Returns the address of what the plan of a project changes, relative to `/`.
pub(in crate::web) fn plan_address(run: &RunId, project: &ProjectId) -> String {
    PlanQuery { project: project.label(), ..PlanQuery::default() }.address_from(run, 0)
}

/// Returns true if a job makes the plan of a project.
pub(in crate::web) fn is_plan(job: &Job) -> bool {
    job.kind == CommandName::Plan.as_str() && job.project.is_some()
}

/// An action with the number of resources, for the filter.
#[derive(Serialize)]
struct ActionCount {
    word: &'static str,
    tone: &'static str,
    count: usize,
    is_chosen: bool,
}

/// The page.
#[derive(Serialize)]
struct PlanPage {
    run: RunRow,
    query: PlanQuery,
    /// True if the query selects resources or a project.
    filtered: bool,
    counts: Vec<ActionCount>,
    /// Names of the projects with a plan, for the form, each as the filter takes it and as it is shown.
    projects: Vec<(String, String)>,
    groups: Vec<PlanGroupView>,
    /// Projects without a change, and those whose plan cannot be shown.
    others: Vec<UnreadProject>,
    /// Number of the first and the last resource of the page, and of all that meet the filter.
    first: usize,
    last: usize,
    found: usize,
    /// True if some blocks are open from the start.
    open: bool,
    /// True if the run has more jobs than are looked at.
    more_jobs: bool,
    start: Option<String>,
    next: Option<String>,
    /// The page without filters.
    all: String,
}

impl PlanPage {
    fn new(listed: &ListedRun, jobs: &PlanJobs, texts: &[ProjectText], query: &PlanQuery, now: Timestamp) -> PlanPage {
        let run = &listed.run;
        let plans = PlanGroups::new(texts);
        let counts = plans.counts();
        let listed_actions =
            ACTIONS.iter().enumerate().filter(|(place, _)| counts[*place] > 0 || query.actions.contains(place));
        let page = plans.page(query, &run.pull.repo);
        let last = query.from + page.rows;
        PlanPage {
            run: RunRow::new(listed, now),
            filtered: query.has_filter() || !query.project.is_empty(),
            counts: listed_actions
                .map(|(place, (_, word, tone))| ActionCount {
                    word,
                    tone,
                    count: counts[place],
                    is_chosen: query.actions.contains(&place),
                })
                .collect(),
            projects: jobs.projects.clone(),
            open: page.rows <= MAX_OPEN,
            groups: page.groups,
            others: plans.others(&run.pull.repo, query.from == 0 && !query.has_filter()),
            first: query.from + 1,
            last,
            found: page.found,
            more_jobs: jobs.has_more,
            start: (query.from > 0).then(|| query.address_from(&run.id, 0)),
            next: (last < page.found).then(|| query.address_from(&run.id, last)),
            all: PlanQuery::default().address_from(&run.id, 0),
            query: query.clone(),
        }
    }
}

/// Number of resources up to which all blocks of a page are open.
const MAX_OPEN: usize = 10;

/// Jobs of a run that made plans.
struct PlanJobs {
    /// The last one of each project.
    jobs: Vec<Job>,
    /// Names of all projects, each as the filter takes it and as it is shown.
    projects: Vec<(String, String)>,
    has_more: bool,
}

impl PlanJobs {
    /// Selects the plans of the project that the query names, or of all.
    fn new(all: Vec<Job>, query: &PlanQuery) -> PlanJobs {
        let label = |job: &Job| job.project.as_ref().map(ProjectId::label).unwrap_or_default();
        let has_more = all.len() > MAX_JOBS;
        let mut jobs: Vec<Job> = Vec::new();
        let is_wanted =
            |(place, job): &(usize, Job)| is_plan(job) && (*place < MAX_JOBS || label(job) == query.project);
        for (_, job) in all.into_iter().enumerate().filter(is_wanted) {
            // A plan that a restart has cut runs again.
            match jobs.iter_mut().find(|before| before.project == job.project) {
                Some(before) => *before = job,
                None => jobs.push(job),
            }
        }
        let projects = jobs.iter().map(|job| (label(job), shown(&label(job)))).collect();
        jobs.retain(|job| query.project.is_empty() || label(job) == query.project);
        PlanJobs { jobs, projects, has_more }
    }
}

/// Loads a run and the texts of the plans that a query may be about.
async fn load(
    site: &Site,
    id: &str,
    query: &PlanQuery,
) -> Result<(ListedRun, PlanJobs, Vec<ProjectText>), HttpProblem> {
    let id = RunId::parse(id).ok_or_else(no_such_run)?;
    let services = site.services()?;
    // A project that is asked for may be behind those that the page looks at.
    let most = if query.project.is_empty() { MAX_JOBS + 1 } else { MAX_SEARCHED };
    let found = services.store.read(move |view| {
        let Some(listed) = view.run_with_result(&id)? else { return Ok(None) };
        Ok(Some((listed, view.first_jobs_of(&id, most)?)))
    });
    let (listed, jobs) = found.await?.ok_or_else(no_such_run)?;
    let mut jobs = PlanJobs::new(jobs, query);
    let texts = texts::read(&services.logs, std::mem::take(&mut jobs.jobs)).await?;
    Ok((listed, jobs, texts))
}

/// Serves the page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let query = PlanQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let (listed, jobs, texts) = load(&site, &id, &query).await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let view = PlanPage::new(&listed, &jobs, &texts, &query, Timestamp::now());
        site.pages.page("plan.html", &visit, &view)
    });
    Ok(rendered.await.map_err(anyhow::Error::from)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_parsed_and_written_again() {
        let run = RunId::from("ab".repeat(16));
        let parsed = |query: &str| PlanQuery::parse(query).map(|query| query.address_from(&run, query.from));
        let path = format!("runs/{run}/plan");
        for (query, expected) in [
            ("", ""),
            ("action=&address=&project=", ""),
            ("action=replace&action=destroy&action=replace", "?action=destroy&action=replace"),
            ("project=a%2Fb&address=x.y[%22k%22]&from=200", "?address=x.y%5B%22k%22%5D&project=a%2Fb&from=200"),
        ] {
            assert_eq!(parsed(query), Ok(format!("{path}{expected}")), "{query}");
        }
        for (query, reason) in [
            ("action=delete", "action=delete: it is one of destroy, replace, update, create"),
            ("from=-1", "from=-1: it comes from a link"),
            ("sort=up", "sort=up: the filters are action, address and project."),
        ] {
            assert!(parsed(query).is_err_and(|why| why.starts_with(reason)), "{query}");
        }
    }
}
