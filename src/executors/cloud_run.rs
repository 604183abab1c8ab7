//! The engine `cloud_run`: jobs are executions of one Cloud Run job, whose account is their identity.
//!
//! An execution is known by the job's prefix in its environment. Executions that were started without an answer, or by an earlier leader,
//! are found by it before another is started.

mod api;
mod state;
#[cfg(test)]
mod tests;

use super::engine::{Engine, EngineJob, EngineState, NotStarted};
use crate::config::executors::CloudRunJob;
use crate::google_api::GoogleApiError;
use crate::vault::jobs::JobPrefix;
use api::{RunApi, RunContainerOverride, RunExecution, RunOverrides, RunVariable, short_name};
use async_trait::async_trait;
use reqwest::StatusCode;
use state::{ExecutionState, JobExecutions};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time limit of a task. Without it Cloud Run kills a job after the job resource's own, which is ten minutes by default. More than a day
/// is a preview, and 168 hours are the most.
const TIMEOUT: &str = "86400s";
/// Pause between two questions about all jobs of the executor.
const BETWEEN_POLLS: Duration = Duration::from_secs(3);
/// Executions up to this number are asked for one by one; of more, pages of all are read.
const FEW: usize = 10;
/// Most executions that are asked for one by one in a poll.
const MAX_SINGLE: usize = 50;
/// Most pages of a list. Cloud Run keeps the last 1,000 executions of a job, and those of seven days.
const MAX_PAGES: usize = 40;
/// Time after which a job that nobody has asked for is not polled any more, and is forgotten.
const FORGOTTEN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Age from which an execution that is not there has been deleted: before, the service may not know it everywhere yet.
const SETTLED: Duration = Duration::from_secs(60);
/// Pause before an execution is cancelled again.
const BETWEEN_CANCELS: Duration = Duration::from_secs(15);

/// Settings of the engine.
pub(crate) struct CloudRunSettings {
    /// The job resource.
    pub(crate) job: CloudRunJob,
    /// Address of a double of Cloud Run on this machine, for tests; it gets no credentials.
    pub(crate) endpoint: Option<String>,
    /// Variables that each execution gets besides those of the job resource: the address of the bucket.
    pub(crate) env: Vec<(String, String)>,
    /// Variable that gets the job's prefix.
    pub(crate) job_variable: &'static str,
}

/// Starts executions of a Cloud Run job.
pub(super) struct CloudRunEngine {
    runs: Arc<CloudRuns>,
    env: Vec<(String, String)>,
}

/// What the engine knows, and how it learns more.
struct CloudRuns {
    api: RunApi,
    job_variable: &'static str,
    jobs: Mutex<HashMap<JobPrefix, JobExecutions>>,
    /// Held by the one poll that is under way.
    polls: Arc<tokio::sync::Mutex<Polls>>,
}

#[derive(Default)]
struct Polls {
    last: Option<Instant>,
    /// Last error, so that it is logged once.
    failing: Option<String>,
}

impl CloudRunEngine {
    /// Makes no request.
    pub(super) fn new(settings: CloudRunSettings) -> CloudRunEngine {
        let CloudRunSettings { job, endpoint, env, job_variable } = settings;
        let api = RunApi::new(job, endpoint);
        let (jobs, polls) = Default::default();
        CloudRunEngine { runs: Arc::new(CloudRuns { api, job_variable, jobs, polls }), env }
    }

    /// Returns what a start overrides.
    fn overrides(&self, prefix: &JobPrefix) -> RunOverrides {
        let variable = |name: &str, value: &str| RunVariable { name: name.to_owned(), value: value.to_owned() };
        let mut env: Vec<RunVariable> = self.env.iter().map(|(name, value)| variable(name, value)).collect();
        env.push(variable(self.runs.job_variable, &prefix.to_string()));
        let args = vec!["run-job".to_owned()];
        RunOverrides {
            container_overrides: [RunContainerOverride { args, env }],
            task_count: 1,
            timeout: TIMEOUT.to_owned(),
        }
    }
}

impl CloudRuns {
    fn jobs(&self) -> MutexGuard<'_, HashMap<JobPrefix, JobExecutions>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this with what is known of a job.
    fn with<T>(&self, job: EngineJob<'_>, act: impl FnOnce(&mut JobExecutions) -> T) -> T {
        let mut jobs = self.jobs();
        let known = jobs.entry(job.prefix.clone()).or_insert_with(|| JobExecutions::new(job.beginning));
        known.looked = Instant::now();
        act(known)
    }

