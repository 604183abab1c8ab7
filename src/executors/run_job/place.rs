//! Place of a job on this machine: the root of its tree, and beside it a lock and a directory for its other files.

use super::JobNotRun;
use crate::checkout::folder::{Folder, remove_path};
use anyhow::{Context as _, Result, bail};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest wait for an earlier job that has the place. A stopped process keeps it.
const WAIT_LIMIT: Duration = Duration::from_secs(600);
/// Time between two tries of the lock.
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// Ending of the names of lock files.
const LOCK: &str = "lock";

/// A place that is empty and locked until this value is dropped, which removes what is there. Dropping blocks: call
/// [`JobPlace::leave`] in async code.
pub(in super::super) struct JobPlace {
    /// Root of the tree. The directory does not exist yet.
    pub(in super::super) root: PathBuf,
    /// Directory for all other files of the job: its data directory.
    pub(in super::super) files: PathBuf,
    /// Directory that both are in. It belongs to this user, and nobody else can enter it.
    pub(super) parent: PathBuf,
    _lock: File,
}

impl JobPlace {
    /// Takes the place for a tree at `root`. Waits for an earlier job that still has it, with a line for the log.
    pub(in super::super) async fn take(
        root: PathBuf,
        stop: &CancellationToken,
        log: impl Fn(&str),
    ) -> Result<JobPlace, JobNotRun> {
        let (mut waits, since) = (false, tokio::time::Instant::now());
        let lock = loop {
            let at = root.clone();
            let locked = tokio::task::spawn_blocking(move || lock(&at)).await.map_err(anyhow::Error::from)?;
            if let Some(lock) = locked.with_context(|| format!("no tree can be made at {}", root.display()))? {
                break lock;
            }
            if !waits {
                log(
                    "[tidelock: waiting for an earlier job of this project, which still has its place on this machine]",
                );
                waits = true;
            }
            if since.elapsed() >= WAIT_LIMIT {
                let (path, limit) = (lock_path(&root), WAIT_LIMIT.as_secs());
                let why =
                    format!("another `tidelock run-job` has had {} for {limit} s: end that process", path.display());
                return Err(JobNotRun::Refused(why));
            }
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                () = stop.cancelled() => return Err(JobNotRun::Stopped),
            }
        };
        let place = JobPlace::locked(root, lock);
        let (own, parent) = (place.root.clone(), place.parent.clone());
        // Nobody waits for it: what it does not get done is left to later jobs.
        tokio::task::spawn_blocking(move || remove_leftovers(&parent, &own));
        let prepared = tokio::task::spawn_blocking(move || place.prepare().map(|()| place));
        Ok(prepared.await.map_err(anyhow::Error::from)?.context("what an earlier job has left cannot be removed")?)
    }

    fn locked(root: PathBuf, lock: File) -> JobPlace {
        let parent = root.parent().map(Path::to_owned).unwrap_or_default();
        // Short: sockets below it have a limit of 107 bytes.
        let name = hex::encode(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..6]);
        JobPlace { files: parent.join(format!("{name}.d")), root, parent, _lock: lock }
    }

    /// Removes what an earlier job has left, and makes an empty directory for files.
    fn prepare(&self) -> io::Result<()> {
        self.clear()?;
        DirBuilder::new().mode(0o700).create(&self.files)
    }

    fn clear(&self) -> io::Result<()> {
        remove_path(&self.root)?;
        remove_path(&self.files)
    }

    /// Removes everything of the job from this machine, and frees the place.
    pub(in super::super) async fn leave(self) {
        if let Err(error) = tokio::task::spawn_blocking(move || drop(self)).await {
            tracing::warn!("files of the job cannot be removed: {error}");
        }
    }
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        // The file goes while it is locked, so whoever waits for it sees that it is gone.
        if let Err(error) = self.clear().and_then(|()| remove_path(&lock_path(&self.root))) {
            tracing::warn!("files of the job cannot be removed from {}: {error}", self.parent.display());
        }
    }
}

/// Returns the path of the lock file of a root.
fn lock_path(root: &Path) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    path.push(".");
    path.push(LOCK);
    path.into()
}

/// Locks the place of a root; `None` if another process has it. Blocks.
fn lock(root: &Path) -> Result<Option<File>> {
    loop {
        let file = open_lock(root)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).context("its lock file cannot be locked"),
        }
        // Who had the lock before may have removed the file that was opened.
        let (locked, present) = (file.metadata()?, lock_path(root).symlink_metadata());
        if present.is_ok_and(|present| (present.dev(), present.ino()) == (locked.dev(), locked.ino())) {
            return Ok(Some(file));
        }
    }
}

