//! Typed values of settings. Mistakes are collected, so that one start reports all of them; values are never quoted.

use super::SettingsError;
use super::environment::ProcessEnvironment;
use super::read::{EMPTY_MEANS_NONE, Values};
use super::table::{self, Setting, Support, ValueKind};
use crate::domain::duration;
use secrecy::{ExposeSecret, SecretString};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Reads settings by name and kind.
pub(super) struct Reader {
    pub(super) values: Values,
    pub(super) environment: ProcessEnvironment,
    problems: Vec<SettingProblem>,
    pub(super) warnings: Vec<String>,
}

/// A mistake in a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingProblem {
    /// Text for people, which begins with the place of the setting.
    pub text: String,
    /// True if the setting is required and not set.
    pub is_missing: bool,
}

/// Returns an error if there are mistakes.
pub(super) fn none_of(problems: &[SettingProblem]) -> Result<(), SettingsError> {
    let texts: Vec<&str> = problems.iter().map(|problem| problem.text.as_str()).collect();
    if texts.is_empty() { Ok(()) } else { Err(SettingsError::Invalid(texts.join("\n"))) }
}

impl Reader {
    /// Creates a reader of these flags, of variables, and of the files that they name.
    pub(super) fn new(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Reader, SettingsError> {
        let environment = ProcessEnvironment::new(env)?;
        let values = Values::read(args, &environment)?;
        Ok(Reader { values, environment, problems: Vec::new(), warnings: Vec::new() })
    }

    /// Creates a reader of values that were read before, and of variables.
    pub(super) fn of(
        values: Values,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Reader, SettingsError> {
        let environment = ProcessEnvironment::new(env)?;
        Ok(Reader { values, environment, problems: Vec::new(), warnings: Vec::new() })
    }

    /// Returns the values, the environment, and all mistakes.
    pub(super) fn finish(self) -> (Values, ProcessEnvironment, Vec<SettingProblem>) {
        let Reader { values, mut environment, problems, warnings } = self;
        environment.warnings.extend(warnings);
        (values, environment, problems)
    }

    /// Returns the place of a setting for messages; its flag if it is not set.
    fn place(&self, name: &str) -> String {
        self.values.get(name).map_or_else(|| format!("--{name}"), |given| given.place.clone())
    }

    /// Records a mistake in a setting, only once even if several settings are checked against this one.
    pub(super) fn wrong(&mut self, name: &str, what: impl std::fmt::Display) {
        let problem = SettingProblem { text: format!("{} {what}", self.place(name)), is_missing: !self.is_given(name) };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Records a warning about a setting.
    pub(super) fn warn(&mut self, name: &str, what: impl std::fmt::Display) {
        let warning = format!("{} {what}", self.place(name));
        self.warnings.push(warning);
    }

    /// Returns true if a value is set that is not empty.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|given| !given.value.expose_secret().is_empty())
    }

    fn written(&self, name: &str) -> &str {
        let default = table::find(name).map_or("", |setting| setting.default);
        match self.values.get(name).map(|given| given.value.expose_secret()) {
            Some("") if name != EMPTY_MEANS_NONE => default,
            Some(value) => value,
            None => default,
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.written(name).to_owned()
    }

    /// Reads text; none if it is empty.
    pub(super) fn optional(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub(super) fn secret(&self, name: &str) -> Option<SecretString> {
        Some(self.written(name)).filter(|text| !text.is_empty()).map(SecretString::from)
    }

    pub(super) fn list(&self, name: &str) -> Vec<String> {
        split(self.written(name))
    }

    pub(super) fn switch(&mut self, name: &str) -> bool {
        let value = parse_switch(self.written(name));
        if value.is_none() {
            self.wrong(name, "is neither true nor false");
        }
        value.unwrap_or_default()
    }

    /// Reads a number from `least` to `most`. A 0 out of bounds and a value that Kubernetes sets mean the default.
    pub(super) fn number(&mut self, name: &str, least: i64, most: i64) -> i64 {
        let default = table::find(name).and_then(|setting| setting.default.parse().ok()).unwrap_or_default();
        let written = self.written(name);
        if written.is_empty() || written.starts_with("tcp://") || written.starts_with("udp://") {
            return default;
        }
        match written.parse::<i64>() {
            Ok(0) if least > 0 => default,
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.wrong(name, format!("is no number from {least} to {most}"));
                default
            }
        }
    }

    pub(super) fn duration(&mut self, name: &str) -> Duration {
        let default = table::find(name).and_then(|setting| duration::parse(setting.default)).unwrap_or_default();
        match duration::parse(self.written(name)) {
            Some(duration) if duration.is_zero() => default,
            Some(duration) => duration,
            None => {
                self.wrong(name, "is no duration such as 90s, 10m or 1h");
                default
            }
        }
    }

    pub(super) fn path(&mut self, name: &str) -> Option<PathBuf> {
        let path = super::check::expand(&self.optional(name)?, &self.environment);
        path.map_err(|what| self.wrong(name, what)).ok()
    }

    /// Reads one of some words; reports any other word, and returns the first one for it.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        let written = self.written(name);
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == written) {
            return *choice;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.wrong(name, format!("is none of {}", words.join(", ")));
        choices[0].1
    }

    /// Warns of settings without an effect, unless they have their default values, and of secrets that others see.
    pub(super) fn check_support(&mut self) {
        let mut warnings = Vec::new();
        for (setting, given) in self.values.iter() {
            let place = &given.place;
            let is_default = is_default(setting, given.value.expose_secret());
            match setting.support {
                Support::Accepted(why) if !is_default && !why.is_empty() => {
                    warnings.push(format!("{place} has no effect: {why}"))
                }
                _ => {}
            }
            if setting.is_secret() && place.starts_with("--") {
                warnings.push(format!("{place} is a secret that everybody on this machine can see: use its variable"));
            }
        }
        self.warnings.append(&mut warnings);
    }
}

/// Returns true if a value means the same as the default.
fn is_default(setting: &Setting, value: &str) -> bool {
    match setting.kind {
        _ if value.is_empty() || value == setting.default => true,
        ValueKind::Switch => parse_switch(value).is_some_and(|on| Some(on) == parse_switch(setting.default)),
        ValueKind::Number => value == "0" || value.starts_with("tcp://") || value.starts_with("udp://"),
        _ => false,
    }
}

/// Splits a list at commas, without white space around items and without empty ones.
fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Parses Go's words for true and false.
fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
