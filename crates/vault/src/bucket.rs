//! What the vault asks of object storage, with Cloud Storage's generation semantics (reference/gcs.md).

#[cfg(test)]
pub(crate) mod conformance;
pub mod probe;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use std::ops::Range;
use std::path::PathBuf;

/// Number of one content of one name; another one for each write, never used again for that name. Greater than 0.
pub type Generation = i64;

/// What is written.
#[derive(Debug, Clone)]
pub enum Body {
    /// From memory.
    Bytes(Bytes),
    /// A file, read as it is sent; it does not change meanwhile.
    File(PathBuf),
}

/// Longest object name, in bytes; what may go before it in a bucket (its prefix) has as much again.
pub const MAX_NAME: usize = 500;
/// Longest segment of a name: file systems allow 255 bytes.
pub const MAX_SEGMENT: usize = 200;

/// Label under which a list shows an object of which nothing but its name can be read.
pub const DAMAGED: &str = "damaged";

/// Whether this can be an object's name: segments of `[A-Za-z0-9._-]` joined by `/`, none of which is empty or begins with a
/// dot. Every implementation refuses all others, in `put`, `get`, `get_range` and `delete`.
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
    /// Of this content.
    pub generation: Generation,
    /// Content.
    pub bytes: Bytes,
}

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Full name below the prefix.
    pub name: String,
    /// Of its present content.
    pub generation: Generation,
    /// Bytes.
    pub size: u64,
    /// When this generation was made, by the bucket's clock.
    pub created: Timestamp,
    /// The label it was written with.
    pub label: String,
}

/// How a conditional write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is there, with this generation.
    Stored(Generation),
    /// The precondition did not hold. This may be one's own success whose answer was lost, and is no proof that anything is there
    /// (a damaged body can be refused so): read and compare.
    Refused,
}

/// An object that is being sent in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploading {
    /// Its name below the prefix.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes that have arrived.
    pub arrived: u64,
    /// Since this upload began.
    pub took: std::time::Duration,
}

/// Why the bucket did not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BucketError {
    /// No usable answer, after the implementation's own short retries. A write may have happened, or may happen later.
    #[error("{location}: {doing}: no answer: {reason}")]
    Unavailable {
        /// The bucket.
        location: String,
        /// What was asked.
        doing: String,
        /// What came instead of an answer.
        reason: String,
    },
    /// It will not be done however often it is asked: no such bucket, no rights, a full disk. Nothing of this call was done; of an
    /// earlier one that ended with [`BucketError::Unavailable`] it says nothing.
    #[error("{location}: {doing}: {reason}")]
    Refused {
        /// The bucket.
        location: String,
        /// What was asked.
        doing: String,
        /// Why, and what the operator can do.
        reason: String,
    },
}

/// Object storage under one prefix. Reads and lists are strongly consistent. Names are relative to the prefix: segments of
/// `[A-Za-z0-9._-]` joined by `/`. Every call is bounded in time by the implementation.
#[async_trait]
pub trait Bucket: Send + Sync + 'static {
    /// The whole address, for people: `gs://bucket/prefix`, `file:///directory`.
    fn location(&self) -> &str;

    /// Once at the start: is it there, may we write, does anything in its settings lose data? An error stops the start;
    /// the texts are warnings (versioning or soft delete that cost money).
    async fn check(&self) -> Result<Vec<String>, BucketError>;

    /// The present content; absent when there is none.
    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError>;

    /// Bytes of one generation; absent when that generation is not the present one. A range that ends behind the object is cut.
    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError>;

    /// Writes if the present generation is `expected`; 0: if there is none. `label` is one short word that lists show.
    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError>;

    /// Deletes if the present generation is `generation`. True: it is not there any more; false: another one is.
    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError>;

    /// All names that begin with `prefix` and are greater than `after` (empty: all), in order, over all pages.
    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError>;

    /// The first names of such a list, at most `most`; perhaps fewer, but none only where the list is empty.
    async fn list_some(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, BucketError> {
        let mut listed = self.list(prefix, after).await?;
        listed.truncate(most);
        Ok(listed)
    }

    /// Tells others that this process lives, as long as it does, under its nonce. Only a bucket on this machine can.
    fn announce(&self, _nonce: &str) -> Result<(), BucketError> {
        Ok(())
    }

    /// Whether the process of that nonce is known to be gone, so that nothing of it is on its way. False when nobody can know.
    async fn is_gone(&self, _nonce: &str) -> Result<bool, BucketError> {
        Ok(false)
    }

    /// Whether all who may lead on it are processes of this machine, so that a lease without a living holder has nobody behind it
    /// who could still want it with other settings. False for buckets that others reach.
    fn knows_who_lives(&self) -> bool {
        false
    }

    /// What is being sent in pieces just now, for `/status`.
    fn uploads(&self) -> Vec<Uploading> {
        Vec::new()
    }

    /// Requests so far, by kind, for metrics: (`put`, 17).
    fn requests(&self) -> Vec<(&'static str, u64)>;
}
