//! Checks of values that both configuration files have.

use super::errors::all;
use super::global::{Autodiscover, AutodiscoverMode};
use super::paths::Glob;
use super::raw::{LocatedText, RawAutodiscover, RawRepoLocks, Texts};
use super::yaml::{error_at, quoted, regex_problem};
use super::{
    ApplyScope, ConfigError, ConfigErrors, DeletedProjects, LockMode, LockScope, OnMerge, Requirement, permissions,
};
use crate::domain::Distribution;
use crate::domain::command::CommandName;
use crate::domain::duration;
use crate::domain::tags::{MAX_TAGS, tag_problem};
use regex::Regex;
use serde_saphyr::Spanned;
use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

/// Versions that `hashicorp/go-version` parses.
static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^v?[0-9]+(\.[0-9]+)*(-?[0-9A-Za-z~-]+(\.[0-9A-Za-z~-]+)*)?(\+[0-9A-Za-z~-]+(\.[0-9A-Za-z~-]+)*)?$")
        .ok()
});

/// Parses requirements. `kind` is `plan_requirement` and so on.
pub(super) fn requirements(list: &[LocatedText], kind: &str, file: &str) -> Result<Vec<Requirement>, ConfigErrors> {
    let parse = |text: &LocatedText| {
        Requirement::of_name(&text.value).ok_or_else(|| {
            let known = Requirement::ALL.map(Requirement::name).join(", ");
            error_at(file, text, format!("\"{}\" is not a valid {kind}; there are: {known}", quoted(&text.value)))
        })
    };
    all(list.iter().map(parse))
}

pub(super) fn silenced_commands(list: &[LocatedText], file: &str) -> Result<Vec<CommandName>, ConfigErrors> {
    all(list.iter().map(|text| match text.value.as_str() {
        "plan" => Ok(CommandName::Plan),
        "apply" => Ok(CommandName::Apply),
        other => Err(error_at(
            file,
            text,
            format!("\"{}\" is not a valid value of silence_pr_comments; there are: plan, apply", quoted(other)),
        )),
    }))
}

/// Parses a duration; `0` means no limit, or never.
pub(super) fn age(text: &LocatedText, key: &str, file: &str) -> Result<Duration, ConfigError> {
    let zero = if key == "reminder_interval" { "never" } else { "no limit" };
    duration::parse(text.value.trim()).ok_or_else(|| {
        let message = format!("{key}: \"{}\" is no duration such as 30m or 24h; 0 means {zero}", quoted(&text.value));
        error_at(file, text, message)
    })
}

pub(super) fn apply_scope(text: &LocatedText, file: &str) -> Result<ApplyScope, ConfigError> {
    match text.value.as_str() {
        "all_planned" => Ok(ApplyScope::AllPlanned),
        "selected" => Ok(ApplyScope::Selected),
        other => {
            let message = format!("apply_scope: \"{}\" is not valid; there are: all_planned, selected", quoted(other));
            Err(error_at(file, text, message))
        }
    }
}

pub(super) fn deleted_projects(text: &LocatedText, file: &str) -> Result<DeletedProjects, ConfigError> {
    match text.value.as_str() {
        "destroy" => Ok(DeletedProjects::Destroy),
        "ignore" => Ok(DeletedProjects::Ignore),
        other => {
            let message = format!("deleted_projects: \"{}\" is not valid; there are: destroy, ignore", quoted(other));
            Err(error_at(file, text, message))
        }
    }
}

/// Parses rules of `allowed_users` and `allowed_teams`, with one of the checks of [`permissions`].
pub(super) fn people(
    list: &[LocatedText],
    key: &str,
    check: fn(&str) -> Result<(), String>,
    file: &str,
) -> Result<Vec<String>, ConfigErrors> {
    if let (Some(problem), Some(last)) = (permissions::too_many(list.len()), list.last()) {
        return Err(error_at(file, last, format!("{key}: {problem}")).into());
    }
    all(list.iter().map(|text| match check(&text.value) {
        Ok(()) => Ok(text.value.clone()),
        Err(problem) => Err(error_at(file, text, format!("{key}: \"{}\": {problem}", quoted(&text.value)))),
    }))
}

