//! Tries once, with a small object of its own, the usual calls of a server: create, read, list, delete. For the check at the start
//! and for `tidelock doctor`. A lost answer is not an error: the object is read before a call counts as not done.

use super::{Body, Bucket, BucketError, Generation, Written};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// Content of the object.
const CONTENT: &[u8] = b"tidelock probe";
/// Tries of the creation and of the deletion, each with the bucket's own attempts.
const TRIES: usize = 3;

/// Tries the bucket with an object of this name, which nobody else uses, and removes it. Returns the time that the creation took,
/// with its retries.
pub async fn probe(bucket: &dyn Bucket, name: &str) -> Result<Duration, BucketError> {
    let began = Instant::now();
    let generation = match create(bucket, name).await {
        Ok(generation) => generation,
        Err(error) => {
            sweep(bucket, name).await;
            return Err(error);
        }
    };
    let took = began.elapsed();
    let read = bucket.get(name).await;
    let listed = bucket.list(name, "").await;
    let deleted = delete(bucket, name, generation).await;
    if read?.is_none_or(|object| object.bytes != CONTENT) {
        return Err(wrong(bucket, name, "what was written cannot be read"));
    }
    if !listed?.iter().any(|object| object.name == name) {
        return Err(wrong(bucket, name, "what was written is not listed"));
    }
    if deleted? { Ok(took) } else { Err(wrong(bucket, name, "what was written could not be deleted")) }
}

fn wrong(bucket: &dyn Bucket, name: &str, what: &str) -> BucketError {
    BucketError::Refused {
        location: bucket.location().to_owned(),
        doing: format!("trying {name}"),
        reason: format!("{what}: this is no bucket that keeps what it was given"),
    }
}

/// Creates the object and returns its generation.
async fn create(bucket: &dyn Bucket, name: &str) -> Result<Generation, BucketError> {
    let mut doubt = None;
    for _ in 0..TRIES {
        let why = match bucket.put(name, 0, Body::Bytes(Bytes::from_static(CONTENT)), "probe").await {
            Ok(Written::Stored(generation)) => return Ok(generation),
            Ok(Written::Refused) => wrong(bucket, name, "a new name was said to be taken"),
            Err(error @ BucketError::Refused { .. }) if doubt.is_none() => return Err(error),
            Err(error) => error,
        };
        doubt = Some(match bucket.get(name).await {
            Ok(Some(object)) if object.bytes == CONTENT => return Ok(object.generation),
            Ok(Some(_)) => return Err(wrong(bucket, name, "what was written is not what is there")),
            Ok(None) => why,
            Err(error) => error,
        });
    }
    Err(doubt.unwrap_or_else(|| wrong(bucket, name, "nothing was tried")))
}

/// Deletes the object. Returns true if it no longer exists, false if another generation does.
async fn delete(bucket: &dyn Bucket, name: &str, generation: Generation) -> Result<bool, BucketError> {
    let mut doubt = None;
    for _ in 0..TRIES {
        match bucket.delete(name, generation).await {
            Err(error @ BucketError::Refused { .. }) if doubt.is_none() => return Err(error),
            Err(error) => doubt = Some(error),
            done => return done,
        }
        if let Ok(None) = bucket.get(name).await {
            return Ok(true);
        }
    }
    doubt.map_or(Ok(false), Err)
}

/// Removes the object that a creation without a known outcome may have left, as far as possible.
async fn sweep(bucket: &dyn Bucket, name: &str) {
    let Ok(listed) = bucket.list(name, "").await else { return };
    for object in listed.into_iter().filter(|object| object.name == name) {
        // The caller reports the error that led here.
        let _ = delete(bucket, name, object.generation).await;
    }
}
