//! `secrets` and `masks`: variables that steps get from stores of secrets, and patterns that mask what steps print. Only `repos.yaml` has
//! them: a pull request does not choose its secrets.
//!
//! ```yaml
//! repos:
//! - id: /.*/
//!   secrets:
//!   - {dirs: "prod/**", stages: [plan], env: {TF_VAR_token: "vault:secret/data/reader#token"}}
//!   - {dirs: "prod/**", stages: [apply], env: {TF_VAR_token: "vault:secret/data/writer#token"}}
//!   masks: ["xoxb-[0-9A-Za-z-]+"]
//! ```

pub mod reference;

use super::errors::all;
use super::executors::{MAX_GLOBS, dir_globs};
use super::paths::Glob;
use super::raw::{LocatedText, Named, Texts};
use super::workflow::raw::OneOrMany;
use super::yaml::{error_at, quoted};
use super::{ConfigError, ConfigErrors};
use crate::domain::command::CommandName;
use reference::SecretReference;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Most rules of one list.
pub(super) const MAX_RULES: usize = 100;
/// Most variables of one rule.
const MAX_VARIABLES: usize = 100;
/// Longest name of a variable, in bytes.
const MAX_NAME: usize = 128;
/// Most masks of one list.
pub(super) const MAX_MASKS: usize = 50;
/// Longest mask, in bytes.
const MAX_MASK: usize = 1000;
/// Largest compiled mask, in bytes.
const MAX_COMPILED_MASK: usize = 1 << 20;

/// Variables that the server sets or that its safety depends on. No secret replaces them.
const RESERVED: [&str; 31] = [
    "BASE_BRANCH_NAME",
    "BASE_REPO_NAME",
    "BASE_REPO_OWNER",
    "BASH_ENV",
    "CHECKPOINT_DISABLE",
    "COMMENT_ARGS",
    "DIR",
    "ENV",
    "HEAD_BRANCH_NAME",
    "HEAD_COMMIT",
    "HEAD_REPO_NAME",
    "HEAD_REPO_OWNER",
    "HOME",
    "IFS",
    "PATH",
    "PLANFILE",
    "POLICYCHECKFILE",
    "PROJECT_NAME",
    "PULL_AUTHOR",
    "PULL_NUM",
    "PULL_URL",
    "REPO_REL_DIR",
    "SHELL",
    "SHOWFILE",
    "TF_CLI_CONFIG_FILE",
    "TF_DATA_DIR",
    "TF_WORKSPACE",
    "TERRAFORM_CONFIG",
    "TMPDIR",
    "USER_NAME",
    "WORKSPACE",
];
/// Prefixes of such variables: of the loader, git, Terraform's arguments, Terragrunt, Atlantis and Tidelock.
const RESERVED_PREFIXES: [&str; 13] = [
    "ATLANTIS_",
    "DYLD_",
    "GIT_",
    "LD_",
    "TERRAGRUNT_",
    "TF_CLI_ARGS",
    "TF_IN_AUTOMATION",
    "TF_LOG",
    "TF_PLUGIN_CACHE",
    "TF_REATTACH_PROVIDERS",
    "TG_",
    "TIDELOCK_",
    "TOFU_",
];

/// Stages that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretStage {
    /// Plans, policy checks and drift detection.
    Plan,
    /// Applies, imports, `state rm` and `force-unlock`.
    Apply,
}

/// Values of `stages`.
const STAGES: [(&str, SecretStage); 2] = [("plan", SecretStage::Plan), ("apply", SecretStage::Apply)];

impl SecretStage {
    /// Returns the stage whose secrets the jobs of a command get; `None` if they get none.
    pub fn of_command(name: CommandName) -> Option<SecretStage> {
        match name {
            CommandName::Plan | CommandName::PolicyCheck => Some(SecretStage::Plan),
            CommandName::Apply | CommandName::Import | CommandName::StateRm | CommandName::ForceUnlock => {
                Some(SecretStage::Apply)
            }
            CommandName::ApprovePolicies
            | CommandName::Version
            | CommandName::Unlock
            | CommandName::Cancel
            | CommandName::Help
            | CommandName::Freeze
            | CommandName::Unfreeze
            | CommandName::Lock => None,
        }
    }
}

/// The secrets of a project, by the names of their variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSecrets {
    /// Those of plans, policy checks and drift detection.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plan: BTreeMap<String, SecretReference>,
    /// Those of applies, imports, `state rm` and `force-unlock`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub apply: BTreeMap<String, SecretReference>,
}

impl StageSecrets {
    /// Returns true if no stage has any.
    pub fn is_empty(&self) -> bool {
        self.plan.is_empty() && self.apply.is_empty()
    }

