//! Restores the data directory from a chain: into a temporary folder, which is then renamed into place.
//!
//! A crash at any point is harmless: the next start restores again. Nothing waits for the disk, because the state is in
//! the bucket.

use super::base::close_to_others;
use super::disk::{self, LocalDatabase};
use super::files::{KeptFile, check_path, pieces};
use super::rows;
use super::schema::{self, Origin};
use super::{DATABASE, Store, View};
use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tidelock_vault::chain::{Chain, Rows, WantedFile};
use tidelock_vault::{Hash, VaultError};

/// Prefix of the folders of unfinished restores in the data directory.
const PREFIX: &str = "restoring.";

/// Interval of the log lines of a long restore.
const PROGRESS: Duration = Duration::from_secs(2);

impl Store {
    /// Restores and verifies the state of `chain` in a temporary directory, then renames it into place. It replaces an
    /// earlier copy; mirrors, trees, caches and states that Terraform could not save stay. State without a vault (a disk
    /// of an older version) becomes the first state of an empty vault in [`Store::lead`]. If the vault has a state
    /// already, such a state is moved aside unopened, and so is an unreadable database.
    pub async fn restore(data_dir: &Path, chain: &Chain) -> Result<()> {
        let began = Instant::now();
        ensure!(
            chain.schema <= schema::newest(),
            "the state in the vault is of format {}, written by a newer Tidelock; this version ({}) knows formats up to {}. \
             Run that newer version again, or go back to a state from before it: `tidelock vault ls` lists the states, \
             `tidelock vault export DIR --at SEQ` writes one",
            chain.schema,
            env!("CARGO_PKG_VERSION"),
            schema::newest()
        );
        let commits = chain.rows().await?;
        let empty = chain.base == 0 && commits.iter().all(|commit| commit.rows.is_empty());
        let dir = data_dir.to_owned();
        let work = tokio::task::spawn_blocking(move || -> Result<_> {
            let guard = schema::lock_directory(&dir)?;
            remove_folders(&dir, PREFIX)?;
            if empty && disk::adopts(&dir)? {
                return Ok((guard, None, LocalDatabase::None));
            }
            let local = disk::inspect(&dir)?;
            if local == LocalDatabase::Cache {
                disk::make_room(&dir)?;
            }
            let scratch = dir.join(format!("{PREFIX}{}", std::process::id()));
            std::fs::create_dir(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
            close_to_others(&scratch)?;
            Ok((guard, Some(scratch), local))
        });
        let (guard, scratch, local) = work.await??;
        let Some(scratch) = scratch else { return Ok(()) };
        let files = fill(&scratch, chain, commits).await?;
        let (dir, from) = (data_dir.to_owned(), scratch.clone());
        tokio::task::spawn_blocking(move || -> Result<()> {
            disk::put_aside(&dir, local)?;
            disk::put_in_place(&from, &dir)?;
            drop(guard);
            Ok(())
        })
        .await??;
        tracing::info!(
            seq = chain.position.seq,
            base = chain.base,
            files,
            millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "the state was restored"
        );
        Ok(())
    }
}

/// Writes the state of the chain into a new folder and returns the number of files.
async fn fill(scratch: &Path, chain: &Chain, commits: Vec<Rows>) -> Result<usize> {
    let database = scratch.join(DATABASE);
    chain.database(&database).await?;
    let path = database.clone();
    let work = tokio::task::spawn_blocking(move || write_database(&path, &commits));
    let (connection, kept) = work.await.context("restoring the database panicked")??;
    // Checks the database while files are downloaded.
    let checking = tokio::task::spawn_blocking(move || check(connection));
    let files = (kept.iter())
        .map(|file| Ok(WantedFile { hash: file.hash()?, path: scratch.join(&file.path), mode: file.mode }))
        .collect::<Result<Vec<WantedFile>>>()?;
    let count = files.len();
    let progress = RestoreProgress::default();
    if count > 0 {
        chain.fetch(files, &|bytes| progress.log(bytes)).await?;
    }
    checking.await.context("looking at the restored database panicked")??;
    let dir = scratch.to_owned();
    tokio::task::spawn_blocking(move || pieces::join(&dir, &kept)).await.context("joining logs panicked")??;
    Ok(count)
}

/// Logs the progress of a long restore.
#[derive(Default)]
struct RestoreProgress {
    said: Mutex<Option<Instant>>,
}

impl RestoreProgress {
    fn log(&self, bytes: u64) {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = said.get_or_insert_with(Instant::now);
        if last.elapsed() >= PROGRESS {
            *last = Instant::now();
            tracing::info!(bytes, "restoring files");
        }
    }
}

/// Applies the rows of the commits to the base's image or to an empty database, and returns the kept files.
fn write_database(path: &Path, commits: &[Rows]) -> Result<(Connection, Vec<KeptFile>)> {
    use std::os::unix::fs::PermissionsExt;
    let connection = schema::open_raw(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    // The header of a base's image may name a write-ahead log. There is no rollback: a failed restore starts over.
    for mode in ["delete", "off"] {
        connection.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(()))?;
    }
    connection.pragma_update(None, "synchronous", "off")?;
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    for commits in commits.chunk_by(|one, next| one.schema == next.schema) {
        apply(&connection, commits)
            .map_err(|(seq, error)| VaultError::Damaged(format!("journal/{seq:016}: its rows: {error:#}")))?;
    }
    Origin::Cache.set(&connection)?;
    connection.execute_batch("COMMIT")?;
    let files = if schema::format_of(&connection)? == 0 { Vec::new() } else { kept(&connection)? };
    Ok((connection, files))
}

/// Applies the rows of commits of one format.
fn apply(connection: &Connection, commits: &[Rows]) -> Result<(), (u64, anyhow::Error)> {
    let Some(first) = commits.first() else { return Ok(()) };
    let migrate = || -> Result<()> {
        let (format, needed) = (schema::format_of(connection)?, usize::try_from(first.schema)?);
        ensure!(format <= needed, "they are of format {needed}, older than {format} before them");
        schema::migrate(connection, needed)
    };
    migrate().map_err(|error| (first.seq, error))?;
    let mut merged = rows::Merged::default();
    for commit in commits {
        merged.add(commit.seq, &commit.rows).map_err(|error| (commit.seq, error))?;
    }
    merged.put(connection)
}

/// Runs SQLite's integrity check and closes the database.
fn check(connection: Connection) -> Result<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(VaultError::Damaged(format!("the restored database is not sound: {found}")).into());
    }
    connection.close().map_err(|(_, error)| error.into())
}

