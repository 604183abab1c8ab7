//! `/drift`: repositories with a schedule, and projects with drift or of which nothing is known.

use crate::dispatch::{RequestRefused, ScheduleState, ScheduledRepository};
use crate::domain::drift::{DriftCheckEnd, DriftFinding, DriftKind, ProjectDrift};
use crate::domain::drift_issue::{IssuePlace, MissingIssues};
use crate::domain::{JobId, RepoId, RunId};
use crate::store::{DriftFilter, DriftFindings};
use crate::web::Site;
use crate::web::answer::{HttpProblem, Visit};
use crate::web::filters::{self, GivenFilter, MAX_OFFERED, one_of, unusable_filter};
use crate::web::locks::FormFields;
use crate::web::pages::{ProjectView, StatusMark, Total, When, shown, totals};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;

/// Number of findings on one page.
const ROWS: usize = 50;

/// Maximum number of repositories with a schedule on one page.
const MAX_SCHEDULED: usize = 100;

/// Parsed query of the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DriftQuery {
    filter: DriftFilter,
    after: Option<i64>,
}

impl DriftQuery {
    /// Parses a query. The error names the filter and the reason.
    fn parse(query: &str) -> Result<DriftQuery, String> {
        let mut parsed = DriftQuery::default();
        for given in GivenFilter::all(query)? {
            match &*given.name {
                "repository" => parsed.filter.repo = Some(given.value),
                "state" => {
                    let kind = DriftKind::of_word(&given.value);
                    let all = || one_of(DriftKind::ALL.iter().map(|kind| kind.as_str()));
                    parsed.filter.kind = Some(kind.ok_or_else(|| given.unusable(&all()))?);
                }
                "after" => {
                    let place = given.value.parse();
                    let place = place.map_err(|_| given.unusable("it comes from a link to another page."))?;
                    parsed.after = Some(place);
                }
                _ => return Err(given.unusable("the filters are repository and state.")),
            }
        }
        Ok(parsed)
    }

    /// Returns the address of the page after a finding, relative to `/`.
    fn address(&self, after: Option<i64>) -> String {
        let after = after.map(|after| after.to_string()).unwrap_or_default();
        let state = self.filter.kind.map(DriftKind::as_str).unwrap_or_default();
        let repository = self.filter.repo.as_deref().unwrap_or_default();
        filters::address("drift", &[("repository", repository), ("state", state), ("after", &after)])
    }
}

/// The page.
#[derive(Serialize)]
struct DriftPage {
    repository: String,
    state: &'static str,
    states: Vec<&'static str>,
    /// True if the query has a filter.
    filtered: bool,
    /// Names of repositories, for the form.
    repositories: Vec<String>,
    scheduled: Vec<ScheduleRow>,
    /// Number of further repositories with a schedule.
    more: usize,
    rows: Vec<DriftRow>,
    first: Option<String>,
    next: Option<String>,
}

/// A repository with a schedule.
#[derive(Serialize)]
struct ScheduleRow {
    repo: String,
    /// Filter of the page for this repository.
    address: String,
    schedule: String,
    branch: Option<String>,
    mark: StatusMark,
    /// Drift without an issue, in words.
    issues: Option<String>,
    /// Why the last detection has no result.
    refused: Option<String>,
    checked: Option<When>,
    run: Option<RunId>,
    totals: Vec<StatusMark>,
    /// Scheduled time for which no detection has begun in its window.
    missed: Option<When>,
    next: Option<When>,
    /// `host/owner/name`, for the button of a person who may ask for a check now.
    check_now: Option<String>,
}

/// A project.
#[derive(Serialize)]
struct DriftRow {
    project: ProjectView,
    repo: String,
    branch: String,
    commit: String,
    mark: StatusMark,
    totals: Vec<Total>,
    /// True if objects have changed outside of Terraform.
    outside: bool,
    because: Option<String>,
    job: Option<JobId>,
    /// Its issue on the host.
    issue: Option<IssuePlace>,
    since: Option<When>,
    checked: When,
    /// Time of the last check that has planned it, unless that is the latest one.
    planned: Option<When>,
}

