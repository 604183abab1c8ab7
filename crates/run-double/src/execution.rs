//! Executions: real processes, and what the service tells of them.

use crate::{Effect, Ending, JobSettings, SeenExecution, Service, State};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;

/// Time between SIGTERM and SIGKILL (docs.cloud.google.com/run/docs/container-contract, "Instance shutdown").
const SHUTDOWN: Duration = Duration::from_secs(10);
/// Image of all jobs.
const IMAGE: &str = "example-docker.pkg.dev/p/r/tidelock:1";

/// End of an execution, past or planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    /// Exit with this code.
    Exit(i32),
    /// End by this signal.
    Signal(i32),
    Cancelled,
    Memory,
    Timeout,
    NoImage,
}

/// Overrides of a start.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) job: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) settings: JobSettings,
    pub(crate) effect: Option<Effect>,
}

/// An execution with one task.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) name: String,
    /// Full name of its job.
    pub(crate) job: String,
    start: Start,
    created: Timestamp,
    started: Option<Timestamp>,
    ended: Option<(Timestamp, Outcome)>,
    retried: i32,
    ending: Ending,
}

impl Execution {
    /// Creates an execution, which runs by itself.
    pub(crate) fn start<'a>(service: &Arc<Service>, state: &'a mut State, start: Start) -> &'a Execution {
        let number = state.executions.len();
        let short = start.job.rsplit('/').next().unwrap_or_default();
        let (ending, told) = watch::channel(None);
        let (name, job) = (format!("{short}-{number:05}"), start.job.clone());
        let longest = state.longest;
        tokio::spawn(play(Arc::clone(service), number, start.clone(), longest, told));
        let (started, ended) = (None, None);
        let execution = Execution { name, job, start, created: Timestamp::now(), started, ended, retried: 0, ending };
        state.executions.push(execution);
        &state.executions[number]
    }

    /// Tells it how it ends. The first word counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.ending.send_if_modified(|ending| ending.replace(ending.unwrap_or(outcome)).is_none());
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{}/executions/{}", self.job, self.name)
    }

    /// A fingerprint of its version.
    pub(crate) fn etag(&self) -> String {
        format!("\"{}-{}-{}\"", self.name, self.started.is_some(), self.ended.is_some())
    }

    pub(crate) fn seen(&self) -> SeenExecution {
        SeenExecution { name: self.name.clone(), variables: self.start.env.clone(), has_ended: self.ended.is_some() }
    }

    /// `Execution` in JSON. The types of conditions and the order in which they turn true are those of its version 1 (`ResourcesAvailable`,
    /// `Started`, `ContainerReady`, `Completed`); reasons are words of `condition::ExecutionReason`.
    pub(crate) fn json(&self) -> Value {
        let outcome = self.ended.map(|(_, outcome)| outcome);
        let (is_running, has_failed) =
            (self.started.is_some() && outcome.is_none(), outcome.is_some_and(|o| o != Outcome::Succeeded));
        let env: Vec<Value> =
            self.start.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let container = json!({"name": "tidelock", "image": IMAGE, "args": self.start.args, "env": env});
        let mut value = json!({
            "name": self.full_name(), "uid": self.name, "generation": "1", "observedGeneration": "1",
            "createTime": self.created.to_string(), "job": self.job, "taskCount": 1, "parallelism": 1,
            "template": {
                "containers": [container], "maxRetries": self.start.settings.max_retries,
                "timeout": format!("{}s", self.start.timeout.as_secs()),
            },
            "conditions": self.conditions(), "reconciling": outcome.is_none(), "etag": self.etag(),
        });
        // Zero and absent values are left out, as in all JSON of Protocol Buffers.
        let mut set = |name: &str, is_set: bool, set: Value| {
            if is_set {
                value[name] = set;
            }
        };
        set("startTime", self.started.is_some(), json!(self.started.map(|at| at.to_string())));
        // One that is cancelled before its task began has no time of its end.
        set(
            "completionTime",
            self.started.is_some() && self.ended.is_some(),
            json!(self.ended.map(|(at, _)| at.to_string())),
        );
        set("runningCount", is_running, json!(1));
        set("succeededCount", outcome == Some(Outcome::Succeeded), json!(1));
        set("cancelledCount", outcome == Some(Outcome::Cancelled), json!(1));
        set("failedCount", has_failed && outcome != Some(Outcome::Cancelled), json!(1));
        set("retriedCount", self.retried > 0, json!(1));
        value
    }

    fn conditions(&self) -> Vec<Value> {
        let condition = |name: &str, state: &str| json!({"type": name, "state": state});
        let done = |name: &str, is_done: bool| {
            condition(name, if is_done { "CONDITION_SUCCEEDED" } else { "CONDITION_PENDING" })
        };
        let task = format!("Task {}-task0 failed with message:", self.name);
        let failed = |message: String, reason: Option<&str>| {
            let mut failed = json!({"type": "Completed", "state": "CONDITION_FAILED", "message": message});
            if let Some(reason) = reason {
                failed["executionReason"] = reason.into();
            }
            failed
        };
        let completed = match self.ended.map(|(_, outcome)| outcome) {
            None => json!({
                "type": "Completed", "state": "CONDITION_RECONCILING",
                "message": "Waiting for execution to complete.", "reason": "WAITING_FOR_OPERATION",
            }),
            Some(Outcome::Succeeded) => condition("Completed", "CONDITION_SUCCEEDED"),
            Some(Outcome::Exit(code)) => failed(
                format!("{task} The container exited with an error (exit code {code})."),
                Some("NON_ZERO_EXIT_CODE"),
            ),
            Some(Outcome::Signal(number)) => failed(format!("{task} Container terminated on signal {number}."), None),
            Some(Outcome::Cancelled) => failed("The execution was cancelled.".to_owned(), Some("CANCELLED")),
            Some(Outcome::Memory) => failed(
                format!(
                    "{task} Memory limit of 512 MiB exceeded with 526 MiB used. Consider increasing the memory limit, see \
                     https://cloud.google.com/run/docs/configuring/memory-limits"
                ),
                None,
            ),
            // The words are those of balopat/planqtn `test_timeout_job.json`.
            Some(Outcome::Timeout) => failed(format!("{task} The configured timeout was reached."), None),
            Some(Outcome::NoImage) => failed(format!("Image '{IMAGE}' not found."), None),
        };
        let (created, started) = (true, self.started.is_some());
        vec![completed, done("ResourcesAvailable", created), done("Started", started), done("ContainerReady", started)]
    }
}

