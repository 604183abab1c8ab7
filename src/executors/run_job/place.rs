//! Place of a job on this machine: the root of its tree, and beside it a lock and a directory for its other files.

use super::JobNotRun;
use crate::checkout::folder::{Folder, remove_path};
use anyhow::{Context as _, Result, bail};
use rustix::fs::{Mode, OFlags};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two tries of the lock.
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// Ending of the name of the lock file, which is never removed.
const LOCK: &str = "lock";
/// Ending of the name of the directory with the other files.
const FILES: &str = "d";

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
        let at = root.clone();
        let opened = tokio::task::spawn_blocking(move || open_lock(&at)).await.map_err(anyhow::Error::from)?;
        let lock = opened.with_context(|| format!("no tree can be made at {}", root.display()))?;
        let mut waits = false;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => {
                    return Err(anyhow::Error::from(error)
                        .context(format!("{} cannot be locked", root.display()))
                        .into());
                }
                Err(TryLockError::WouldBlock) if !waits => {
                    log(
                        "[tidelock: waiting for an earlier job of this project, which still has its place on this machine]",
                    );
                    waits = true;
                }
                Err(TryLockError::WouldBlock) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                () = stop.cancelled() => return Err(JobNotRun::Stopped),
            }
        }
        let parent = root.parent().map(Path::to_owned).unwrap_or_default();
        let place = JobPlace { files: beside(&root, FILES), root, parent, _lock: lock };
        let prepared = tokio::task::spawn_blocking(move || place.prepare().map(|()| place));
        Ok(prepared.await.map_err(anyhow::Error::from)?.context("what an earlier job has left cannot be removed")?)
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
        if let Err(error) = self.clear() {
            tracing::warn!("files of the job cannot be removed from {}: {error}", self.parent.display());
        }
    }
}

fn beside(root: &Path, ending: &str) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    path.push(".");
    path.push(ending);
    path.into()
}

/// Opens the lock file of a root, in a directory that belongs to this user only and is made if it is missing. Blocks.
fn open_lock(root: &Path) -> Result<File> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let (true, true, Some(parent)) = (root.is_absolute(), root.components().all(is_plain), root.parent()) else {
        bail!("it is no absolute path without `..`");
    };
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
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits().cast_signed());
    let path = beside(root, LOCK);
    options.open(&path).with_context(|| format!("cannot open {}", path.display()))
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
        next.leave().await;
        let left: Vec<_> = root.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["tree.lock"]);
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
