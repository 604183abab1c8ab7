//! Counters of this server's work for `/metrics`: runs, jobs, phases, and waits. They are in memory, and begin at zero with the process.

mod histogram;
mod label_sets;

pub(crate) use histogram::Histogram;
pub(crate) use label_sets::LabelSet;

use crate::domain::command::Trigger;
use crate::domain::{ProjectId, RepoId};
use crate::settings::MetricsLabels;
use label_sets::LabelSets;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets for work, in seconds.
const WORK_BUCKETS: &[f64] = &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
/// Upper bounds of the buckets for waits in line, which take minutes to weeks.
const WAIT_BUCKETS: &[f64] = &[60.0, 600.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0];

/// Result of a run or of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkResult {
    /// All of it succeeded, or there was nothing to do.
    Success,
    /// A rule refused it, or a part of it.
    Failure,
    /// Something broke.
    Error,
    /// A person, a push or the end of the pull request stopped it.
    Stopped,
}

impl WorkResult {
    /// All results.
    pub const ALL: [WorkResult; 4] = [WorkResult::Success, WorkResult::Failure, WorkResult::Error, WorkResult::Stopped];

    /// Returns the value of the label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkResult::Success => "success",
            WorkResult::Failure => "failure",
            WorkResult::Error => "error",
            WorkResult::Stopped => "stopped",
        }
    }
}

/// Part of a run whose time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPhase {
    /// Fetch and checkout of a command.
    Checkout,
    /// One hook before the command.
    PreHook,
    /// One hook after it.
    PostHook,
    /// The wait of a job for a place on this machine or at its executor.
    Wait,
    /// A step of a job, by its name.
    Step(&'static str),
}

impl RunPhase {
    /// Returns the value of the label `phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            RunPhase::Checkout => "checkout",
            RunPhase::PreHook => "pre_hook",
            RunPhase::PostHook => "post_hook",
            RunPhase::Wait => "wait",
            RunPhase::Step(name) => name,
        }
    }
}

/// Command, result and labels of a sample.
pub(crate) type WorkKey = (&'static str, WorkResult, LabelSet);

/// The counters.
#[derive(Debug, Clone)]
pub struct WorkCounts {
    /// Runs that have ended.
    pub runs: BTreeMap<WorkKey, u64>,
    /// Jobs that have ended.
    pub jobs: BTreeMap<WorkKey, u64>,
    /// Time of runs, by command and trigger.
    pub run_seconds: BTreeMap<(&'static str, &'static str), Histogram>,
    /// Time of jobs, by command.
    pub job_seconds: BTreeMap<&'static str, Histogram>,
    /// Time of phases, by their name.
    pub phase_seconds: BTreeMap<&'static str, Histogram>,
    /// Time in the queue of a pull request.
    pub queue_seconds: Histogram,
    /// Time in the line for a project.
    pub lock_wait_seconds: Histogram,
    sets: LabelSets,
}

/// Counts the work of this process.
#[derive(Debug)]
pub struct WorkMeters {
    counts: Mutex<WorkCounts>,
}

/// A run that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedRun<'a> {
    /// Its command; `drift` for a drift run.
    pub command: &'static str,
    /// Its trigger.
    pub trigger: Trigger,
    /// Its repository.
    pub repo: &'a RepoId,
    /// Its result.
    pub result: WorkResult,
    /// Time since it began, also on an earlier server.
    pub took: Duration,
}

/// A job that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedJob<'a> {
    /// Its command; `drift` for the plan of a drift run.
    pub command: &'static str,
    /// Its repository.
    pub repo: &'a RepoId,
    /// Its project.
    pub project: &'a ProjectId,
    /// Its result.
    pub result: WorkResult,
    /// Time since it began, also on an earlier server.
    pub took: Duration,
}

