//! Child processes. Only this module starts any: in their own process group, with streamed lines, limits, a timeout, and SIGINT before
//! SIGKILL. After [`adopt_orphans`], processes that a child leaves behind are ended with it.

mod confinement;
mod detached;
mod group;
mod orphans;
mod output;
mod path;
mod protection;
mod redact;
#[cfg(test)]
mod tests;
mod users;

pub use crate::platform::Reach;
pub use confinement::{Confinement, SharedBounds};
pub use detached::{Detached, DetachedProgram, ProgramEnd};
pub use orphans::adopt_orphans;
pub use redact::{MASK, Masks, Redactor, SHORTEST_SECRET};
pub use users::{RunAs, RunAsUsers};

use crate::platform;
use anyhow::Context;
use command_fds::{CommandFdExt, FdMapping};
use group::{let_children_be_interrupted, spawn};
use orphans::Lineage;
use output::{Bounded, Lines, Unread};
pub use output::{LINE_LIMIT, printed_text};
pub use path::find_on_path;
pub use protection::{Protection, StepConfinement};
use rustix::process::Signal;
use secrecy::SecretString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Default of [`Invocation::output_limit`], in bytes.
const OUTPUT_LIMIT: usize = 4 << 20;
/// Default of [`Invocation::timeout`].
const TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Default of [`Invocation::grace`].
const GRACE: Duration = Duration::from_secs(10);
/// Time that the pipes may stay open after the child's end: its children may hold them.
const PIPE_CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Most bytes per read.
const CHUNK: usize = 32 << 10;
/// Descriptor of the child's [`Invocation::secret_file`].
const SECRET_FD: i32 = 3;
/// Limit of open files that [`harden_self`] requests, for three pipes per child, sockets and databases.
const OPEN_FILES: u64 = 65_536;

/// Returns a credential helper for git that answers `get` from the lines of [`Invocation::secret_file`] that begin with this number and a
/// space.
pub fn numbered_credential_helper(number: usize) -> String {
    platform::numbered_credential_helper(number)
}

/// Called with each line of standard output as it arrives, redacted. The bytes that it returns are written to standard input.
pub type Answering = Box<dyn FnMut(&str) -> Option<Vec<u8>> + Send>;

/// A program to run. Its environment is exactly `env`; nothing is inherited.
pub struct Invocation {
    /// Program, looked up on `PATH` of `env` when it has no slash.
    pub program: PathBuf,
    /// Arguments; never a secret.
    pub args: Vec<String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Complete environment.
    pub env: Vec<(String, String)>,
    /// Time until SIGINT; SIGKILL follows [`Invocation::grace`] later.
    pub timeout: Duration,
    /// Time between SIGINT and SIGKILL, at a timeout or cancellation.
    pub grace: Duration,
    /// Most bytes of output that are kept (head and tail); the text states how many are left out.
    pub output_limit: usize,
    /// Most bytes of standard output that are kept unchanged for the caller to read.
    pub read_limit: usize,
    /// True if standard output is for the caller only: neither logged nor kept in [`Finished::output`].
    pub hides_stdout: bool,
    /// User to run as, if the server may change to it.
    pub run_as: Option<RunAs>,
    /// Limits on the files that it can reach. If absent, it reaches every file that its user can.
    pub confinement: Option<Arc<Confinement>>,
    /// Secret that is passed to the child as an anonymous file on descriptor 3, for git's credential helper.
    pub secret_file: Option<SecretString>,
    /// Open files that the child inherits, with their descriptor numbers in the child.
    pub open_files: Vec<(Arc<OwnedFd>, i32)>,
    /// Standard input; empty by default.
    pub stdin: Option<Vec<u8>>,
    /// Answers the program's questions.
    pub answering: Option<Answering>,
    /// True if it gets the processor, and on most disks the disk too, only when no other process wants them.
    pub low_priority: bool,
}