/// Parses tags of a project, each once.
pub(super) fn tags(list: &Spanned<Vec<LocatedText>>, file: &str) -> Result<Vec<String>, ConfigErrors> {
    if list.value.len() > MAX_TAGS {
        return Err(error_at(file, list, format!("tags: a project has {MAX_TAGS} tags at most")).into());
    }
    let mut tags: Vec<String> = all(list.value.iter().map(|text| match tag_problem(&text.value) {
        None => Ok(text.value.clone()),
        Some(problem) => Err(error_at(file, text, format!("tags: `{}` {problem}", quoted(&text.value)))),
    }))?;
    let mut seen = HashSet::new();
    tags.retain(|tag| seen.insert(tag.clone()));
    Ok(tags)
}

/// Parses a regex between slashes.
pub(super) fn slashed_regex(text: &LocatedText, key: &str, file: &str) -> Result<Regex, ConfigError> {
    let value = text.value.as_str();
    let inner = value.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).ok_or_else(|| {
        let shown = quoted(value);
        error_at(file, text, format!("{key}: the regex must begin and end with a slash, such as `/^{shown}$/`"))
    })?;
    Regex::new(inner)
        .map_err(|error| error_at(file, text, format!("{key}: not a valid regex: {}", regex_problem(&error))))
}

/// Lock mode in place of one with an error: it may be meant as strict, and other keys need that.
pub(super) const UNKNOWN_LOCKS: LockMode = LockMode::Strict(LockScope::PullRequest);

pub(super) fn lock_mode(raw: &RawRepoLocks, file: &str) -> Result<LockMode, ConfigError> {
    let mode = match &raw.mode {
        None => LockMode::OnPlan,
        Some(mode) => match mode.value.as_str() {
            "disabled" => LockMode::Disabled,
            "on_plan" => LockMode::OnPlan,
            "on_apply" => LockMode::OnApply,
            "strict" => LockMode::Strict(LockScope::PullRequest),
            other => {
                let shown = quoted(other);
                let message = format!(
                    "\"{shown}\" is not a valid repo_locks mode; there are: disabled, on_plan, on_apply, strict"
                );
                return Err(error_at(file, mode, message));
            }
        },
    };
    let Some(scope) = &raw.scope else { return Ok(mode) };
    match (mode, scope.value.as_str()) {
        (LockMode::Strict(_), "project") => Ok(LockMode::Strict(LockScope::Project)),
        (LockMode::Strict(_), "pull_request") => Ok(mode),
        (LockMode::Strict(_), other) => {
            let message =
                format!("\"{}\" is not a valid repo_locks scope; there are: project, pull_request", quoted(other));
            Err(error_at(file, scope, message))
        }
        _ => Err(error_at(file, scope, "repo_locks: `scope` is for `mode: strict` only; drop it, or set that mode")),
    }
}

pub(super) fn on_merge(text: &LocatedText, file: &str) -> Result<OnMerge, ConfigError> {
    match text.value.as_str() {
        "apply" => Ok(OnMerge::Apply),
        "nothing" => Ok(OnMerge::Nothing),
        other => {
            let message = format!("on_merge: \"{}\" is not known; there are: apply, nothing", quoted(other));
            Err(error_at(file, text, message))
        }
    }
}

/// Returns the error for `on_merge: apply` without mode `strict`.
pub(super) fn on_merge_needs_strict(text: &LocatedText, file: &str) -> ConfigError {
    let message = "on_merge: `apply` is for mode `strict` only: other modes do not know after a merge what was not applied. Add \
                   `repo_locks: {mode: strict}`, or drop `on_merge`";
    error_at(file, text, message)
}

