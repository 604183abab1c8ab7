//! Jobs that were given up at their executors, and that may end there after all. For a day this server looks for their late ends, more rarely
//! with time, and tells those of jobs that change states. Then it deletes their objects.

use super::inner::Inner;
use super::late_outcomes;
use crate::domain::JobId;
use crate::domain::state::Job;
use crate::execute::late_job::{self, LateLook};
use crate::store::is_deposed;
use anyhow::{Error, Result};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time after its end in which a job that was given up is looked at. Its objects are kept for as long.
const LOOKED_AT: SignedDuration = SignedDuration::from_hours(24);
/// Jobs that were recorded as interrupted in this time are known. In its last hour their objects are deleted.
const KNOWN: SignedDuration = SignedDuration::from_hours(25);
/// Pause between two rounds, and the shortest one between two looks at a job.
const SHORTEST: Duration = Duration::from_secs(5);
/// Longest pause between two looks at a job.
const LONGEST: Duration = Duration::from_secs(600);
/// Part of the time since a job's end that passes until the next look at it.
const PART: u32 = 4;
/// Most jobs of one round. Each is a few requests.
const MAX_LOOKS: usize = 50;

/// The next look for a late end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NextLateLook {
    /// No round has ended since this server took the lead.
    #[default]
    Unknown,
    /// The time of the look; absent if no end is awaited.
    Known(Option<Instant>),
}

/// Announces the next look to those that wait for it.
#[derive(Default)]
pub(super) struct LateLooks(Mutex<NextLateLook>);

impl LateLooks {
    /// Returns the next look.
    pub(super) fn next(&self) -> NextLateLook {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, next: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = NextLateLook::Known(next);
    }
}

/// Jobs that may end late.
#[derive(Default)]
struct GivenUpJobs(HashMap<JobId, LateWatch>);

/// Next look at a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LateWatch {
    /// Time of it; absent if there is none.
    at: Option<Instant>,
    /// True if the log has an error about the job.
    is_told: bool,
}

/// Looks for late ends, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    let (mut given_up, mut is_told) = (GivenUpJobs::default(), false);
    loop {
        match round(&inner.now(), &mut given_up).await {
            Ok(()) => {
                is_told = false;
                inner.late_looks.set(given_up.next());
            }
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!(error = format!("{error:#}"), "jobs that may end late cannot be looked at");
                }
            }
        }
        tokio::time::sleep(SHORTEST).await;
    }
}

/// Looks once at all jobs that are due.
async fn round(inner: &Inner, given_up: &mut GivenUpJobs) -> Result<()> {
    let now = Timestamp::now();
    let jobs = inner.ctx.store.read(move |view| {
        let mut answered = Vec::new();
        for job in view.interrupted_on_executors(now - KNOWN)? {
            // The answer tells the interruption. The late end comes after it.
            if view.run(&job.run)?.is_none_or(|run| run.finished.is_some()) {
                answered.push(job);
            }
        }
        Ok(answered)
    });
    for job in given_up.due(jobs.await?, Instant::now()) {
        let since = job.finished.map_or(SignedDuration::ZERO, |finished| now.duration_since(finished));
        match look(inner, &job, since).await {
            Ok(is_over) => given_up.looked(&job.id, (!is_over).then(|| pause(since))),
            Err(error) if is_deposed(&error) => return Err(error),
            Err(error) if late_job::is_final(&error) => {
                tracing::error!(
                    job = job.id.as_str(),
                    error = format!("{error:#}"),
                    "the late result of a job cannot be used"
                );
                given_up.looked(&job.id, None);
            }
            Err(error) => given_up.failed(&job, pause(since), &error),
        }
    }
    Ok(())
}

/// Looks at a job. Returns true if no end of it is awaited any more.
async fn look(inner: &Inner, job: &Job, since: SignedDuration) -> Result<bool> {
    match late_job::look(&inner.ctx, job).await? {
        LateLook::Awaited if since < LOOKED_AT => return Ok(false),
        LateLook::Ended(end) => {
            let (pull, kind) = (&job.pull, &job.kind);
            tracing::warn!(%pull, job = job.id.as_str(), kind, "a job that was given up has ended after all");
            late_outcomes::record_on_executor(inner, job.clone(), &end).await?;
        }
        LateLook::Awaited | LateLook::Nothing => {}
    }
    late_job::discard(&inner.ctx, job).await?;
    Ok(true)
}

/// Returns the time until the next look at a job that was interrupted this long ago.
fn pause(since: SignedDuration) -> Duration {
    (since.unsigned_abs() / PART).clamp(SHORTEST, LONGEST)
}

impl GivenUpJobs {
    /// Returns the jobs to look at now, and forgets those that are not given.
    fn due(&mut self, mut jobs: Vec<Job>, now: Instant) -> Vec<Job> {
        self.0.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        for job in &jobs {
            // At once: a server that sleeps may not lead for long.
            self.0.entry(job.id.clone()).or_insert(LateWatch { at: Some(now), is_told: false });
        }
        jobs.retain(|job| self.0.get(&job.id).and_then(|next| next.at).is_some_and(|at| at <= now));
        // Those that have waited longest, so that none waits for ever.
        jobs.sort_by_key(|job| self.0.get(&job.id).and_then(|next| next.at));
        jobs.truncate(MAX_LOOKS);
        jobs
    }

    /// Returns the time of the next look; `None` if there is none.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|watch| watch.at).min()
    }

    /// Sets the pause until the next look; without one there is none.
    fn looked(&mut self, job: &JobId, pause: Option<Duration>) {
        let is_told = self.0.get(job).is_some_and(|next| next.is_told);
        self.0.insert(job.clone(), LateWatch { at: pause.map(|pause| Instant::now() + pause), is_told });
    }

    /// Sets the pause until the next look after an error, which is logged the first time.
    fn failed(&mut self, job: &Job, pause: Duration, error: &Error) {
        self.looked(&job.id, Some(pause));
        if let Some(next) = self.0.get_mut(&job.id)
            && !std::mem::replace(&mut next.is_told, true)
        {
            tracing::error!(
                pull = %job.pull,
                job = job.id.as_str(),
                error = format!("{error:#}"),
                "the late end of a job cannot be read, or not recorded; trying again for a day"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer_and_stay_few_in_a_day() {
        let (mut since, mut looks) = (SignedDuration::ZERO, 0);
        while since < LOOKED_AT {
            since += SignedDuration::try_from(pause(since)).unwrap();
            looks += 1;
        }
        assert_eq!((pause(SignedDuration::ZERO), pause(SignedDuration::from_secs(40))), (SHORTEST, 2 * SHORTEST));
        assert_eq!(pause(SignedDuration::from_hours(2)), LONGEST);
        assert!(looks < 200, "{looks}");
    }
}
