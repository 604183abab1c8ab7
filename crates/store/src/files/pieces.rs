//! Pieces in which the log of a running job is kept. Each has the text written since the previous one, so that together
//! they are as long as the log. When the job ends, one file replaces the pieces.
//!
//! A piece is a kept file whose path is the log's with the piece's start offset. It has no file in the data directory:
//! its content is that range of the log. A restore joins the pieces.

use super::{KeptFile, log_path, open};
use crate::{Tx, View};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rusqlite::params;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidelock_core::domain::JobId;
use tidelock_vault::Hash;

/// Digits of a piece's start offset, so that the paths sort in the order of the log.
const DIGITS: usize = 12;

/// Returns the path of the piece that starts at byte `from` of the log at `log`.
fn piece_path(log: &str, from: u64) -> String {
    format!("{log}.{from:0DIGITS$}")
}

/// Returns the log's path and the start offset of a piece; `None` for other kept files.
pub(crate) fn piece_of(path: &str) -> Option<(&str, u64)> {
    let (log, from) = path.rsplit_once('.')?;
    let is_piece = log.starts_with("logs/")
        && Path::new(log).extension().is_some_and(|extension| extension == "log")
        && from.len() == DIGITS
        && from.bytes().all(|byte| byte.is_ascii_digit());
    Some((log, from.parse().ok().filter(|_| is_piece)?))
}

/// Returns bounds of the paths of a log and its pieces: at or after the first, before the second (`/` follows `.`).
fn bounds(job: &JobId) -> (String, String) {
    let log = log_path(job);
    let end = format!("{log}/");
    (log, end)
}

/// Reads the text of a log from `from` to its end, or to `limit` if that is less. `None` if there is none. The file may
/// be growing. Blocks.
pub(crate) fn read_piece(data_dir: &Path, job: &JobId, from: u64, limit: u64) -> Result<Option<Piece>> {
    let log = log_path(job);
    let Some((file, mode)) = open(data_dir, &log)? else { return Ok(None) };
    let end = file.metadata()?.len().min(limit);
    if end <= from {
        return Ok(None);
    }
    let content = range(&file, from, end - from).with_context(|| format!("cannot read {log} of the data directory"))?;
    let (sha256, length) = (Hash::of(&content).to_string(), content.len() as u64);
    let file = KeptFile { path: piece_path(&log, from), sha256, length, mode };
    Ok(Some(Piece { job: job.clone(), from, file, content: content.into() }))
}

/// Reads a range of a file; an error if the file is shorter.
fn range(file: &File, from: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut content, from)?;
    Ok(content)
}

/// Text of a running log that is not kept yet.
pub(crate) struct Piece {
    job: JobId,
    from: u64,
    pub(crate) file: KeptFile,
    content: Bytes,
}

/// Copies the content of a kept piece out of the log at `log`.
pub(crate) fn copy_piece(log: &Path, from: u64, length: u64, to: &Path) -> std::io::Result<()> {
    std::fs::write(to, range(&File::open(log)?, from, length)?)
}

/// Joins the pieces of each restored log into one file; `files` are all restored files below `dir`. Blocks.
pub(crate) fn join(dir: &Path, files: &[KeptFile]) -> Result<()> {
    for file in files {
        let Some((log, from)) = piece_of(&file.path) else { continue };
        let (whole, piece) = (dir.join(log), dir.join(&file.path));
        let joined = || -> Result<()> {
            if from == 0 {
                return Ok(std::fs::rename(&piece, &whole)?);
            }
            let mut to = File::options().append(true).open(&whole)?;
            let found = to.metadata()?.len();
            ensure!(found == from, "{found} bytes come before it");
            std::io::copy(&mut File::open(&piece)?, &mut to)?;
            Ok(std::fs::remove_file(&piece)?)
        };
        joined().with_context(|| format!("the piece {} of a log cannot be joined", file.path))?;
    }
    Ok(())
}

impl View<'_> {
    /// Returns the number of kept bytes of a log, in one file or in pieces.
    fn kept_of_log(&self, job: &JobId) -> Result<u64> {
        let (log, end) = bounds(job);
        let sum = "SELECT coalesce(sum(length), 0) FROM kept_files WHERE path >= ?1 AND path < ?2";
        let mut statement = self.connection.prepare_cached(sum)?;
        Ok(statement.query_row([log, end], |row| super::length(row, 0))?)
    }
}

impl Tx<'_> {
    /// Keeps a piece of a running log. No effect if the job has ended meanwhile, since the whole log is kept then, or
    /// if the piece does not continue the kept ones.
    pub(crate) fn keep_piece(&self, piece: Piece) -> Result<()> {
        let running = (self.connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1 AND state = 'running'")?)
            .exists([piece.job.as_str()])?;
        if running && self.kept_of_log(&piece.job)? == piece.from {
            self.keep_content(&piece.file, piece.content)?;
        }
        Ok(())
    }

    /// Keeps a finished log as one file instead of pieces. No effect if it is kept so already, or if there is no log.
    pub(crate) fn keep_log(&self, job: &JobId) -> Result<()> {
        let (path, end) = bounds(job);
        let length = match self.kept.data_dir.join(&path).symlink_metadata() {
            Ok(meta) => meta.len(),
            // A missing log must not prevent the record of the job's end. Its kept pieces would be missing in the next
            // base.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return self.drop_log(job);
            }
            Err(error) => return Err(error).with_context(|| format!("cannot keep {path}")),
        };
        if self.kept_file(&path)?.is_some_and(|kept| kept.length == length) {
            return Ok(());
        }
        let Some(whole) = KeptFile::read(&self.kept.data_dir, &path)? else { return Ok(()) };
        self.execute("DELETE FROM kept_files WHERE path > ?1 AND path < ?2", params![path, end])?;
        self.keep_file(&whole)
    }

    /// Stops keeping a log; the caller removes its file.
    pub(crate) fn drop_log(&self, job: &JobId) -> Result<()> {
        let (log, end) = bounds(job);
        self.execute("DELETE FROM kept_files WHERE path >= ?1 AND path < ?2", params![log, end])?;
        Ok(())
    }
}
