//! The embedded bucket: a directory of this machine with the same generation semantics as Cloud Storage, fsync'ed, safe
//! between processes.
//!
//! An object `journal/17` is the file `journal/17`: a `header` of 128 bytes (generation, time, label, checksum), then the
//! content. Internal files are in `.tidelock/`, a name that no object can have: `lock`, `tmp/`, `alive/`.
//!
//! Reasons why it is safe between processes, and at any moment of a crash:
//! * A file gets its name only when it is whole and on the disk: it is written and fsync'ed in `tmp/`, then linked or renamed.
//!   So a name shows the old content or the new one, never a part of it. The answer waits for the fsync of the name's directory.
//! * A create is `link`(2), which fails if the name exists: exclusive between processes without any lock.
//! * Replacing and deleting check the present generation first, and hold `lock` from that check to the change. Creates need no
//!   lock: a create only adds a name that did not exist, and a replace or delete that found its name absent does nothing.
//!   Once the name exists, only holders of the lock change it, so the checked generation is the one that they change.
//! * A generation is 63 random bits: never used again, without a counter to keep or a clock to trust.

mod alive;
mod error;
mod header;
mod look;
mod place;
#[cfg(test)]
mod tests;
mod write;

use super::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written, is_name};
use async_trait::async_trait;
use bytes::Bytes;
use error::FileError;
use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Folder of the bucket for internal files.
const OURS: &str = ".tidelock";
/// Concurrent file calls. More would only queue up in the kernel, and take the runtime's threads from other work.
const MAX_CALLS: usize = 32;
/// Time limit of a call without its bytes, such as on a network file system that hangs.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Each of so many bytes of a call extends its time limit by one second.
const BYTES_A_SECOND: u64 = 4 << 20;
/// Largest object that is read in one piece.
const MAX_WHOLE: u64 = 1 << 30;

/// A bucket in a directory; cheap to clone.
#[derive(Clone)]
pub struct Directory {
    shared: Arc<OpenDirectory>,
}

struct OpenDirectory {
    root: PathBuf,
    location: String,
    calls: Arc<Semaphore>,
    /// Lock that is held, then flocked, while a name is replaced or deleted; opened at its first use.
    lock: Mutex<Option<File>>,
    /// Directories whose own names are known to be on the disk.
    known: Mutex<HashSet<PathBuf>>,
    alive: Mutex<HashMap<String, File>>,
    /// Latest creation time that this process gave to an object, in microseconds since 1970.
    last_created: AtomicI64,
    counts: [(&'static str, AtomicU64); 5],
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started shares the open files until its exec.
        for file in self.alive.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            let _ = file.unlock();
        }
    }
}

#[derive(Clone, Copy)]
enum RequestKind {
    Get,
    Range,
    Put,
    Delete,
    List,
}

/// Parses the directory in `file:///DIR`. The text of the error is for the operator.
pub fn parse_url(url: &str) -> Result<PathBuf, String> {
    let path = url.strip_prefix("file://").ok_or_else(|| format!("`{url}` does not begin with file://"))?;
    let trimmed = path.trim_end_matches('/');
    if !path.starts_with('/') || trimmed.is_empty() || path.contains('\0') {
        return Err(format!(
            "`{url}` does not name a directory by its whole path: write file:///var/lib/tidelock/bucket, with three slashes"
        ));
    }
    Ok(PathBuf::from(trimmed))
}

impl Directory {
    /// Opens a bucket to write to. Creates the directory if its parent exists. Refuses a directory that has other files in it and
    /// was never a bucket. Removes partial files of processes that have ended.
    pub fn open(path: &Path) -> Result<Directory, BucketError> {
        let bucket = Directory::at(path);
        let shared = &bucket.shared;
        shared.prepare().map_err(|error| error.into_bucket_error(&shared.location, "open".into()))?;
        Ok(bucket)
    }

    /// Opens a bucket that must exist already, and changes nothing in it.
    pub fn existing(path: &Path) -> Result<Directory, BucketError> {
        let bucket = Directory::at(path);
        let shared = &bucket.shared;
        shared.look_at_root().map_err(|error| error.into_bucket_error(&shared.location, "open".into()))?;
        Ok(bucket)
    }

    fn at(path: &Path) -> Directory {
        let root = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let count = |kind| (kind, AtomicU64::new(0));
        let shared = OpenDirectory {
            location: format!("file://{}", root.display()),
            root,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            lock: Mutex::default(),
            known: Mutex::default(),
            alive: Mutex::default(),
            last_created: AtomicI64::new(0),
            counts: ["get", "get_range", "put", "delete", "list"].map(count),
        };
        Directory { shared: Arc::new(shared) }
    }

    /// Runs file work on a blocking thread: at most [`MAX_CALLS`] at once, each with a time limit.
    async fn call<T: Send + 'static>(
        &self,
        kind: RequestKind,
        doing: String,
        bytes: u64,
        work: impl FnOnce(&OpenDirectory) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, BucketError> {
        let shared = self.shared.clone();
        if let Some((_, count)) = shared.counts.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let limit = CALL_LIMIT + Duration::from_secs(bytes / BYTES_A_SECOND);
        let unavailable = |reason: String| BucketError::Unavailable {
            location: self.shared.location.clone(),
            doing: doing.clone(),
            reason,
        };
        let calls = shared.calls.clone();
        let run = async {
            let permit = calls.acquire_owned().await.map_err(|_| "closed".to_owned())?;
            let blocking = tokio::task::spawn_blocking(move || {
                // Kept until the work has ended, also if the caller has stopped waiting.
                let _permit = permit;
                work(&shared)
            });
            blocking.await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(limit, run).await {
            Ok(Ok(result)) => result.map_err(|error| error.into_bucket_error(&self.shared.location, doing)),
            Ok(Err(reason)) => Err(unavailable(reason)),
            Err(_) => Err(unavailable(format!("the file system did not answer within {} s", limit.as_secs()))),
        }
    }

    fn named(&self, doing: &str, name: &str) -> Result<(String, String), BucketError> {
        let doing = format!("{doing} {name}");
        if is_name(name) {
            return Ok((doing, name.to_owned()));
        }
        let error = FileError::Refused("no object can have this name".into());
        Err(error.into_bucket_error(&self.shared.location, doing))
    }
}

#[async_trait]
impl Bucket for Directory {
    fn location(&self) -> &str {
        &self.shared.location
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        self.call(RequestKind::List, "check".into(), 0, OpenDirectory::check).await
    }

