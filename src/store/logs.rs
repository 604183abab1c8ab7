//! Logs of jobs: files under `<data_dir>/logs`, readable while they grow, after the job's end and after a restart.
//!
//! Each line goes to the file in one write and then to the readers, both under one lock. A reader joins under the same lock,
//! so that its text so far ends exactly where its lines to come begin. What was written survives the death of the process.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Size of one log, bytes; what comes after is dropped.
pub(super) const LOG_LIMIT: u64 = 8 << 20;

/// Size of one line, bytes; a longer one becomes several.
const LINE_LIMIT: usize = 16 << 10;

/// Lines that a reader may be behind before it misses some.
const LAG_LIMIT: usize = 512;

/// Length of a job id, hex digits.
const JOB_ID_LENGTH: usize = 32;

/// Last line of a log that was too long.
const LIMIT_NOTICE: &str = "[tidelock: this log reached its limit of 8 MiB; the rest is not kept]";

/// All logs. Clones share what is being written; two from [`Logs::new`] do not.
#[derive(Clone)]
pub struct Logs {
    dir: PathBuf,
    live: Arc<Mutex<HashMap<String, Arc<Mutex<Live>>>>>,
}

/// A log that is being written.
struct Live {
    file: File,
    length: u64,
    full: bool,
    /// Absent once the log has ended.
    lines: Option<broadcast::Sender<String>>,
}

/// Writes one job's log; dropping it ends the log.
pub struct LogWriter {
    job: String,
    log: Arc<Mutex<Live>>,
    logs: Logs,
}

/// A log to read: what is there, and what comes.
pub struct LogReader {
    /// Text so far, each line with its line feed.
    pub so_far: String,
    /// Lines to come, without line feed; closed when the job ends. Absent when it has ended.
    pub lines: Option<broadcast::Receiver<String>>,
}

impl Logs {
    /// Logs below this data directory.
    pub fn new(data_dir: &std::path::Path) -> Logs {
        Logs { dir: data_dir.join("logs"), live: Arc::default() }
    }

    /// Begins the log of a job, or goes on with what an earlier process wrote of it. A log has one writer at a time.
    pub fn create(&self, job: &str) -> Result<LogWriter> {
        let Some(path) = self.path(job) else { bail!("{job:?} is no job id: it has no log") };
        // Neither readable nor writable for what runs as another user: output may hold what only this server should show.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .with_context(|| format!("cannot make {}", self.dir.display()))?;
        let mut live = lock(&self.live);
        let Entry::Vacant(place) = live.entry(job.to_owned()) else { bail!("the log of job {job} is being written") };
        let file = (OpenOptions::new().append(true).create(true).mode(0o600).open(&path))
            .with_context(|| format!("cannot write the log {}", path.display()))?;
        let length = file.metadata()?.len();
        let (lines, _) = broadcast::channel(LAG_LIMIT);
        let log = Arc::new(Mutex::new(Live { file, length, full: false, lines: Some(lines) }));
        place.insert(log.clone());
        Ok(LogWriter { job: job.to_owned(), log, logs: self.clone() })
    }

    /// Whether this process has the job in hand: it writes the log from before the job's beginning is recorded until its end is. A
    /// record that says that a job runs, without this, is of a job that nobody has.
    pub fn is_being_written(&self, job: &str) -> bool {
        lock(&self.live).contains_key(job)
    }

    /// Reads one; absent when there is no such log. Job ids that are not 32 hex digits are never a path.
    pub async fn read(&self, job: &str) -> Result<Option<LogReader>> {
        let (logs, job) = (self.clone(), job.to_owned());
        tokio::task::spawn_blocking(move || logs.join(&job)).await.context("reading a log panicked")?
    }

    fn join(&self, job: &str) -> Result<Option<LogReader>> {
        let Some(path) = self.path(job) else { return Ok(None) };
        let live = lock(&self.live);
        // Under the same lock as `create`: a log that is not live here has no writer, so that its file is whole.
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read the log {}", path.display())),
        };
        let log = live.get(job).cloned();
        drop(live);
        let (lines, length) = match &log {
            Some(log) => {
                let log = lock(log);
                (log.lines.as_ref().map(broadcast::Sender::subscribe), log.length)
            }
            None => (None, u64::MAX),
        };
        let mut text = Vec::new();
        file.take(length).read_to_end(&mut text).with_context(|| format!("cannot read the log {}", path.display()))?;
        let so_far =
            String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(Some(LogReader { so_far, lines }))
    }

    /// Removes one; absent is fine, and one that is being written stays.
    pub fn remove(&self, job: &str) {
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

    fn path(&self, job: &str) -> Option<PathBuf> {
        let valid = job.len() == JOB_ID_LENGTH && job.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| self.dir.join(format!("{job}.log")))
    }
}

impl LogWriter {
    /// Adds a line; a text of several lines is added as several. Bounded: past the limit a notice is written once and the
    /// rest is dropped.
    pub fn line(&self, line: &str) {
        let mut log = lock(&self.log);
        for line in line.split('\n') {
            let mut rest = line;
            while rest.len() > LINE_LIMIT {
                let end = (0..=LINE_LIMIT).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(LINE_LIMIT);
                log.add(&rest[..end]);
                rest = &rest[end..];
            }
            log.add(rest);
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        lock(&self.logs.live).remove(&self.job);
        lock(&self.log).lines = None;
    }
}

impl Live {
    fn add(&mut self, line: &str) {
        if self.full {
            return;
        }
        let room = LOG_LIMIT.saturating_sub(self.length);
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
            // Its length is not known any more; a log is not worth stopping the job.
            tracing::warn!(%error, "a log could not be written to; the rest of it is not kept");
            self.full = true;
            self.length = u64::MAX;
            return;
        }
        self.length += whole.len() as u64;
        if let Some(lines) = self.lines.as_ref().filter(|lines| lines.receiver_count() > 0) {
            let _ = lines.send(line.to_owned());
        }
    }
}

impl LogReader {
    /// The next line to come; absent at the end. Whoever reads too slowly gets one line that says what is missing, and goes on.
    pub async fn next_line(&mut self) -> Option<String> {
        use broadcast::error::RecvError;
        match self.lines.as_mut()?.recv().await {
            Ok(line) => Some(line),
            Err(RecvError::Lagged(missed)) => Some(lag_notice(missed)),
            Err(RecvError::Closed) => {
                self.lines = None;
                None
            }
        }
    }
}

/// What a reader is shown in place of lines that it was too slow for.
pub fn lag_notice(missed: u64) -> String {
    format!("[tidelock: {missed} lines were too fast for this page; reload it to see all of them]")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