/// Removes what killed jobs have left at other roots in the directory of places. Blocks.
fn remove_leftovers(parent: &Path, own: &Path) {
    let entries = parent.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries.filter(|path| path.extension().is_some_and(|ending| ending == LOCK)) {
        let root = path.with_extension("");
        if root != own
            && let Ok(Some(lock)) = lock(&root)
        {
            drop(JobPlace::locked(root, lock));
        }
    }
}

/// Opens the lock file of a root, in a directory that belongs to this user only and is made if it is missing. Blocks.
fn open_lock(root: &Path) -> Result<File> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let (true, true, Some(parent)) = (root.is_absolute(), root.components().all(is_plain), root.parent()) else {
        bail!("it is no absolute path without `..`");
    };
    make_parent(parent)?;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits().cast_signed());
    let path = lock_path(root);
    options.open(&path).with_context(|| format!("cannot open {}", path.display()))
}

/// Makes the directory of all trees, which belongs to this user only, unless it is there. Blocks.
pub(in super::super) fn make_parent(parent: &Path) -> Result<()> {
    if let Some(above) = parent.parent() {
        std::fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
    }
    match DirBuilder::new().mode(0o700).create(parent) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.with_context(|| format!("cannot make {}", parent.display()))?,
    }
    let folder = Folder::open(parent).with_context(|| format!("cannot open {}", parent.display()))?;
    if !folder.belongs_to(None) {
        bail!("{} belongs to another user", parent.display());
    }
    if folder.mode()?.intersects(Mode::RWXG | Mode::RWXO) {
        bail!("others can enter {}: it must have mode 0700", parent.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    async fn taken(root: &Path) -> Result<JobPlace, JobNotRun> {
        JobPlace::take(root.to_owned(), &CancellationToken::new(), |_| ()).await
    }

    #[tokio::test]
    async fn a_place_is_emptied_for_each_job_and_has_one_job_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("jobs/tree");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::set_permissions(root.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(root.join("left"), "of a killed job").unwrap();
        let place = taken(&root).await.unwrap();
        assert!(!root.exists() && place.files.read_dir().unwrap().next().is_none());
        assert_eq!(place.files.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::create_dir(&root).unwrap();

        let (stop, waits) = (CancellationToken::new(), CancellationToken::new());
        let next = JobPlace::take(root.clone(), &stop, |_| waits.cancel());
        let leave = async {
            waits.cancelled().await;
            assert!(root.exists(), "the second job has not touched it");
            place.leave().await;
        };
        let (next, ()) = tokio::join!(next, leave);
        let next = next.unwrap();
        let stopped = JobPlace::take(root.clone(), &stop, |_| stop.cancel()).await;
        assert!(matches!(stopped, Err(JobNotRun::Stopped)));
        let name = next.files.file_name().unwrap();
        assert_eq!(name.len(), 14, "{}", next.files.display());
        next.leave().await;
        assert_eq!(root.parent().unwrap().read_dir().unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_a_killed_job_has_left_goes_with_a_later_job_at_another_root() {
        let temp = tempfile::tempdir().unwrap();
        let parent = temp.path().join("jobs");
        let killed = taken(&parent.join("killed")).await.unwrap();
        let running = taken(&parent.join("running")).await.unwrap();
        std::fs::create_dir(&killed.root).unwrap();
        std::fs::create_dir(&running.root).unwrap();
        // As the kernel does.
        rustix::fs::flock(&killed._lock, rustix::fs::FlockOperation::Unlock).unwrap();
        let next = taken(&parent.join("next")).await.unwrap();
        while killed.root.exists() || killed.files.exists() || lock_path(&killed.root).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(running.root.exists() && running.files.exists() && next.files.exists());
        drop((killed, running, next));
        while parent.read_dir().unwrap().count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn places_in_directories_of_others_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
        let closed = temp.path().join("closed");
        DirBuilder::new().mode(0o700).create(&closed).unwrap();
        symlink(&closed, temp.path().join("link")).unwrap();
        symlink(temp.path().join("target"), closed.join("linked.lock")).unwrap();
        for (root, why) in [
            (open.join("tree"), "others can enter"),
            (temp.path().join("link/tree"), "cannot open"),
            (closed.join("linked"), "cannot open"),
            (closed.join("../open/tree"), "no absolute path"),
            (PathBuf::from("tree"), "no absolute path"),
        ] {
            let Err(JobNotRun::Refused(said)) = taken(&root).await else { panic!("{}", root.display()) };
            assert!(said.contains(why), "{said}");
        }
        assert!(!temp.path().join("target").exists());
    }
}
