//! Logs of jobs: files under `<data_dir>/logs` that can be read while they grow, after their job has ended, and after a
//! restart.
//!
//! Each line is one write to the file, after which readers are notified of the new length. Readers read the file in
//! pieces at their own pace, so they miss no line and need no buffer. Written lines survive a crash of the process.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::JobId;
use tidelock_core::domain::state::Job;
use tokio::sync::watch;

/// Maximum size of a log, in bytes; the rest is dropped.
pub(super) const LOG_LIMIT: u64 = 8 << 20;

/// Maximum length of a line, in bytes; longer lines are split.
const LINE_LIMIT: usize = 16 << 10;

/// Bytes that a reader reads at once. Larger than [`LINE_LIMIT`], so that each piece has a whole line.
const PIECE: u64 = 32 << 10;

/// Last line of a log that was too long.
const LIMIT_NOTICE: &str = "[tidelock: this log reached its limit of 8 MiB; the rest is not kept]";

/// Access to all logs. Clones share the logs that are being written; two values from [`Logs::new`] do not.
#[derive(Clone)]
pub struct Logs {
    dir: PathBuf,
    live: Arc<Mutex<HashMap<JobId, Arc<Mutex<Live>>>>>,
}

/// A log that is being written.
struct Live {
    file: File,
    /// Number of written bytes. The channel closes when the log ends.
    length: watch::Sender<u64>,
    /// Number of written lines.
    lines: u64,
    full: bool,
}

/// Writes one job's log; dropping it ends the log.
pub struct LogWriter {
    job: JobId,
    log: Arc<Mutex<Live>>,
    logs: Logs,
}

/// The text of a log at one moment, for threads that may block.
pub struct LogText {
    file: Arc<File>,
    /// Number of its bytes.
    length: u64,
}

/// Reads a log and follows it while it grows.
pub struct LogReader {
    file: Arc<File>,
    /// Bytes read so far.
    taken: u64,
    /// Bytes written so far.
    length: u64,
    /// Reports new lengths; absent if the log had ended.
    growth: Option<watch::Receiver<u64>>,
}

impl Logs {
    /// Returns access to the logs below this data directory.
    pub fn new(data_dir: &Path) -> Logs {
        Logs { dir: data_dir.join("logs"), live: Arc::default() }
    }

    /// Creates the log of a job, or continues the one of an earlier process. A log has one writer at a time.
    pub fn create(&self, job: &JobId) -> Result<LogWriter> {
        let Some(path) = self.path(job) else { bail!("{job:?} is no job id: it has no log") };
        // Steps may run as another user, and output may contain secrets: the folder is closed to others.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .with_context(|| format!("cannot make {}", self.dir.display()))?;
        let mut live = lock(&self.live);
        let Entry::Vacant(place) = live.entry(job.clone()) else { bail!("the log of job {job} is being written") };
        let file = (OpenOptions::new().append(true).create(true).mode(0o600).open(&path))
            .with_context(|| format!("cannot write the log {}", path.display()))?;
        let length = file.metadata()?.len();
        let lines = if length == 0 { 0 } else { count_lines(&path)? };
        let log = Arc::new(Mutex::new(Live { file, length: watch::Sender::new(length), lines, full: false }));
        place.insert(log.clone());
        Ok(LogWriter { job: job.clone(), log, logs: self.clone() })
    }

    /// Returns true if this process runs the job: it writes the log from before the job's start is recorded until after
    /// its end is. A job that is recorded as running but whose log is not written does not run.
    pub fn is_being_written(&self, job: &JobId) -> bool {
        lock(&self.live).contains_key(job)
    }

    /// Returns true if a job that is recorded as running may run: in this process, or at an executor, where it needs no server.
    pub fn may_run(&self, job: &Job) -> bool {
        job.remote.is_some() || self.is_being_written(&job.id)
    }

    /// Opens a log for reading. `None` if there is none. A job ID that is not 32 hex digits is never used as a path.
    pub async fn read(&self, job: &JobId) -> Result<Option<LogReader>> {
        let (logs, job) = (self.clone(), job.clone());
        tokio::task::spawn_blocking(move || logs.join(&job)).await.context("reading a log panicked")?
    }

    fn join(&self, job: &JobId) -> Result<Option<LogReader>> {
        let Some(path) = self.path(job) else { return Ok(None) };
        let live = lock(&self.live);
        // Under the same lock as `create`, so a log without a writer is complete.
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read the log {}", path.display())),
        };
        let growth = live.get(job).map(|log| lock(log).length.subscribe());
        let length = match &growth {
            Some(growth) => *growth.borrow(),
            None => file.metadata()?.len(),
        };
        Ok(Some(LogReader { file: Arc::new(file), taken: 0, length, growth }))
    }

    /// Removes a log, which may be absent. A log that is being written stays.
    pub fn remove(&self, job: &JobId) {
        let Some(path) = self.path(job) else { return };
        let live = lock(&self.live);
        if live.contains_key(job) {
            return;
        }
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a log could not be removed");
        }
    }

    fn path(&self, job: &JobId) -> Option<PathBuf> {
        JobId::parse(job.as_str()).map(|job| self.dir.join(format!("{job}.log")))
    }
}

