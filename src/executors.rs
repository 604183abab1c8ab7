//! Executors: where jobs run. A remote job is this program again, as `tidelock run-job`, on an engine that the operator names; both sides
//! exchange objects of the bucket (`vault::jobs`).

mod bounded;
mod cloud_run;
mod engine;
mod follow;
mod here;
mod kubernetes;
mod line;
mod probe;
mod process;
pub(crate) mod run_job;
pub(crate) mod spec;
#[cfg(test)]
mod tests;
mod transfer;

pub(crate) use cloud_run::CloudRunSettings;
pub(crate) use follow::{Beginning, FollowRequest, Followed, FollowedLine, FollowedLines};
pub(crate) use here::{UnpackedTree, make_place_of_trees};
pub(crate) use kubernetes::{JobTemplate, KubernetesEngine, KubernetesSettings};
pub(crate) use line::PlaceAtExecutor;
pub(crate) use probe::{BucketRight, ProbeEnd, Probed};
pub(crate) use transfer::{
    CollectProblem, PackProblem, PackedTrees, StoredSpec, TREES, lost, made_at, not_started, plan_tree, random_key,
    untrusted,
};

use crate::domain::state::RemoteJob;
use crate::domain::{ProjectId, RunId};
use crate::runner::local::ModuleOrigins;
use crate::vault::VaultError;
use crate::vault::bucket::Bucket;
use crate::vault::clock::Clock;
use crate::vault::jobs::{Claimant, Created, JobObjects, JobPrefix, JobResult};
use cloud_run::CloudRunEngine;
use engine::Engine;
use follow::JobFollower;
use line::WaitingJobs;
use process::ProcessEngine;
use spec::{RemoteBounds, ToolSources, names_errored_state};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Late end of a job whose interruption is recorded.
#[derive(Debug, PartialEq)]
pub(crate) enum LateJobEnd {
    /// It has ended with this result.
    Ended(serde_json::Value),
    /// It has not ended yet, and may never.
    Awaited,
    /// It cannot end any more.
    Never,
}

/// Record of the state that Terraform could not save in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErroredState {
    /// The server's state has it, or the job changes no state.
    Recorded,
    /// The server's state has none. If the job has stored one, its objects are the only copy.
    NotRecorded,
}

impl ErroredState {
    /// Returns true if the job's objects have the only copy, by the job's result.
    fn is_only_in(self, result: &serde_json::Value) -> bool {
        self == ErroredState::NotRecorded && names_errored_state(result)
    }
}

/// All executors of a server but `local`.
pub(crate) struct Executors {
    by_name: BTreeMap<String, EngineWithSlots>,
    bucket: Arc<dyn Bucket>,
    clock: Arc<dyn Clock>,
    /// Random value of this leader.
    leader: String,
    tools: ToolSources,
    use_plugin_cache: bool,
    bounds: RemoteBounds,
    data_dir: PathBuf,
    module_origins: ModuleOrigins,
}

struct EngineWithSlots {
    engine: Arc<dyn Engine>,
    /// Most jobs that may run at once.
    limit: usize,
    slots: Arc<Semaphore>,
    /// Jobs that wait for a slot.
    waiting: WaitingJobs,
    /// Jobs that are followed.
    followed: AtomicUsize,
}

/// Use of an executor at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecutorUse {
    /// Its name.
    pub(crate) name: String,
    /// Jobs that run on it, or that are made ready for it.
    pub(crate) running: usize,
    /// Jobs that wait for others to end.
    pub(crate) waiting: usize,
    /// Most jobs that may run at once.
    pub(crate) limit: usize,
}

/// Counts one job until it is dropped.
struct CountedJob<'a>(&'a AtomicUsize);

impl CountedJob<'_> {
    fn new(count: &AtomicUsize) -> CountedJob<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        CountedJob(count)
    }
}

impl Drop for CountedJob<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Settings of all executors.
pub(crate) struct ExecutorSettings {
    pub(crate) bucket: Arc<dyn Bucket>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Random value of this leader.
    pub(crate) leader: String,
    pub(crate) tools: ToolSources,
    pub(crate) use_plugin_cache: bool,
    pub(crate) bounds: RemoteBounds,
    pub(crate) data_dir: PathBuf,
    /// Sources of modules with tokens that can only read code, for jobs that run `init`.
    pub(crate) module_origins: ModuleOrigins,
}

