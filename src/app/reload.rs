//! Reads the configuration again when its files change, or on SIGHUP, whatever the server's role. A configuration with a mistake changes
//! nothing: the one before stays in effect, and `/status`, metrics, the log and the overview say so.

use super::bucket;
use super::comment_templates::is_template;
use super::configuration::{NextConfiguration, ServerConfiguration};
use super::file_stamp::{FileStamp, file_stamp};
use super::services::Parts;
use crate::dispatch::Handle;
use crate::domain::state::AuditEntry;
use crate::process::Redactor;
use crate::server_status::{ConfigurationFault, ConfigurationStatus, ServerStatus};
use crate::settings::Settings;
use crate::vault::lease::PresentFingerprint;
use anyhow::{Context as _, Error, Result, anyhow};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Interval between two looks at the files. A change takes effect when two looks in a row have found the same, so that a file that is being
/// written is not read.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Most files of a directory that are looked at.
const MAX_LISTED: usize = 10_000;
/// Most names of changes in one entry of the audit log.
const MAX_RECORDED: usize = 50;
/// Longest error on the overview and in the log, in characters.
const MAX_ERROR: usize = 2000;
/// Time limit of reading all files: a network disk may not answer.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// Versions of the files; absent for what cannot be looked at.
pub(super) type Stamps = BTreeMap<PathBuf, Option<FileStamp>>;

/// Cause of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// The files may have changed. They are read if they have, and have settled.
    Look,
    /// The server is about to lead. The files are read if they have changed.
    Lead,
    /// SIGHUP. The files are read in any case.
    Signal,
}

/// Files at the last looks.
struct SeenFiles {
    /// Those that were read last.
    read: Stamps,
    /// Those of the last look.
    last: Stamps,
    /// A reading that took longer than [`READ_LIMIT`]. No other one begins before its end.
    stuck: Option<AbortHandle>,
}

impl SeenFiles {
    /// Runs work on the files; an error if it does not end in time, an earlier one has not ended, or it panics.
    async fn within_limit<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let slow = || anyhow!("the files could not be read within {READ_LIMIT:?}: look at the disk that they are on");
        if self.stuck.as_ref().is_some_and(|stuck| !stuck.is_finished()) {
            return Err(slow());
        }
        let mut working = tokio::task::spawn_blocking(work);
        match timeout(READ_LIMIT, &mut working).await {
            Ok(ended) => ended.context("a fault of Tidelock ended the reading: report it, with the panic in the log"),
            Err(_) => {
                self.stuck = Some(working.abort_handle());
                Err(slow())
            }
        }
    }
}

/// Reads the configuration again.
pub(super) struct Reloader {
    parts: Arc<Parts>,
    fingerprint: PresentFingerprint,
    server_status: watch::Receiver<Arc<ServerStatus>>,
    told: watch::Sender<Arc<ConfigurationStatus>>,
    /// Locked while files are looked at and read.
    seen: Mutex<SeenFiles>,
    /// Names of changes that the audit log lacks. Locked, for moments only, while the configuration is replaced.
    unrecorded: std::sync::Mutex<BTreeSet<String>>,
    /// The same, once somebody has begun to record them.
    recording: Mutex<BTreeSet<String>>,
    asked: Notify,
}

impl Reloader {
    /// Makes one for parts that were read when the files had these versions.
    pub(super) fn new(
        parts: Arc<Parts>,
        seen: Stamps,
        fingerprint: PresentFingerprint,
        server_status: watch::Receiver<Arc<ServerStatus>>,
    ) -> Arc<Reloader> {
        let seen = SeenFiles { read: seen.clone(), last: seen, stuck: None };
        let told = watch::Sender::new(Arc::new(ConfigurationStatus::starting()));
        let (unrecorded, recording) = (std::sync::Mutex::default(), Mutex::default());
        let (seen, asked) = (Mutex::new(seen), Notify::new());
        Arc::new(Reloader { parts, fingerprint, server_status, told, seen, unrecorded, recording, asked })
    }

