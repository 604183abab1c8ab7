//! The calls and their answers.

use crate::execution::{Execution, Outcome, Start};
use crate::messages::{CancelExecutionRequest, RunJobRequest};
use crate::refusal::{Refusal, parsed};
use crate::{Call, Effect, JobSettings, Service, State};
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Default and maximum number of executions of a page. The limits of the service are not documented.
const PAGE: usize = 100;
/// Longest time limit of a task, most arguments and variables of a container (docs.cloud.google.com/run/quotas).
const LONGEST: Duration = Duration::from_secs(168 * 3600);
const MOST: usize = 1000;

fn not_found(what: &str) -> Refusal {
    Refusal::new(404, "NOT_FOUND", format!("Resource '{what}' was not found"))
}

/// Refusal of an injected fault.
pub(crate) fn fault(status: u16) -> Refusal {
    let (word, message) = match status {
        403 => ("PERMISSION_DENIED", "Permission 'run.jobs.run' denied on resource (or resource may not exist)."),
        429 => (
            "RESOURCE_EXHAUSTED",
            "Quota exceeded for quota metric 'Job run requests' of service 'run.googleapis.com'.",
        ),
        503 => ("UNAVAILABLE", "The service is currently unavailable."),
        _ => ("INTERNAL", "Internal error encountered."),
    };
    Refusal::new(status, word, message)
}

/// An answer that is no refusal.
pub(crate) enum Answer {
    Json(Value),
    /// The connection ends instead.
    Lost,
}

/// A request that has the form of a call. `job` and `execution` are full names.
pub(crate) enum Routed {
    GetJob { job: String },
    Run { job: String, request: RunJobRequest },
    List { job: String, size: usize, from: usize },
    Get { execution: String },
    Cancel { execution: String, request: CancelExecutionRequest },
}

impl Routed {
    pub(crate) fn call(&self) -> Call {
        match self {
            Routed::GetJob { .. } => Call::GetJob,
            Routed::Run { .. } => Call::Run,
            Routed::List { .. } => Call::List,
            Routed::Get { .. } => Call::Get,
            Routed::Cancel { .. } => Call::Cancel,
        }
    }
}

/// Returns the call of a request: one of five paths of `transport.rs`, with the parameters that it has there.
pub(crate) fn route(parts: &Parts, body: &[u8]) -> Result<Routed, Refusal> {
    let (path, verb) = match parts.uri.path().rsplit_once(':') {
        Some((path, verb)) => (path, verb),
        None => (parts.uri.path(), ""),
    };
    let segments: Vec<&str> = path.trim_start_matches("/v2/").split('/').collect();
    let query = parts.uri.query().unwrap_or_default();
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let of_query = |known: &[&str]| match query.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Refusal::invalid(format!(
            "Invalid JSON payload received. Unknown name \"{name}\": Cannot bind query parameter."
        ))),
    };
    let job = || segments[..6.min(segments.len())].join("/");
    match (&parts.method, &segments[..], verb) {
        (&Method::GET, ["projects", _, "locations", _, "jobs", _], "") => {
            of_query(&[]).map(|()| Routed::GetJob { job: job() })
        }
        (&Method::POST, ["projects", _, "locations", _, "jobs", _], "run") => {
            of_query(&[])?;
            Ok(Routed::Run { job: job(), request: parsed(body)? })
        }
        (&Method::GET, ["projects", _, "locations", _, "jobs", _, "executions"], "") => {
            of_query(&["pageSize", "pageToken", "showDeleted"])?;
            let number = |name: &str| match query.get(name).map(String::as_str) {
                None | Some("") => Ok(0),
                Some(text) => text.parse::<usize>().map_err(|_| Refusal::invalid(format!("Invalid value at '{name}'"))),
            };
            let size = number("pageSize")?;
            let size = if size == 0 { PAGE } else { size.min(PAGE) };
            Ok(Routed::List { job: job(), size, from: number("pageToken")? })
        }
        (&Method::GET, ["projects", _, "locations", _, "jobs", _, "executions", _], "") => {
            of_query(&[]).map(|()| Routed::Get { execution: segments.join("/") })
        }
        (&Method::POST, ["projects", _, "locations", _, "jobs", _, "executions", _], "cancel") => {
            of_query(&[])?;
            Ok(Routed::Cancel { execution: segments.join("/"), request: parsed(body)? })
        }
        _ => Err(Refusal::no_such_path()),
    }
}

