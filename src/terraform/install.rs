//! Chooses the version, finds the binary on `PATH` or in the cache, downloads it with checksum and signature checks.

use crate::domain::Distribution;
use crate::process::Redactor;
use semver::Version;
use std::path::PathBuf;

/// Where binaries come from.
pub struct InstallSettings {
    /// Downloads go to `<data-dir>/bin`.
    pub data_dir: PathBuf,
    /// `--tf-download`.
    pub download: bool,
    /// `--tf-download-url`, for Terraform.
    pub terraform_url: String,
    /// Same for OpenTofu.
    pub opentofu_url: String,
    /// Accept a release server without signatures (checksums are still checked).
    pub allow_unsigned: bool,
    /// `--default-tf-version`.
    pub default_version: Option<String>,
    /// `--default-tf-distribution`.
    pub default_distribution: Distribution,
    /// `PATH` to look on.
    pub path: String,
    /// Masks secrets in messages.
    pub redactor: Redactor,
}

/// A binary that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The binary.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// Which.
    pub distribution: Distribution,
}

impl std::fmt::Display for Tool {
    /// `terraform 1.11.4`, as plans record it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.distribution.binary(), self.version)
    }
}

/// What a project asks for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// `terraform_version` of the repo config.
    pub version: Option<String>,
    /// `terraform_distribution` of the repo config.
    pub distribution: Option<Distribution>,
    /// `required_version` constraints found in the project's files.
    pub required: Vec<String>,
}

/// Finds and fetches binaries; remembers what it found (by path, size and mtime), so that no version is asked twice.
pub struct Installer {
    _settings: InstallSettings,
}

impl Installer {
    /// Nothing is looked up yet.
    pub fn new(settings: InstallSettings) -> Installer {
        Installer { _settings: settings }
    }

    /// The binary for a project; the error is for people and says what to do.
    pub async fn resolve(&self, _wanted: &Wanted) -> anyhow::Result<Tool> {
        todo!()
    }

    /// The default binary: `--default-tf-version`, else the one on `PATH`.
    pub async fn default_tool(&self) -> anyhow::Result<Tool> {
        self.resolve(&Wanted::default()).await
    }
}
