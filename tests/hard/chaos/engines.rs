//! The engine of all jobs of a trial, with the bucket that it needs.

use super::Seeded;
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
}

impl JobEngine {
    /// Returns the engine that `TIDELOCK_CHAOS_ENGINE` names; `process` by default.
    pub(crate) fn chosen() -> JobEngine {
        match std::env::var("TIDELOCK_CHAOS_ENGINE").as_deref() {
            Err(_) | Ok("process") => JobEngine::Process,
            Ok("cloud_run") => JobEngine::CloudRun,
            Ok(other) => panic!("TIDELOCK_CHAOS_ENGINE is process or cloud_run, not {other}"),
        }
    }

    /// Returns the executor in `repos.yaml`.
    pub(super) fn executor(self) -> String {
        match self {
            JobEngine::Process => "{kind: process}".to_owned(),
            JobEngine::CloudRun => format!("{{kind: cloud_run, job: {JOB}}}"),
        }
    }
}

/// What servers of a trial share: the bucket, and an engine outside of them.
pub(super) struct Surroundings {
    pub(super) bucket: Arc<dyn Bucket>,
    /// Settings of servers.
    pub(super) settings: Vec<(&'static str, String)>,
    /// Entry in the environment of each process of a job, and of no other trial's.
    pub(super) job_entry: String,
    /// Kept while the trial lasts.
    _doubles: Option<(StorageDouble, RunDouble)>,
}

impl Surroundings {
    /// Makes those of servers that run jobs themselves, or as processes of this machine.
    pub(super) fn on_this_machine(dir: &Path) -> Surroundings {
        let path = dir.join("bucket");
        let bucket = Directory::open(&path).unwrap();
        let address = format!("file://{}", path.display());
        let job_entry = format!("TIDELOCK_BUCKET={address}");
        Surroundings { bucket: Arc::new(bucket), settings: vec![("bucket", address)], job_entry, _doubles: None }
    }

    /// Starts the doubles of Cloud Storage and Cloud Run. Starts go wrong at random: refused, without an answer, late, doubled.
    pub(super) async fn on_google(dir: &Path, mut random: Seeded) -> Surroundings {
        let storage = StorageDouble::start().await.unwrap();
        storage.bucket("acme-tidelock", Settings::default());
        if random.below(3) == 0 {
            storage.delay(SLOW, SLOW);
        }
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
        let address = Address::parse(ADDRESS).unwrap();
        let options = Options { endpoint: Some(storage.endpoint()), access: Access::Anonymous, ..Options::default() };
        let settings = vec![
            ("bucket", ADDRESS.to_owned()),
            ("bucket-endpoint", storage.endpoint()),
            ("cloud-run-endpoint", runs.endpoint().to_owned()),
            // Nobody knows of a server in the cloud that it has been killed.
            ("lease-ttl", "6s".to_owned()),
        ];
        let job_entry = format!("TIDELOCK_BUCKET_ENDPOINT={}", storage.endpoint());
        Surroundings {
            bucket: Arc::new(Gcs::new(address, options)),
            settings,
            job_entry,
            _doubles: Some((storage, runs)),
        }
    }
}
