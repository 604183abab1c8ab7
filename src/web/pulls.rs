//! `/pulls`: open pull requests. `/pulls/HOST/OWNER/REPO/NUMBER`: one of them with its projects, locks, missing approvals and runs.

mod list;

use super::Site;
use super::actions::{ActionFacts, ActionPanel, PanelScope, RequestNotice};
use super::answer::{HttpProblem, Visit};
use super::audit::AuditQuery;
use super::dashboard::{LockRow, OwnerRow, RowFacts, status_view};
use super::pages::{ProjectView, PullName, PullView, StatusMark, StatusView, When, shown, web_address};
use super::runs::{MarkedPolicySet, RunOutcome, RunQuery, RunRow};
use crate::domain::ownership::ProjectOwner;
use crate::domain::policies::PolicyCheckRecord;
use crate::domain::state::{Job, PlanRecord, ProjectLock, ProjectStatus};
use crate::domain::waiting::{WaitCause, WaitingPull};
use crate::domain::{CommitAddress, JobId, PullId, PullRequest, PullState, RepoId};
use crate::store::{ListedRun, RunCursor, View};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use jiff::Timestamp;
pub(super) use list::{api_list, list};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of listed projects, locks, owned projects and waits, each, so that a page with all of them stays below 100 kB.
const MAX_LISTED: usize = 40;

/// Maximum number of policy checks of which missing approvals are looked for.
const MAX_CHECKS: usize = 200;

/// Number of listed runs.
const RUNS: usize = 20;

/// Maximum number of results of a run in which missing approvals are looked for.
const MAX_RESULTS: usize = 1000;

/// What the state has of a pull request.
struct PullRecords {
    id: PullId,
    pull: Option<PullRequest>,
    fault: Option<String>,
    projects: Vec<ProjectRecords>,
    more: usize,
    locks: Vec<(ProjectLock, Option<ProjectStatus>)>,
    owners: Vec<ProjectOwner>,
    /// Number of locks and owned projects that are not listed.
    more_held: usize,
    /// Waits of the pull request, each with the line that it is in and the holder of the project.
    waits: Vec<WaitRecords>,
    /// Number of waits that are not listed.
    more_waits: usize,
    /// Those who wait for the locks and owned projects of the pull request.
    waiters: Vec<WaitingPull>,
    plans: HashMap<PullId, Vec<PlanRecord>>,
    at_work: Vec<Job>,
    checks: Vec<PolicyCheckRecord>,
    runs: Vec<ListedRun>,
}

/// What the state has of a project of a pull request.
struct ProjectRecords {
    status: ProjectStatus,
    plan: Option<Job>,
    apply: Option<Job>,
}

/// What the state has of a wait for a project.
pub(super) struct WaitRecords {
    wait: WaitingPull,
    line: Vec<WaitingPull>,
    holder: Option<PullId>,
}

impl PullRecords {
    /// Loads a pull request; none if the state has neither it nor a run of it.
    fn load(view: &View<'_>, id: PullId) -> anyhow::Result<Option<PullRecords>> {
        let (pull, runs) = (view.pull(&id)?, view.runs_of_pull(&id, RUNS)?);
        if pull.is_none() && runs.is_empty() {
            return Ok(None);
        }
        let statuses = view.project_statuses(&id)?;
        let more = statuses.len().saturating_sub(MAX_LISTED);
        let mut projects = Vec::new();
        for status in statuses.iter().take(MAX_LISTED) {
            let plan = view.last_job_of(&id, &status.project, "plan")?;
            let apply = view.last_job_of(&id, &status.project, "apply")?;
            projects.push(ProjectRecords { status: status.clone(), plan, apply });
        }
        let (mut locks, mut owners, mut waiters) = (view.locks_of(&id)?, view.owners_of(&id)?, Vec::new());
        let more_held = locks.len().saturating_sub(MAX_LISTED) + owners.len().saturating_sub(MAX_LISTED);
        locks.truncate(MAX_LISTED);
        owners.truncate(MAX_LISTED);
        let held = locks.iter().map(|lock| &lock.project).chain(owners.iter().map(|owner| &owner.project));
        for project in held {
            let line = view.line(&id.repo, project)?;
            waiters.extend(line.into_iter().filter(|waiter| !waiters.contains(waiter)).collect::<Vec<_>>());
        }
        let (waits, more_waits) = waits_of(view, &id, MAX_LISTED)?;
        let status_of = |lock: &ProjectLock| statuses.iter().find(|status| status.project == lock.project).cloned();
        Ok(Some(PullRecords {
            fault: view.fault(&id)?,
            locks: locks
                .into_iter()
                .map(|lock| (status_of(&lock), lock))
                .map(|(status, lock)| (lock, status))
                .collect(),
            plans: HashMap::from([(id.clone(), view.plans_with_limit(&id)?)]),
            at_work: view.unfinished_jobs()?.into_iter().filter(|job| job.pull == id).collect(),
            checks: view.policy_checks(&id)?,
            pull,
            projects,
            more,
            owners,
            more_held,
            waits,
            more_waits,
            waiters,
            runs,
            id,
        }))
    }
}

