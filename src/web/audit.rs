//! `/audit`: the audit log with its filters. `/audit.csv` and `/audit.json`: the same entries for programs.

mod query;

use super::answer::{HttpProblem, Visit, typed};
use super::filters::{suggested, unusable_filter};
use super::openapi::{RouteDoc, about};
use super::pages::{PullView, When, shown};
use super::{Route, Site, TokenScope, Who, header_value, route};
use crate::domain::state::AuditEntry;
use crate::domain::{CommitSha, PullId, RepoId};
use crate::store::{AuditCursor, AuditFound};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Method, Uri, header};
use jiff::Timestamp;
pub(super) use query::AuditQuery;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// Number of entries on one page.
const ROWS: usize = 50;

/// Maximum number of entries in one answer for programs.
const MAX_EXPORTED: usize = 5_000;

/// First line of the CSV form; the names of the JSON form.
const COLUMNS: [&str; 13] = [
    "at",
    "who",
    "act",
    "subject",
    "result",
    "why",
    "repository",
    "pull",
    "project",
    "commit",
    "plan",
    "request",
    "name",
];

/// First characters with which a spreadsheet takes a cell for a formula.
const FORMULA: [char; 7] = ['=', '+', '-', '@', '\t', '\r', '\n'];

/// Returns the routes of the audit log.
pub(super) fn routes() -> Vec<Route> {
    use Who::People;
    let doc = |summary| filtered(about(summary)).problems(&[400]);
    let csv =
        doc("Entries of the audit log, newest first, up to 5,000; the header `link` has the address of the next ones.");
    let json = doc("Entries of the audit log, newest first, up to 5,000; `next` is the address of the next ones.");
    vec![
        route(Method::GET, "/audit", People, page, doc("The audit log, newest first.").page()),
        route(Method::GET, "/audit.csv", People, csv_export, csv.text("text/csv")),
        route(Method::GET, "/audit.json", Who::Api(TokenScope::Read), json_export, json.json::<AuditExport>()),
    ]
}

fn filtered(doc: RouteDoc) -> RouteDoc {
    doc.optional_query("person", "Who did it.")
        .optional_query("act", "What was done: apply, unlock, …")
        .optional_query("repository", "owner/name, or host/owner/name.")
        .optional_query("pull", "Number of the pull request.")
        .optional_query("project", "The project's name, or directory/workspace.")
        .optional_query("result", "The result, up to its first colon, semicolon or comma.")
        .optional_query("request", "Id of the request or delivery that asked for it.")
        .optional_query("from", "Date, or date and time, in UTC.")
        .optional_query("until", "The end of that time, which is not in it.")
        .optional_query("after", "Cursor of the page of older entries.")
}

/// An entry on the page.
#[derive(Serialize)]
struct AuditRow {
    when: When,
    who: String,
    act: String,
    subject: String,
    result: String,
    why: Option<String>,
    pull: Option<PullView>,
    project: Option<String>,
    commit: Option<String>,
    plan: Option<String>,
}

/// The page.
#[derive(Serialize)]
struct AuditPage {
    rows: Vec<AuditRow>,
    query: AuditQuery,
    /// True if the query has a filter.
    filtered: bool,
    /// True on any page but the first.
    later: bool,
    acts: Vec<String>,
    results: Vec<String>,
    /// Names of hosts and repositories that are served, for the form.
    repositories: Vec<String>,
    older: Option<String>,
    /// Number of entries that were looked at before the search ended, and the time of the last one.
    looked: Option<(usize, When)>,
    newest: String,
    csv: String,
    json: String,
}

/// An entry for programs.
#[derive(Serialize, ToSchema)]
struct ExportedEntry {
    /// When, in UTC.
    at: String,
    /// The person or program.
    who: String,
    /// Name that the host shows for the person, where `who` is an id.
    name: Option<String>,
    /// What was done.
    act: String,
    /// To what, in words.
    subject: String,
    /// The result, in words.
    result: String,
    /// The person's reason.
    why: Option<String>,
    /// `host/owner/name` of the pull request.
    repository: Option<String>,
    /// Number of the pull request.
    pull: Option<u64>,
    /// The project, as it is called in comments.
    project: Option<String>,
    /// The head commit.
    commit: Option<String>,
    /// SHA-256 of the plan file that was applied.
    plan: Option<String>,
    /// Id of the request or delivery that asked for it.
    request: Option<String>,
}

/// Entries of the audit log.
#[derive(Serialize, ToSchema)]
struct AuditExport {
    /// The entries, newest first.
    entries: Vec<ExportedEntry>,
    /// Address of the next ones, relative to this one; absent if there are none. An answer with few entries, or with none, may have one.
    next: Option<String>,
}

impl AuditRow {
    fn new(entry: &AuditEntry, now: Timestamp) -> AuditRow {
        // What comes from a pull request is shown without signs that turn text around.
        AuditRow {
            when: When::new(entry.at, now),
            who: shown(&entry.person()),
            act: shown(&entry.act),
            subject: shown(&entry.subject),
            result: shown(&entry.result),
            why: entry.why.as_deref().map(shown),
            pull: entry.pull.as_ref().map(|pull| PullView::find(pull, None)),
            project: entry.project.as_deref().map(shown),
            commit: entry.commit.as_ref().map(|commit| commit.short().to_owned()),
            plan: entry.plan.clone(),
        }
    }
}

