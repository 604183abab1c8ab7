//! A store with a vault: every change is a commit in the bucket before it takes effect.

use super::audit::PendingAudit;
use super::base::{BaseFolder, Pinned};
use super::closed::ClosedState;
use super::files::pieces::{Piece, read_piece};
use super::files::{FOLDERS, KeptFile, KeptFiles, log_path};
use super::logs::LOG_LIMIT;
use super::schema::{self, Durability, Origin};
use super::writer::{self, Deposed, Journal};
use super::{CommitSignals, DATABASE, Readers, Store, StoreInner, Tx, View, base, files};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidelock_core::domain::JobId;
use tidelock_vault::VaultError;
use tidelock_vault::inbox::LateOutcome;
use tidelock_vault::leader::Leader;
use tokio::sync::Notify;

/// Bytes of running logs from which a commit takes no further log; the rest follows in further commits.
const SYNC_BYTES: u64 = 32 << 20;

/// The part of a store that needs a vault.
pub(super) struct VaultBacking {
    pub(super) leader: Leader,
    /// Reason why this process must not act any more, as the writer found out.
    deposed: Deposed,
    /// Notified after each commit that leaves a base due.
    pub(super) base_due: Arc<Notify>,
    /// Locked while a base is written.
    pub(super) base: tokio::sync::Mutex<()>,
    /// True if a base should be written soon, even if the leader does not count it as due.
    pub(super) base_wanted: AtomicBool,
    /// True if a base was written since old objects were last deleted.
    pub(super) collecting: AtomicBool,
    closing: AtomicBool,
}

/// Returns true if an error means that this server was deposed.
pub fn is_deposed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(VaultError::Deposed(_)))
}

impl Store {
    /// Opens a restored state; `leader` commits every change before it takes effect. The data directory is locked until
    /// the store is closed.
    pub async fn lead(data_dir: &Path, leader: Leader) -> Result<Store> {
        Store::open_to_lead(data_dir, leader, None).await
    }

    /// Does the same with the state that this process has closed at the end of its last term, if no other server has led since. An error
    /// if somebody has changed it on the disk: then it has to be restored.
    pub async fn lead_again(data_dir: &Path, leader: Leader, closed: ClosedState) -> Result<Store> {
        Store::open_to_lead(data_dir, leader, Some(closed)).await
    }

    async fn open_to_lead(data_dir: &Path, leader: Leader, closed: Option<ClosedState>) -> Result<Store> {
        let dir = data_dir.to_owned();
        let (writable, guard) = tokio::task::spawn_blocking(move || -> Result<_> {
            let guard = schema::lock_directory(&dir)?;
            if let Some(closed) = &closed {
                closed.check(&dir)?;
            }
            base::sweep(&dir)?;
            let path = dir.join(DATABASE);
            ensure!(path.exists(), "there is no {}: the state has to be restored first", path.display());
            // A state that is being adopted has no other copy yet.
            let is_alone = Origin::in_file(&path)? == Some(Origin::Adopting);
            let durability = if is_alone { Durability::Disk } else { Durability::Bucket };
            let writable = schema::open_writer(&path, durability)?;
            if closed.is_some() {
                View { connection: &writable.connection }.check_kept_files(&dir)?;
            }
            Ok((writable, guard))
        })
        .await??;
        let connection = match Origin::read(&writable.connection)? {
            Origin::Cache => writable.connection,
            Origin::Adopting => adopt(data_dir, writable.connection, &leader).await?,
            Origin::Alone | Origin::Exported => bail!(
                "the state in {} was not restored from the vault: it is left alone",
                data_dir.join(DATABASE).display()
            ),
        };
        let deposed = Deposed::default();
        let base_due = Arc::<Notify>::default();
        let journal = Journal {
            leader: leader.clone(),
            runtime: tokio::runtime::Handle::current(),
            deposed: deposed.clone(),
            base_due: Arc::clone(&base_due),
        };
        let kept = KeptFiles::journalled(data_dir);
        let queue = writer::start(writer::WriterParts { connection, guard, kept, journal: Some(journal) })?;
        let vault = VaultBacking {
            leader,
            deposed,
            base_due,
            base: tokio::sync::Mutex::default(),
            base_wanted: AtomicBool::new(writable.migrated),
            collecting: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        };
        let readers = Readers::new(data_dir.join(DATABASE));
        Ok(Store { shared: Arc::new(StoreInner { readers, queue, data_dir: data_dir.to_owned(), vault: Some(vault) }) })
    }

    /// Commits the logs of running jobs, for which no caller waits. Sends no request if nothing changed.
    pub async fn sync(&self) -> Result<()> {
        if self.shared.vault.is_none() {
            return Ok(());
        }
        let running = self.read(|view| view.running_logs()).await?;
        let mut rest = running.into_iter();
        loop {
            let data_dir = self.shared.data_dir.clone();
            let work = tokio::task::spawn_blocking(move || -> Result<_> {
                let mut grown = Vec::new();
                let mut bytes = 0;
                for (job, length) in rest.by_ref() {
                    if let Some(piece) = grown_log(&data_dir, &job, length)? {
                        bytes += piece.file.length;
                        grown.push(piece);
                    }
                    if bytes >= SYNC_BYTES {
                        break;
                    }
                }
                Ok((grown, rest))
            });
            let (grown, left) = work.await.context("reading logs panicked")??;
            rest = left;
            if grown.is_empty() {
                return Ok(());
            }
            self.write(move |tx| grown.into_iter().try_for_each(|piece| tx.keep_piece(piece))).await?;
        }
    }