    /// Returns the status for pages and metrics.
    pub(super) fn status(&self) -> watch::Receiver<Arc<ConfigurationStatus>> {
        self.told.subscribe()
    }

    /// Has the configuration read again at once.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Looks at the files at intervals, and whenever it is asked, until the server stops.
    pub(super) async fn run(self: Arc<Reloader>, stop: CancellationToken) {
        loop {
            let cause = tokio::select! {
                () = stop.cancelled() => return,
                () = self.asked.notified() => ReloadCause::Signal,
                () = tokio::time::sleep(LOOK_INTERVAL) => ReloadCause::Look,
            };
            self.look(cause).await;
        }
    }

    /// Reads the configuration again if its cause asks for that. Returns when the new one is in effect.
    pub(super) async fn look(&self, cause: ReloadCause) {
        let is_changed = {
            let mut seen = self.seen.lock().await;
            match self.read(&mut seen, cause).await {
                Ok(None) => false,
                // Before the next reading begins, so that none overtakes another.
                Ok(Some(next)) => self.apply(next, cause),
                Err(error) => {
                    self.refuse(&error, cause);
                    false
                }
            }
        };
        let services = self.server_status.borrow().services.clone();
        if let Some(services) = services.filter(|_| is_changed) {
            self.record_with(&services.dispatch).await;
        }
    }

    /// Reads the files; absent if they need not be read, or change at the moment.
    async fn read(&self, seen: &mut SeenFiles, cause: ReloadCause) -> Result<Option<NextConfiguration>> {
        let parts = Arc::clone(&self.parts);
        // Files that cannot be read in time are read at the next look.
        let now = seen.within_limit(move || stamps(&parts.now().settings)).await.inspect_err(|_| seen.read.clear())?;
        let is_settled = std::mem::replace(&mut seen.last, now.clone()) == now;
        let is_due = match cause {
            ReloadCause::Look => is_settled && now != seen.read,
            ReloadCause::Lead => now != seen.read,
            ReloadCause::Signal => true,
        };
        if !is_due {
            return Ok(None);
        }
        let parts = Arc::clone(&self.parts);
        let reading = seen.within_limit(move || (parts.read_again(), stamps(&parts.now().settings))).await;
        let (read, after) = reading.inspect_err(|_| seen.read.clear())?;
        if after != now {
            // The next look finds them settled, or another version.
            if cause == ReloadCause::Signal {
                tracing::info!(
                    "SIGHUP: the files changed while they were read, and are read again when they have settled"
                );
            }
            return Ok(None);
        }
        seen.read = now;
        read.map(Some)
    }

    /// Puts a configuration into effect. Returns true if the audit log lacks something.
    fn apply(&self, next: NextConfiguration, cause: ReloadCause) -> bool {
        let NextConfiguration { configuration, changed, needs_restart } = next;
        let was_told = Arc::clone(&self.told.borrow());
        if needs_restart != was_told.needs_restart && !needs_restart.is_empty() {
            tracing::warn!(
                "the configuration has changes that need a restart of the server: {}",
                needs_restart.join(", ")
            );
        }
        if !changed.is_empty() {
            let before = Arc::clone(&self.parts.now().settings);
            let warnings = configuration.settings.warnings.iter().filter(|warning| !before.warnings.contains(warning));
            warnings.for_each(|warning| tracing::warn!("{warning}"));
            configuration.warn();
        }
        self.replace(configuration, &changed);
        if !changed.is_empty() {
            let names = changed.join(", ");
            tracing::info!(changed = names, "the configuration was read again, and is in effect for what begins now");
        } else if was_told.fault.is_some() {
            tracing::info!("the configuration is correct again, as it was before");
        } else if cause == ReloadCause::Signal {
            tracing::info!("SIGHUP: the configuration was read again, and nothing in it has changed");
        }
        self.told.send_replace(Arc::new(ConfigurationStatus { read: Timestamp::now(), fault: None, needs_restart }));
        !changed.is_empty()
    }

