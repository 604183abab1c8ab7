//! Child processes: the only place that spawns any. Own process group, streamed lines, limits, timeout, SIGINT before SIGKILL.

use secrecy::SecretString;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One program to run. The environment is exactly `env`: nothing of ours is inherited.
pub struct Invocation {
    /// Program, looked up on `PATH` of `env` when it has no slash.
    pub program: PathBuf,
    /// Arguments; never a secret.
    pub args: Vec<String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Complete environment.
    pub env: Vec<(String, String)>,
    /// After this long it gets SIGINT, and SIGKILL [`Invocation::grace`] later.
    pub timeout: Duration,
    /// Between SIGINT and SIGKILL, at a timeout or cancellation.
    pub grace: Duration,
    /// Bytes of output that are kept (head and tail); the rest is counted and named in the text.
    pub output_limit: usize,
    /// Other user to run as, where we may.
    pub run_as: Option<RunAs>,
    /// Handed to the child as an anonymous file on descriptor 3, for git's credential helper.
    pub secret_file: Option<SecretString>,
}

/// User and group ids for children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// How a process ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Exit code; absent when a signal ended it.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Standard output and error in order of arrival by lines, redacted, bounded.
    pub output: String,
    /// Standard output alone, redacted, bounded.
    pub stdout: String,
    /// It was interrupted because of the token.
    pub cancelled: bool,
    /// It ran into its timeout.
    pub timed_out: bool,
}

/// What masks secrets in every stream.
#[derive(Clone, Default)]
pub struct Redactor {
    _secrets: std::sync::Arc<Vec<SecretString>>,
}

impl Redactor {
    /// Masks each of these wherever it occurs, also split over chunks. Values shorter than four characters are left alone.
    pub fn new(secrets: Vec<SecretString>) -> Redactor {
        Redactor { _secrets: std::sync::Arc::new(secrets) }
    }

    /// The text with secrets replaced by `<redacted>`.
    pub fn redact(&self, _text: &str) -> String {
        todo!()
    }
}

/// Gets each line as it arrives, redacted, without its newline.
pub type LineSink<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Runs it to its end. An error means that it could not be started or waited for; a bad exit is a [`Finished`].
pub async fn run(
    _invocation: Invocation,
    _redactor: &Redactor,
    _cancel: &CancellationToken,
    _sink: Option<LineSink<'_>>,
) -> anyhow::Result<Finished> {
    todo!()
}