impl LogWriter {
    /// Appends a line, or several if the text has line breaks. At the size limit one notice is written and the rest is
    /// dropped.
    pub fn line(&self, line: &str) {
        self.numbered_line(line);
    }

    /// Does the same, and returns the numbers of its lines in the log, from 1; `None` if the log is full.
    pub fn numbered_line(&self, line: &str) -> Option<Range<u64>> {
        let mut log = lock(&self.log);
        let first = log.lines + 1;
        for line in line.split('\n') {
            let mut rest = line;
            while rest.len() > LINE_LIMIT {
                let end = (0..=LINE_LIMIT).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(LINE_LIMIT);
                log.add(&rest[..end]);
                rest = &rest[end..];
            }
            log.add(rest);
        }
        (!log.full).then_some(first..log.lines + 1)
    }

    /// Returns the number of lines of the log.
    pub fn lines(&self) -> u64 {
        lock(&self.log).lines
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // Dropping the last sender ends the log for readers.
        lock(&self.logs.live).remove(&self.job);
    }
}

impl Live {
    fn add(&mut self, line: &str) {
        if self.full {
            return;
        }
        let room = LOG_LIMIT.saturating_sub(*self.length.borrow());
        let needed = line.len() + LIMIT_NOTICE.len() + 2;
        if needed as u64 > room {
            self.full = true;
            self.put(LIMIT_NOTICE);
        } else {
            self.put(line);
        }
    }

    fn put(&mut self, line: &str) {
        let whole = format!("{line}\n");
        if let Err(error) = self.file.write_all(whole.as_bytes()) {
            // The job continues without a log.
            tracing::warn!(%error, "a log could not be written to; the rest of it is not kept");
            self.full = true;
            return;
        }
        self.lines += 1;
        self.length.send_modify(|length| *length += whole.len() as u64);
    }
}

impl LogReader {
    /// Returns true if the log was being written when it was opened and its end has not been read.
    pub fn is_live(&self) -> bool {
        self.growth.is_some()
    }

    /// Reads the next whole lines, at most 32 KiB, with their line feeds. Waits while the log grows; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        while self.taken >= self.length {
            let Some(growth) = &mut self.growth else { return Ok(None) };
            if growth.changed().await.is_err() {
                self.length = *growth.borrow();
                self.growth = None;
            } else {
                self.length = *growth.borrow_and_update();
            }
        }
        let piece = self.piece(self.length.min(self.taken + PIECE)).await?;
        // An incomplete line comes with the next piece.
        let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(piece.len(), |end| end + 1);
        if whole == 0 {
            // The file was removed or truncated.
            (self.taken, self.growth) = (self.length, None);
            return Ok(None);
        }
        self.taken += whole as u64;
        Ok(Some(text(&piece[..whole])))
    }

    /// Reads all unread text, without waiting for more.
    pub async fn so_far(&mut self) -> Result<String> {
        if let Some(growth) = &mut self.growth {
            self.length = *growth.borrow_and_update();
        }
        let rest = self.piece(self.length).await?;
        self.taken = self.length;
        Ok(text(&rest))
    }

    /// Returns the whole text so far.
    pub fn text(&mut self) -> LogText {
        if let Some(growth) = &mut self.growth {
            self.length = *growth.borrow_and_update();
        }
        LogText { file: self.file.clone(), length: self.length }
    }

    /// Returns a reader that ends where the log ends now.
    pub fn until_now(mut self) -> LogReader {
        let LogText { length, .. } = self.text();
        LogReader { length, growth: None, ..self }
    }

    /// Reads the bytes of the file from the reader's position up to `end`.
    async fn piece(&self, end: u64) -> Result<Vec<u8>> {
        let (file, from) = (self.file.clone(), self.taken);
        let read = move || -> std::io::Result<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or_default()];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], from + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        };
        tokio::task::spawn_blocking(read).await.context("reading a log panicked")?.context("cannot read a log")
    }
}

impl LogText {
    /// Calls `each` for every line, without its line feed. Holds one line at a time.
    pub fn each_line(&self, each: &mut dyn FnMut(&str)) -> Result<()> {
        let cursor = LogCursor { file: &self.file, at: 0 };
        let mut reader = BufReader::with_capacity(PIECE as usize, cursor.take(self.length));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).context("cannot read a log")? > 0 {
            each(&String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)));
            line.clear();
        }
        Ok(())
    }
}

/// A place in the file of a log, which others read too.
struct LogCursor<'a> {
    file: &'a File,
    at: u64,
}

impl Read for LogCursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Converts bytes of a log to text. The server writes whole characters; a file changed by others may contain invalid ones.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the number of lines of a log that an earlier process has written.
fn count_lines(path: &Path) -> Result<u64> {
    let (mut log, mut lines) = (BufReader::new(File::open(path)?), 0);
    while log.skip_until(b'\n')? > 0 {
        lines += 1;
    }
    Ok(lines)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
