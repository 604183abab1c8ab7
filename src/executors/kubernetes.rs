//! The engine `kubernetes`: each start of a job is a Job of the cluster, made of the executor's template. A watch tells how they do, so a
//! look costs no request.

mod known;
mod seen;
mod template;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use template::JobTemplate;

use super::engine::{Engine, EngineJob, EngineState, NotStarted};
use crate::vault::jobs::{JobPrefix, without_keys};
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use known::KnownJobs;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Config};
use seen::one_line;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use template::{EXECUTOR_LABEL, JOB_LABEL, JobIdentity, job_hash};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use watch::{Sight, watch};

/// Time limit of one request.
const REQUEST: Duration = Duration::from_secs(30);
/// Longest wait for the first list of a watch.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// Settings of an executor of this kind.
pub(crate) struct KubernetesSettings {
    /// Template of its Jobs.
    pub(crate) template: JobTemplate,
    /// Variables with the address of the bucket.
    pub(crate) env: Vec<(String, String)>,
    /// Variable that gets the job's prefix.
    pub(crate) job_variable: &'static str,
}

/// Starts jobs in a cluster.
pub(crate) struct KubernetesEngine {
    executor: String,
    settings: KubernetesSettings,
    namespace: String,
    jobs: Api<Job>,
    pods: Api<Pod>,
    sight: Arc<Sight>,
    watching: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl KubernetesEngine {
    /// Returns an engine for the cluster that `KUBECONFIG` names, or else the one that this process runs in. Makes no request.
    ///
    /// # Errors
    ///
    /// If neither says how to reach a cluster.
    pub(crate) async fn new(executor: &str, settings: KubernetesSettings) -> Result<KubernetesEngine> {
        let config = Config::infer().await.context(
            "it is not known how to reach a cluster: run the server in it with a service account, or set KUBECONFIG",
        )?;
        let namespace = settings.template.namespace().unwrap_or(&config.default_namespace).to_owned();
        let client = Client::try_from(config).context("the cluster cannot be reached")?;
        let known = KnownJobs::new(settings.template.container());
        Ok(KubernetesEngine {
            executor: executor.to_owned(),
            settings,
            jobs: Api::namespaced(client.clone(), &namespace),
            pods: Api::namespaced(client, &namespace),
            namespace,
            sight: Arc::new(Sight::new(known)),
            watching: Mutex::new(None),
        })
    }

    /// Starts the watch unless it runs, and keeps it for a while.
    fn keep_watching(&self) {
        self.sight.ask();
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if watching.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let selector = format!("{EXECUTOR_LABEL}={}", self.executor);
            let watch = watch(Arc::clone(&self.sight), self.jobs.clone(), self.pods.clone(), selector);
            *watching = Some(AbortOnDropHandle::new(tokio::spawn(watch)));
        }
    }

    fn not_started(&self, error: &kube::Error) -> NotStarted {
        let (said, namespace, file) = (refused(error), &self.namespace, self.settings.template.file());
        let kube::Error::Api(status) = error else { return NotStarted::NotNow(said) };
        match status.code {
            403 if status.message.contains("exceeded quota") => NotStarted::NotNow(said),
            403 if status.message.contains("cannot create resource") => NotStarted::NoRight(format!(
                "the server may not create Jobs in the namespace `{namespace}`; give its service account the rights that docs/executors.md \
                 names. The API server says: {said}"
            )),
            404 => NotStarted::Never(format!(
                "there is no namespace `{namespace}`; create it, or correct `metadata.namespace` in {file}. The API server says: {said}"
            )),
            400 | 403 | 422 => {
                NotStarted::Never(format!("the API server refuses the Job; correct {file}. It says: {said}"))
            }
            _ => NotStarted::NotNow(said),
        }
    }

    /// Returns the Jobs of a job. A failure is only logged.
    async fn jobs_of(&self, hash: &str) -> Vec<Job> {
        let list = ListParams::default().labels(&format!("{JOB_LABEL}={hash}"));
        let problem = match timeout(REQUEST, self.jobs.list(&list)).await {
            Ok(Ok(listed)) => return listed.items,
            Ok(Err(error)) => refused(&error),
            Err(_) => "the API server does not answer".to_owned(),
        };
        tracing::warn!("the Jobs of a job that is to end cannot be listed: {problem}");
        Vec::new()
    }

    /// Deletes a Job with its pods, which get SIGTERM.
    async fn delete(&self, name: &str) {
        let problem = match timeout(REQUEST, self.jobs.delete(name, &DeleteParams::background())).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => refused(&error),
            Err(_) => "the API server does not answer".to_owned(),
        };
        tracing::warn!("the Job {name} in the namespace {} cannot be deleted: {problem}", self.namespace);
    }
}

/// Returns true if no pod of a Job runs or has ended.
fn has_not_begun(job: &Job) -> bool {
    let Some(status) = &job.status else { return true };
    let counts = [status.ready, status.succeeded, status.failed];
    counts.iter().all(|count| count.unwrap_or_default() == 0) && status.conditions.as_ref().is_none_or(Vec::is_empty)
}

/// Returns what the API server, or the way to it, says, on one line.
fn refused(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => {
            let (mut text, mut cause) = (other.to_string(), other.source());
            while let Some(error) = cause {
                let said = error.to_string();
                if !text.contains(&said) {
                    text = format!("{text}: {said}");
                }
                cause = error.source();
            }
            text
        }
    };
    one_line(&without_keys(&text))
}

#[async_trait]
impl Engine for KubernetesEngine {
    async fn start(&self, job: EngineJob<'_>, number: u32) -> Result<Option<String>, NotStarted> {
        self.keep_watching();
        let identity = JobIdentity {
            executor: &self.executor,
            namespace: &self.namespace,
            env: &self.settings.env,
            job_variable: self.settings.job_variable,
        };
        let made = self.settings.template.job(job, number, &identity);
        match timeout(REQUEST, self.jobs.create(&PostParams::default(), &made)).await {
            // The watch tells of it only later.
            Ok(Ok(created)) => self.sight.known().see_job(&created),
            // The answer of an earlier call was lost, or another leader has made it.
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {}
            Ok(Err(error)) => return Err(self.not_started(&error)),
            Err(_) => return Err(NotStarted::NotNow("the API server does not answer".to_owned())),
        }
        let name = made.metadata.name.unwrap_or_default();
        Ok(Some(format!("Job {name} in the namespace {}", self.namespace)))
    }

    async fn look(&self, job: EngineJob<'_>) -> EngineState {
        self.keep_watching();
        if !job.is_claimed {
            // An earlier start may be there. Once the job is claimed, its signs of life say enough.
            self.sight.complete(FIRST_LIST).await;
        }
        self.sight.known().state(&job_hash(job.prefix), Instant::now())
    }

    async fn end(&self, job: EngineJob<'_>) {
        for name in self.jobs_of(&job_hash(job.prefix)).await.into_iter().filter_map(|job| job.metadata.name) {
            self.delete(&name).await;
        }
    }

    /// Jobs that have begun end by themselves, and the cluster deletes them later.
    async fn clean(&self, prefix: &JobPrefix) {
        let hash = job_hash(prefix);
        let known = self.sight.known().forget(&hash);
        let left = match known {
            Some(left) => left,
            // An earlier leader's.
            None => self
                .jobs_of(&hash)
                .await
                .into_iter()
                .filter(has_not_begun)
                .filter_map(|job| job.metadata.name)
                .collect(),
        };
        for name in left {
            self.delete(&name).await;
        }
    }
}