impl WorkMeters {
    /// Creates counters at zero, with these labels. The counters of plan and apply exist from the start, so that a rate sees the first one.
    pub fn new(labels: MetricsLabels) -> WorkMeters {
        let mut runs = BTreeMap::new();
        if labels == MetricsLabels::None {
            let all = ["plan", "apply"].into_iter().flat_map(|command| WorkResult::ALL.map(|result| (command, result)));
            runs.extend(all.map(|(command, result)| ((command, result, LabelSet::default()), 0)));
        }
        let jobs = runs.clone();
        WorkMeters {
            counts: Mutex::new(WorkCounts {
                runs,
                jobs,
                run_seconds: BTreeMap::new(),
                job_seconds: BTreeMap::new(),
                phase_seconds: BTreeMap::new(),
                queue_seconds: Histogram::new(WORK_BUCKETS),
                lock_wait_seconds: Histogram::new(WAIT_BUCKETS),
                sets: LabelSets::new(labels),
            }),
        }
    }

    /// Reads the counters; they do not change meanwhile.
    pub fn read<T>(&self, reading: impl FnOnce(&WorkCounts) -> T) -> T {
        reading(&self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, changing: impl FnOnce(&mut WorkCounts)) {
        changing(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts a run.
    pub fn run_ended(&self, run: EndedRun<'_>) {
        let EndedRun { command, trigger, repo, result, took } = run;
        self.change(|counts| {
            let labels = counts.sets.of(repo, None);
            *counts.runs.entry((command, result, labels)).or_default() += 1;
            observe(&mut counts.run_seconds, (command, word(trigger)), took);
        });
    }

    /// Counts a job.
    pub fn job_ended(&self, job: EndedJob<'_>) {
        let EndedJob { command, repo, project, result, took } = job;
        self.change(|counts| {
            let labels = counts.sets.of(repo, Some(project));
            *counts.jobs.entry((command, result, labels)).or_default() += 1;
            observe(&mut counts.job_seconds, command, took);
        });
    }

    /// Measures a phase.
    pub fn phase(&self, phase: RunPhase, took: Duration) {
        self.change(|counts| observe(&mut counts.phase_seconds, phase.as_str(), took));
    }

    /// Measures the time from a delivery to its turn.
    pub fn queued(&self, waited: Duration) {
        self.change(|counts| counts.queue_seconds.observe(waited));
    }

    /// Measures the time from the refusal of a project to the turn of its pull request.
    pub fn waited_in_line(&self, waited: Duration) {
        self.change(|counts| counts.lock_wait_seconds.observe(waited));
    }
}

fn observe<K: Ord>(all: &mut BTreeMap<K, Histogram>, key: K, took: Duration) {
    all.entry(key).or_insert_with(|| Histogram::new(WORK_BUCKETS)).observe(took);
}

/// Returns the value of the label `trigger`.
pub(crate) fn word(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Autoplan => "autoplan",
        Trigger::Comment => "comment",
        Trigger::Api => "api",
        Trigger::Replan => "replan",
        Trigger::Merge => "merge",
        Trigger::Drift => "drift",
        Trigger::Page => "page",
        Trigger::AutoApply => "auto_apply",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_counted_by_command_and_result() {
        let meters = WorkMeters::new(MetricsLabels::None);
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let project = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
        let took = Duration::from_secs(7);
        for result in [WorkResult::Success, WorkResult::Success, WorkResult::Error] {
            meters.run_ended(EndedRun { command: "plan", trigger: Trigger::Autoplan, repo: &repo, result, took });
            meters.job_ended(EndedJob { command: "plan", repo: &repo, project: &project, result, took });
        }
        meters.read(|counts| {
            let of = |result| counts.runs[&("plan", result, LabelSet::default())];
            let known = (of(WorkResult::Success), of(WorkResult::Failure), of(WorkResult::Error));
            assert_eq!(known, (2, 0, 1));
            assert_eq!(counts.jobs, counts.runs);
            assert_eq!(counts.run_seconds[&("plan", "autoplan")].sum(), 21.0);
        });
    }
}