/// Loads the first waits of a pull request, and the number of further ones.
fn waits_of(view: &View<'_>, id: &PullId, limit: usize) -> anyhow::Result<(Vec<WaitRecords>, usize)> {
    let (mut waits, all) = (Vec::new(), view.waits_of(id)?);
    let more = all.len().saturating_sub(limit);
    for wait in all.into_iter().take(limit) {
        let line = view.line(&id.repo, &wait.project)?;
        let mut holders = view.locks_of_state(&id.repo, &wait.project)?.into_iter().map(|lock| lock.holder.pull);
        let lock = holders.find(|holder| holder != id);
        let mut owners = view.owners_of_state(&id.repo, &wait.project)?.into_iter().map(|owner| owner.holder.pull);
        let holder = lock.or_else(|| owners.find(|holder| holder != id));
        waits.push(WaitRecords { wait, line, holder });
    }
    Ok((waits, more))
}

/// The last job of one kind on a project.
#[derive(Serialize)]
pub(super) struct LastJob {
    id: JobId,
    mark: StatusMark,
    user: String,
    started: When,
}

/// A project with its last plan and its last apply.
#[derive(Serialize)]
struct ProjectRow {
    status: StatusView,
    plan: Option<LastJob>,
    apply: Option<LastJob>,
}

/// A project that a pull request waits for.
#[derive(Serialize)]
pub(super) struct WaitRow {
    project: ProjectView,
    place: usize,
    holder: Option<PullName>,
    because: &'static str,
    since: When,
}

/// Policy sets of a project that have neither passed nor been approved.
#[derive(Serialize)]
struct MissingApproval {
    project: ProjectView,
    sets: Vec<MarkedPolicySet>,
}

/// The page.
#[derive(Serialize)]
struct PullPage {
    pull: PullView,
    state: StatusMark,
    known: Option<PullFactsView>,
    fault: Option<String>,
    projects: Vec<ProjectRow>,
    more: usize,
    locks: Vec<LockRow>,
    owners: Vec<OwnerRow>,
    more_held: usize,
    waits: Vec<WaitRow>,
    more_waits: usize,
    missing: Vec<MissingApproval>,
    more_missing: usize,
    /// Number of policy checks that are not looked at.
    unchecked: usize,
    runs: Vec<RunRow>,
    /// Filter of the list with all runs of it.
    all_runs: String,
    /// Filter of the audit log with its entries.
    audit: String,
    /// Buttons of the person who looks.
    actions: Option<ActionPanel>,
    /// What became of the command that the person has asked for.
    request: Option<RequestNotice>,
}

/// Facts of a pull request as last recorded.
#[derive(Serialize)]
struct PullFactsView {
    author: String,
    draft: bool,
    branch: String,
    base: String,
    commit: String,
    commit_address: Option<String>,
}

impl LastJob {
    pub(super) fn new(job: &Job, now: Timestamp) -> LastJob {
        LastJob {
            id: job.id.clone(),
            mark: StatusMark::from(job.state),
            user: job.user.to_string(),
            started: When::new(job.started, now),
        }
    }
}

