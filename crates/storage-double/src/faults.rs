//! Faults by rule, delays, and the count of what was asked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A whole object in one request.
    Insert,
    /// A resumable upload begins.
    UploadStart,
    /// Bytes of one.
    UploadChunk,
    /// How far it is.
    UploadStatus,
    /// Content.
    Read,
    /// Metadata of one object.
    Stat,
    /// Removes one object.
    Delete,
    /// A page of a list.
    List,
    /// New metadata for one object.
    Patch,
    /// A bucket's settings.
    GetBucket,
    /// Which permissions the caller has.
    TestPermissions,
}

impl Operation {
    /// Whether it changes an object.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Insert | Operation::UploadChunk | Operation::Delete | Operation::Patch)
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// Not done, and this status.
    Fail(u16),
    /// Done, and this status.
    FailAfter(u16),
    /// Neither done nor answered.
    Hang,
    /// Done, never answered.
    Lost,
    /// Done after this time, whether or not somebody still waits.
    Late(Duration),
    /// Not done; the connection is reset.
    Reset,
    /// Done; the connection is reset.
    ResetAfter,
    /// The connection goes on without an answer to anything on it, ever.
    Freeze,
    /// So many bytes of a chunk are kept, then 503.
    Cut(usize),
    /// The answer ends after so many bytes of content, and the connection is reset.
    Truncate(usize),
}

/// When, and what.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Absent: any.
    pub operation: Option<Operation>,
    /// The object's name contains this.
    pub name: String,
    /// So many matching requests are let through first.
    pub skip: u32,
    /// Then so many are hit.
    pub times: u32,
    /// What goes wrong.
    pub effect: Effect,
}

impl Fault {
    /// The next such request.
    pub fn next(operation: Operation, effect: Effect) -> Fault {
        Fault { operation: Some(operation), name: String::new(), skip: 0, times: 1, effect }
    }

    /// Hits so many requests.
    pub fn times(self, times: u32) -> Fault {
        Fault { times, ..self }
    }

    /// Lets so many matching requests through first.
    pub fn skip(self, skip: u32) -> Fault {
        Fault { skip, ..self }
    }

    /// Hits only requests for objects whose names contain this.
    pub fn named(self, name: &str) -> Fault {
        Fault { name: name.to_owned(), ..self }
    }
}

/// One request that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What it asked for.
    pub operation: Operation,
    /// Name of the object, or the prefix of a list.
    pub name: String,
    /// The fault that hit it.
    pub effect: Option<Effect>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<Fault>,
    seen: Vec<Seen>,
    counts: BTreeMap<Operation, u64>,
    read_delay: Duration,
    write_delay: Duration,
}

/// Requests that [`Plan::seen`] remembers; the counts go on.
const MAX_SEEN: usize = 100_000;

/// What will go wrong, and what was asked.
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

    /// Counts a request and says what happens to it, and how long it takes.
    pub(crate) fn meet(&self, operation: Operation, name: &str) -> (Option<Effect>, Duration) {
        let mut inner = self.lock();
        *inner.counts.entry(operation).or_default() += 1;
        let matching = |rule: &&mut Fault| {
            rule.times > 0 && rule.operation.is_none_or(|o| o == operation) && name.contains(&rule.name)
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
            inner.seen.push(Seen { operation, name: name.to_owned(), effect });
        }
        (effect, if operation.writes() { inner.write_delay } else { inner.read_delay })
    }

    pub(crate) fn counts(&self) -> BTreeMap<Operation, u64> {
        self.lock().counts.clone()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        inner.counts.clear();
        inner.seen.clear();
    }
}
