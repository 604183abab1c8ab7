//! Calls to the bucket with retries, and the creation of objects that only this process may create.

use super::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written};
use super::clock::Clock;
use super::pack::build::Packed;
use super::protocol::{Answered, Doubt, Protocol};
use super::{VaultError, pack};
use backon::{BackoffBuilder, ExponentialBackoff};
use bytes::Bytes;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Time for which a call without an answer is retried.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// First pause between tries. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Objects up to this size are read whole when they are compared.
const COMPARED_WHOLE: u64 = 1 << 20;

/// Reason of a creation that was refused although no object is there: another write may still be on its way.
const GONE: &str = "it was refused, but nothing is there";

/// Pauses between tries, by the clock of the vault.
pub(super) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses(tidelock_retry::doubling(FIRST_PAUSE, LONGEST_PAUSE).build())
    }

    pub(super) async fn wait(&mut self, clock: &dyn Clock) {
        clock.sleep(self.0.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// The bucket, with retries of calls that had no answer.
#[derive(Clone)]
pub struct Calls {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Result of one try to create an object.
pub enum Attempt {
    /// The object has these bytes.
    Ours,
    /// The object is another writer's; the text names the writer.
    Theirs(String),
    /// The outcome is unknown, for the reason in the text. Try again with the same bytes.
    Unknown(String),
}

impl Calls {
    async fn patiently<T, F>(&self, call: impl Fn() -> F) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, BucketError>> + Send,
    {
        let start = self.clock.now();
        let mut pauses = Pauses::new();
        loop {
            match call().await {
                Err(BucketError::Unavailable { .. }) if self.clock.now().saturating_sub(start) < PATIENCE => {
                    pauses.wait(&*self.clock).await;
                }
                result => return result,
            }
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        self.patiently(|| self.bucket.get(name)).await
    }

    pub(super) async fn get_within(&self, name: &str, most: usize) -> Result<Option<Object>, BucketError> {
        self.patiently(|| self.bucket.get_within(name, most)).await
    }

    pub(super) async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        self.patiently(|| self.bucket.get_range(name, generation, range.clone())).await
    }

    pub(super) async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        self.patiently(|| self.bucket.list(prefix, after)).await
    }

    pub(super) async fn list_some(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, BucketError> {
        self.patiently(|| self.bucket.list_some(prefix, after, most)).await
    }

    /// Retries a write that had no answer. After a try without an answer, a refusal of a later try leaves open whether the first one was
    /// done. Then `settle` reads the bucket. The write is retried until `settle` returns an outcome, for at most [`PATIENCE`].
    async fn settled<T, F, S>(&self, call: impl Fn() -> F, settle: impl Fn() -> S) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, BucketError>> + Send,
        S: Future<Output = Result<Option<T>, BucketError>> + Send,
    {
        let start = self.clock.now();
        let mut pauses = Pauses::new();
        let mut unanswered = None;
        loop {
            match (call().await, &unanswered) {
                (Err(error @ BucketError::Unavailable { .. }), _) => unanswered = Some(error),
                (Err(_), Some(_)) => {
                    if let Ok(Some(known)) = settle().await {
                        return Ok(known);
                    }
                }
                (result, _) => return result,
            }
            if self.clock.now().saturating_sub(start) >= PATIENCE
                && let Some(error) = unanswered
            {
                return Err(error);
            }
            pauses.wait(&*self.clock).await;
        }
    }

    /// Deletes this generation. Returns true if the object no longer exists, false if it has another generation.
    pub(super) async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        let settle = || async move {
            let listed = self.bucket.list_some(name, "", 1).await?;
            Ok(match listed.into_iter().find(|listed| listed.name == name) {
                None => Some(true),
                Some(listed) if listed.generation != generation => Some(false),
                Some(_) => None,
            })
        };
        self.settled(|| self.bucket.delete(name, generation), settle).await
    }

    /// Creates an object that others may create with the same meaning. Returns once the object exists.
    pub(super) async fn create_any<P: Protocol>(
        &self,
        protocol: &P,
        name: &str,
        bytes: Bytes,
        label: &str,
    ) -> Result<(), BucketError> {
        let there = || async move { Ok(self.bucket.get(name).await?.map(drop)) };
        let create = || {
            let body = Body::Bytes(bytes.clone());
            async move {
                match protocol.inbox_answered(self.bucket.put(name, 0, body, label).await) {
                    Ok(Written::Stored(_)) => Ok(()),
                    // A precondition can fail although no object is there.
                    Ok(Written::Refused) => there().await?.ok_or_else(|| self.gone(name)),
                    // A receiver may not overwrite. The service may refuse that before it looks at the precondition.
                    Err(refused @ BucketError::Refused { .. }) => there().await.ok().flatten().ok_or(refused),
                    Err(error) => Err(error),
                }
            }
        };
        self.settled(create, &there).await
    }

    /// Error for a write that was refused although the object does not exist.
    pub(super) fn gone(&self, name: &str) -> BucketError {
        self.unknown(name, GONE.to_owned())
    }

    /// Error for a write whose outcome is unknown.
    pub(super) fn unknown(&self, name: &str, reason: String) -> BucketError {
        let (location, doing) = (self.bucket.location().to_owned(), format!("writing {name}"));
        BucketError::Unavailable { location, doing, reason }
    }

    /// Tries once to create an object. In doubt about an earlier try, it never returns an error.
    pub(super) async fn attempt<P: Protocol>(
        &self,
        protocol: &P,
        name: &str,
        packed: &Packed,
        doubt: Doubt,
    ) -> Result<Attempt, BucketError> {
        let answer = self.bucket.put(name, 0, packed.body.clone(), packed.kind.label()).await;
        match protocol.answered(answer, doubt)? {
            Answered::Stored => Ok(Attempt::Ours),
            Answered::Unknown(why) => Ok(Attempt::Unknown(why)),
            // If the object cannot be read, the outcome is unknown, as after a try without an answer.
            Answered::Compare => {
                let compared = self.compare(protocol, name, packed).await;
                Ok(compared.unwrap_or_else(|error| Attempt::Unknown(error.to_string())))
            }
        }
    }

    /// Creates an object that only this process may create. Retries with the same bytes until the outcome is known, for at most
    /// [`PATIENCE`].
    pub(super) async fn create<P: Protocol>(
        &self,
        protocol: &P,
        name: &str,
        packed: &Packed,
    ) -> Result<Attempt, BucketError> {
        let start = self.clock.now();
        let mut pauses = Pauses::new();
        let mut doubt = Doubt::None;
        loop {
            match self.attempt(protocol, name, packed, doubt).await? {
                Attempt::Unknown(_) if self.clock.now().saturating_sub(start) < PATIENCE => {
                    doubt = Doubt::EarlierTry;
                    pauses.wait(&*self.clock).await;
                }
                result => return Ok(result),
            }
        }
    }

    async fn compare<P: Protocol>(&self, protocol: &P, name: &str, packed: &Packed) -> Result<Attempt, BucketError> {
        // The object was deleted meanwhile, or an earlier try is still on its way.
        let gone = || Ok(Attempt::Unknown(GONE.into()));
        let head = match &packed.body {
            Body::Bytes(bytes) if packed.size <= COMPARED_WHOLE => {
                let Some(object) = self.bucket.get(name).await? else { return gone() };
                if object.bytes == *bytes {
                    return Ok(Attempt::Ours);
                }
                Some((object.bytes.len() as u64, object.bytes))
            }
            _ => self.read_head(name).await?,
        };
        let Some((size, bytes)) = head else { return gone() };
        let Ok(head) = pack::decode_head(&bytes, size) else {
            return Ok(Attempt::Theirs(format!("{name} is there already, and Tidelock did not write it")));
        };
        if protocol.is_same(&head, size, packed) {
            return Ok(Attempt::Ours);
        }
        let header = head.header;
        Ok(Attempt::Theirs(format!("{name} was created by server {} in epoch {}", header.writer, header.epoch)))
    }

    /// Reads an object's size and its bytes up to the end of the header.
    async fn read_head(&self, name: &str) -> Result<Option<(u64, Bytes)>, BucketError> {
        let listed = self.bucket.list(name, "").await?;
        let Some(listed) = listed.into_iter().find(|listed| listed.name == name) else { return Ok(None) };
        let range = 0..pack::PREFIX as u64;
        let Some(first) = self.bucket.get_range(name, listed.generation, range).await? else { return Ok(None) };
        let Ok(length) = pack::head_length(&first) else { return Ok(Some((listed.size, first))) };
        let bytes = self.bucket.get_range(name, listed.generation, 0..length as u64).await?;
        Ok(bytes.map(|bytes| (listed.size, bytes)))
    }
}

/// Returns the name of a journal object.
pub(super) fn journal(seq: u64) -> String {
    format!("journal/{seq:016}")
}

/// Returns the name of a base.
pub(super) fn base(seq: u64) -> String {
    format!("base/{seq:016}")
}

/// Parses the number in a name below `folder` (`journal/`, `base/`).
pub(super) fn number(name: &str, folder: &str) -> Option<u64> {
    let digits = name.strip_prefix(folder)?;
    (digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Error for an invalid object, with the remedy.
pub(super) fn damaged(bucket: &dyn Bucket, name: &str, bad: &pack::Invalid) -> VaultError {
    VaultError::Damaged(describe(bucket.location(), name, bad))
}

/// The text of [`damaged`].
pub(super) fn describe(location: &str, name: &str, bad: &pack::Invalid) -> String {
    let place = format!("{location}/{name}");
    let format = super::FORMAT;
    match bad {
        pack::Invalid::Newer(newer) => format!(
            "{place} was written by a newer version of Tidelock (format {newer}, this one reads up to {format}). Nothing \
             was changed. Run the newer version again; or, to go back, let it write a state from before its start with \
             `tidelock vault export DIR --at SEQ` and start this version with that"
        ),
        pack::Invalid::Older(older) => format!(
            "{place} was written by a version of Tidelock that is too old (format {older}, this one reads {format} and the \
             one before). Nothing was changed. Start the release between them once, then this one"
        ),
        pack::Invalid::Damaged(why) => format!("{place} is damaged: {why}. Nothing was changed. {REMEDY}"),
    }
}

/// Advice to an operator about state that cannot be read.
pub(super) const REMEDY: &str = "Bring the object back from a copy of the bucket (its versions or soft-deleted objects, if \
     those are on), or look with `tidelock vault ls` for an earlier state and go back to it with `tidelock vault export DIR \
     --at SEQ`";