    /// Replaces the configuration, also where its differences have no names: a value may be written in another way.
    fn replace(&self, configuration: ServerConfiguration, changed: &[String]) {
        let mut unrecorded = self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner);
        configuration.settings.served.set(configuration.settings.repo_allowlist.clone());
        self.fingerprint.set(bucket::settings_fingerprint(&configuration.settings));
        self.parts.set(configuration);
        let services = self.server_status.borrow().services.clone();
        if let Some(services) = services {
            services.dispatch.configure(self.parts.configuration());
        }
        unrecorded.extend(changed.iter().cloned());
    }

    /// Gives services that have just become visible the present configuration: it may have changed while they were started.
    pub(super) fn configure(&self, dispatch: &Handle) {
        let _unrecorded = self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner);
        dispatch.configure(self.parts.configuration());
    }

    /// Records changes that were read while this server had no services.
    pub(super) async fn record(self: Arc<Reloader>, dispatch: Handle) {
        self.record_with(&dispatch).await;
    }

    /// Records what the audit log lacks. What cannot be recorded waits for the next time.
    async fn record_with(&self, dispatch: &Handle) {
        let mut names = self.recording.lock().await;
        names.append(&mut self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner));
        if names.is_empty() {
            return;
        }
        match dispatch.record_audit(entry(&names)).await {
            Ok(()) => names.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the audit log lacks an entry on the configuration that was read again");
            }
        }
    }

    /// Tells of a configuration with a mistake.
    fn refuse(&self, error: &Error, cause: ReloadCause) {
        let redacted = Redactor::new(self.parts.settings.secrets.clone()).redact(&format!("{error:#}"));
        let error: String = redacted.chars().take(MAX_ERROR).collect();
        let is_new = self.told.borrow().fault.as_ref().is_none_or(|fault| fault.error != error);
        if is_new || cause == ReloadCause::Signal {
            tracing::error!(
                error,
                "the configuration was read again and has a mistake: the one before stays in effect"
            );
        }
        self.told.send_modify(|told| {
            let since = told.fault.as_ref().map_or_else(Timestamp::now, |fault| fault.since);
            let fault = Some(ConfigurationFault { since, error });
            *told = Arc::new(ConfigurationStatus { fault, ..(**told).clone() });
        });
    }
}

/// Returns the entry of the audit log on a configuration with these names of changes.
fn entry(names: &BTreeSet<String>) -> AuditEntry {
    let mut shown: Vec<String> = names.iter().take(MAX_RECORDED).cloned().collect();
    if names.len() > MAX_RECORDED {
        shown.push(format!("{} more", names.len() - MAX_RECORDED));
    }
    AuditEntry {
        at: Timestamp::now(),
        who: "tidelock".to_owned(),
        act: "reload".to_owned(),
        subject: "configuration".to_owned(),
        result: format!("in effect: {}", shown.join(", ")),
        ..AuditEntry::default()
    }
}

/// Returns the versions of the files of the configuration, and of the templates. Blocks.
pub(super) fn stamps(settings: &Settings) -> Stamps {
    let mut stamps: Stamps = settings.watched_files().map(|path| (path.to_owned(), file_stamp(path))).collect();
    if let Some(dir) = settings.watched_templates() {
        // Other files of the directory change its times, so only its existence counts.
        stamps.insert(dir.to_owned(), dir.is_dir().then_some(FileStamp::default()));
        let entries = std::fs::read_dir(dir).into_iter().flatten().take(MAX_LISTED).filter_map(Result::ok);
        let templates = entries.filter(|entry| is_template(&entry.file_name().to_string_lossy()));
        stamps.extend(templates.map(|entry| (entry.path(), file_stamp(&entry.path()))));
    }
    stamps
}
