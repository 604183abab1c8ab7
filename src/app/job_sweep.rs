//! Deletes objects of jobs on executors that no record names: such as the tree of a plan that was dropped, or what a leader that was killed
//! could not delete any more.

use super::lead::complain;
use super::roles::Quiet;
use crate::store::{Store, is_deposed};
use crate::vault::Vault;
use crate::vault::jobs::sweep;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Pause after taking the lead: work that people wait for goes first.
const FIRST: Duration = Duration::from_secs(300);
/// Interval between two sweeps.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Pause between two parts of one sweep: requests of running jobs go in between.
const BREATH: Duration = Duration::from_secs(1);
/// Most parts of one sweep.
const MAX_PARTS: usize = 1000;
/// Time after the end of a job that was given up in which it may still end.
const AWAITED: SignedDuration = SignedDuration::from_hours(24);

/// Sweeps as long as this server leads.
pub(super) async fn run(vault: Vault, store: Store) {
    let mut quiet = Quiet::default();
    for pause in std::iter::once(FIRST).chain(std::iter::repeat(INTERVAL)) {
        tokio::time::sleep(pause).await;
        match sweep_all(&vault, &store).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "objects of jobs that no record names are deleted"),
            Err(error) if is_deposed(&error) => return,
            Err(error) if quiet.may_say() => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "objects of jobs could not be looked through; trying again"
                );
            }
            Err(_) => {}
        }
    }
}

/// Sweeps unless `last`, the time of the last sweep, is within an interval.
pub(super) async fn sweep_if_due(vault: &Vault, store: &Store, last: &Mutex<Option<Instant>>) {
    let mut last = last.lock().await;
    if last.is_some_and(|last| last.elapsed() < INTERVAL) {
        return;
    }
    let swept = sweep_all(vault, store).await;
    if swept.is_ok() {
        *last = Some(Instant::now());
    }
    complain("objects of jobs could not be looked through", swept.map(drop));
}

/// Goes through all objects of jobs. Returns the number of deleted ones.
async fn sweep_all(vault: &Vault, store: &Store) -> Result<u64> {
    let (mut deleted, mut after) = (0, String::new());
    for _ in 0..MAX_PARTS {
        // Anew for each part: a plan may have been recorded meanwhile.
        let named = store.read(|view| view.named_job_prefixes(Timestamp::now() - AWAITED)).await?;
        store.may_act().await?;
        let swept = sweep(vault, |prefix| named.contains(prefix), &after).await?;
        deleted += swept.deleted;
        let Some(next) = swept.next else { break };
        after = next;
        tokio::time::sleep(BREATH).await;
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::{Job, JobState, RemoteJob};
    use crate::domain::{PullId, RepoId};
    use crate::vault::clock::Boottime;
    use crate::vault::jobs::{JobObjects, JobPrefix};
    use crate::vault::lease;
    use crate::vault::memory::{Memory, vault};
    use std::sync::Arc;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Returns a job on an executor, whose key repeats the digit.
    fn job(digit: &str, state: JobState, finished: Option<Timestamp>) -> Job {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        Job {
            id: digit.into(),
            run: "r".into(),
            pull: PullId { repo, number: 1 },
            kind: "apply".into(),
            project: None,
            user: "alice".into(),
            head: "a".repeat(40).into(),
            state,
            summary: String::new(),
            outcome: None,
            started: Timestamp::now(),
            finished,
            state_lock: Default::default(),
            remote: Some(RemoteJob { executor: "jobs".into(), key: digit.repeat(32) }),
        }
    }

    #[tokio::test]
    async fn what_a_record_names_stays_and_all_else_goes_after_its_age() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (bucket, now) = (Memory::new(), Timestamp::now());
        let (vault, _) = vault(&bucket, "a");
        let objects = |digit: &str| {
            let prefix = JobPrefix::new("jobs", &digit.repeat(32)).unwrap();
            JobObjects::new(bucket.clone(), Arc::new(Boottime), prefix)
        };
        let day_ago = now - SignedDuration::from_hours(25);
        let jobs = [
            job("1", JobState::Running, None),
            job("2", JobState::Interrupted, Some(now)),
            job("3", JobState::Interrupted, Some(day_ago)),
            job("4", JobState::Succeeded, Some(now)),
        ];
        store.write(move |tx| jobs.iter().try_for_each(|job| tx.put_job(job))).await.unwrap();
        for digit in ["1", "2", "3", "4", "5"] {
            objects(digit).put_spec(&"work").await.unwrap();
            objects(digit).claim("attempt").await.unwrap();
        }
        let left = |object: &str| {
            let names = bucket.names("jobs/").into_iter().filter(|name| name.ends_with(object));
            names.map(|name| name["jobs/jobs/".len()..][..1].to_owned()).collect::<Vec<_>>()
        };
        let lead = || bucket.set(lease::NAME, "", "lease");
        lead();
        assert_eq!(sweep_all(&vault, &store).await.unwrap(), 0, "all are young");
        bucket.advance(2 * DAY);
        lead();
        assert_eq!(sweep_all(&vault, &store).await.unwrap(), 3);
        assert_eq!((left("spec"), left("claim").len()), (vec!["1".to_owned(), "2".to_owned()], 5));
        bucket.advance(30 * DAY);
        lead();
        assert_eq!(sweep_all(&vault, &store).await.unwrap(), 3);
        assert_eq!(left("claim"), ["1", "2"]);
    }
}
