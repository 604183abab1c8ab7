//! A bucket in memory with injected faults, and a clock that moves only by sleeps or by hand. For tests.

use super::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written, is_name};
use super::clock::Clock;
use super::inbox::HandOverKey;
use super::lease::{Identity, Timing};
use super::wording::Wording;
use super::{Retention, Vault};
use async_trait::async_trait;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Words of a fictional program.
const WORDING: Wording = Wording {
    fingerprint: &["the host", "the account", "the list"],
    force: "start this server once with --force",
    bucket: "--place",
    both_secrets: "start the new server with both: --secret and --previous-secret",
};

/// Fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// The request is not done, and there is no answer.
    Before,
    /// The request is done, and there is no answer.
    After,
    /// The request is refused, as without permission.
    Refused,
}

/// An object of the bucket.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Generation of its content.
    pub generation: Generation,
    /// Content of the object.
    pub bytes: Bytes,
    /// Label of the object.
    pub label: String,
    /// Time of creation, by the bucket's clock.
    pub created: Timestamp,
}

/// Hook that runs before a request, with its kind and name.
type RequestHook = Box<dyn FnMut(&Memory, &str, &str) + Send>;

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, StoredObject>,
    last: Generation,
    time: i64,
    faults: Vec<(&'static str, String, RequestFault)>,
    log: Vec<String>,
    gone: HashSet<String>,
}

/// A bucket in memory.
#[derive(Default)]
pub struct Memory {
    inner: Mutex<Contents>,
    hook: Mutex<Option<RequestHook>>,
}

impl Memory {
    /// Returns an empty bucket.
    pub fn new() -> Arc<Memory> {
        Arc::default()
    }

    /// Makes the next request of this kind (`put`, `get`, `range`, `list`, `delete`) on a name with this prefix fail.
    pub fn fail(&self, kind: &'static str, name: &str, fault: RequestFault) {
        self.lock().faults.push((kind, name.to_owned(), fault));
    }

    /// Returns the number of faults that have not occurred yet.
    pub fn faults_left(&self) -> usize {
        self.lock().faults.len()
    }

    /// Sets a hook that runs before each request, with its kind and name.
    pub fn before(&self, hook: impl FnMut(&Memory, &str, &str) + Send + 'static) {
        *self.hook() = Some(Box::new(hook));
    }

    /// Makes the process with this nonce known to have ended.
    pub fn bury(&self, nonce: &str) {
        self.lock().gone.insert(nonce.to_owned());
    }

