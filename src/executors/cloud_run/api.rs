//! Calls of the Cloud Run Admin API, version 2. Paths, fields and words of states are those of the crate `google-cloud-run-v2` 1.15.0
//! (`transport.rs`, `model.rs`), of which this has what an engine needs: five of its 60 calls.

use crate::config::executors::CloudRunJob;
use crate::vault::jobs::without_keys;
use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials, anonymous};
use reqwest::{Client, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error as _;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Address of the service.
const SERVICE: &str = "https://run.googleapis.com";
/// Time limit of a connection, and of one call.
const TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));
/// Largest answer, in bytes: a page has 100 executions of a few kilobytes.
const MAX_ANSWER: usize = 16 << 20;
/// Executions of one page.
const PAGE: usize = 100;
/// Longest message of the service that is quoted, in characters.
const QUOTED: usize = 500;

/// Reason for which a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RunApiError {
    /// Whether the call was carried out is not known.
    #[error("Cloud Run did not answer: {0}")]
    Unanswered(String),
    /// It was not carried out, and may be later.
    #[error("Cloud Run does not do it now: {0}")]
    NotNow(String),
    /// It was not carried out, and never will be.
    #[error("Cloud Run refuses it with {status}: {message}")]
    Refused {
        /// Status of the answer.
        status: StatusCode,
        /// Message of the service.
        message: String,
    },
}

/// The job, which `jobs.get` answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunJobResource {
    /// Settings of its executions.
    pub(super) template: RunExecutionTemplate,
}

/// Settings of executions.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunExecutionTemplate {
    /// Settings of their tasks.
    pub(super) template: RunTaskTemplate,
}

/// Settings of tasks.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunTaskTemplate {
    /// Containers.
    pub(super) containers: Vec<RunContainer>,
    /// Most repetitions of a task that failed. The service answers its default too.
    pub(super) max_retries: i32,
}

/// A container, without what the engine does not need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunContainer {
    /// Environment.
    pub(super) env: Vec<RunVariable>,
}

/// A variable of a container. Its value is empty if a secret has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunVariable {
    pub(super) name: String,
    pub(super) value: String,
}

/// An execution.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunExecution {
    /// Full name.
    pub(super) name: String,
    /// Time of its end.
    pub(super) completion_time: Option<String>,
    /// Tasks that run.
    pub(super) running_count: i32,
    /// Settings of its task, with what its start has overridden.
    pub(super) template: RunTaskTemplate,
    pub(super) conditions: Vec<RunCondition>,
}

/// A condition of an execution.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunCondition {
    pub(super) r#type: String,
    pub(super) state: String,
    pub(super) message: String,
    /// Reason that all resources have.
    pub(super) reason: String,
    /// Reason that only executions have.
    pub(super) execution_reason: String,
}

/// A page of executions.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunExecutionPage {
    pub(super) executions: Vec<RunExecution>,
    /// Token of the next page; empty at the end.
    pub(super) next_page_token: String,
}

/// What a start overrides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunOverrides {
    pub(super) container_overrides: [RunContainerOverride; 1],
    pub(super) task_count: i32,
    /// Such as `600s`.
    pub(super) timeout: String,
}

/// What a start overrides of the container.
#[derive(Debug, Serialize)]
pub(super) struct RunContainerOverride {
    /// They replace those of the job.
    pub(super) args: Vec<String>,
    /// They are merged with those of the job.
    pub(super) env: Vec<RunVariable>,
}

#[derive(Debug, Serialize)]
struct RunJobRequest<'a> {
    overrides: &'a RunOverrides,
}

#[derive(Debug, Serialize)]
struct CancelRunRequest {}

