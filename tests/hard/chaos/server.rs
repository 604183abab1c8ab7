//! The server under trial, in a process of its own. Like a container, it ends with all processes that it has started.

use super::processes::Processes;
use crate::place::{binary, free_port};
use secrecy::ExposeSecret as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidelock_forge::Forge;
use tokio::process::{Child, Command};

/// Longest time for a start.
const START: Duration = Duration::from_secs(60);
/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Interval of polling.
const LOOK: Duration = Duration::from_millis(20);
/// Variable in the environment of the server and all that it starts.
pub(super) const MARK: &str = "TIDELOCK_CHAOS";

/// Way in which the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Not at all, as a control.
    None,
    Sigkill {
        disk_lost: bool,
    },
    /// SIGTERM, and SIGKILL ten seconds later.
    Sigterm {
        disk_lost: bool,
    },
    /// The same while another server with a disk of its own runs already.
    SigtermOverlap,
}

/// Starts the servers of one trial.
pub(crate) struct Servers {
    pub(crate) forge: Forge,
    pub(crate) dir: PathBuf,
    /// Settings besides those of all trials.
    settings: Vec<(&'static str, String)>,
    /// Variables besides those of all trials.
    variables: Vec<(&'static str, String)>,
    started: AtomicUsize,
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) url: String,
    child: Child,
    /// Value of [`MARK`] in its environment and that of its jobs.
    pub(crate) mark: String,
    pub(crate) data: PathBuf,
}

impl Servers {
    pub(crate) fn new(
        forge: Forge,
        dir: &Path,
        settings: Vec<(&'static str, String)>,
        variables: Vec<(&'static str, String)>,
    ) -> Servers {
        Servers { forge, dir: dir.to_owned(), settings, variables, started: AtomicUsize::new(0) }
    }

    /// Starts a server with the given data directory. It answers when this returns, but need not lead yet.
    pub(crate) async fn start(&self, data: &str) -> Result<Running, String> {
        loop {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let started = self.start_as(number, data).await;
            // Another test has taken the port first.
            let is_port_taken = || {
                let log = std::fs::read_to_string(self.dir.join(format!("server-{number}.log")));
                log.is_ok_and(|log| log.contains("cannot listen on"))
            };
            if started.is_ok() || !is_port_taken() {
                return started;
            }
        }
    }

    async fn start_as(&self, number: usize, data: &str) -> Result<Running, String> {
        let (data, port) = (self.dir.join(data), free_port());
        let mark = format!("{}-{number}", self.dir.display());
        let log = std::fs::File::create(self.dir.join(format!("server-{number}.log"))).unwrap();
        let mut settings = vec![
            ("bind", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("atlantis-url", "http://tidelock.test".to_owned()),
            ("data-dir", data.display().to_string()),
            ("repo-config", self.dir.join("repos.yaml").display().to_string()),
            ("repo-allowlist", "*".to_owned()),
            ("checkout-strategy", "merge".to_owned()),
            ("tf-download", "false".to_owned()),
        ];
        settings.extend(self.settings.iter().cloned());
        settings.extend(self.forge.server_settings());
        let child = Command::new(binary())
            .arg("server")
            .args(settings.iter().map(|(name, value)| format!("--{name}={value}")))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.join("home"))
            .env("CHECKPOINT_DISABLE", "1")
            .env(MARK, &mark)
            .envs(self.variables.iter().cloned())
            .envs(self.forge.server_secrets().map(|(name, secret)| (name, secret.expose_secret().to_owned())))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut running = Running { url: format!("http://127.0.0.1:{port}"), child, mark, data };
        running.answers("healthz").await?;
        Ok(running)
    }
}

impl Running {
    /// Waits until this path answers with success.
    async fn answers(&mut self, path: &str) -> Result<(), String> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let looking = async {
            loop {
                if let Ok(Some(status)) = self.child.try_wait() {
                    return Err(format!("the server ends at its start: {status}"));
                }
                let answer = client.get(format!("{}/{path}", self.url)).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let answered = tokio::time::timeout(START, looking).await;
        answered.unwrap_or_else(|_| Err(format!("the server does not answer /{path} within {START:?}")))
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&mut self) -> Result<(), String> {
        self.answers("readyz").await
    }

    /// Sends SIGKILL to it, and then to all that it has started.
    pub(crate) async fn kill(mut self, disk_lost: bool) {
        let _ = self.child.kill().await;
        while !kill_marked(&self.mark) {
            tokio::time::sleep(LOOK).await;
        }
        if disk_lost {
            std::fs::remove_dir_all(&self.data).unwrap();
        }
    }

    /// Sends SIGTERM to it alone, and SIGKILL to everything ten seconds later or when it has ended.
    pub(crate) async fn terminate(mut self, disk_lost: bool) {
        if let Some(pid) = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id as i32)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
        self.kill(disk_lost).await;
    }
}

/// Sends SIGKILL to all processes with this mark in their environment, except for jobs of executors and their steps. Returns true if there
/// was none.
fn kill_marked(mark: &str) -> bool {
    let all = Processes::now();
    let jobs = all.of_jobs();
    let entry = format!("{MARK}={mark}");
    let marked: Vec<_> = all.iter().filter(|process| process.has(&entry) && !jobs.contains(&process.pid)).collect();
    marked.iter().for_each(|process| process.kill());
    marked.is_empty()
}
