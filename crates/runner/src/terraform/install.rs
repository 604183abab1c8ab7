//! Chooses a version, finds its binary on `PATH` or in the cache, and downloads it with checksum and signature checks.

mod conftest;
mod constraint;
mod download;
mod idle;
mod signature;
mod terragrunt;
#[cfg(test)]
mod tests;

use crate::process::{self, Invocation, Redactor, find_on_path};
use anyhow::{Context, anyhow, bail, ensure};
use constraint::{Constraint, lenient};
use download::Downloads;
use semver::Version;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
pub use terragrunt::Terragrunt;
use tidelock_core::domain::Distribution;
use tokio_util::sync::CancellationToken;

/// HashiCorp's release server: the default of `--tf-download-url`.
pub const TERRAFORM_RELEASES: &str = "https://releases.hashicorp.com";
/// OpenTofu's release server. Other servers have the list of versions at `<url>/api.json` and releases at
/// `<url>/v<version>/`.
pub const OPENTOFU_RELEASES: &str = "https://github.com/opentofu/opentofu/releases/download";

/// Timeout of a query for a version, and most bytes of its output.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const VERSION_OUTPUT: usize = 64 << 10;
/// Texts before the version in the output of each program.
const SAYS_VERSION: [&str; 4] = ["Terraform v", "OpenTofu v", "terragrunt version ", "Conftest: "];
/// Time for which a release server's list of versions is reused.
const LIST_AGE: Duration = Duration::from_secs(600);

/// Sources of binaries.
pub struct InstallSettings {
    /// Data directory. Downloads go to `<data-dir>/bin`.
    pub data_dir: PathBuf,
    /// `--tf-download`.
    pub download: bool,
    /// `--tf-download-url`, for Terraform.
    pub terraform_url: String,
    /// The same for OpenTofu.
    pub opentofu_url: String,
    /// True to accept a release server without signatures (checksums are still checked).
    pub allow_unsigned: bool,
    /// `--default-tf-version`.
    pub default_version: Option<String>,
    /// `--default-tf-distribution`.
    pub default_distribution: Distribution,
    /// `PATH` that is searched.
    pub path: String,
    /// Masks secrets in messages.
    pub redactor: Redactor,
    /// Armored public keys that replace HashiCorp's and OpenTofu's.
    pub keys: Option<Vec<String>>,
}

impl InstallSettings {
    fn base_url(&self, which: Distribution) -> &str {
        match which {
            Distribution::Terraform => self.terraform_url.trim_end_matches('/'),
            Distribution::OpenTofu => self.opentofu_url.trim_end_matches('/'),
        }
    }
}

/// A binary that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The binary.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// The distribution.
    pub distribution: Distribution,
    /// Terragrunt that runs the binary; absent if the binary is run directly.
    pub terragrunt: Option<Terragrunt>,
}

impl Tool {
    fn new(distribution: Distribution, version: Version, path: PathBuf) -> Tool {
        Tool { path, version, distribution, terragrunt: None }
    }

    /// Returns the name of the program that is run, for people.
    pub fn name(&self) -> &'static str {
        if self.terragrunt.is_some() { "terragrunt" } else { self.distribution.binary() }
    }
}

impl std::fmt::Display for Tool {
    /// Formats as `terraform 1.11.4`, as plans record it, or `terraform 1.11.4 by terragrunt 0.99.1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.distribution.binary(), self.version)?;
        self.terragrunt.iter().try_for_each(|terragrunt| write!(f, " by terragrunt {}", terragrunt.version))
    }
}

/// The version that a project requests.
#[derive(Debug, Clone, Default)]
pub struct ToolRequest {
    /// `terraform_version` of the repo config.
    pub version: Option<String>,
    /// `terraform_distribution` of the repo config.
    pub distribution: Option<Distribution>,
    /// `required_version` constraints found in the project's files.
    pub required: Vec<String>,
    /// True if Terragrunt runs it.
    pub terragrunt: bool,
    /// `terragrunt_version`.
    pub terragrunt_version: Option<String>,
}

