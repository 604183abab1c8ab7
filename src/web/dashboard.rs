//! `/`: what waits for a person, running jobs, locks, open pull requests, recent jobs, the apply lock. Search (`?q=`) and
//! page numbers are part of the address.

mod attention;
mod rows;

use super::Site;
use super::answer::{HttpProblem, Visit};
use super::freezes::FreezeRow;
use super::pages::{VERSION, When};
use crate::domain::freeze::Freeze;
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::{ApplyLock, Job, PlanRecord, ProjectLock, ProjectStatus};
use crate::domain::waiting::WaitingPull;
use crate::domain::{PullId, PullRequest};
use crate::server_status::{ConfigurationStatus, Services};
use crate::store::{Found, ListedPull, NeedsAttention, Search, Store, Window};
use attention::AttentionList;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use jiff::Timestamp;
pub(super) use rows::{JobRow, LockRow, OwnerRow, PullRow, RowFacts, status_view};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use url::form_urlencoded;

/// Maximum number of locks on one page, and of listed running jobs. With the limits below, a page has less than 100 kB.
pub(super) const MAX_ROWS: usize = 20;

/// Maximum number of listed owners.
const MAX_OWNERS: usize = 10;

/// Maximum number of open pull requests on one page.
const MAX_PULLS: usize = 12;

/// Maximum number of finished jobs on one page.
const MAX_RECENT: usize = 20;

/// Maximum number of listed projects of one pull request.
const MAX_PROJECTS: usize = 8;

/// Longest search text, in characters.
const MAX_SEARCH: usize = 200;

/// Data of the page, as loaded from the state.
pub(super) struct DashboardData {
    pub(super) running: Found<(Job, Option<PullRequest>)>,
    pub(super) locks: Found<(ProjectLock, Option<ProjectStatus>)>,
    /// Owners of projects in mode `strict`, the first ones.
    pub(super) owners: Found<ProjectOwner>,
    /// Pull requests that wait for projects, oldest first.
    pub(super) waiters: Vec<WaitingPull>,
    pub(super) pulls: Found<ListedPull>,
    /// Plans of the listed pull requests with a limited time to apply them.
    pub(super) plans: HashMap<PullId, Vec<PlanRecord>>,
    /// Finished jobs, newest first.
    pub(super) ended: Found<(Job, Option<PullRequest>)>,
    /// All running jobs, listed or not.
    pub(super) at_work: Vec<Job>,
    pub(super) apply_lock: Option<ApplyLock>,
    /// Frozen repositories.
    pub(super) freezes: Vec<Freeze>,
    /// Number of failures of all open pull requests.
    pub(super) failures: usize,
    /// Entries of "Needs attention"; absent in a search.
    pub(super) attention: Option<NeedsAttention>,
}

impl DashboardData {
    pub(super) async fn load(store: &Store, asked: &DashboardQuery) -> anyhow::Result<DashboardData> {
        let window = |page: usize, limit: usize| Window {
            search: Search::new(&asked.search),
            offset: (page - 1).saturating_mul(limit),
            limit,
        };
        let (running, owners) = (window(1, MAX_ROWS), window(1, MAX_OWNERS));
        let (locks, pulls) = (window(asked.locks, MAX_ROWS), window(asked.pulls, MAX_PULLS));
        let ended = window(asked.runs, MAX_RECENT);
        let is_search = !asked.search.is_empty();
        store
            .read(move |view| {
                let (locks, pulls) = (view.list_locks(&locks)?, view.list_pulls(&pulls)?);
                let holders = locks.rows.iter().map(|(lock, _)| &lock.holder.pull);
                let mut plans = HashMap::new();
                for pull in holders.chain(pulls.rows.iter().map(|listed| &listed.pull.id)) {
                    if !plans.contains_key(pull) {
                        plans.insert(pull.clone(), view.plans_with_limit(pull)?);
                    }
                }
                Ok(DashboardData {
                    running: view.list_running_jobs(&running)?,
                    owners: view.list_owners(&owners)?,
                    waiters: view.waiters()?,
                    locks,
                    pulls,
                    plans,
                    ended: view.list_ended_jobs(&ended)?,
                    at_work: view.unfinished_jobs()?,
                    apply_lock: view.apply_lock()?,
                    freezes: view.freezes()?,
                    failures: view.failures()?,
                    attention: if is_search { None } else { Some(view.attention(attention::LOADED)?) },
                })
            })
            .await
    }
}