/// A long-running operation. Its metadata is the execution.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunOperation {
    metadata: RunOperationMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunOperationMetadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunRefusal {
    error: RunRefusalMessage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunRefusalMessage {
    message: String,
}

/// The service, for one job.
pub(super) struct RunApi {
    job: CloudRunJob,
    /// Address of a double of the service, which gets no credentials.
    endpoint: Option<String>,
    client: OnceCell<Client>,
    credentials: OnceCell<Credentials>,
}

impl RunApi {
    /// Makes no request.
    pub(super) fn new(job: CloudRunJob, endpoint: Option<String>) -> RunApi {
        // Needed before the credentials are loaded, which may be over TLS. An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        RunApi { job, endpoint, client: OnceCell::new(), credentials: OnceCell::new() }
    }

    pub(super) fn job(&self) -> &CloudRunJob {
        &self.job
    }

    /// Returns the job.
    pub(super) async fn resource(&self) -> Result<RunJobResource, RunApiError> {
        self.call(Method::GET, "", &[], None::<&()>).await
    }

    /// Starts an execution. Returns its short name; absent if the answer has none.
    pub(super) async fn run(&self, overrides: &RunOverrides) -> Result<Option<String>, RunApiError> {
        let operation: RunOperation = self.call(Method::POST, ":run", &[], Some(&RunJobRequest { overrides })).await?;
        Ok(short_name(&operation.metadata.name).map(str::to_owned))
    }

    /// Returns a page of all executions of the job.
    pub(super) async fn executions(&self, token: &str) -> Result<RunExecutionPage, RunApiError> {
        let size = PAGE.to_string();
        let query = [("pageSize", size.as_str()), ("pageToken", token)];
        self.call(Method::GET, "/executions", &query, None::<&()>).await
    }

    /// Returns an execution by its short name; absent if there is none.
    pub(super) async fn execution(&self, name: &str) -> Result<Option<RunExecution>, RunApiError> {
        match self.call(Method::GET, &format!("/executions/{name}"), &[], None::<&()>).await {
            Err(RunApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Cancels an execution: its process gets SIGTERM, and is killed ten seconds later.
    pub(super) async fn cancel(&self, name: &str) -> Result<(), RunApiError> {
        let path = format!("/executions/{name}:cancel");
        self.call::<RunOperation, _>(Method::POST, &path, &[], Some(&CancelRunRequest {})).await.map(drop)
    }

    async fn call<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&B>,
    ) -> Result<T, RunApiError> {
        let service = self.endpoint.as_deref().unwrap_or(SERVICE);
        let mut url = reqwest::Url::parse(&format!("{service}/v2/{}{path}", self.job))
            .map_err(|error| RunApiError::NotNow(format!("no address: {error}")))?;
        url.query_pairs_mut().extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
        let request = self.client().await?.request(method, url).headers(self.headers().await?);
        let request = if let Some(body) = body { request.json(body) } else { request };
        let response = request.send().await.map_err(|error| unanswered(&error))?;
        let status = response.status();
        let bytes = read(response).await?;
        if !status.is_success() {
            return Err(refusal(status, &bytes));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| RunApiError::Unanswered(format!("its answer is unknown: {error}")))
    }

    async fn client(&self) -> Result<&Client, RunApiError> {
        let make = async || {
            // Certificates are read from disk.
            let build = || {
                let builder = Client::builder().redirect(reqwest::redirect::Policy::none());
                builder.connect_timeout(TIMES.0).timeout(TIMES.1).build()
            };
            let built =
                tokio::task::spawn_blocking(build).await.map_err(|error| RunApiError::NotNow(error.to_string()))?;
            built.map_err(|error| RunApiError::NotNow(format!("no client: {error}")))
        };
        self.client.get_or_try_init(make).await
    }

    async fn headers(&self) -> Result<http::HeaderMap, RunApiError> {
        let without = |error: String| RunApiError::NotNow(format!("no credentials: {error}"));
        let make = async || match self.endpoint {
            Some(_) => Ok(anonymous::Builder::new().build()),
            None => {
                let built = tokio::task::spawn_blocking(|| Builder::default().build()).await;
                built.map_err(|error| without(error.to_string()))?.map_err(|error| without(error.to_string()))
            }
        };
        let credentials = self.credentials.get_or_try_init(make).await?;
        let asked = tokio::time::timeout(TIMES.1, credentials.headers(http::Extensions::new())).await;
        match asked.map_err(|_| without("no token within the time limit".to_owned()))? {
            Ok(CacheableResource::New { data, .. }) => Ok(data),
            // Not reached: the request names no earlier headers that could be unmodified.
            Ok(CacheableResource::NotModified) => Ok(http::HeaderMap::new()),
            Err(error) => Err(without(error.to_string())),
        }
    }
}

/// Returns the last segment of an execution's name.
pub(super) fn short_name(name: &str) -> Option<&str> {
    let (_, short) = name.rsplit_once("/executions/")?;
    let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=63).contains(&short.len()) && short.bytes().all(in_name)).then_some(short)
}

/// Returns a text of the service for people.
pub(super) fn quoted(text: &str) -> String {
    let text = without_keys(text.trim().trim_end_matches('.'));
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTED).collect()
}

fn unanswered(error: &reqwest::Error) -> RunApiError {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    RunApiError::Unanswered(quoted(&text))
}

async fn read(mut response: Response) -> Result<Vec<u8>, RunApiError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unanswered(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            return Err(RunApiError::Unanswered(format!("its answer is larger than {MAX_ANSWER} bytes")));
        }
    }
    Ok(body)
}

fn refusal(status: StatusCode, body: &[u8]) -> RunApiError {
    let parsed: RunRefusal = serde_json::from_slice(body).unwrap_or_default();
    let message = quoted(&parsed.error.message);
    let told = format!("{status}: {message}");
    match status {
        StatusCode::REQUEST_TIMEOUT => RunApiError::Unanswered(told),
        _ if status.is_server_error() => RunApiError::Unanswered(told),
        // Wrong credentials are replaced, and a conflict passes.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::CONFLICT => RunApiError::NotNow(told),
        status => RunApiError::Refused { status, message },
    }
}