/// Settings of the engine `process`.
#[derive(Clone)]
pub(crate) struct ProcessSettings {
    /// This program.
    pub(crate) program: PathBuf,
    /// Environment of jobs.
    pub(crate) env: Vec<(String, String)>,
    /// Variable that gets the job's prefix.
    pub(crate) job_variable: &'static str,
}

impl Executors {
    /// Returns no executor but `local`.
    pub(crate) fn new(settings: ExecutorSettings) -> Executors {
        let ExecutorSettings { bucket, clock, leader, tools, use_plugin_cache, bounds, data_dir, module_origins } =
            settings;
        let by_name = BTreeMap::new();
        Executors { by_name, bucket, clock, leader, tools, use_plugin_cache, bounds, data_dir, module_origins }
    }

    /// Adds an executor that runs jobs as processes of this machine, at most `limit` at once.
    pub(crate) fn add_process(&mut self, name: &str, limit: usize, settings: ProcessSettings) {
        let ProcessSettings { program, env, job_variable } = settings;
        let engine = ProcessEngine { program, env, job_variable, started: Mutex::new(HashMap::new()) };
        self.add(name, limit, Arc::new(engine));
    }

    /// Adds an executor that runs jobs as executions of a Cloud Run job, at most `limit` at once.
    pub(crate) fn add_cloud_run(&mut self, name: &str, limit: usize, settings: CloudRunSettings) {
        self.add(name, limit, Arc::new(CloudRunEngine::new(settings)));
    }

    /// Adds an executor that runs jobs in a cluster, at most `limit` at once.
    pub(crate) fn add_kubernetes(&mut self, name: &str, limit: usize, engine: KubernetesEngine) {
        self.add(name, limit, Arc::new(engine));
    }

    fn add(&mut self, name: &str, limit: usize, engine: Arc<dyn Engine>) {
        let (waiting, followed) = Default::default();
        let slots = Arc::new(Semaphore::new(limit));
        self.by_name.insert(name.to_owned(), EngineWithSlots { engine, limit, slots, waiting, followed });
    }

    /// Has each engine look at its own settings, and logs what is wrong with them. Does not wait for that.
    pub(crate) fn check(&self) {
        for (name, executor) in &self.by_name {
            let (name, engine) = (name.clone(), Arc::clone(&executor.engine));
            tokio::spawn(async move {
                for warning in engine.check().await {
                    tracing::warn!(executor = name, "{warning}");
                }
            });
        }
    }

    /// Returns what the engine of an executor finds wrong with its own settings, for the operator.
    pub(crate) async fn warnings(&self, name: &str) -> Vec<String> {
        match self.by_name.get(name) {
            Some(executor) => executor.engine.check().await,
            None => Vec::new(),
        }
    }

    /// Returns true if there is none but `local`.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns true if the jobs of an executor go on when this server ends.
    pub(crate) fn outlives_server(&self, name: &str) -> bool {
        self.by_name.get(name).is_none_or(|executor| executor.engine.outlives_server())
    }

    /// Returns true if there is an executor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Waits until a job of this run and project may run on an executor. `None` if there is no such executor.
    pub(crate) async fn slot(&self, name: &str, run: &RunId, project: &ProjectId) -> Option<OwnedSemaphorePermit> {
        let executor = self.by_name.get(name)?;
        // The semaphore serves its waiters in the order of their arrival, as the line does.
        let _place = executor.waiting.join(run, project);
        Arc::clone(&executor.slots).acquire_owned().await.ok()
    }

    /// Returns the present use of each executor.
    pub(crate) fn in_use(&self) -> Vec<ExecutorUse> {
        let one = |(name, executor): (&String, &EngineWithSlots)| {
            let with_slot = executor.limit.saturating_sub(executor.slots.available_permits());
            ExecutorUse {
                name: name.clone(),
                // Jobs of an earlier server are followed without a slot.
                running: with_slot.max(executor.followed.load(Ordering::Relaxed)),
                waiting: executor.waiting.len(),
                limit: executor.limit,
            }
        };
        self.by_name.iter().map(one).collect()
    }

