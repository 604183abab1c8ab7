//! `guards`: limits on plans, and on the code that they are made of. Only `repos.yaml` has them, so that no pull request turns one off.
//!
//! ```yaml
//! guards:
//!   - {name: data, protect: ["google_sql_*", "module.vault"], override: ["team:sre"]}
//!   - {name: few, dirs: "prod/**", max_destroys: 0, max_replacements: 0}
//!   - {name: sources, providers: ["hashicorp/*"], modules: ["app.terraform.io/acme/*"], forbid: [external, provisioners]}
//! ```

use super::approvals::approvers;
use super::approvers::Approver;
use super::errors::all;
use super::executors::dir_globs;
use super::freeze::person_or_team;
use super::paths::Glob;
use super::raw::{LocatedText, Texts};
use super::workflow::raw::OneOrMany;
use super::yaml::{error_at, quoted};
use super::{ConfigError, ConfigErrors};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

/// Most guards of one list.
pub(super) const MAX_GUARDS: usize = 100;
/// Most patterns of one key.
pub(super) const MAX_PATTERNS: usize = 100;
/// Highest limit of a count.
pub(super) const MAX_COUNT: i64 = 100_000;
/// Longest name, in characters.
const MAX_NAME: usize = 40;
/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 300;

/// One guard, for the projects of its directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Its name, for `--override`.
    pub name: String,
    /// Most resources that a plan may destroy, with those that it replaces; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_destroys: Option<u64>,
    /// Most resources that a plan may replace; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replacements: Option<u64>,
    /// Patterns of types (without a dot) and addresses that no plan may destroy, replace or forget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Patterns of the only providers that code may use; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<String>>,
    /// Patterns of the only sources of modules outside of the repository that code may use; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<String>>,
    /// Kinds of code that are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<Forbidden>,
    /// People who may override it; nobody if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overriders: Vec<Approver>,
}

/// Code that runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forbidden {
    /// Data sources that run a program.
    External,
    /// `provisioner` blocks.
    Provisioners,
}

/// Values of `forbid`.
const FORBIDDEN: [(&str, Forbidden); 2] =
    [("external", Forbidden::External), ("provisioners", Forbidden::Provisioners)];

impl Guard {
    /// Returns true if it is about plans.
    pub fn has_limits(&self) -> bool {
        self.max_destroys.is_some() || self.max_replacements.is_some() || !self.protect.is_empty()
    }

    /// Returns true if it is about code.
    pub fn has_code_rules(&self) -> bool {
        self.providers.is_some() || self.modules.is_some() || !self.forbid.is_empty()
    }

    /// Returns the people who may override it, in words; empty for nobody.
    pub fn people(&self) -> String {
        self.overriders.iter().map(Approver::describe).collect::<Vec<_>>().join(" or ")
    }

    /// Returns the same guard without the people, who do not change what trips it.
    #[must_use]
    pub fn without_people(&self) -> Guard {
        Guard { overriders: Vec::new(), ..self.clone() }
    }
}

/// The guards that count for a repository.
#[derive(Debug, Clone, Default)]
pub struct Guards(Vec<GuardRule>);

#[derive(Debug, Clone)]
struct GuardRule {
    /// Globs of the directories of its projects; all if absent.
    dirs: Option<Vec<Glob>>,
    guard: Guard,
}