/// Returns the place of a wait in the line that it is in, from 1.
pub(super) fn place_in(line: &[WaitingPull], wait: &WaitingPull) -> usize {
    let before = line.iter().take_while(|other| other.pull != wait.pull);
    before.filter(|other| other.excludes(wait)).count() + 1
}

/// Returns the cause of a wait in words.
pub(super) fn wait_words(cause: WaitCause) -> &'static str {
    match cause {
        WaitCause::Plan => "its plan was refused",
        WaitCause::Apply => "its apply was refused",
        WaitCause::Invalidated => "its plan was invalidated",
        WaitCause::ApplyFailed => "its apply failed",
    }
}

impl WaitRow {
    fn new(records: &WaitRecords, now: Timestamp) -> WaitRow {
        let WaitRecords { wait, line, holder } = records;
        WaitRow {
            project: ProjectView::of(&wait.pull.repo, &wait.project),
            place: place_in(line, wait),
            holder: holder.as_ref().map(PullName::from),
            because: wait_words(wait.cause),
            since: When::new(wait.since, now),
        }
    }
}

/// Returns the approvals that the policy checks of a pull request lack. How many a set needs is in the result of its last check, if one of
/// its latest runs has it.
fn missing_approvals(checks: &[PolicyCheckRecord], runs: &[ListedRun]) -> anyhow::Result<Vec<MissingApproval>> {
    let runs = runs.iter().map(|listed| RunOutcome::all(&listed.run, MAX_RESULTS));
    let runs: Vec<Vec<RunOutcome>> = runs.collect::<Result<_, _>>()?;
    let mut missing = Vec::new();
    for check in checks.iter().take(MAX_CHECKS) {
        let is_of = |outcome: &&RunOutcome| {
            !outcome.policy_sets.is_empty() && outcome.project().as_ref() == Some(&check.project)
        };
        let last = runs.iter().find_map(|outcomes| outcomes.iter().rev().find(is_of));
        let result_of = |name: &str| last.and_then(|last| last.policy_sets.iter().find(|set| set.name == name));
        let failed = check.sets.iter().filter(|set| !set.passed);
        let sets = failed.filter_map(|set| match result_of(&set.name) {
            Some(result) => (!result.is_met()).then(|| result.clone()),
            None => Some(MarkedPolicySet::of_unknown_approvals(&set.name)),
        });
        let sets: Vec<MarkedPolicySet> = sets.collect();
        if !sets.is_empty() {
            missing.push(MissingApproval { project: ProjectView::of(&check.pull.repo, &check.project), sets });
        }
    }
    Ok(missing)
}

/// Returns the number of projects of a pull request with policies that lack approvals.
pub(super) fn missing_approvals_of(view: &View<'_>, id: &PullId) -> anyhow::Result<usize> {
    let checks = view.policy_checks(id)?;
    if checks.is_empty() {
        return Ok(0);
    }
    Ok(missing_approvals(&checks, &view.runs_of_pull(id, RUNS)?)?.len())
}

