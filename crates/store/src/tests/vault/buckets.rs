//! A bucket in memory, and buckets that are slow, block or die.

use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use tidelock_vault::bucket::{Body, BucketError, Generation, Listed, Object, Written};
use tokio::sync::Semaphore;

/// Returns an empty bucket.
pub(super) fn fresh() -> Arc<dyn Bucket> {
    tidelock_vault::memory::Memory::new()
}

/// A bucket whose calls all fail from number `dies_at` on. That call itself fails before or after its effect.
pub(super) struct Dying {
    pub(super) inner: Arc<dyn Bucket>,
    pub(super) calls: AtomicU64,
    pub(super) dies_at: u64,
    pub(super) after_effect: bool,
    /// Notified after [`BURIED`] failed calls, because the server would retry for ever.
    pub(super) buried: tokio::sync::Notify,
}

/// Number of failed calls after which a start is ended.
const BURIED: u64 = 300;

impl Dying {
    pub(super) fn at(inner: &Arc<dyn Bucket>, dies_at: u64, after_effect: bool) -> Arc<Dying> {
        Arc::new(Dying {
            inner: inner.clone(),
            calls: AtomicU64::new(0),
            dies_at,
            after_effect,
            buried: tokio::sync::Notify::new(),
        })
    }

    async fn call<T>(&self, doing: &str, call: impl Future<Output = Result<T, BucketError>>) -> Result<T, BucketError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if number < self.dies_at {
            return call.await;
        }
        if number == self.dies_at + BURIED {
            self.buried.notify_one();
        }
        if number == self.dies_at && self.after_effect {
            let _ = call.await;
        }
        Err(BucketError::Unavailable { location: "test".into(), doing: doing.into(), reason: "it died".into() })
    }
}

#[async_trait]
impl Bucket for Dying {
    fn location(&self) -> &str {
        self.inner.location()
    }
    async fn check(&self) -> Result<Vec<String>, BucketError> {
        self.call("check", self.inner.check()).await
    }
    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        self.call(name, self.inner.get(name)).await
    }
    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        self.call(name, self.inner.get_range(name, generation, range)).await
    }
    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        self.call(name, self.inner.put(name, expected, body, label)).await
    }
    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        self.call(name, self.inner.delete(name, generation)).await
    }
    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        self.call(prefix, self.inner.list(prefix, after)).await
    }
    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.inner.requests()
    }
}

/// A bucket whose writes of journal objects take a while and wait at a gate.
pub(super) struct Slow {
    pub(super) inner: Arc<dyn Bucket>,
    pub(super) takes: Duration,
    pub(super) gate: Semaphore,
    /// Number of writes that reached the gate.
    pub(super) waiting: AtomicU64,
}

impl Slow {
    pub(super) fn new(inner: Arc<dyn Bucket>, takes: Duration) -> Arc<Slow> {
        Arc::new(Slow { inner, takes, gate: Semaphore::new(1), waiting: AtomicU64::new(0) })
    }
}

#[async_trait]
impl Bucket for Slow {
    fn location(&self) -> &str {
        self.inner.location()
    }
    async fn check(&self) -> Result<Vec<String>, BucketError> {
        self.inner.check().await
    }
    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        self.inner.get(name).await
    }
    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        self.inner.get_range(name, generation, range).await
    }
    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        if name.starts_with("journal/") {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _open = self.gate.acquire().await.unwrap();
            tokio::time::sleep(self.takes).await;
            return self.inner.put(name, expected, body, label).await;
        }
        self.inner.put(name, expected, body, label).await
    }
    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        self.inner.delete(name, generation).await
    }
    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        self.inner.list(prefix, after).await
    }
    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.inner.requests()
    }
}
