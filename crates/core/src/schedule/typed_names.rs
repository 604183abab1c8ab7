//! `-p`: the names of projects that a value means.

use super::target::{list, refuse};
use super::{Facts, NoSchedule};
use crate::config::paths::{Glob, is_glob};
use regex::{Regex, RegexBuilder};

/// Largest compiled `-p` regex, in bytes.
const MAX_REGEX_BYTES: usize = 256 * 1024;

/// Value of `-p`: an exact name or a glob, or an anchored regex under `--enable-regexp-cmd`. No name has characters of a glob.
pub(super) enum Names {
    Exact(String),
    Glob(Glob),
    Regex(Box<Regex>),
}

impl Names {
    /// Reads a value; the error is for people.
    pub(super) fn new(text: &str, facts: &Facts<'_>) -> Result<Names, NoSchedule> {
        if !facts.options.enable_regexp_cmd {
            return match is_glob(text) {
                true => Glob::new(text).map(Names::Glob).or_else(|error| refuse(format!("`-p`: {error}; fix it"))),
                false => Ok(Names::Exact(text.to_owned())),
            };
        }
        let build = |text: &str| RegexBuilder::new(text).size_limit(MAX_REGEX_BYTES).build();
        // The text has to be valid without the anchors first: `a)|(b` would break out of them.
        match build(text).and_then(|_| build(&format!("^(?:{text})$"))) {
            Ok(regex) => Ok(Names::Regex(Box::new(regex))),
            Err(_) => {
                refuse(format!("`-p {text}` is not a valid regular expression; fix it, or give a project's whole name"))
            }
        }
    }

    /// Returns true if the value means the project of this name.
    pub(super) fn mean(&self, name: &str) -> bool {
        match self {
            Names::Exact(exact) => exact == name,
            Names::Glob(glob) => glob.matches(name),
            Names::Regex(regex) => regex.is_match(name),
        }
    }

    /// Checks that several projects are only selected with one of `allowed_regexp_prefixes`, if there are any.
    pub(super) fn check_count(&self, text: &str, count: usize, facts: &Facts<'_>) -> Result<(), NoSchedule> {
        let prefixes = facts.repo_config.map(|config| config.allowed_regexp_prefixes.as_slice()).unwrap_or_default();
        if count < 2 || prefixes.is_empty() || prefixes.iter().any(|prefix| text.starts_with(prefix.as_str())) {
            return Ok(());
        }
        let allowed = list(prefixes.iter().map(|prefix| format!("`{prefix}`")));
        refuse(format!(
            "`-p {text}` matches {count} projects, but does not begin with one of allowed_regexp_prefixes: {allowed}; \
             begin it with one, or name one project"
        ))
    }
}