    /// Makes sure that no execution of a job is unknown.
    async fn search_for(&self, job: EngineJob<'_>) -> Result<(), GoogleApiError> {
        if !self.with(job, |known| known.must_be_searched()) {
            return Ok(());
        }
        let mut polls = self.polls.lock().await;
        // Another search may have found it.
        if self.with(job, |known| known.must_be_searched()) { self.poll(&mut polls).await } else { Ok(()) }
    }

    /// Asks for the executions of all jobs, unless that is under way or was done a moment ago.
    fn poll_if_due(self: &Arc<CloudRuns>) {
        let Ok(mut polls) = Arc::clone(&self.polls).try_lock_owned() else { return };
        if polls.last.is_some_and(|at| at.elapsed() < BETWEEN_POLLS) {
            return;
        }
        let runs = Arc::clone(self);
        tokio::spawn(async move {
            let failing = runs.poll(&mut polls).await.err().map(|error| error.to_string());
            if let Some(error) = failing.as_ref().filter(|_| failing != polls.failing) {
                tracing::warn!(job = %runs.api.job(), "executions of a Cloud Run job cannot be seen now: {error}");
            }
            polls.failing = failing;
        });
    }

    /// Asks for the executions of all jobs.
    async fn poll(&self, polls: &mut Polls) -> Result<(), GoogleApiError> {
        let polled = self.read_executions().await;
        polls.last = Some(Instant::now());
        polled
    }

    async fn read_executions(&self) -> Result<(), GoogleApiError> {
        let began = Instant::now();
        let (mut unseen, mut searched) = (BTreeSet::new(), Vec::new());
        {
            let mut jobs = self.jobs();
            jobs.retain(|_, known| known.looked.elapsed() < FORGOTTEN.1);
            for (prefix, known) in jobs.iter_mut().filter(|(_, known)| known.looked.elapsed() < FORGOTTEN.0) {
                unseen.extend(known.live().map(|(name, _)| name.clone()));
                if known.must_be_searched() {
                    searched.push(prefix.clone());
                }
            }
        }
        if !searched.is_empty() || unseen.len() > FEW {
            self.list(&mut unseen, !searched.is_empty()).await?;
            let mut jobs = self.jobs();
            for prefix in &searched {
                if let Some(known) = jobs.get_mut(prefix) {
                    known.searched = Some(began);
                }
            }
        }
        for name in unseen.iter().take(MAX_SINGLE) {
            match self.api.execution(name).await? {
                Some(execution) => self.record(&execution),
                None => self.record_gone(name),
            }
        }
        Ok(())
    }

    /// Reads pages: all of them, or until nothing is unseen.
    async fn list(&self, unseen: &mut BTreeSet<String>, all: bool) -> Result<(), GoogleApiError> {
        let mut token = String::new();
        for _ in 0..MAX_PAGES {
            let page = self.api.executions(&token).await?;
            for execution in &page.executions {
                self.record(execution);
                if let Some(name) = short_name(&execution.name) {
                    unseen.remove(name);
                }
            }
            token = page.next_page_token;
            if token.is_empty() || (!all && unseen.is_empty()) {
                break;
            }
        }
        Ok(())
    }

    /// Records an execution of a job that is followed.
    fn record(&self, execution: &RunExecution) {
        let variables = execution.template.containers.iter().flat_map(|container| &container.env);
        let prefix = variables.filter(|variable| variable.name == self.job_variable).last();
        let Some(prefix) = prefix.and_then(|variable| JobPrefix::parse(&variable.value)) else { return };
        let Some(name) = short_name(&execution.name) else { return };
        if let Some(known) = self.jobs().get_mut(&prefix) {
            known.record(name, ExecutionState::of(execution));
        }
    }

    /// Records that the service knows an execution no more.
    fn record_gone(&self, name: &str) {
        for known in self.jobs().values_mut() {
            let is_gone = known.live().any(|(live, known)| live == name && known.age(Instant::now()) >= SETTLED);
            if is_gone {
                known.record(name, ExecutionState::Failed("it was deleted".to_owned()));
            }
        }
    }

