//! Settings: flags, `ATLANTIS_*` and `TIDELOCK_*` variables and the config file, each declared once.
//! The only module that reads the environment.

mod access;
mod assemble;
mod bucket;
mod check;
#[cfg(test)]
mod deployment_tests;
mod environment;
mod hosts;
mod read;
mod reference;
mod table;
#[cfg(test)]
mod tests;
mod typed;

use crate::checkout::Strategy;
use crate::config::global::AutodiscoverMode;
use crate::domain::Distribution;
use crate::domain::command::CommandName;
use crate::process::RunAs;
use environment::Environment;
use read::Values;
use secrecy::{ExposeSecret, SecretString};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use typed::Reader;

pub use read::command as command_line;
pub use reference::reference;

/// All settings of `tidelock server`, typed and checked.
#[expect(missing_docs, reason = "each field is the setting of that name; the table documents it")]
pub struct Settings {
    pub access: AccessSettings,
    pub allow_commands: Vec<CommandName>,
    pub allow_draft_prs: bool,
    pub allow_fork_prs: bool,
    /// Ours: pages and API without a login, off loopback.
    pub allow_unauthenticated_pages: bool,
    /// Ours: start without a webhook secret; anyone who reaches the port can then run commands.
    pub allow_unsigned_webhooks: bool,
    pub api_secret: Option<SecretString>,
    /// Ours: an approval counts only if it was given for the present head.
    pub approval_of_head: bool,
    /// Without trailing slash.
    pub atlantis_url: String,
    pub autodiscover_mode: AutodiscoverMode,
    pub autoplan_file_list: Vec<String>,
    /// Resolved with `autoplan-modules`; empty: off.
    pub autoplan_modules_from_projects: Vec<String>,
    /// Ours: address to listen on, `0.0.0.0` by default.
    pub bind: IpAddr,
    pub blocked_extra_args: Vec<String>,
    pub checkout_strategy: Strategy,
    /// Lines of the log are as Cloud Logging reads them, with traces of that project where one is named.
    pub cloud_logging: Option<Option<String>>,
    pub data_dir: PathBuf,
    pub default_tf_distribution: Distribution,
    pub default_tf_version: Option<String>,
    pub disable_apply_all: bool,
    pub disable_autoplan: bool,
    pub disable_autoplan_label: Option<String>,
    pub disable_global_apply_lock: bool,
    pub disable_markdown_folding: bool,
    pub disable_repo_locking: bool,
    pub disable_unlock_label: Option<String>,
    /// `eyes` by default (Atlantis: none); empty: none.
    pub emoji_reaction: Option<String>,
    pub enable_diff_markdown_format: bool,
    pub enable_regexp_cmd: bool,
    /// First words that we answer to: `atlantis` and `tidelock` until `--executable-name` says otherwise.
    pub executable_names: Vec<String>,
    pub fail_on_pre_workflow_hook_error: bool,
    /// Base of the API: from `gh-hostname`; `http://` only for loopback.
    pub github: Option<GithubSettings>,
    pub hide_unchanged_plan_comments: bool,
    pub include_git_untracked_files: bool,
    /// Ours: how long a step may run; 0 means the default of 60 minutes.
    pub job_timeout: Duration,
    pub log_level: String,
    pub max_comments_per_command: u32,
    /// Ours: what work may take of the machine.
    pub limits: Limits,
    pub parallel_apply: bool,
    pub parallel_plan: bool,
    /// Most jobs of one command at the same time; the machine's load decides how many of them really run.
    pub parallel_pool_size: usize,
    /// Ours: names of variables of the server's environment that steps and Terraform do not get, besides our own secrets.
    pub masked_variables: Vec<String>,
    pub port: u16,
    pub repo_allowlist: Vec<String>,
    /// Path and text of `repo-config`, or of `repo-config-json`.
    pub repo_config: Option<(String, String)>,
    pub restrict_file_list: bool,
    /// Ours: user and group for steps, Terraform and hooks.
    pub run_as_user: Option<RunAs>,
    pub silence_allowlist_errors: Option<bool>,
    pub silence_fork_pr_errors: bool,
    pub silence_no_projects: bool,
    pub silence_vcs_status_no_plans: bool,
    pub silence_vcs_status_no_projects: bool,
    /// Ours: the time for a running apply after SIGTERM.
    pub shutdown_grace: Duration,
    /// Ours: a sparse tree with only what the planned projects need.
    pub sparse_checkout: bool,
    /// Ours: between two looks at the host for what was missed.
    pub reconcile_interval: Duration,
    /// Ours: plan pull requests of which no delivery ever came.
    pub reconcile_unknown: bool,
    pub tf_download: bool,
    pub tf_download_url: String,
    /// Ours: same for OpenTofu.
    pub tofu_download_url: String,
    /// Ours: accept releases without a signature.
    pub tf_download_allow_unsigned: bool,
    pub use_tf_plugin_cache: bool,
    pub var_file_allowlist: Vec<PathBuf>,
    pub vault: VaultSettings,
    pub vcs_status_name: String,
    /// User and password, if `web-basic-auth` is on.
    pub web_basic_auth: Option<(String, SecretString)>,
    /// The environment that children get: the server's own without secrets (every `*TOKEN*`, `*SECRET*`, `*PASSWORD*`, `*KEY*`
    /// setting of ours, and `masked_variables`).
    pub child_env: Vec<(String, String)>,
    /// Values to mask in every stream.
    pub secrets: Vec<SecretString>,
    /// For the operator, to be logged at the start: unknown variables, accepted but not yet effective settings, …
    pub warnings: Vec<String>,
}