pub(super) fn autodiscover(raw: &RawAutodiscover, file: &str) -> Result<Autodiscover, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mode = match raw.mode.as_ref().map(|mode| (mode, mode.value.as_str())) {
        None | Some((_, "auto")) => AutodiscoverMode::Auto,
        Some((_, "enabled")) => AutodiscoverMode::Enabled,
        Some((_, "disabled")) => AutodiscoverMode::Disabled,
        Some((at, other)) => {
            let message =
                format!("\"{}\" is not a valid autodiscover mode; there are: auto, enabled, disabled", quoted(other));
            errors.add(error_at(file, at, message));
            AutodiscoverMode::Auto
        }
    };
    let ignore_paths = errors.take(ignore_paths(&raw.ignore_paths, file)).flatten();
    errors.none_or(Autodiscover { mode, ignore_paths })
}

fn ignore_paths(raw: &Texts, file: &str) -> Result<Option<Vec<String>>, ConfigErrors> {
    let Some(list) = raw else { return Ok(None) };
    let paths = all(list.iter().map(|text| {
        if text.value.starts_with('/') {
            let message = format!(
                "autodiscover.ignore_paths: `{}` must be relative to the repository's root; drop the leading slash",
                quoted(&text.value)
            );
            return Err(error_at(file, text, message));
        }
        Glob::new(&text.value)
            .map(|_| text.value.clone())
            .map_err(|error| error_at(file, text, format!("autodiscover.ignore_paths: {error}")))
    }));
    paths.map(Some)
}

pub(super) fn distribution(text: &LocatedText, file: &str) -> Result<Distribution, ConfigError> {
    match text.value.as_str() {
        "terraform" => Ok(Distribution::Terraform),
        "opentofu" => Ok(Distribution::OpenTofu),
        other => {
            let message =
                format!("\"{}\" is not a valid terraform_distribution; there are: terraform, opentofu", quoted(other));
            Err(error_at(file, text, message))
        }
    }
}

/// Parses a version without leading `v`, with three numbers at least, as Atlantis normalises it.
pub(super) fn version(text: &LocatedText, key: &str, file: &str) -> Result<String, ConfigError> {
    let value = text.value.trim();
    if !VERSION.as_ref().is_some_and(|regex| regex.is_match(value)) {
        let message = format!("{key}: \"{}\" is not a version, such as 1.11.4", quoted(value));
        return Err(error_at(file, text, message));
    }
    let value = value.strip_prefix('v').unwrap_or(value);
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (numbers, rest) = value.split_at(end);
    let missing = 3usize.saturating_sub(numbers.split('.').count());
    Ok(format!("{numbers}{}{rest}", ".0".repeat(missing)))
}

/// Parses a project name, which is used in URLs and file names.
pub(super) fn project_name(text: &LocatedText, file: &str) -> Result<String, ConfigError> {
    let name = text.value.as_str();
    if name.is_empty() {
        return Err(error_at(file, text, "name: if set it cannot be empty; name the project or drop the key"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~/".contains(c)) {
        let message = format!(
            "name: \"{}\" must contain only URL safe characters: letters, digits, `-`, `_`, `.`, `~`, `/`",
            quoted(name)
        );
        return Err(error_at(file, text, message));
    }
    Ok(name.to_owned())
}

/// Returns the error in a workspace name, which becomes a directory and an argument; `None` if it is valid.
pub fn workspace_problem(name: &str) -> Option<&'static str> {
    match name {
        _ if name.contains(['/', '\\']) => Some("it must not contain a slash or backslash"),
        _ if name.contains("..") || name == "." => Some("it must not be `.` nor contain `..`"),
        _ if name.starts_with(['-', '~']) => Some("it must not begin with `-` or `~`"),
        _ if name.contains('$') => Some("it must not contain `$`"),
        _ if name.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Some("it must not contain white space or control characters")
        }
        _ => None,
    }
}
