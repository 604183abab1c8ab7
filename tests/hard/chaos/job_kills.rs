//! Jobs at an executor: kills their processes, and looks for what is left of them.

use super::Seeded;
use super::player::{LOOK, Play};
use super::processes::{Processes, RunningJob};
use super::server::Ending;
use super::trace::{Event, JobsAt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most jobs that are killed while a server runs, so that some end.
const MOST: u64 = 3;
/// Time limit of what follows at once: a job that runs, a noticed end, deleted objects.
const SOON: Duration = Duration::from_secs(10);

/// Length of the header of each object's file, in bytes.
const HEADER: usize = 128;

/// Jobs that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKills {
    None,
    /// Some, each while the server that has started it runs and sees the end.
    Served,
    /// Also some of a server that has ended. The next one notices that after two minutes of silence.
    Unattended,
}

impl JobKills {
    /// Returns the kills of a trial. One in ten takes minutes; the trial that each test plays by default does not.
    pub(super) fn of(seed: u64, ending: Ending) -> JobKills {
        match seed % 10 {
            0..=2 => JobKills::None,
            9 if ending != Ending::None => JobKills::Unattended,
            _ => JobKills::Served,
        }
    }
}

/// What the specification of a job says.
struct Work {
    is_apply: bool,
    pull: u64,
    dir: String,
}

impl Play {
    fn bucket(&self) -> PathBuf {
        self.dir.join("bucket")
    }

    fn jobs(&self) -> Vec<RunningJob> {
        Processes::now().jobs(&self.bucket())
    }

    fn object(&self, job: &RunningJob, name: &str) -> PathBuf {
        self.bucket().join(&job.prefix).join(name)
    }

    /// Waits until a job runs, for a while.
    pub(super) async fn until_a_job_runs(&self) {
        let began = Instant::now();
        while self.jobs().is_empty() && began.elapsed() < SOON {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills jobs of the server that leads, each at a random moment, and lets it notice that before it may end.
    pub(super) async fn kill_jobs(&self, kills: JobKills, mut random: Seeded) {
        if kills == JobKills::None {
            return;
        }
        for _ in 0..1 + random.below(MOST) {
            tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
            self.until_a_job_runs().await;
            tokio::time::sleep(Duration::from_millis(random.below(1000))).await;
            let serving = self.serving.lock().await;
            let jobs: Vec<_> = self.jobs().into_iter().filter(|job| job.server == *serving).collect();
            if jobs.is_empty() {
                continue;
            }
            let job = &jobs[random.below(jobs.len() as u64) as usize];
            let (result, spec, began) = (self.object(job, "result"), self.object(job, "spec"), Instant::now());
            if !self.kill(job) {
                continue;
            }
            // A job that has not claimed is started again.
            let is_claimed = self.object(job, "claim").exists();
            while is_claimed && !result.exists() && spec.exists() && began.elapsed() < SOON {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Kills jobs of a server that has ended.
    pub(super) async fn kill_unattended(&self, server: &str, mut random: Seeded) {
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
        for job in self.jobs().into_iter().filter(|job| job.server == server) {
            if random.below(4) > 0 {
                self.kill(&job);
            }
        }
    }

    /// Kills a job, unless it has no specification any more: then it is about to end. Returns true if it does.
    fn kill(&self, job: &RunningJob) -> bool {
        let Some(Work { is_apply, pull, dir }) = self.work(job) else { return false };
        self.record(Event::JobKilled { is_apply, pull, dir });
        job.kill();
        true
    }

    fn work(&self, job: &RunningJob) -> Option<Work> {
        let bytes = std::fs::read(self.object(job, "spec")).ok()?;
        // A line with the object's name and hash comes before it.
        let begin = HEADER + bytes[HEADER..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let spec: serde_json::Value = serde_json::from_slice(&bytes[begin..]).unwrap();
        let spec = &spec["content"]["job"];
        Some(Work {
            is_apply: spec["command"]["name"] == "apply",
            pull: spec["tree"]["pull"]["id"]["number"].as_u64().unwrap(),
            dir: spec["project"]["id"]["dir"].as_str().unwrap().to_owned(),
        })
    }

    /// Records the processes and objects of jobs that are left at rest: all but claims, trees, and the results of jobs that were given up.
    pub(super) async fn look_for_left_jobs(&self) {
        let began = Instant::now();
        loop {
            let mut left: Vec<String> = self.jobs().iter().map(|job| format!("the process {job:?}")).collect();
            let mut files = Vec::new();
            files_below(&self.bucket().join("jobs"), &mut files);
            left.extend(
                files.into_iter().filter(|file| !stays(file)).map(|file| format!("the object {}", file.display())),
            );
            if left.is_empty() {
                return;
            }
            if began.elapsed() > SOON {
                self.trace.lock().unwrap().left.extend(left);
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Records the jobs that the state of a server which has ended has as running.
    pub(super) fn look_for_running_jobs(&self, data: &Path) {
        if self.trace.lock().unwrap().jobs == JobsAt::Server {
            return;
        }
        let state = rusqlite::Connection::open(data.join("tidelock.db")).unwrap();
        let mut running = state.prepare("SELECT record FROM jobs WHERE state = 'running'").unwrap();
        let running = running.query_map([], |row| row.get::<_, String>(0)).unwrap();
        self.trace.lock().unwrap().left.extend(running.map(|record| format!("the running job {}", record.unwrap())));
    }

    /// Kills the jobs that a failed trial has left.
    pub(super) fn kill_left_jobs(&self) {
        self.jobs().iter().for_each(RunningJob::kill);
    }
}

/// Returns true if this object of a job stays when the job has ended.
fn stays(file: &Path) -> bool {
    let is_given_up = || std::fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("given_up"));
    let parent = file.parent().and_then(Path::file_name);
    file.ends_with("claim")
        || parent.is_some_and(|parent| parent == "tree")
        || file.ends_with("result") && is_given_up()
}

fn files_below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() { files_below(&entry.path(), into) } else { into.push(entry.path()) }
    }
}
