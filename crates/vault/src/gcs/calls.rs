//! The two clients, and the attempts of one call: their time limits, waits and counts.

use super::error::CallError;
use super::{Access, AccountRights, Limits, Options};
use futures::future::BoxFuture;
use google_cloud_auth::credentials::{Builder, Credentials, anonymous};
use google_cloud_gax::client_builder::Error as BuildError;
use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_storage::client::{Storage, StorageControl};
use google_cloud_storage::read_resume_policy::NeverResume;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

/// Wait after a 429, with which the service refuses a second change of one object within a second. Three of these waits are longer
/// than that second. Each is short, so that a server that takes or releases the lead waits little more than the rest of the second.
const TOO_FAST_WAIT: Duration = Duration::from_millis(400);

/// Kind of a call, by which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Get,
    GetRange,
    Put,
    Delete,
    List,
    Check,
}

impl CallKind {
    fn writes(self) -> bool {
        matches!(self, CallKind::Put | CallKind::Delete)
    }
}

/// Names of the kinds, in the order of [`CallKind`].
const NAMES: [&str; 6] = ["get", "get_range", "put", "delete", "list", "check"];

pub(super) struct GcsCalls {
    options: Options,
    credentials: OnceCell<Credentials>,
    storage: OnceCell<Storage>,
    control: Mutex<Option<StorageControl>>,
    counts: [AtomicU64; 6],
}

/// Runs a future until `end`; then returns [`CallError::timed_out`].
pub(super) async fn before<T>(end: Instant, doing: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let begun = Instant::now();
    tokio::time::timeout_at(end, doing).await.unwrap_or_else(|_| Err(CallError::timed_out(begun.elapsed())))
}

fn unbuilt(error: BuildError) -> CallError {
    let text = error.to_string();
    if error.is_default_credentials() { CallError::Unauthenticated(text) } else { CallError::Unanswered(text) }
}

impl GcsCalls {
    pub(super) fn new(options: Options) -> GcsCalls {
        // Needed before the credentials are loaded, which may be over TLS. An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let counts = Default::default();
        GcsCalls { options, credentials: OnceCell::new(), storage: OnceCell::new(), control: Mutex::default(), counts }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(super) fn rights(&self) -> &AccountRights {
        &self.options.rights
    }

    /// Returns the endpoint of the service, if it is not Google's.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.options.endpoint.as_deref()
    }

    /// Returns the additional time for so many bytes.
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_millis(bytes.saturating_mul(1000) / self.options.limits.rate.max(1))
    }

    pub(super) fn requests(&self) -> Vec<(&'static str, u64)> {
        let count = |(name, count): (&&'static str, &AtomicU64)| (*name, count.load(Ordering::Relaxed));
        NAMES.iter().zip(&self.counts).map(count).collect()
    }

    /// Makes attempts until one has a final answer. Each is given its end and has to keep it (see [`before`]). Once an attempt to write
    /// had no answer, a refusal of a later one leaves the outcome unknown: the object may be stored.
    pub(super) async fn run<'a, T>(
        &self,
        kind: CallKind,
        bytes: u64,
        attempt: impl Fn(Instant) -> BoxFuture<'a, Result<T, CallError>> + Send + Sync,
    ) -> Result<T, CallError> {
        let limits = &self.options.limits;
        let extra = self.time_for(bytes);
        let last = Instant::now() + limits.call + extra;
        let mut waits = limits.waits();
        let (mut tried, mut doubt) = (0, false);
        loop {
            tried += 1;
            self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
            let end = last.min(Instant::now() + limits.attempt + extra);
            let answer = match attempt(end).await {
                Err(answer) if answer.is_transient() => answer,
                Err(answer) if doubt => return Err(answer.after_unknown_outcome()),
                done => return done,
            };
            doubt |= kind.writes() && answer.leaves_outcome_unknown();
            if Instant::now() >= end && matches!(kind, CallKind::Delete | CallKind::List | CallKind::Check) {
                // The connection may be dead without an error, and all calls share it: the next one opens another.
                self.control.lock().await.take();
            }
            let wait = waits.next().unwrap_or(limits.longest_wait);
            let pause = if matches!(answer, CallError::RateLimited(_)) { wait.max(TOO_FAST_WAIT) } else { wait };
            if tried >= limits.attempts || Instant::now() + pause >= last {
                return Err(if doubt { answer.after_unknown_outcome() } else { answer });
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Loads the credentials, once; none for `Anonymous`.
    pub(super) async fn credentials(&self) -> Result<Credentials, CallError> {
        let make = async || match self.options.access {
            Access::Anonymous => Ok(anonymous::Builder::new().build()),
            Access::ApplicationDefault => {
                let built = tokio::task::spawn_blocking(|| Builder::default().build()).await;
                let built = built.map_err(|e| CallError::Unanswered(e.to_string()))?;
                built.map_err(|e| CallError::Unauthenticated(e.to_string()))
            }
        };
        Ok(self.credentials.get_or_try_init(make).await?.clone())
    }

    /// Returns the client for contents, over HTTP.
    pub(super) async fn storage(&self) -> Result<&Storage, CallError> {
        let make = async || {
            let credentials = self.credentials().await?;
            let builder = Storage::builder()
                .with_credentials(credentials)
                .with_retry_policy(NeverRetry)
                .with_read_resume_policy(NeverResume)
                // The client's gRPC side is not used here.
                .with_grpc_subchannel_count(1);
            let builder = match &self.options.endpoint {
                Some(endpoint) => builder.with_endpoint(endpoint),
                None => builder,
            };
            apart(builder.build()).await
        };
        self.storage.get_or_try_init(make).await
    }

    /// Returns the client for all other calls, over gRPC.
    pub(super) async fn control(&self) -> Result<StorageControl, CallError> {
        let mut kept = self.control.lock().await;
        if let Some(control) = &*kept {
            return Ok(control.clone());
        }
        let builder =
            StorageControl::builder().with_credentials(self.credentials().await?).with_retry_policy(NeverRetry);
        let builder = match &self.options.endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint),
            None => builder,
        };
        Ok(kept.insert(apart(builder.build()).await?).clone())
    }
}

/// Builds a client on a blocking thread: certificates are read from disk.
async fn apart<T: Send + 'static>(
    build: impl Future<Output = Result<T, BuildError>> + Send + 'static,
) -> Result<T, CallError> {
    let runtime = tokio::runtime::Handle::current();
    let built = tokio::task::spawn_blocking(move || runtime.block_on(build)).await;
    built.map_err(|e| CallError::Unanswered(e.to_string()))?.map_err(unbuilt)
}
