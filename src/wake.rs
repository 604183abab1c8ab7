//! What keeps a server awake that sleeps when it has nothing to do (`--idle-release`), and what wakes it.
//!
//! A *visit* is a request that a leader has to serve: a delivery, a page, a call of the API. A *wake-up call* is a request of a task of
//! Cloud Tasks, which stays open while there is work, because Cloud Run gives a container no processor while no request is open.

pub(crate) mod queue;
#[cfg(test)]
mod tests;

use queue::WakeQueue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Time limit of leaving a task before an answer: GitHub waits ten seconds for it.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// Requests to this server, and whether it sleeps.
pub struct Attention {
    now: watch::Sender<Requests>,
    queue: Option<WakeQueue>,
}

#[derive(Debug, Clone, Copy)]
struct Requests {
    /// Open visits.
    visits: usize,
    /// Open wake-up calls.
    calls: usize,
    /// Visits and calls so far.
    asked: RequestCount,
    /// End of the last visit, or the start of the server; absent if it was started for a wake-up call.
    left: Option<Instant>,
    /// Requests up to which a sleeping server has seen all; absent while it is awake.
    asleep: Option<RequestCount>,
}

/// Number of requests so far: two readings differ if there was one in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount(u64);

/// End of a wake-up call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The server sleeps, and nothing was asked since.
    Asleep,
    /// It is still awake at the end of the call's time.
    Awake,
}

impl Attention {
    /// Begins with a server that has just started. `queue` gets tasks that wake it.
    pub fn new(queue: Option<WakeQueue>) -> Arc<Attention> {
        let left = Some(Instant::now());
        let requests = Requests { visits: 0, calls: 0, asked: RequestCount(0), left, asleep: None };
        Arc::new(Attention { now: watch::Sender::new(requests), queue })
    }

    /// Begins a visit, which wakes the server. It ends when the value is dropped.
    pub fn visit(self: &Arc<Self>) -> AttendedVisit {
        self.now.send_modify(|now| {
            now.visits += 1;
            now.asked.0 += 1;
        });
        AttendedVisit { attention: Arc::clone(self) }
    }

    /// Wakes the server, and waits until it sleeps again, at most for `limit`.
    pub async fn call(self: &Arc<Self>, limit: Duration) -> CallEnd {
        self.now.send_modify(|now| {
            if now.asked == RequestCount(0) {
                now.left = None;
            }
            now.calls += 1;
            now.asked.0 += 1;
        });
        let mut call = OpenCall { attention: Arc::clone(self), open: true };
        let mut changes = self.now.subscribe();
        let asleep = async {
            while !call.ended_asleep() {
                if changes.changed().await.is_err() {
                    // Not reached: the sender lives as long as `self`.
                    std::future::pending::<()>().await;
                }
            }
        };
        match timeout(limit, asleep).await {
            Ok(()) => CallEnd::Asleep,
            Err(_) => {
                call.end();
                CallEnd::Awake
            }
        }
    }

    /// Returns the requests so far.
    pub fn asked(&self) -> RequestCount {
        self.now.borrow().asked
    }

    /// Waits until no visit has been open for this time. Returns the requests up to then.
    pub async fn unattended(&self, period: Duration) -> RequestCount {
        let mut changes = self.now.subscribe();
        loop {
            let now = *changes.borrow_and_update();
            let until = now.left.map(|left| left + period);
            let is_over = until.is_none_or(|until| until <= Instant::now());
            if now.visits == 0 && is_over {
                return now.asked;
            }
            let end = until.filter(|_| now.visits == 0).unwrap_or_else(|| Instant::now() + period);
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }

    /// Waits for a request after these.
    pub async fn asked_after(&self, seen: RequestCount) {
        let mut changes = self.now.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|now| now.asked > seen).await;
    }

    /// Notes that the server sleeps, and has seen these requests.
    pub fn fall_asleep(&self, seen: RequestCount) {
        self.now.send_modify(|now| now.asleep = Some(seen));
    }

    /// Notes that the server is awake.
    pub fn wake_up(&self) {
        self.now.send_modify(|now| now.asleep = None);
    }

    /// Leaves a task that wakes the server at this time; an error if that is not known to have succeeded. Without a queue the server
    /// wakes by itself.
    pub async fn leave_task(&self, at: jiff::Timestamp) -> Result<(), String> {
        self.leave(Some(at)).await
    }

    /// Leaves a task that wakes the server now, even if a call is open: it is about to end.
    pub async fn leave_task_for_now(&self) -> Result<(), String> {
        self.leave(None).await
    }

    async fn leave(&self, at: Option<jiff::Timestamp>) -> Result<(), String> {
        let Some(queue) = &self.queue else { return Ok(()) };
        match timeout(LEAVE_LIMIT, queue.leave(at)).await {
            Ok(left) => left.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LEAVE_LIMIT:?}")),
        }
    }

    /// Sees to it that what was asked is done after its answer: leaves a task for now, unless a wake-up call is open. To be called before the
    /// answer. A failure is logged: the next call does the work.
    pub async fn ensure_call(&self) {
        if self.now.borrow().calls == 0 {
            self.pass_on().await;
        }
    }

    /// Leaves a task for now, for whichever server leads then. A failure is logged.
    pub async fn pass_on(&self) {
        if let Err(error) = self.leave_task_for_now().await {
            tracing::warn!("no task was left that wakes this server now, so work may wait for the next one: {error}");
        }
    }
}

/// An open visit. What it causes is done after its answer only with [`Attention::ensure_call`].
pub struct AttendedVisit {
    attention: Arc<Attention>,
}

impl Drop for AttendedVisit {
    fn drop(&mut self) {
        self.attention.now.send_modify(|now| {
            now.visits -= 1;
            now.left = Some(Instant::now());
        });
    }
}

/// An open wake-up call.
struct OpenCall {
    attention: Arc<Attention>,
    open: bool,
}

impl OpenCall {
    /// Ends the call if the server sleeps and nothing was asked since. In one step: a visit that finds the call open relies on it.
    fn ended_asleep(&mut self) -> bool {
        self.attention.now.send_if_modified(|now| {
            if now.asleep == Some(now.asked) {
                now.calls -= 1;
                self.open = false;
            }
            false
        });
        !self.open
    }

    fn end(&mut self) {
        self.attention.now.send_modify(|now| now.calls -= 1);
        self.open = false;
    }
}

impl Drop for OpenCall {
    /// The caller has gone before the end. Not every caller calls again, and visits may have relied on the call.
    fn drop(&mut self) {
        if self.open {
            self.end();
            let attention = Arc::clone(&self.attention);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { attention.ensure_call().await });
            }
        }
    }
}
