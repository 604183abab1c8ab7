//! The server under test: in this process, or as a process of its own that can be killed.

use super::LIMIT;
use secrecy::ExposeSecret;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidelock::app::{JoinedHost, Server};
use tidelock::settings::Settings;
use tidelock_forge::Forge;

/// Free ports that are tried.
const PORTS: usize = 5;
/// Time between SIGTERM and the exit, at most.
pub(crate) const TERMINATION: Duration = Duration::from_secs(10);

/// A server's settings for its start, and the running one.
pub(crate) struct Running {
    forge: Forge,
    flags: Mutex<Vec<String>>,
    environment: Vec<(String, String)>,
    process: bool,
    /// Hosts besides the forge, of a server in this process.
    hosts: Vec<JoinedHost>,
    now: Mutex<Option<Now>>,
    log: Arc<Mutex<String>>,
}

enum Now {
    Here(Arc<Server>),
    /// `reader` ends with the last line of its log.
    Process {
        child: Guard,
        reader: std::thread::JoinHandle<()>,
        address: String,
    },
}

/// Kills the process at the end of the test, in any case.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn new(
        forge: &Forge,
        own: &Path,
        extra: Vec<String>,
        variables: Vec<(String, String)>,
        process: bool,
        hosts: Vec<JoinedHost>,
    ) -> Running {
        let mut flags: Vec<String> = [
            ("bind", "127.0.0.1"),
            ("atlantis-url", "http://tidelock.test"),
            ("data-dir", own.join("data").to_str().unwrap()),
            ("gh-hostname", &forge.hostname_setting()),
            ("gh-user", forge.bot()),
            ("repo-allowlist", "*"),
            ("checkout-strategy", "merge"),
            ("tf-download", "false"),
        ]
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        if extra.iter().any(|flag| flag.starts_with("--config=") && flag.ends_with("/tidelock.yaml")) {
            // A flag would win over the config file.
            flags.retain(|flag| !flag.starts_with("--repo-allowlist="));
        }
        flags.extend(extra);
        let secret = |secret: secrecy::SecretString| secret.expose_secret().to_owned();
        let mut environment = vec![
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            ("HOME".to_owned(), own.join("home").to_str().unwrap().to_owned()),
            ("CHECKPOINT_DISABLE".to_owned(), "1".to_owned()),
            ("TIDELOCK_GH_TOKEN".to_owned(), secret(forge.token())),
            ("TIDELOCK_GH_WEBHOOK_SECRET".to_owned(), secret(forge.webhook_secret())),
        ];
        environment.retain(|(name, _)| variables.iter().all(|(other, _)| other != name));
        environment.extend(variables);
        Running {
            forge: forge.clone(),
            flags: Mutex::new(flags),
            environment,
            process,
            hosts,
            now: Mutex::new(None),
            log: Arc::default(),
        }
    }

    /// Adds a flag for the next start.
    pub(crate) fn flag(&self, flag: &str) {
        self.flags.lock().unwrap().push(flag.to_owned());
    }

    /// Starts it, and points the forge's webhook at it.
    pub(crate) async fn start(&self) {
        let now = if self.process { self.start_process().await } else { self.start_here().await };
        let previous = self.now.lock().unwrap().replace(now);
        assert!(previous.is_none(), "it runs already");
        self.take_webhooks();
    }

    async fn start_here(&self) -> Now {
        let flags = self.flags.lock().unwrap().clone();
        let environment = self.environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let mut settings = Settings::load(flags.into_iter().map(OsString::from), environment).unwrap();
        // Any free port; as a flag, 0 means the default.
        settings.port = 0;
        let server = Server::start_with(settings, &self.hosts).await.unwrap();
        server.leads().await.unwrap();
        Now::Here(Arc::new(server))
    }

    async fn start_process(&self) -> Now {
        self.process_until("ready").await
    }

    async fn process_until(&self, message: &'static str) -> Now {
        for _ in 0..PORTS {
            if let Some(now) = self.try_process(message).await {
                return now;
            }
        }
        panic!("it does not start:\n{}", self.log());
    }

    /// Returns the same with another data directory and more flags, not started, in a process of its own.
    pub(crate) fn beside(&self, data_dir: &Path, extra: &[&str]) -> Running {
        let mut flags = self.flags.lock().unwrap().clone();
        flags.push(format!("--data-dir={}", data_dir.display()));
        flags.extend(extra.iter().map(|flag| (*flag).to_owned()));
        Running {
            forge: self.forge.clone(),
            flags: Mutex::new(flags),
            environment: self.environment.clone(),
            process: true,
            hosts: Vec::new(),
            now: Mutex::new(None),
            log: Arc::default(),
        }
    }

    /// Returns the same in this process.
    pub(crate) fn beside_here(&self, data_dir: &Path) -> Running {
        Running { process: false, hosts: self.hosts.clone(), ..self.beside(data_dir, &[]) }
    }

    /// Returns the flags and all variables with which it is started.
    pub(crate) fn start_settings(&self) -> (Vec<String>, Vec<(String, String)>) {
        (self.flags.lock().unwrap().clone(), self.environment.clone())
    }

    /// Starts it without waiting for it to lead, and without a webhook.
    pub(crate) async fn start_as_standby(&self) {
        let now = self.process_until("listening").await;
        assert!(self.now.lock().unwrap().replace(now).is_none(), "it runs already");
    }

    /// Starts it and waits for its end. Returns its exit code and log.
    pub(crate) async fn fails_to_start(&self) -> (Option<i32>, String) {
        self.start_as_standby().await;
        let Some(Now::Process { mut child, reader, .. }) = self.now.lock().unwrap().take() else {
            panic!("it is no process")
        };
        let ended = tokio::task::spawn_blocking(move || {
            let status = child.0.wait().unwrap();
            // Its last lines are still in the pipe.
            reader.join().unwrap();
            status
        });
        let status = tokio::time::timeout(LIMIT, ended).await.expect("it does not end").unwrap();
        (status.code(), self.log())
    }

    /// Directs deliveries to this server from now on.
    pub(crate) fn take_webhooks(&self) {
        self.forge.set_webhook(&format!("{}/events", self.url()));
    }

    /// Returns the answer of `/status`.
    pub(crate) async fn status(&self) -> serde_json::Value {
        let answer = super::client().get(format!("{}/status", self.url())).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }

    /// Waits for a role. Returns the answer of `/status` then.
    pub(crate) async fn role(&self, role: &str) -> serde_json::Value {
        let looking = async {
            loop {
                let status = self.status().await;
                if status["role"] == role {
                    return status;
                }
                tokio::time::sleep(super::LOOK).await;
            }
        };
        match tokio::time::timeout(LIMIT, looking).await {
            Ok(status) => status,
            Err(_) => panic!("it does not become {role}: {}\n{}", self.status().await, self.log()),
        }
    }

    /// Starts it; absent if it ends before this message is in its log, such as when another test has taken the port first.
    async fn try_process(&self, message: &'static str) -> Option<Now> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidelock"))
            .args(["server".to_owned(), format!("--port={port}")])
            .args(&*self.flags.lock().unwrap())
            .env_clear()
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let child = Guard(child);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let log = Arc::clone(&self.log);
        let reader = std::thread::spawn(move || {
            let mut ready = Some(ready);
            for line in lines.map_while(Result::ok) {
                let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                let mut log = log.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
                if event["message"] == message
                    && let Some(ready) = ready.take()
                {
                    let _ = ready.send(());
                }
            }
        });
        let ready = tokio::time::timeout(LIMIT, is_ready).await.is_ok_and(|ready| ready.is_ok());
        ready.then(|| Now::Process { child, reader, address: format!("127.0.0.1:{port}") })
    }

    /// Returns its own address, without trailing slash.
    pub(crate) fn url(&self) -> String {
        let is_https = self.flags.lock().unwrap().iter().any(|flag| flag.starts_with("--ssl-cert-file="));
        let scheme = if is_https { "https" } else { "http" };
        match self.now.lock().unwrap().as_ref().expect("no server runs") {
            Now::Here(server) => format!("{scheme}://{}", server.address),
            Now::Process { address, .. } => format!("{scheme}://{address}"),
        }
    }

    /// Runs another command of the binary with this server's flags and variables. Returns exit code and standard output.
    pub(crate) async fn command(&self, name: &str, extra: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
        command.arg(name).args(&*self.flags.lock().unwrap()).args(extra);
        command.env_clear().envs(self.environment.clone()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    }

    /// Runs it on a terminal of its own until it shows this, then presses Ctrl-C. Returns all output of the terminal. It has to exit with
    /// 0.
    pub(crate) async fn on_a_terminal(&self, message: &'static str) -> String {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let start = [env!("CARGO_BIN_EXE_tidelock").to_owned(), "server".to_owned(), format!("--port={port}")];
        let words: Vec<String> = start.into_iter().chain(self.flags.lock().unwrap().clone()).collect();
        // Replaces the shell, which would handle the interrupt itself.
        let command = format!("exec {}", shlex::try_join(words.iter().map(String::as_str)).unwrap());
        // From util-linux: it gives the command a terminal, and itself has pipes.
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env_clear()
            .envs(self.environment.clone())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut child = Guard(child);
        let watched = tokio::task::spawn_blocking(move || {
            let (mut shown, mut chunk, mut pressed) = (Vec::new(), [0; 4096], false);
            loop {
                let read = screen.read(&mut chunk).unwrap();
                if read == 0 {
                    break;
                }
                shown.extend_from_slice(&chunk[..read]);
                if !pressed && String::from_utf8_lossy(&shown).contains(message) {
                    keys.write_all(b"\x03").unwrap();
                    pressed = true;
                }
            }
            (String::from_utf8(shown).unwrap(), child.0.wait().unwrap().code())
        });
        let (shown, code) = tokio::time::timeout(LIMIT, watched).await.expect("it does not end").unwrap();
        assert_eq!(code, Some(0), "{shown}");
        shown
    }

    /// Returns the log of a process of its own so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Ends it in order: with SIGTERM for a process, which has to exit with 0 in time.
    pub(crate) async fn stop(&self) {
        self.stop_within(TERMINATION).await;
    }

    /// The same with another time limit.
    pub(crate) async fn stop_within(&self, limit: Duration) {
        let now = self.now.lock().unwrap().take();
        match now {
            None => {}
            Some(Now::Here(server)) => server.stop().await.unwrap(),
            Some(Now::Process { mut child, .. }) => {
                let pid = rustix::process::Pid::from_child(&child.0);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                let began = Instant::now();
                let status = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
                assert_eq!(status.code(), Some(0), "{}", self.log());
                assert!(began.elapsed() < limit, "it took {:?} to end", began.elapsed());
            }
        }
    }

    /// Has it read its configuration again: with SIGHUP, for a process.
    pub(crate) fn reload(&self) {
        match self.now.lock().unwrap().as_ref().expect("no server runs") {
            Now::Here(server) => server.reload(),
            Now::Process { child, .. } => {
                let pid = rustix::process::Pid::from_child(&child.0);
                rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
            }
        }
    }

    /// Sends SIGKILL; children that it leaves end by themselves or by the test's gates.
    pub(crate) async fn kill(&self) {
        let now = self.now.lock().unwrap().take();
        let Some(Now::Process { child, .. }) = now else { panic!("only a process can be killed") };
        drop(child);
    }

    /// Ends it in order, and starts it.
    pub(crate) async fn restart(&self) {
        self.stop().await;
        self.start().await;
    }

    /// Returns the path of a file in the server's data directory.
    pub(crate) fn data(&self, path: &str) -> PathBuf {
        let flags = self.flags.lock().unwrap();
        let dir = flags.iter().rev().find_map(|flag| flag.strip_prefix("--data-dir=")).unwrap();
        Path::new(dir).join(path)
    }
}
