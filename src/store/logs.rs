//! Logs of jobs: files under `<data_dir>/logs`, readable while they grow, after the job's end and after a restart.
//!
//! Each line goes to the file in one write; then readers are told the new length. A reader takes the text from the file, in pieces,
//! at its own pace: it misses nothing and needs no memory for what it has not taken. What was written survives the death of the
//! process.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Size of one log, bytes; what comes after is dropped.
pub(super) const LOG_LIMIT: u64 = 8 << 20;

/// Size of one line, bytes; a longer one becomes several.
const LINE_LIMIT: usize = 16 << 10;

/// Bytes that a reader takes from the file at once. More than [`LINE_LIMIT`], so that there is a whole line in each piece.
const PIECE: u64 = 32 << 10;

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
    /// Bytes that are written; what readers may take. Its senders end with the log.
    length: watch::Sender<u64>,
    full: bool,
}

/// Writes one job's log; dropping it ends the log.
pub struct LogWriter {
    job: String,
    log: Arc<Mutex<Live>>,
    logs: Logs,
}

/// A log to read: what is there, and what comes.
pub struct LogReader {
    file: Arc<File>,
    /// Bytes taken so far.
    taken: u64,
    /// Bytes that are written.
    length: u64,
    /// Tells when there are more; absent when the log had ended.
    growth: Option<watch::Receiver<u64>>,
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
        let log = Arc::new(Mutex::new(Live { file, length: watch::Sender::new(length), full: false }));
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
        let growth = live.get(job).map(|log| lock(log).length.subscribe());
        let length = match &growth {
            Some(growth) => *growth.borrow(),
            None => file.metadata()?.len(),
        };
        Ok(Some(LogReader { file: Arc::new(file), taken: 0, length, growth }))
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
        // The last one that sends lengths goes with it.
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
            // A log is not worth stopping the job.
            tracing::warn!(%error, "a log could not be written to; the rest of it is not kept");
            self.full = true;
            return;
        }
        self.length.send_modify(|length| *length += whole.len() as u64);
    }
}

impl LogReader {
    /// Whether the log was being written when it was opened.
    pub fn is_live(&self) -> bool {
        self.growth.is_some()
    }

    /// The next whole lines, at most 32 KiB of them, each with its line feed; waits for them where the log still grows. Absent at
    /// the end.
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
        // A line that is cut off comes with the next piece.
        let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(piece.len(), |end| end + 1);
        if whole == 0 {
            // The file was removed under us, or cut.
            (self.taken, self.growth) = (self.length, None);
            return Ok(None);
        }
        self.taken += whole as u64;
        Ok(Some(text(&piece[..whole])))
    }

    /// All that is there now and was not taken yet, without waiting for more.
    pub async fn so_far(&mut self) -> Result<String> {
        if let Some(growth) = &mut self.growth {
            self.length = *growth.borrow_and_update();
        }
        let rest = self.piece(self.length).await?;
        self.taken = self.length;
        Ok(text(&rest))
    }

    /// Bytes of the file from where this reader is up to `end`.
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

/// What was written are whole characters; another program's bytes may be none.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