impl Invocation {
    /// Returns a program with an empty environment, one hour of time, ten seconds of grace and 4 MiB of output, as the server's user.
    pub fn new<A: Into<String>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
        dir: impl Into<PathBuf>,
    ) -> Invocation {
        Invocation {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            dir: dir.into(),
            env: Vec::new(),
            timeout: TIMEOUT,
            grace: GRACE,
            output_limit: OUTPUT_LIMIT,
            read_limit: 0,
            hides_stdout: false,
            run_as: None,
            confinement: None,
            secret_file: None,
            open_files: Vec::new(),
            stdin: None,
            answering: None,
            low_priority: false,
        }
    }

    /// Sets the complete environment.
    pub fn env(mut self, env: Vec<(String, String)>) -> Invocation {
        self.env = env;
        self
    }

    /// Sets the timeout.
    pub fn timeout(mut self, timeout: Duration) -> Invocation {
        self.timeout = timeout;
        self
    }

    /// Sets the time between SIGINT and SIGKILL.
    pub fn grace(mut self, grace: Duration) -> Invocation {
        self.grace = grace;
        self
    }

    /// Sets the most bytes of output to keep.
    pub fn output_limit(mut self, bytes: usize) -> Invocation {
        self.output_limit = bytes;
        self
    }

    /// Sets the most bytes of standard output to keep for [`Finished::read`].
    pub fn reading(mut self, bytes: usize) -> Invocation {
        self.read_limit = bytes;
        self
    }

    /// Sets the user.
    pub fn run_as(mut self, user: Option<RunAs>) -> Invocation {
        self.run_as = user;
        self
    }

    /// Sets the secret on descriptor 3.
    pub fn secret_file(mut self, secret: Option<SecretString>) -> Invocation {
        self.secret_file = secret;
        self
    }

    /// Sets standard input.
    pub fn stdin(mut self, bytes: Vec<u8>) -> Invocation {
        self.stdin = Some(bytes);
        self
    }

    /// Lets all other processes go first, if `low`.
    pub fn low_priority(mut self, low: bool) -> Invocation {
        self.low_priority = low;
        self
    }

    /// Returns the program's path: unchanged if it has a slash, otherwise the first executable of that name on `PATH` of `env`.
    fn resolve(&self) -> anyhow::Result<PathBuf> {
        if self.program.components().count() > 1 || self.program.is_absolute() {
            return Ok(self.program.clone());
        }
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        find_on_path(path, &self.program)
            .with_context(|| format!("{} is not on PATH ({path:?}); install it there", self.program.display()))
    }

    fn command(&self) -> anyhow::Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(self.resolve()?);
        command.args(&self.args).current_dir(&self.dir).env_clear();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.stdin.is_some() || self.answering.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(user) = self.run_as {
            // The standard library drops supplementary groups with the user ID if it is permitted to.
            command.gid(user.gid).uid(user.uid);
        }
        let secret = self.secret_file.as_ref().map(platform::secret_file).transpose();
        let secret = secret.context("cannot make an anonymous file for a secret")?;
        let secret = secret.map(|parent_fd| FdMapping { parent_fd, child_fd: SECRET_FD });
        let mut mappings: Vec<_> = secret.into_iter().collect();
        for &(ref file, child_fd) in &self.open_files {
            mappings.push(FdMapping { parent_fd: file.try_clone()?, child_fd });
        }
        if !mappings.is_empty() {
            command.fd_mappings(mappings)?;
        }
        Ok(command)
    }
}

/// The end of a process, with its output.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Exit code; absent when a signal ended it.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Standard output and error, line by line in order of arrival, redacted and bounded, so that they may be shown.
    pub output: String,
    /// True if parts of `output` are left out.
    pub is_cut: bool,
    stdout: Vec<u8>,
    /// True if standard output was longer than `read_limit`.
    stdout_cut: bool,
    /// True if the cancellation token interrupted it.
    pub cancelled: bool,
    /// True if it reached its timeout.
    pub timed_out: bool,
}

impl Finished {
    /// Returns true if it ended normally with exit status 0.
    pub fn success(&self) -> bool {
        self.code == Some(0) && !self.cancelled && !self.timed_out
    }

    /// Standard output, unchanged and not redacted: never show it. Empty without [`Invocation::reading`]; an error if it was longer than
    /// that limit.
    pub fn read(&self) -> anyhow::Result<&[u8]> {
        anyhow::ensure!(!self.stdout_cut, "it printed more than {} bytes", self.stdout.len());
        Ok(&self.stdout)
    }

    /// Returns [`Finished::read`] as text; invalid UTF-8 is replaced.
    pub fn read_text(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(self.read()?).into_owned())
    }

    /// Returns `exit status 1`, `ended by signal 9`, `timed out` or `cancelled`.
    pub fn ending(&self) -> String {
        match (self.timed_out, self.cancelled, self.code, self.signal) {
            (true, ..) => "timed out".into(),
            (_, true, ..) => "cancelled".into(),
            (.., Some(code), _) => format!("exit status {code}"),
            (.., None, Some(signal)) => format!("ended by signal {signal}"),
            (.., None, None) => "ended".into(),
        }
    }
}

/// Called with each line as it arrives, redacted, without its newline.
pub type LineSink<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Runs a program to its end. An error means that it could not be started or waited for; a bad exit status is a [`Finished`]. No process
/// that the program started still runs then. Dropping the future kills the process group.
pub async fn run(
    mut invocation: Invocation,
    redactor: &Redactor,
    cancel: &CancellationToken,
    sink: Option<LineSink<'_>>,
) -> anyhow::Result<Finished> {
    let_children_be_interrupted();
    let lineage = Lineage::new()?;
    invocation.env.extend(lineage.variable());
    let program = invocation.program.clone();
    let finished = run_group(invocation, redactor, cancel, sink).await?;
    lineage.end().await.with_context(|| format!("{} has left processes running", program.display()))?;
    Ok(finished)
}