impl AuditPage {
    fn new(log: &AuditRecords, query: &AuditQuery, now: Timestamp) -> AuditPage {
        let AuditFound { rows, older, looked } = &log.found;
        let time = |cursor: &AuditCursor| Timestamp::from_microsecond(cursor.at).ok().map(|at| When::new(at, now));
        AuditPage {
            rows: rows.iter().map(|entry| AuditRow::new(entry, now)).collect(),
            filtered: query.has_filter(),
            later: query.after.is_some(),
            acts: log.acts.clone(),
            results: log.results.clone(),
            repositories: suggested(&log.served),
            older: older.map(|cursor| query.address("audit", Some(cursor))),
            looked: looked.zip(older.as_ref().and_then(time)),
            newest: query.address("audit", None),
            csv: query.address("audit.csv", None),
            json: query.address("audit.json", None),
            query: query.clone(),
        }
    }
}

impl From<AuditEntry> for ExportedEntry {
    fn from(entry: AuditEntry) -> ExportedEntry {
        let AuditEntry { at, who, name, act, subject, result, why, pull, project, commit, plan, request } = entry;
        ExportedEntry {
            at: at.to_string(),
            who,
            name,
            act,
            subject,
            result,
            why,
            repository: pull.as_ref().map(|PullId { repo, .. }| repo.to_string()),
            pull: pull.map(|pull| pull.number),
            project,
            commit: commit.as_ref().map(CommitSha::to_string),
            plan,
            request,
        }
    }
}

impl ExportedEntry {
    /// Returns its line of the CSV form, in the order of [`COLUMNS`].
    fn line(self) -> String {
        let pull = self.pull.map(|number| number.to_string());
        let cells = [
            Some(self.at),
            Some(self.who),
            Some(self.act),
            Some(self.subject),
            Some(self.result),
            self.why,
            self.repository,
            pull,
            self.project,
            self.commit,
            self.plan,
            self.request,
            self.name,
        ];
        cells.map(|text| cell(&text.unwrap_or_default())).join(",")
    }
}

/// Returns a text as a cell. A spreadsheet would run one that begins like a formula, so it gets an apostrophe.
fn cell(text: &str) -> String {
    let mark = if text.starts_with(FORMULA) { "'" } else { "" };
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

/// What the state has for a query.
struct AuditRecords {
    found: AuditFound,
    served: Vec<RepoId>,
    acts: Vec<String>,
    results: Vec<String>,
}

/// Loads up to `limit` entries for the query of an address.
async fn load(site: &Site, uri: &Uri, limit: usize) -> Result<(AuditQuery, AuditRecords), HttpProblem> {
    let services = site.services()?;
    let query = AuditQuery::parse(uri.query().unwrap_or_default()).map_err(unusable_filter)?;
    let asked = query.clone();
    let records = services.store.read(move |view| {
        let served = view.served_repos()?;
        let filter = match asked.filter(&served) {
            Ok(filter) => filter,
            Err(why) => return Ok(Err(why)),
        };
        let found = view.list_audit(&filter, asked.after, limit)?;
        let (acts, results) = view.audit_words()?;
        Ok(Ok(AuditRecords { found, served, acts, results }))
    });
    Ok((query, records.await?.map_err(unusable_filter)?))
}

/// Serves the page.
async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let (query, log) = load(&site, &uri, ROWS).await?;
    Ok(site.pages.page("audit.html", &visit, &AuditPage::new(&log, &query, Timestamp::now()))?)
}

/// Adds the address of the next entries to an answer.
fn with_next(mut response: Response, next: Option<&String>) -> Response {
    if let Some(next) = next {
        response.headers_mut().insert(header::LINK, header_value(&format!("<{next}>; rel=\"next\"")));
    }
    response
}

/// Serves entries as CSV.
async fn csv_export(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, HttpProblem> {
    let (query, log) = load(&site, &uri, MAX_EXPORTED).await?;
    let next = log.found.older.map(|older| query.address("audit.csv", Some(older)));
    let mut csv = COLUMNS.join(",") + "\r\n";
    for entry in log.found.rows {
        csv += &(ExportedEntry::from(entry).line() + "\r\n");
    }
    if let Some(next) = &next {
        // Whoever only has the file must see that it is not all.
        csv += &(cell(&format!("These are not all entries. The next ones are at {next}")) + "\r\n");
    }
    let mut response = typed("text/csv; charset=utf-8", csv);
    let name = "attachment; filename=\"tidelock-audit.csv\"";
    response.headers_mut().insert(header::CONTENT_DISPOSITION, header_value(name));
    Ok(with_next(response, next.as_ref()))
}

/// Serves entries as JSON.
async fn json_export(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, HttpProblem> {
    let (query, log) = load(&site, &uri, MAX_EXPORTED).await?;
    let next = log.found.older.map(|older| query.address("audit.json", Some(older)));
    let entries = log.found.rows.into_iter().map(ExportedEntry::from).collect();
    let response = axum::Json(AuditExport { entries, next: next.clone() }).into_response();
    Ok(with_next(response, next.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_no_formula_and_ends_where_it_should() {
        for (text, expected) in [
            ("alice", r#""alice""#),
            ("", r#""""#),
            ("=HYPERLINK(\"x\")", r#""'=HYPERLINK(""x"")""#),
            ("+1", r#""'+1""#),
            ("-1", r#""'-1""#),
            ("@SUM(A1)", r#""'@SUM(A1)""#),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("a,b\nc", "\"a,b\nc\""),
            ("a=1", r#""a=1""#),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn the_forms_for_programs_have_the_same_fields_in_the_same_order() {
        let entry = AuditEntry { who: "=cmd".into(), plan: Some("ab".into()), ..AuditEntry::default() };
        let json = serde_json::to_value(ExportedEntry::from(entry.clone())).unwrap();
        let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = COLUMNS.to_vec();
        names.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, names);
        assert_eq!(
            ExportedEntry::from(entry).line(),
            r#""1970-01-01T00:00:00Z","'=cmd","","","","","","","","","ab","","""#
        );
    }
}
