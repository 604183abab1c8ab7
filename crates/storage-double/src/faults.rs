//! Faults by rule, delays, and counts of requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Upload of a whole object in one request.
    Insert,
    /// Start of a resumable upload.
    UploadStart,
    /// Bytes of a resumable upload.
    UploadChunk,
    /// Status of a resumable upload.
    UploadStatus,
    /// Content of an object.
    Read,
    /// Metadata of one object.
    Stat,
    /// Removal of one object.
    Delete,
    /// A page of a list.
    List,
    /// New metadata for one object.
    Patch,
    /// Settings of a bucket.
    GetBucket,
    /// Permissions of the caller.
    TestPermissions,
}

impl Operation {
    /// Returns true if it changes an object.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Insert | Operation::UploadChunk | Operation::Delete | Operation::Patch)
    }
}

/// Effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// Not done; the answer has this status.
    Fail(u16),
    /// Done; the answer has this status.
    FailAfter(u16),
    /// Neither done nor answered.
    Hang,
    /// Done, but never answered.
    Lost,
    /// Done after this time, even if the client has left.
    Late(Duration),
    /// Not done; the connection is reset.
    Reset,
    /// Done; the connection is reset.
    ResetAfter,
    /// The connection stays open, without an answer to this and all later requests on it.
    Freeze,
    /// Keeps this number of bytes of a chunk, rounded down to a multiple of 256 KiB, and answers 503.
    Cut(usize),
    /// The answer ends after this number of bytes of content, and the connection is reset.
    Truncate(usize),
}

/// A fault and the requests that it hits.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Operation of the requests; absent: any.
    pub operation: Option<Operation>,
    /// Text that the object's name contains.
    pub name: String,
    /// Number of matching requests that pass first.
    pub skip: u32,
    /// Number of requests after those that are hit.
    pub times: u32,
    /// Effect on these requests.
    pub effect: Effect,
    /// Email of the account whose requests are hit, empty for the owner's; absent: anybody's.
    pub email: Option<String>,
}

impl Fault {
    /// Hits the next request of this operation.
    pub fn next(operation: Operation, effect: Effect) -> Fault {
        Fault { operation: Some(operation), name: String::new(), skip: 0, times: 1, effect, email: None }
    }

    /// Hits this number of requests.
    pub fn times(self, times: u32) -> Fault {
        Fault { times, ..self }
    }

    /// Lets this number of matching requests pass first.
    pub fn skip(self, skip: u32) -> Fault {
        Fault { skip, ..self }
    }

    /// Hits only requests of the owner, and of no account.
    pub fn of_owner(self) -> Fault {
        Fault { email: Some(String::new()), ..self }
    }

    /// Hits only requests for objects whose names contain this.
    pub fn named(self, name: &str) -> Fault {
        Fault { name: name.to_owned(), ..self }
    }
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Kind of the request.
    pub operation: Operation,
    /// Name of the object, or the prefix of a list.
    pub name: String,
    /// Fault that hit it.
    pub effect: Option<Effect>,
    /// Email of the account that sent it; empty for the owner's.
    pub email: String,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<Fault>,
    seen: Vec<Seen>,
    counts: BTreeMap<Operation, u64>,
    read_delay: Duration,
    write_delay: Duration,
}

/// Most requests that [`Plan::seen`] remembers. Later ones are only counted.
const MAX_SEEN: usize = 100_000;

/// Planned faults, and the requests so far.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    inner: Mutex<Inner>,
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, fault: Fault) {
        self.lock().rules.push(fault);
    }

    pub(crate) fn clear(&self) {
        self.lock().rules.clear();
    }

    pub(crate) fn delay(&self, read: Duration, write: Duration) {
        let mut inner = self.lock();
        (inner.read_delay, inner.write_delay) = (read, write);
    }

    /// Counts a request, and returns its fault and its delay.
    pub(crate) fn meet(&self, operation: Operation, name: &str, email: &str) -> (Option<Effect>, Duration) {
        let mut inner = self.lock();
        *inner.counts.entry(operation).or_default() += 1;
        let matching = |rule: &&mut Fault| {
            rule.times > 0
                && rule.operation.is_none_or(|o| o == operation)
                && rule.email.as_ref().is_none_or(|of| of == email)
                && name.contains(&rule.name)
        };
        let mut effect = None;
        if let Some(rule) = inner.rules.iter_mut().find(matching) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else {
                rule.times -= 1;
                effect = Some(rule.effect);
            }
        }
        if inner.seen.len() < MAX_SEEN {
            inner.seen.push(Seen { operation, name: name.to_owned(), effect, email: email.to_owned() });
        }
        (effect, if operation.writes() { inner.write_delay } else { inner.read_delay })
    }

    pub(crate) fn counts(&self) -> BTreeMap<Operation, u64> {
        self.lock().counts.clone()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    pub(crate) fn reset(&self) {
        let mut inner = self.lock();
        inner.counts.clear();
        inner.seen.clear();
    }
}
