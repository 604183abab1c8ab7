//! The tables, migrations from older formats, and the opening of connections.
//!
//! Keys, states and times are columns; the rest of a record is JSON in `record`. Times are microseconds since 1970.
//! `seq` keeps the order of insertion. Records refer to each other by ID without declared foreign keys: the order of
//! writes within a change is free, and each kind has its own retention. The database is one file without attachments,
//! so the backup API copies all of it at one moment. Every table has an `INTEGER PRIMARY KEY`: row IDs are stable, and
//! commits of the vault identify rows by them.

mod formats;

use anyhow::{Context, Result, bail};
use formats::{
    FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, FORMAT_6, FORMAT_7, FORMAT_8, FORMAT_9, FORMAT_10, FORMAT_11,
    FORMAT_12, FORMAT_13, FORMAT_14,
};
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// One migration from each format to the next; `user_version` counts the applied ones. Append only.
const MIGRATIONS: &[&str] = &[
    FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, FORMAT_6, FORMAT_7, FORMAT_8, FORMAT_9, FORMAT_10, FORMAT_11,
    FORMAT_12, FORMAT_13, FORMAT_14,
];

/// Time for which a connection waits for a lock of another one (a checkpoint, a snapshot).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a start waits for an earlier process to release the data directory.
const DIRECTORY_WAIT: Duration = Duration::from_secs(1);

/// Page cache of the writer, KiB.
const WRITER_CACHE_KIB: i64 = 1024;

/// Page cache of each reader, KiB.
const READER_CACHE_KIB: i64 = 256;

/// Size in bytes to which the write-ahead log is truncated after a checkpoint.
const WAL_KEPT: i64 = 8 << 20;

/// Number of prepared statements kept per connection.
const STATEMENTS: usize = 64;

/// The first bytes of an SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes up to the end of `application_id`, in SQLite's file format.
const HEAD: usize = 72;

/// Relation of a database to a vault, kept in its `application_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// State without a vault.
    Alone,
    /// State that becomes the first one of an empty vault.
    Adopting,
    /// A copy of a vault's state.
    Cache,
    /// A state that was exported from a vault.
    Exported,
}

impl Origin {
    const ALL: [Origin; 4] = [Origin::Alone, Origin::Adopting, Origin::Cache, Origin::Exported];

    fn id(self) -> i64 {
        match self {
            Origin::Alone => 0,
            Origin::Adopting => 0x7469_6441,
            Origin::Cache => 0x7469_6443,
            Origin::Exported => 0x7469_6445,
        }
    }

    /// Reads the origin of a database. Fails for a database of another program.
    pub(super) fn read(connection: &Connection) -> Result<Origin> {
        Origin::from_id(connection.pragma_query_value(None, "application_id", |row| row.get(0))?)
    }

    /// Reads the origin in the first bytes of a file, without opening it as a database. `None` if the file is no SQLite
    /// database. The write-ahead log is not read.
    pub(super) fn in_file(path: &Path) -> Result<Option<Origin>> {
        let mut head = [0; HEAD];
        match File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        match head.last_chunk() {
            Some(id) if head.starts_with(MAGIC) => Origin::from_id(u32::from_be_bytes(*id).into()).map(Some),
            _ => Ok(None),
        }
    }

    fn from_id(id: i64) -> Result<Origin> {
        (Origin::ALL.into_iter().find(|mark| mark.id() == id)).with_context(|| {
            format!("it is a database of another program ({id:#x}): give --data-dir a directory of its own")
        })
    }

    pub(super) fn set(self, connection: &Connection) -> rusqlite::Result<()> {
        connection.pragma_update(None, "application_id", self.id())
    }
}

/// Place where a commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// On this disk.
    Disk,
    /// In the bucket, before SQLite commits: the file is a cache.
    Bucket,
}

/// Returns the number of migrations that this version knows.
pub(super) fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Lock on the data directory, held until it is dropped or the process ends.
pub struct DirectoryGuard {
    _file: File,
}

/// Creates the data directory if needed and locks it for this process: a second writer would overwrite its work.
pub(super) fn lock_directory(data_dir: &Path) -> Result<DirectoryGuard> {
    let shown = data_dir.display();
    std::fs::create_dir_all(data_dir).with_context(|| format!("cannot make the data directory {shown}"))?;
    let mut file = open_lock(data_dir)?;
    let deadline = Instant::now() + DIRECTORY_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                file.read_to_string(&mut owner)?;
                bail!(
                    "the data directory {shown} is in use by process {}: stop that server, or give this one another --data-dir",
                    owner.trim()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock the data directory {shown}"));
            }
        }
    }
    // Only for the message above: a full disk must not prevent the start that frees space.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(DirectoryGuard { _file: file })
}