    /// Returns the page of an execution.
    fn page(&self, execution: &str) -> String {
        let CloudRunJob { project, region, .. } = self.api.job();
        format!("https://console.cloud.google.com/run/jobs/executions/details/{region}/{execution}?project={project}")
    }

    /// Returns the reason that a job could not be started, with the way out.
    fn not_started(&self, error: &GoogleApiError) -> NotStarted {
        let GoogleApiError::Refused { status, message, .. } = error else {
            return NotStarted::NotNow(error.to_string());
        };
        if *status == StatusCode::CONFLICT {
            return NotStarted::NotNow(format!("Cloud Run does not do it now: {status}: {message}"));
        }
        match *status {
            StatusCode::FORBIDDEN => NotStarted::NoRight(format!("{error}. {}", self.rights())),
            StatusCode::NOT_FOUND => NotStarted::Never(format!(
                "{error}. Create the job `{}`, or correct `job` of the executor in the server's `repos.yaml`",
                self.api.job()
            )),
            _ => NotStarted::Never(error.to_string()),
        }
    }

    fn rights(&self) -> String {
        let job = self.api.job();
        format!(
            "Give the server's account `roles/run.jobsExecutorWithOverrides` and `roles/run.viewer` on the job `{job}`"
        )
    }
}

#[async_trait]
impl Engine for CloudRunEngine {
    async fn start(&self, job: EngineJob<'_>, _: u32) -> Result<Option<String>, NotStarted> {
        let runs = &self.runs;
        runs.search_for(job).await.map_err(|error| runs.not_started(&error))?;
        if let Some(name) = runs.with(job, |known| known.live().next().map(|(name, _)| name.clone())) {
            return Ok(Some(runs.page(&name)));
        }
        // Before the call: this future may be dropped while it waits.
        let before = runs.with(job, |known| known.unanswered.replace(Instant::now()));
        let name = match runs.api.run(&self.overrides(job.prefix)).await {
            Ok(Some(name)) => name,
            // It is searched for.
            Ok(None) => return Ok(None),
            Err(error) => {
                if !matches!(error, GoogleApiError::Unanswered { .. }) {
                    runs.with(job, |known| known.unanswered = before);
                }
                return Err(runs.not_started(&error));
            }
        };
        runs.with(job, |known| {
            known.unanswered = before;
            known.record(&name, ExecutionState::Pending(None));
        });
        Ok(Some(runs.page(&name)))
    }

    async fn look(&self, job: EngineJob<'_>) -> EngineState {
        let state = self.runs.with(job, |known| known.state(known.looked));
        // What is asked of all jobs does not hold up this one.
        self.runs.poll_if_due();
        state
    }

    async fn end(&self, job: EngineJob<'_>) {
        let runs = &self.runs;
        if let Err(error) = runs.search_for(job).await {
            tracing::warn!("executions of a job that is to end are not known: {error}");
        }
        let due: Vec<String> = runs.with(job, |known| {
            let due = known.live().filter(|(_, known)| known.cancelled.is_none_or(|at| at.elapsed() > BETWEEN_CANCELS));
            due.map(|(name, known)| {
                known.cancelled = Some(Instant::now());
                name.clone()
            })
            .collect()
        });
        for name in due {
            if let Err(error) = runs.api.cancel(&name).await {
                tracing::warn!(execution = name, "an execution that does not end cannot be cancelled: {error}");
            }
        }
    }

    async fn check(&self) -> Vec<String> {
        let job = self.runs.api.job();
        match self.runs.api.resource().await {
            Ok(resource) if resource.template.template.max_retries == 0 => Vec::new(),
            Ok(_) => vec![format!(
                "the Cloud Run job {job} repeats what has failed, which hides the reason of a failure: set `max_retries = 0`, or run \
                 `gcloud run jobs update {} --region {} --project {} --max-retries 0`",
                job.job, job.region, job.project
            )],
            Err(error @ GoogleApiError::Refused { status: StatusCode::FORBIDDEN, .. }) => {
                vec![format!("the Cloud Run job {job} cannot be checked: {error}. {}", self.runs.rights())]
            }
            Err(error) => vec![format!("the Cloud Run job {job} cannot be checked: {error}")],
        }
    }

    async fn clean(&self, prefix: &JobPrefix) {
        self.runs.jobs().remove(prefix);
    }
}