/// Runs a program, and ends its process group.
async fn run_group(
    mut invocation: Invocation,
    redactor: &Redactor,
    cancel: &CancellationToken,
    sink: Option<LineSink<'_>>,
) -> anyhow::Result<Finished> {
    // The server's copies of the descriptors are closed with the command.
    let (mut child, mut group) = spawn(invocation.command()?, invocation.confinement.as_ref())
        .await
        .with_context(|| format!("cannot start {} in {}", invocation.program.display(), invocation.dir.display()))?;
    if invocation.low_priority {
        group.yield_to_others();
    }
    let mut stdin = child.stdin.take();
    if let Some(bytes) = invocation.stdin.take()
        && let Some(mut pipe) = stdin.take()
    {
        // Ends with the child at the latest; the child may not read all of it.
        tokio::spawn(async move { pipe.write_all(&bytes).await });
    }
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let answering = invocation.answering.take();
    let mut streams = Streams { answering, ..Streams::new(&invocation, redactor, sink) };
    let mut buffers = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut cancelled, mut timed_out, mut status) = (false, false, None::<ExitStatus>);
    let mut deadline = Instant::now() + invocation.timeout;

    while status.is_none() || stdout.is_some() || stderr.is_some() {
        tokio::select! {
            read = read(&mut stdout, &mut buffers.0), if stdout.is_some() => match read {
                0 => stdout = None,
                n => {
                    streams.stdout(&buffers.0[..n]);
                    let answers = std::mem::take(&mut streams.answers);
                    if let (Some(pipe), false) = (&mut stdin, answers.is_empty()) {
                        // The answer is a few bytes. A child that has ended needs none.
                        let _ = pipe.write_all(&answers).await;
                    }
                }
            },
            read = read(&mut stderr, &mut buffers.1), if stderr.is_some() => match read {
                0 => stderr = None,
                n => streams.stderr(&buffers.1[..n]),
            },
            ended = child.wait(), if status.is_none() => {
                status = Some(ended.context("cannot wait for a child process")?);
                group.was_waited_for();
                deadline = Instant::now() + PIPE_CLOSE_LIMIT;
            }
            () = cancel.cancelled(), if !cancelled && !timed_out && status.is_none() => {
                cancelled = true;
                group.signal(Signal::INT);
                deadline = Instant::now() + invocation.grace;
            }
            () = sleep_until(deadline) => {
                if status.is_some() {
                    break; // a process outside the group may hold the pipes indefinitely
                } else if cancelled || timed_out {
                    group.signal(Signal::KILL);
                    deadline = Instant::now() + PIPE_CLOSE_LIMIT;
                } else {
                    timed_out = true;
                    group.signal(Signal::INT);
                    deadline = Instant::now() + invocation.grace;
                }
            }
        }
    }
    group.end();
    let (is_cut, output, stdout) = streams.finish();
    let (code, signal) = status.map_or((None, None), |s| (s.code(), s.signal()));
    Ok(Finished { code, signal, output, is_cut, stdout: stdout.bytes, stdout_cut: stdout.cut, cancelled, timed_out })
}

/// Returns the number of bytes read; 0 at the end, and at an error, which also ends a pipe.
async fn read(pipe: &mut Option<impl tokio::io::AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Both streams of a child, with the sink and the kept output.
struct Streams<'a> {
    lines: (Lines, Lines),
    both: Bounded,
    out: Unread,
    hides_stdout: bool,
    redactor: &'a Redactor,
    sink: Option<LineSink<'a>>,
    answering: Option<Answering>,
    /// Answers that are not written to standard input yet.
    answers: Vec<u8>,
}

impl<'a> Streams<'a> {
    fn new(invocation: &Invocation, redactor: &'a Redactor, sink: Option<LineSink<'a>>) -> Streams<'a> {
        let Invocation { output_limit, read_limit, hides_stdout, .. } = *invocation;
        let lines = (Lines::default(), Lines::default());
        let (both, out, answers) = (Bounded::new(output_limit), Unread::new(read_limit), Vec::new());
        Streams { lines, both, out, hides_stdout, redactor, sink, answering: None, answers }
    }

    fn stdout(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
        if !self.hides_stdout {
            self.show_stdout(bytes);
        }
    }

    fn show_stdout(&mut self, bytes: &[u8]) {
        self.lines.0.feed(bytes, |line| {
            let line = line.redacted(self.redactor, &mut self.both.is_cut);
            self.both.push(&line);
            self.sink.iter().for_each(|sink| sink(&line));
            self.answers.extend(self.answering.as_mut().and_then(|answering| answering(&line)).unwrap_or_default());
        });
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.lines.1.feed(bytes, |line| {
            let line = line.redacted(self.redactor, &mut self.both.is_cut);
            self.both.push(&line);
            self.sink.iter().for_each(|sink| sink(&line));
        });
    }

    fn finish(mut self) -> (bool, String, Unread) {
        // A last line without a newline is shown with one.
        if self.lines.0.unfinished() {
            self.show_stdout(b"\n");
        }
        if self.lines.1.unfinished() {
            self.stderr(b"\n");
        }
        (self.both.is_cut, self.both.into_text(), self.out)
    }
}

/// Makes this process unreadable for other processes of its user, as far as the kernel can, and raises its limit of open files. Call it
/// once, at the start. If the limit cannot be raised, it stays.
pub fn harden_self() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    platform::close_to_others().context("cannot make this process undumpable")?;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // If it fails, the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
    Ok(())
}
