//! Files that are part of the state: plan files, logs, plan artifacts, `errored.tfstate`. A row names each one with the
//! hash of its content; the content is in the same journal object as the row.

pub(super) mod pieces;

use super::{Tx, View};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use tidelock_core::domain::JobId;
use tidelock_vault::{Blob, Hash, Source};

/// Folders of the data directory with kept files only; a restore replaces them.
pub(super) const FOLDERS: [&str; 4] = ["plans", "logs", "left", "errored"];

/// Longest path of a kept file, in bytes.
const PATH_LIMIT: usize = 255;

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Relative to the data directory, such as `plans/<id>.tfplan`; in one of the `FOLDERS`. A piece of a running log
    /// has a path of its own (`pieces`).
    pub path: String,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
    /// Size in bytes.
    pub length: u64,
    /// Permission bits.
    pub mode: u32,
}

impl KeptFile {
    /// Reads a file of the data directory completely to compute its hash. `None` if it does not exist. Blocks.
    pub fn read(data_dir: &Path, path: &str) -> Result<Option<KeptFile>> {
        let Some((file, mode)) = open(data_dir, path)? else { return Ok(None) };
        let (hash, length) = hash_of(file).with_context(|| format!("cannot read {path} of the data directory"))?;
        Ok(Some(KeptFile { path: path.to_owned(), sha256: hash.to_string(), length, mode }))
    }

    pub(super) fn hash(&self) -> Result<Hash> {
        Hash::parse(&self.sha256).with_context(|| format!("{} has no SHA-256 digest", self.path))
    }
}

/// Opens a regular file, never a link, pipe or folder, and returns its permission bits. `None` if it does not exist.
fn open(data_dir: &Path, path: &str) -> Result<Option<(File, u32)>> {
    use rustix::fs::OFlags;
    check_path(path)?;
    let whole = data_dir.join(path);
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).unwrap_or_default();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&whole) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", whole.display())),
    };
    let meta = file.metadata()?;
    ensure!(meta.is_file(), "cannot keep {}: it is no regular file", whole.display());
    Ok(Some((file, meta.permissions().mode() & 0o777)))
}