    async fn inspect(&self) -> Result<Vec<String>, BucketError> {
        self.call(RequestKind::List, "look through".into(), 0, OpenDirectory::inspect).await
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        let (doing, name) = self.named("read", name)?;
        self.call(RequestKind::Get, doing, MAX_WHOLE, move |shared| shared.get(&name)).await
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        let (doing, name) = self.named("read", name)?;
        let bytes = range.end.saturating_sub(range.start).min(MAX_WHOLE);
        self.call(RequestKind::Range, doing, bytes, move |shared| shared.get_range(&name, generation, range)).await
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        let (doing, name) = self.named("write", name)?;
        let label = label.to_owned();
        let bytes = match &body {
            Body::Bytes(bytes) => bytes.len() as u64,
            // Only for the time limit; a file that cannot be read is an error below.
            Body::File(path) => tokio::fs::metadata(path).await.map_or(0, |meta| meta.len()),
        };
        self.call(RequestKind::Put, doing, bytes, move |shared| shared.put(&name, expected, &body, &label)).await
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        let (doing, name) = self.named("delete", name)?;
        self.call(RequestKind::Delete, doing, 0, move |shared| shared.delete(&name, generation)).await
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        let (doing, prefix, after) = (format!("list {prefix}"), prefix.to_owned(), after.to_owned());
        self.call(RequestKind::List, doing, 0, move |shared| shared.list(&prefix, &after, usize::MAX)).await
    }

    async fn list_some(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, BucketError> {
        let (doing, prefix, after) = (format!("list {prefix}"), prefix.to_owned(), after.to_owned());
        self.call(RequestKind::List, doing, 0, move |shared| shared.list(&prefix, &after, most)).await
    }

    fn announce(&self, nonce: &str) -> Result<(), BucketError> {
        let doing = format!("announce {nonce}");
        self.shared.announce(nonce).map_err(|error| error.into_bucket_error(&self.shared.location, doing))
    }

    async fn is_gone(&self, nonce: &str) -> Result<bool, BucketError> {
        let (doing, nonce) = (format!("look for {nonce}"), nonce.to_owned());
        self.call(RequestKind::Get, doing, 0, move |shared| shared.is_gone(&nonce)).await
    }

    fn knows_who_lives(&self) -> bool {
        true
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.shared.counts.iter().map(|(kind, count)| (*kind, count.load(Ordering::Relaxed))).collect()
    }
}

impl OpenDirectory {
    fn ours(&self, name: &str) -> PathBuf {
        self.root.join(OURS).join(name)
    }

    /// Checks that the directory exists, and is a bucket or empty.
    fn look_at_root(&self) -> Result<(), FileError> {
        if !std::fs::metadata(&self.root).map_err(FileError::at(&self.root))?.is_dir() {
            return Err(FileError::Refused("this is a file, not a directory: name a directory".into()));
        }
        if std::fs::symlink_metadata(self.root.join(OURS)).is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        for entry in std::fs::read_dir(&self.root).map_err(FileError::at(&self.root))? {
            let name = entry.map_err(FileError::at(&self.root))?.file_name();
            if name != "lost+found" {
                return Err(FileError::Foreign(name.to_string_lossy().into_owned()));
            }
        }
        Ok(())
    }

    fn prepare(&self) -> Result<(), FileError> {
        place::check(&self.root)?;
        // Not its parents: a disk that is not mounted must not look like a fresh start.
        match DirBuilder::new().mode(0o700).create(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let parent = self.root.parent().unwrap_or(&self.root).display();
                return Err(FileError::Refused(format!(
                    "{parent} is not there: mount the disk that it should be on, or `mkdir -p {parent}`"
                )));
            }
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(FileError::at(&self.root)(error));
            }
            _ => {}
        }
        self.look_at_root()?;
        if let Some(parent) = self.root.parent() {
            self.sync_directory(parent)?;
        }
        for folder in ["tmp", "alive"] {
            self.ensure(&self.ours(folder))?;
        }
        self.remove_leftovers();
        Ok(())
    }

    /// Creates a directory of the bucket, once per process, and makes its name durable. A directory that disappears later is not
    /// created again: its objects would be missing.
    fn ensure(&self, directory: &Path) -> Result<(), FileError> {
        if directory == self.root || self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(directory) {
            return Ok(());
        }
        let Some(parent) = directory.parent() else { return Ok(()) };
        self.ensure(parent)?;
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(FileError::at(directory)(error)),
            _ => {
                self.sync_directory(parent)?;
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
                Ok(())
            }
        }
    }

    fn sync_directory(&self, directory: &Path) -> Result<(), FileError> {
        File::open(directory).and_then(|file| file.sync_all()).map_err(|error| match FileError::at(directory)(error) {
            // Its change is visible already, but perhaps not on the disk.
            FileError::Refused(reason) => FileError::Unavailable(reason),
            other => other,
        })
    }
}
