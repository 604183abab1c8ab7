//! Detection of live processes: each process that may lead holds a lock on a file named after its nonce, and the kernel releases
//! it when the process ends. Children do not inherit it: the standard library opens files close-on-exec.

use super::OpenDirectory;
use super::error::FileError;
use crate::bucket::is_name;
use crate::machine;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

/// Tries for a lock, [`POLL`] apart. A process that only checks it may hold it for an instant.
const TRIES: u32 = 500;
/// Pause between two tries.
const POLL: Duration = Duration::from_millis(2);
/// Age from which files of ended processes are removed.
const FORGET: Duration = Duration::from_secs(3600);

impl OpenDirectory {
    fn alive_file(&self, nonce: &str) -> Result<PathBuf, FileError> {
        if !is_name(nonce) || nonce.contains('/') {
            return Err(FileError::Refused("this cannot be a nonce".into()));
        }
        Ok(self.ours("alive").join(nonce))
    }

    pub(super) fn announce(&self, nonce: &str) -> Result<(), FileError> {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.contains_key(nonce) {
            return Ok(());
        }
        let path = self.alive_file(nonce)?;
        self.ensure(&self.ours("alive"))?;
        self.forget_the_dead();
        for _ in 0..TRIES {
            let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let mut file = open.map_err(FileError::at(&path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(POLL);
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(FileError::at(&path)(error)),
            }
            // Another process may have removed it as a leftover before it was locked.
            let ours = file.metadata().map_err(FileError::at(&path))?.ino();
            if path.symlink_metadata().is_ok_and(|meta| meta.ino() == ours) {
                file.write_all(machine::identity().as_bytes()).map_err(FileError::at(&path))?;
                alive.insert(nonce.to_owned(), file);
                return Ok(());
            }
        }
        Err(FileError::Unavailable(format!("another process holds {}", path.display())))
    }

    /// Returns true only if the nonce was announced on this machine since its start, and nobody holds the lock any more.
    pub(super) fn is_gone(&self, nonce: &str) -> Result<bool, FileError> {
        let path = self.alive_file(nonce)?;
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            file => file.map_err(FileError::at(&path))?,
        };
        let mut said = String::new();
        // Written under the lock: if the content is whole, the lock had been taken.
        file.read_to_string(&mut said).map_err(FileError::at(&path))?;
        if said != machine::identity() || said.is_empty() {
            return Ok(false);
        }
        match file.try_lock() {
            Ok(()) => Ok(true),
            // An error may mean that the file system has no locks for readers: then it is unknown.
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Ok(false),
        }
    }

    fn forget_the_dead(&self) {
        let Ok(entries) = std::fs::read_dir(self.ours("alive")) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Ok(file) = File::open(&path) else { continue };
            let age = file.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > FORGET) && file.try_lock().is_ok() {
                // The next process tries again. While we hold the lock, nobody else can take it.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}
