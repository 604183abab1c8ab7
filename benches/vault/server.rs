//! A release server as a process of its own.

use anyhow::{Context, Result, ensure};
use secrecy::ExposeSecret;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidelock::settings::plain_environment;
use tidelock_forge::Forge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit of a start or an end.
const LIMIT: Duration = Duration::from_secs(20);

/// A leading server; killed on drop.
pub(crate) struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts one and waits until it leads.
    pub(crate) async fn start(forge: &Forge, data: &Path, extra: &[String]) -> Result<Server> {
        Server::start_with_tools(forge, data, extra, None).await
    }

    /// The same, with `tools` before the other folders of its `PATH`.
    pub(crate) async fn start_with_tools(
        forge: &Forge,
        data: &Path,
        extra: &[String],
        tools: Option<&Path>,
    ) -> Result<Server> {
        let server = Server::spawn(forge, data, extra, tools)?;
        let until = Instant::now() + LIMIT;
        while !server.get("/status").await.is_ok_and(|answer| answer.contains("\"leading\"")) {
            ensure!(Instant::now() < until, "the server did not take the lead");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }

    /// The same, and waits for nothing.
    pub(crate) fn spawn(forge: &Forge, data: &Path, extra: &[String], tools: Option<&Path>) -> Result<Server> {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
        command.arg("server").env_clear().envs(plain_environment()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.args([
            "--bind=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--atlantis-url=http://127.0.0.1:{port}"),
            format!("--data-dir={}", data.display()),
            "--repo-allowlist=*".to_owned(),
            "--tf-download=false".to_owned(),
        ]);
        command.args(forge.server_settings().into_iter().map(|(name, value)| format!("--{name}={value}")));
        command.args(extra);
        if let Some(tools) = tools {
            let path = std::env::var("PATH").context("there is no PATH")?;
            command.env("PATH", format!("{}:{path}", tools.display()));
        }
        command.envs(forge.server_secrets().map(|(name, secret)| (name, secret.expose_secret().to_owned())));
        let child = command.spawn().context("cannot start the server")?;
        Ok(Server { child, address: format!("127.0.0.1:{port}") })
    }

    /// Returns the answer of a page, with its head.
    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Returns the id of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(self) {}

    /// Sends SIGTERM. Returns the time until it has exited with 0.
    pub(crate) async fn terminate(mut self) -> Result<Duration> {
        let began = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)?;
        let work = move || -> Result<Duration> {
            let status = self.child.wait()?;
            ensure!(status.success(), "the server ended with {status}");
            Ok(began.elapsed())
        };
        tokio::task::spawn_blocking(work).await?
    }
}
