//! Settings of the sandbox's server that a person can choose.

use crate::sandbox::{SandboxExecutor, tour::TourKind};
use crate::settings::is_of_a_host;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Settings that the sandbox needs as they are, beside those of the hosts.
const FIXED: [&str; 14] = [
    "atlantis-url",
    "bind",
    "bucket",
    "config",
    "data-dir",
    "events-only",
    "log-level",
    "port",
    "repo-config",
    "repo-config-json",
    "ssl-cert-file",
    "ssl-key-file",
    "wake-queue",
    "webhook-allowlist",
];
/// Settings that the sandbox chooses unless a person does.
const USUAL: [(&str, &str); 3] = [("checkout-strategy", "merge"), ("repo-allowlist", "*"), ("tf-download", "false")];
/// Commands on a person's own repository, unless another list is chosen: those that change no infrastructure.
const READING: (&str, &str) = ("allow-commands", "version,plan,unlock,lock,freeze,unfreeze,approve_policies,cancel");

/// Settings of the server, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SandboxSettings(Vec<(String, String)>);

/// Parses the text of `--set` into name and value; the name may have its dashes. Errors do not repeat the value, which may be a secret. An
/// empty value is refused, because the server takes it for its own default.
fn parsed(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').context("--set takes NAME=VALUE")?;
    let name = name.trim().trim_start_matches('-').to_lowercase().replace('_', "-");
    if name.is_empty() || value.is_empty() {
        bail!("--set takes NAME=VALUE, and neither is empty");
    }
    if FIXED.contains(&name.as_str()) || is_of_a_host(&name) {
        bail!("--set cannot change {name}: the sandbox needs it as it is");
    }
    Ok((name, value.to_owned()))
}

impl SandboxSettings {
    /// Returns the settings of a tour, or of a sandbox without a file of its own.
    pub(super) fn of_executor(executor: SandboxExecutor, tour: Option<TourKind>) -> SandboxSettings {
        let config = executor.repo_config(tour).map(|json| ("repo-config-json".to_owned(), json));
        SandboxSettings(config.into_iter().collect())
    }

    /// Adds a server-side configuration file.
    pub(super) fn with_file(mut self, file: &Path) -> Result<SandboxSettings> {
        let file = std::path::absolute(file)?;
        if !file.is_file() {
            bail!("--repo-config names {}, which is no file", file.display());
        }
        let path = file.to_str().context("the path of --repo-config is not UTF-8")?;
        self.0.push(("repo-config".to_owned(), path.to_owned()));
        Ok(self)
    }

    /// Leaves out commands that change infrastructure.
    pub(super) fn reading(mut self) -> SandboxSettings {
        self.0.push((READING.0.to_owned(), READING.1.to_owned()));
        self
    }

    /// Adds the settings of `--set`, in place of those of the same name.
    pub(super) fn with<'a>(mut self, texts: impl Iterator<Item = &'a String>) -> Result<SandboxSettings> {
        let chosen = texts.map(|text| parsed(text)).collect::<Result<Vec<_>>>()?;
        self.0.retain(|(name, _)| chosen.iter().all(|(other, _)| name != other));
        self.0.extend(chosen);
        Ok(self)
    }

    /// Returns the arguments of the server.
    pub(super) fn args(&self) -> impl Iterator<Item = String> {
        let usual = USUAL.iter().filter(|(name, _)| self.0.iter().all(|(chosen, _)| chosen != name));
        let usual = usual.map(|(name, value)| format!("--{name}={value}"));
        usual.chain(self.0.iter().map(|(name, value)| format!("--{name}={value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(settings: SandboxSettings, texts: &[&str]) -> Result<Vec<String>, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let settings = settings.with(texts.iter()).map_err(|error| error.to_string())?;
        Ok(settings.args().collect())
    }

    #[test]
    fn a_setting_has_a_name_and_a_value_and_is_not_one_of_the_sandbox() {
        let added = |text: &str| args(SandboxSettings::default(), &[text]).map(|args| args[USUAL.len()..].join(" "));
        for (text, expected) in [
            ("automerge=true", "--automerge=true"),
            ("--Default_TF_Version=1.11.4", "--default-tf-version=1.11.4"),
            ("var-file-allowlist=a=b", "--var-file-allowlist=a=b"),
        ] {
            assert_eq!(added(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["automerge", "=true", "--=x", "allow-commands="] {
            assert!(added(text).unwrap_err().contains("takes NAME=VALUE"), "{text}");
        }
        for text in ["port=1", "gh-token=hush", "REPO_CONFIG=x", "--config=x", "gitlab-group-allowlist=x:y"] {
            let error = added(text).unwrap_err();
            assert!(error.contains("the sandbox needs it as it is") && !error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_person_chooses_replaces_what_the_sandbox_would() {
        let chosen = ["checkout-strategy=branch", "allow-commands=all"];
        assert_eq!(
            args(SandboxSettings::default().reading(), &chosen).unwrap(),
            ["--repo-allowlist=*", "--tf-download=false", "--checkout-strategy=branch", "--allow-commands=all"]
        );
        let reading = args(SandboxSettings::default().reading(), &[]).unwrap();
        let allowed = reading.last().unwrap().strip_prefix("--allow-commands=").unwrap().to_owned();
        for changing in ["apply", "import", "state", "force-unlock", "all"] {
            assert!(allowed.split(',').all(|command| command != changing), "{allowed}");
        }
    }
}
