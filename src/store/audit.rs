//! The audit log: who did what, for later questions.

use super::{Tx, View, json, micros, rows};
use crate::domain::state::AuditEntry;
use anyhow::Result;
use rusqlite::params;

impl View<'_> {
    /// Entries, the newest first.
    pub fn audit_log(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        self.records("SELECT record FROM audit ORDER BY seq DESC LIMIT ?1", [rows(limit)])
    }
}

impl Tx<'_> {
    /// Adds an entry.
    pub fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.execute("INSERT INTO audit (at, record) VALUES (?1, ?2)", params![micros(entry.at), json(entry)?])?;
        Ok(())
    }
}
