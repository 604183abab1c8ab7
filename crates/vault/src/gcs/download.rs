//! Reads of a range. An interrupted read resumes where it stopped, under the same generation, as long as bytes arrive. Over a slow
//! connection there is no total time limit. The caller compares the contents with the hashes in the object.

use super::calls::{CallKind, before};
use super::error::CallError;
use super::{Gcs, MAX_READ};
use crate::bucket::Generation;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use google_cloud_storage::model_ext::ReadRange;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Bytes that a failed call has to have read for another call to follow.
const LEAST_PROGRESS: u64 = 64 << 10;

/// Bytes that have arrived so far, over all attempts.
#[derive(Default)]
struct Arrived(Mutex<BytesMut>);

impl Arrived {
    fn lock(&self) -> MutexGuard<'_, BytesMut> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn length(&self) -> u64 {
        self.lock().len() as u64
    }

    /// Adds bytes. `rest`: number of bytes to expect from this request, for the first allocation.
    fn add(&self, chunk: &[u8], rest: u64) {
        let mut arrived = self.lock();
        if arrived.is_empty() {
            arrived.reserve(usize::try_from(rest).unwrap_or_default().max(chunk.len()));
        }
        arrived.extend_from_slice(chunk);
    }
}

impl Gcs {
    /// Reads bytes of one generation, up to the object's end. Returns [`CallError::Range`] if the object ends before the range begins.
    pub(super) async fn download(
        &self,
        name: &str,
        generation: Generation,
        range: &Range<u64>,
    ) -> Result<Bytes, CallError> {
        let arrived = Arrived::default();
        loop {
            let so_far = arrived.length();
            let attempt = |end| -> BoxFuture<'_, _> { Box::pin(self.rest(name, generation, range, &arrived, end)) };
            match self.calls.run(CallKind::GetRange, 0, attempt).await {
                Ok(()) => break,
                // All of it had arrived when the connection broke.
                Err(CallError::Range) if arrived.length() > 0 => break,
                Err(answer) if answer.is_transient() && arrived.length() >= so_far + LEAST_PROGRESS => {}
                Err(answer) => return Err(answer),
            }
        }
        let wanted = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut bytes = std::mem::take(&mut *arrived.lock()).freeze();
        bytes.truncate(wanted);
        Ok(bytes)
    }

    /// Requests the bytes that have not arrived. Fails if nothing arrives within the time of an attempt.
    async fn rest(
        &self,
        name: &str,
        generation: Generation,
        range: &Range<u64>,
        arrived: &Arrived,
        end: Instant,
    ) -> Result<(), CallError> {
        let (wanted, from) = (range.end.saturating_sub(range.start), arrived.length());
        if from > 0 && from >= wanted {
            return Ok(());
        }
        let segment = if i64::try_from(range.end).is_ok() {
            // The client takes a length of 0 for all the rest, and a request is needed in any case to check the generation.
            ReadRange::segment(range.start + from, (wanted - from).max(1))
        } else {
            ReadRange::offset(range.start + from)
        };
        let storage = before(end, self.calls.storage()).await?;
        let request = storage.read_object(self.address.resource(), self.full(name));
        // Not `set_generation`: with versioning that would find old generations.
        let request = request.set_if_generation_match(generation).set_read_range(segment);
        let mut response = before(end, async { request.send().await.map_err(|e| CallError::from_error(&e)) }).await?;
        let size = u64::try_from(response.object().size).unwrap_or_default().min(wanted).min(MAX_READ);
        loop {
            let end = Instant::now() + self.calls.limits().attempt;
            let next = async { response.next().await.transpose().map_err(|e| CallError::from_error(&e)) };
            let Some(chunk) = before(end, next).await? else { return Ok(()) };
            arrived.add(&chunk, size);
            if arrived.length() > MAX_READ {
                return Err(CallError::Refused(format!("it is larger than {MAX_READ} bytes; read it in ranges")));
            }
        }
    }
}
