//! A copy of the whole state for a base: pinned between two groups of changes, then copied while writes continue.

use super::files::log_path;
use super::files::pieces::{copy_piece, piece_of};
use super::{Store, View, schema};
use anyhow::{Context, Result, anyhow, bail};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tidelock_vault::{Blob, Image, Position, Source, VaultError};
use tokio::sync::oneshot;

/// Prefix of the folders of unfinished bases in the data directory.
const PREFIX: &str = "base.";

/// Attempts to pin a state whose files disappear before they are linked.
const PINS: u32 = 5;

/// A request to the writer to begin a read transaction on `connection` between two commits.
pub(super) struct Pin {
    connection: Connection,
    answer: oneshot::Sender<Result<Pinned>>,
}

/// A connection with an open read transaction, and the journal position of the state that it reads.
pub(super) struct Pinned {
    connection: Connection,
    position: Position,
}

impl Pin {
    /// Begins the read transaction and answers the caller. Called by the writer while it has no open transaction; takes no longer than
    /// beginning one.
    pub(super) fn take(self, position: Position, deposed: Option<&String>) {
        let pinned = match deposed {
            Some(reason) => Err(VaultError::Deposed(reason.clone()).into()),
            None => begin(self.connection).map(|connection| Pinned { connection, position }),
        };
        // The caller may have stopped waiting.
        let _ = self.answer.send(pinned);
    }
}

/// Begins a read transaction. SQLite takes its snapshot at the first read, not at `BEGIN`.
fn begin(connection: Connection) -> Result<Connection> {
    connection.execute_batch("BEGIN")?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// A temporary folder of the data directory for one base. It is on the same file system as the kept files, so that they
/// can be linked.
pub(super) struct BaseFolder(PathBuf);

impl BaseFolder {
    pub(super) fn new(data_dir: &Path) -> Result<BaseFolder> {
        for number in 0..u32::MAX {
            let path = data_dir.join(format!("{PREFIX}{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let scratch = BaseFolder(path);
                    close_to_others(&scratch.0)?;
                    return Ok(scratch);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
            }
        }
        bail!("there are too many folders {PREFIX}<number> in {}", data_dir.display())
    }
}

impl Drop for BaseFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a folder could not be removed");
        }
    }
}

/// Removes all permissions of other users.
pub(super) fn close_to_others(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot close {} to others", dir.display()))
}

/// Removes unfinished bases of earlier processes.
pub(super) fn sweep(data_dir: &Path) -> Result<()> {
    super::restore::remove_folders(data_dir, PREFIX)
}

impl Pinned {
    /// Pins the current state on `connection`, while nothing else writes.
    pub(super) fn begin(connection: Connection, position: Position) -> Result<Pinned> {
        Ok(Pinned { connection: begin(connection)?, position })
    }

    /// Copies the state into `scratch` and links its files there, so that they can be removed meanwhile. `None` if a
    /// file has been removed already. Blocks.
    pub(super) fn image(self, data_dir: &Path, scratch: &BaseFolder) -> Result<Option<Image>> {
        let Some(blobs) = hold(&View { connection: &self.connection }, data_dir, &scratch.0)? else { return Ok(None) };
        let database = scratch.0.join(super::DATABASE);
        let mut copy = schema::open_raw(&database)?;
        copy.pragma_update(None, "synchronous", "off")?;
        {
            let backup = Backup::new(&self.connection, &mut copy)?;
            let done = backup.step(-1)?;
            if !matches!(done, StepResult::Done) {
                bail!("the state could not be copied for a base: {done:?}");
            }
        }
        let schema = u32::try_from(schema::format_of(&copy)?)?;
        copy.close().map_err(|(_, error)| error)?;
        Ok(Some(Image { position: self.position, schema, database, blobs }))
    }
}

