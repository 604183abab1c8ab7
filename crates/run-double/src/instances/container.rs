//! The processes of an instance: the server, and all that descends from it.

use super::{ENDPOINT, InstancePhase, InstanceService, PORT};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Result;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Longest time until the port accepts (docs.cloud.google.com/run/docs/configuring/healthchecks, default startup probe).
const STARTUP: Duration = Duration::from_secs(240);
/// Time between two tries whether the port accepts.
const PROBE: Duration = Duration::from_millis(5);

/// An instance. It is killed when it is dropped.
pub(super) struct Container {
    /// Number of its start.
    pub(super) number: u64,
    pub(super) port: u16,
    /// The server. Its process group has the same number.
    server: Pid,
    ended: watch::Receiver<bool>,
    watching: JoinHandle<()>,
}

impl Drop for Container {
    fn drop(&mut self) {
        if !*self.ended.borrow() {
            self.kill();
        }
        // With it goes the child, which the runtime then waits for.
        self.watching.abort();
    }
}

impl Container {
    /// Starts an instance on a free port, and watches it.
    pub(super) async fn start(service: &Arc<InstanceService>) -> Result<Container> {
        let settings = &service.settings;
        let port = free_port().await?;
        let number = service.state.borrow().seen.starts + 1;
        let filled = |text: &String| text.replace(PORT, &port.to_string()).replace(ENDPOINT, &service.endpoint);
        let output = |name: &str| File::create(settings.logs.join(format!("{number}.{name}"))).map(Stdio::from);
        let mut command = Command::new(&settings.program);
        command.args(settings.args.iter().map(filled)).env_clear();
        // Variables of services (docs.cloud.google.com/run/docs/container-contract).
        command.env("PORT", port.to_string()).env("K_SERVICE", "tidelock");
        command.envs(settings.env.iter().map(|(name, value)| (name, filled(value))));
        command.stdin(Stdio::null()).stdout(output("stdout")?).stderr(output("stderr")?);
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id();
        let Some(server) = id.and_then(|id| Pid::from_raw(id.cast_signed())) else {
            return Err(std::io::Error::other("the process has ended"));
        };
        service.update(|seen| (seen.starts, seen.phase, seen.process) = (number, InstancePhase::Starting, id));
        let (end, ended) = watch::channel(false);
        let watching = tokio::spawn(watch_over(Arc::clone(service), child, port, end));
        Ok(Container { number, port, server, ended, watching })
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        // Without a sender nobody watches any more: it has been killed.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Stops all processes. Returns false if the server has ended.
    pub(super) async fn stop(&self) -> bool {
        self.freeze();
        let server = self.server;
        // A signal takes effect later than it is sent. What it waits for stays for others to see.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = tokio::task::spawn_blocking(move || retry_on_intr(|| waitid(WaitId::Pid(server), options))).await;
        matches!(waited, Ok(Ok(Some(status))) if status.stopped())
    }

    /// Sends the signal that stops to all processes, until no new one is found: none can start another one then. Returns them.
    fn freeze(&self) -> HashSet<Pid> {
        let mut frozen = HashSet::new();
        loop {
            let new: Vec<Pid> = self.processes().into_iter().filter(|process| frozen.insert(*process)).collect();
            if new.is_empty() {
                return frozen;
            }
            send(&new, Signal::STOP);
        }
    }

    /// Lets all processes continue.
    pub(super) fn resume(&self) {
        send(&self.processes(), Signal::CONT);
    }

    /// Tells the server to end.
    pub(super) fn terminate(&self) {
        let _ = kill_process_group(self.server, Signal::TERM);
    }

    /// Kills all processes.
    pub(super) fn kill(&self) {
        let processes = self.freeze();
        send(&processes, Signal::KILL);
        let _ = kill_process_group(self.server, Signal::KILL);
    }

    /// Returns the server and all that descends from it, parents first: children of the server have process groups of their own, and it
    /// adopts orphans. Without /proc that is the server alone.
    fn processes(&self) -> Vec<Pid> {
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let process = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            // "PID (NAME) STATE PARENT …", where a name may have any characters (proc_pid_stat(5)).
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            if let (Some(process), Some(parent)) = (process, parent.and_then(Pid::from_raw)) {
                children.entry(parent).or_default().push(process);
            }
        }
        let mut found = vec![self.server];
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children.remove(process).unwrap_or_default());
            next += 1;
        }
        found
    }
}

fn send<'a>(processes: impl IntoIterator<Item = &'a Pid>, signal: Signal) {
    for &process in processes {
        // One that has ended by now needs no signal.
        let _ = kill_process(process, signal);
    }
}

/// Returns a free port that the kernel gives to nobody else until the server binds it by its number: one with a connection that has just
/// ended (TIME_WAIT, a minute). It is connected with itself, because a listener would go on for a moment in processes that other threads
/// start, and would be taken for the server.
async fn free_port() -> Result<u16> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let address = socket.local_addr()?;
    socket.connect(address).await?.shutdown().await?;
    Ok(address.port())
}

/// Tells the states of a process until it has ended.
async fn watch_over(service: Arc<InstanceService>, mut child: Child, port: u16, end: watch::Sender<bool>) {
    let early = tokio::select! {
        status = child.wait() => Some(status),
        accepts = accepts(port) => {
            if accepts {
                service.state.send_modify(|state| {
                    state.seen.phase = InstancePhase::Running;
                    state.idle_since = Instant::now();
                });
            } else {
                let _ = child.start_kill();
            }
            None
        }
    };
    let status = match early {
        Some(status) => status,
        None => child.wait().await,
    };
    service.update(|seen| {
        (seen.phase, seen.process, seen.last_end) = (InstancePhase::Absent, None, status.ok());
    });
    end.send_replace(true);
}

/// Waits until a port accepts. Returns false if it does not in time.
async fn accepts(port: u16) -> bool {
    let until = Instant::now() + STARTUP;
    while Instant::now() < until {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return true;
        }
        tokio::time::sleep(PROBE).await;
    }
    false
}