/// Settings of who may reach what; all are ours.
#[derive(Debug, Clone, Default)]
pub struct AccessSettings {
    /// Audiences of Identity-Aware Proxy's assertions; empty: it is not used.
    pub iap_audience: Vec<String>,
    /// For tests: where the keys of these assertions are.
    pub iap_keys_url: Option<String>,
    /// How many proxies add an address to `X-Forwarded-For`.
    pub trusted_proxy_hops: u8,
    /// Who may call `/events`: words and ranges; empty: everybody.
    pub webhook_allowlist: Vec<String>,
    /// Where the ranges of `github` are published; absent: nowhere.
    pub github_meta_url: Option<String>,
    /// Take deliveries for the server that leads, and do nothing else.
    pub events_only: bool,
    /// Emails, and domains with or without `@` before them, lower case; empty: everybody who is let in.
    pub admins: Vec<String>,
}

/// What work may take of the machine; all are ours.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// No plan begins while more than this part of the container's memory is in use, in percent; 0: never mind.
    pub max_memory_percent: u64,
    /// Most mebibytes in the data directory; 0: what its file system has.
    pub scratch_quota_mib: u64,
}

/// Settings of the vault; all are ours.
#[derive(Debug, Clone)]
pub struct VaultSettings {
    /// Where all state is kept.
    pub bucket: BucketAddress,
    /// Lead although the fingerprint of the last leader differs.
    pub force_takeover: bool,
    /// How long every state in the bucket stays restorable.
    pub keep: Duration,
    /// How many of the last states do, whatever their age.
    pub keep_states: u64,
    /// How long a lease is good without renewal.
    pub lease_ttl: Duration,
    /// Between two commits of what nobody waits for.
    pub sync_interval: Duration,
}

/// Where the vault lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketAddress {
    /// In a directory of this machine, absolute.
    Directory(PathBuf),
    /// In a bucket of Cloud Storage.
    CloudStorage {
        /// The bucket.
        name: String,
        /// Segments joined by `/`, without slashes around them; may be empty.
        prefix: String,
        /// A double of the service on this machine, in its place.
        endpoint: Option<String>,
    },
}

/// How to reach GitHub and who we are there.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GithubSettings {
    /// As in repository ids: without scheme and port.
    pub hostname: String,
    /// `https://api.github.com`, `https://HOST/api/v3`, without trailing slash.
    pub api_url: String,
    pub user: String,
    /// Absent with `events-only` alone: what takes deliveries needs none.
    pub token: Option<GithubToken>,
    pub webhook_secret: Option<SecretString>,
    /// Ours: the one before, which is still taken.
    pub previous_webhook_secret: Option<SecretString>,
    /// Ours: most posts in an hour; absent: as many as there are.
    pub posts_per_hour: Option<u32>,
}

/// Where the token comes from.
#[derive(Clone)]
#[expect(missing_docs, reason = "gh-token and gh-token-file")]
pub enum GithubToken {
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

impl Settings {
    /// Settings from the flags after `server` and from variables; reads the files that they name.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Settings, SettingsError> {
        let environment = Environment::new(env)?;
        let values = Values::read(args, &environment)?;
        let mut reader = Reader { values, environment, problems: Vec::new(), warnings: Vec::new() };
        reader.check_effects();
        let settings = assemble::settings(&mut reader);
        let Reader { values, mut environment, problems, warnings } = reader;
        if !problems.is_empty() {
            return Err(SettingsError::Invalid(problems.join("\n")));
        }
        let given = values.iter().filter(|(setting, _)| setting.is_secret()).map(|(_, given)| given.value.clone());
        environment.secrets.extend(given);
        environment.warnings.extend(warnings);
        Ok(Settings {
            child_env: environment.others.into_iter().collect(),
            secrets: without_duplicates(environment.secrets),
            warnings: environment.warnings,
            ..settings
        })
    }

    /// The last part of `shutdown_grace`, at most eight seconds: what still runs then is interrupted, later killed, and told.
    pub fn interrupt_time(&self) -> Duration {
        self.shutdown_grace.min(Duration::from_secs(8))
    }

    /// Settings of this process: its variables, and these flags.
    pub fn from_process(args: impl IntoIterator<Item = OsString>) -> Result<Settings, SettingsError> {
        Settings::load(args, std::env::vars_os())
    }
}

impl BucketAddress {
    /// The bucket that a server with these flags (`--bucket`, `--data-dir`, `--config`) and variables would use.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<BucketAddress, SettingsError> {
        let environment = Environment::new(env)?;
        let values = Values::read(args, &environment)?;
        let mut reader = Reader { values, environment, problems: Vec::new(), warnings: Vec::new() };
        let data_dir = reader.path("data-dir").unwrap_or_default();
        let address = bucket::address(&mut reader, &data_dir);
        if reader.problems.is_empty() { Ok(address) } else { Err(SettingsError::Invalid(reader.problems.join("\n"))) }
    }

    /// The same with this process' variables.
    pub fn from_process(args: impl IntoIterator<Item = OsString>) -> Result<BucketAddress, SettingsError> {
        BucketAddress::load(args, std::env::vars_os())
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
