//! Calls of the Cloud Run Admin API, version 2. Paths, fields and words of states are those of the crate `google-cloud-run-v2` 1.15.0
//! (`transport.rs`, `model.rs`), of which this has what an engine needs: five of its 60 calls.

use crate::config::executors::CloudRunJob;
use crate::google_api::{GoogleApi, GoogleApiError};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Address of the service.
const SERVICE: &str = "https://run.googleapis.com";
/// Executions of one page.
const PAGE: usize = 100;

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

/// The service, for one job.
pub(super) struct RunApi {
    job: CloudRunJob,
    google: GoogleApi,
}

impl RunApi {
    /// Makes no request. `endpoint`: address of a double of the service.
    pub(super) fn new(job: CloudRunJob, endpoint: Option<String>) -> RunApi {
        RunApi { job, google: GoogleApi::new("Cloud Run", SERVICE, endpoint) }
    }

    pub(super) fn job(&self) -> &CloudRunJob {
        &self.job
    }

    /// Returns the job.
    pub(super) async fn resource(&self) -> Result<RunJobResource, GoogleApiError> {
        self.call(Method::GET, "", &[], None::<&()>).await
    }

    /// Starts an execution. Returns its short name; absent if the answer has none.
    pub(super) async fn run(&self, overrides: &RunOverrides) -> Result<Option<String>, GoogleApiError> {
        let operation: RunOperation = self.call(Method::POST, ":run", &[], Some(&RunJobRequest { overrides })).await?;
        Ok(short_name(&operation.metadata.name).map(str::to_owned))
    }

    /// Returns a page of all executions of the job.
    pub(super) async fn executions(&self, token: &str) -> Result<RunExecutionPage, GoogleApiError> {
        let size = PAGE.to_string();
        let query = [("pageSize", size.as_str()), ("pageToken", token)];
        self.call(Method::GET, "/executions", &query, None::<&()>).await
    }

    /// Returns an execution by its short name; absent if there is none.
    pub(super) async fn execution(&self, name: &str) -> Result<Option<RunExecution>, GoogleApiError> {
        match self.call(Method::GET, &format!("/executions/{name}"), &[], None::<&()>).await {
            Err(GoogleApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Cancels an execution: its process gets SIGTERM, and is killed ten seconds later.
    pub(super) async fn cancel(&self, name: &str) -> Result<(), GoogleApiError> {
        let path = format!("/executions/{name}:cancel");
        self.call::<RunOperation, _>(Method::POST, &path, &[], Some(&CancelRunRequest {})).await.map(drop)
    }

    async fn call<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&B>,
    ) -> Result<T, GoogleApiError> {
        self.google.call(method, &format!("v2/{}{path}", self.job), query, body).await
    }
}

/// Returns the last segment of an execution's name.
pub(super) fn short_name(name: &str) -> Option<&str> {
    let (_, short) = name.rsplit_once("/executions/")?;
    let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=63).contains(&short.len()) && short.bytes().all(in_name)).then_some(short)
}