/// Says which drift has no issue; `None` if all has one.
fn missing_issues(missing: &MissingIssues) -> Option<String> {
    match (&missing.refused, missing.waiting) {
        (Some(because), _) => Some(format!("No issues: {}", shown(because))),
        (None, 0) => None,
        (None, 1) => Some("1 issue is opened by the next check".to_owned()),
        (None, waiting) => Some(format!("{waiting} issues are opened by the next checks")),
    }
}

fn tone(kind: DriftKind) -> &'static str {
    match kind {
        DriftKind::Drifted => "warn",
        DriftKind::Failed => "bad",
        DriftKind::Skipped => "quiet",
        DriftKind::Clean => "good",
    }
}

impl ScheduleRow {
    fn new(one: &ScheduledRepository, totals: &[(DriftKind, usize)], now: Timestamp) -> ScheduleRow {
        let check = one.check.as_ref();
        let end = check.and_then(|check| check.end.as_ref());
        let (word, tone_of) = match (&one.state, end) {
            (ScheduleState::Running, _) => ("running", "busy"),
            (ScheduleState::Due(_), _) => ("waits for its turn", "busy"),
            _ if one.is_given_up() => ("interrupted", "warn"),
            (_, Some(DriftCheckEnd { refused: Some(_), .. })) => ("failed", "bad"),
            (_, Some(_)) => ("checked", "good"),
            (_, None) => ("not checked yet", "quiet"),
        };
        let filter = DriftFilter { repo: Some(one.repo.to_string()), kind: None };
        let next = match one.state {
            ScheduleState::Later(Some(next)) => Some(next),
            _ => None,
        };
        let counted = DriftKind::ALL.into_iter().filter_map(|kind| {
            let (_, count) = totals.iter().find(|(known, _)| *known == kind)?;
            Some(StatusMark::new(format!("{count} {}", kind.as_str()), tone(kind)))
        });
        ScheduleRow {
            repo: shown(&one.repo.full_name()),
            address: DriftQuery { filter, after: None }.address(None),
            schedule: one.schedule.text.clone(),
            branch: one.schedule.branch.as_deref().map(shown),
            mark: StatusMark::new(word, tone_of),
            issues: one.schedule.issue.as_ref().and(check).and_then(|check| missing_issues(&check.issues)),
            refused: end.and_then(|end| end.refused.as_deref()).map(shown),
            checked: end.map(|end| When::new(end.at, now)),
            run: end.and_then(|end| end.run.clone()),
            totals: counted.collect(),
            missed: one.missed(now).map(|time| When::new(time, now)),
            next: next.map(|next| When::new(next, now)),
            check_now: None,
        }
    }
}

impl DriftRow {
    fn new(found: &ProjectDrift, issue: Option<IssuePlace>, now: Timestamp) -> DriftRow {
        let kind = found.finding.kind();
        let because = match &found.finding {
            DriftFinding::Planned(_) => None,
            DriftFinding::Skipped { because, .. } | DriftFinding::Failed(because) => Some(shown(because)),
        };
        let summary = found.finding.summary();
        let planned = found.planned.filter(|planned| *planned != found.checked);
        DriftRow {
            project: ProjectView::from(&found.project),
            repo: shown(&found.repo.full_name()),
            branch: shown(&found.branch),
            commit: found.commit.short().to_owned(),
            mark: StatusMark::new(kind.as_str(), tone(kind)),
            totals: summary.filter(|summary| !summary.no_changes).map(totals).unwrap_or_default(),
            outside: summary.is_some_and(|summary| summary.changes_outside),
            because,
            job: found.job.clone(),
            issue,
            since: found.since.map(|since| When::new(since, now)),
            checked: When::new(found.checked, now),
            planned: planned.map(|planned| When::new(planned, now)),
        }
    }
}

