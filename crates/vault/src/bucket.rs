//! The object storage that the vault needs, with the generations of Cloud Storage.

#[cfg(test)]
pub(crate) mod conformance;
pub mod probe;

use crate::jobs::without_keys;
use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use std::ops::Range;
use std::path::PathBuf;

/// Number of one content of one name, greater than 0. Each write assigns a new one, which is never used again for that name.
pub type Generation = i64;

/// The content to write.
#[derive(Debug, Clone)]
pub enum Body {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file, read while it is sent. It must not change meanwhile.
    File(PathBuf),
}

/// Longest object name, in bytes. The prefix before it in a bucket may be as long again.
pub const MAX_NAME: usize = 500;
/// Longest segment of a name: file systems allow 255 bytes.
pub const MAX_SEGMENT: usize = 200;

/// Label that a list shows for an object whose header cannot be read.
pub const DAMAGED: &str = "damaged";

/// Returns true if this is a valid object name: segments of `[A-Za-z0-9._-]` joined by `/`, none of which is empty or begins with a
/// dot. Every implementation refuses other names in `put`, `get`, `get_range` and `delete`.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME && name.split('/').all(is_segment)
}

fn is_segment(segment: &str) -> bool {
    !segment.starts_with('.')
        && (1..=MAX_SEGMENT).contains(&segment.len())
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// An object that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Generation of this content.
    pub generation: Generation,
    /// The content.
    pub bytes: Bytes,
}

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Full name below the prefix.
    pub name: String,
    /// Generation of its present content.
    pub generation: Generation,
    /// Size in bytes.
    pub size: u64,
    /// Time at which this generation was created, by the bucket's clock.
    pub created: Timestamp,
    /// Label that it was written with.
    pub label: String,
}

/// Result of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The object is stored, with this generation.
    Stored(Generation),
    /// The precondition failed. An earlier write of the same caller whose answer was lost may be the reason. The object may also be
    /// absent: Cloud Storage refuses a damaged body in the same way. Read the object and compare.
    Refused,
}

/// An object that is being sent in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploading {
    /// Its name below the prefix.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that have arrived.
    pub arrived: u64,
    /// Time since this upload began.
    pub took: std::time::Duration,
}

/// Failure of a call to the bucket. Its text does not show the keys of jobs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BucketError {
    /// There was no usable answer, after the implementation's own short retries. A write may have been done, or may be done later.
    #[error("{location}: {}: no answer: {}", without_keys(.doing), without_keys(.reason))]
    Unavailable {
        /// The bucket.
        location: String,
        /// The operation and the object.
        doing: String,
        /// The reason why there was no answer.
        reason: String,
    },
    /// The object does not exist, or the account may not read it: Cloud Storage does not tell the two apart to an account that may not list.
    #[error("{location}: {}: it does not exist, or this account may not read it: {}", without_keys(.doing), without_keys(.reason))]
    Hidden {
        /// The bucket.
        location: String,
        /// The operation and the object.
        doing: String,
        /// The refusal, and what the operator can do.
        reason: String,
    },
    /// The call cannot succeed: no such bucket, no permission, a full disk. This call had no effect. An earlier call that failed with
    /// [`BucketError::Unavailable`] may still have been done.
    #[error("{location}: {}: {}", without_keys(.doing), without_keys(.reason))]
    Refused {
        /// The bucket.
        location: String,
        /// The operation and the object.
        doing: String,
        /// The reason, and what the operator can do.
        reason: String,
    },
}

/// Object storage under one prefix. Reads and lists are strongly consistent. Names are relative to the prefix: segments of
/// `[A-Za-z0-9._-]` joined by `/`. Every call is bounded in time by the implementation.
#[async_trait]
pub trait Bucket: Send + Sync + 'static {
    /// The address, for people: `gs://bucket/prefix`, `file:///directory`.
    fn location(&self) -> &str;

    /// Checks the bucket, once at the start. Fails if the bucket does not exist, cannot be written to, or has settings that lose data.
    /// Returns warnings, such as about settings that cost money.
    async fn check(&self) -> Result<Vec<String>, BucketError>;

    /// Looks through the objects and returns warnings for the operator, such as about damaged or foreign ones. It may read all of them,
    /// so a server calls it only once it leads: a restore checks by itself the objects that the state needs.
    async fn inspect(&self) -> Result<Vec<String>, BucketError> {
        Ok(Vec::new())
    }

    /// Reads the present content; `None` if there is no such object.
    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError>;

    /// Reads the present content of an object that an untrusted party may have written: at most `most` bytes, and of a larger one at least
    /// one byte more, which shows that it is larger. Needs no right to list, so that of a missing bucket each object is absent. An
    /// account without that right may get [`BucketError::Hidden`] for an object that does not exist.
    async fn get_within(&self, name: &str, most: usize) -> Result<Option<Object>, BucketError> {
        let object = self.get(name).await?;
        Ok(object.map(|Object { generation, mut bytes }| {
            bytes.truncate(most.saturating_add(1));
            Object { generation, bytes }
        }))
    }

    /// Reads bytes of one generation; `None` if that generation is not present. A range that ends beyond the object is cut.
    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError>;

    /// Writes if `expected` is the present generation, or if it is 0 and there is no such object. Lists show `label`, a short word.
    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError>;

    /// Deletes this generation. Returns true if the object no longer exists, false if it has another generation.
    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError>;

    /// Lists all names that begin with `prefix` and are greater than `after` (empty: all), in order, over all pages.
    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError>;

    /// Lists the first names of such a list, at most `most`. It may return fewer, but returns none only if the list is empty.
    async fn list_some(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, BucketError> {
        let mut listed = self.list(prefix, after).await?;
        listed.truncate(most);
        Ok(listed)
    }

    /// Shows other processes that the one with this nonce is alive, for as long as it is. Only a bucket on this machine can.
    fn announce(&self, _nonce: &str) -> Result<(), BucketError> {
        Ok(())
    }

    /// Returns true if the process with that nonce is known to have ended, so that none of its writes is on its way. False if unknown.
    async fn is_gone(&self, _nonce: &str) -> Result<bool, BucketError> {
        Ok(false)
    }

    /// Returns true if only processes of this machine use the bucket, so that it knows which of them are alive.
    fn knows_who_lives(&self) -> bool {
        false
    }

    /// Uploads in pieces that are in progress.
    fn uploads(&self) -> Vec<Uploading> {
        Vec::new()
    }

    /// Requests so far, by kind, for metrics: (`put`, 17).
    fn requests(&self) -> Vec<(&'static str, u64)>;
}
