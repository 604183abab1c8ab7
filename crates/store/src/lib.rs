//! The state, in SQLite. No other module knows how it is stored.
//!
//! All changes go through [`Store::write`]. Its closures run one after another on one thread, and waiting ones are
//! committed together (`writer`). Each caller gets its answer once its change is durable. Reads see only committed state
//! (`readers`). Tables and migrations are in `schema`; each kind of record has its own file.
//!
//! With a vault (`vault_backing`), the changed rows (`rows`) and new files (`files`) of a group are committed to the
//! bucket before SQLite commits. The database is then a cache: `restore` creates it, and `base` writes a copy of all of
//! it from time to time.

mod attention;
pub mod audit;
mod base;
mod closed;
mod deliveries;
mod disk;
mod drift;
mod drift_issues;
mod drift_pages;
mod effects;
mod export;
mod figures;
mod files;
mod freezes;
mod history;
mod job_objects;
mod job_times;
mod listing;
mod locks;
pub mod logs;
mod moves;
pub mod notifications;
pub mod overdue;
mod owners;
mod plans;
mod policies;
mod projects;
mod pulls;
mod readers;
mod replans;
mod restore;
pub mod retention;
mod rows;
mod runs;
mod schedules;
mod schema;
mod seen_plans;
mod vault_backing;
mod waiters;
mod writer;

#[cfg(any(test, feature = "test-support"))]
mod test_support;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};
pub use attention::NeedsAttention;
pub use audit::{AuditCursor, AuditFilter, AuditFound};
pub use closed::ClosedState;
pub use drift_pages::{DriftFilter, DriftFindings};
pub use effects::Lane;
pub use export::Exported;
pub use figures::StateFigures;
pub use files::KeptFile;
use files::KeptFiles;
pub use history::{ListedRun, RunCursor, RunFilter, RunResult, RunsFound};
use jiff::Timestamp;
pub use listing::{Found, ListedPull, Search, Window};
pub use projects::{KnownProject, ProjectsFound};
pub use pulls::KnownPull;
use readers::Readers;
pub use restore::digest;
use rusqlite::{OptionalExtension, Params};
pub use schedules::Claim;
pub use schema::DirectoryGuard;
use schema::{Durability, Origin};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use vault_backing::VaultBacking;
pub use vault_backing::is_deposed;
use writer::WriteQueue;

/// File name of the database within the data directory.
const DATABASE: &str = "tidelock.db";

/// Handle to the state; cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<StoreInner>,
}

struct StoreInner {
    // Fields are dropped in this order: readers first, so that the writer's connection is the last one and removes the
    // side files.
    readers: Readers,
    queue: WriteQueue,
    data_dir: PathBuf,
    vault: Option<VaultBacking>,
}

/// Read access to committed state or, inside a write, to the state so far.
pub struct View<'a> {
    connection: &'a rusqlite::Connection,
}

/// Write access; dereferences to [`View`].
pub struct Tx<'a> {
    view: View<'a>,
    kept: &'a KeptFiles,
    pending_audit: &'a audit::PendingAudit,
    signals: &'a CommitSignals,
}

/// Properties of a commit that tasks outside of the store wait for.
#[derive(Default)]
struct CommitSignals {
    /// True if it queues an automatic re-plan, or records unapplied merged changes.
    replan_recorded: Cell<bool>,
    /// True if it records the end of a delivery.
    delivery_finished: Cell<bool>,
}

impl<'a> std::ops::Deref for Tx<'a> {
    type Target = View<'a>;
    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl Store {
    /// Opens or creates `<data_dir>/tidelock.db` without a vault. Refuses a database of a newer format and a data
    /// directory that another process uses.
    pub fn open(data_dir: &Path) -> Result<Store> {
        let guard = schema::lock_directory(data_dir)?;
        let path = data_dir.join(DATABASE);
        let connection = schema::open_writer(&path, Durability::Disk)?.connection;
        ensure!(
            Origin::read(&connection)? == Origin::Alone,
            "the state in {} belongs to a vault: start the server with that vault's --bucket",
            path.display()
        );
        let kept = KeptFiles::rows_only(data_dir);
        let queue = writer::start(writer::WriterParts { connection, guard, kept, journal: None })?;
        let readers = Readers::new(path);
        Ok(Store { shared: Arc::new(StoreInner { readers, queue, data_dir: data_dir.to_owned(), vault: None }) })
    }

    /// Locks a data directory against other processes before its state is opened. `None` if another process uses it or
    /// it does not exist. Blocks.
    pub fn alone_in(data_dir: &Path) -> Result<Option<DirectoryGuard>> {
        schema::try_lock_directory(data_dir)
    }

    /// Runs `change` in the writer's next transaction and returns once it is durable. An `Err` or a panic of `change`
    /// undoes this change alone. Dropping the future does not cancel the change.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.shared.queue.write(change).await
    }

    /// Increases with every commit that queues an automatic re-plan or records unapplied merged changes, before [`Store::write`] returns.
    pub fn replans_recorded(&self) -> watch::Receiver<u64> {
        self.shared.queue.replans_recorded.clone()
    }

    /// Increases with every commit that records the end of a delivery, before [`Store::write`] returns.
    pub fn deliveries_finished(&self) -> watch::Receiver<u64> {
        self.shared.queue.deliveries_finished.clone()
    }

    /// Increases with every commit of this process, once readers see it and before [`Store::write`] returns. Closed with the store.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.shared.queue.commits.clone()
    }

    /// Runs `query` on one snapshot of the committed state, off the async threads.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.shared.readers.read(query).await
    }
}

/// Error of reads and writes after the store was closed.
const CLOSED: &str =
    "the server is stopping: its state is closed, nothing more is read or recorded; try again when it is back";

/// Returns true if an error means that the store was closed normally.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.to_string() == CLOSED
}

impl View<'_> {
    /// Reads the records of a query whose first column is JSON.
    fn records<T: DeserializeOwned>(&self, sql: &str, params: impl Params) -> Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            records.push(parse(row.get_ref(0)?.as_str()?)?);
        }
        Ok(records)
    }

    /// Reads the record in the first column of the first row, if there is one.
    fn record<T: DeserializeOwned>(&self, sql: &str, params: impl Params) -> Result<Option<T>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let text: Option<String> = statement.query_row(params, |row| row.get(0)).optional()?;
        text.map(|text| parse(&text)).transpose()
    }
}

impl Tx<'_> {
    /// Runs a statement and returns the number of changed rows.
    fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }
}

/// Encodes a record as JSON for its column.
fn json(record: &impl Serialize) -> Result<String> {
    serde_json::to_string(record).context("cannot write a record")
}

/// Decodes a record from its JSON column.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).with_context(|| format!("cannot read a stored {}", std::any::type_name::<T>()))
}

/// Returns the word that a column holds for an enum value without fields.
fn word(value: &impl Serialize) -> Result<String> {
    match serde_json::to_value(value)? {
        serde_json::Value::String(word) => Ok(word),
        other => anyhow::bail!("{other} is no word"),
    }
}

/// Returns a time as its column holds it, in microseconds since 1970.
fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// Converts a number of rows to an SQL parameter.
fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
