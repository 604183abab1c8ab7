//! The audit log of changes and their authors. Each entry is a row, and a log line once the row is durable.

use super::{Tx, View, json, micros, parse, rows};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params, params_from_iter};
use std::cell::RefCell;
use std::collections::BTreeSet;
use tidelock_core::domain::state::AuditEntry;
use tidelock_core::domain::{CommitSha, Login, RepoId};

/// The target of these log lines; `app` logs them at any log level.
pub const TARGET: &str = "tidelock::audit";

/// Maximum number of entries that one query looks at.
const MAX_LOOKED: usize = 5_000;

/// Maximum number of actions, and of results, that a form suggests; the results are those of so many of the latest entries.
const MAX_SUGGESTED: usize = 100;
const MAX_LATEST: usize = 1_000;

/// Maximum number of people, of the audit log and of runs each, among whom a search looks.
const MAX_PEOPLE: usize = 2_000;

/// Longest suggested word, in characters.
const MAX_WORD: usize = 40;

/// Longest login of a person, in characters: some hosts know people by ids of 43.
const MAX_PERSON: usize = 64;
/// Longest record of a login, with the name that people see.
const MAX_RECORD: usize = 160;

/// The filters with an index: its name, and its expression as in the format of the state.
const WHO: (&str, &str) = ("audit_who", "lower(json_extract(record, '$.who'))");
const ACT: (&str, &str) = ("audit_act", "json_extract(record, '$.act')");
const PULL: (&str, &str) = ("audit_pull", "json_extract(record, '$.pull.number')");
const PROJECT: (&str, &str) = ("audit_project", "json_extract(record, '$.project')");
const REPO: (&str, &str) = (
    "audit_repo",
    "CASE WHEN json_extract(record, '$.pull') IS NOT NULL THEN json_extract(record, '$.pull.repo.host') || '/' ||
         json_extract(record, '$.pull.repo.owner') || '/' || json_extract(record, '$.pull.repo.name')
       WHEN json_extract(record, '$.project') IS NULL THEN json_extract(record, '$.subject')
       ELSE substr(json_extract(record, '$.subject'), length(json_extract(record, '$.project')) + 5,
         length(json_extract(record, '$.subject')) - length(json_extract(record, '$.project')) - 8 -
         length(json_extract(record, '$.commit'))) END",
);

/// The filters without an index, as expressions.
const REQUEST: &str = "json_extract(record, '$.request')";
const RESULT: &str = "substr(json_extract(record, '$.result'), 1,
    instr(replace(replace(json_extract(record, '$.result'), ';', ':'), ',', ':') || ':', ':') - 1)";

/// Bounds of the values of an index that are listed.
#[derive(Clone, Copy)]
struct ValueLimits {
    /// Maximum number of values.
    count: usize,
    /// Maximum length of each, in characters; longer ones are left out.
    length: usize,
}

/// Conditions that a listed entry must all meet.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// It is about one of these repositories; empty for all.
    pub repos: Vec<RepoId>,
    /// Number of its pull request.
    pub number: Option<u64>,
    /// Its project, as it is called in comments.
    pub project: Option<String>,
    /// The person or program; case is ignored.
    pub who: Option<String>,
    /// The action.
    pub act: Option<String>,
    /// Its result up to the first `:`, `;` or `,`.
    pub result: Option<String>,
    /// The request or delivery that asked for it.
    pub request: Option<String>,
    /// It is of this time or later.
    pub from: Option<Timestamp>,
    /// It is of an earlier time.
    pub until: Option<Timestamp>,
}

/// Position of an entry: its time in microseconds, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditCursor {
    /// Microseconds since 1970.
    pub at: i64,
    /// Number of the row.
    pub seq: i64,
}

/// A page of the audit log, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditFound {
    /// The entries.
    pub rows: Vec<AuditEntry>,
    /// Position after which there may be more entries.
    pub older: Option<AuditCursor>,
    /// Number of entries that were looked at, where that ended the search; the time of the last one is that of `older`.
    pub looked: Option<usize>,
}

/// Entries with a value of one index, between times.
pub(super) struct Walk {
    index: &'static str,
    condition: String,
    values: Vec<Value>,
}

impl Walk {
    /// Returns the SQL of these columns of the first entries, newest first. The last parameter is the maximum number.
    pub(super) fn sql(&self, columns: &str) -> String {
        let Walk { index, condition, .. } = self;
        format!("SELECT {columns} FROM audit INDEXED BY {index} WHERE {condition} ORDER BY at DESC, seq DESC LIMIT ?")
    }
}

