//! Child processes: the only place that spawns any. Own process group, streamed lines, limits, timeout, SIGINT before SIGKILL.

mod output;
mod redact;
#[cfg(test)]
mod tests;

pub use redact::{Redactor, SHORTEST_SECRET};

use crate::platform;
use anyhow::Context;
use command_fds::{CommandFdExt, FdMapping};
use output::{Bounded, Lines, Unread};
use rustix::process::{Pid, Signal};
use secrecy::SecretString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Bytes of output kept unless an [`Invocation`] says otherwise.
const OUTPUT_LIMIT: usize = 4 << 20;
/// How long a process may run unless an [`Invocation`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Between SIGINT and SIGKILL unless an [`Invocation`] says otherwise.
const GRACE: Duration = Duration::from_secs(10);
/// How long the pipes may stay open after the leader's end: grandchildren may hold them.
const DRAIN: Duration = Duration::from_secs(2);
/// How often, and after which pause, a program is tried again that is still open for writing somewhere.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How much is read at a time.
const CHUNK: usize = 32 << 10;
/// Descriptor of the child's [`Invocation::secret_file`].
const SECRET_FD: i32 = 3;
/// Open files that [`harden_self`] asks for: three pipes a child, sockets, databases.
const OPEN_FILES: u64 = 65_536;

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
    /// Bytes of standard output that are kept as they are, to be read by us.
    pub read_limit: usize,
    /// Standard output is only for us to read: neither logged nor kept in [`Finished::output`].
    pub hides_stdout: bool,
    /// Other user to run as, where we may.
    pub run_as: Option<RunAs>,
    /// Handed to the child as an anonymous file on descriptor 3, for git's credential helper.
    pub secret_file: Option<SecretString>,
    /// What it reads on standard input; nothing by default.
    pub stdin: Option<Vec<u8>>,
}

impl Invocation {
    /// With an empty environment, an hour's time, ten seconds of grace, 4 MiB of output of which we read nothing, as ourselves.
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
            secret_file: None,
            stdin: None,
        }
    }

    /// With this as its complete environment.
    pub fn env(mut self, env: Vec<(String, String)>) -> Invocation {
        self.env = env;
        self
    }

    /// Runs at most so long.
    pub fn timeout(mut self, timeout: Duration) -> Invocation {
        self.timeout = timeout;
        self
    }

    /// Gets so long between SIGINT and SIGKILL.
    pub fn grace(mut self, grace: Duration) -> Invocation {
        self.grace = grace;
        self
    }

    /// Keeps so many bytes of output.
    pub fn output_limit(mut self, bytes: usize) -> Invocation {
        self.output_limit = bytes;
        self
    }

    /// Keeps so many bytes of standard output as they are, for [`Finished::read`].
    pub fn reading(mut self, bytes: usize) -> Invocation {
        self.read_limit = bytes;
        self
    }

    /// Runs as this user, if any.
    pub fn run_as(mut self, user: Option<RunAs>) -> Invocation {
        self.run_as = user;
        self
    }

    /// Finds this on descriptor 3.
    pub fn secret_file(mut self, secret: Option<SecretString>) -> Invocation {
        self.secret_file = secret;
        self
    }

    /// Reads this on standard input.
    pub fn stdin(mut self, bytes: Vec<u8>) -> Invocation {
        self.stdin = Some(bytes);
        self
    }

    /// The program's path: as given when it has a slash, else the first executable of that name on `PATH` of `env`.
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
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(user) = self.run_as {
            // The standard library drops supplementary groups with the user id when it may.
            command.gid(user.gid).uid(user.uid);
        }
        if let Some(secret) = &self.secret_file {
            let parent_fd = platform::secret_file(secret).context("cannot make an anonymous file for a secret")?;
            command.fd_mappings(vec![FdMapping { parent_fd, child_fd: SECRET_FD }])?;
        }
        Ok(command)
    }
}

/// An executable file of this name on a `PATH`; the first one.
pub fn find_on_path(path: &str, program: &Path) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|file| std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0))
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
    /// Standard output and error in order of arrival by lines, redacted, bounded: what may be shown.
    pub output: String,
    stdout: Vec<u8>,
    /// Standard output had more bytes than were to be read.
    stdout_cut: bool,
    /// It was interrupted because of the token.
    pub cancelled: bool,
    /// It ran into its timeout.
    pub timed_out: bool,
}

impl Finished {
    /// It ended by itself, with exit status 0.
    pub fn success(&self) -> bool {
        self.code == Some(0) && !self.cancelled && !self.timed_out
    }

    /// Standard output byte for byte, to be read and never shown: secrets in it are not masked. Empty without
    /// [`Invocation::reading`]; an error where it was longer than that.
    pub fn read(&self) -> anyhow::Result<&[u8]> {
        anyhow::ensure!(!self.stdout_cut, "it printed more than {} bytes", self.stdout.len());
        Ok(&self.stdout)
    }

    /// The same as text; bytes that are no UTF-8 are replaced.
    pub fn read_text(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(self.read()?).into_owned())
    }

    /// `exit status 1`, `signal 9`, `timed out`, `cancelled`.
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