    /// Returns those that the jobs of a command get.
    pub fn for_command(&self, name: CommandName) -> &BTreeMap<String, SecretReference> {
        static NONE: BTreeMap<String, SecretReference> = BTreeMap::new();
        SecretStage::of_command(name).map_or(&NONE, |stage| self.of(stage))
    }

    /// Returns those of a stage.
    pub fn of(&self, stage: SecretStage) -> &BTreeMap<String, SecretReference> {
        match stage {
            SecretStage::Plan => &self.plan,
            SecretStage::Apply => &self.apply,
        }
    }
}

/// The rules of `secrets` that count for a repository, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct SecretRules(Vec<SecretRule>);

#[derive(Debug, Clone)]
struct SecretRule {
    /// Globs of the directories that it fits; all if absent.
    dirs: Option<Vec<Glob>>,
    /// Globs of the workspaces that it fits; all if absent.
    workspaces: Option<Vec<Glob>>,
    stages: Vec<SecretStage>,
    env: Vec<(String, SecretReference)>,
}

impl SecretRule {
    fn fits(&self, dir: &str, workspace: &str) -> bool {
        let is_one = |globs: &Option<Vec<Glob>>, text: &str| {
            globs.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(text)))
        };
        is_one(&self.dirs, dir) && is_one(&self.workspaces, workspace)
    }
}

impl SecretRules {
    /// Returns the secrets of a project by its directory, which is a path without links, and its workspace: of each variable and stage the
    /// last one that fits.
    pub fn of_project(&self, dir: &str, workspace: &str) -> StageSecrets {
        let mut secrets = StageSecrets::default();
        for rule in self.0.iter().filter(|rule| rule.fits(dir, workspace)) {
            for stage in &rule.stages {
                let of_stage = match stage {
                    SecretStage::Plan => &mut secrets.plan,
                    SecretStage::Apply => &mut secrets.apply,
                };
                of_stage.extend(rule.env.iter().cloned());
            }
        }
        secrets
    }

    /// Returns the references of all rules.
    pub(super) fn references(&self) -> impl Iterator<Item = &SecretReference> {
        self.0.iter().flat_map(|rule| rule.env.iter().map(|(_, reference)| reference))
    }

