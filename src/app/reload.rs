//! Reads the configuration again when its files change, or on SIGHUP, whatever the server's role. A configuration with a mistake changes
//! nothing: the one before stays in effect, and `/status`, metrics, the log and the overview say so.

use super::bucket;
use super::configuration::NextConfiguration;
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
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Interval between two looks at the files. A change takes effect when two looks in a row have found the same, so that a file that is being
/// written is not read.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Most files of a directory that are looked at.
const MAX_LISTED: usize = 1000;
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
    /// Those whose configuration is in effect.
    in_effect: Stamps,
    /// Those of the last look.
    last: Stamps,
    /// A reading that took longer than [`READ_LIMIT`]. No other one begins before its end.
    stuck: Option<AbortHandle>,
}

impl SeenFiles {
    /// Runs work on the files; absent if it does not end in time, or an earlier one has not ended.
    async fn within_limit<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.stuck.as_ref().is_some_and(|stuck| !stuck.is_finished()) {
            return None;
        }
        let mut working = tokio::task::spawn_blocking(work);
        match timeout(READ_LIMIT, &mut working).await {
            Ok(ended) => ended.ok(),
            Err(_) => {
                self.stuck = Some(working.abort_handle());
                None
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
    /// Locked while the configuration changes.
    seen: Mutex<SeenFiles>,
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
        let seen = SeenFiles { read: seen.clone(), in_effect: seen.clone(), last: seen, stuck: None };
        let told = watch::Sender::new(Arc::new(ConfigurationStatus::starting()));
        Arc::new(Reloader { parts, fingerprint, server_status, told, seen: Mutex::new(seen), asked: Notify::new() })
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
        let mut seen = self.seen.lock().await;
        let parts = Arc::clone(&self.parts);
        let Some(now) = seen.within_limit(move || stamps(&parts.now().settings)).await else {
            return self.refuse_unread(&mut seen);
        };
        let is_settled = std::mem::replace(&mut seen.last, now.clone()) == now;
        let is_due = match cause {
            ReloadCause::Look => is_settled && now != seen.read,
            ReloadCause::Lead => now != seen.read,
            ReloadCause::Signal => true,
        };
        if !is_due {
            return;
        }
        let parts = Arc::clone(&self.parts);
        let reading = seen.within_limit(move || (parts.read_again(), stamps(&parts.now().settings))).await;
        let Some((read, after)) = reading else { return self.refuse_unread(&mut seen) };
        if after != now {
            // They changed while they were read: the next look finds them settled, or another version.
            return;
        }
        seen.read.clone_from(&now);
        match read {
            Ok(mut next) => {
                if self.template_stamps(&now) != self.template_stamps(&seen.in_effect) {
                    next.changed.push("comment templates".to_owned());
                }
                seen.in_effect = now;
                self.apply(next).await;
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn template_stamps<'a>(&self, all: &'a Stamps) -> Vec<(&'a PathBuf, &'a Option<FileStamp>)> {
        let now = self.parts.now();
        let Some(dir) = &now.settings.markdown_template_overrides_dir else { return Vec::new() };
        all.iter().filter(|(path, _)| path.starts_with(dir)).collect()
    }

    async fn apply(&self, next: NextConfiguration) {
        let NextConfiguration { configuration, changed, needs_restart } = next;
        let was_told = self.told.borrow().needs_restart.clone();
        if needs_restart != was_told && !needs_restart.is_empty() {
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
            configuration.settings.served.set(configuration.settings.repo_allowlist.clone());
            self.fingerprint.set(bucket::settings_fingerprint(&configuration.settings));
            self.parts.set(configuration);
            let names = changed.join(", ");
            tracing::info!(changed = names, "the configuration was read again, and is in effect for what begins now");
            let services = self.server_status.borrow().services.clone();
            if let Some(services) = services {
                let configured = services.dispatch.configure(self.parts.configuration(), Some(entry(names))).await;
                if let Err(error) = configured {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the audit log lacks an entry on the configuration that was read again");
                }
            }
        } else if self.told.borrow().fault.is_some() {
            tracing::info!("the configuration is correct again, as it was before");
        }
        self.told.send_replace(Arc::new(ConfigurationStatus { read: Timestamp::now(), fault: None, needs_restart }));
    }

    /// Tells of files that could not be read in time. The next look reads them.
    fn refuse_unread(&self, seen: &mut SeenFiles) {
        seen.read.clear();
        self.refuse(&anyhow!("the files could not be read within {READ_LIMIT:?}: look at the disk that they are on"));
    }

    /// Tells of a configuration with a mistake.
    fn refuse(&self, error: &Error) {
        let redacted = Redactor::new(self.parts.settings.secrets.clone()).redact(&format!("{error:#}"));
        let error: String = redacted.chars().take(MAX_ERROR).collect();
        if self.told.borrow().fault.as_ref().is_none_or(|fault| fault.error != error) {
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

    /// Gives services that have just become visible the present configuration: it may have changed while they were started.
    pub(super) async fn configure(&self, dispatch: &Handle) -> Result<()> {
        let _seen = self.seen.lock().await;
        dispatch.configure(self.parts.configuration(), None).await.context("the configuration")
    }
}

/// Returns the entry of the audit log on a configuration with these names of changes.
fn entry(names: String) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        who: "tidelock".to_owned(),
        act: "reload".to_owned(),
        subject: "configuration".to_owned(),
        result: format!("in effect: {names}"),
        ..AuditEntry::default()
    }
}

/// Returns the versions of the files of the configuration, and of those in the directory of templates. Blocks.
pub(super) fn stamps(settings: &Settings) -> Stamps {
    let mut stamps = Stamps::new();
    let mut add = |path: &Path| {
        stamps.insert(path.to_owned(), file_stamp(path));
    };
    settings.watched_files().for_each(&mut add);
    if let Some(dir) = &settings.markdown_template_overrides_dir {
        add(dir);
        let entries = std::fs::read_dir(dir).into_iter().flatten().take(MAX_LISTED).filter_map(Result::ok);
        entries.for_each(|entry| add(&entry.path()));
    }
    stamps
}
