//! Creation of a job's objects, of which only the first one under a name counts.

use super::{Created, JobObjects, MAX_DOCUMENT};
use crate::VaultError;
use crate::bucket::{Body, BucketError};
use crate::calls::{Calls, PATIENCE, Pauses};
use crate::protocol::{Answered, Doubt, Protocol};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl<P: Protocol> JobObjects<P> {
    pub(super) async fn create(&self, name: &str, bytes: Bytes, label: &str) -> Result<Created<Bytes>, VaultError> {
        Ok(self.protocol.create_job_object(&self.calls, name, bytes, label).await?)
    }

    /// Stores an object that only this party writes.
    pub(super) async fn put_own(&self, name: &str, bytes: Bytes, label: &str) -> Result<(), VaultError> {
        match self.create(name, bytes, label).await? {
            Created::Ours => Ok(()),
            Created::Theirs(_) => Err(self.damaged(name, "another object is there")),
        }
    }

    /// Stores a document of which only the first counts.
    pub(super) async fn decide<T>(
        &self,
        object: &str,
        label: &str,
        content: &T,
        limit: usize,
    ) -> Result<Created<T>, VaultError>
    where
        T: Serialize + DeserializeOwned,
    {
        let name = self.prefix.object(object);
        Ok(match self.create(&name, super::document(&name, content, limit)?, label).await? {
            Created::Ours => Created::Ours,
            Created::Theirs(bytes) => Created::Theirs(self.opened(&name, &bytes, limit)?),
        })
    }
}

/// Creates an object, with retries of the same bytes until the outcome is known, for at most [`PATIENCE`]. An error leaves the outcome
/// open: the object may be stored, or may be stored later. The bytes differ from those of every other party.
pub(crate) async fn create_first<P: Protocol>(
    protocol: &P,
    calls: &Calls,
    name: &str,
    bytes: Bytes,
    label: &str,
) -> Result<Created<Bytes>, BucketError> {
    let start = calls.clock.now();
    let mut pauses = Pauses::new();
    let mut doubt = Doubt::None;
    loop {
        let answer = calls.bucket.put(name, 0, Body::Bytes(bytes.clone()), label).await;
        let unknown = match protocol.answered(answer, doubt) {
            Ok(Answered::Stored) => return Ok(Created::Ours),
            Ok(Answered::Unknown(reason)) => calls.unknown(name, reason),
            // An earlier try of ours, another party's object, or a refusal although nothing is there.
            Ok(Answered::Compare) => match present(calls, name, &bytes).await {
                Ok(Some(created)) => return Ok(created),
                Ok(None) => calls.gone(name),
                Err(error) => error,
            },
            // A job may not overwrite. The service may refuse that before it looks at the precondition.
            Err(refused) => return present(calls, name, &bytes).await.ok().flatten().ok_or(refused),
        };
        if calls.clock.now().saturating_sub(start) >= PATIENCE {
            return Err(unknown);
        }
        doubt = Doubt::EarlierTry;
        pauses.wait(&*calls.clock).await;
    }
}

/// Compares the object that has the name; `None` if there is none.
async fn present(calls: &Calls, name: &str, ours: &Bytes) -> Result<Option<Created<Bytes>>, BucketError> {
    let found = calls.bucket.get_within(name, MAX_DOCUMENT.max(ours.len())).await?;
    Ok(found.map(|object| if object.bytes == ours { Created::Ours } else { Created::Theirs(object.bytes) }))
}