    /// Checks right before an external effect that this server may still act; fails if it may not. Always succeeds without
    /// a vault.
    pub async fn may_act(&self) -> Result<()> {
        let Some(vault) = &self.shared.vault else { return Ok(()) };
        if let Some(reason) = vault.deposed.get() {
            return Err(VaultError::Deposed(reason.clone()).into());
        }
        Ok(vault.leader.may_act().await?)
    }

    /// Stores the outcome of a job in the inbox for the current leader. Fails without a vault.
    pub async fn leave_late_outcome(&self, end: LateOutcome) -> Result<()> {
        let Some(vault) = &self.shared.vault else { bail!("there is no vault to leave the end of job {} in", end.job) };
        Ok(vault.leader.leave_late_outcome(&end).await?)
    }

    /// Waits for all accepted writes, commits running logs, and closes the database; later reads and writes fail. A
    /// second call has no effect.
    pub async fn close(&self) -> Result<()> {
        if let Some(vault) = &self.shared.vault
            && !vault.closing.swap(true, Ordering::Relaxed)
            && vault.deposed.get().is_none()
            && let Err(error) = self.sync().await
        {
            tracing::warn!(error = format!("{error:#}"), "the last lines of running logs could not be kept");
        }
        self.shared.readers.close().await;
        self.shared.queue.close().await
    }
}

/// Reads the part of a running log that is not kept yet.
fn grown_log(data_dir: &Path, job: &JobId, kept: u64) -> Result<Option<Piece>> {
    match std::fs::metadata(data_dir.join(log_path(job))) {
        Ok(meta) if meta.len() > kept => read_piece(data_dir, job, kept, LOG_LIMIT),
        _ => Ok(None),
    }
}

impl View<'_> {
    /// Returns running jobs, and the number of kept bytes of their logs.
    pub(super) fn running_logs(&self) -> Result<Vec<(JobId, u64)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, (SELECT coalesce(sum(length), 0) FROM kept_files
                         WHERE path >= 'logs/' || id || '.log' AND path < 'logs/' || id || '.log/')
             FROM jobs WHERE state = 'running' ORDER BY seq",
        )?;
        let jobs = statement.query_map([], |row| Ok((row.get(0).map(JobId::stored)?, files::length(row, 1)?)))?;
        Ok(jobs.collect::<rusqlite::Result<_>>()?)
    }
}

/// Makes a state from before there was a vault the first state of an empty vault.
async fn adopt(data_dir: &Path, mut connection: Connection, leader: &Leader) -> Result<Connection> {
    let (dir, position) = (data_dir.to_owned(), leader.position());
    let (image, scratch) = tokio::task::spawn_blocking(move || -> Result<_> {
        name_files(&dir, &mut connection)?;
        let scratch = BaseFolder::new(&dir)?;
        drop(connection);
        let pinned = Pinned::begin(schema::open_reader(&dir.join(DATABASE))?, position)?;
        let image = pinned.image(&dir, &scratch)?.context("a file disappeared while the state was taken over")?;
        Ok((image, scratch))
    })
    .await??;
    let files = image.blobs.len();
    ensure!(
        leader.write_base(image).await.context("the state of this disk could not be taken over into the vault")?,
        "the vault has a base already: the state of this disk is not taken over"
    );
    let dir = data_dir.to_owned();
    let connection = tokio::task::spawn_blocking(move || -> Result<_> {
        drop(scratch);
        let connection = schema::open_writer(&dir.join(DATABASE), Durability::Bucket)?.connection;
        Origin::Cache.set(&connection)?;
        // The next start reads the origin in the file, not in the write-ahead log.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(connection)
    })
    .await??;
    tracing::info!(files, "the state of this disk was taken over into the vault");
    Ok(connection)
}

/// Records the files of a disk without kept files: usable plans with the right content, logs of known jobs, plan
/// artifacts, failed states.
fn name_files(data_dir: &Path, connection: &mut Connection) -> Result<()> {
    let transaction = connection.transaction()?;
    {
        let kept = KeptFiles::rows_only(data_dir);
        let (pending_audit, signals) = (PendingAudit::default(), CommitSignals::default());
        let view = View { connection: &transaction };
        let tx = Tx { view, kept: &kept, pending_audit: &pending_audit, signals: &signals };
        // An interrupted attempt may have recorded files that no longer exist.
        tx.execute("DELETE FROM kept_files WHERE seq IS NOT NULL", [])?;
        let plans: Vec<tidelock_core::domain::state::PlanRecord> =
            tx.records("SELECT record FROM plans WHERE consumed_by IS NULL ORDER BY seq", [])?;
        for plan in plans {
            let (Some(path), Some(sha256)) = (plan.path, plan.sha256) else { continue };
            match KeptFile::read(data_dir, &path)? {
                Some(file) if file.sha256 == sha256 => tx.keep_file(&file)?,
                _ => tracing::warn!(
                    plan = plan.id.as_str(),
                    path,
                    "a plan file is missing or changed: plan that project again"
                ),
            }
        }
        for folder in FOLDERS.iter().filter(|folder| **folder != "plans") {
            for path in files::found(data_dir, folder)? {
                if let Some(name) = path.strip_prefix("logs/") {
                    let job = JobId::parse(name.strip_suffix(".log").unwrap_or(name));
                    if job.map(|job| tx.job(&job)).transpose()?.flatten().is_none() {
                        continue;
                    }
                }
                if let Some(file) = KeptFile::read(data_dir, &path)? {
                    tx.keep_file(&file)?;
                }
            }
        }
    }
    Ok(transaction.commit()?)
}
