//! Findings of `tidelock check`, as text and as JSON.

use crate::config::ConfigErrors;
use crate::config::places::{FilePlace, key_at};
use serde::Serialize;
use std::fmt::Write;

/// The whole report. Text from files is printed verbatim, without control characters.
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
                key: missing.or_else(|| key_at(text, place)),
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
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text.chars().map(|char| if char.is_control() && char != '\n' { ' ' } else { char }).collect()
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        if !self.repository.is_empty() {
            writeln!(to, "{}, pull requests for {}\n", self.repository, self.base_branch)?;
            match self.global_file.as_str() {
                "" => writeln!(to, "  server-side configuration: none")?,
                file if self.entries.is_empty() => {
                    writeln!(to, "  server-side configuration: {file}, no entry is for it")?
                }
                file => writeln!(to, "  server-side configuration: {file}, entries {}", self.entries.join(", "))?,
            }
            writeln!(to, "  repo config: {}", if self.repo_file.is_empty() { "none" } else { &self.repo_file })?;
        }
        values(to, &self.rules)?;
        for project in &self.projects {
            let ProjectReport { label, dir, workspace, listed, values: of_project } = project;
            let listed = listed.as_deref().unwrap_or("discovered: no file lists it");
            writeln!(to, "\nProject `{label}`: directory {dir}, workspace {workspace}; {listed}")?;
            values(to, of_project)?;
        }
        list(to, "Otherwise than in Atlantis, of what is used here", &self.differences)?;
        list(to, "Warnings", &self.warnings)?;
        list(to, "Errors", &self.errors.iter().map(ReportedError::line).collect::<Vec<_>>())?;
        let (projects, warnings, errors) = (self.projects.len(), self.warnings.len(), self.errors.len());
        writeln!(to, "\n{projects} projects, {warnings} warnings, {errors} errors")
    }

    /// Returns the report as one JSON object.
    pub(super) fn json(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

impl ReportedError {
    fn line(&self) -> String {
        let place = match (self.file.as_str(), self.line, self.column) {
            ("", ..) => String::new(),
            (file, Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
            (file, ..) => format!("{file}: "),
        };
        let key = self.key.as_ref().map_or(String::new(), |key| format!(" (key {key})"));
        format!("{place}{}{key}", self.text)
    }
}

/// Splits a message about a file into the line and column at its beginning and the rest.
fn located<'m>(file: &str, message: &'m str) -> Option<(FilePlace, &'m str)> {
    let (line, rest) = message.strip_prefix(file)?.strip_prefix(':')?.split_once(':')?;
    let (column, rest) = rest.split_once(": ")?;
    Some((FilePlace { line: line.parse().ok()?, column: column.parse().ok()? }, rest))
}

fn values(to: &mut String, values: &[EffectiveValue]) -> std::fmt::Result {
    for EffectiveValue { key, value, from, note } in values {
        writeln!(to, "  {key:<28} {value}   [{from}]")?;
        if !note.is_empty() {
            writeln!(to, "  {:<28} {note}", "")?;
        }
    }
    Ok(())
}

fn list(to: &mut String, title: &str, lines: &[String]) -> std::fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n{title}:")?;
    for line in lines {
        writeln!(to, "  - {}", line.replace('\n', "\n    "))?;
    }
    Ok(())
}