impl Guards {
    /// Returns those of a project by its directory, which is a path without links.
    pub fn of_project(&self, dir: &str) -> Vec<Guard> {
        let fits = |rule: &&GuardRule| rule.dirs.as_ref().is_none_or(|dirs| dirs.iter().any(|glob| glob.matches(dir)));
        self.0.iter().filter(fits).map(|rule| rule.guard.clone()).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGuard {
    name: Option<LocatedText>,
    dirs: Option<Spanned<OneOrMany<String>>>,
    max_destroys: Option<Spanned<i64>>,
    max_replacements: Option<Spanned<i64>>,
    protect: Texts,
    providers: Texts,
    modules: Texts,
    forbid: Texts,
    #[serde(rename = "override")]
    overriders: Texts,
}

/// Checks the values in the file.
pub(super) fn guards(list: &[Spanned<RawGuard>], file: &str) -> Result<Guards, ConfigErrors> {
    if let Some(last) = list.last().filter(|_| list.len() > MAX_GUARDS) {
        return Err(error_at(file, last, format!("guards: more than {MAX_GUARDS} guards")).into());
    }
    let rules = all(list.iter().map(|raw| rule(raw, file)))?;
    for (at, rule) in rules.iter().enumerate() {
        if rules.iter().take(at).any(|other| other.guard.name == rule.guard.name) {
            let message = format!("guards: there are two guards with the name `{}`", rule.guard.name);
            return Err(list.get(at).map_or(ConfigError(message.clone()), |raw| error_at(file, raw, &message)).into());
        }
    }
    Ok(Guards(rules))
}

fn rule(at: &Spanned<RawGuard>, file: &str) -> Result<GuardRule, ConfigErrors> {
    let raw = &at.value;
    let guard = Guard {
        name: name(at, file)?,
        max_destroys: limit(raw.max_destroys.as_ref(), "max_destroys", file)?,
        max_replacements: limit(raw.max_replacements.as_ref(), "max_replacements", file)?,
        protect: patterns(&raw.protect, "protect", protected, file)?.unwrap_or_default(),
        providers: patterns(&raw.providers, "providers", provider, file)?,
        modules: patterns(&raw.modules, "modules", module, file)?,
        forbid: all(raw.forbid.iter().flatten().map(|text| forbidden(text, file)))?,
        overriders: approvers(raw.overriders.as_deref().unwrap_or_default(), "guards.override", person_or_team, file)?,
    };
    if !guard.has_limits() && !guard.has_code_rules() {
        let message = "guards: the guard refuses nothing; known here: max_destroys, max_replacements, protect, providers, modules, forbid";
        return Err(error_at(file, at, message).into());
    }
    let dirs = raw.dirs.as_ref().map(|dirs| dir_globs(dirs, "guards.dirs", file)).transpose()?;
    Ok(GuardRule { dirs, guard })
}

fn name(at: &Spanned<RawGuard>, file: &str) -> Result<String, ConfigError> {
    let text = at.value.name.as_ref();
    let text = text.ok_or_else(|| error_at(file, at, "guards: a guard needs `name`, which `--override` uses"))?;
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let starts = text.value.starts_with(|c: char| c != '-');
    if starts && text.value.len() <= MAX_NAME && text.value.chars().all(is_valid) {
        return Ok(text.value.clone());
    }
    let message = format!(
        "guards: `{}` is not a valid name: it has 1 to {MAX_NAME} characters of a-z, 0-9, `-` and `_`, and begins without `-`",
        quoted(&text.value)
    );
    Err(error_at(file, text, message))
}

fn limit(number: Option<&Spanned<i64>>, key: &str, file: &str) -> Result<Option<u64>, ConfigError> {
    let Some(number) = number else { return Ok(None) };
    let valid = u64::try_from(number.value).ok().filter(|_| number.value <= MAX_COUNT);
    let wrong = || error_at(file, number, format!("guards.{key}: it is a number from 0 to {MAX_COUNT}"));
    valid.map(Some).ok_or_else(wrong)
}

fn forbidden(text: &LocatedText, file: &str) -> Result<Forbidden, ConfigError> {
    let found = FORBIDDEN.iter().find(|(word, _)| *word == text.value).map(|(_, kind)| *kind);
    found.ok_or_else(|| {
        let known: Vec<&str> = FORBIDDEN.iter().map(|(word, _)| *word).collect();
        let message =
            format!("guards.forbid: \"{}\" is not valid; there are: {}", quoted(&text.value), known.join(", "));
        error_at(file, text, message)
    })
}

/// Checks a list of patterns, each with `problem`, which returns what is wrong.
fn patterns(
    list: &Texts,
    key: &str,
    problem: impl Fn(&str) -> Option<&'static str>,
    file: &str,
) -> Result<Option<Vec<String>>, ConfigErrors> {
    let Some(list) = list else { return Ok(None) };
    if let Some(last) = list.last().filter(|_| list.len() > MAX_PATTERNS) {
        return Err(error_at(file, last, format!("guards.{key}: more than {MAX_PATTERNS} patterns")).into());
    }
    let checked = list.iter().map(|text| {
        let value = text.value.as_str();
        let is_plain = !value.is_empty() && value.len() <= MAX_PATTERN && value.chars().all(is_shown);
        let problem = if is_plain { problem(value) } else { Some("it has no spaces, and 1 to 300 characters") };
        match problem {
            None => Ok(value.to_owned()),
            Some(problem) => Err(error_at(file, text, format!("guards.{key}: \"{}\": {problem}", quoted(value)))),
        }
    });
    all(checked).map(Some)
}

fn is_shown(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

fn protected(text: &str) -> Option<&'static str> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*'));
    (!begins)
        .then_some("write a type such as `google_sql_*`, or an address such as `module.db` or `aws_s3_bucket.logs`")
}

fn provider(text: &str) -> Option<&'static str> {
    let parts: Vec<&str> = text.split('/').collect();
    let is_source = matches!(parts.len(), 2 | 3) && parts.iter().all(|part| !part.is_empty());
    (!is_source).then_some("write `NAMESPACE/TYPE` or `HOST/NAMESPACE/TYPE`, such as `hashicorp/*`")
}

