//! Entries of the audit log. A million of them through the writer would take longer than all else: they are inserted in one transaction, and
//! the indexes are made after that.

use crate::records::{
    FIRST_ACT, FIRST_PERSON, REPOS, Sizes, delivery_id, digits, mixed, person, projects_of, pull_id, repo,
};
use anyhow::Result;
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::{Duration, Instant};
use tidelock_core::domain::CommitSha;
use tidelock_core::domain::state::AuditEntry;

/// Days within which the entries lie; older ones are dropped.
const DAYS: i64 = 390;
/// Entries of which one is about a drift run, and one about a repository.
const DRIFT: usize = 50;
const WHOLE: usize = 1_000;

/// Adds the entries, and returns the time in which the indexes were made.
pub(crate) fn fill(data: &Path, sizes: &Sizes) -> Result<Duration> {
    let mut connection = Connection::open(data.join("tidelock.db"))?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    let transaction = connection.transaction()?;
    let indexes: Vec<(String, String)> = transaction
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'audit'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (name, _) in &indexes {
        transaction.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    {
        let mut insert = transaction.prepare("INSERT INTO audit (at, record) VALUES (?1, ?2)")?;
        for number in 0..sizes.audit {
            let entry = entry(number, sizes);
            insert.execute(params![entry.at.as_microsecond(), serde_json::to_string(&entry)?])?;
        }
    }
    let began = Instant::now();
    for (_, sql) in &indexes {
        transaction.execute_batch(sql)?;
    }
    let took = began.elapsed();
    transaction.commit()?;
    Ok(took)
}

/// Returns the entry with this number, from 0, which has the row of the next number.
pub(crate) fn entry(number: usize, sizes: &Sizes) -> AuditEntry {
    let at = sizes.time(number, sizes.audit, DAYS);
    let pull = number * sizes.pulls / sizes.audit;
    let commit = CommitSha::from(digits(20, pull, 40));
    if number == 0 || number.is_multiple_of(WHOLE) {
        let (who, act) = if number == 0 { (FIRST_PERSON, FIRST_ACT) } else { ("server", "repository renamed") };
        let subject = repo(pull % REPOS).to_string();
        return AuditEntry {
            at,
            who: who.into(),
            act: act.into(),
            subject,
            result: "done".into(),
            ..Default::default()
        };
    }
    let of_pull = pull_id(pull);
    let project = projects_of(pull).nth(number % 4).map(|project| project.label()).unwrap_or_default();
    let request = Some(delivery_id(number * sizes.runs / sizes.audit));
    if number.is_multiple_of(DRIFT) {
        let subject = format!("{project} of {} at {commit}", of_pull.repo);
        let (who, act, result) = ("api".into(), "drift apply".into(), "applied".into());
        let (project, commit) = (Some(project), Some(commit));
        return AuditEntry { at, who, act, subject, result, project, commit, request, ..AuditEntry::default() };
    }
    let (act, result) = match mixed(31, number) % 20 {
        0 => ("unlock", "deleted; its plan is discarded"),
        1 => ("apply", "refused: the plan is stale"),
        2 => ("apply", "failed: exit status 1"),
        3 => ("approve_policies", "approved"),
        4 => ("import", "done"),
        5 => ("apply lock", "done"),
        _ => ("apply", "applied: 1 added, 2 changed, 0 destroyed"),
    };
    AuditEntry {
        at,
        who: person(number),
        name: None,
        act: act.into(),
        subject: format!("{project} of {of_pull} at {commit}"),
        result: result.into(),
        why: number.is_multiple_of(40).then(|| "the incident of this morning".into()),
        pull: Some(of_pull),
        project: Some(project),
        commit: Some(commit),
        plan: (act == "apply").then(|| digits(40, number, 64)),
        request,
    }
}