/// Computes hash and length of the content.
fn hash_of(mut content: impl Read) -> std::io::Result<(Hash, u64)> {
    use sha2::Digest;
    let mut digest = sha2::Sha256::new();
    let mut length = 0;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok((Hash(digest.finalize().into()), length)),
            Ok(read) => {
                digest.update(buffer.get(..read).unwrap_or_default());
                length += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Checks that a restore may write to a path: it is in one of the [`FOLDERS`] and has no `..`.
pub(super) fn check_path(path: &str) -> Result<()> {
    let mut components = Path::new(path).components();
    let folder = components.next().and_then(|first| first.as_os_str().to_str());
    let names = components.clone().count();
    let sound = path.len() <= PATH_LIMIT
        && folder.is_some_and(|folder| FOLDERS.contains(&folder))
        && names > 0
        && components.all(|component| matches!(component, Component::Normal(_)))
        && !path.contains(['\0', '\\'])
        // `components` skips `//`, `/./` and a slash at the end.
        && path.split('/').count() == names + 1;
    ensure!(sound, "{path:?} cannot be kept: only files in {} of the data directory are", FOLDERS.join(", "));
    Ok(())
}

/// Contents of files that the current group of changes keeps, by path.
pub(super) struct KeptFiles {
    data_dir: PathBuf,
    /// True if contents are committed; a store without a vault keeps only the rows.
    journalled: bool,
    new: RefCell<Vec<(String, Blob)>>,
}

impl KeptFiles {
    /// Returns those of a store whose commits have contents.
    pub(super) fn journalled(data_dir: &Path) -> KeptFiles {
        KeptFiles { journalled: true, ..KeptFiles::rows_only(data_dir) }
    }

    pub(super) fn rows_only(data_dir: &Path) -> KeptFiles {
        KeptFiles { data_dir: data_dir.to_owned(), journalled: false, new: RefCell::default() }
    }

    pub(super) fn clear(&self) {
        self.rewind(0);
    }

    pub(super) fn mark(&self) -> usize {
        self.new.borrow().len()
    }

    /// Drops the contents after a mark, whose changes were undone.
    pub(super) fn rewind(&self, mark: usize) {
        self.new.borrow_mut().truncate(mark);
    }

    /// Returns the contents that rows name at the end of the group, each once.
    pub(super) fn blobs(&self, connection: &Connection) -> Result<Vec<Blob>> {
        let mut named = connection.prepare_cached("SELECT 1 FROM kept_files WHERE path = ?1 AND sha256 = ?2")?;
        let mut seen = HashSet::new();
        let mut blobs = Vec::new();
        for (path, blob) in self.new.borrow().iter() {
            if named.exists(params![path, blob.hash.to_string()])? && seen.insert(blob.hash) {
                blobs.push(blob.clone());
            }
        }
        Ok(blobs)
    }
}

impl Tx<'_> {
    /// Keeps a file of the data directory, or its new content. The file must not change until this change is durable.
    /// Refuses missing files and paths outside the folders for kept files.
    pub fn keep_file(&self, file: &KeptFile) -> Result<()> {
        check_path(&file.path)?;
        if self.kept.journalled {
            let whole = self.kept.data_dir.join(&file.path);
            let meta = whole.symlink_metadata().with_context(|| format!("cannot keep {}", whole.display()))?;
            let (found, length) = (meta.len(), file.length);
            ensure!(meta.is_file(), "cannot keep {}: it is no regular file", whole.display());
            ensure!(found == length, "cannot keep {}: it has {found} bytes and not {length}", whole.display());
        }
        let source = Source::File(self.kept.data_dir.join(&file.path));
        self.record_file(file, source)
    }

    /// Keeps content that was read from a file.
    pub(super) fn keep_content(&self, file: &KeptFile, content: Bytes) -> Result<()> {
        self.record_file(file, Source::Bytes(content))
    }

    fn record_file(&self, file: &KeptFile, source: Source) -> Result<()> {
        if self.kept_file(&file.path)?.as_ref() == Some(file) {
            return Ok(());
        }
        let blob = Blob { hash: file.hash()?, length: file.length, source };
        self.execute(
            "INSERT INTO kept_files (path, sha256, length, mode) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (path) DO UPDATE SET sha256 = excluded.sha256, length = excluded.length, mode = excluded.mode",
            params![file.path, file.sha256, i64::try_from(file.length)?, file.mode],
        )?;
        self.kept.new.borrow_mut().push((file.path.clone(), blob));
        Ok(())
    }

    /// Stops keeping a file; the caller removes it.
    pub fn drop_file(&self, path: &str) -> Result<()> {
        self.execute("DELETE FROM kept_files WHERE path = ?1", [path])?;
        Ok(())
    }

    /// Keeps a plan file that has the hash of its record. Without a vault a missing file is accepted; its apply fails.
    pub(super) fn keep_plan_file(&self, path: &str, sha256: &str) -> Result<()> {
        match self.kept.data_dir.join(path).symlink_metadata() {
            Ok(meta) => self.keep_file(&KeptFile {
                path: path.to_owned(),
                sha256: sha256.to_owned(),
                length: meta.len(),
                mode: meta.permissions().mode() & 0o777,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound && !self.kept.journalled => Ok(()),
            Err(error) => Err(error).with_context(|| format!("the plan file {path} cannot be kept")),
        }
    }
}

/// Returns the path of a job's log.
pub(super) fn log_path(job: &JobId) -> String {
    format!("logs/{job}.log")
}

impl View<'_> {
    /// Returns the kept files whose path begins with `prefix`, by path.
    pub fn kept_files(&self, prefix: &str) -> Result<Vec<KeptFile>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT path, sha256, length, mode FROM kept_files WHERE substr(path, 1, length(?1)) = ?1 ORDER BY path",
        )?;
        let mut rows = statement.query([prefix])?;
        let mut files = Vec::new();
        while let Some(row) = rows.next()? {
            files.push(kept_file(row)?);
        }
        Ok(files)
    }

    pub(super) fn kept_file(&self, path: &str) -> Result<Option<KeptFile>> {
        let mut statement =
            self.connection.prepare_cached("SELECT path, sha256, length, mode FROM kept_files WHERE path = ?1")?;
        Ok(statement.query_row([path], kept_file).optional()?)
    }
}

fn kept_file(row: &rusqlite::Row<'_>) -> rusqlite::Result<KeptFile> {
    Ok(KeptFile { path: row.get(0)?, sha256: row.get(1)?, length: length(row, 2)?, mode: row.get(3)? })
}

/// Reads a column with a size in bytes.
pub(super) fn length(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

/// Lists every regular file in a folder for kept files, relative to the data directory.
pub(super) fn found(data_dir: &Path, folder: &str) -> Result<Vec<String>> {
    let dir = data_dir.join(folder);
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", dir.display())),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if entry.file_type()?.is_file() && check_path(&format!("{folder}/{name}")).is_ok() {
            paths.push(format!("{folder}/{name}"));
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
