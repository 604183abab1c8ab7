//! Bodies of requests. An unknown field is an error, as it is for the service: "Unknown name … Cannot find field".

use serde::Deserialize;

/// `RunJobRequest` without `name`, which is in the path (`body: "*"` of `jobs.run`).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct RunJobRequest {
    pub(crate) validate_only: bool,
    pub(crate) etag: String,
    pub(crate) overrides: Overrides,
}

/// `RunJobRequest.Overrides`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Overrides {
    pub(crate) container_overrides: Vec<ContainerOverride>,
    pub(crate) task_count: i32,
    pub(crate) timeout: Option<String>,
}

/// `RunJobRequest.Overrides.ContainerOverride`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct ContainerOverride {
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<EnvVar>,
    pub(crate) clear_args: bool,
}

/// `EnvVar` without `valueSource`: the double has no secrets.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EnvVar {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// `CancelExecutionRequest` without `name`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct CancelExecutionRequest {
    pub(crate) validate_only: bool,
    pub(crate) etag: String,
}