/// Locks the data directory without waiting; `None` if another process uses it, or if it does not exist.
pub(super) fn try_lock_directory(data_dir: &Path) -> Result<Option<DirectoryGuard>> {
    if !data_dir.is_dir() {
        return Ok(None);
    }
    let file = open_lock(data_dir)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(DirectoryGuard { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock the data directory {}", data_dir.display()))
        }
    }
}

fn open_lock(data_dir: &Path) -> Result<File> {
    let path = data_dir.join("tidelock.lock");
    (OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path))
        .with_context(|| format!("cannot write to the data directory {}", data_dir.display()))
}

/// Opens the only writing connection and migrates the database to the current format.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Writable> {
    prepare_writer(path, durability).with_context(|| format!("cannot open the state in {}", path.display()))
}

/// The writing connection.
pub(super) struct Writable {
    pub(super) connection: Connection,
    /// True if the database was migrated from an older format.
    pub(super) migrated: bool,
}

/// Opens or creates a database that no other connection uses.
pub(super) fn open_raw(path: &Path) -> Result<Connection> {
    // The file is created here for its mode: other users must not read it. Side files get the same mode.
    if !path.exists() {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn prepare_writer(path: &Path, durability: Durability) -> Result<Writable> {
    let mut connection = open_raw(path)?;
    let found = format_of(&connection)?;
    let known = MIGRATIONS.len();
    if found > known {
        bail!(
            "it is of format {found}, written by a newer Tidelock; this version ({}) knows formats up to {known}. \
             Run that newer version again, or give this one another --data-dir",
            env!("CARGO_PKG_VERSION")
        );
    }
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        bail!("its file system cannot keep a write-ahead log (mode {mode}): put --data-dir on a local disk");
    }
    // FULL: a commit survives a loss of power. A cache needs no such guarantee: it is restored.
    let synchronous = if durability == Durability::Disk { "full" } else { "off" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT)?;
    if found < known {
        let transaction = connection.transaction()?;
        migrate(&transaction, known).context("cannot bring it to the present format")?;
        transaction.commit()?;
    }
    Ok(Writable { connection, migrated: found < known })
}

/// Returns the number of applied migrations. Fails for a file of another program.
pub(super) fn format_of(connection: &Connection) -> Result<usize> {
    let look = || -> rusqlite::Result<(i64, i64)> {
        let format = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((format, tables))
    };
    let (format, tables) =
        look().context("it cannot be read: put a good copy in its place, or give this server another --data-dir")?;
    match usize::try_from(format) {
        Ok(0) if tables > 0 => bail!("it is a database of another program: give --data-dir a directory of its own"),
        Ok(format) => Ok(format),
        Err(_) => bail!("its format {format} is unknown: give --data-dir a directory of its own"),
    }
}

/// Migrates a database to a known format, in the caller's transaction. No effect if it has that format already.
pub(super) fn migrate(connection: &Connection, to: usize) -> Result<()> {
    let found = format_of(connection)?;
    for (step, format) in MIGRATIONS.iter().take(to).zip(1..).skip(found) {
        connection.execute_batch(step).with_context(|| format!("the step to format {format} failed"))?;
        connection.pragma_update(None, "user_version", format)?;
    }
    Ok(())
}

/// Opens a read-only connection.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .with_context(|| format!("cannot read the state in {}", path.display()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(data_dir: &Path) -> String {
        format!("{:#}", crate::Store::open(data_dir).err().expect("it must be refused"))
            .replace(&data_dir.display().to_string(), "DIR")
    }

    #[test]
    fn a_newer_format_is_refused_with_what_to_do_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidelock.db");
        drop(open_writer(&path, Durability::Disk).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let before = std::fs::read(&path).unwrap();
        insta::assert_snapshot!(error_of(dir.path()), @"cannot open the state in DIR/tidelock.db: it is of format 99, written by a newer Tidelock; this version (0.1.0) knows formats up to 14. Run that newer version again, or give this one another --data-dir");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_database_of_another_program_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidelock.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        let before = std::fs::read(&path).unwrap();
        insta::assert_snapshot!(error_of(dir.path()), @"cannot open the state in DIR/tidelock.db: it is a database of another program: give --data-dir a directory of its own");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("tidelock.db"),
            "not a database, and longer than a header of SQLite's would be ".repeat(20),
        )
        .unwrap();
        insta::assert_snapshot!(error_of(dir.path()), @"cannot open the state in DIR/tidelock.db: it cannot be read: put a good copy in its place, or give this server another --data-dir: file is not a database: Error code 26: file is not a database");
    }

    #[test]
    fn a_data_directory_in_use_is_refused_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let guard = lock_directory(dir.path()).unwrap();
        let message = error_of(dir.path()).replace(&std::process::id().to_string(), "PID");
        insta::assert_snapshot!(message, @"the data directory DIR is in use by process PID: stop that server, or give this one another --data-dir");
        drop(guard);
        assert!(lock_directory(dir.path()).is_ok());
    }

    #[test]
    fn commits_wait_for_the_disk_and_others_cannot_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidelock.db");
        let connection = open_writer(&path, Durability::Disk).unwrap().connection;
        let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(synchronous, 2);
        for file in ["tidelock.db", "tidelock.db-wal", "tidelock.db-shm"] {
            let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn every_change_of_every_table_can_be_told_by_its_row() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tidelock.db"), Durability::Disk).unwrap().connection;
        let mut tables = connection
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            .unwrap();
        let tables = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let tables: Vec<(String, String)> = tables.map(Result::unwrap).collect();
        assert!(tables.len() > 8);
        for (table, sql) in tables {
            let keys = "SELECT group_concat(type) FROM pragma_table_info(?1) WHERE pk > 0";
            let key: String = connection.query_row(keys, [&table], |row| row.get(0)).unwrap();
            assert_eq!(key, "INTEGER", "{table} needs one INTEGER PRIMARY KEY");
            assert!(!sql.to_uppercase().contains("WITHOUT ROWID"), "{table}");
        }
        let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
        assert_eq!(connection.query_row(triggers, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[test]
    fn no_statement_changes_rows_past_the_hook_that_notes_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut seen = 0;
        for entry in std::fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let words = code.split_whitespace().collect::<Vec<_>>().join(" ");
            for (at, _) in words.match_indices("DELETE FROM ") {
                let end = words[at..].find(['"', ';']).map_or(words.len(), |end| at + end);
                assert!(words[at..end].contains(" WHERE "), "{}: {}", path.display(), &words[at..end]);
                seen += 1;
            }
            for displacing in ["\"REPLACE INTO", " REPLACE INTO", "OR REPLACE"] {
                assert!(!words.contains(displacing), "{} has {displacing}", path.display());
            }
        }
        assert!(seen > 10, "only {seen} statements were looked at");
    }

    #[test]
    fn what_each_command_asks_is_answered_from_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_writer(&dir.path().join("tidelock.db"), Durability::Disk).unwrap().connection;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut seen = 0;
        for file in [
            "runs.rs",
            "effects.rs",
            "deliveries.rs",
            "locks.rs",
            "owners.rs",
            "waiters.rs",
            "replans.rs",
            "drift.rs",
            "seen_plans.rs",
            "plans.rs",
            "policies.rs",
            "pulls.rs",
            "schedules.rs",
            "notifications.rs",
            "freezes.rs",
        ] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for query in words.split('"').filter(|text| text.starts_with("SELECT ") && text.contains(" WHERE ")) {
                let asks_of_all = ["instr(", "substr(pull", "SELECT DISTINCT"].iter().any(|word| query.contains(word));
                let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
                let steps = plan.raw_query().mapped(|row| row.get::<_, String>(3));
                let steps: Vec<String> = steps.map(Result::unwrap).collect();
                let walks = steps.iter().any(|step| step.starts_with("SCAN ") && !step.contains(" USING "));
                assert!(asks_of_all || !walks, "{file}: {query}: {steps:?}");
                seen += 1;
            }
        }
        assert!(seen > 20, "only {seen} queries were looked at");
    }

    #[test]
    fn readers_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidelock.db");
        let _writer = open_writer(&path, Durability::Disk).unwrap();
        let reader = open_reader(&path).unwrap();
        assert!(reader.execute("DELETE FROM locks", []).is_err());
    }
}
