//! A strict double of Cloud Tasks: the call `projects.locations.queues.tasks.create` of its API v2 over HTTP/1.1 with JSON, and deliveries
//! with Google's tokens.
//!
//! Fields and limits are those of Google's page "REST Resource: projects.locations.queues.tasks" (v2) and of the crate
//! `google-cloud-tasks-v2` (`src/model.rs`); fields that Tidelock has no use for are refused too. The double takes no credentials.

mod creation;
mod delivery;
#[cfg(test)]
mod tests;
mod token;

pub use token::claims;

use crate::MAX_BODY;
use crate::refusal::Refusal;
use crate::server::{self, Broken};
use bytes::Bytes;
use creation::{Creation, Target};
use delivery::{Courier, Parcel};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use token::Signer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use url::Url;

/// A running double. It stops when it is dropped, with its deliveries.
pub struct TasksDouble {
    service: Arc<TasksService>,
    endpoint: String,
    accepting: AbortHandle,
}

/// What a test sees of a double.
#[derive(Debug, Clone, Default)]
pub struct SeenTasks {
    /// Calls of `tasks.create`, those that were refused or lost among them.
    pub calls: u64,
    /// Tasks in the order of their creation.
    pub created: Vec<CreatedTask>,
    /// Attempts at deliveries in the order in which they began.
    pub deliveries: Vec<Delivery>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTask {
    /// Full name: `projects/P/locations/L/queues/Q/tasks/ID`.
    pub name: String,
    /// Time of its first delivery. That of its creation, if none was given.
    pub scheduled: Timestamp,
    /// Where it is delivered.
    pub url: String,
    /// Account of its token.
    pub account: Option<String>,
    /// Audience of its token.
    pub audience: Option<String>,
    /// Time limit of a delivery.
    pub deadline: Duration,
}

/// An attempt at the delivery of a task or of a scheduled call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Full name of the task, or name of the call.
    pub task: String,
    /// Number of attempts before this one.
    pub attempt: u32,
    /// Time at which it began.
    pub begun: Timestamp,
    /// Time at which it ended.
    pub ended: Option<Timestamp>,
    /// Status of the answer. None if there is none yet, or if it ended without one: the connection broke, or the time was over.
    pub status: Option<u16>,
}

impl SeenTasks {
    /// Returns the number of deliveries of this task that are answered with 2xx.
    pub fn successes(&self, task: &str) -> usize {
        self.of(task).filter(|delivery| delivery.status.is_some_and(|status| (200..300).contains(&status))).count()
    }

    /// Returns the attempts at this task.
    pub fn of(&self, task: &str) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().filter(move |delivery| delivery.task == task)
    }

    /// Returns the number of deliveries that have not ended.
    pub fn underway(&self) -> usize {
        self.deliveries.iter().filter(|delivery| delivery.ended.is_none()).count()
    }
}

/// State that all connections and deliveries share.
pub(crate) struct TasksService {
    signer: Signer,
    seen: watch::Sender<SeenTasks>,
    state: Mutex<TasksState>,
}

#[derive(Default)]
struct TasksState {
    /// Full names.
    queues: BTreeSet<String>,
    /// Of the next calls.
    faults: VecDeque<Fault>,
    is_doubled: bool,
    /// Time limit of a delivery instead of a longer one.
    longest: Option<Duration>,
    scheduled_calls: u64,
    deliveries: JoinSet<()>,
}

/// Fault of a call.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Not done; the answer has this status.
    Refused(u16),
    /// Done; the connection ends without an answer.
    Lost,
}

impl Drop for TasksDouble {
    fn drop(&mut self) {
        self.accepting.abort();
        self.service.state().deliveries.abort_all();
    }
}

impl TasksDouble {
    /// Starts a double on a free port of loopback, without any queue.
    pub async fn start() -> std::io::Result<TasksDouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (seen, _) = watch::channel(SeenTasks::default());
        let service = Arc::new(TasksService { signer: Signer::load()?, seen, state: Mutex::default() });
        let answering = Arc::clone(&service);
        let answer = move |request, _| answer(request, Arc::clone(&answering));
        let accepting = tokio::spawn(server::accept(listener, answer)).abort_handle();
        Ok(TasksDouble { service, endpoint, accepting })
    }

    /// Address: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Address of the key that its tokens are signed with, as a JWK set.
    pub fn keys_url(&self) -> String {
        format!("{}/certs", self.endpoint)
    }

    /// Creates a queue: `projects/P/locations/L/queues/Q`.
    pub fn queue(&self, name: &str) {
        self.service.state().queues.insert(name.to_owned());
    }

    /// Refuses calls, after those that have a fault already: such as 403, 429, 503.
    pub fn refuse_next(&self, calls: usize, status: u16) {
        self.fault(calls, Fault::Refused(status));
    }

    /// Loses the answers of calls, after those that have a fault already: the task exists, and the connection ends.
    pub fn lose_next(&self, calls: usize) {
        self.fault(calls, Fault::Lost);
    }

    fn fault(&self, calls: usize, fault: Fault) {
        self.service.state().faults.extend(std::iter::repeat_n(fault, calls));
    }

    /// Removes the faults of calls to come.
    pub fn heal(&self) {
        self.service.state().faults.clear();
    }

    /// Delivers each task that is created from now on twice at the same time, until both are taken: Cloud Tasks promises at least once.
    pub fn deliver_twice(&self, is_doubled: bool) {
        self.service.state().is_doubled = is_doubled;
    }

    /// Limits the time of deliveries that begin from now on to less than their tasks say.
    pub fn limit_deliveries(&self, longest: Duration) {
        self.service.state().longest = Some(longest);
    }

    /// Calls an address now as Cloud Scheduler does, and again until it is answered with 2xx. Returns the name that its deliveries have.
    pub fn call_now(&self, url: &Url, account: &str, audience: &str) -> String {
        let mut state = self.service.state();
        state.scheduled_calls += 1;
        let name = format!("scheduler-{}", state.scheduled_calls);
        let target = Target::call(url.clone(), account, audience);
        let parcel = Parcel { courier: Courier::Scheduler, name: name.clone(), scheduled: Timestamp::now(), target };
        state.deliveries.spawn(delivery::deliver(Arc::clone(&self.service), parcel));
        name
    }

    /// Signs claims with the published key.
    pub fn sign(&self, claims: &Value) -> std::io::Result<String> {
        self.service.signer.sign(claims, false)
    }

    /// Signs claims with another key, under the id of the published one.
    pub fn sign_as_stranger(&self, claims: &Value) -> std::io::Result<String> {
        self.service.signer.sign(claims, true)
    }

    /// Returns what has happened so far.
    pub fn seen(&self) -> SeenTasks {
        self.service.seen.borrow().clone()
    }

    /// Waits until a condition holds, without a time limit. Returns the state at that moment.
    pub async fn until(&self, condition: impl FnMut(&SeenTasks) -> bool) -> SeenTasks {
        let mut changes = self.service.seen.subscribe();
        // It only fails without a sender, which this double has.
        changes.wait_for(condition).await.map_or_else(|_| self.seen(), |seen| seen.clone())
    }
}

