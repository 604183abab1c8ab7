//! The template of an executor: an operator's manifest of a Job, and what the server sets in it.

use crate::config::yaml_document;
use crate::executors::engine::EngineJob;
use crate::vault::jobs::JobPrefix;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Largest template, in bytes.
const MAX_TEMPLATE: u64 = 128 << 10;
/// Name of the container of a job, where the pod has several.
const CONTAINER: &str = "tidelock";
/// Argument of this program in it.
const COMMAND: &str = crate::executors::run_job::COMMAND;
/// Labels of Jobs and pods. The first one is everybody's; the others have the executor's name and the hash of the job's prefix.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tidelock");
pub(super) const EXECUTOR_LABEL: &str = "tidelock/executor";
pub(super) const JOB_LABEL: &str = "tidelock/job";
/// Defaults of `activeDeadlineSeconds` and `ttlSecondsAfterFinished`.
const DEADLINE: i64 = 24 * 3600;
const TTL: i32 = 600;
/// Time beyond a job's own grace until its pod is killed, in seconds.
const BEYOND_GRACE: i64 = 30;

/// A checked template.
#[derive(Debug, Clone)]
pub(crate) struct JobTemplate {
    /// Its path, for messages.
    file: String,
    job: Job,
    /// Index of the container that runs the job.
    container: usize,
}

/// What the Jobs of one executor have in common.
pub(super) struct JobIdentity<'a> {
    pub(super) executor: &'a str,
    pub(super) namespace: &'a str,
    /// Variables with the address of the bucket.
    pub(super) env: &'a [(String, String)],
    /// Variable that gets the job's prefix.
    pub(super) job_variable: &'static str,
}

impl JobTemplate {
    /// Reads and checks a template. Blocks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no manifest of a Job, or contradicts what the server sets. The text names file and field.
    pub(crate) fn read(path: &Path, job_variable: &str) -> Result<JobTemplate> {
        let file = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_TEMPLATE + 1).read_to_string(&mut text));
        read.with_context(|| format!("cannot read the template {file}"))?;
        ensure!(text.len() as u64 <= MAX_TEMPLATE, "{file}: too large: at most {MAX_TEMPLATE} bytes are read");
        JobTemplate::parse(&text, &file, job_variable)
    }

    fn parse(text: &str, file: &str, job_variable: &str) -> Result<JobTemplate> {
        let error = |error: crate::config::ConfigError| anyhow!("{error}");
        let written: Value = yaml_document(text, file).map_err(error)?.unwrap_or_default();
        let is_job = written["apiVersion"] == "batch/v1" && written["kind"] == "Job";
        ensure!(is_job, "{file}: a manifest with `apiVersion: batch/v1` and `kind: Job` is expected");
        let job: Job = yaml_document(text, file).map_err(error)?.unwrap_or_default();
        // The types pass over what they do not know, such as a mistyped `serviceAccountName`.
        if let Some(field) = unknown_field(&written, &serde_json::to_value(&job)?, "") {
            bail!("{file}: {field}: a Job of Kubernetes 1.33 has no such field");
        }
        let container = checked(&job, job_variable).map_err(|problem| anyhow!("{file}: {problem}"))?;
        Ok(JobTemplate { file: file.to_owned(), job, container })
    }

    /// Returns its path, for messages.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the namespace that the template names.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.job.metadata.namespace.as_deref()
    }

    /// Returns the name of the container that runs the job.
    pub(super) fn container(&self) -> String {
        self.pod().and_then(|pod| pod.containers.get(self.container)).map(|one| one.name.clone()).unwrap_or_default()
    }

    fn pod(&self) -> Option<&PodSpec> {
        self.job.spec.as_ref()?.template.spec.as_ref()
    }

    /// Returns the Job of a start.
    pub(super) fn job(&self, job: EngineJob<'_>, number: u32, identity: &JobIdentity<'_>) -> Job {
        let mut made = self.job.clone();
        let hash = job_hash(job.prefix);
        let labels = [MANAGED_BY, (EXECUTOR_LABEL, identity.executor), (JOB_LABEL, &hash)];
        let label = |into: &mut Option<BTreeMap<String, String>>| {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            into.get_or_insert_default().extend(labels);
        };
        made.metadata.name = Some(format!("tidelock-{hash}-{number}"));
        made.metadata.generate_name = None;
        made.metadata.namespace = Some(identity.namespace.to_owned());
        label(&mut made.metadata.labels);
        let spec = made.spec.get_or_insert_default();
        (spec.parallelism, spec.completions, spec.backoff_limit) = (Some(1), Some(1), Some(0));
        spec.pod_replacement_policy = Some("Failed".to_owned());
        spec.active_deadline_seconds.get_or_insert(DEADLINE);
        spec.ttl_seconds_after_finished.get_or_insert(TTL);
        label(&mut spec.template.metadata.get_or_insert_default().labels);
        let pod = spec.template.spec.get_or_insert_default();
        pod.restart_policy = Some("Never".to_owned());
        pod.automount_service_account_token.get_or_insert(false);
        let grace = i64::try_from(job.grace.as_secs()).unwrap_or(i64::MAX).saturating_add(BEYOND_GRACE);
        pod.termination_grace_period_seconds = pod.termination_grace_period_seconds.max(Some(grace));
        if let Some(container) = pod.containers.get_mut(self.container) {
            fill(container, job, identity);
        }
        made
    }
}