/// Runs the task of an execution until it has ended.
async fn play(
    service: Arc<Service>,
    number: usize,
    start: Start,
    longest: Option<Duration>,
    mut told: watch::Receiver<Option<Outcome>>,
) {
    let update = |change: &dyn Fn(&mut Execution)| service.state().executions.get_mut(number).map(change);
    let pause = match start.effect {
        Some(Effect::Slow(pause)) => pause,
        _ => Duration::ZERO,
    };
    let early = tokio::select! {
        told = told.wait_for(Option::is_some) => told.ok().and_then(|told| *told),
        () = tokio::time::sleep(pause) => (start.effect == Some(Effect::NoImage)).then_some(Outcome::NoImage),
    };
    let outcome = match early {
        Some(outcome) => outcome,
        None => {
            update(&|execution| execution.started = Some(Timestamp::now()));
            let mut attempt = 0;
            loop {
                let timeout = longest.map_or(start.timeout, |longest| longest.min(start.timeout));
                let outcome = task(&service, number, &start, attempt, timeout, &mut told).await;
                // Each attempt has the whole time (`TaskTemplate.timeout`).
                if matches!(outcome, Outcome::Succeeded | Outcome::Cancelled) || attempt >= start.settings.max_retries {
                    break outcome;
                }
                attempt += 1;
                update(&|execution| {
                    execution.retried += 1;
                    execution.ending.send_replace(None);
                });
            }
        }
    };
    update(&|execution| execution.ended = Some((Timestamp::now(), outcome)));
}

/// Runs an attempt at the task.
async fn task(
    service: &Service,
    number: usize,
    start: &Start,
    attempt: i32,
    timeout: Duration,
    told: &mut watch::Receiver<Option<Outcome>>,
) -> Outcome {
    let (job, short) = (start.job.rsplit('/').next().unwrap_or_default(), format!("{number:05}"));
    let mut command = Command::new(&service.program);
    command.args(&start.args).env_clear().envs(service.env.iter().cloned()).envs(start.env.iter().cloned());
    // Variables of jobs (docs.cloud.google.com/run/docs/container-contract).
    command.env("CLOUD_RUN_JOB", job).env("CLOUD_RUN_EXECUTION", format!("{job}-{short}"));
    command.env("CLOUD_RUN_TASK_INDEX", "0").env("CLOUD_RUN_TASK_COUNT", "1");
    command.env("CLOUD_RUN_TASK_ATTEMPT", attempt.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
    let Ok(mut child) = command.spawn() else { return Outcome::Exit(127) };
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    // On failure the task has ended already.
    let send = |signal| group.map(|group| kill_process_group(group, signal));
    let asked = tokio::select! {
        status = child.wait() => return ended(status),
        told = told.wait_for(Option::is_some) => told.ok().and_then(|told| *told).unwrap_or(Outcome::Cancelled),
        () = tokio::time::sleep(timeout) => Outcome::Timeout,
    };
    if asked != Outcome::Memory {
        send(Signal::TERM);
        if tokio::time::timeout(SHUTDOWN, child.wait()).await.is_ok() {
            return asked;
        }
    }
    send(Signal::KILL);
    let _ = child.wait().await;
    asked
}

fn ended(status: std::io::Result<std::process::ExitStatus>) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) if status.success() => Outcome::Succeeded,
        Ok(status) => status.code().map_or(Outcome::Signal(status.signal().unwrap_or_default()), Outcome::Exit),
        Err(_) => Outcome::Exit(127),
    }
}
