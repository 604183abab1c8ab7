//! Jobs at an executor: kills their processes, and looks for what is left of them.

use super::Seeded;
use super::engines::JobEngine;
use super::player::{LOOK, Play};
use super::processes::{Processes, RunningJob};
use super::server::Ending;
use super::trace::{Event, Trace};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_vault::clock::Boottime;
use tidelock_vault::jobs::{JobObjects, JobPrefix, JobResult};

/// Most jobs that are killed while a server runs, so that some end.
const MOST: u64 = 3;
/// Time limit of what follows at once: a job that runs, a noticed end, deleted objects.
const SOON: Duration = Duration::from_secs(10);
/// Time for which a server may be about to delete the objects of a job.
const JUST_BEFORE: SignedDuration = SignedDuration::from_secs(1);

/// Jobs that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKills {
    None,
    /// Some while a server runs that is told their end: with `process`, those of the first one.
    Served,
    /// Also some of a server that has ended. With `process`, the next one notices that after two minutes of silence.
    Unattended,
}

impl JobKills {
    /// Returns the kills of a trial. With `process`, one in ten takes minutes; the trial that each test plays by default does not.
    pub(super) fn of(seed: u64, ending: Ending, engine: JobEngine) -> JobKills {
        match (seed % 10, engine.is_outside()) {
            (0..=2, false) | (0, true) => JobKills::None,
            (9, _) | (4..=6, true) if ending != Ending::None => JobKills::Unattended,
            _ => JobKills::Served,
        }
    }
}

/// What the specification of a job says.
struct SpecifiedWork {
    is_apply: bool,
    pull: u64,
    dir: String,
}

impl Play {
    fn jobs(&self) -> Vec<RunningJob> {
        Processes::now().jobs(&self.surroundings.job_entry)
    }

    fn objects(&self, prefix: &JobPrefix) -> JobObjects {
        JobObjects::new(Arc::clone(&self.surroundings.bucket), Arc::new(Boottime), prefix.clone())
    }

    /// Returns the names of all objects of jobs.
    async fn names(&self) -> Vec<String> {
        let listed = self.surroundings.bucket.list("jobs/", "").await.unwrap();
        listed.into_iter().map(|object| object.name).collect()
    }