/// Carries out a call.
pub(crate) fn done(service: &Arc<Service>, routed: Routed, effect: Option<Effect>) -> Result<Answer, Refusal> {
    let mut state = service.state();
    match routed {
        Routed::GetJob { job } => {
            let settings = settings(&state, &job)?;
            Ok(Answer::Json(job_json(&job, settings)))
        }
        Routed::List { job, size, from } => {
            settings(&state, &job)?;
            let of_job = || state.executions.iter().rev().filter(|execution| execution.job == job);
            let page: Vec<Value> = of_job().skip(from).take(size).map(Execution::json).collect();
            let next = if of_job().nth(from + size).is_some() { (from + size).to_string() } else { String::new() };
            Ok(Answer::Json(json!({"executions": page, "nextPageToken": next})))
        }
        Routed::Get { execution } => find(&state, &execution).map(|found| Answer::Json(found.json())),
        Routed::Cancel { execution, request } => {
            let found = find(&state, &execution)?;
            if !request.validate_only && (request.etag.is_empty() || request.etag == found.etag()) {
                found.end(Outcome::Cancelled);
            }
            Ok(Answer::Json(operation(found)))
        }
        Routed::Run { job, request } => {
            let start = start(settings(&state, &job)?, &job, request, effect)?;
            if effect == Some(Effect::Doubled) {
                Execution::start(service, &mut state, start.clone());
            }
            let answer = operation(Execution::start(service, &mut state, start));
            Ok(if effect == Some(Effect::Lost) { Answer::Lost } else { Answer::Json(answer) })
        }
    }
}

fn settings(state: &State, job: &str) -> Result<JobSettings, Refusal> {
    state.jobs.get(job).copied().ok_or_else(|| not_found(job))
}

fn find<'a>(state: &'a State, name: &str) -> Result<&'a Execution, Refusal> {
    let found = state.executions.iter().find(|execution| execution.full_name() == name);
    found.ok_or_else(|| not_found(name))
}

/// `google.longrunning.Operation` of `jobs.run` and `executions.cancel`: its metadata is the execution.
fn operation(execution: &Execution) -> Value {
    let mut metadata = execution.json();
    metadata["@type"] = "type.googleapis.com/google.cloud.run.v2.Execution".into();
    let parent = execution.job.split("/jobs/").next().unwrap_or_default();
    json!({"name": format!("{parent}/operations/{}", execution.name), "metadata": metadata, "done": false})
}

fn job_json(name: &str, settings: JobSettings) -> Value {
    let template = json!({
        "containers": [{"name": "tidelock", "image": "example-docker.pkg.dev/p/r/tidelock:1"}],
        "maxRetries": settings.max_retries, "timeout": "600s",
        "serviceAccount": "jobs@example.iam.gserviceaccount.com",
        "executionEnvironment": "EXECUTION_ENVIRONMENT_GEN2",
    });
    json!({"name": name, "uid": "1", "generation": "1", "template": {"taskCount": 1, "template": template}})
}

/// Checks what a start overrides.
fn start(settings: JobSettings, job: &str, request: RunJobRequest, effect: Option<Effect>) -> Result<Start, Refusal> {
    if request.validate_only || !request.etag.is_empty() {
        return Err(Refusal::new(501, "UNIMPLEMENTED", "The double only starts executions."));
    }
    let overrides = request.overrides;
    if overrides.task_count != 1 {
        return Err(Refusal::invalid("The double runs one task."));
    }
    // Such as `3600s`: `google.protobuf.Duration` in JSON.
    let seconds =
        overrides.timeout.as_deref().map(|text| text.strip_suffix('s').and_then(|text| text.parse::<u64>().ok()));
    let timeout = match seconds {
        None => Duration::from_secs(600),
        Some(Some(seconds)) if (1..=LONGEST.as_secs()).contains(&seconds) => Duration::from_secs(seconds),
        Some(_) => return Err(Refusal::invalid("timeout: must be at least 1s and no more than 168h")),
    };
    let mut start = Start { job: job.to_owned(), args: Vec::new(), env: Vec::new(), timeout, settings, effect };
    let [container] = &overrides.container_overrides[..] else {
        return Err(Refusal::invalid("The job has one container."));
    };
    if !matches!(container.name.as_str(), "" | "tidelock") {
        return Err(Refusal::invalid(format!("container_overrides: there is no container '{}'", container.name)));
    }
    if container.clear_args && !container.args.is_empty() {
        return Err(Refusal::invalid("clear_args and args exclude each other"));
    }
    if container.args.len() > MOST || container.env.len() > MOST {
        return Err(Refusal::invalid(format!("at most {MOST} arguments and {MOST} variables")));
    }
    start.args.clone_from(&container.args);
    for variable in &container.env {
        if variable.name.is_empty() || variable.name.contains(['=', '\0']) {
            return Err(Refusal::invalid("env: the name of a variable is invalid"));
        }
        start.env.push((variable.name.clone(), variable.value.clone()));
    }
    Ok(start)
}
