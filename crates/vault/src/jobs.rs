//! Jobs that run elsewhere, on an engine that knows nothing of the journal. Leader and job exchange objects below
//! `jobs/<executor>/<key>/`, each of which is created once and never changed:
//!
//! | object | creator | meaning |
//! |---|---|---|
//! | `spec` | leader | the work, written before the engine is asked to start |
//! | `claim` | job or leader | the one attempt that may run, or the certainty that none ever will |
//! | `log/N`, `alive/N` | job | pieces of its log; signs of life |
//! | `cancel` | leader | the job is to stop |
//! | `NAME/N` | either | pieces of a file: tree, plan file, what steps left |
//! | `result` | job or leader | the end that counts |
//! | `late` | job | the end of a job that was given up before |
//!
//! An engine may start a job late, twice or never, and its account of an end decides nothing: only `claim` and `result` do. A job needs no
//! right to list, to delete or to overwrite. Without the right to list, it may get [`BucketError::Hidden`](super::bucket::BucketError::Hidden)
//! for an object that does not exist. The key is secret: who does not know it can neither read the objects nor create one.
//!
//! The caller keeps this order, which the simulation tries too:
//!
//! 1. The leader commits the beginning of the job, then writes `spec`, then starts the engine.
//! 2. The job reads `spec`, then claims, and only as the owner of the claim runs anything.
//! 3. A new leader that finds neither `spec` nor `claim` withdraws. One that finds `spec` may start the engine again, or withdraw.
//! 4. A leader commits an end only from what `claim` or `result` say, and deletes only after that commit.
//!
//! After an error of a creation its outcome is unknown. A leader repeats the call; an attempt whose claim failed ends.

mod create;
mod files;
mod prefix;
mod sweep;
#[cfg(test)]
mod tests;

pub(super) use create::create_first;
pub use files::{FileTooLarge, StoredFile};
pub use prefix::{JobPrefix, is_executor_name, without_keys};
pub(super) use sweep::names;
pub use sweep::{SweptJobs, sweep};

use super::bucket::Bucket;
use super::calls::Calls;
use super::clock::Clock;
use super::inbox::{open, seal};
use super::pack::Invalid;
use super::protocol::{Protocol, Proven};
use super::{FORMAT, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Largest `claim`, `cancel` or piece of a log that is read, in bytes.
pub const MAX_SMALL: usize = 1 << 20;
/// Largest `spec`, `result` or `late` that is read, in bytes.
pub const MAX_DOCUMENT: usize = 64 << 20;
/// Prefix of all objects of jobs.
const FOLDER: &str = "jobs/";
/// Number of concurrent deletions.
const DELETED_AT_ONCE: usize = 16;

pub(super) const SPEC: &str = "spec";
pub(super) const CLAIM: &str = "claim";
pub(super) const CANCEL: &str = "cancel";
pub(super) const RESULT: &str = "result";
pub(super) const LATE: &str = "late";
pub(super) const LOG: &str = "log";
pub(super) const ALIVE: &str = "alive";
/// Label of a result that a leader has created. A list tells it from the result of an attempt without reading it.
pub(super) const GIVEN_UP: &str = "given-up";

/// The party whose claim counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// An attempt, which runs the job. The text is a random value of its own.
    Attempt(String),
    /// A leader, so that no attempt ever runs the job. The text is a random value of its own.
    Withdrawn(String),
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// The attempt has ended with this result, in the caller's encoding.
    Ended {
        /// The attempt.
        attempt: String,
        /// Its result.
        result: serde_json::Value,
    },
    /// A leader has given the job up: it is dead, or as good as dead.
    GivenUp {
        /// A random value of the leader.
        leader: String,
        /// Reason, for people.
        why: String,
    },
}

/// Outcome of the creation of an object that only one party may create.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<T> {
    /// Our object is there.
    Ours,
    /// Another party's object is there.
    Theirs(T),
}

#[derive(Serialize, Deserialize)]
struct Document<T> {
    format: u32,
    content: T,
}

/// The objects of one job. Cheap to clone.
#[derive(Clone)]
pub struct JobObjects<P: Protocol = Proven> {
    calls: Calls,
    prefix: JobPrefix,
    protocol: P,
}

impl JobObjects {
    /// Returns access to the objects of a job.
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, prefix: JobPrefix) -> JobObjects {
        JobObjects::new_as(Calls { bucket, clock }, prefix, Proven)
    }
}

