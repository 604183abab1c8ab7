//! Writes of the directory bucket. A file is written whole and fsync'ed under a temporary name, then gets its name.

use super::error::FileError;
use super::header::{self, FileHeader};
use super::{OURS, OpenDirectory};
use crate::bucket::{Body, Generation, Written};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Longest wait for the lock. A process that holds it for longer is stopped or hangs.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two tries for the lock.
const LOCK_POLL: Duration = Duration::from_millis(1);
/// Age from which a file in `tmp/` that nobody holds is removed. A younger one may be about to be locked.
const LEFTOVER_AGE: Duration = Duration::from_secs(10);
/// Buffer size for the copy of a file, in bytes.
const COPY: usize = 1 << 20;

/// A file in `tmp/`, removed when dropped. Its lock shows that its writer is alive.
pub(super) struct TemporaryFile {
    pub(super) path: PathBuf,
    file: File,
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Absent after a rename. The next start removes files that a crash leaves.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl OpenDirectory {
    pub(super) fn put(&self, name: &str, expected: Generation, body: &Body, label: &str) -> Result<Written, FileError> {
        if label.len() > header::MAX_LABEL {
            return Err(FileError::Refused(format!("the label `{label}` is longer than {} bytes", header::MAX_LABEL)));
        }
        let path = self.root.join(name);
        let directory = path.parent().unwrap_or(&self.root);
        self.ensure(directory)?;
        // Saves writing a large body for nothing; the decisive check is below.
        if !self.present(name, &path, expected)? {
            return self.refuse_write(directory);
        }
        let (whole, generation) = self.write_whole(name, expected, body, label)?;
        if expected == 0 {
            match std::fs::hard_link(&whole.path, &path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return self.refuse_write(directory),
                result => result.map_err(FileError::at(&path))?,
            }
            self.sync_directory(directory)?;
        } else {
            let _lock = self.lock()?;
            if !self.present(name, &path, expected)? {
                return self.refuse_write(directory);
            }
            std::fs::rename(&whole.path, &path).map_err(FileError::at(&path))?;
            self.sync_directory(directory)?;
        }
        Ok(Written::Stored(generation))
    }

    pub(super) fn delete(&self, name: &str, generation: Generation) -> Result<bool, FileError> {
        let path = self.root.join(name);
        let directory = path.parent().unwrap_or(&self.root);
        let _lock = self.lock()?;
        match self.open_object(name)? {
            Some((_, header)) if header.generation != generation => return Ok(false),
            Some(_) => std::fs::remove_file(&path).map_err(FileError::at(&path))?,
            None if !directory.is_dir() => return Ok(true),
            None => {}
        }
        self.sync_directory(directory)?;
        Ok(true)
    }

    /// Returns true if the precondition holds now.
    fn present(&self, name: &str, path: &Path, expected: Generation) -> Result<bool, FileError> {
        if expected != 0 {
            return Ok(self.open_object(name)?.is_some_and(|(_, header)| header.generation == expected));
        }
        match path.symlink_metadata() {
            // Otherwise each creation would be refused, although the object never exists.
            Ok(meta) if !meta.is_file() => Err(FileError::at(path)(ErrorKind::IsADirectory.into())),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(FileError::at(path)(error)),
        }
    }

    /// Makes the present object durable before a write is refused, because the caller reads it and builds on it. Its own writer may have
    /// been killed between naming it and the fsync.
    fn refuse_write(&self, directory: &Path) -> Result<Written, FileError> {
        self.sync_directory(directory)?;
        Ok(Written::Refused)
    }

    fn write_whole(
        &self,
        name: &str,
        expected: Generation,
        body: &Body,
        label: &str,
    ) -> Result<(TemporaryFile, Generation), FileError> {
        let generation = loop {
            let candidate = random()?.cast_signed() & i64::MAX;
            if candidate > 0 && candidate != expected {
                break candidate;
            }
        };
        let mut temporary = self.temporary()?;
        let TemporaryFile { path, file } = &mut temporary;
        let mut header = FileHeader { generation, created: self.now(), length: 0, crc: 0, label: label.to_owned() };
        let mut crc = flate2::Crc::new();
        match body {
            Body::Bytes(bytes) => {
                crc.update(bytes);
                (header.length, header.crc) = (bytes.len() as u64, crc.sum());
                file.write_all(&header.encode(name))
                    .and_then(|()| file.write_all(bytes))
                    .map_err(FileError::at(path))?;
            }
            Body::File(source) => {
                let mut from = File::open(source).map_err(local(source))?;
                file.write_all(&[0; header::SIZE]).map_err(FileError::at(path))?;
                let mut buffer = vec![0; COPY];
                loop {
                    let count = match from.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(count) => count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(error) => return Err(local(source)(error)),
                    };
                    crc.update(&buffer[..count]);
                    file.write_all(&buffer[..count]).map_err(FileError::at(path))?;
                    header.length += count as u64;
                }
                header.crc = crc.sum();
                file.write_all_at(&header.encode(name), 0).map_err(FileError::at(path))?;
            }
        }
        file.sync_all().map_err(FileError::at(path))?;
        Ok((temporary, generation))
    }

