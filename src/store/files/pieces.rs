//! The log of a running job is kept in pieces, each with what was written since the one before, so that all of them together have
//! no more bytes than the log. The end of its job makes one file of them.
//!
//! A piece is a kept file whose path is the log's with the place where it begins. It has no file of its own in the data directory:
//! its content is that range of the log. A restore joins the pieces.

use super::{KeptFile, log_path, open};
use crate::store::{Tx, View};
use crate::vault::Hash;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rusqlite::params;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Digits of the place where a piece begins, so that paths of pieces are in the order of the log.
const DIGITS: usize = 12;

/// The path of the piece that begins after `from` bytes of the log at `log`.
fn piece_path(log: &str, from: u64) -> String {
    format!("{log}.{from:0DIGITS$}")
}

/// The path of the log that a kept file is a piece of, and where in it the piece begins; absent for every other file.
pub(in crate::store) fn piece_of(path: &str) -> Option<(&str, u64)> {
    let (log, from) = path.rsplit_once('.')?;
    let is_piece = log.starts_with("logs/")
        && Path::new(log).extension().is_some_and(|extension| extension == "log")
        && from.len() == DIGITS
        && from.bytes().all(|byte| byte.is_ascii_digit());
    Some((log, from.parse().ok().filter(|_| is_piece)?))
}

/// Paths of a log and of its pieces are at or after the first of these, and before the second: `/` follows `.`.
fn bounds(job: &str) -> (String, String) {
    let log = log_path(job);
    let end = format!("{log}/");
    (log, end)
}

/// What a log has from `from` to its end, or to `limit`, both counted from its beginning, and its content; absent when that is
/// nothing. The file may be growing. Blocks.
pub(in crate::store) fn read_piece(data_dir: &Path, job: &str, from: u64, limit: u64) -> Result<Option<Piece>> {
    let log = log_path(job);
    let Some((file, mode)) = open(data_dir, &log)? else { return Ok(None) };
    let end = file.metadata()?.len().min(limit);
    if end <= from {
        return Ok(None);
    }
    let content = range(&file, from, end - from).with_context(|| format!("cannot read {log} of the data directory"))?;
    let (sha256, length) = (Hash::of(&content).to_string(), content.len() as u64);
    let file = KeptFile { path: piece_path(&log, from), sha256, length, mode };
    Ok(Some(Piece { job: job.to_owned(), from, file, content: content.into() }))
}

/// A range of a file; an error when it ends before.
fn range(file: &File, from: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut content, from)?;
    Ok(content)
}

/// Something that a running log has more than is kept of it.
pub(in crate::store) struct Piece {
    job: String,
    from: u64,
    pub(in crate::store) file: KeptFile,
    content: Bytes,
}

/// Copies the content of a kept piece out of the log at `log`.
pub(in crate::store) fn copy_piece(log: &Path, from: u64, length: u64, to: &Path) -> std::io::Result<()> {
    std::fs::write(to, range(&File::open(log)?, from, length)?)
}

/// Makes one file of each log that was restored in pieces: `files` are all that were restored below `dir`. Blocks.
pub(in crate::store) fn join(dir: &Path, files: &[KeptFile]) -> Result<()> {
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
    /// Bytes that are kept of a log, in one file or in pieces.
    fn kept_of_log(&self, job: &str) -> Result<u64> {
        let (log, end) = bounds(job);
        let sum = "SELECT coalesce(sum(length), 0) FROM kept_files WHERE path >= ?1 AND path < ?2";
        let mut statement = self.connection.prepare_cached(sum)?;
        Ok(statement.query_row([log, end], |row| super::length(row, 0))?)
    }
}

impl Tx<'_> {
    /// Keeps a piece of a running log; not when its job has ended meanwhile, as all of it is kept then, nor when it does not
    /// continue what is kept.
    pub(in crate::store) fn keep_piece(&self, piece: Piece) -> Result<()> {
        let running = (self.connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1 AND state = 'running'")?)
            .exists([&piece.job])?;
        if running && self.kept_of_log(&piece.job)? == piece.from {
            self.keep_content(&piece.file, piece.content)?;
        }
        Ok(())
    }

    /// Keeps a log that is not written to any more as one file instead of its pieces; one that is kept so already, or that there
    /// is none of, is left alone.
    pub(in crate::store) fn keep_log(&self, job: &str) -> Result<()> {
        let (path, end) = bounds(job);
        let length = match self.kept.data_dir.join(&path).symlink_metadata() {
            Ok(meta) => meta.len(),
            // A log is not worth the record that a job has ended. What is kept of it would only be missed in the next base.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return self.drop_log(job);
            }
            Err(error) => return Err(error).with_context(|| format!("cannot keep {path}")),
        };
        if self.kept_file(&path)?.is_some_and(|kept| kept.length == length) {
            return Ok(());
        }
        let Some(whole) = KeptFile::of(&self.kept.data_dir, &path)? else { return Ok(()) };
        self.execute("DELETE FROM kept_files WHERE path > ?1 AND path < ?2", params![path, end])?;
        self.keep_file(&whole)
    }

    /// Keeps nothing of a log any longer; the caller removes the file itself.
    pub(in crate::store) fn drop_log(&self, job: &str) -> Result<()> {
        let (log, end) = bounds(job);
        self.execute("DELETE FROM kept_files WHERE path >= ?1 AND path < ?2", params![log, end])?;
        Ok(())
    }
}