impl<P: Protocol> JobObjects<P> {
    /// Returns access to the objects of a job under the given protocol.
    pub(super) fn new_as(calls: Calls, prefix: JobPrefix, protocol: P) -> JobObjects<P> {
        JobObjects { calls, prefix, protocol }
    }

    /// Returns the prefix of the objects.
    pub fn prefix(&self) -> &JobPrefix {
        &self.prefix
    }

    /// Returns the objects of another job in the same bucket.
    pub fn of(&self, prefix: JobPrefix) -> JobObjects<P> {
        JobObjects::new_as(self.calls.clone(), prefix, self.protocol.clone())
    }

    /// Stores the specification, which only the leader that has recorded the job's beginning may write.
    pub async fn put_spec<T: Serialize + Sync>(&self, spec: &T) -> Result<(), VaultError> {
        let name = self.prefix.object(SPEC);
        match self.create(&name, document(&name, spec, MAX_DOCUMENT)?, SPEC).await? {
            Created::Ours => Ok(()),
            Created::Theirs(_) => Err(self.damaged(&name, "another specification is there")),
        }
    }

    /// Reads the specification; absent if it was never stored, or was deleted after the job's end.
    pub async fn spec<T: DeserializeOwned>(&self) -> Result<Option<T>, VaultError> {
        self.read(SPEC, MAX_DOCUMENT).await
    }

    /// Claims the job for this attempt, which has a new random name at each start of the program: a name that is used twice would have the
    /// claim twice. Only the attempt that is answered [`Created::Ours`] may run anything.
    pub async fn claim(&self, attempt: &str) -> Result<Created<Claimant>, VaultError> {
        self.put_claim(&Claimant::Attempt(attempt.to_owned())).await
    }

    /// Withdraws the job: after [`Created::Ours`] it is certain that no attempt has run or ever will.
    pub async fn withdraw(&self, leader: &str) -> Result<Created<Claimant>, VaultError> {
        self.protocol.withdraw_job(self, leader).await
    }

    /// Creates the claim.
    pub(super) async fn put_claim(&self, claimant: &Claimant) -> Result<Created<Claimant>, VaultError> {
        self.decide(CLAIM, CLAIM, claimant, MAX_SMALL).await
    }

    /// Reads whose claim counts; absent if there is none yet.
    pub async fn claimant(&self) -> Result<Option<Claimant>, VaultError> {
        self.read(CLAIM, MAX_SMALL).await
    }

    /// Stores the result of the attempt that has the claim. If the job was given up meanwhile, the result is stored as a late one.
    pub async fn finish(&self, attempt: &str, result: serde_json::Value) -> Result<Created<JobResult>, VaultError> {
        let end = JobResult::Ended { attempt: attempt.to_owned(), result };
        let created = self.decide(RESULT, RESULT, &end, MAX_DOCUMENT).await?;
        if let Created::Theirs(_) = &created {
            self.decide(LATE, LATE, &end, MAX_DOCUMENT).await?;
        }
        Ok(created)
    }

    /// Gives the job up, whose claim an attempt has; a job without a claim is withdrawn. [`Created::Theirs`] has the result that was there first, and counts.
    pub async fn give_up(&self, leader: &str, why: &str) -> Result<Created<JobResult>, VaultError> {
        let end = JobResult::GivenUp { leader: leader.to_owned(), why: why.to_owned() };
        self.protocol.give_up_job(self, &end).await
    }

    /// Creates the result of a job that is given up.
    pub(super) async fn put_given_up(&self, end: &JobResult) -> Result<Created<JobResult>, VaultError> {
        self.decide(RESULT, GIVEN_UP, end, MAX_DOCUMENT).await
    }

    /// Reads the result; absent if there is none yet.
    pub async fn result(&self) -> Result<Option<JobResult>, VaultError> {
        self.read(RESULT, MAX_DOCUMENT).await
    }

    /// Reads the end of a job that was given up before; absent if there is none.
    pub async fn late(&self) -> Result<Option<JobResult>, VaultError> {
        self.read(LATE, MAX_DOCUMENT).await
    }

    /// Asks the job to stop. `why` is for its log.
    pub async fn cancel(&self, why: &str) -> Result<(), VaultError> {
        let name = self.prefix.object(CANCEL);
        // Another leader may have asked before.
        self.create(&name, document(&name, &why, MAX_SMALL)?, CANCEL).await.map(drop)
    }

