//! The objects in the bucket that records name: those of jobs on executors, and the trees of plans.

use super::View;
use anyhow::Result;
use jiff::Timestamp;
use std::collections::HashSet;
use tidelock_core::domain::JobId;
use tidelock_vault::jobs::JobPrefix;

impl View<'_> {
    /// Returns the prefixes of all objects of jobs that may still be read: those of running jobs, of jobs that were recorded as interrupted at
    /// or after `since`, and of the trees of plans that can be applied or that one of these jobs applies.
    pub fn named_job_prefixes(&self, since: Timestamp) -> Result<HashSet<JobPrefix>> {
        let jobs = [self.unfinished_jobs()?, self.interrupted_on_executors(since)?].concat();
        let jobs: Vec<_> = jobs.into_iter().filter_map(|job| Some((job.id, job.remote?))).collect();
        let is_applied = |by: &JobId| jobs.iter().any(|(job, _)| job == by);
        let plans = self.plans_with_tree()?.into_iter();
        let readable = plans.filter(|plan| plan.consumed_by.as_ref().is_none_or(is_applied));
        let trees = readable.filter_map(|plan| JobPrefix::parse(&plan.tree?.prefix));
        Ok(jobs.iter().filter_map(|(_, remote)| JobPrefix::new(&remote.executor, &remote.key)).chain(trees).collect())
    }
}
