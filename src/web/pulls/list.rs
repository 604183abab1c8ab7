//! The list of open pull requests.

use super::{RUNS, WaitRow, missing_approvals, waits_of};
use crate::domain::RepoId;
use crate::store::{ListedPull, View};
use crate::web::Site;
use crate::web::answer::{HttpProblem, Visit};
use crate::web::api::records::{PullRecord, PullsAnswer};
use crate::web::dashboard::{PullRow, RowFacts};
use crate::web::filters::{self, GivenFilter, suggested, unusable_filter};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Uri;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of pull requests on one page.
const ROWS: usize = 50;

/// Maximum number of named projects, and of named waits, of a pull request in the list.
const MAX_NAMED: usize = 3;

/// Parsed query of the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PullQuery {
    repository: String,
    /// Activity of the last pull request of the page before.
    after: Option<i64>,
}

impl PullQuery {
    fn parse(query: &str) -> Result<PullQuery, String> {
        let mut parsed = PullQuery::default();
        for given in GivenFilter::all(query)? {
            match &*given.name {
                "repository" => parsed.repository.clone_from(&given.value),
                "after" => {
                    let place = given.value.parse();
                    parsed.after = Some(place.map_err(|_| given.unusable("it comes from a link to another page."))?);
                }
                _ => return Err(given.unusable("the filter is repository.")),
            }
        }
        Ok(parsed)
    }

    fn address(&self, after: Option<i64>) -> String {
        self.address_of("pulls", after)
    }

    /// Returns the address of another list with the same filter.
    fn address_of(&self, list: &str, after: Option<i64>) -> String {
        let after = after.map(|after| after.to_string()).unwrap_or_default();
        filters::address(list, &[("repository", &self.repository), ("after", &after)])
    }
}

/// A pull request in the list.
#[derive(Serialize)]
struct OpenPullRow {
    row: PullRow,
    waits: Vec<WaitRow>,
    more_waits: usize,
    /// Number of projects with a policy set that has neither passed nor been approved.
    unmet_policies: usize,
}

/// The page.
#[derive(Serialize)]
struct PullList {
    rows: Vec<OpenPullRow>,
    repository: String,
    repositories: Vec<String>,
    later: bool,
    newest: String,
    older: Option<String>,
}

impl PullList {
    fn load(view: &View<'_>, query: &PullQuery, repos: &[RepoId], served: &[RepoId]) -> anyhow::Result<PullList> {
        let now = Timestamp::now();
        let (listed, last) = view.list_open_pulls(repos, query.after, ROWS)?;
        let at_work = view.unfinished_jobs()?;
        let mut plans = HashMap::new();
        for ListedPull { pull, .. } in &listed {
            plans.insert(pull.id.clone(), view.plans_with_limit(&pull.id)?);
        }
        let facts = RowFacts { at_work: &at_work, plans: &plans, waiters: &[], now };
        let mut rows = Vec::new();
        for listed in &listed {
            let id = &listed.pull.id;
            let (waits, more) = waits_of(view, id, MAX_NAMED)?;
            let mut checks = view.policy_checks(id)?;
            checks.retain(|check| check.sets.iter().any(|set| !set.passed));
            let runs = if checks.is_empty() { Vec::new() } else { view.runs_of_pull(id, RUNS)? };
            rows.push(OpenPullRow {
                row: PullRow::new(listed, MAX_NAMED, &facts),
                waits: waits.iter().map(|wait| WaitRow::new(wait, now)).collect(),
                more_waits: more,
                unmet_policies: missing_approvals(&checks, &runs)?.len(),
            });
        }
        Ok(PullList {
            rows,
            repository: query.repository.clone(),
            repositories: suggested(served),
            later: query.after.is_some(),
            newest: query.address(None),
            older: last.map(|last| query.address(Some(last))),
        })
    }
}

/// Returns the list as JSON.
pub(in crate::web) async fn api_list(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = PullQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let asked = query.clone();
    let found =
        services.store.read(move |view| match filters::repositories(&asked.repository, &view.served_repos()?) {
            Ok(repos) => Ok(Ok(view.list_open_pulls(&repos, asked.after, ROWS)?)),
            Err(why) => Ok(Err(why)),
        });
    let (listed, last) = found.await?.map_err(unusable_filter)?;
    let pulls = listed.iter().map(PullRecord::from).collect();
    let next = last.map(|last| query.address_of("api/pulls", Some(last)));
    Ok(axum::Json(PullsAnswer { pulls, next }).into_response())
}

/// Serves the list.
pub(in crate::web) async fn list(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = PullQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let found = services.store.read(move |view| {
        let served = view.served_repos()?;
        match filters::repositories(&query.repository, &served) {
            Ok(repos) => Ok(Ok(PullList::load(view, &query, &repos, &served)?)),
            Err(why) => Ok(Err(why)),
        }
    });
    let list = found.await?.map_err(unusable_filter)?;
    Ok(site.pages.page("pulls.html", &visit, &list)?)
}
