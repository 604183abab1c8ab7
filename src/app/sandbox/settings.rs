//! Settings of the sandbox's server that a person can choose.

use crate::sandbox::{SandboxExecutor, tour::TourKind};
use crate::settings::is_of_a_host;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Settings that the sandbox needs as they are, beside those of the hosts.
const FIXED: [&str; 8] =
    ["atlantis-url", "bind", "bucket", "data-dir", "log-level", "port", "repo-config", "repo-config-json"];
/// Settings that the sandbox chooses unless a person does.
const USUAL: [(&str, &str); 3] = [("checkout-strategy", "merge"), ("repo-allowlist", "*"), ("tf-download", "false")];
/// Commands on a person's own repository, unless another list is chosen: those that change no infrastructure.
const READING: (&str, &str) = ("allow-commands", "version,plan,unlock,lock,freeze,unfreeze,approve_policies,cancel");

/// Settings of the server, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SandboxSettings(Vec<(String, String)>);

/// Text of `--set`, as name and value. The name may have its dashes.
pub(super) fn parsed(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("is not of the form NAME=VALUE")?;
    let name = name.trim().trim_start_matches('-').to_lowercase().replace('_', "-");
    if name.is_empty() {
        return Err("has no name before `=`".to_owned());
    }
    if FIXED.contains(&name.as_str()) || is_of_a_host(&name) {
        return Err(format!("{name} is set by the sandbox itself"));
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

    /// Adds settings that a person chose, in place of those of the same name.
    pub(super) fn with(mut self, chosen: Vec<(String, String)>) -> SandboxSettings {
        self.0.retain(|(name, _)| chosen.iter().all(|(other, _)| name != other));
        self.0.extend(chosen);
        self
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

    #[test]
    fn a_setting_has_a_name_and_is_not_one_of_the_sandbox() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parsed("automerge=true"), pair("automerge", "true"));
        assert_eq!(parsed("--Default_TF_Version=1.11.4"), pair("default-tf-version", "1.11.4"));
        assert_eq!(parsed("var=a=b"), pair("var", "a=b"));
        for (text, error) in [
            ("automerge", "NAME=VALUE"),
            ("--=x", "no name"),
            ("port=1", "port is set by the sandbox itself"),
            ("gh-token=x", "set by the sandbox"),
            ("REPO_CONFIG=x", "set by the sandbox"),
        ] {
            assert!(parsed(text).unwrap_err().contains(error), "{text}");
        }
    }

    #[test]
    fn what_a_person_chooses_replaces_what_the_sandbox_would() {
        let chosen = vec![parsed("checkout-strategy=branch").unwrap(), parsed("allow-commands=all").unwrap()];
        let settings = SandboxSettings::default().reading().with(chosen);
        let args: Vec<String> = settings.args().collect();
        assert_eq!(
            args,
            ["--repo-allowlist=*", "--tf-download=false", "--checkout-strategy=branch", "--allow-commands=all"]
        );
        let reading: Vec<String> = SandboxSettings::default().reading().args().collect();
        assert!(reading[3].starts_with("--allow-commands=") && !reading[3].contains("apply,"), "{reading:?}");
    }
}