    /// Returns a slot of an executor if one is free, or `None`.
    pub(crate) fn free_slot(&self, name: &str) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.by_name.get(name)?.slots).try_acquire_owned().ok()
    }

    /// Returns the objects of a job; `None` if its record names none.
    pub(crate) fn objects(&self, job: &RemoteJob) -> Option<JobObjects> {
        let prefix = JobPrefix::new(&job.executor, &job.key)?;
        Some(self.objects_at(prefix))
    }

    fn objects_at(&self, prefix: JobPrefix) -> JobObjects {
        JobObjects::new(Arc::clone(&self.bucket), Arc::clone(&self.clock), prefix)
    }

    /// Follows a job whose specification is stored, and starts it unless it has begun. Its objects but the claim can be deleted when its end
    /// is recorded.
    pub(crate) async fn follow(
        &self,
        objects: &JobObjects,
        log: FollowedLines<'_>,
        asked: &FollowRequest,
        grace: Duration,
        beginning: Beginning,
    ) -> Followed {
        let (name, leader) = (objects.prefix().executor(), self.leader.as_str());
        let gone = GoneEngine(name.to_owned());
        let executor = self.by_name.get(name);
        let engine: &dyn Engine = match executor {
            Some(executor) => &*executor.engine,
            // The configuration has changed since its start.
            None => &gone,
        };
        let _followed = executor.map(|executor| CountedJob::new(&executor.followed));
        JobFollower { objects, engine, leader, log, asked, grace, beginning }.follow().await
    }

    /// Removes what is kept of a job whose end is recorded, but for its claim. If it was given up, all of it stays: it may still end
    /// ([`Executors::late_end`]). All of it stays, too, if it is the only copy of a state.
    pub(crate) async fn clean(&self, objects: &JobObjects, errored: ErroredState) {
        let cleaned = async {
            let is_needed = match objects.result().await? {
                Some(JobResult::Ended { result, .. }) => errored.is_only_in(&result),
                Some(JobResult::GivenUp { .. }) => true,
                None => matches!(objects.claimant().await?, Some(Claimant::Attempt(_))),
            };
            if is_needed { Ok(()) } else { self.discard(objects).await }
        };
        if let Err(error) = cleaned.await {
            // The sweep finds them.
            tracing::warn!("objects of an ended job are left: {error}");
        }
    }

    /// Removes what is kept of a job whose result is not needed any more. What a paused attempt has to find stays.
    pub(crate) async fn discard(&self, objects: &JobObjects) -> Result<(), VaultError> {
        if let Some(executor) = self.by_name.get(objects.prefix().executor()) {
            executor.engine.clean(objects.prefix()).await;
        }
        objects.delete().await
    }

    /// Returns the late end of a job whose interruption is recorded. A job that has begun and has no result is given up first.
    pub(crate) async fn late_end(&self, objects: &JobObjects, errored: ErroredState) -> Result<LateJobEnd, VaultError> {
        match objects.result().await? {
            Some(JobResult::GivenUp { .. }) => {}
            // The recorded end lacks the state.
            Some(JobResult::Ended { result, .. }) if errored.is_only_in(&result) => {
                return Ok(LateJobEnd::Ended(result));
            }
            // Its end is the recorded one.
            Some(JobResult::Ended { .. }) => return Ok(LateJobEnd::Never),
            None if !is_under_way(objects).await? => return Ok(LateJobEnd::Never),
            None => {
                let why = "its interruption is recorded";
                // Should it run on, it is to end, and free its lock on the state.
                objects.cancel(why).await?;
                if let Created::Theirs(JobResult::Ended { result, .. }) = objects.give_up(&self.leader, why).await? {
                    return Ok(LateJobEnd::Ended(result));
                }
            }
        }
        Ok(match objects.late().await? {
            Some(JobResult::Ended { result, .. }) => LateJobEnd::Ended(result),
            Some(JobResult::GivenUp { .. }) => LateJobEnd::Never,
            None => LateJobEnd::Awaited,
        })
    }
}

/// Returns true if a job has begun and its objects are not deleted yet.
async fn is_under_way(objects: &JobObjects) -> Result<bool, VaultError> {
    let is_claimed = matches!(objects.claimant().await?, Some(Claimant::Attempt(_)));
    Ok(is_claimed && objects.spec::<serde_json::Value>().await?.is_some())
}

/// Stands for an executor that the configuration has no more: jobs that run there are followed, and none is started.
struct GoneEngine(String);

#[async_trait::async_trait]
impl Engine for GoneEngine {
    async fn start(&self, _: engine::EngineJob<'_>, _: u32) -> Result<Option<String>, engine::NotStarted> {
        Err(engine::NotStarted::Never(format!("the server's `repos.yaml` has no executor `{}` any more", self.0)))
    }

    async fn look(&self, _: engine::EngineJob<'_>) -> engine::EngineState {
        engine::EngineState::Unknown
    }

    async fn end(&self, _: engine::EngineJob<'_>) {}

    async fn clean(&self, _: &JobPrefix) {}
}
