//! Strict doubles of what Tidelock meets on Cloud Run, each on loopback, without credentials: jobs ([`RunDouble`]), instances
//! ([`instances`]), and Cloud Tasks ([`tasks`]), which wakes instances. A development dependency of tests.
//!
//! Jobs: the calls of the Admin API v2 that the engine `cloud_run` makes, over HTTP/1.1 with JSON.
//! Methods, paths, parameters and fields are those of the crate `google-cloud-run-v2` 1.15.0 (`src/transport.rs`, `src/model.rs`,
//! `src/model/deserialize.rs`); any other is refused. An execution is a real process: the program stands for the job's image, the
//! environment for that of its container.

mod answers;
mod execution;
pub mod instances;
mod messages;
mod refusal;
mod server;
pub mod tasks;
#[cfg(test)]
mod test_client;

use answers::Answer;
use bytes::Bytes;
use execution::{Execution, Outcome};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use server::Broken;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Largest body of a request, in bytes.
pub(crate) const MAX_BODY: usize = 1 << 20;

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `jobs.get`.
    GetJob,
    /// `jobs.run`.
    Run,
    /// `executions.list`, one page.
    List,
    /// `executions.get`.
    Get,
    /// `executions.cancel`.
    Cancel,
}

/// Effect on a call. All but the first two apply to [`Call::Run`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Not done; the answer has this status.
    Fail(u16),
    /// Done; the connection ends without an answer.
    Lost,
    /// Done twice: there are two executions.
    Doubled,
    /// Done; the execution begins to run after this time.
    Slow(Duration),
    /// Done; the image cannot be pulled.
    NoImage,
}

/// A running double. It ends its executions and stops when it is dropped.
pub struct RunDouble {
    service: Arc<Service>,
    endpoint: String,
    accepting: tokio::task::AbortHandle,
}

/// An execution as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenExecution {
    /// Short name.
    pub name: String,
    /// Value of a variable that its start has given.
    pub variables: Vec<(String, String)>,
    /// True if it has ended.
    pub has_ended: bool,
}

/// State that all connections share.
pub(crate) struct Service {
    /// Stands for the image.
    pub(crate) program: PathBuf,
    /// Environment of the container.
    pub(crate) env: Vec<(String, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// By full name.
    pub(crate) jobs: BTreeMap<String, JobSettings>,
    /// In the order of their starts, over all jobs.
    pub(crate) executions: Vec<Execution>,
    effects: Vec<(Call, Effect)>,
    counts: BTreeMap<Call, u64>,
    /// Time limit of a task instead of a longer one.
    pub(crate) longest: Option<Duration>,
}

/// Settings of a job.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobSettings {
    /// Repetitions of a task that has failed.
    pub max_retries: i32,
}

impl Drop for RunDouble {
    fn drop(&mut self) {
        self.accepting.abort();
        self.service.state().executions.iter().for_each(|execution| execution.end(Outcome::Cancelled));
    }
}

impl Service {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunDouble {
    /// Starts a double on a free port of loopback, without any job. `program` runs in all executions.
    pub async fn start(program: PathBuf, env: Vec<(String, String)>) -> std::io::Result<RunDouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let service = Arc::new(Service { program, env, state: Mutex::default() });
        let answering = Arc::clone(&service);
        let answer = move |request, _| answer(request, Arc::clone(&answering));
        let accepting = tokio::spawn(server::accept(listener, answer)).abort_handle();
        Ok(RunDouble { service, endpoint, accepting })
    }

    /// Address: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates a job, `projects/P/locations/R/jobs/J`, or changes its settings.
    pub fn job(&self, name: &str, settings: JobSettings) {
        self.service.state().jobs.insert(name.to_owned(), settings);
    }

    /// Adds the effect on the next call of this kind that has none yet.
    pub fn effect(&self, call: Call, effect: Effect) {
        self.service.state().effects.push((call, effect));
    }

    /// Limits the time of tasks to less than their starts say.
    pub fn limit_tasks(&self, longest: Duration) {
        self.service.state().longest = Some(longest);
    }

    /// Kills all running executions as Cloud Run does when a container exceeds its memory limit: at once, with SIGKILL
    /// (docs.cloud.google.com/run/docs/configuring/jobs/memory-limits). The text is that of services (googleapis/repo-automation-bots#2418).
    pub fn exceed_memory(&self) {
        self.service.state().executions.iter().for_each(|execution| execution.end(Outcome::Memory));
    }

    /// Returns all executions in the order of their starts.
    pub fn executions(&self) -> Vec<SeenExecution> {
        self.service.state().executions.iter().map(Execution::seen).collect()
    }

    /// Returns the number of calls of a kind.
    pub fn calls(&self, call: Call) -> u64 {
        self.service.state().counts.get(&call).copied().unwrap_or_default()
    }
}

async fn answer(
    request: http::Request<Incoming>,
    service: Arc<Service>,
) -> Result<http::Response<Full<Bytes>>, Broken> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let answered = answers::route(&parts, &body).and_then(|routed| {
        let effect = service.state().met(routed.call());
        match effect {
            Some(Effect::Fail(status)) => Err(answers::fault(status)),
            effect => answers::done(&service, routed, effect),
        }
    });
    match answered {
        Ok(Answer::Lost) => Err("the answer is lost".into()),
        Ok(Answer::Json(value)) => Ok(server::json(200, &value)),
        Err(refusal) => Ok(server::json(refusal.status, &refusal.json())),
    }
}

impl State {
    /// Counts a call, and returns its effect.
    fn met(&mut self, call: Call) -> Option<Effect> {
        *self.counts.entry(call).or_default() += 1;
        let at = self.effects.iter().position(|(of, _)| *of == call)?;
        Some(self.effects.remove(at).1)
    }
}

/// Channel on which an execution is told how it ends.
pub(crate) type Ending = watch::Sender<Option<Outcome>>;
