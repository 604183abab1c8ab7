//! A stand-in for the instances of a service on Cloud Run with request-based billing and at most one instance
//! (docs.cloud.google.com/run/docs/about-instance-autoscaling, docs.cloud.google.com/run/docs/configuring/billing-settings).
//!
//! It is a reverse proxy on loopback. A request starts the instance if there is none, and is forwarded when its port accepts. While no
//! request is open, all processes of the instance are stopped: an idle instance has no processor. It may be killed at any time.

mod container;
mod proxy;
#[cfg(test)]
mod tests;

use crate::server;
use container::Container;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Stands for the port in arguments and in values of variables.
pub const PORT: &str = "{port}";
/// Stands for the address of the stand-in in arguments and in values of variables.
pub const ENDPOINT: &str = "{endpoint}";
/// Time from the end of the last request to the stop, unless a test says another.
const DELAY: Duration = Duration::from_millis(50);
/// Time between SIGTERM and SIGKILL (docs.cloud.google.com/run/docs/container-contract, "Instance shutdown").
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Settings of an instance.
#[derive(Debug, Clone)]
pub struct InstanceSettings {
    /// Program, which stands for the image.
    pub program: PathBuf,
    /// Its arguments. [`PORT`] and [`ENDPOINT`] in them are replaced.
    pub args: Vec<String>,
    /// All of its environment but `PORT` and `K_SERVICE`, which Cloud Run sets. [`PORT`] and [`ENDPOINT`] in values are
    /// replaced.
    pub env: Vec<(String, String)>,
    /// Directory for what instances print: `1.stdout` and `1.stderr` are those of the first one.
    pub logs: PathBuf,
}

/// A running stand-in. When it is dropped, it stops and kills its instance.
pub struct Instances {
    service: Arc<InstanceService>,
    tasks: [AbortHandle; 2],
}

/// State of the instance, for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenInstance {
    /// Starts so far.
    pub starts: u64,
    /// Its phase.
    pub phase: InstancePhase,
    /// Process of the instance, if there is one.
    pub process: Option<u32>,
    /// Requests that have come, and whose answer has not been passed on in full.
    pub open: usize,
    /// Requests so far.
    pub requests: u64,
    /// Exit status of the last instance that has ended.
    pub last_end: Option<ExitStatus>,
}

/// Phase of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InstancePhase {
    /// There is none.
    #[default]
    Absent,
    /// Its port does not accept yet. It has the processor.
    Starting,
    /// It has the processor.
    Running,
    /// All its processes are stopped.
    Stopped,
}

impl SeenInstance {
    /// Tells whether there is an instance, and it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.phase == InstancePhase::Stopped
    }

    /// Tells whether there is no instance.
    pub fn is_absent(&self) -> bool {
        self.phase == InstancePhase::Absent
    }
}

/// State that all requests share.
struct InstanceService {
    settings: InstanceSettings,
    /// Address of the stand-in.
    endpoint: String,
    state: watch::Sender<InstanceState>,
    /// The instance. The lock is held to start, stop, continue or end it.
    container: Mutex<Option<Container>>,
}

#[derive(Debug, Clone)]
struct InstanceState {
    seen: SeenInstance,
    /// Time since which no request is open.
    idle_since: Instant,
    delay: Duration,
    kill_after: Option<Duration>,
}

/// Action that is due on an idle instance.
#[derive(Debug, Clone, Copy)]
enum Due {
    Stop,
    Kill,
}

impl InstanceState {
    /// Returns what is due next, and when, if no request comes.
    fn due(&self) -> Option<(Instant, Due)> {
        match (self.seen.open, self.seen.phase) {
            (0, InstancePhase::Running) => Some((self.idle_since + self.delay, Due::Stop)),
            (0, InstancePhase::Stopped) => self.kill_after.map(|after| (self.idle_since + after, Due::Kill)),
            _ => None,
        }
    }
}

impl Drop for Instances {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        // Otherwise a task holds the lock. It ends with the runtime, which kills the process.
        if let Ok(mut container) = self.service.container.try_lock() {
            drop(container.take());
        }
    }
}