/// Parsed query of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DashboardQuery {
    /// Search text.
    pub(super) search: String,
    /// Page numbers of the lists, from 1.
    pub(super) locks: usize,
    pub(super) pulls: usize,
    pub(super) runs: usize,
}

impl Default for DashboardQuery {
    fn default() -> DashboardQuery {
        DashboardQuery { search: String::new(), locks: 1, pulls: 1, runs: 1 }
    }
}

impl DashboardQuery {
    /// Returns the address with another page of one list and the rest unchanged.
    fn address(&self, list: &str, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.search.is_empty() {
            query.append_pair("q", &self.search);
        }
        for (name, asked) in [("locks", self.locks), ("pulls", self.pulls), ("runs", self.runs)] {
            let page = if name == list { page } else { asked };
            if page > 1 {
                query.append_pair(name, &page.to_string());
            }
        }
        format!("?{}#{list}", query.finish())
    }
}

/// The server's own state, for the first line of the page.
pub(super) struct ServerState {
    pub(super) in_progress: usize,
    pub(super) draining: bool,
    pub(super) apply_allowed: bool,
    /// True if pages may set and lift the apply lock.
    pub(super) apply_switch: bool,
    /// First word of commands.
    pub(super) executable: String,
    /// The last readings of the configuration.
    pub(super) configuration: Option<Arc<ConfigurationStatus>>,
}

impl ServerState {
    fn read(site: &Site, services: &Services) -> ServerState {
        ServerState {
            in_progress: services.dispatch.in_progress(),
            draining: services.dispatch.draining(),
            apply_allowed: site.state.apply_allowed,
            apply_switch: !site.state.disable_global_apply_lock,
            executable: site.state.executable_name.clone(),
            configuration: site.configuration(),
        }
    }
}

/// One page of a list.
#[derive(Serialize)]
pub(super) struct ListPage<T> {
    rows: Vec<T>,
    /// `210`, or `3 of 210` with a search; empty if there are no rows at all.
    count: String,
    /// True if there are rows, but none matches the search.
    none_fits: bool,
    page: usize,
    pages: usize,
    /// Addresses of the previous and the next page.
    previous: Option<String>,
    next: Option<String>,
}

impl<T> ListPage<T> {
    fn new<S>(
        found: &Found<S>,
        list: &str,
        page: usize,
        limit: usize,
        asked: &DashboardQuery,
        make: impl Fn(&S) -> T,
    ) -> ListPage<T> {
        let pages = found.fitting.div_ceil(limit).max(1);
        ListPage {
            rows: found.rows.iter().map(make).collect(),
            count: match (found.fitting, found.all) {
                (_, 0) => String::new(),
                (fitting, all) if fitting == all => all.to_string(),
                (fitting, all) => format!("{fitting} of {all}"),
            },
            none_fits: found.fitting == 0 && found.all > 0,
            page,
            pages,
            previous: (page > 1).then(|| asked.address(list, (page - 1).min(pages))),
            next: (page < pages).then(|| asked.address(list, page + 1)),
        }
    }
}

#[derive(Serialize)]
struct ApplySwitch {
    locked: bool,
    user: String,
    reason: String,
    since: Option<When>,
    /// True if `apply` is among the allowed commands.
    allowed: bool,
    /// True if the buttons are shown.
    switch: bool,
}

/// Notice about the change that was just made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Notice {
    text: &'static str,
    tone: &'static str,
}

impl Notice {
    /// Returns the notice of this name. Free text in the address would let a link put words on our page.
    fn named(name: &str) -> Option<Notice> {
        let (text, tone) = match name {
            "unlocked" => ("The lock and its plan are deleted. A comment on the pull request says so.", "good"),
            "unfrozen" => ("Applies of that repository go on.", "good"),
            "applies-stopped" => ("Applies are stopped until somebody allows them again.", "warn"),
            "applies-allowed" => ("Applies are allowed again.", "good"),
            _ => return None,
        };
        Some(Notice { text, tone })
    }
}

/// A note on the configuration for people: a mistake, or changes that are not in effect.
#[derive(Serialize)]
struct ConfigurationNote {
    /// Empty if there is none.
    error: String,
    since: Option<When>,
    /// Names of settings, joined.
    needs_restart: String,
}

