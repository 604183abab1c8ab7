//! The audit log of changes and their authors. Each entry is a row, and a log line once the row is durable.

use super::{Tx, View, json, micros, rows};
use anyhow::Result;
use rusqlite::params;
use std::cell::RefCell;
use tidelock_core::domain::CommitSha;
use tidelock_core::domain::state::AuditEntry;

/// The target of these log lines; `app` logs them at any log level.
pub const TARGET: &str = "tidelock::audit";

/// Writes one log line, marked by its field `audit`.
pub fn log(entry: &AuditEntry) {
    let AuditEntry { who, act, subject, result, why, project, commit, plan, request, .. } = entry;
    let (repository, pull) = entry.pull.as_ref().map(|id| (id.repo.to_string(), id.number)).unzip();
    tracing::info!(
        target: TARGET,
        audit = true,
        who,
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
}

impl Tx<'_> {
    /// Adds an entry.
    pub fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.execute("INSERT INTO audit (at, record) VALUES (?1, ?2)", params![micros(entry.at), json(entry)?])?;
        self.pending_audit.0.borrow_mut().push(entry.clone());
        Ok(())
    }
}