impl AuditFilter {
    /// Returns each given filter with an index: index, expression, value.
    fn indexed(&self) -> Vec<(&'static str, &'static str, Value)> {
        let text = |text: &Option<String>| text.clone().map(Value::Text);
        let repo = match self.repos.as_slice() {
            [repo] => Some(Value::Text(repo.to_string())),
            _ => None,
        };
        let number = self.number.and_then(|number| i64::try_from(number).ok()).map(Value::Integer);
        let who = self.who.as_ref().map(|who| Value::Text(who.to_ascii_lowercase()));
        let given = [(PULL, number), (PROJECT, text(&self.project)), (WHO, who), (ACT, text(&self.act)), (REPO, repo)];
        given.into_iter().filter_map(|((index, of), value)| Some((index, of, value?))).collect()
    }

    /// Returns the walks that lead to all matching entries after a position: one for each filter with an index, else one over the times.
    pub(super) fn walks(&self, after: Option<AuditCursor>) -> Vec<Walk> {
        let (mut times, mut bounds) = (vec!["at >= ?".to_owned()], vec![self.from.map_or(i64::MIN, micros)]);
        if let Some(until) = self.until {
            times.push("at < ?".to_owned());
            bounds.push(micros(until));
        }
        if let Some(AuditCursor { at, seq }) = after {
            times.push("at <= ? AND (at < ? OR seq < ?)".to_owned());
            bounds.extend([at, at, seq]);
        }
        let (times, bounds) = (times.join(" AND "), bounds.into_iter().map(Value::Integer));
        let indexed = self.indexed();
        if indexed.is_empty() {
            return vec![Walk { index: "audit_at", condition: times, values: bounds.collect() }];
        }
        let walk = |(index, of, value): (&'static str, &str, Value)| Walk {
            index,
            condition: format!("{of} = ? AND {times}"),
            values: std::iter::once(value).chain(bounds.clone()).collect(),
        };
        indexed.into_iter().map(walk).collect()
    }

    /// Returns the SQL condition of all filters on a record, and its values.
    fn condition(&self) -> (String, Vec<Value>) {
        let (mut parts, mut values) = (vec!["1".to_owned()], Vec::new());
        let unindexed = [(REQUEST, &self.request), (RESULT, &self.result)];
        let unindexed = unindexed.into_iter().filter_map(|(of, text)| Some((of, Value::Text(text.clone()?))));
        for (of, value) in self.indexed().into_iter().map(|(_, of, value)| (of, value)).chain(unindexed) {
            parts.push(format!("{of} = ?"));
            values.push(value);
        }
        if self.repos.len() > 1 {
            parts.push(format!("{} IN ({})", REPO.1, vec!["?"; self.repos.len()].join(", ")));
            values.extend(self.repos.iter().map(|repo| Value::Text(repo.to_string())));
        }
        (parts.join(" AND "), values)
    }
}

/// Writes one log line, marked by its field `audit`.
pub fn log(entry: &AuditEntry) {
    let AuditEntry { who, name, act, subject, result, why, project, commit, plan, request, .. } = entry;
    let (repository, pull) = entry.pull.as_ref().map(|id| (id.repo.to_string(), id.number)).unzip();
    tracing::info!(
        target: TARGET,
        audit = true,
        who,
        name,
        act,
        subject,
        result,
        why,
        repository,
        pull,
        project,
        commit = commit.as_ref().map(CommitSha::as_str),
        plan,
        request,
        "audit: {act} by {who}"
    );
}

/// Entries of changes that are not durable yet.
#[derive(Default)]
pub(super) struct PendingAudit(RefCell<Vec<AuditEntry>>);

impl PendingAudit {
    pub(super) fn clear(&self) {
        self.rewind(0);
    }

    pub(super) fn mark(&self) -> usize {
        self.0.borrow().len()
    }

    /// Drops the entries after a mark, whose changes were undone.
    pub(super) fn rewind(&self, mark: usize) {
        self.0.borrow_mut().truncate(mark);
    }

    /// Logs all entries once they are durable.
    pub(super) fn say(&self) {
        self.0.borrow_mut().drain(..).for_each(|entry| log(&entry));
    }
}

