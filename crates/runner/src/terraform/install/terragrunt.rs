//! Terragrunt. It is never downloaded: the operator has to install it.

use super::Installer;
use crate::process::find_on_path;
use anyhow::{Context as _, bail};
use semver::Version;
use std::path::{Path, PathBuf};

/// First version with the command `run`, and variables that begin with `TG_`.
const NEW_COMMANDS: Version = Version::new(0, 73, 0);

/// A Terragrunt that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terragrunt {
    /// The binary.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

impl Terragrunt {
    /// Returns true if it takes Terraform's commands after `run --`. Older versions take them directly.
    pub fn has_run(&self) -> bool {
        self.version >= NEW_COMMANDS
    }

    /// Returns variables that make it run this binary, without questions, and print Terraform's output unchanged.
    pub fn variables(&self, binary: &Path) -> [(&'static str, String); 3] {
        let [path, quiet, plain] = match self.has_run() {
            true => ["TG_TF_PATH", "TG_NON_INTERACTIVE", "TG_TF_FORWARD_STDOUT"],
            false => ["TERRAGRUNT_TFPATH", "TERRAGRUNT_NON_INTERACTIVE", "TERRAGRUNT_FORWARD_TF_STDOUT"],
        };
        [(path, binary.to_string_lossy().into_owned()), (quiet, "true".to_owned()), (plain, "true".to_owned())]
    }
}

impl Installer {
    /// Returns the Terragrunt of a project: `terragrunt0.99.1` or `terragrunt` on `PATH`, of exactly the requested version. The error is
    /// for users.
    pub(super) async fn terragrunt(&self, version: Option<&str>) -> anyhow::Result<Terragrunt> {
        let path = &self.settings.path;
        let named = |name: &str| find_on_path(path, Path::new(name));
        let Some(version) = version else {
            let found = named("terragrunt").with_context(|| {
                format!("there is no terragrunt on the server's PATH ({path}); install it there: it is not downloaded")
            })?;
            let version = self.version_said(&found, "--version").await?;
            return Ok(Terragrunt { path: found, version });
        };
        let wanted =
            Version::parse(version).with_context(|| format!("terragrunt_version {version:?} of the project"))?;
        for found in [named(&format!("terragrunt{wanted}")), named("terragrunt")].into_iter().flatten() {
            match self.version_said(&found, "--version").await {
                Ok(version) if version == wanted => return Ok(Terragrunt { path: found, version }),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %found.display(), error = format!("{error:#}"), "a binary does not work");
                }
            }
        }
        bail!(
            "Terragrunt {wanted} is not installed (looked for terragrunt{wanted} and terragrunt on PATH ({path})), and is not downloaded; \
             install it on the server as terragrunt{wanted}, or change `terragrunt_version`"
        )
    }
}
