//! Watches the Jobs of an executor and their pods, for as long as somebody asks for them.

use super::known::{KnownJobs, WatchedKind};
use super::refused;
use backon::BackoffBuilder as _;
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time after the last question for a job until its executor is not watched any more: a server without work makes no request.
const UNUSED: Duration = Duration::from_secs(120);
/// Time limit of one watch, in seconds. A connection that was dropped silently is noticed then.
const WATCH_SECONDS: u32 = 50;
/// Time limit of a list, and of the first answer of a watch; and of the next event, after the end of the watch.
const ANSWER: Duration = Duration::from_secs(30);
const EVENT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);
/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Code of an answer to a watch from a version that the server does not have any more.
const GONE: u16 = 410;

/// What the watch and the engine share.
pub(super) struct Sight {
    known: Mutex<KnownJobs>,
    asked: Mutex<Instant>,
    /// True once both kinds were listed.
    is_complete: watch::Sender<bool>,
}

impl Sight {
    pub(super) fn new(known: KnownJobs) -> Sight {
        Sight { known: Mutex::new(known), asked: Mutex::new(Instant::now()), is_complete: watch::Sender::new(false) }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, KnownJobs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts off the end of the watch.
    pub(super) fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until both kinds were listed, for so long at most.
    pub(super) async fn complete(&self, most: Duration) {
        // Without it the state is unknown, and signs of life decide.
        let _ = timeout(most, self.is_complete.subscribe().wait_for(|is_complete| *is_complete)).await;
    }

    async fn unused(&self) {
        loop {
            let until = *self.asked.lock().unwrap_or_else(PoisonError::into_inner) + UNUSED;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// Watches until nobody asks any more.
pub(super) async fn watch(sight: Arc<Sight>, jobs: Api<Job>, pods: Api<Pod>, selector: String) {
    let of_jobs = WatchOfKind { kind: WatchedKind::Jobs, see: KnownJobs::see_job, lose: KnownJobs::lose_job };
    let of_pods = WatchOfKind { kind: WatchedKind::Pods, see: KnownJobs::see_pod, lose: KnownJobs::lose_pod };
    tokio::select! {
        () = of_jobs.follow(&sight, &jobs, &selector) => {}
        () = of_pods.follow(&sight, &pods, &selector) => {}
        () = sight.unused() => {}
    }
    // Whoever asks next waits for new lists.
    sight.is_complete.send_replace(false);
    sight.known().interrupt();
}

/// A kind of objects, and what is done with them.
struct WatchOfKind<K> {
    kind: WatchedKind,
    see: fn(&mut KnownJobs, &K),
    lose: fn(&mut KnownJobs, &K),
}

/// End of a list or of one watch.
enum WatchEnd {
    /// A watch goes on after this version.
    Listed(String),
    /// The next one goes on after this version.
    Over(String),
    /// Everything has to be listed again.
    TooOld,
}

impl<K> WatchOfKind<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    async fn follow(&self, sight: &Sight, api: &Api<K>, selector: &str) {
        let backoff = || tidelock_retry::jittered(PAUSES.0, PAUSES.1).build();
        let (mut version, mut pauses) = (None, backoff());
        loop {
            let done = match version.take() {
                None => self.list(sight, api, selector).await.map(WatchEnd::Listed),
                Some(from) => self.watch(sight, api, selector, from).await,
            };
            match done {
                Ok(WatchEnd::Listed(from)) => version = Some(from),
                Ok(WatchEnd::Over(next)) => {
                    (version, pauses) = (Some(next), backoff());
                    sight.known().forget_old();
                }
                Ok(WatchEnd::TooOld) => sleep(pauses.next().unwrap_or(PAUSES.1)).await,
                Err(why) => {
                    if sight.known().works(self.kind, false) {
                        let advice = "jobs are followed by their signs of life until it is";
                        tracing::warn!("{} cannot be watched; {advice}: {why}", K::plural(&()));
                    }
                    sleep(pauses.next().unwrap_or(PAUSES.1)).await;
                }
            }
        }
    }

    /// Lists all. Returns the version to watch from.
    async fn list(&self, sight: &Sight, api: &Api<K>, selector: &str) -> Result<String, String> {
        sight.known().begin_list(self.kind);
        let listed = answered(api.list(&ListParams::default().labels(selector))).await?;
        let is_complete = {
            let mut known = sight.known();
            listed.items.iter().for_each(|object| (self.see)(&mut known, object));
            known.end_list(self.kind);
            known.is_complete()
        };
        sight.is_complete.send_replace(is_complete);
        Ok(listed.metadata.resource_version.unwrap_or_default())
    }

    fn worked(&self, known: &mut KnownJobs) {
        if known.works(self.kind, true) {
            tracing::info!("{} are watched again", K::plural(&()));
        }
    }

    async fn watch(&self, sight: &Sight, api: &Api<K>, selector: &str, from: String) -> Result<WatchEnd, String> {
        let params = WatchParams::default().labels(selector).timeout(WATCH_SECONDS);
        let mut version = from;
        let events = match timeout(ANSWER, api.watch(&params, &version)).await {
            Ok(Err(kube::Error::Api(status))) if status.code == GONE => return Ok(WatchEnd::TooOld),
            Ok(events) => events.map_err(|error| refused(&error))?,
            Err(_) => return Err(no_answer()),
        };
        self.worked(&mut sight.known());
        let mut events = pin!(events);
        loop {
            let Ok(event) = timeout(EVENT, events.next()).await else { return Err(no_answer()) };
            let Some(event) = event else {
                // One that ends at once must not be asked for without pause.
                sleep(PAUSES.0).await;
                return Ok(WatchEnd::Over(version));
            };
            let (see, object): (fn(&mut KnownJobs, &K), K) = match event.map_err(|error| refused(&error))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (self.see, object),
                WatchEvent::Deleted(object) => (self.lose, object),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) if status.code == GONE => return Ok(WatchEnd::TooOld),
                WatchEvent::Error(status) => return Err(refused(&kube::Error::Api(status))),
            };
            see(&mut sight.known(), &object);
            version = object.meta().resource_version.clone().unwrap_or(version);
        }
    }
}

fn no_answer() -> String {
    "the API server does not answer".to_owned()
}

async fn answered<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(ANSWER, call).await {
        Ok(done) => done.map_err(|error| refused(&error)),
        Err(_) => Err(no_answer()),
    }
}