impl TasksService {
    fn state(&self) -> MutexGuard<'_, TasksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(request: Request<Incoming>, service: Arc<TasksService>) -> Result<Response<Full<Bytes>>, Broken> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if parts.method == Method::GET && path == "/certs" {
        return Ok(server::json(200, &service.signer.keys()));
    }
    let segments: Vec<&str> = path.trim_start_matches("/v2/").split('/').collect();
    let answered = match (&parts.method, &segments[..]) {
        (&Method::POST, ["projects", _, "locations", _, "queues", _, "tasks"]) => {
            let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
            service.seen.send_modify(|seen| seen.calls += 1);
            let fault = service.state().faults.pop_front();
            let created = match fault {
                Some(Fault::Refused(status)) => Err(refused(status)),
                Some(Fault::Lost) | None if parts.headers.contains_key(header::AUTHORIZATION) => {
                    Err(Refusal::invalid("The double takes no credentials, and nobody should send it any."))
                }
                Some(Fault::Lost) | None if parts.uri.query().is_some() => {
                    Err(Refusal::invalid("Invalid JSON payload received. Cannot bind query parameter."))
                }
                Some(Fault::Lost) | None => create(&service, &segments[..6].join("/"), &body),
            };
            if created.is_ok() && matches!(fault, Some(Fault::Lost)) {
                return Err("the answer is lost".into());
            }
            created
        }
        _ => Err(Refusal::no_such_path()),
    };
    Ok(match answered {
        Ok(value) => server::json(200, &value),
        Err(refusal) => server::json(refusal.status, &refusal.json()),
    })
}

/// Refusal of an injected fault.
fn refused(status: u16) -> Refusal {
    let (word, message) = match status {
        403 => (
            "PERMISSION_DENIED",
            "The principal (user or service account) lacks IAM permission \"cloudtasks.tasks.create\" for the resource (or \
             the resource may not exist).",
        ),
        429 => (
            "RESOURCE_EXHAUSTED",
            "Quota exceeded for quota metric 'API requests' of service 'cloudtasks.googleapis.com'.",
        ),
        503 => ("UNAVAILABLE", "The service is currently unavailable."),
        _ => ("INTERNAL", "Internal error encountered."),
    };
    Refusal::new(status, word, message)
}

/// Creates a task, whose deliveries then go on by themselves.
fn create(service: &Arc<TasksService>, queue: &str, body: &[u8]) -> Result<Value, Refusal> {
    let creation = Creation::read(queue, body)?;
    let mut state = service.state();
    if !state.queues.contains(queue) {
        return Err(Refusal::new(404, "NOT_FOUND", "Queue does not exist."));
    }
    let seen = service.seen.borrow().clone();
    // The service makes up numbers of 20 digits.
    let made_up = || format!("{queue}/tasks/{:020}", seen.created.len() + 1);
    let name = creation.name.clone().unwrap_or_else(made_up);
    if seen.created.iter().any(|task| task.name == name) {
        // The service forgets a name an hour after the task's end at the earliest (`CreateTaskRequest.task`), the double never.
        let message = if seen.successes(&name) > 0 {
            // The words are those of stackkit/laravel-google-cloud-tasks-queue#104.
            "The task cannot be created because a task with this name existed too recently. For more information about task \
             de-duplication see https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks/\
             create#body.request_body.FIELDS.task."
        } else {
            "Requested entity already exists"
        };
        return Err(Refusal::new(409, "ALREADY_EXISTS", message));
    }
    let (scheduled, target) = (creation.scheduled, creation.target.clone());
    let (account, audience) = target.token.clone().unzip();
    let url = target.url.to_string();
    let task = CreatedTask { name: name.clone(), scheduled, url, account, audience, deadline: target.deadline };
    service.seen.send_modify(|seen| seen.created.push(task));
    let answer = creation.json(&name);
    let parcel = Parcel { courier: Courier::Tasks, name, scheduled, target };
    for _ in 0..1 + usize::from(state.is_doubled) {
        state.deliveries.spawn(delivery::deliver(Arc::clone(service), parcel.clone()));
    }
    while state.deliveries.try_join_next().is_some() {}
    Ok(answer)
}
