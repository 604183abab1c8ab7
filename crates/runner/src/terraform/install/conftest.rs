//! conftest. It is never downloaded: the operator has to install it.

use super::Installer;
use crate::process::find_on_path;
use anyhow::{Context as _, bail};
use semver::Version;
use std::path::{Path, PathBuf};

impl Installer {
    /// Returns conftest for policy checks: `conftest0.66.0` on `PATH` or in `bin` of the data directory, or `conftest` on `PATH`, of
    /// exactly the requested version. The error is for users.
    pub async fn conftest(&self, version: Option<&str>) -> anyhow::Result<PathBuf> {
        let path = &self.settings.path;
        let named = |name: &str| find_on_path(path, Path::new(name));
        let Some(version) = version else {
            return named("conftest").with_context(|| {
                format!(
                    "there is no conftest on the server's PATH ({path}): install it there, or start the server with \
                     `--policy-engine=builtin`, which needs none"
                )
            });
        };
        let wanted = Version::parse(version).with_context(|| format!("conftest_version {version:?}"))?;
        let name = format!("conftest{wanted}");
        let kept = self.settings.data_dir.join("bin").join(&name);
        let candidates = [named(&name), named("conftest"), Some(kept.clone()).filter(|path| path.exists())];
        for found in candidates.into_iter().flatten() {
            match self.version_said(&found, "--version").await {
                Ok(version) if version == wanted => return Ok(std::path::absolute(&found).unwrap_or(found)),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %found.display(), error = format!("{error:#}"), "a binary does not work");
                }
            }
        }
        bail!(
            "conftest {wanted} is not installed (looked for {name} and conftest on PATH ({path}) and for {}), and is not downloaded; \
             install it on the server as {name}, or change `conftest_version`",
            kept.display()
        )
    }
}
