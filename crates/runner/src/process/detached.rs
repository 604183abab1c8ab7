//! A child that outlives this process: it has a process group of its own, no standard input, and a file for its messages.

use super::group::let_children_be_interrupted;
use super::orphans;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// A program that goes on when this process ends.
pub struct DetachedProgram {
    /// Program.
    pub program: PathBuf,
    /// Arguments; never a secret.
    pub args: Vec<String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Complete environment.
    pub env: Vec<(String, String)>,
    /// File for its standard error. Its standard output is discarded.
    pub messages: File,
}

/// A started program. It is not ended when this value is dropped.
pub struct Detached {
    child: Child,
    /// Its process ID, until it was waited for.
    pid: Option<Pid>,
}

/// The end of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramEnd {
    /// With exit status 0.
    Success,
    /// With another exit status, in words.
    Failure(String),
    /// By a signal, in words.
    Killed(String),
}

impl DetachedProgram {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn start(self) -> io::Result<Detached> {
        let_children_be_interrupted();
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir).env_clear().envs(self.env);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.messages);
        // Signals to the group of this process, such as from a terminal, do not reach it.
        command.process_group(0);
        let _starting = orphans::starting();
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.into_iter().for_each(orphans::started);
        Ok(Detached { child, pid })
    }
}

impl Detached {
    /// Returns how it ended; absent while it runs.
    pub fn ended(&mut self) -> Option<ProgramEnd> {
        let status = self.child.try_wait().transpose()?;
        self.pid.take().into_iter().for_each(orphans::ended);
        Some(match status {
            Ok(status) if status.success() => ProgramEnd::Success,
            Ok(status) => described(status),
            Err(error) => ProgramEnd::Failure(format!("it cannot be waited for: {error}")),
        })
    }

    /// Waits for its end.
    pub async fn wait(mut self) {
        // An error leaves nothing to wait for.
        let _ = self.child.wait().await;
        self.pid.take().into_iter().for_each(orphans::ended);
    }

    /// Asks it to end, with SIGTERM.
    pub fn terminate(&self) {
        if let Some(pid) = self.pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn described(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Failure(format!("it ended with exit status {code}")),
        (None, Some(signal)) => ProgramEnd::Killed(format!("it was ended by signal {signal}")),
        (None, None) => ProgramEnd::Killed("it ended in an unknown way".to_owned()),
    }
}
