//! The line of jobs that wait for a slot of an executor, in the order in which they get one.

use super::Executors;
use crate::domain::{ProjectId, RunId};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Jobs of one executor that wait for a slot, the next one first.
#[derive(Default)]
pub(super) struct WaitingJobs {
    jobs: Mutex<Vec<WaitingJob>>,
}

/// A job that waits for a slot. Each has a number of its own, because a run can have several jobs of one project.
struct WaitingJob {
    number: u64,
    run: RunId,
    project: ProjectId,
}

/// A place in the line, until it is dropped.
pub(super) struct HeldPlace<'a> {
    line: &'a WaitingJobs,
    number: u64,
}

/// Place of a job that waits for a slot of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceAtExecutor {
    /// Project of the job.
    pub(crate) project: ProjectId,
    /// Name of the executor.
    pub(crate) executor: String,
    /// Number of the place; 1 gets the next slot.
    pub(crate) place: usize,
    /// Number of jobs that wait.
    pub(crate) waiting: usize,
    /// Most jobs that may run at once.
    pub(crate) limit: usize,
}

impl WaitingJobs {
    /// Takes the last place for a job of this run.
    pub(super) fn join(&self, run: &RunId, project: &ProjectId) -> HeldPlace<'_> {
        let mut jobs = self.lock();
        // The last job has the highest number, because jobs join at the end.
        let number = jobs.last().map_or(0, |last| last.number + 1);
        jobs.push(WaitingJob { number, run: run.clone(), project: project.clone() });
        HeldPlace { line: self, number }
    }

    /// Returns the number of jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WaitingJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        self.line.lock().retain(|job| job.number != self.number);
    }
}

impl Executors {
    /// Returns the places of the jobs of a run that wait for a slot, at most `most`.
    pub(crate) fn places_in_line(&self, run: &RunId, most: usize) -> Vec<PlaceAtExecutor> {
        let mut places = Vec::new();
        for (name, executor) in &self.by_name {
            let jobs = executor.waiting.lock();
            let of_run = jobs.iter().enumerate().filter(|(_, job)| job.run == *run);
            places.extend(of_run.take(most - places.len()).map(|(before, job)| PlaceAtExecutor {
                project: job.project.clone(),
                executor: name.clone(),
                place: before + 1,
                waiting: jobs.len(),
                limit: executor.limit,
            }));
        }
        places
    }
}
