//! Settings: flags, `ATLANTIS_*` and `TIDELOCK_*` variables and the config file, each declared once.
//! The only module that reads the environment.

#[macro_use]
mod declare;

mod access;
mod addresses;
mod bucket;
mod check;
mod client;
mod comments;
#[cfg(test)]
mod deployment_tests;
mod environment;
pub mod hosts;
mod https;
mod metrics;
mod modules;
mod notifications;
mod poll;
mod read;
mod reference;
mod reread;
mod run_job;
mod server;
mod sign_in;
mod sleep;
mod smtp;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod tfe;
mod traces;
mod typed;
mod without_effect;

use crate::domain::command::CommandName;
use reread::Variables;
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use typed::Reader;

pub use bucket::BucketAddress;
pub use client::{ClientSettings, api_secret};
pub(crate) use client::{IAP_VARIABLE, SERVER_VARIABLE, TOKEN_VARIABLE};
pub(crate) use hosts::is_of_a_host;
pub use metrics::{MetricsLabels, MetricsSettings};
pub use modules::host_of_origin;
pub use notifications::{NotificationAddress, NotificationEvent, NotificationReceiver, NotificationSettings};
pub use read::command as command_line;
pub use reference::reference;
pub use reread::{RereadSettings, ServedRules, SettingsSource};
pub(crate) use run_job::JOB_VARIABLE;
pub use run_job::JobSettings;
pub use server::{AccessSettings, MachineLimits, Settings, SleepSettings, StepSettings, VaultSettings};
pub use sign_in::{DomainSource, GithubOauthSettings, OidcSettings, SignInSettings};
pub use smtp::{SmtpEncryption, SmtpSettings};
pub use tfe::TfeSettings;
pub use traces::TraceSettings;
pub use typed::SettingProblem;

/// Certificate and private key for HTTPS on our port.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "ssl-cert-file and ssl-key-file")]
pub struct HttpsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Source of the token.
#[derive(Clone)]
#[expect(missing_docs, reason = "the setting for the token, and the one for its file")]
pub enum TokenSetting {
    Value(SecretString),
    /// Read again on every use.
    File(PathBuf),
}

/// Reason for which there are no settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Text of requested help. Not a failure.
    #[error("{0}")]
    Help(String),
    /// Mistakes, one per line. They contain no secret.
    #[error("{0}")]
    Invalid(String),
}

/// Settings with which a server may not be able to start.
pub struct SettingsDraft {
    /// All settings.
    pub settings: Settings,
    /// Mistakes in them.
    pub problems: Vec<SettingProblem>,
    /// Source of each setting that is set: `--port`, `ATLANTIS_PORT`, `port in /etc/atlantis.yaml`.
    pub given: BTreeMap<&'static str, String>,
}

impl Settings {
    /// Loads the settings from the flags after `server` and from variables; reads the files that they name.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Settings, SettingsError> {
        let SettingsDraft { settings, problems, .. } = Settings::draft(args, env)?;
        typed::none_of(&problems).map(|()| settings)
    }

    /// Loads like [`Settings::load`], but accepts mistakes in single settings, which have some other value then.
    pub(crate) fn draft(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<SettingsDraft, SettingsError> {
        Settings::draft_from(args.into_iter().collect(), Variables::Given(env.into_iter().collect()))
    }

    fn draft_from(args: Vec<OsString>, variables: Variables) -> Result<SettingsDraft, SettingsError> {
        let reader = Reader::new(args.iter().cloned(), variables.read())?;
        Ok(Settings::of_reader(reader, args, variables))
    }

    fn of_reader(mut reader: Reader, args: Vec<OsString>, variables: Variables) -> SettingsDraft {
        let source = SettingsSource::new(args, variables, &mut reader);
        check::beforehand(&mut reader);
        let settings = Settings::read(&mut reader);
        let (values, mut environment, problems) = reader.finish();
        let secrets = values.iter().filter(|(setting, _)| setting.is_secret()).map(|(_, given)| given.value.clone());
        environment.secrets.extend(secrets);
        let served = ServedRules::default();
        served.set(settings.repo_allowlist.clone());
        SettingsDraft {
            problems,
            given: values.iter().map(|(setting, given)| (setting.name, given.place.clone())).collect(),
            settings: Settings {
                child_env: environment.others.into_iter().collect(),
                secrets: without_duplicates(environment.secrets),
                warnings: environment.warnings,
                source: Some(Arc::new(source)),
                served,
                ..settings
            },
        }
    }

    /// Loads the settings of this process, for commands that only read them and start no server.
    pub fn draft_of_process(args: impl IntoIterator<Item = OsString>) -> Result<SettingsDraft, SettingsError> {
        Settings::draft_from(args.into_iter().collect(), Variables::OfProcess)
    }

    /// Returns the last part of `shutdown_grace`, at most eight seconds: work that still runs then is interrupted, later killed, and
    /// reported.
    pub fn interrupt_time(&self) -> Duration {
        self.shutdown_grace.min(Duration::from_secs(8))
    }

    /// Returns the time limit of one step of a command. Steps that change a state are limited only if a limit was set.
    pub fn step_limit(&self, command: CommandName) -> Duration {
        /// Longer than any apply takes; added to a time, it does not overflow.
        const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);
        match command.changes_state() {
            true => self.apply_timeout.unwrap_or(UNLIMITED),
            false => self.job_timeout,
        }
    }

    /// Loads the settings of this process: its variables, and these flags.
    pub fn from_process(args: impl IntoIterator<Item = OsString>) -> Result<Settings, SettingsError> {
        let SettingsDraft { settings, problems, .. } = Settings::draft_of_process(args)?;
        typed::none_of(&problems).map(|()| settings)
    }
}

/// Returns this process' variables without those that are settings, for a server that gets all of its settings from us.
pub fn plain_environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !is_setting(name)).collect()
}

/// Returns the names of this process' variables that are settings, sorted.
pub(crate) fn variables_of_settings() -> Vec<String> {
    let mut names: Vec<String> = std::env::vars_os()
        .filter(|(name, _)| is_setting(name))
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

fn is_setting(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("ATLANTIS_") || name.starts_with("TIDELOCK_") || name == "PORT"
}

/// Returns each secret once, and also without white space around it, as it is used.
fn without_duplicates(secrets: Vec<SecretString>) -> Vec<SecretString> {
    let mut kept: Vec<SecretString> = Vec::new();
    for secret in &secrets {
        for text in [secret.expose_secret(), secret.expose_secret().trim()] {
            if !text.is_empty() && kept.iter().all(|kept| kept.expose_secret() != text) {
                kept.push(text.into());
            }
        }
    }
    kept
}