/// Serves the page.
pub(in crate::web) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = DriftQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let all = services.dispatch.drift_schedules().await?;
    let repositories = all.iter().take(MAX_OFFERED).map(|one| one.repo.to_string()).collect();
    let asked = query.filter.repo.as_deref();
    let scheduled: Vec<ScheduledRepository> =
        all.into_iter().filter(|one| asked.is_none_or(|asked| one.repo.is_meant_by(asked))).collect();
    let repos: Vec<RepoId> = scheduled.iter().take(MAX_SCHEDULED).map(|one| one.repo.clone()).collect();
    let of = query.clone();
    let found = services.store.read(move |view| {
        let totals = repos.iter().map(|repo| view.drift_totals(repo)).collect::<anyhow::Result<Vec<_>>>()?;
        let found = view.list_drift(&of.filter, of.after, ROWS)?;
        let issues = found.rows.iter().map(|row| view.issue_of_drift(row)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((totals, found, issues))
    });
    let (totals, found, issues): (_, DriftFindings, _) = found.await?;
    let now = Timestamp::now();
    let rows = std::iter::zip(&scheduled, &totals);
    let may_check = |one: &ScheduledRepository| {
        let may = |person| services.dispatch.may_check_drift(one, person, visit.visitor);
        one.state != ScheduleState::Running && visit.actor().is_some_and(may)
    };
    let row = |(one, totals): (&ScheduledRepository, &Vec<_>)| ScheduleRow {
        check_now: may_check(one).then(|| one.repo.to_string()),
        ..ScheduleRow::new(one, totals, now)
    };
    let view = DriftPage {
        repository: query.filter.repo.clone().unwrap_or_default(),
        state: query.filter.kind.map(DriftKind::as_str).unwrap_or_default(),
        states: DriftKind::ALL.iter().map(|kind| kind.as_str()).collect(),
        filtered: query.filter != DriftFilter::default(),
        repositories,
        scheduled: rows.map(row).collect(),
        more: scheduled.len().saturating_sub(MAX_SCHEDULED),
        rows: std::iter::zip(&found.rows, issues).map(|(found, issue)| DriftRow::new(found, issue, now)).collect(),
        first: query.after.map(|_| query.address(None)),
        next: found.next.map(|next| query.address(Some(next))),
    };
    Ok(site.pages.page("drift.html", &visit, &view)?)
}