    /// Advances the bucket's own clock, in whole seconds.
    pub fn advance(&self, time: Duration) {
        let mut inner = self.lock();
        inner.time = inner.time.saturating_add(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    }

    /// Takes the log of requests so far, such as `put journal/0…1`.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    /// Returns the names with this prefix.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let inner = self.lock();
        inner.objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Returns an object; panics if there is none.
    pub fn object(&self, name: &str) -> StoredObject {
        self.lock().objects[name].clone()
    }

    /// Stores an object without a precondition.
    pub fn set(&self, name: &str, bytes: impl Into<Bytes>, label: &str) {
        self.lock().set(name, bytes.into(), label);
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        self.lock().objects.remove(name);
    }

    /// Changes the bytes of an object in place.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.lock();
        if let Some(kept) = inner.objects.get_mut(name) {
            let mut bytes = kept.bytes.to_vec();
            change(&mut bytes);
            kept.bytes = bytes.into();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hook(&self) -> MutexGuard<'_, Option<RequestHook>> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a request, and fails if a fault is due. The inner result is the answer to the request, which is to be done and may be lost.
    fn request(&self, kind: &'static str, name: &str) -> Result<Result<(), BucketError>, BucketError> {
        // Removed meanwhile, so that the hook may use the bucket.
        let hook = self.hook().take();
        if let Some(mut hook) = hook {
            hook(self, kind, name);
            self.hook().get_or_insert(hook);
        }
        if kind != "list" && !is_name(name) {
            return Err(refused_error(kind, name, "no object can have this name"));
        }
        let mut inner = self.lock();
        inner.log.push(format!("{kind} {name}"));
        let due = inner.faults.iter().position(|(of, prefix, _)| *of == kind && name.starts_with(prefix.as_str()));
        let Some(due) = due else { return Ok(Ok(())) };
        match inner.faults.remove(due).2 {
            RequestFault::After => Ok(Err(unavailable(kind, name))),
            RequestFault::Before => Err(unavailable(kind, name)),
            RequestFault::Refused => Err(refused_error(kind, name, "no rights")),
        }
    }
}

fn refused_error(kind: &str, name: &str, reason: &str) -> BucketError {
    BucketError::Refused {
        location: "memory://test".into(),
        doing: format!("{kind} {name}"),
        reason: reason.to_owned(),
    }
}

fn unavailable(kind: &str, name: &str) -> BucketError {
    BucketError::Unavailable {
        location: "memory://test".into(),
        doing: format!("{kind} {name}"),
        reason: "timed out".into(),
    }
}

impl Contents {
    fn set(&mut self, name: &str, bytes: Bytes, label: &str) -> Generation {
        self.last += 1;
        self.time += 1;
        let created = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.time);
        let kept = StoredObject { generation: self.last, bytes, label: label.to_owned(), created };
        self.objects.insert(name.to_owned(), kept);
        self.last
    }
}

#[async_trait]
impl Bucket for Memory {
    fn location(&self) -> &str {
        "memory://test"
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        Ok(Vec::new())
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        let answer = self.request("get", name)?;
        let inner = self.lock();
        let object =
            inner.objects.get(name).map(|kept| Object { generation: kept.generation, bytes: kept.bytes.clone() });
        answer.map(|()| object)
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        let answer = self.request("range", name)?;
        let inner = self.lock();
        let bytes = inner.objects.get(name).filter(|kept| kept.generation == generation).map(|kept| {
            let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(kept.bytes.len());
            kept.bytes.slice(within(range.start.min(range.end))..within(range.end))
        });
        answer.map(|()| bytes)
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        let answer = self.request("put", name)?;
        let bytes = match body {
            Body::Bytes(bytes) => bytes,
            Body::File(path) => {
                std::fs::read(path).map_err(|error| refused_error("put", name, &error.to_string()))?.into()
            }
        };
        let mut inner = self.lock();
        let present = inner.objects.get(name).map_or(0, |kept| kept.generation);
        let written = match present == expected {
            true => Written::Stored(inner.set(name, bytes, label)),
            false => Written::Refused,
        };
        answer.map(|()| written)
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        let answer = self.request("delete", name)?;
        let mut inner = self.lock();
        let present = inner.objects.get(name).map_or(generation, |kept| kept.generation);
        if present == generation {
            inner.objects.remove(name);
        }
        answer.map(|()| present == generation)
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        let answer = self.request("list", prefix)?;
        let inner = self.lock();
        let listed = inner.objects.iter().filter(|(name, _)| name.starts_with(prefix) && name.as_str() > after);
        let listed = listed.map(|(name, kept)| Listed {
            name: name.clone(),
            generation: kept.generation,
            size: kept.bytes.len() as u64,
            created: kept.created,
            label: kept.label.clone(),
        });
        answer.map(|()| listed.collect())
    }

    async fn is_gone(&self, nonce: &str) -> Result<bool, BucketError> {
        Ok(self.lock().gone.contains(nonce))
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A clock that moves only by sleeps or by hand.
#[derive(Default)]
pub struct Manual(Mutex<Duration>);

impl Manual {
    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the clock.
    pub fn advance(&self, time: Duration) {
        *self.lock() += time;
    }
}

#[async_trait]
impl Clock for Manual {
    fn now(&self) -> Duration {
        *self.lock()
    }

    async fn sleep(&self, time: Duration) {
        // Work that is ready has to run before the time moves.
        tokio::task::yield_now().await;
        self.advance(time);
    }
}

/// Returns a server with this nonce on a bucket, and its own clock.
pub fn vault(bucket: &Arc<Memory>, nonce: &str) -> (Vault, Arc<Manual>) {
    let clock = Arc::new(Manual::default());
    let identity = Identity {
        nonce: nonce.to_owned(),
        url: format!("https://{nonce}.example"),
        machine: format!("{nonce}:1"),
        version: "1.0.0".into(),
        fingerprint: super::lease::fingerprint(&["host.example", "bot", "host.example/acme/*"]),
        force: false,
    };
    let vault = Vault {
        bucket: bucket.clone(),
        clock: clock.clone(),
        identity,
        fingerprint: Default::default(),
        timing: Timing::default(),
        retention: Retention::default(),
        handover: HandOverKey::derive("webhook secret"),
        wording: WORDING,
    };
    (vault, clock)
}