fn kept(connection: &Connection) -> Result<Vec<KeptFile>> {
    let kept = "SELECT 1 FROM sqlite_schema WHERE name = 'kept_files'";
    if !connection.prepare(kept)?.exists([])? {
        return Ok(Vec::new());
    }
    let files = (View { connection }).kept_files("")?;
    files.iter().try_for_each(|file| check_path(&file.path))?;
    Ok(files)
}

/// Removes folders of the data directory with this prefix.
pub(super) fn remove_folders(data_dir: &Path, prefix: &str) -> Result<()> {
    for entry in std::fs::read_dir(data_dir).with_context(|| format!("cannot list {}", data_dir.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) && entry.file_type()?.is_dir() {
            match std::fs::remove_dir_all(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", entry.path().display()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Lists all tables except SQLite's own, by name.
pub(super) fn tables(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// Computes a digest of a database's content, independent of its pages: equal if and only if format, tables, columns,
/// rows with their IDs, and counters are equal. For tests and `tidelock vault verify`. Blocks.
pub fn digest(database: &Path) -> Result<Hash> {
    let read = || -> Result<Hash> {
        let connection = schema::open_reader(database)?;
        connection.execute_batch("BEGIN")?;
        digest_of(&connection)
    };
    read().with_context(|| format!("cannot read the state in {}", database.display()))
}

pub(super) fn digest_of(connection: &Connection) -> Result<Hash> {
    use sha2::Digest;
    let mut digest = sha2::Sha256::new();
    digest.update(format!("format {}\n", schema::format_of(connection)?));
    let mut tables = tables(connection)?;
    let counters = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'")?.exists([])?;
    if counters {
        tables.push("sqlite_sequence".to_owned());
    }
    let mut encoded = Vec::new();
    for table in tables {
        // Row IDs of counters have no meaning.
        let (number, order) = if table == "sqlite_sequence" { ("0", "name") } else { ("rowid", "rowid") };
        let sql = format!("SELECT {number}, * FROM {} ORDER BY {order}", rows::quoted(&table));
        let mut statement = connection.prepare(&sql)?;
        let columns = statement.column_count();
        digest.update(format!("table {table:?} {:?}\n", statement.column_names().collect::<Vec<_>>()));
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            encoded.clear();
            for column in 0..columns {
                rows::put_value(&mut encoded, row.get_ref(column)?);
            }
            digest.update((encoded.len() as u64).to_le_bytes());
            digest.update(&encoded);
        }
    }
    Ok(Hash(digest.finalize().into()))
}