    /// Returns the index of the rule from which a project has a variable in a stage, from 0; absent if it has none.
    pub fn index_for(&self, dir: &str, workspace: &str, stage: SecretStage, variable: &str) -> Option<usize> {
        self.0.iter().rposition(|rule| {
            let has = rule.env.iter().any(|(name, _)| name == variable);
            has && rule.stages.contains(&stage) && rule.fits(dir, workspace)
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSecretRule {
    dirs: Option<Spanned<OneOrMany<String>>>,
    workspaces: Texts,
    stages: Texts,
    env: Option<Spanned<Named<LocatedText>>>,
}

/// Checks the rules of an entry of `repos`.
pub(super) fn rules(list: &[Spanned<RawSecretRule>], file: &str) -> Result<SecretRules, ConfigErrors> {
    if let Some(last) = list.last().filter(|_| list.len() > MAX_RULES) {
        return Err(error_at(file, last, format!("secrets: more than {MAX_RULES} rules")).into());
    }
    all(list.iter().map(|raw| rule(raw, file))).map(SecretRules)
}

/// Returns a warning for each rule that only workspaces limit.
pub(super) fn without_dirs(list: &[Spanned<RawSecretRule>], file: &str) -> Vec<String> {
    let is_open = |raw: &&Spanned<RawSecretRule>| raw.value.workspaces.is_some() && raw.value.dirs.is_none();
    let message = "secrets: a rule with `workspaces` and without `dirs` is for every directory: a pull request chooses the workspace \
                   of its projects, so any of them can get the variables of this rule; add `dirs`";
    list.iter().filter(is_open).map(|raw| error_at(file, raw, message).to_string()).collect()
}

fn rule(at: &Spanned<RawSecretRule>, file: &str) -> Result<SecretRule, ConfigErrors> {
    let raw = &at.value;
    let missing = "secrets: a rule needs `env`, variables with references, such as `env: {TOKEN: \"vault:secret/data/ci#token\"}`";
    let env = raw.env.as_ref().ok_or_else(|| error_at(file, at, missing))?;
    let variables = &env.value.0;
    if variables.is_empty() || variables.len() > MAX_VARIABLES {
        return Err(error_at(file, env, format!("secrets.env: it has 1 to {MAX_VARIABLES} variables")).into());
    }
    let stages = match &raw.stages {
        None => STAGES.map(|(_, stage)| stage).to_vec(),
        Some(list) => all(list.iter().map(|text| stage(text, file)))?,
    };
    if stages.is_empty() || stages.len() > STAGES.len() {
        return Err(
            error_at(file, at, "secrets.stages: it names one or two stages; drop the key for all of them").into()
        );
    }
    Ok(SecretRule {
        dirs: raw.dirs.as_ref().map(|dirs| dir_globs(dirs, "secrets.dirs", file)).transpose()?,
        workspaces: raw.workspaces.as_deref().map(|list| workspaces(at, list, file)).transpose()?,
        stages,
        env: all(variables.iter().map(|(name, reference)| variable(name, reference.as_ref(), file)))?,
    })
}

fn stage(text: &LocatedText, file: &str) -> Result<SecretStage, ConfigError> {
    STAGES.iter().find(|(word, _)| *word == text.value).map(|(_, stage)| *stage).ok_or_else(|| {
        let known: Vec<&str> = STAGES.iter().map(|(word, _)| *word).collect();
        let message =
            format!("secrets.stages: \"{}\" is not a stage; there are: {}", quoted(&text.value), known.join(", "));
        error_at(file, text, message)
    })
}

fn workspaces(rule: &Spanned<RawSecretRule>, list: &[LocatedText], file: &str) -> Result<Vec<Glob>, ConfigErrors> {
    if list.is_empty() {
        return Err(error_at(file, rule, "secrets.workspaces: it names none; drop the key for all of them").into());
    }
    if let Some(last) = list.last().filter(|_| list.len() > MAX_GLOBS) {
        return Err(error_at(file, last, format!("secrets.workspaces: more than {MAX_GLOBS} globs")).into());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.*?-".contains(&byte);
    all(list.iter().map(|text| match text.value.as_str() {
        glob if !glob.is_empty() && glob.bytes().all(is_name) => {
            Glob::new(glob).map_err(|problem| error_at(file, text, format!("secrets.workspaces: {problem}")))
        }
        other => {
            let message = format!("secrets.workspaces: `{}` is no name of a workspace with `*` and `?`", quoted(other));
            Err(error_at(file, text, message))
        }
    }))
}

fn variable(
    name: &LocatedText,
    reference: Option<&LocatedText>,
    file: &str,
) -> Result<(String, SecretReference), ConfigError> {
    let text = name.value.as_str();
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
    if !(1..=MAX_NAME).contains(&text.len()) || !text.bytes().all(is_valid) || starts_with_digit {
        let message = format!(
            "secrets.env: `{}` cannot be the name of a variable: it has 1 to {MAX_NAME} characters of A-Z, a-z, 0-9 and `_`",
            quoted(text)
        );
        return Err(error_at(file, name, message));
    }
    if is_reserved(text) {
        let message = format!(
            "secrets.env: `{}` is a variable that the server sets, or on which the safety of steps depends; choose another name",
            quoted(text)
        );
        return Err(error_at(file, name, message));
    }
    let missing = || error_at(file, name, format!("secrets.env: `{}` needs a reference", quoted(text)));
    let reference = reference.ok_or_else(missing)?;
    let parsed = SecretReference::parse(&reference.value);
    let parsed = parsed.map_err(|problem| error_at(file, reference, format!("secrets.env.{text}: {problem}")))?;
    Ok((text.to_owned(), parsed))
}

/// Returns true for a variable that no secret replaces. Case does not matter: some programs read both.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks the list `masks`.
pub(super) fn masks(list: &[LocatedText], file: &str) -> Result<Vec<String>, ConfigErrors> {
    if let Some(last) = list.last().filter(|_| list.len() > MAX_MASKS) {
        return Err(error_at(file, last, format!("masks: more than {MAX_MASKS} masks")).into());
    }
    all(list.iter().map(|text| match mask(&text.value) {
        Ok(_) => Ok(text.value.clone()),
        Err(problem) => Err(error_at(file, text, format!("masks: {problem}"))),
    }))
}

/// Compiles a mask; the error is for users. A search takes time that grows with the length of the text, and not with what is in it.
pub fn mask(text: &str) -> Result<Regex, String> {
    if text.len() > MAX_MASK {
        return Err(format!("the mask is longer than {MAX_MASK} bytes"));
    }
    let built = RegexBuilder::new(text).size_limit(MAX_COMPILED_MASK).dfa_size_limit(MAX_COMPILED_MASK).build();
    let regex = built.map_err(|error| {
        let last = error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("`{}` is not a valid regex: {}", quoted(text), quoted(&last))
    })?;
    if regex.is_match("") {
        return Err(format!("`{}` matches the empty text, and would mask every line", quoted(text)));
    }
    Ok(regex)
}

#[cfg(test)]
mod tests;