impl ConfigurationNote {
    fn new(status: &ConfigurationStatus, now: Timestamp) -> ConfigurationNote {
        ConfigurationNote {
            error: status.fault.as_ref().map(|fault| fault.error.clone()).unwrap_or_default(),
            since: status.fault.as_ref().map(|fault| When::new(fault.since, now)),
            needs_restart: status.needs_restart.join(", "),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Dashboard {
    role: &'static str,
    tone: &'static str,
    version: &'static str,
    in_progress: usize,
    failed: usize,
    search: String,
    /// Absent in a search.
    attention: Option<AttentionList>,
    running: ListPage<JobRow>,
    locks: ListPage<LockRow>,
    owners: ListPage<OwnerRow>,
    pulls: ListPage<PullRow>,
    recent: ListPage<JobRow>,
    apply: ApplySwitch,
    freezes: Vec<FreezeRow>,
    configuration: Option<ConfigurationNote>,
    notice: Option<Notice>,
}

impl Dashboard {
    pub(super) fn new(
        facts: &DashboardData,
        server: &ServerState,
        asked: &DashboardQuery,
        notice: Option<Notice>,
        now: Timestamp,
    ) -> Dashboard {
        let job_row = |(job, pull): &(Job, Option<PullRequest>)| JobRow::new(job, pull.as_ref(), now);
        let (role, tone) = if server.draining { ("shutting down", "warn") } else { ("ready", "good") };
        let known = RowFacts { at_work: &facts.at_work, plans: &facts.plans, waiters: &facts.waiters, now };
        Dashboard {
            role,
            tone,
            version: VERSION,
            in_progress: server.in_progress,
            failed: facts.failures,
            search: asked.search.clone(),
            attention: (facts.attention.as_ref())
                .map(|attention| AttentionList::new(attention, &server.executable, &known)),
            running: ListPage::new(&facts.running, "running", 1, MAX_ROWS, asked, job_row),
            locks: ListPage::new(&facts.locks, "locks", asked.locks, MAX_ROWS, asked, |(lock, status)| {
                LockRow::new(lock, status.as_ref(), &known)
            }),
            owners: ListPage::new(&facts.owners, "owners", 1, MAX_OWNERS, asked, |owner| {
                OwnerRow::new(owner, &server.executable, &known)
            }),
            pulls: ListPage::new(&facts.pulls, "pulls", asked.pulls, MAX_PULLS, asked, |pull| {
                PullRow::new(pull, MAX_PROJECTS, &known)
            }),
            recent: ListPage::new(&facts.ended, "runs", asked.runs, MAX_RECENT, asked, job_row),
            freezes: facts.freezes.iter().map(|freeze| FreezeRow::new(freeze, now)).collect(),
            configuration: server.configuration.as_deref().map(|status| ConfigurationNote::new(status, now)),
            apply: apply_switch(facts.apply_lock.as_ref(), server, now),
            notice,
        }
    }
}

fn apply_switch(lock: Option<&ApplyLock>, server: &ServerState, now: Timestamp) -> ApplySwitch {
    ApplySwitch {
        locked: lock.is_some(),
        user: lock.map(|lock| lock.user.clone()).unwrap_or_default(),
        reason: lock.map(|lock| lock.reason.clone()).unwrap_or_default(),
        since: lock.map(|lock| When::new(lock.since, now)),
        allowed: server.apply_allowed,
        switch: server.apply_switch,
    }
}

/// Raw query of the address; an invalid number means the first page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Parameters {
    notice: String,
    q: String,
    locks: String,
    pulls: String,
    runs: String,
}

impl Parameters {
    fn asked(&self) -> DashboardQuery {
        let page = |text: &str| text.parse::<u32>().map_or(1, |page| page.max(1) as usize);
        let search = self.q.trim().chars().filter(|c| !c.is_control()).take(MAX_SEARCH).collect();
        DashboardQuery { search, locks: page(&self.locks), pulls: page(&self.pulls), runs: page(&self.runs) }
    }
}

/// Serves the page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let asked = parameters.asked();
    let facts = DashboardData::load(&services.store, &asked).await?;
    let notice = Notice::named(&parameters.notice);
    let view = Dashboard::new(&facts, &ServerState::read(&site, &services), &asked, notice, Timestamp::now());
    Ok(site.pages.page("dashboard.html", &visit, &view)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_without_trust_and_written_with_what_was_asked() {
        let parameters = Parameters {
            q: "  a&b \u{1b}c ".into(),
            locks: "3".into(),
            pulls: "-1".into(),
            runs: "0".into(),
            ..Parameters::default()
        };
        let asked = parameters.asked();
        assert_eq!(asked, DashboardQuery { search: "a&b c".into(), locks: 3, pulls: 1, runs: 1 });
        assert_eq!(asked.address("pulls", 2), "?q=a%26b+c&locks=3&pulls=2#pulls");
        assert_eq!(DashboardQuery::default().address("locks", 1), "?#locks");
    }
}
