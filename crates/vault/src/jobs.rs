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
//! right to list, to delete or to overwrite. The key is secret: who does not know it can neither read the objects nor create one.

mod files;
mod prefix;

pub use files::{FileTooLarge, StoredFile};
pub use prefix::{JobPrefix, is_executor_name};

use super::bucket::{Body, Bucket, BucketError, Written};
use super::calls::{Calls, PATIENCE, Pauses};
use super::clock::Clock;
use super::inbox::{open, seal};
use super::pack::Invalid;
use super::{FORMAT, VaultError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Largest `claim`, `cancel` or piece of a log that is read, in bytes.
pub const MAX_SMALL: usize = 1 << 20;
/// Largest `spec` or `result` that is read, in bytes.
pub const MAX_DOCUMENT: usize = 64 << 20;

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
pub struct JobObjects {
    calls: Calls,
    prefix: JobPrefix,
}

impl JobObjects {
    /// Returns access to the objects of a job.
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, prefix: JobPrefix) -> JobObjects {
        JobObjects { calls: Calls { bucket, clock }, prefix }
    }

    /// Returns the prefix of the objects.
    pub fn prefix(&self) -> &JobPrefix {
        &self.prefix
    }

    /// Returns the objects of another job in the same bucket.
    pub fn of(&self, prefix: JobPrefix) -> JobObjects {
        JobObjects { calls: self.calls.clone(), prefix }
    }

    /// Stores the specification, which only the leader that has recorded the job's beginning may write.
    pub async fn put_spec<T: Serialize + Sync>(&self, spec: &T) -> Result<(), VaultError> {
        let name = self.prefix.object("spec");
        match self.create(&name, document(&name, spec)?, "spec").await? {
            Created::Ours => Ok(()),
            Created::Theirs(_) => Err(self.damaged(&name, "another specification is there")),
        }
    }

    /// Reads the specification; absent if it was never stored, or was deleted after the job's end.
    pub async fn spec<T: DeserializeOwned>(&self) -> Result<Option<T>, VaultError> {
        self.read("spec", MAX_DOCUMENT).await
    }

    /// Claims the job for this attempt. Only the attempt that is answered [`Created::Ours`] may run anything.
    pub async fn claim(&self, attempt: &str) -> Result<Created<Claimant>, VaultError> {
        self.put_claim(&Claimant::Attempt(attempt.to_owned())).await
    }

    /// Withdraws the job: after [`Created::Ours`] it is certain that no attempt has run or ever will.
    pub async fn withdraw(&self, leader: &str) -> Result<Created<Claimant>, VaultError> {
        self.put_claim(&Claimant::Withdrawn(leader.to_owned())).await
    }

    async fn put_claim(&self, claimant: &Claimant) -> Result<Created<Claimant>, VaultError> {
        self.decide("claim", claimant, MAX_SMALL).await
    }

    /// Reads whose claim counts; absent if there is none yet.
    pub async fn claimant(&self) -> Result<Option<Claimant>, VaultError> {
        self.read("claim", MAX_SMALL).await
    }

    /// Stores the result of the attempt that has the claim. If the job was given up meanwhile, the result is stored as a late one.
    pub async fn finish(&self, attempt: &str, result: serde_json::Value) -> Result<Created<JobResult>, VaultError> {
        let end = JobResult::Ended { attempt: attempt.to_owned(), result };
        let created = self.decide("result", &end, MAX_DOCUMENT).await?;
        if let Created::Theirs(_) = &created {
            self.decide("late", &end, MAX_DOCUMENT).await?;
        }
        Ok(created)
    }

    /// Gives the job up. [`Created::Theirs`] has the result that was there first, and counts.
    pub async fn give_up(&self, leader: &str, why: &str) -> Result<Created<JobResult>, VaultError> {
        let end = JobResult::GivenUp { leader: leader.to_owned(), why: why.to_owned() };
        self.decide("result", &end, MAX_DOCUMENT).await
    }

    /// Reads the result; absent if there is none yet.
    pub async fn result(&self) -> Result<Option<JobResult>, VaultError> {
        self.read("result", MAX_DOCUMENT).await
    }

    /// Reads the end of a job that was given up before; absent if there is none.
    pub async fn late(&self) -> Result<Option<JobResult>, VaultError> {
        self.read("late", MAX_DOCUMENT).await
    }

    /// Asks the job to stop. `why` is for its log.
    pub async fn cancel(&self, why: &str) -> Result<(), VaultError> {
        let name = self.prefix.object("cancel");
        // Another leader may have asked before.
        self.create(&name, document(&name, &why)?, "cancel").await.map(drop)
    }

    /// Returns the reason for which the job is to stop; absent if it is not.
    pub async fn cancelled(&self) -> Result<Option<String>, VaultError> {
        self.read("cancel", MAX_SMALL).await
    }

    /// Stores a piece of the log. Pieces are numbered from 0.
    pub async fn put_log(&self, number: u32, text: Bytes) -> Result<(), VaultError> {
        self.put_own(&self.prefix.numbered("log", number), text, "log").await
    }

    /// Reads a piece of the log; absent if it is not there yet.
    pub async fn log(&self, number: u32) -> Result<Option<Bytes>, VaultError> {
        let name = self.prefix.numbered("log", number);
        let found = self.calls.get(&name).await?.map(|object| object.bytes);
        match found {
            Some(bytes) if bytes.len() > MAX_SMALL => Err(self.damaged(&name, "it is too large")),
            found => Ok(found),
        }
    }

    /// Stores a sign of life. Signs are numbered from 0.
    pub async fn put_alive(&self, number: u32) -> Result<(), VaultError> {
        self.put_own(&self.prefix.numbered("alive", number), Bytes::new(), "alive").await
    }

    /// Returns true if this sign of life is there.
    pub async fn is_alive(&self, number: u32) -> Result<bool, VaultError> {
        Ok(self.calls.get(&self.prefix.numbered("alive", number)).await?.is_some())
    }

    /// Deletes all objects but the claim, which stays for as long as an engine might still start the job: without it, a paused attempt
    /// would run the job a second time.
    pub async fn delete(&self) -> Result<(), VaultError> {
        let claim = self.prefix.object("claim");
        for listed in self.calls.list(&self.prefix.object(""), "").await? {
            if listed.name != claim {
                self.calls.delete(&listed.name, listed.generation).await?;
            }
        }
        Ok(())
    }

    /// Stores an object that only this party writes.
    async fn put_own(&self, name: &str, bytes: Bytes, label: &str) -> Result<(), VaultError> {
        match self.create(name, bytes, label).await? {
            Created::Ours => Ok(()),
            Created::Theirs(_) => Err(self.damaged(name, "another object is there")),
        }
    }

    /// Stores a document of which only the first counts.
    async fn decide<T>(&self, object: &str, content: &T, limit: usize) -> Result<Created<T>, VaultError>
    where
        T: Serialize + DeserializeOwned,
    {
        let name = self.prefix.object(object);
        Ok(match self.create(&name, document(&name, content)?, object).await? {
            Created::Ours => Created::Ours,
            Created::Theirs(bytes) => Created::Theirs(self.opened(&name, &bytes, limit)?),
        })
    }

    async fn read<T: DeserializeOwned>(&self, object: &str, limit: usize) -> Result<Option<T>, VaultError> {
        let name = self.prefix.object(object);
        let Some(found) = self.calls.get(&name).await? else { return Ok(None) };
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
        VaultError::Damaged(format!("{}/{name} cannot be used: {why}", self.calls.bucket.location()))
    }

    /// Creates an object, with retries until its outcome is known. The bytes differ from those of every other party.
    async fn create(&self, name: &str, bytes: Bytes, label: &str) -> Result<Created<Bytes>, VaultError> {
        let start = self.calls.clock.now();
        let mut pauses = Pauses::new();
        loop {
            let unknown = match self.calls.bucket.put(name, 0, Body::Bytes(bytes.clone()), label).await {
                Ok(Written::Stored(_)) => return Ok(Created::Ours),
                // Our own earlier try, another party's object, or a refusal although nothing is there.
                Ok(Written::Refused) => match self.calls.get(name).await? {
                    Some(object) if object.bytes == bytes => return Ok(Created::Ours),
                    Some(object) => return Ok(Created::Theirs(object.bytes)),
                    None => self.calls.gone(name),
                },
                Err(error @ BucketError::Unavailable { .. }) => error,
                Err(refused) => return Err(refused.into()),
            };
            if self.calls.clock.now().saturating_sub(start) >= PATIENCE {
                return Err(unknown.into());
            }
            pauses.wait(&*self.calls.clock).await;
        }
    }
}

fn document<T: Serialize>(name: &str, content: &T) -> Result<Bytes, VaultError> {
    seal(name, &Document { format: FORMAT, content })
}
