//! One object of a chain: its header and rows. A small object is read whole, a larger one in ranges.

use crate::VaultError;
use crate::bucket::{Generation, Listed};
use crate::calls::{self, Calls};
use crate::pack::{self, Coding, Invalid, ObjectHead, ObjectKind, Section};
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects up to this size are read whole.
const WHOLE: u64 = 256 << 10;
/// Bytes of the first read of a larger object, which usually cover its header and its rows.
const FIRST: u64 = 128 << 10;
/// Contents of more than this many bytes are decoded off the async threads.
const ON_THE_SPOT: usize = 64 << 10;

/// One object of a chain.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Name in the bucket.
    pub(crate) name: String,
    /// Generation of the object.
    pub(crate) generation: Generation,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Header of the object, with its hash.
    pub(crate) head: ObjectHead,
    /// Rows of a commit.
    pub(crate) rows: Bytes,
    /// All bytes of the object, if it is small and the budget had room.
    pub(crate) whole: Option<Bytes>,
}

/// Failure to read a chain.
pub(super) enum ReadError {
    /// An object is missing or unusable. A newer base may be the reason.
    Stop(String),
    /// Any other error.
    Error(VaultError),
}

impl From<VaultError> for ReadError {
    fn from(error: VaultError) -> ReadError {
        ReadError::Error(error)
    }
}

impl Part {
    /// Reads a range of its bytes; an error if the object has been deleted.
    pub(crate) async fn range(&self, calls: &Calls, range: Range<u64>) -> Result<Bytes, VaultError> {
        if let Some(whole) = &self.whole {
            let end = range.end.min(whole.len() as u64);
            let start = range.start.min(end);
            // Both are at most the length of `whole`.
            return Ok(whole.slice(usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0)));
        }
        let bytes = calls.get_range(&self.name, self.generation, range).await?;
        bytes.ok_or_else(|| gone(calls, &self.name))
    }

    /// Error for contents that are invalid.
    pub(crate) fn bad(&self, calls: &Calls, bad: &Invalid) -> VaultError {
        calls::damaged(&*calls.bucket, &self.name, bad)
    }
}

fn gone(calls: &Calls, name: &str) -> VaultError {
    VaultError::Damaged(format!(
        "{}/{name} was deleted while it was being read. Try again: a newer base may be there. {}",
        calls.bucket.location(),
        calls::REMEDY
    ))
}

/// Reads header and rows of a listed object. Keeps it whole if it is small and `budget` has room.
pub(super) async fn open(calls: &Calls, listed: Listed, seq: u64, budget: &AtomicU64) -> Result<Part, ReadError> {
    let stop = |bad: &Invalid| ReadError::Stop(calls::describe(calls.bucket.location(), &listed.name, bad));
    let size = listed.size;
    if size < pack::PREFIX as u64 {
        return Err(stop(&Invalid::Damaged("it is too short")));
    }
    let mut bytes = first(calls, &listed, 0..if size <= WHOLE { size } else { FIRST }).await?;
    let length = pack::head_length(&bytes).map_err(|bad| stop(&bad))? as u64;
    if (bytes.len() as u64) < length && length <= size {
        let rest = first(calls, &listed, bytes.len() as u64..length).await?;
        bytes = [bytes, rest].concat().into();
    }
    let head = decode_head(bytes.clone(), size).await.map_err(|bad| stop(&bad))?;
    let journal = head.header.kind != ObjectKind::Base;
    if head.header.seq != seq || journal != listed.name.starts_with("journal/") {
        return Err(stop(&Invalid::Damaged("it is another object under this name")));
    }
    let rows = match head.header.rows {
        None => Bytes::new(),
        Some(section) => {
            let range = head.contents..head.rows_end();
            let stored = if range.end <= bytes.len() as u64 {
                slice(&bytes, &range)
            } else {
                first(calls, &listed, range).await?
            };
            decode(section, stored).await.map_err(|bad| stop(&bad))?
        }
    };
    let kept = size <= WHOLE && take_budget(budget, size);
    // A slice would keep the whole object in memory.
    let rows = if kept { rows } else { Bytes::copy_from_slice(&rows) };
    let Listed { name, generation, .. } = listed;
    Ok(Part { name, generation, size, head, rows, whole: kept.then_some(bytes) })
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(place(range.start)..place(range.end))
}

fn take_budget(budget: &AtomicU64, size: u64) -> bool {
    budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size)).is_ok()
}

/// Reads a range of a listed object, which may have been deleted because of a newer base.
async fn first(calls: &Calls, listed: &Listed, range: Range<u64>) -> Result<Bytes, ReadError> {
    let wanted = range.end - range.start;
    let bytes = calls.get_range(&listed.name, listed.generation, range).await;
    match bytes.map_err(|error| ReadError::Error(error.into()))? {
        Some(bytes) if bytes.len() as u64 == wanted => Ok(bytes),
        Some(_) => {
            let bad = Invalid::Damaged("it is shorter than the bucket's list says");
            Err(ReadError::Stop(calls::describe(calls.bucket.location(), &listed.name, &bad)))
        }
        None => Err(ReadError::Stop(format!(
            "{}/{} is missing, and no newer base is there: the state cannot be restored. Nothing was changed. {}",
            calls.bucket.location(),
            listed.name,
            calls::REMEDY
        ))),
    }
}

async fn decode_head(bytes: Bytes, size: u64) -> Result<ObjectHead, Invalid> {
    if bytes.len() <= ON_THE_SPOT || pack::head_length(&bytes)? <= ON_THE_SPOT {
        return pack::decode_head(&bytes, size);
    }
    off_thread(move || pack::decode_head(&bytes, size)).await
}

/// Decodes and verifies the content of a section that fits into memory.
pub(super) async fn decode(section: Section, stored: Bytes) -> Result<Bytes, Invalid> {
    let small = section.length <= ON_THE_SPOT as u64 && stored.len() <= ON_THE_SPOT;
    if small || (section.coding == Coding::Raw && stored.is_empty()) {
        return pack::decode(&section, stored);
    }
    off_thread(move || pack::decode(&section, stored)).await
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Invalid> + Send + 'static,
) -> Result<T, Invalid> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Invalid::Damaged("it could not be decoded")))
}
