//! Findings of drift runs for pages: filters, pages by cursor, and totals of a repository.

use super::{View, parse, rows};
use anyhow::{Context, Result};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};
use tidelock_core::domain::RepoId;
use tidelock_core::domain::drift::{DriftKind, ProjectDrift};

/// Kind of a finding, as `DriftFinding::kind` has it.
const KIND: &str = "CASE WHEN json_extract(record, '$.finding.planned') IS NULL
      THEN iif(json_extract(record, '$.finding.skipped') IS NULL, 'failed', 'skipped')
    WHEN json_extract(record, '$.finding.planned.no_changes') = 0
      OR json_extract(record, '$.finding.planned.changes_outside') = 1 THEN 'drifted'
    ELSE 'clean' END";

/// Order of the list, which is that of an index.
const PLACE: &str = "host, repo, branch, dir, workspace, name";

/// Conditions that a listed finding must all meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriftFilter {
    /// Its repository: `owner/name`, or `host/owner/name`. Case is ignored.
    pub repo: Option<String>,
    /// Its kind; absent for all that are not clean.
    pub kind: Option<DriftKind>,
}

/// A page of findings, by repository, branch and project.
#[derive(Debug, Clone)]
pub struct DriftFindings {
    /// The findings.
    pub rows: Vec<ProjectDrift>,
    /// Cursor of the next page, if there is one.
    pub next: Option<i64>,
}

impl View<'_> {
    /// Lists a page of matching findings, after the one with this cursor.
    pub fn list_drift(&self, filter: &DriftFilter, after: Option<i64>, limit: usize) -> Result<DriftFindings> {
        let (mut parts, mut values) = (Vec::new(), Vec::new());
        match filter.kind {
            Some(kind) => {
                parts.push(format!("{KIND} = ?"));
                values.push(Value::Text(kind.as_str().to_owned()));
            }
            None => parts.push(format!("{KIND} <> 'clean'")),
        }
        if let Some(repo) = &filter.repo {
            parts.push("lower(?) IN (lower(repo), lower(host || '/' || repo))".to_owned());
            values.push(Value::Text(repo.clone()));
        }
        if let Some(after) = after {
            parts.push(format!("({PLACE}) > (SELECT {PLACE} FROM drift WHERE seq = ?)"));
            values.push(Value::Integer(after));
        }
        values.push(Value::Integer(rows(limit.saturating_add(1))));
        let condition = parts.join(" AND ");
        let sql = format!("SELECT seq, record FROM drift WHERE {condition} ORDER BY {PLACE} LIMIT ?");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut found: Vec<(i64, String)> = found.collect::<rusqlite::Result<_>>()?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|(seq, _)| *seq);
        Ok(DriftFindings { rows: found.iter().map(|(_, record)| parse(record)).collect::<Result<_>>()?, next })
    }

    /// Returns the number of findings of each kind in a repository, without those that are zero.
    pub fn drift_totals(&self, repo: &RepoId) -> Result<Vec<(DriftKind, usize)>> {
        let sql = format!("SELECT {KIND}, count(*) FROM drift WHERE host = ?1 AND repo = ?2 GROUP BY 1");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_map(params![repo.host, repo.full_name()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let found: Vec<(String, i64)> = found.collect::<rusqlite::Result<_>>()?;
        let total = |(word, count): (String, i64)| {
            let kind = DriftKind::of_word(&word).with_context(|| format!("{word:?} is no kind of a finding"))?;
            Ok((kind, usize::try_from(count)?))
        };
        found.into_iter().map(total).collect()
    }
}