    pub(super) fn temporary(&self) -> Result<TemporaryFile, FileError> {
        let folder = self.ours("tmp");
        self.ensure(&folder)?;
        let path = folder.join(format!("{:016x}", random()?));
        let file = new_file(&path).map_err(FileError::at(&path))?;
        let temporary = TemporaryFile { path, file };
        match temporary.file.try_lock() {
            // Another process checks for leftovers; this file is too young to be removed.
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(temporary),
            Err(TryLockError::Error(error)) => Err(FileError::at(&temporary.path)(error)),
        }
    }

    /// Enters the exclusive section between processes, and between threads of this one.
    pub(super) fn lock(&self) -> Result<Locked<'_>, FileError> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            self.ensure(&self.root.join(OURS))?;
            let path = self.ours("lock");
            let open = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
            *held = Some(open.map_err(FileError::at(&path))?);
        }
        let since = Instant::now();
        while let Some(file) = held.as_ref() {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(FileError::at(&self.ours("lock"))(error)),
                Err(TryLockError::WouldBlock) if since.elapsed() > LOCK_LIMIT => {
                    return Err(FileError::Unavailable(format!(
                        "another process has held {} for {} s: see `fuser -v` on that file",
                        self.ours("lock").display(),
                        LOCK_LIMIT.as_secs()
                    )));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
            }
        }
        Ok(Locked { held })
    }

    /// Returns microseconds since 1970, always more than the last value in this process.
    fn now(&self) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX - 1);
        let next = |last: i64| now.max(last + 1);
        match self.last_created.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last))) {
            Ok(last) | Err(last) => next(last),
        }
    }

    /// Removes partial files of processes that have ended.
    pub(super) fn remove_leftovers(&self) {
        let Ok(entries) = std::fs::read_dir(self.ours("tmp")) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Ok(file) = File::open(&path) else { continue };
            let age = file.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > LEFTOVER_AGE) && file.try_lock().is_ok() {
                // Tried again at the next start.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// Tries every feature of the file system that writing needs.
    pub(super) fn probe(&self) -> Result<(), FileError> {
        let temporary = self.temporary()?;
        temporary.file.sync_all().map_err(FileError::at(&temporary.path))?;
        let link = temporary.path.with_extension("link");
        if let Err(error) = std::fs::hard_link(&temporary.path, &link) {
            // link(2) fails with EPERM where the file system has no hard links.
            let kind = if error.kind() == ErrorKind::PermissionDenied { ErrorKind::Unsupported } else { error.kind() };
            return Err(FileError::at(&link)(kind.into()));
        }
        std::fs::remove_file(&link).map_err(FileError::at(&link))?;
        let again = OpenOptions::new().write(true).open(&temporary.path).map_err(FileError::at(&temporary.path))?;
        if !matches!(again.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(FileError::at(&temporary.path)(ErrorKind::Unsupported.into()));
        }
        self.lock().map(drop)
    }
}

/// Guard of the exclusive section, which ends when it is dropped.
pub(super) struct Locked<'a> {
    held: MutexGuard<'a, Option<File>>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.held.as_ref().map(File::unlock) {
            // Closing the file releases the lock as well.
            tracing::warn!("the bucket's lock: {error}");
            *self.held = None;
        }
    }
}

fn new_file(path: &Path) -> Result<File, Error> {
    OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

fn random() -> Result<u64, FileError> {
    getrandom::u64().map_err(|error| FileError::Unavailable(format!("no random numbers: {error}")))
}

/// Maps an error of a file that was to be stored.
fn local(source: &Path) -> impl FnOnce(Error) -> FileError {
    move |error| FileError::Refused(format!("cannot read {}: {error}", source.display()))
}