    /// Waits until a job runs, for a while.
    pub(super) async fn until_a_job_runs(&self) {
        let began = Instant::now();
        while self.jobs().is_empty() && began.elapsed() < SOON {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a server is about to start a job, for a while: it has recorded its beginning and has not stored its specification.
    pub(super) async fn until_a_job_is_stored(&self) {
        let jobs = |names: &[String]| -> HashSet<JobPrefix> { names.iter().filter_map(|name| job_of(name)).collect() };
        let known = jobs(&self.names().await);
        let began = Instant::now();
        while began.elapsed() < SOON {
            let names = self.names().await;
            let is_stored = |job: &JobPrefix| names.contains(&format!("{job}/spec"));
            if jobs(&names).iter().any(|job| !known.contains(job) && !is_stored(job)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Kills jobs of the server that leads, each at a random moment, and lets it notice that before it may end.
    pub(super) async fn kill_jobs(&self, kills: JobKills, mut random: Seeded) {
        if kills == JobKills::None {
            return;
        }
        for _ in 0..1 + random.below(MOST) {
            if self.serving.lock().await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
            self.until_a_job_runs().await;
            tokio::time::sleep(Duration::from_millis(random.below(1000))).await;
            let serving = self.serving.lock().await;
            let jobs: Vec<_> = self.jobs().into_iter().filter(|job| job.is_seen_by(&serving)).collect();
            if jobs.is_empty() {
                continue;
            }
            let job = &jobs[random.below(jobs.len() as u64) as usize];
            let (objects, began) = (self.objects(&job.prefix), Instant::now());
            if !self.kill(job, &mut random).await {
                continue;
            }
            // A job that has not claimed is started again.
            let is_claimed = objects.claimant().await.unwrap().is_some();
            let goes_on = async || objects.result().await.unwrap().is_none() && spec(&objects).await.is_some();
            while is_claimed && began.elapsed() < SOON && goes_on().await {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Kills jobs of a server that has ended.
    pub(super) async fn kill_unattended(&self, server: &str, mut random: Seeded) {
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
        for job in self.jobs().into_iter().filter(|job| job.is_seen_by(server)) {
            if random.below(4) > 0 {
                self.kill(&job, &mut random).await;
            }
        }
    }

    /// Kills a job, unless it has no specification any more: then it is about to end. Returns true if it does. One of three pods is evicted
    /// instead, so that its job is interrupted and records its end itself.
    async fn kill(&self, job: &RunningJob, random: &mut Seeded) -> bool {
        let Some(SpecifiedWork { is_apply, pull, dir }) = self.work(job).await else { return false };
        self.record(Event::JobKilled { is_apply, pull, dir });
        match (&self.surroundings.cluster, &job.pod) {
            (Some(cluster), Some(pod)) if random.below(3) == 0 => _ = cluster.fault(pod, "evict").await,
            _ => job.kill(),
        }
        true
    }

    async fn work(&self, job: &RunningJob) -> Option<SpecifiedWork> {
        let spec = &spec(&self.objects(&job.prefix)).await?["job"];
        Some(SpecifiedWork {
            is_apply: spec["command"]["name"] == "apply",
            pull: spec["tree"]["pull"]["id"]["number"].as_u64().unwrap(),
            dir: spec["project"]["id"]["dir"].as_str().unwrap().to_owned(),
        })
    }

    /// Records the processes of jobs that are left at rest. Returns the objects that are: all but claims, trees, and those of jobs that were
    /// given up.
    pub(super) async fn look_for_left_jobs(&self) -> Vec<String> {
        let began = Instant::now();
        loop {
            let (jobs, mut objects) = (self.jobs(), self.names().await);
            objects.retain(|name| !name.ends_with("/claim") && !name.contains("/tree/"));
            for job in objects.iter().filter_map(|name| job_of(name)).collect::<HashSet<_>>() {
                // It may end late, so all its objects stay for a day.
                if matches!(self.objects(&job).result().await, Ok(Some(JobResult::GivenUp { .. }))) {
                    objects.retain(|name| job_of(name).as_ref() != Some(&job));
                }
            }
            if jobs.is_empty() && objects.is_empty() || began.elapsed() > SOON {
                self.trace.lock().unwrap().left.extend(jobs.iter().map(|job| format!("the process {job:?}")));
                return objects;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Records the jobs that the state of a server which has ended has as running, and these objects, unless a server was killed when it had
    /// recorded the end of their job and was about to delete them.
    pub(super) fn look_into_state(&self, data: &Path, mut objects: Vec<String>) {
        let state = rusqlite::Connection::open(data.join("tidelock.db")).unwrap();
        let mut jobs = state.prepare("SELECT record FROM jobs").unwrap();
        let jobs = jobs.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let mut trace = self.trace.lock().unwrap();
        for job in jobs.map(|record| serde_json::from_str::<serde_json::Value>(&record.unwrap()).unwrap()) {
            match (job["finished"].as_str(), job["remote"]["key"].as_str()) {
                (None, _) => trace.left.push(format!("the running job {job}")),
                (Some(finished), Some(key)) if self.is_just_before_kill(finished.parse().unwrap()) => {
                    objects.retain(|name| !name.contains(key));
                }
                _ => {}
            }
        }
        trace.left.extend(objects.iter().map(|name| format!("the object {name}")));
    }

    fn is_just_before_kill(&self, finished: Timestamp) -> bool {
        let killed = *self.killed.lock().unwrap();
        killed.is_some_and(|killed| finished <= killed && killed.duration_since(finished) < JUST_BEFORE)
    }

    /// Kills the jobs that a failed trial has left.
    pub(super) fn kill_left_jobs(&self) {
        self.jobs().iter().for_each(RunningJob::kill);
    }
}

/// Returns how many jobs of a trial were killed, and how many a server has taken up from another one, according to the logs of servers.
pub(super) fn summary(trace: &Trace, dir: &Path) -> String {
    let killed = trace.events.iter().filter(|event| matches!(event, Event::JobKilled { .. })).count();
    let logs = std::fs::read_dir(dir).unwrap().flatten().filter(|file| file.path().extension() == Some("log".as_ref()));
    let taken_up = |text: String| text.matches("a job that went on at an executor is taken up").count();
    let taken_up: usize = logs.map(|log| taken_up(std::fs::read_to_string(log.path()).unwrap())).sum();
    format!("{killed} jobs killed, {taken_up} taken up")
}

/// Returns the job that an object belongs to.
fn job_of(name: &str) -> Option<JobPrefix> {
    let mut ends = name.match_indices('/').map(|(at, _)| at);
    JobPrefix::parse(&name[..ends.nth(2)?])
}

async fn spec(objects: &JobObjects) -> Option<serde_json::Value> {
    objects.spec().await.unwrap()
}
