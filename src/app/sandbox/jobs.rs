//! End of the sandbox's jobs at an executor, which outlive its server.

use crate::vault::bucket::Bucket;
use crate::vault::clock::Boottime;
use crate::vault::directory::Directory;
use crate::vault::jobs::{Claimant, Created, JobObjects, JobPrefix};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit of the end of a job.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Time in which a process that was started for a withdrawn job ends. It would make the bucket's directory again.
const WITHDRAWN: Duration = Duration::from_millis(500);
/// Interval between two looks for a result.
const LOOK: Duration = Duration::from_millis(50);
/// Prefix of the objects of all jobs.
const JOBS: &str = "jobs/";
/// Name of a job's specification, which is there from before its start until its end is recorded.
const SPEC: &str = "/spec";

/// Ends all jobs of a bucket without a server, and waits until they have ended: their files are in the sandbox's directory.
pub(super) async fn end(bucket: &Path) -> Result<()> {
    if !bucket.exists() {
        return Ok(());
    }
    let bucket: Arc<dyn Bucket> = Arc::new(Directory::open(bucket)?);
    let listed = bucket.list(JOBS, "").await.context("the jobs cannot be listed")?;
    let prefixes: BTreeSet<&str> = listed.iter().filter_map(|object| object.name.strip_suffix(SPEC)).collect();
    let jobs = prefixes.into_iter().filter_map(JobPrefix::parse);
    let ends = jobs.map(|prefix| end_job(JobObjects::new(Arc::clone(&bucket), Arc::new(Boottime), prefix)));
    futures::future::try_join_all(ends).await.context("a job cannot be ended").map(drop)
}

async fn end_job(job: JobObjects) -> Result<()> {
    match job.withdraw("sandbox").await? {
        Created::Ours | Created::Theirs(Claimant::Withdrawn(_)) => {
            tokio::time::sleep(WITHDRAWN).await;
            return Ok(());
        }
        Created::Theirs(Claimant::Attempt(_)) => {}
    }
    job.cancel("the sandbox ends").await?;
    let began = Instant::now();
    while job.result().await?.is_none() {
        if began.elapsed() > END_LIMIT {
            bail!("it has not ended within {} s", END_LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
