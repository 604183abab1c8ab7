//! Deletion of the objects of jobs that no record names any more.

use super::{DELETED_AT_ONCE, FOLDER, JobPrefix};
use crate::bucket::Listed;
use crate::calls::Calls;
use crate::protocol::{Protocol, Proven};
use crate::{Vault, VaultError, lease};
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

/// Maximum number of objects that one request lists, so that it is answered within the time limit of a call.
pub(super) const PAGE: usize = 1000;
/// Pages of one sweep, so that a leader with many jobs is not busy with it for minutes.
const PAGES: usize = 20;
/// Age of the youngest object of a job from which the job is left. The leader's records may be younger than its list, and a job that runs
/// writes every 30 seconds, so an object of a day ago belongs to none of which the leader does not know.
const LEFT_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Age from which the last objects of a job are deleted: longer than any engine may start a job late, or keep a paused one.
const UNNEEDED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Result of one sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweptJobs {
    /// Number of deleted objects.
    pub deleted: u64,
    /// Name after which the next sweep goes on; absent if this one has come to the end.
    pub next: Option<String>,
}

/// The objects of one job, as far as they were listed.
struct ListedJob {
    prefix: JobPrefix,
    objects: Vec<Listed>,
}

/// Deletes objects of jobs that `keep` does not name, beginning after the name `after` (empty: from the start). Goes through a limited
/// number of objects.
///
/// If the youngest object of such a job is older than a day, all but its claim, and what stays of a job that was given up, are deleted.
/// If only these are left, and are older than 30 days, they are deleted too. Ages are by the bucket's clock: its time now is that of the
/// lease, which a leader writes every few seconds.
///
/// Only a leader may call this. `keep` has to name every job whose objects may still be read, such as those of a job that was given up
/// and whose late end is awaited.
pub async fn sweep(vault: &Vault, keep: impl Fn(&JobPrefix) -> bool, after: &str) -> Result<SweptJobs, VaultError> {
    let calls = vault.calls();
    let lease = calls.list_some(lease::NAME, "", 1).await?;
    let Some(now) = lease.first().map(|lease| lease.created) else { return Ok(SweptJobs::default()) };
    let mut swept = SweptJobs::default();
    let (mut last, mut job) = (after.to_owned(), None::<ListedJob>);
    for _ in 0..PAGES {
        let page = calls.list_some(FOLDER, &last, PAGE).await?;
        let Some(end) = page.last() else {
            swept.deleted += delete_left(&calls, &keep, job, now).await?;
            swept.next = None;
            return Ok(swept);
        };
        last.clone_from(&end.name);
        for listed in page {
            // Another program's object is left alone.
            let Some(prefix) = JobPrefix::of_object(&listed.name) else { continue };
            match &mut job {
                Some(job) if job.prefix == prefix => job.objects.push(listed),
                _ => {
                    let before = job.replace(ListedJob { prefix, objects: vec![listed] });
                    swept.next = before.as_ref().and_then(|job| job.objects.last()).map(|last| last.name.clone());
                    swept.deleted += delete_left(&calls, &keep, before, now).await?;
                }
            }
        }
    }
    if swept.next.is_none() {
        // A single job, or objects of others, take all pages.
        swept.deleted += delete_left(&calls, &keep, job, now).await?;
        swept.next = Some(last);
    }
    Ok(swept)
}

/// Deletes the objects of a job that are not needed any more. Returns their number.
async fn delete_left(
    calls: &Calls,
    keep: &impl Fn(&JobPrefix) -> bool,
    job: Option<ListedJob>,
    now: Timestamp,
) -> Result<u64, VaultError> {
    let Some(ListedJob { prefix, objects }) = job.filter(|job| !keep(&job.prefix)) else { return Ok(0) };
    let age = objects.iter().map(|object| now.duration_since(object.created)).min().unwrap_or_default();
    let folder = prefix.object("");
    let outlives = |object: &Listed| {
        object.name.strip_prefix(&folder).is_some_and(|name| Proven.outlives_job(name, &object.label))
    };
    let (last, left): (Vec<Listed>, Vec<Listed>) = objects.into_iter().partition(outlives);
    let gone = match age {
        age if age < LEFT_AFTER => return Ok(0),
        _ if !left.is_empty() => left,
        age if age < UNNEEDED_AFTER => return Ok(0),
        _ => last,
    };
    let count = gone.len() as u64;
    let delete = gone.into_iter().map(|gone| async move { calls.delete(&gone.name, gone.generation).await.map(drop) });
    stream::iter(delete).buffer_unordered(DELETED_AT_ONCE).try_collect::<()>().await?;
    Ok(count)
}

/// Returns the number of jobs with objects, and the names of foreign objects.
pub(crate) async fn names(calls: &Calls) -> Result<(u64, Vec<String>), VaultError> {
    let (mut count, mut others, mut before) = (0, Vec::new(), None);
    for listed in calls.list(FOLDER, "").await? {
        match JobPrefix::of_object(&listed.name) {
            None => others.push(listed.name),
            prefix if prefix != before => {
                count += 1;
                before = prefix;
            }
            _ => {}
        }
    }
    Ok((count, others))
}
