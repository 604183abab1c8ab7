//! Jobs at an executor: kills their processes, and looks for what is left of them.

use super::Seeded;
use super::player::{LOOK, Play};
use super::processes::{Processes, RunningJob};
use super::server::Ending;
use super::trace::{Event, Trace};
use jiff::{SignedDuration, Timestamp};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most jobs that are killed while a server runs, so that some end.
const MOST: u64 = 3;
/// Time limit of what follows at once: a job that runs, a noticed end, deleted objects.
const SOON: Duration = Duration::from_secs(10);
/// Time for which a server may be about to delete the objects of a job.
const JUST_BEFORE: SignedDuration = SignedDuration::from_secs(1);
/// Length of the header of each object's file, in bytes.
const HEADER: usize = 128;

/// Jobs that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKills {
    None,
    /// Some of the first server, each while that runs and sees the end.
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
struct SpecifiedWork {
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

    /// Waits until a server is about to start a job, for a while: it has recorded its beginning and has not stored its specification.
    pub(super) async fn until_a_job_is_stored(&self) {
        let folders = || std::fs::read_dir(self.bucket().join("jobs/jobs")).into_iter().flatten().flatten();
        let known: Vec<PathBuf> = folders().map(|folder| folder.path()).collect();
        let began = Instant::now();
        while began.elapsed() < SOON {
            if folders().any(|folder| !known.contains(&folder.path()) && !folder.path().join("spec").exists()) {
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
        let Some(SpecifiedWork { is_apply, pull, dir }) = self.work(job) else { return false };
        self.record(Event::JobKilled { is_apply, pull, dir });
        job.kill();
        true
    }

    fn work(&self, job: &RunningJob) -> Option<SpecifiedWork> {
        let bytes = std::fs::read(self.object(job, "spec")).ok()?;
        // A line with the object's name and hash comes before it.
        let begin = HEADER + bytes[HEADER..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let spec: serde_json::Value = serde_json::from_slice(&bytes[begin..]).unwrap();
        let spec = &spec["content"]["job"];
        Some(SpecifiedWork {
            is_apply: spec["command"]["name"] == "apply",
            pull: spec["tree"]["pull"]["id"]["number"].as_u64().unwrap(),
            dir: spec["project"]["id"]["dir"].as_str().unwrap().to_owned(),
        })
    }

    /// Records the processes of jobs that are left at rest. Returns the objects that are: all but claims, trees, and those of jobs that were
    /// given up.
    pub(super) async fn look_for_left_jobs(&self) -> Vec<PathBuf> {
        let began = Instant::now();
        loop {
            let (jobs, mut objects) = (self.jobs(), Vec::new());
            files_below(&self.bucket().join("jobs"), &mut objects);
            objects.retain(|file| !stays(file));
            if jobs.is_empty() && objects.is_empty() || began.elapsed() > SOON {
                self.trace.lock().unwrap().left.extend(jobs.iter().map(|job| format!("the process {job:?}")));
                return objects;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Records the jobs that the state of a server which has ended has as running, and these objects, unless a server was killed when it had
    /// recorded the end of their job and was about to delete them.
    pub(super) fn look_into_state(&self, data: &Path, mut objects: Vec<PathBuf>) {
        let state = rusqlite::Connection::open(data.join("tidelock.db")).unwrap();
        let mut jobs = state.prepare("SELECT record FROM jobs").unwrap();
        let jobs = jobs.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let mut trace = self.trace.lock().unwrap();
        for job in jobs.map(|record| serde_json::from_str::<serde_json::Value>(&record.unwrap()).unwrap()) {
            match (job["finished"].as_str(), job["remote"]["key"].as_str()) {
                (None, _) => trace.left.push(format!("the running job {job}")),
                (Some(finished), Some(key)) if self.is_just_before_kill(finished.parse().unwrap()) => {
                    objects.retain(|file| !file.components().any(|part| part.as_os_str() == key));
                }
                _ => {}
            }
        }
        trace.left.extend(objects.iter().map(|file| format!("the object {}", file.display())));
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

/// Returns true if this object of a job stays when the job has ended. All objects of a job that was given up stay for a day: it may end late.
fn stays(file: &Path) -> bool {
    let result = |folder: &Path| std::fs::read(folder.join("result"));
    let is_given_up =
        |folder: &Path| result(folder).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("given_up"));
    let parent = file.parent().and_then(Path::file_name);
    file.ends_with("claim")
        || parent.is_some_and(|parent| parent == "tree")
        || file.ancestors().skip(1).take(2).any(is_given_up)
}

fn files_below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() { files_below(&entry.path(), into) } else { into.push(entry.path()) }
    }
}
