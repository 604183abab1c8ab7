//! Logs of jobs: files under `<data_dir>/logs`, readable while they grow, after the job's end and after a restart.

use std::path::PathBuf;
use tokio::sync::broadcast;

/// All logs.
#[derive(Clone)]
pub struct Logs {
    _dir: PathBuf,
}

/// Writes one job's log; dropping it ends the log.
pub struct LogWriter {}

/// A log to read: what is there, and what comes.
pub struct LogReader {
    /// Text so far.
    pub so_far: String,
    /// Lines to come; closed when the job ends. Absent when it has ended.
    pub lines: Option<broadcast::Receiver<String>>,
}

impl Logs {
    /// Logs below this data directory.
    pub fn new(data_dir: &std::path::Path) -> Logs {
        Logs { _dir: data_dir.join("logs") }
    }

    /// Begins the log of a job.
    pub fn create(&self, _job: &str) -> anyhow::Result<LogWriter> {
        todo!()
    }

    /// Reads one; absent when there is no such log. Job ids that are not 32 hex digits are never a path.
    pub async fn read(&self, _job: &str) -> anyhow::Result<Option<LogReader>> {
        todo!()
    }

    /// Removes one; absent is fine.
    pub fn remove(&self, _job: &str) {
        todo!()
    }
}

impl LogWriter {
    /// Adds a line. Bounded: past the limit a notice is written once and the rest is dropped.
    pub fn line(&self, _line: &str) {
        todo!()
    }
}