/// Finds and downloads binaries. Results are cached by path, size and modification time, so that each binary is queried for its version
/// only once.
pub struct Installer {
    settings: InstallSettings,
    downloads: Downloads,
    answers: Mutex<HashMap<PathBuf, (Stamp, Version)>>,
    lists: Mutex<HashMap<Distribution, VersionList>>,
    /// Allows one query of a binary, list or download at a time. Other callers wait and use its result.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Read-locked by users of binaries, which must not be removed meanwhile.
    in_use: Arc<tokio::sync::RwLock<()>>,
}

/// Versions of a release server, with the time of the list.
type VersionList = (Instant, Arc<Vec<Version>>);

/// Size and time of a file; equal for an unchanged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
}

impl Installer {
    /// Returns an installer, without searching anything yet.
    pub fn new(settings: InstallSettings) -> Installer {
        let (answers, lists, turns) = (Mutex::default(), Mutex::default(), Mutex::default());
        Installer { settings, downloads: Downloads::default(), answers, lists, turns, in_use: Arc::default() }
    }

    /// Returns the binary for a project. In this order: the project's own version, one that its `required_version` allows,
    /// `--default-tf-version`, the one on `PATH`, or the newest of a distribution that is not the default. Includes Terragrunt if it is
    /// requested. The error is for users and says what to do.
    pub async fn resolve(&self, wanted: &ToolRequest) -> anyhow::Result<Tool> {
        let tool = self.binary(wanted).await?;
        let terragrunt = match wanted.terragrunt {
            true => Some(self.terragrunt(wanted.terragrunt_version.as_deref()).await?),
            false => None,
        };
        Ok(Tool { terragrunt, ..tool })
    }

    async fn binary(&self, wanted: &ToolRequest) -> anyhow::Result<Tool> {
        let which = wanted.distribution.unwrap_or(self.settings.default_distribution);
        if let Some(text) = &wanted.version {
            let constraint = Constraint::parse(text).context("terraform_version of the project")?;
            return self.constrained(which, &constraint, text).await;
        }
        let required: Vec<&str> =
            wanted.required.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        if !required.is_empty() {
            let text = required.join(", ");
            let constraint = Constraint::parse(&text).context("required_version of the project")?;
            return self.constrained(which, &constraint, &text).await;
        }
        match self.default_of(which).await {
            Err(_) if which != self.settings.default_distribution => self.newest(which).await,
            default => default,
        }
    }

    /// Returns the version that a constraint names, or the newest one that it allows.
    async fn constrained(&self, which: Distribution, constraint: &Constraint, text: &str) -> anyhow::Result<Tool> {
        match constraint.exact().filter(|version| constraint.allows(version)) {
            Some(version) => self.exact(which, &version.clone()).await,
            None => self.satisfying(which, constraint, text).await,
        }
    }

    /// Returns true if a version that is not installed may be downloaded.
    pub fn downloads(&self) -> bool {
        self.settings.download
    }

    /// Returns the default binary: `--default-tf-version`, otherwise the one on `PATH`.
    pub async fn default_tool(&self) -> anyhow::Result<Tool> {
        self.resolve(&ToolRequest::default()).await
    }

    async fn default_of(&self, which: Distribution) -> anyhow::Result<Tool> {
        // The default version belongs to the default distribution.
        let version = self.settings.default_version.as_ref().filter(|_| which == self.settings.default_distribution);
        if let Some(text) = version {
            let (version, _) = lenient(text.trim()).context("--default-tf-version")?;
            return self.exact(which, &version).await;
        }
        let name = which.binary();
        let path = find_on_path(&self.settings.path, Path::new(name)).with_context(|| {
            format!(
                "there is no {name} on the server's PATH ({}); install it there, or set --default-tf-version",
                self.settings.path
            )
        })?;
        let version = self.version_of(&path).await?;
        Ok(Tool::new(which, version, path))
    }