/// Returns the contents of all kept files, each held by a link; logs that may be growing are copied. `None` if a file is missing.
fn hold(view: &View<'_>, data_dir: &Path, scratch: &Path) -> Result<Option<Vec<Blob>>> {
    let growing: HashSet<String> = view.running_logs()?.into_iter().map(|(job, _)| log_path(&job)).collect();
    let mut blobs = Vec::new();
    for (number, file) in view.kept_files("")?.iter().enumerate() {
        let piece = piece_of(&file.path);
        let whole = data_dir.join(piece.map_or(file.path.as_str(), |(log, _)| log));
        let held = scratch.join(format!("file.{number}"));
        let done = match piece {
            Some((_, from)) => copy_piece(&whole, from, file.length, &held).map(|()| held),
            None if growing.contains(&file.path) => copy_piece(&whole, 0, file.length, &held).map(|()| held),
            None => link(&whole, held),
        };
        match done {
            Ok(path) => blobs.push(Blob { hash: file.hash()?, length: file.length, source: Source::File(path) }),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", whole.display())),
        }
    }
    blobs.sort_by_key(|blob| blob.hash);
    blobs.dedup_by_key(|blob| blob.hash);
    Ok(Some(blobs))
}

/// Links a file and returns the path under which it is held.
fn link(file: &Path, to: PathBuf) -> std::io::Result<PathBuf> {
    match std::fs::hard_link(file, &to) {
        Ok(()) => Ok(to),
        // The file system has no links: use the file itself. If it disappears before it is read, the base fails and is
        // retried later.
        Err(error) if error.kind() != ErrorKind::NotFound && file.is_file() => Ok(file.to_owned()),
        Err(error) => Err(error),
    }
}

impl Store {
    /// Waits until a commit has left a base due. Never returns without a vault.
    pub async fn base_due(&self) {
        match &self.shared.vault {
            Some(vault) => vault.base_due.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Writes a base and deletes old objects, if due. Does nothing during another call.
    pub async fn write_base_if_due(&self) -> Result<()> {
        let Some(vault) = &self.shared.vault else { return Ok(()) };
        let Ok(_only) = vault.base.try_lock() else { return Ok(()) };
        if vault.leader.base_due() || vault.base_wanted.load(Ordering::Relaxed) {
            let data_dir = self.shared.data_dir.clone();
            let scratch = tokio::task::spawn_blocking(move || BaseFolder::new(&data_dir)).await??;
            // The folder is kept while the base is written. Removing it may take long, so it is dropped off the async
            // threads.
            let (image, scratch) = self.image(scratch).await?;
            let written = vault.leader.write_base(image).await;
            tokio::task::spawn_blocking(move || drop(scratch)).await?;
            written?;
            vault.base_wanted.store(false, Ordering::Relaxed);
            vault.collecting.store(true, Ordering::Relaxed);
        }
        if vault.collecting.load(Ordering::Relaxed) {
            let gone = vault.leader.collect().await?;
            vault.collecting.store(false, Ordering::Relaxed);
            tracing::info!(objects = gone, "the vault has a new base; old objects were deleted");
        }
        Ok(())
    }

    async fn image(&self, mut scratch: BaseFolder) -> Result<(Image, BaseFolder)> {
        for _ in 0..PINS {
            let pinned = self.pin().await?;
            let data_dir = self.shared.data_dir.clone();
            let work = tokio::task::spawn_blocking(move || -> Result<_> {
                if let Some(image) = pinned.image(&data_dir, &scratch)? {
                    return Ok((Some(image), scratch));
                }
                drop(scratch);
                Ok((None, BaseFolder::new(&data_dir)?))
            });
            let (image, kept) = work.await.context("copying the state panicked")??;
            scratch = kept;
            if let Some(image) = image {
                return Ok((image, scratch));
            }
        }
        bail!("no base was written: a kept file is missing in {}", self.shared.data_dir.display())
    }

    /// Pins the state right after the last commit.
    async fn pin(&self) -> Result<Pinned> {
        let path = self.shared.data_dir.join(super::DATABASE);
        let connection = tokio::task::spawn_blocking(move || schema::open_reader(&path)).await??;
        let (answer, pinned) = oneshot::channel();
        self.shared.queue.pin(Pin { connection, answer }).await?;
        pinned.await.map_err(|_| anyhow!(super::CLOSED))?
    }
}