/// Returns what stands for a job in names and labels. The prefix itself is secret.
pub(super) fn job_hash(prefix: &JobPrefix) -> String {
    hex::encode(&Sha256::digest(prefix.to_string())[..12])
}

fn fill(container: &mut Container, job: EngineJob<'_>, identity: &JobIdentity<'_>) {
    if !ends_with_command(container) {
        container.args = Some(vec![COMMAND.to_owned()]);
    }
    let env = container.env.get_or_insert_default();
    for (name, value) in identity.env {
        if env.iter().all(|given| given.name != *name) {
            env.push(EnvVar { name: name.clone(), value: Some(value.clone()), value_from: None });
        }
    }
    let prefix = Some(job.prefix.to_string());
    env.push(EnvVar { name: identity.job_variable.to_owned(), value: prefix, value_from: None });
}

/// Returns true if the container's own command line ends with `run-job`, also as the last word of a shell's command.
fn ends_with_command(container: &Container) -> bool {
    let words = [&container.command, &container.args].into_iter().flatten().flatten();
    words.last().is_some_and(|last| last.split_whitespace().last() == Some(COMMAND))
}

/// Checks what a template says about fields that the server sets. Returns the index of the container that runs the job.
fn checked(job: &Job, job_variable: &str) -> Result<usize, String> {
    let spec = job.spec.as_ref().ok_or("spec: it is missing")?;
    let pod = spec.template.spec.as_ref().ok_or("spec.template.spec: it is missing")?;
    let differs = |text: &Option<String>, wanted: &str| text.as_ref().is_some_and(|text| text != wanted);
    let contradictions = [
        (spec.parallelism.is_some_and(|count| count != 1), "spec.parallelism", "1"),
        (spec.completions.is_some_and(|count| count != 1), "spec.completions", "1"),
        (differs(&spec.completion_mode, "NonIndexed"), "spec.completionMode", "NonIndexed"),
        (spec.backoff_limit.is_some_and(|limit| limit != 0), "spec.backoffLimit", "0"),
        (differs(&spec.pod_replacement_policy, "Failed"), "spec.podReplacementPolicy", "Failed"),
        (differs(&pod.restart_policy, "Never"), "spec.template.spec.restartPolicy", "Never"),
    ];
    if let Some((_, field, wanted)) = contradictions.into_iter().find(|(is_wrong, ..)| *is_wrong) {
        return Err(format!("{field}: it must be {wanted}, as Tidelock decides itself whether a job is started again"));
    }
    if spec.selector.is_some() || spec.manual_selector == Some(true) {
        return Err("spec.selector: each Job gets its own; drop it".to_owned());
    }
    let container = match pod.containers.as_slice() {
        [] => return Err("spec.template.spec.containers: there is none".to_owned()),
        [_] => 0,
        several => several.iter().position(|container| container.name == CONTAINER).ok_or_else(|| {
            format!(
                "spec.template.spec.containers: of several, the one that runs jobs must have the name `{CONTAINER}`"
            )
        })?,
    };
    let (at, one) = (format!("spec.template.spec.containers[{container}]"), &pod.containers[container]);
    if one.image.as_ref().is_none_or(String::is_empty) {
        return Err(format!("{at}.image: it is missing; give it the image of the server"));
    }
    if one.args.as_ref().is_some_and(|args| !args.is_empty()) && !ends_with_command(one) {
        return Err(format!("{at}.args: they must end with `{COMMAND}`"));
    }
    if one.env.iter().flatten().any(|variable| variable.name == job_variable) {
        return Err(format!("{at}.env: {job_variable} is set by Tidelock for each job; drop it"));
    }
    Ok(container)
}

/// Returns the path of the first field of a manifest that is not among the known ones.
fn unknown_field(written: &Value, known: &Value, path: &str) -> Option<String> {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => written.iter().find_map(|(key, value)| {
            let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match known.get(key) {
                Some(known) => unknown_field(value, known, &at),
                None => (!value.is_null()).then_some(at),
            }
        }),
        (Value::Array(written), Value::Array(known)) => {
            let pairs = written.iter().zip(known).enumerate();
            pairs
                .map(|(index, pair)| (format!("{path}[{index}]"), pair))
                .find_map(|(at, (one, other))| unknown_field(one, other, &at))
        }
        _ => None,
    }
}