impl View<'_> {
    /// Returns the latest entries, newest first.
    pub fn audit_log(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        self.records("SELECT record FROM audit ORDER BY seq DESC LIMIT ?1", [rows(limit)])
    }

    /// Lists matching entries after a position, newest first. It walks the filter with the fewest entries, and no more than a bounded number
    /// of these.
    pub fn list_audit(&self, filter: &AuditFilter, after: Option<AuditCursor>, limit: usize) -> Result<AuditFound> {
        let mut walks = Vec::new();
        for walk in filter.walks(after) {
            walks.push((self.count_walk(&walk)?, walk));
        }
        let Some((count, walk)) = walks.into_iter().min_by_key(|(count, _)| *count) else {
            return Ok(AuditFound { rows: Vec::new(), older: None, looked: None });
        };
        let (condition, values) = filter.condition();
        let sql = format!("SELECT at, seq, record FROM ({}) WHERE {condition} LIMIT ?", walk.sql("at, seq, record"));
        let all = walk.values.iter().cloned().chain([Value::Integer(rows(MAX_LOOKED))]);
        let all = all.chain(values).chain([Value::Integer(rows(limit.saturating_add(1)))]);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(all))?;
        let (mut entries, mut last) = (Vec::new(), None);
        while let Some(row) = found.next()? {
            if entries.len() == limit {
                return Ok(AuditFound { rows: entries, older: last, looked: None });
            }
            last = Some(AuditCursor { at: row.get(0)?, seq: row.get(1)? });
            entries.push(parse(row.get_ref(2)?.as_str()?)?);
        }
        let ends = if count > MAX_LOOKED { self.end_of_walk(&walk)? } else { None };
        Ok(AuditFound { rows: entries, looked: ends.map(|_| MAX_LOOKED), older: ends })
    }

    /// Counts the entries of a walk, up to one more than it looks at.
    fn count_walk(&self, walk: &Walk) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(&format!("SELECT count(*) FROM ({})", walk.sql("1")))?;
        let values = walk.values.iter().cloned().chain([Value::Integer(rows(MAX_LOOKED + 1))]);
        let count: i64 = statement.query_row(params_from_iter(values), |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    /// Returns the position of the last entry that a walk looks at.
    fn end_of_walk(&self, walk: &Walk) -> Result<Option<AuditCursor>> {
        let mut statement = self.connection.prepare_cached(&format!("{} OFFSET ?", walk.sql("at, seq")))?;
        let values = walk.values.iter().cloned().chain([1, rows(MAX_LOOKED - 1)].map(Value::Integer));
        let end =
            statement.query_row(params_from_iter(values), |row| Ok(AuditCursor { at: row.get(0)?, seq: row.get(1)? }));
        Ok(end.optional()?)
    }

    /// Returns the actions that entries have, and the results that the latest ones have, up to a bounded number of each.
    pub fn audit_words(&self) -> Result<(Vec<String>, Vec<String>)> {
        let sql = format!(
            "SELECT DISTINCT {RESULT} AS result FROM (SELECT record FROM audit ORDER BY at DESC, seq DESC LIMIT {MAX_LATEST})
             WHERE length(result) BETWEEN 1 AND {MAX_WORD} ORDER BY result LIMIT {MAX_SUGGESTED}"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let results = statement.query_map([], |row| row.get(0))?;
        Ok((
            self.values_of("audit", ACT, ValueLimits { count: MAX_SUGGESTED, length: MAX_WORD })?,
            results.collect::<rusqlite::Result<_>>()?,
        ))
    }

    /// Returns the people who have asked for runs or are in the audit log, in small letters, up to a bounded number.
    pub fn people(&self) -> Result<BTreeSet<String>> {
        let mut people: BTreeSet<String> =
            self.values_of("audit", WHO, ValueLimits { count: MAX_PEOPLE, length: MAX_PERSON })?.into_iter().collect();
        let of_runs = ("runs_people", "lower(json_extract(record, '$.user'))");
        let of_runs = self.values_of("runs", of_runs, ValueLimits { count: MAX_PEOPLE, length: MAX_RECORD })?;
        // A login may carry the name that people see.
        let ids = of_runs.into_iter().map(|user| Login::from_record(user).as_str().to_owned());
        people.extend(ids.filter(|id| id.chars().count() <= MAX_PERSON));
        Ok(people)
    }

    /// Returns the first values of an index; each is found by one seek.
    fn values_of(&self, table: &str, (index, of): (&str, &str), limits: ValueLimits) -> Result<Vec<String>> {
        let ValueLimits { count, length } = limits;
        let next =
            |than: &str| format!("SELECT {of} FROM {table} INDEXED BY {index} WHERE {of} {than} ORDER BY {of} LIMIT 1");
        let sql = format!(
            "WITH RECURSIVE known (value) AS (
               SELECT ({}) UNION ALL SELECT ({}) FROM known WHERE value IS NOT NULL LIMIT {count})
             SELECT value FROM known WHERE length(value) BETWEEN 1 AND {length}",
            next("> ''"),
            next("> known.value"),
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let values = statement.query_map([], |row| row.get(0))?;
        Ok(values.collect::<rusqlite::Result<_>>()?)
    }
}

impl Tx<'_> {
    /// Adds an entry.
    pub fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.execute("INSERT INTO audit (at, record) VALUES (?1, ?2)", params![micros(entry.at), json(entry)?])?;
        self.pending_audit.0.borrow_mut().push(entry.clone());
        Ok(())
    }
}
