//! Settings: flags, `ATLANTIS_*` and `TIDELOCK_*` variables and the config file, each declared once.
//! The only module that reads the environment.

#[macro_use]
mod declare;

mod access;
mod azure;
mod bucket;
mod check;
mod comments;
#[cfg(test)]
mod deployment_tests;
mod environment;
mod github;
mod github_app;
mod hosts;
mod https;
mod modules;
mod notifications;
mod read;
mod reference;
mod server;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod tfe;
mod typed;
mod without_effect;

use crate::config::permissions::Allowed;
use crate::domain::command::CommandName;
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use typed::Reader;

pub use bucket::BucketAddress;
pub use notifications::{NotificationAddress, NotificationEvent, NotificationReceiver, NotificationSettings};
pub use read::command as command_line;
pub use reference::reference;
pub use server::{AccessSettings, MachineLimits, Settings, StepSettings, VaultSettings};
pub use tfe::TfeSettings;
pub use typed::SettingProblem;

/// How to reach GitHub and who we are there.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GithubSettings {
    /// As in repository ids: without scheme and port.
    pub hostname: String,
    /// `https://api.github.com`, `https://HOST/api/v3`, without trailing slash.
    pub api_url: String,
    /// Of a GitHub App `SLUG[bot]`, or `app/ID` where its slug is not given.
    pub user: String,
    /// Absent with `events-only` alone: what takes deliveries needs none.
    pub token: Option<GithubToken>,
    pub webhook_secret: Option<SecretString>,
    /// Ours: the one before, which is still taken.
    pub previous_webhook_secret: Option<SecretString>,
    /// Ours: most posts in an hour; absent: as many as there are.
    pub posts_per_hour: Option<u32>,
    /// `gh-org`; empty: one's own account.
    pub organization: String,
}

/// How to reach Azure DevOps and who we are there.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct AzureDevopsSettings {
    /// As in repository ids: without scheme, port and path.
    pub hostname: String,
    /// What every address begins with: `https://dev.azure.com`, `https://HOST/tfs`, without trailing slash.
    pub base_url: String,
    pub user: String,
    /// Absent with `events-only` alone.
    pub token: Option<TokenSetting>,
    pub webhook_user: String,
    /// Absent with `allow-unsigned-webhooks` alone.
    pub webhook_password: Option<SecretString>,
    /// Ours: the one before, which is still taken.
    pub previous_webhook_password: Option<SecretString>,
}

/// Certificate and private key for HTTPS on our port.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "ssl-cert-file and ssl-key-file")]
pub struct HttpsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Where the token comes from.
#[derive(Clone)]
#[expect(missing_docs, reason = "the setting for the token, and the one for its file")]
pub enum TokenSetting {
    Value(SecretString),
    /// Read again on every use.
    File(PathBuf),
}

/// Who the server is on GitHub.
#[derive(Clone)]
pub enum GithubToken {
    /// An account, with its token.
    Account(TokenSetting),
    /// A GitHub App.
    App(GithubAppSettings),
}

/// Which GitHub App the server is.
#[derive(Clone)]
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GithubAppSettings {
    pub id: u64,
    pub key: GithubAppKey,
    /// Absent: `gh-app-slug` is not given, and GitHub is asked.
    pub slug: Option<String>,
    /// Absent: the installation of each repository's owner.
    pub installation_id: Option<u64>,
}

/// Where the private key of the GitHub App comes from.
#[derive(Clone)]
#[expect(missing_docs, reason = "gh-app-key and gh-app-key-file")]
pub enum GithubAppKey {
    Value(SecretString),
    /// Read again on every use.
    File(PathBuf),
}

/// Why there are no settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Help was asked for; the text. Not a failure.
    #[error("{0}")]
    Help(String),
    /// What is wrong, one line each. No secret is in it.
    #[error("{0}")]
    Invalid(String),
}

/// Settings that a server may not be able to start with.
pub struct SettingsDraft {
    /// All of them.
    pub settings: Settings,
    /// What is wrong with them.
    pub problems: Vec<SettingProblem>,
    /// The source of each that is given: `--port`, `ATLANTIS_PORT`, `port in /etc/atlantis.yaml`.
    pub given: BTreeMap<&'static str, String>,
}

impl Settings {
    /// Settings from the flags after `server` and from variables; reads the files that they name.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Settings, SettingsError> {
        let SettingsDraft { settings, problems, .. } = Settings::draft(args, env)?;
        typed::none_of(&problems).map(|()| settings)
    }

    /// The same, whatever is wrong with single settings: they have some other value then.
    ///
    /// # Errors
    ///
    /// Flags, variables or a config file of which nothing can be read.
    fn draft(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<SettingsDraft, SettingsError> {
        let mut reader = Reader::new(args, env)?;
        check::beforehand(&mut reader);
        let settings = Settings::read(&mut reader);
        let (values, mut environment, problems) = reader.finish();
        let secrets = values.iter().filter(|(setting, _)| setting.is_secret()).map(|(_, given)| given.value.clone());
        environment.secrets.extend(secrets);
        Ok(SettingsDraft {
            problems,
            given: values.iter().map(|(setting, given)| (setting.name, given.place.clone())).collect(),
            settings: Settings {
                child_env: environment.others.into_iter().collect(),
                secrets: without_duplicates(environment.secrets),
                warnings: environment.warnings,
                ..settings
            },
        })
    }

    /// Settings of this process, for whoever looks at them and starts no server.
    ///
    /// # Errors
    ///
    /// Flags, variables or a config file of which nothing can be read.
    pub fn draft_of_process(args: impl IntoIterator<Item = OsString>) -> Result<SettingsDraft, SettingsError> {
        Settings::draft(args, std::env::vars_os())
    }

    /// The last part of `shutdown_grace`, at most eight seconds: what still runs then is interrupted, later killed, and told.
    pub fn interrupt_time(&self) -> Duration {
        self.shutdown_grace.min(Duration::from_secs(8))
    }

    /// How long one step of a command may run. What changes a state is limited only where a limit was set.
    pub fn step_limit(&self, command: CommandName) -> Duration {
        /// Longer than any apply takes; added to a time, it does not overflow.
        const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);
        match command.changes_state() {
            true => self.apply_timeout.unwrap_or(UNLIMITED),
            false => self.job_timeout,
        }
    }

    /// The rules of `gh-team-allowlist`, where they hold for repositories on this host.
    pub fn team_rules(&self, host: &str) -> Option<Allowed> {
        let is_meant = self.github.as_ref().is_some_and(|github| github.hostname == host);
        let given = is_meant && !self.gh_team_allowlist.is_empty();
        given.then(|| Allowed { users: Vec::new(), teams: self.gh_team_allowlist.clone() })
    }

    /// Settings of this process: its variables, and these flags.
    pub fn from_process(args: impl IntoIterator<Item = OsString>) -> Result<Settings, SettingsError> {
        Settings::load(args, std::env::vars_os())
    }
}

/// This process' variables without those that are settings, for a server that is given all of its settings by us.
pub fn plain_environment() -> Vec<(OsString, OsString)> {
    let is_setting = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("ATLANTIS_") || name.starts_with("TIDELOCK_") || name == "PORT"
    };
    std::env::vars_os().filter(|(name, _)| !is_setting(name)).collect()
}

/// Each secret once, also without white space around it, as it is used.
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