/// Begins a detection of a repository with a schedule.
pub(super) async fn check_now(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    visit.actor().ok_or_else(HttpProblem::unproved)?;
    let fields = FormFields::read(request).await?;
    let repo = fields.get("repo").unwrap_or_default();
    let entry = visit.entry("drift check", repo, "asked for on a page");
    match services.dispatch.check_drift_now(repo, entry, visit.visitor).await {
        Err(RequestRefused::Conflict(text)) => Err(HttpProblem::new(StatusCode::CONFLICT, "A check runs", text)),
        Err(refused) => Err(refused.into()),
        Ok(()) if visit.browser => {
            let address = filters::address("drift", &[("repository", repo)]);
            Ok(Redirect::to(&format!("{}{address}", visit.root)).into_response())
        }
        Ok(()) => Ok("A detection has begun.\n".into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::global::GlobalConfig;
    use crate::domain::ProjectId;
    use crate::domain::PullId;
    use crate::domain::drift::{DriftBlock, DriftCheck, DriftHold};
    use crate::domain::outcome::PlanSummary;
    use crate::web::preview_tests::{html, preview};
    use jiff::SignedDuration;

    const HOSTILE: &str = "<script>alert(1)</script> \u{202e}flip";

    fn found(name: &str, finding: DriftFinding) -> ProjectDrift {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let now: Timestamp = "2026-08-24T12:00:00Z".parse().unwrap();
        ProjectDrift {
            detection: "f".repeat(32).into(),
            repo,
            branch: HOSTILE.into(),
            reference: "main".into(),
            commit: "a".repeat(40).into(),
            project: ProjectId { dir: format!("{name}/{HOSTILE}"), workspace: "default".into(), name: None },
            checked: now - SignedDuration::from_hours(9),
            job: Some("e".repeat(32).into()),
            finding,
            since: Some(now - SignedDuration::from_hours(100)),
            planned: Some(now - SignedDuration::from_hours(33)),
        }
    }

    #[test]
    fn the_page_says_what_differs_since_when_and_nothing_becomes_markup() {
        let now: Timestamp = "2026-08-24T12:00:00Z".parse().unwrap();
        let summary = PlanSummary { add: 1, change: 2, changes_outside: true, ..PlanSummary::default() };
        let drifted = found("net", DriftFinding::Planned(summary));
        let repo = drifted.repo.clone();
        let block = DriftBlock { pull: PullId { repo: repo.clone(), number: 7 }, how: DriftHold::AtWork };
        let skipped = found("db", DriftFinding::Skipped { block, because: HOSTILE.into() });
        let yaml = "repos: [{id: /.*/, drift: {schedule: 0 3 * * *, branch: main, issue: true}}]";
        let schedule = GlobalConfig::parse(yaml, "f").unwrap().drift_schedule(&repo).unwrap().clone();
        let end = DriftCheckEnd { at: now, run: None, refused: Some(HOSTILE.into()) };
        let due = "2026-08-21T03:00:00Z".parse().unwrap();
        let issues = MissingIssues { waiting: 0, refused: Some(HOSTILE.into()) };
        let place = IssuePlace { number: 12, url: "https://h/issues/12?\"><script>alert(2)".into() };
        let check = DriftCheck { repo: repo.clone(), due, began: due, attempts: 1, end: Some(end), issues };
        let state = ScheduleState::Later(Some(now + SignedDuration::from_hours(15)));
        let later = now + SignedDuration::from_hours(6);
        let scheduled = ScheduledRepository { repo, schedule, check: Some(check), state };
        let totals = [(DriftKind::Drifted, 1), (DriftKind::Skipped, 1)];
        let view = DriftPage {
            repository: String::new(),
            state: "",
            states: DriftKind::ALL.iter().map(|kind| kind.as_str()).collect(),
            filtered: false,
            repositories: Vec::new(),
            scheduled: vec![ScheduleRow::new(&scheduled, &totals, later)],
            more: 0,
            rows: vec![DriftRow::new(&drifted, Some(place), now), DriftRow::new(&skipped, None, now)],
            first: None,
            next: Some("drift?after=2".into()),
        };
        let page = html("drift.html", "./", &view);
        preview("drift.html", &page);
        for text in [
            ">drifted<",
            "1 to add",
            "2 to change",
            "changed outside of Terraform",
            "since",
            "4 d",
            "checked",
            "9 h",
            "planned last",
            "33 h",
            "e".repeat(32).as_str(),
            ">failed<",
            ">1 skipped<",
            "0 3 * * * UTC",
            "branch main",
            "drift?after=2",
            ">issue 12</a>",
            "No issues: ",
            "No check began within the window of",
            "2026-08-24 03:00 UTC",
            "2026-08-25 03:00 UTC",
            "&lt;script&gt;",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        for text in ["<script>alert", "\u{202e}"] {
            assert!(!page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn an_address_is_parsed_and_written_again() {
        let address = "repository=acme%2Finfra&state=failed&after=12";
        let query = DriftQuery::parse(address).unwrap();
        assert_eq!(query.address(query.after), format!("drift?{address}"));
        assert_eq!(DriftQuery::parse("repository=&state=").unwrap().address(None), "drift");
    }

    #[test]
    fn an_unusable_filter_is_named_with_the_reason() {
        for (query, reason) in [
            ("state=bad", "state=bad: it is one of drifted, failed, skipped, clean."),
            ("after=x", "after=x: it comes from a link"),
            ("person=bob", "person=bob: the filters are repository and state."),
            ("repository=a%00b", "repository=ab: a value has at most 300 characters"),
        ] {
            let error = DriftQuery::parse(query).unwrap_err();
            assert!(error.starts_with(reason), "{query}: {error}");
        }
    }
}
