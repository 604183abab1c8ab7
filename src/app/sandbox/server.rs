//! The sandbox's server, with the settings that an operator would give it. It runs in this process, or in one of its own that can be
//! killed.

use super::jobs;
use super::settings::SandboxSettings;
use crate::app::Server;
use crate::process::{self, Finished, Invocation, Redactor};
use crate::settings::Settings;
use anyhow::{Context, Result, anyhow, bail};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidelock_forge::Forge;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time limit of a start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Interval between two checks that it leads.
const LOOK: Duration = Duration::from_millis(20);
/// Text in each line of the audit log.
const AUDIT: &str = "\"audit\":true";
/// Time limit of the server process: nobody plays longer.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Everything that starting the server needs.
pub(super) struct Launch {
    /// Its address, without trailing slash.
    pub(super) url: String,
    port: u16,
    data_dir: PathBuf,
    bucket: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    /// All servers in processes of their own.
    apart: TaskTracker,
    /// Ends these servers.
    stop: CancellationToken,
    /// Errors that these servers have logged.
    errors: Arc<Mutex<Vec<String>>>,
}

/// Returns the server's data directory in the sandbox's directory.
pub(super) fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}

impl Launch {
    /// Prepares a server in `dir`: the data directory is [`data_dir`], the bucket is `bucket`. The secrets are environment variables.
    /// `settings` are added to those of the sandbox.
    pub(super) fn new(
        environment: &[(OsString, OsString)],
        level: &str,
        port: u16,
        forge: &Forge,
        dir: &Path,
        settings: &SandboxSettings,
    ) -> Result<Launch> {
        let url = format!("http://127.0.0.1:{port}");
        let (data_dir, bucket) = (data_dir(dir), dir.join("bucket"));
        let flags = [
            ("bind", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("atlantis-url", url.clone()),
            ("data-dir", data_dir.to_string_lossy().into_owned()),
            ("bucket", format!("file://{}", bucket.to_string_lossy())),
            ("log-level", level.to_owned()),
        ];
        let text = |text: &OsString| text.to_str().map(str::to_owned);
        let mut environment: Vec<(String, String)> =
            environment.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        environment
            .extend(forge.server_secrets().map(|(name, secret)| (name.to_owned(), secret.expose_secret().to_owned())));
        environment.push(("CHECKPOINT_DISABLE".into(), "1".into()));
        let own = flags.into_iter().chain(forge.server_settings());
        let own: Vec<String> = own.map(|(name, value)| format!("--{name}={value}")).collect();
        let args = own.into_iter().chain(settings.args()).collect();
        let (apart, stop, errors) = Default::default();
        Ok(Launch { url, port, data_dir, bucket, args, environment, apart, stop, errors })
    }

    /// Starts it in this process; returns once it leads.
    pub(super) async fn here(&self) -> Result<Server> {
        let environment = self.environment.iter().map(|(name, value)| (name.into(), value.into()));
        let settings = Settings::load(self.args.iter().map(OsString::from), environment)
            .map_err(|error| anyhow!("the sandbox's settings are refused: {error}"))?;
        let server = Server::start(settings).await?;
        tokio::time::timeout(START_LIMIT, server.leads()).await.context("the server does not lead")??;
        Ok(server)
    }

    /// Starts it in a process of its own; returns once it leads.
    pub(super) async fn apart(&self) -> Result<Apart> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let args = std::iter::once("server".to_owned()).chain(self.args.iter().cloned());
        let invocation =
            Invocation::new(program, args, std::env::temp_dir()).env(self.environment.clone()).timeout(LIFE);
        let (stop, errors) = (self.stop.child_token(), Arc::clone(&self.errors));
        let told = stop.clone();
        let running = self.apart.spawn(async move {
            let tell = |line: &str| {
                use std::io::Write;
                // The story itself shows who did what.
                if line.contains(AUDIT) {
                    return;
                }
                if is_error(line) {
                    errors.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
                }
                // Standard error may be closed; the story continues.
                let _ = writeln!(std::io::stderr(), "{line}");
            };
            process::run(invocation, &Redactor::new(Vec::new()), &told, Some(&tell)).await
        });
        let mut apart = Apart { stop, running };
        tokio::time::timeout(START_LIMIT, apart.leads(&self.url)).await.context("the server does not lead")??;
        Ok(apart)
    }

    /// Ends the servers in processes of their own in order, at any point of the story.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.apart.close();
        self.apart.wait().await;
    }

    /// Ends the jobs that go on without a server. To be called once all servers have ended.
    pub(super) async fn end_jobs(&self) -> Result<()> {
        jobs::end(&self.bucket).await
    }

    /// Fails if a server has logged an error: the comments alone would not show that.
    pub(super) fn no_errors(&self) -> Result<()> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match errors.first() {
            None => Ok(()),
            Some(first) => bail!("the server logged {} errors, the first: {first}", errors.len()),
        }
    }

    /// Waits until the port of a killed server is free: the kernel closes its sockets some time after the signal.
    pub(super) async fn port_is_free(&self) -> Result<()> {
        let waiting = async {
            while TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.is_err() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(START_LIMIT, waiting).await.with_context(|| format!("port {} is still taken", self.port))
    }

    /// Deletes the server's data directory.
    pub(super) fn wipe(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.data_dir).with_context(|| format!("cannot wipe {}", self.data_dir.display()))
    }
}

/// Returns true if a line of the server's log is an error.
fn is_error(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|line| line["level"] == "ERROR")
}

/// A server in a process of its own.
pub(super) struct Apart {
    stop: CancellationToken,
    running: JoinHandle<Result<Finished>>,
}

impl Apart {
    async fn leads(&mut self, url: &str) -> Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        loop {
            if self.running.is_finished() {
                let ended = (&mut self.running).await.context("the server broke off")??;
                bail!("the server ended at its start: {}\n{}", ended.ending(), ended.output);
            }
            if let Ok(answer) = client.get(format!("{url}/readyz")).send().await
                && answer.status().is_success()
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills it and all processes that it started with SIGKILL.
    pub(super) async fn kill(self) {
        self.running.abort();
        // The task ends with a cancellation.
        let _ = self.running.await;
    }

    /// Ends it in order.
    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let ended = self.running.await.context("the server broke off")??;
        if ended.code != Some(0) {
            bail!("the server did not end in order: {}\n{}", ended.ending(), ended.output);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_log_are_told_from_other_lines() {
        for (line, error) in [
            (r#"{"level":"ERROR","message":"a status is given up"}"#, true),
            (r#"{"level":"INFO","message":"ready"}"#, false),
            ("level ERROR", false),
        ] {
            assert_eq!(is_error(line), error, "{line}");
        }
    }
}