/// Gets each line as it arrives, redacted, without its newline.
pub type LineSink<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Runs it to its end. An error means that it could not be started or waited for; a bad exit is a [`Finished`].
/// A future that is dropped before its end kills the group.
pub async fn run(
    mut invocation: Invocation,
    redactor: &Redactor,
    cancel: &CancellationToken,
    sink: Option<LineSink<'_>>,
) -> anyhow::Result<Finished> {
    let_children_be_interrupted();
    let mut command = invocation.command()?;
    let mut child = spawn(&mut command)
        .await
        .with_context(|| format!("cannot start {} in {}", invocation.program.display(), invocation.dir.display()))?;
    drop(command); // and with it our copy of the secret's descriptor
    let mut group = Group::new(child.id());
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), invocation.stdin.take()) {
        // Ends with the child at the latest; a child that does not read all of it is its own affair.
        tokio::spawn(async move { pipe.write_all(&bytes).await });
    }
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut streams = Streams::new(&invocation, redactor, sink);
    let mut buffers = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut cancelled, mut timed_out, mut status) = (false, false, None::<ExitStatus>);
    let mut deadline = Instant::now() + invocation.timeout;

    while status.is_none() || stdout.is_some() || stderr.is_some() {
        tokio::select! {
            read = read(&mut stdout, &mut buffers.0), if stdout.is_some() => match read {
                0 => stdout = None,
                n => streams.stdout(&buffers.0[..n]),
            },
            read = read(&mut stderr, &mut buffers.1), if stderr.is_some() => match read {
                0 => stderr = None,
                n => streams.stderr(&buffers.1[..n]),
            },
            ended = child.wait(), if status.is_none() => {
                status = Some(ended.context("cannot wait for a child process")?);
                deadline = Instant::now() + DRAIN;
            }
            () = cancel.cancelled(), if !cancelled && !timed_out && status.is_none() => {
                cancelled = true;
                group.signal(Signal::INT);
                deadline = Instant::now() + invocation.grace;
            }
            () = sleep_until(deadline) => {
                if status.is_some() {
                    break; // somebody outside the group may hold the pipes for ever
                } else if cancelled || timed_out {
                    group.signal(Signal::KILL);
                    deadline = Instant::now() + DRAIN;
                } else {
                    timed_out = true;
                    group.signal(Signal::INT);
                    deadline = Instant::now() + invocation.grace;
                }
            }
        }
    }
    group.end();
    let (output, stdout) = streams.finish();
    let (code, signal) = status.map_or((None, None), |s| (s.code(), s.signal()));
    Ok(Finished { code, signal, output, stdout: stdout.bytes, stdout_cut: stdout.cut, cancelled, timed_out })
}

/// A server that a script started in the background ignores SIGINT, and its children inherit that: they could not be
/// interrupted. A signal that is handled, even by nothing, is reset for them.
fn let_children_be_interrupted() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if platform::ignores(Signal::INT) {
            // The handler stays for the life of the process.
            drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()));
        }
    });
}

/// A file that was written a moment ago is "busy" as long as a child that was forked meanwhile has not become its own program.
async fn spawn(command: &mut tokio::process::Command) -> std::io::Result<tokio::process::Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Bytes read; 0 at the end, and at an error, which ends a pipe just the same.
async fn read(pipe: &mut Option<impl tokio::io::AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// The child's process group, killed when dropped: nothing that a job started outlives it.
struct Group(Option<Pid>);

impl Group {
    fn new(id: Option<u32>) -> Group {
        Group(id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The only errors are "gone" and "not ours to signal" (another user's); both leave nothing to do.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Both streams on their way to the sink and into what is kept.
struct Streams<'a> {
    lines: (Lines, Lines),
    both: Bounded,
    out: Unread,
    hides_stdout: bool,
    redactor: &'a Redactor,
    sink: Option<LineSink<'a>>,
}

impl<'a> Streams<'a> {
    fn new(invocation: &Invocation, redactor: &'a Redactor, sink: Option<LineSink<'a>>) -> Streams<'a> {
        let Invocation { output_limit, read_limit, hides_stdout, .. } = *invocation;
        let lines = (Lines::default(), Lines::default());
        Streams { lines, both: Bounded::new(output_limit), out: Unread::new(read_limit), hides_stdout, redactor, sink }
    }

    fn stdout(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
        if !self.hides_stdout {
            self.show_stdout(bytes);
        }
    }

    fn show_stdout(&mut self, bytes: &[u8]) {
        self.lines.0.feed(bytes, |line| {
            let line = line.redacted(self.redactor);
            self.both.push(&line);
            self.sink.iter().for_each(|sink| sink(&line));
        });
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.lines.1.feed(bytes, |line| {
            let line = line.redacted(self.redactor);
            self.both.push(&line);
            self.sink.iter().for_each(|sink| sink(&line));
        });
    }

    fn finish(mut self) -> (String, Unread) {
        // A last line without newline gets one where it is shown.
        if self.lines.0.unfinished() {
            self.show_stdout(b"\n");
        }
        if self.lines.1.unfinished() {
            self.stderr(b"\n");
        }
        (self.both.into_text(), self.out)
    }
}

/// Makes this process unreadable for other processes of its user, as far as the kernel can, and raises its limit of open files. To be
/// called once, at the start; a limit that cannot be raised stays.
pub fn harden_self() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    platform::close_to_others().context("cannot make this process undumpable")?;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it we have what we had.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
    Ok(())
}
