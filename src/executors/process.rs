//! The engine `process`: jobs are processes of this machine, with the environment of steps. They outlive the server.

use super::engine::{Engine, EngineJob, EngineState, NotStarted};
use crate::process::{Detached, DetachedProgram, ProgramEnd};
use crate::vault::jobs::JobPrefix;
use async_trait::async_trait;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of a program's messages that a reason quotes.
const QUOTED: u64 = 500;

/// Starts jobs on this machine.
pub(crate) struct ProcessEngine {
    /// This program.
    pub(crate) program: PathBuf,
    /// Environment of jobs, with the address of the bucket.
    pub(crate) env: Vec<(String, String)>,
    /// Variable that gets the job's prefix. It is no argument, because other users of the machine can read these.
    pub(crate) job_variable: &'static str,
    /// Started processes.
    pub(crate) started: Mutex<HashMap<JobPrefix, StartedProcess>>,
}

/// A process that this server has started.
pub(crate) struct StartedProcess {
    process: Detached,
    messages: File,
}

impl ProcessEngine {
    fn started(&self) -> MutexGuard<'_, HashMap<JobPrefix, StartedProcess>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_now(&self, prefix: &JobPrefix) -> std::io::Result<StartedProcess> {
        // Without a name in the file system, so nothing is left when either process ends.
        let messages = tempfile::tempfile()?;
        let mut env = self.env.clone();
        env.push((self.job_variable.to_owned(), prefix.to_string()));
        let program = DetachedProgram {
            program: self.program.clone(),
            args: vec!["run-job".to_owned()],
            dir: PathBuf::from("/"),
            env,
            messages: messages.try_clone()?,
        };
        Ok(StartedProcess { process: program.start()?, messages })
    }
}

impl StartedProcess {
    fn state(&mut self) -> EngineState {
        match self.process.ended() {
            None => EngineState::Alive,
            // It has stored the result, or another attempt has the job.
            Some(ProgramEnd::Success) => EngineState::Unknown,
            Some(ProgramEnd::Killed(how)) => EngineState::Ended(how),
            Some(ProgramEnd::Failure(how)) => EngineState::Ended(match self.last_messages() {
                Ok(text) => text.lines().last().map_or(how.clone(), |line| format!("{how}: {line}")),
                Err(_) => how,
            }),
        }
    }

    fn last_messages(&mut self) -> std::io::Result<String> {
        let length = self.messages.seek(SeekFrom::End(0))?;
        self.messages.seek(SeekFrom::Start(length.saturating_sub(QUOTED)))?;
        let mut bytes = Vec::new();
        (&self.messages).take(QUOTED).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
}

#[async_trait]
impl Engine for ProcessEngine {
    async fn start(&self, job: EngineJob<'_>, _: u32) -> Result<Option<String>, NotStarted> {
        let started = self.start_now(job.prefix).map_err(|error| NotStarted::NotNow(error.to_string()))?;
        self.started().insert(job.prefix.clone(), started);
        Ok(None)
    }

    async fn look(&self, job: EngineJob<'_>) -> EngineState {
        match self.started().get_mut(job.prefix) {
            // A process of an earlier server.
            None => EngineState::Unknown,
            Some(started) => started.state(),
        }
    }

    async fn end(&self, job: EngineJob<'_>) {
        if let Some(started) = self.started().get(job.prefix) {
            started.process.terminate();
        }
    }

    fn knows_all_attempts(&self) -> bool {
        false
    }

    /// In a container whose first process is the server, its end is that of all processes.
    fn outlives_server(&self) -> bool {
        std::process::id() != 1
    }

    async fn clean(&self, prefix: &JobPrefix) {
        let started = self.started().remove(prefix);
        if let Some(StartedProcess { process, .. }) = started {
            // It has stored its result, and is about to end.
            tokio::spawn(process.wait());
        }
    }
}