    /// Returns the reason for which the job is to stop; absent if it is not.
    pub async fn cancelled(&self) -> Result<Option<String>, VaultError> {
        self.read(CANCEL, MAX_SMALL).await
    }

    /// Stores a piece of the log, of at most [`MAX_SMALL`] bytes. Pieces are numbered from 0.
    pub async fn put_log(&self, number: u32, text: Bytes) -> Result<(), VaultError> {
        check_size(&self.prefix.numbered(LOG, number), &text, MAX_SMALL)?;
        self.put_own(&self.prefix.numbered(LOG, number), text, LOG).await
    }

    /// Reads a piece of the log; absent if it is not there yet.
    pub async fn log(&self, number: u32) -> Result<Option<Bytes>, VaultError> {
        let name = self.prefix.numbered(LOG, number);
        match self.calls.get_within(&name, MAX_SMALL).await? {
            Some(found) if found.bytes.len() > MAX_SMALL => Err(self.damaged(&name, "it is too large")),
            found => Ok(found.map(|object| object.bytes)),
        }
    }

    /// Stores a sign of life. Signs are numbered from 0.
    pub async fn put_alive(&self, number: u32) -> Result<(), VaultError> {
        self.put_own(&self.prefix.numbered(ALIVE, number), Bytes::new(), ALIVE).await
    }

    /// Returns true if this sign of life is there.
    pub async fn is_alive(&self, number: u32) -> Result<bool, VaultError> {
        Ok(self.calls.get_within(&self.prefix.numbered(ALIVE, number), MAX_SMALL).await?.is_some())
    }

    /// Deletes all objects but the claim, and for a job that was given up also its result and its late end. They stay for as long as an
    /// engine might still start the job, or a paused attempt go on: without the claim it would run the job a second time, and without
    /// the result it would store its own where nobody reads it.
    pub async fn delete(&self) -> Result<(), VaultError> {
        let folder = self.prefix.object("");
        let listed = self.calls.list(&folder, "").await?.into_iter();
        let gone = listed.filter(|listed| {
            listed.name.strip_prefix(&folder).is_none_or(|object| !self.protocol.outlives_job(object, &listed.label))
        });
        let delete = gone.map(|gone| async move { self.calls.delete(&gone.name, gone.generation).await.map(drop) });
        Ok(stream::iter(delete).buffer_unordered(DELETED_AT_ONCE).try_collect::<()>().await?)
    }

    async fn read<T: DeserializeOwned>(&self, object: &str, limit: usize) -> Result<Option<T>, VaultError> {
        let name = self.prefix.object(object);
        let Some(found) = self.calls.get_within(&name, limit).await? else { return Ok(None) };
        self.opened(&name, &found.bytes, limit).map(Some)
    }

    fn opened<T: DeserializeOwned>(&self, name: &str, bytes: &[u8], limit: usize) -> Result<T, VaultError> {
        if bytes.len() > limit {
            return Err(self.damaged(name, "it is too large"));
        }
        let opened = open::<Document<T>>(name, bytes).map_err(|bad| match bad {
            Invalid::Newer(format) => {
                self.damaged(name, &format!("it was written by a newer version of Tidelock (format {format})"))
            }
            Invalid::Older(format) => self
                .damaged(name, &format!("it was written by a version of Tidelock that is too old (format {format})")),
            Invalid::Damaged(why) => self.damaged(name, why),
        })?;
        Ok(opened.content)
    }

    fn damaged(&self, name: &str, why: &str) -> VaultError {
        VaultError::Damaged(format!("{}/{} cannot be used: {why}", self.calls.bucket.location(), without_keys(name)))
    }
}

/// Returns the bytes of a document, unless its readers would refuse them.
fn document<T: Serialize>(name: &str, content: &T, limit: usize) -> Result<Bytes, VaultError> {
    let bytes = seal(name, &Document { format: FORMAT, content })?;
    check_size(name, &bytes, limit).map(|()| bytes)
}

fn check_size(name: &str, bytes: &Bytes, limit: usize) -> Result<(), VaultError> {
    let size = bytes.len();
    if size > limit {
        let name = without_keys(name);
        return Err(VaultError::Local(format!("{name} cannot be written: it has {size} bytes, and may have {limit}")));
    }
    Ok(())
}
