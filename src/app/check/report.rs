//! Findings of `tidelock check`, and the report as text.

use crate::config::places::{FilePlace, key_at};
use crate::config::{ConfigErrors, quoted};
use serde::Serialize;
use std::fmt::Display;

/// The whole report.
#[derive(Debug, Default, Serialize)]
pub(super) struct CheckReport {
    /// `host/owner/name`.
    pub(super) repository: String,
    pub(super) base_branch: String,
    /// `repos.yaml`; empty if there is none.
    pub(super) global_file: String,
    /// Its entries that match this repository.
    pub(super) entries: Vec<String>,
    /// The repository's own file; empty if there is none.
    pub(super) repo_file: String,
    /// Values that apply to the repository as a whole.
    pub(super) rules: Vec<EffectiveValue>,
    pub(super) projects: Vec<ProjectReport>,
    /// Differences from Atlantis that concern this repository.
    pub(super) differences: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) errors: Vec<ReportedError>,
}

/// One key, its value and its origin.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EffectiveValue {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) from: String,
    /// Meaning of the value, or its parts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ProjectReport {
    /// Name, or directory and workspace.
    pub(super) label: String,
    pub(super) dir: String,
    pub(super) workspace: String,
    /// Place of its entry; absent if it was discovered.
    pub(super) listed: Option<String>,
    pub(super) values: Vec<EffectiveValue>,
}

/// An error and its place.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ReportedError {
    /// Empty if the error concerns no file.
    pub(super) file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<u64>,
    /// Such as `projects[0].workflow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    pub(super) text: String,
}

impl CheckReport {
    /// Adds an error that concerns no file.
    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.errors.push(ReportedError { text: text.into(), ..ReportedError::default() });
    }

    /// Adds errors in a file with this text.
    pub(super) fn errors_in(&mut self, file: &str, text: &str, errors: &ConfigErrors) {
        for error in errors.iter() {
            let Some((place, message)) = located(file, &error.0) else {
                self.error(error.to_string());
                continue;
            };
            // A missing key has no place of its own.
            let missing = message.split_once(" is required").map(|(key, _)| key.to_owned());
            self.errors.push(ReportedError {
                file: file.to_owned(),
                line: Some(place.line),
                column: Some(place.column),
                key: missing.or_else(|| key_at(text, place)).map(|key| quoted(&key)),
                text: message.to_owned(),
            });
        }
        if errors.is_cut() {
            let text = "there are more errors; correct these first".to_owned();
            self.errors.push(ReportedError { file: file.to_owned(), text, ..ReportedError::default() });
        }
    }

    /// Returns the report as text.
    pub(super) fn text(&self) -> String {
        let mut to = ReportLines::default();
        if !self.repository.is_empty() {
            to.line(format_args!("{}, pull requests for {}", self.repository, self.base_branch));
            to.blank();
            match self.global_file.as_str() {
                "" => to.line("  server-side configuration: none"),
                file if self.entries.is_empty() => {
                    to.line(format_args!("  server-side configuration: {file}, no entry is for it"));
                }
                file => {
                    to.line(format_args!("  server-side configuration: {file}, entries {}", self.entries.join(", ")))
                }
            }
            let repo_file = if self.repo_file.is_empty() { "none" } else { &self.repo_file };
            to.line(format_args!("  repo config: {repo_file}"));
        }
        to.values(&self.rules);
        for project in &self.projects {
            let ProjectReport { label, dir, workspace, listed, values } = project;
            let listed = listed.as_deref().unwrap_or("discovered: no file lists it");
            to.blank();
            to.line(format_args!("Project `{label}`: directory {dir}, workspace {workspace}; {listed}"));
            to.values(values);
        }
        to.list("Otherwise than in Atlantis, of what is used here", &self.differences);
        to.list("Warnings", &self.warnings);
        to.list("Errors", &self.errors.iter().map(ReportedError::line).collect::<Vec<_>>());
        to.blank();
        to.line(self.summary());
        to.0
    }

    /// Returns the numbers of projects, warnings and errors.
    pub(super) fn summary(&self) -> String {
        let (projects, warnings, errors) = (self.projects.len(), self.warnings.len(), self.errors.len());
        let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        [counted(projects, "project"), counted(warnings, "warning"), counted(errors, "error")].join(", ")
    }
}

/// Lines of the report as text.
#[derive(Default)]
struct ReportLines(String);

impl ReportLines {
    fn line(&mut self, line: impl Display) {
        self.0.push_str(&on_one_line(&line.to_string()));
        self.blank();
    }

    fn blank(&mut self) {
        self.0.push('\n');
    }

    fn values(&mut self, values: &[EffectiveValue]) {
        for EffectiveValue { key, value, from, note } in values {
            self.line(format_args!("  {key:<28} {value}   [{from}]"));
            if !note.is_empty() {
                self.line(format_args!("  {:<28} {note}", ""));
            }
        }
    }

    fn list(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.blank();
        self.line(format_args!("{title}:"));
        for line in lines {
            self.line(format_args!("  - {line}"));
        }
    }
}

/// Returns text on one line that holds no command of a CI system: `##[` of GitHub Actions and `##vso[` of Azure Pipelines count anywhere in
/// a line.
pub(super) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char == '#' && line.ends_with('#') {
            line.push(' ');
        }
        line.push(if char.is_control() { ' ' } else { char });
    }
    line
}

impl ReportedError {
    fn line(&self) -> String {
        let place = match (self.file.as_str(), self.line, self.column) {
            ("", ..) => String::new(),
            (file, Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
            (file, ..) => format!("{file}: "),
        };
        format!("{place}{}", self.with_key())
    }

    /// Returns the text and the key.
    pub(super) fn with_key(&self) -> String {
        let key = self.key.as_ref().map_or(String::new(), |key| format!(" (key {key})"));
        format!("{}{key}", self.text)
    }
}

/// Splits a message about a file into the line and column at its beginning and the rest.
pub(super) fn located<'m>(file: &str, message: &'m str) -> Option<(FilePlace, &'m str)> {
    let (line, rest) = message.strip_prefix(file)?.strip_prefix(':')?.split_once(':')?;
    let (column, rest) = rest.split_once(": ")?;
    Some((FilePlace { line: line.parse().ok()?, column: column.parse().ok()? }, rest))
}
