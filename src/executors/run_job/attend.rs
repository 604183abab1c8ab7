//! Tasks beside a running job: its log, signs of life, cancellation. None of them waits for another, or for the job.

use super::log::JobLog;
use super::until_stored;
use crate::process::Redactor;
use crate::vault::VaultError;
use crate::vault::bucket::BucketError;
use crate::vault::jobs::JobObjects;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Time between two signs of life.
const ALIVE: Duration = Duration::from_secs(30);
/// Time between two looks for `cancel`.
const LOOK: Duration = Duration::from_secs(2);
/// Time after the grace of a step in which its end is noticed. Then the job ends without waiting for its processes.
const AFTER_GRACE: Duration = Duration::from_secs(5);

/// Name of a signal that asks this program to end.
pub(crate) type SignalName = &'static str;

/// Tokens that end the steps of a job.
#[derive(Default, Clone)]
pub(super) struct StopTokens {
    /// Interrupts them.
    pub(super) stop: CancellationToken,
    /// Ends them without waiting for their processes.
    pub(super) kill: CancellationToken,
}

/// The running tasks. They end with this value.
pub(super) struct Attendance {
    log: Arc<JobLog>,
    sending: JoinHandle<()>,
    _others: JoinSet<()>,
}

impl Attendance {
    /// Starts the tasks. `grace` is the time between SIGINT and SIGKILL for a step.
    pub(super) fn start(
        objects: &JobObjects,
        redactor: &Redactor,
        tokens: &StopTokens,
        grace: Duration,
        signals: mpsc::Receiver<SignalName>,
    ) -> Attendance {
        let (log, mut others) = (Arc::new(JobLog::default()), JoinSet::new());
        let (sender, sent) = (objects.clone(), Arc::clone(&log));
        let sending = tokio::spawn(async move { sent.send(&sender).await });
        others.spawn(tell_alive(objects.clone()));
        let (told, redactor) = (Arc::clone(&log), redactor.clone());
        let tell = move |why: &str| why.lines().for_each(|line| told.line(&redactor.redact(line)));
        others.spawn(look_for_cancel(objects.clone(), tokens.stop.clone(), tell));
        others.spawn(obey_signals(signals, Arc::clone(&log), tokens.clone(), grace));
        Attendance { log, sending, _others: others }
    }

    /// Returns the log.
    pub(super) fn log(&self) -> &JobLog {
        &self.log
    }

    /// Ends the log and waits until all of it is stored.
    pub(super) async fn end_log(&mut self) {
        self.log.end();
        if let Err(error) = (&mut self.sending).await {
            tracing::error!("the log of the job cannot be stored: {error}");
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

async fn tell_alive(objects: JobObjects) {
    let mut times = interval_at(Instant::now() + ALIVE, ALIVE);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0.. {
        times.tick().await;
        if let Err(error) = until_stored(|| objects.put_alive(number)).await {
            tracing::error!("signs of life of the job cannot be stored: {error}");
            return;
        }
    }
}

async fn look_for_cancel(objects: JobObjects, stop: CancellationToken, tell: impl Fn(&str) + Send) {
    let mut known: Option<String> = None;
    loop {
        match objects.cancelled().await {
            Ok(Some(why)) => {
                tell(&why);
                tracing::info!("cancelled: {why}");
                return stop.cancel();
            }
            // The specification could be read, so what is hidden is not there. Were the rights taken away since, no log could be stored either.
            Ok(None) | Err(VaultError::Bucket(BucketError::Hidden { .. })) => known = None,
            // Only who has the key can have written it.
            Err(VaultError::Damaged(why)) => {
                tracing::warn!("cancelled, for an unknown reason: {why}");
                return stop.cancel();
            }
            Err(error) => {
                let error = error.to_string();
                if known.as_ref() != Some(&error) {
                    tracing::warn!("cannot see whether the job is cancelled; trying again: {error}");
                }
                known = Some(error);
            }
        }
        sleep(LOOK).await;
    }
}

/// Interrupts the job at the first signal. At the second one, or after the grace of whatever has stopped it, it ends at once: a signal that
/// follows a cancellation does not cut the grace.
async fn obey_signals(mut signals: mpsc::Receiver<SignalName>, log: Arc<JobLog>, tokens: StopTokens, grace: Duration) {
    let mut left = tokio::select! {
        Some(name) = signals.recv() => {
            tracing::info!(signal = name, "interrupting the job");
            log.line(&format!("[tidelock: this job got {name}, and is interrupted]"));
            tokens.stop.cancel();
            1
        }
        () = tokens.stop.cancelled() => 2,
    };
    let end = Instant::now() + grace.saturating_add(AFTER_GRACE);
    while left > 0 {
        tokio::select! {
            Some(name) = signals.recv() => {
                tracing::info!(signal = name, "the job is asked to end");
                left -= 1;
            }
            () = sleep_until(end) => break,
        }
    }
    tokens.kill.cancel();
}
