//! Processes of this machine, found by their environments.

use super::server::MARK;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use tidelock_vault::jobs::JobPrefix;

/// Variable of a job's process with the bucket, which its steps do not get.
const BUCKET: &str = "TIDELOCK_BUCKET=";
/// Variable of a job's process with the prefix of its objects.
const JOB: &str = "TIDELOCK_JOB=";
/// Variable of a pod's processes with its name.
const POD: &str = "HOSTNAME=";
/// Variable of each step of a project.
const STEP: &str = "PULL_NUM=";

/// A process.
pub(super) struct FoundProcess {
    pub(super) pid: i32,
    parent: i32,
    environment: Vec<String>,
}

impl FoundProcess {
    /// Returns true if its environment has this entry.
    pub(super) fn has(&self, entry: &str) -> bool {
        self.environment.iter().any(|variable| variable == entry)
    }

    fn value(&self, start: &str) -> Option<&str> {
        self.environment.iter().find_map(|variable| variable.strip_prefix(start))
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&self) {
        signal(self.pid, Signal::KILL);
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// All processes that have not ended.
pub(super) struct Processes(Vec<FoundProcess>);

impl Processes {
    /// Reads them.
    pub(super) fn now() -> Processes {
        let ids = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        Processes(ids.filter_map(process).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &FoundProcess> {
        self.0.iter()
    }

    /// Returns the ids of all jobs and their steps.
    pub(super) fn of_jobs(&self) -> BTreeSet<i32> {
        let is_own = |process: &&FoundProcess| process.value(BUCKET).is_some() || process.value(STEP).is_some();
        let mut found = BTreeSet::new();
        for process in self.0.iter().filter(is_own) {
            found.insert(process.pid);
            found.extend(self.below(process.pid));
        }
        found
    }

    /// Returns the ids of the descendants of a process.
    fn below(&self, pid: i32) -> BTreeSet<i32> {
        let (mut found, mut next) = (BTreeSet::new(), vec![pid]);
        while let Some(parent) = next.pop() {
            let children = self.0.iter().filter(|process| process.parent == parent).map(|process| process.pid);
            next.extend(children.filter(|child| found.insert(*child)));
        }
        found
    }

    /// Returns the processes `tidelock run-job` with this entry in their environments, each once.
    pub(super) fn jobs(&self, entry: &str) -> Vec<RunningJob> {
        let ours: Vec<&FoundProcess> = self.0.iter().filter(|process| process.has(entry)).collect();
        // A child has the environment of its parent until it runs a program of its own.
        let is_child = |process: &&&FoundProcess| ours.iter().any(|other| other.pid == process.parent);
        let jobs = ours.iter().filter(|process| !is_child(process)).filter_map(|process| {
            let prefix = JobPrefix::parse(process.value(JOB)?)?;
            let server = process.value(&format!("{MARK}=")).map(str::to_owned);
            Some(RunningJob { pid: process.pid, prefix, server, pod: process.value(POD).map(str::to_owned) })
        });
        jobs.collect()
    }
}

/// The process of a job.
#[derive(Debug, Clone)]
pub(super) struct RunningJob {
    pid: i32,
    /// Prefix of its objects.
    pub(super) prefix: JobPrefix,
    /// Mark of the server whose process it is; absent for an execution of Cloud Run and for a pod.
    server: Option<String>,
    /// Name of the pod whose process it is.
    pub(super) pod: Option<String>,
}

impl RunningJob {
    /// Returns true if this server is told the end of the job by its engine.
    pub(super) fn is_seen_by(&self, server: &str) -> bool {
        self.server.as_ref().is_none_or(|own| own == server)
    }

    /// Kills it with all its steps, none of which lives longer than the job could have seen.
    pub(super) fn kill(&self) {
        signal(self.pid, Signal::STOP);
        loop {
            // It adopts what steps leave behind.
            let steps = Processes::now().below(self.pid);
            if steps.is_empty() {
                break;
            }
            steps.into_iter().for_each(|step| signal(step, Signal::KILL));
        }
        signal(self.pid, Signal::KILL);
    }
}

/// Returns a process, unless it has ended.
fn process(pid: i32) -> Option<FoundProcess> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have any character.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
    if matches!(state, "Z" | "X") {
        return None;
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = |variable: &[u8]| String::from_utf8_lossy(variable).into_owned();
    Some(FoundProcess { pid, parent, environment: environment.split(|byte| *byte == 0).map(text).collect() })
}