fn module(text: &str) -> Option<&'static str> {
    // `https://github.com*` would allow `https://github.com.example.com` as well, and `https://github.com:*` a password and another host.
    let fixed = text.split('*').next().unwrap_or_default();
    let host = fixed.rsplit_once("://").map_or(fixed, |(_, host)| host);
    // A prefix such as `git::` is no host.
    let place = host.rsplit_once("::").map_or(host, |(_, place)| place);
    let is_url = host.len() < fixed.len();
    let is_bounded = !text.contains('*') || place.contains('/') || (!is_url && place.contains(':'));
    let is_address = place.starts_with('/') || (is_url && host.is_empty());
    if text.starts_with('.') {
        return Some("modules of the repository itself are always allowed");
    }
    (!is_bounded || is_address).then_some(
        "write the host or namespace before the first `*`, and a slash after it, such as `app.terraform.io/acme/*`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::global::GlobalConfig;
    use crate::domain::RepoId;
    use insta::assert_snapshot;

    fn parsed(entries: &str) -> Result<GlobalConfig, ConfigErrors> {
        GlobalConfig::parse(&format!("repos:\n{entries}\n"), "repos.yaml")
    }

    fn error(guard: &str) -> String {
        parsed(&format!("- id: /.*/\n  guards:\n  - {guard}")).unwrap_err().to_string()
    }

    #[test]
    fn the_last_entry_with_the_key_counts_and_directories_select_guards() {
        let global = parsed(
            "- id: /.*/\n  guards: [{name: all, forbid: [external]}]\n\
             - id: github.com/acme/infra\n  guards:\n  - {name: prod, dirs: ['prod/**', live], max_destroys: 0, override: ['team:SRE', 'user:carol']}\n  \
             - {name: data, protect: [google_sql_*], providers: [], modules: [acme/*]}\n\
             - id: github.com/acme/infra\n  branch: /main/",
        )
        .unwrap();
        let guards = |name: &str, dir: &str| {
            let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() };
            let guards = global.rules(&repo, "main").guards.of_project(dir);
            guards.iter().map(|guard| guard.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(guards("other", "prod/a"), "all");
        assert_eq!(guards("infra", "prod/a"), "prod data");
        assert_eq!(guards("infra", "live"), "prod data");
        assert_eq!(guards("infra", "dev"), "data");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert_snapshot!(error("{max_destroys: 1}"), @"repos.yaml:4:5: guards: a guard needs `name`, which `--override` uses");
        assert_snapshot!(error("{name: a}"), @"repos.yaml:4:5: guards: the guard refuses nothing; known here: max_destroys, max_replacements, protect, providers, modules, forbid");
        assert_snapshot!(error("{name: A b, max_destroys: 1}"), @"repos.yaml:4:12: guards: `A b` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`, and begins without `-`");
        assert_snapshot!(error("{name: a, max_destroys: -1}"), @"repos.yaml:4:29: guards.max_destroys: it is a number from 0 to 100000");
        assert_snapshot!(error("{name: a, forbid: [exec]}"), @"repos.yaml:4:24: guards.forbid: \"exec\" is not valid; there are: external, provisioners");
        assert_snapshot!(error("{name: a, providers: [google]}"), @"repos.yaml:4:27: guards.providers: \"google\": write `NAMESPACE/TYPE` or `HOST/NAMESPACE/TYPE`, such as `hashicorp/*`");
        for pattern in [
            "*",
            "github.com*",
            "https://*",
            "https://github.com*",
            "https://github.com:*",
            "git::ssh://git@github.com*",
            "git::*",
            "git::https://*/x",
            "*/x",
        ] {
            let said = error(&format!("{{name: a, modules: ['{pattern}']}}"));
            assert!(said.contains("before the first `*`"), "{said}");
        }
        for pattern in ["acme/*", "https://github.com/*", "git::https://github.com/acme/*", "git@github.com:acme/*"] {
            assert!(
                parsed(&format!("- {{id: /.*/, guards: [{{name: a, modules: ['{pattern}']}}]}}")).is_ok(),
                "{pattern}"
            );
        }
        assert_snapshot!(error("{name: a, modules: [./x]}"), @"repos.yaml:4:25: guards.modules: \"./x\": modules of the repository itself are always allowed");
        assert_snapshot!(error("{name: a, protect: ['']}"), @"repos.yaml:4:25: guards.protect: \"\": it has no spaces, and 1 to 300 characters");
        assert_snapshot!(error("{name: a, max_destroys: 1, override: [codeowners]}"), @"repos.yaml:4:43: guards.override: \"codeowners\": it is none of `user:NAME`, `team:NAME`, `team:OWNER/NAME`");
        assert_snapshot!(error("{name: a, max_destroys: 1}\n  - {name: a, protect: [b]}"), @"repos.yaml:5:5: guards: there are two guards with the name `a`");
        assert_snapshot!(error("{name: a, max_destroy: 1}"), @"repos.yaml:4:15: unknown key `max_destroy`; did you mean `max_destroys`?");
        assert_snapshot!(error("{name: a, max_destroys: 1, dirs: ../x}"), @"repos.yaml:4:38: guards.dirs: `../x` must be relative to the repository's root, without a leading slash and `..`");
    }

    #[test]
    fn a_pull_request_sets_no_guard() {
        let said = parsed("- {id: /.*/, allowed_overrides: [guards]}").unwrap_err().to_string();
        assert!(said.contains("`guards`") || said.contains("\"guards\""), "{said}");
    }
}