impl PullPage {
    fn new(
        records: &PullRecords,
        executable: &str,
        commits: Option<&CommitAddress>,
        now: Timestamp,
    ) -> anyhow::Result<PullPage> {
        let PullRecords { id, pull, plans, at_work, waiters, .. } = records;
        let facts = RowFacts { at_work, plans, waiters, now };
        let project = |project: &ProjectRecords| ProjectRow {
            status: status_view(&project.status, id, &facts),
            plan: project.plan.as_ref().map(|job| LastJob::new(job, now)),
            apply: project.apply.as_ref().map(|job| LastJob::new(job, now)),
        };
        let state = match pull.as_ref().map(|pull| &pull.state) {
            Some(PullState::Open) => StatusMark::new("open", "good"),
            Some(PullState::Merged { .. }) => StatusMark::new("merged", "busy"),
            Some(PullState::Closed) => StatusMark::new("closed", "quiet"),
            None => StatusMark::new("no longer recorded", "quiet"),
        };
        let missing = missing_approvals(&records.checks, &records.runs)?;
        Ok(PullPage {
            pull: PullView::find(id, pull.as_ref()),
            state,
            known: pull.as_ref().map(|pull| PullFactsView {
                author: pull.author.to_string(),
                draft: pull.draft,
                branch: shown(&pull.head.branch),
                base: shown(&pull.base.branch),
                commit: pull.head.commit.short().to_owned(),
                commit_address: commits
                    .and_then(|commits| commits.url_of(&id.repo, &pull.head.commit))
                    .map(|page| web_address(&page).to_owned()),
            }),
            fault: records.fault.as_deref().map(shown),
            projects: records.projects.iter().map(project).collect(),
            more: records.more,
            locks: records.locks.iter().map(|(lock, status)| LockRow::new(lock, status.as_ref(), &facts)).collect(),
            owners: records.owners.iter().map(|owner| OwnerRow::new(owner, executable, &facts)).collect(),
            more_held: records.more_held,
            more_waits: records.more_waits,
            more_missing: missing.len().saturating_sub(MAX_LISTED),
            unchecked: records.checks.len().saturating_sub(MAX_CHECKS),
            waits: records.waits.iter().map(|wait| WaitRow::new(wait, now)).collect(),
            missing: missing.into_iter().take(MAX_LISTED).collect(),
            runs: records.runs.iter().map(|listed| RunRow::new(listed, now)).collect(),
            all_runs: RunQuery::of_pull(id).address(RunCursor::Newest),
            audit: AuditQuery::of_pull(id).address("audit", None),
            actions: None,
            request: None,
        })
    }
}

/// Query of the page of a pull request.
#[derive(Deserialize)]
pub(super) struct PullPageQuery {
    /// Key of a command that a button has asked for.
    request: Option<String>,
}

/// Parses the path after `/pulls/`: host, owner of any number of parts, name, and number.
pub(super) fn parse_pull(path: &str) -> Option<PullId> {
    let (repo, number) = path.rsplit_once('/')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    Some(PullId { repo: RepoId::of_whole_name(repo)?, number })
}

/// Serves the page of a pull request.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(path): Path<String>,
    Query(query): Query<PullPageQuery>,
) -> Result<Response, HttpProblem> {
    let none =
        || HttpProblem::not_found("This server knows no such pull request, or it is so old that it was dropped.");
    let id = parse_pull(&path).ok_or_else(none)?;
    let services = site.services()?;
    let is_actor = visit.actor().is_some();
    let found = services.store.read(move |view| {
        let facts = if is_actor { ActionFacts::load(view, &id)? } else { None };
        let request = query.request.map(|key| RequestNotice::find(view, &id, &key)).transpose()?.flatten();
        Ok(PullRecords::load(view, id)?.map(|records| (records, facts, request)))
    });
    let (records, facts, request) = found.await?.ok_or_else(none)?;
    let commits = site.state.commit_addresses.get(&records.id.repo.host.to_ascii_lowercase());
    let mut view = PullPage::new(&records, &site.state.executable_name, commits, Timestamp::now())?;
    view.actions = facts.and_then(|facts| ActionPanel::new(&facts, &services.dispatch, &visit, PanelScope::Pull));
    view.request = request;
    Ok(site.pages.page("pull.html", &visit, &view)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_pull_request_of_an_owner_of_any_depth() {
        let parsed = |path: &str| parse_pull(path).map(|pull| (pull.repo.owner.clone(), pull.to_string()));
        let found = |owner: &str, whole: &str| Some((owner.to_owned(), whole.to_owned()));
        assert_eq!(parsed("github.com/acme/infra/7"), found("acme", "github.com/acme/infra#7"));
        assert_eq!(
            parsed("dev.azure.com/acme/Two Words/in fra/7"),
            found("acme/Two Words", "dev.azure.com/acme/Two Words/in fra#7")
        );
        for path in
            ["", "7", "h/7", "h/o/7", "h//n/7", "h/o//7", "/o/n/7", "h/o/n/0", "h/o/n/x", "h/o/n/7/", "h/o/n/-1"]
        {
            assert_eq!(parsed(path), None, "{path}");
        }
    }
}