impl Instances {
    /// Starts a stand-in on a free port of loopback, without an instance.
    pub async fn start(settings: InstanceSettings) -> std::io::Result<Instances> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let state =
            InstanceState { seen: SeenInstance::default(), idle_since: Instant::now(), delay: DELAY, kill_after: None };
        let (state, _) = watch::channel(state);
        let service = Arc::new(InstanceService { settings, endpoint, state, container: Mutex::default() });
        let answering = Arc::clone(&service);
        let answer = move |request, from| proxy::answer(request, from, Arc::clone(&answering));
        let accepting = tokio::spawn(server::accept(listener, answer)).abort_handle();
        let idling = tokio::spawn(idle(Arc::clone(&service))).abort_handle();
        Ok(Instances { service, tasks: [accepting, idling] })
    }

    /// Address: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.service.endpoint
    }

    /// Sets the time from the end of the last request to the stop.
    pub fn stop_when_idle_for(&self, delay: Duration) {
        self.service.state.send_modify(|state| state.delay = delay);
    }

    /// Kills instances that are stopped and have had no request for this time; never, if there is none. Cloud Run keeps an idle instance
    /// for at most 15 minutes.
    pub fn kill_when_idle_for(&self, after: Option<Duration>) {
        self.service.state.send_modify(|state| state.kill_after = after);
    }

    /// Kills the instance at once, whatever it does, and waits for its end. Without an instance it does nothing.
    pub async fn kill(&self) {
        let mut container = self.service.container.lock().await;
        self.service.kill(&mut container).await;
    }

    /// Ends the instance as a rollout does: it has the processor, gets SIGTERM, and is killed ten seconds later. New requests wait for its
    /// end, and start another one.
    pub async fn terminate(&self) {
        let mut container = self.service.container.lock().await;
        let Some(running) = container.as_ref() else { return };
        self.service.resume(running);
        running.terminate();
        let _ = tokio::time::timeout(SHUTDOWN, running.ended()).await;
        self.service.kill(&mut container).await;
    }

    /// Returns what is seen now.
    pub fn seen(&self) -> SeenInstance {
        self.service.state.borrow().seen.clone()
    }

    /// Waits until a condition holds, without a time limit. Returns the state at that moment.
    pub async fn until(&self, mut condition: impl FnMut(&SeenInstance) -> bool) -> SeenInstance {
        let mut changes = self.service.state.subscribe();
        let found = changes.wait_for(|state| condition(&state.seen)).await;
        // It only fails without a sender, which this stand-in has.
        found.map_or_else(|_| self.seen(), |state| state.seen.clone())
    }
}

impl InstanceService {
    fn update(&self, change: impl FnOnce(&mut SeenInstance)) {
        self.state.send_modify(|state| change(&mut state.seen));
    }

    fn phase(&self) -> InstancePhase {
        self.state.borrow().seen.phase
    }

    /// Gives an instance the processor.
    fn resume(&self, container: &Container) {
        if self.phase() == InstancePhase::Stopped {
            container.resume();
            self.update(|seen| seen.phase = InstancePhase::Running);
        }
    }

    async fn kill(&self, container: &mut Option<Container>) {
        if let Some(container) = container.take() {
            container.kill();
            container.ended().await;
        }
    }

    /// Does what is due if still no request is open.
    async fn rest(&self, due: Due) {
        let mut container = self.container.lock().await;
        let still_due = self.state.borrow().due().filter(|(at, _)| *at <= Instant::now());
        match (due, still_due, container.as_ref()) {
            (Due::Stop, Some((_, Due::Stop)), Some(running)) => {
                if running.stop().await {
                    self.update(|seen| seen.phase = InstancePhase::Stopped);
                } else {
                    // It has ended by itself.
                    running.ended().await;
                }
            }
            (Due::Kill, Some((_, Due::Kill)), Some(_)) => self.kill(&mut container).await,
            _ => {}
        }
    }
}

/// Stops and kills instances that are idle, as long as it is polled.
async fn idle(service: Arc<InstanceService>) {
    let mut changes = service.state.subscribe();
    loop {
        let due = changes.borrow_and_update().due();
        let changed = match due {
            None => changes.changed().await.is_ok(),
            Some((at, due)) => tokio::select! {
                changed = changes.changed() => changed.is_ok(),
                () = tokio::time::sleep_until(at) => {
                    service.rest(due).await;
                    true
                }
            },
        };
        if !changed {
            return;
        }
    }
}
