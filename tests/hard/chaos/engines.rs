//! The engine of all jobs of a trial, with the bucket that it needs.

use super::Seeded;
use super::cluster::Cluster;
use super::trace::JobsAt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidelock_run_double::{Call, Effect, JobSettings, RunDouble};
use tidelock_storage_double::{Settings, StorageDouble};
use tidelock_vault::bucket::Bucket;
use tidelock_vault::directory::Directory;
use tidelock_vault::gcs::{Access, Address, Gcs, Options};

/// Job resource of all executions.
const JOB: &str = "projects/acme/locations/europe-west1/jobs/tidelock-jobs";
/// Address of the bucket in the double.
const ADDRESS: &str = "gs://acme-tidelock/prod";
/// Starts that can go wrong, from the first one on.
const STARTS: usize = 60;
/// In one of three trials the bucket takes this long for each request.
const SLOW: Duration = Duration::from_millis(30);

/// Engine of all jobs of a trial at an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobEngine {
    /// Only its own server sees a process end.
    Process,
    /// Each server sees each execution end.
    CloudRun,
    /// Each server sees each pod end, in the cluster that `scripts/with-cluster` has started.
    Kubernetes,
}

impl JobEngine {
    /// Returns the engine that `TIDELOCK_CHAOS_ENGINE` names; `process` by default.
    pub(crate) fn chosen() -> JobEngine {
        match std::env::var("TIDELOCK_CHAOS_ENGINE").as_deref() {
            Err(_) | Ok("process") => JobEngine::Process,
            Ok("cloud_run") => JobEngine::CloudRun,
            Ok("kubernetes") => JobEngine::Kubernetes,
            Ok(other) => panic!("TIDELOCK_CHAOS_ENGINE is process, cloud_run or kubernetes, not {other}"),
        }
    }

    /// Returns true if jobs are no processes of a server: then each server is told their ends.
    pub(super) fn is_outside(self) -> bool {
        self != JobEngine::Process
    }
}

/// What servers of a trial share: the bucket, and an engine outside of them.
pub(super) struct Surroundings {
    pub(super) bucket: Arc<dyn Bucket>,
    /// Settings of servers.
    pub(super) settings: Vec<(&'static str, String)>,
    /// Variables of servers.
    pub(super) variables: Vec<(&'static str, String)>,
    /// The executor of all jobs in `repos.yaml`.
    pub(super) executor: String,
    /// Entry in the environment of each process of a job, and of no other trial's.
    pub(super) job_entry: String,
    /// The cluster of all jobs.
    pub(super) cluster: Option<Cluster>,
    /// Kept while the trial lasts.
    _doubles: (Option<StorageDouble>, Option<RunDouble>),
}

impl Surroundings {
    /// Starts those of a trial.
    pub(super) async fn start(jobs: JobsAt, dir: &Path, random: Seeded) -> Surroundings {
        match jobs {
            JobsAt::Server | JobsAt::Executor(JobEngine::Process) => Surroundings::on_this_machine(dir),
            JobsAt::Executor(JobEngine::CloudRun) => Surroundings::on_google(dir, random).await,
            JobsAt::Executor(JobEngine::Kubernetes) => Surroundings::in_cluster(random).await,
        }
    }

    fn on_this_machine(dir: &Path) -> Surroundings {
        let path = dir.join("bucket");
        let bucket = Directory::open(&path).unwrap();
        let address = format!("file://{}", path.display());
        Surroundings {
            bucket: Arc::new(bucket),
            job_entry: format!("TIDELOCK_BUCKET={address}"),
            settings: vec![("bucket", address)],
            variables: Vec::new(),
            executor: "{kind: process}".to_owned(),
            cluster: None,
            _doubles: (None, None),
        }
    }

    /// Starts the double of Cloud Storage alone.
    async fn on_cloud_storage(random: &mut Seeded, executor: String) -> Surroundings {
        let storage = StorageDouble::start().await.unwrap();
        storage.bucket("acme-tidelock", Settings::default());
        if random.below(3) == 0 {
            storage.delay(SLOW, SLOW);
        }
        let address = Address::parse(ADDRESS).unwrap();
        let options = Options { endpoint: Some(storage.endpoint()), access: Access::Anonymous, ..Options::default() };
        let settings = vec![
            ("bucket", ADDRESS.to_owned()),
            ("bucket-endpoint", storage.endpoint()),
            // Nobody knows of a server in the cloud that it has been killed.
            ("lease-ttl", "6s".to_owned()),
        ];
        Surroundings {
            bucket: Arc::new(Gcs::new(address, options)),
            settings,
            variables: Vec::new(),
            executor,
            job_entry: format!("TIDELOCK_BUCKET_ENDPOINT={}", storage.endpoint()),
            cluster: None,
            _doubles: (Some(storage), None),
        }
    }

    /// Starts the doubles of Cloud Storage and Cloud Run. Starts go wrong at random: refused, without an answer, late, doubled.
    async fn on_google(dir: &Path, mut random: Seeded) -> Surroundings {
        let mut made = Surroundings::on_cloud_storage(&mut random, format!("{{kind: cloud_run, job: {JOB}}}")).await;
        let env = [
            ("PATH", std::env::var("PATH").unwrap()),
            ("HOME", dir.join("home").display().to_string()),
            ("CHECKPOINT_DISABLE", "1".to_owned()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let runs = RunDouble::start(crate::place::binary().into(), env).await.unwrap();
        runs.job(JOB, JobSettings::default());
        for _ in 0..STARTS {
            runs.effect(
                Call::Run,
                match random.below(16) {
                    0 => Effect::Fail(429),
                    1 => Effect::Fail(503),
                    2 => Effect::Lost,
                    3 => Effect::Doubled,
                    4 | 5 => Effect::Slow(Duration::from_millis(random.below(3000))),
                    _ => Effect::Slow(Duration::ZERO),
                },
            );
        }
        made.settings.push(("cloud-run-endpoint", runs.endpoint().to_owned()));
        made._doubles.1 = Some(runs);
        made
    }

    /// Makes a namespace in the cluster. In one of four trials its pods start late.
    async fn in_cluster(mut random: Seeded) -> Surroundings {
        let cluster = Cluster::new(&["create", "get", "list", "watch", "delete"]).await;
        let late = [("fake/start-after", "2")];
        let notes = if random.below(4) == 0 { &late[..] } else { &[] };
        let template = cluster.template(&crate::place::binary(), notes);
        let executor = format!("{{kind: kubernetes, template: {}}}", template.display());
        let mut made = Surroundings::on_cloud_storage(&mut random, executor).await;
        made.variables.push(("KUBECONFIG", cluster.kubeconfig().display().to_string()));
        made.cluster = Some(cluster);
        made
    }
}