    /// Returns the newest release, or the newest installed version if releases are not listed. Used for a distribution without a default.
    async fn newest(&self, which: Distribution) -> anyhow::Result<Tool> {
        let newest = |versions: &[Version]| versions.iter().filter(|version| version.pre.is_empty()).max().cloned();
        let mut released = None;
        if self.settings.download {
            match self.released(which).await {
                Ok(versions) => released = newest(&versions),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "releases cannot be listed; taking what is installed");
                }
            }
        }
        let found = match released {
            Some(version) => Some(version),
            None => newest(&self.installed(which).await?),
        };
        let (title, name) = (which.title(), which.binary());
        let version = found.with_context(|| {
            let downloads = if self.settings.download { "no release can be listed" } else { "downloads are off" };
            format!(
                "there is no {name} on the server's PATH ({}), and {downloads}; install it there, or give the project a \
                 `terraform_version` of {title} that is installed",
                self.settings.path
            )
        })?;
        self.exact(which, &version).await
    }

    /// Returns exactly this version, from `terraform1.5.7` or `terraform` on `PATH`, the cache, or the release server.
    async fn exact(&self, which: Distribution, version: &Version) -> anyhow::Result<Tool> {
        let name = which.binary();
        let cached = self.cached(which, version);
        let on_path = |name: &str| find_on_path(&self.settings.path, Path::new(name));
        let candidates =
            [on_path(&format!("{name}{version}")), on_path(name), Some(cached.clone()).filter(|path| path.exists())];
        for path in candidates.into_iter().flatten() {
            match self.version_of(&path).await {
                Ok(found) if found == *version => return Ok(Tool::new(which, found, path)),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), error = format!("{error:#}"), "a binary does not work")
                }
            }
        }
        let title = which.title();
        let looked = format!(
            "looked for {name}{version} and {name} on PATH ({}) and for {}",
            self.settings.path,
            cached.display()
        );
        if !self.settings.download {
            bail!(
                "{title} {version} is not installed ({looked}), and downloads are off; install it on the server as \
                 {name}{version}, set --tf-download, or ask for another version"
            );
        }
        let _turn = self.turn(&cached.to_string_lossy()).await;
        if let Ok(found) = self.version_of(&cached).await
            && found == *version
        {
            return Ok(Tool::new(which, found, cached)); // another task fetched it meanwhile
        }
        let got = self.downloads.fetch(&self.settings, which, version, &cached).await;
        if !got.with_context(|| format!("{title} {version} is not installed ({looked}), and cannot be downloaded"))? {
            bail!(
                "{title} {version} is not installed ({looked}), and {} has no such version; ask for one that exists",
                self.settings.base_url(which)
            );
        }
        let found = self
            .version_of(&cached)
            .await
            .with_context(|| format!("{title} {version} was downloaded but does not run"))?;
        ensure!(found == *version, "what was downloaded as {title} {version} says that it is {found}");
        Ok(Tool::new(which, found, cached))
    }

    /// With downloads, returns the newest matching release. Otherwise the default if it matches, or else the newest matching installed
    /// version.
    async fn satisfying(&self, which: Distribution, constraint: &Constraint, text: &str) -> anyhow::Result<Tool> {
        let mut unlisted = None;
        if self.settings.download {
            match self.released(which).await {
                Ok(versions) => {
                    let newest = versions.iter().filter(|version| constraint.allows(version)).max();
                    let newest = newest.with_context(|| {
                        let title = which.title();
                        format!(
                            "no release of {title} at {} fits the constraint {text:?}; change it",
                            self.settings.base_url(which)
                        )
                    })?;
                    return self.exact(which, newest).await;
                }
                Err(error) => unlisted = Some(error),
            }
        }
        if let Some(error) = &unlisted {
            tracing::warn!(error = format!("{error:#}"), "releases cannot be listed; taking what is installed");
        }
        if let Ok(tool) = self.default_of(which).await
            && constraint.allows(&tool.version)
        {
            return Ok(tool);
        }
        let installed = self.installed(which).await?;
        let fitting: Vec<&Version> = installed.iter().filter(|version| constraint.allows(version)).collect();
        if let Some(newest) = fitting.into_iter().max() {
            return self.exact(which, newest).await;
        }
        let (title, name) = (which.title(), which.binary());
        let list = installed.iter().map(Version::to_string).collect::<Vec<_>>().join(", ");
        let have =
            if list.is_empty() { "none is installed by version".into() } else { format!("installed are {list}") };
        let error = anyhow!(
            "no {title} on this server fits the constraint {text:?} ({have}, and the default does not fit); install one on the \
             server as {name}<version>, set --tf-download, or change the constraint"
        );
        Err(match unlisted {
            Some(cause) => cause.context(error.to_string()),
            None => error,
        })
    }

    fn cached(&self, which: Distribution, version: &Version) -> PathBuf {
        self.settings.data_dir.join("bin").join(format!("{}{version}", which.binary()))
    }

    /// Returns the versions in the names of binaries on `PATH` and in the cache.
    async fn installed(&self, which: Distribution) -> anyhow::Result<Vec<Version>> {
        let mut dirs: Vec<PathBuf> =
            std::env::split_paths(&self.settings.path).filter(|dir| dir.is_absolute()).collect();
        dirs.push(self.settings.data_dir.join("bin"));
        let listing = tokio::task::spawn_blocking(move || {
            let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut versions: Vec<Version> =
                names.filter_map(|name| name.strip_prefix(which.binary())?.parse().ok()).collect();
            versions.sort();
            versions.dedup();
            versions
        });
        listing.await.context("looking through PATH ended early")
    }

    /// Returns the versions of the release server, at most [`LIST_AGE`] old.
    async fn released(&self, which: Distribution) -> anyhow::Result<Arc<Vec<Version>>> {
        let known = || {
            let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            lists.get(&which).filter(|(at, _)| at.elapsed() < LIST_AGE).map(|(_, list)| Arc::clone(list))
        };
        if let Some(list) = known() {
            return Ok(list);
        }
        let _turn = self.turn(which.title()).await;
        if let Some(list) = known() {
            return Ok(list);
        }
        let list = Arc::new(self.downloads.versions(&self.settings, which).await?);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(which, (Instant::now(), Arc::clone(&list)));
        Ok(list)
    }

    /// Returns the version that the binary prints. It is queried once per file.
    async fn version_of(&self, path: &Path) -> anyhow::Result<Version> {
        self.version_said(path, "version").await
    }

    /// Returns the version that a binary prints for this argument.
    async fn version_said(&self, path: &Path, argument: &str) -> anyhow::Result<Version> {
        let known = || {
            let stamp = stamp(path)?;
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            anyhow::Ok((stamp, answers.get(path).filter(|(at, _)| *at == stamp).map(|(_, version)| version.clone())))
        };
        if let (_, Some(version)) = known()? {
            return Ok(version);
        }
        let _turn = self.turn(&format!("version of {}", path.display())).await;
        let (stamp, answer) = known()?;
        if let Some(version) = answer {
            return Ok(version);
        }
        let env = [("PATH", self.settings.path.as_str()), ("CHECKPOINT_DISABLE", "1"), ("HOME", "/nonexistent")];
        let invocation = Invocation::new(path, [argument], "/")
            .env(env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
            .timeout(VERSION_TIMEOUT)
            .grace(Duration::from_secs(1))
            .reading(VERSION_OUTPUT);
        let done = process::run(invocation, &self.settings.redactor, &CancellationToken::new(), None).await?;
        let printed = done.read_text().unwrap_or_default();
        let version = printed.lines().find_map(|line| {
            let words = SAYS_VERSION.iter().find_map(|before| line.strip_prefix(before))?;
            Version::parse(words.trim_start_matches('v').split_whitespace().next()?).ok()
        });
        let version = version.filter(|_| done.success()).with_context(|| {
            let said: String = done.output.chars().take(500).collect();
            format!("`{} {argument}` did not tell its version ({}): {said}", path.display(), done.ending())
        })?;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(path.to_owned(), (stamp, version.clone()));
        Ok(version)
    }

    async fn turn(&self, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|other, turn| other == key || Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(key.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

fn stamp(path: &Path) -> anyhow::Result<Stamp> {
    let meta = std::fs::metadata(path).with_context(|| format!("{} is not there", path.display()))?;
    Ok(Stamp { size: meta.len(), modified: meta.modified().ok() })
}
