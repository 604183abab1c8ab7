//! The report for programs: workflow commands of GitHub Actions, and SARIF.

use super::report::{CheckReport, ReportedError, located, on_one_line};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::{Path, PathBuf, absolute};

/// Names of formats, the default first.
pub(super) const FORMATS: [&str; 4] = ["text", "json", "github", "sarif"];
/// Identifiers of findings, each with its description.
const RULES: [(&str, &str); 4] = [
    ("repo-config", "Errors in the repository's own configuration file"),
    ("server-config", "Errors in the server-side configuration file"),
    ("settings", "Errors in settings and arguments, and of the repository as a whole"),
    ("warning", "Configuration that is valid, and probably not meant"),
];
/// Identifier of warnings.
const WARNING: &str = "warning";

/// Directories to which names of files are relative.
pub(super) struct ReportRoots {
    /// The checkout.
    pub(super) checkout: PathBuf,
    /// Working directory, which is the root of the repository in CI.
    pub(super) working: PathBuf,
}

/// An error or a warning, and its place.
struct CheckFinding<'a> {
    level: &'static str,
    rule: &'static str,
    /// Empty if it concerns no file.
    file: &'a str,
    place: Option<(u64, u64)>,
    text: Cow<'a, str>,
}

/// Returns the report in one of the [`FORMATS`].
pub(super) fn print(report: &CheckReport, format: &str, roots: &ReportRoots) -> String {
    match format {
        "json" => quiet_json(&json!(report)),
        "github" => github(report, roots),
        "sarif" => quiet_json(&sarif(report, roots)),
        _ => report.text(),
    }
}

/// Returns JSON in which no value begins a command of a CI system, or has a control character: Azure Pipelines obeys `##vso[` anywhere in a
/// line, and terminals those beyond ASCII, too.
fn quiet_json(value: &Value) -> String {
    let mut quiet = String::new();
    for char in format!("{value:#}\n").replace("##", "#\\u0023").chars() {
        match char {
            '\n' => quiet.push(char),
            char if char.is_control() => quiet.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => quiet.push(char),
        }
    }
    quiet
}

/// Returns one workflow command for each finding, and a summary.
fn github(report: &CheckReport, roots: &ReportRoots) -> String {
    let command = |finding: CheckFinding<'_>| {
        let title = format!("title={}", property(&format!("tidelock check: {}", finding.rule)));
        let file = (!finding.file.is_empty()).then(|| format!("file={}", property(&roots.shown(report, finding.file))));
        let place = finding.place.map(|(line, column)| format!("line={line},col={column}"));
        let properties: Vec<String> = file.into_iter().chain(place).chain([title]).collect();
        format!("::{} {}::{}\n", finding.level, properties.join(","), data(&finding.text))
    };
    findings(report).map(command).chain([format!("{}\n", report.summary())]).collect()
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    let lines: Vec<String> = text.split(['\r', '\n']).map(on_one_line).collect();
    lines.join("\n").replace('%', "%25").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Returns the report as one run of SARIF 2.1.0.
fn sarif(report: &CheckReport, roots: &ReportRoots) -> Value {
    let rules: Vec<Value> =
        RULES.iter().map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } })).collect();
    let results: Vec<Value> = findings(report).map(|finding| result(&finding, report, roots)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "tidelock check", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(finding: &CheckFinding<'_>, report: &CheckReport, roots: &ReportRoots) -> Value {
    // GitHub takes no result without a place.
    let named = [finding.file, report.repo_file.as_str(), report.global_file.as_str()];
    let file = named.into_iter().find(|file| !file.is_empty()).unwrap_or(crate::config::repo::DEFAULT_FILES[0]);
    let (line, column) = finding.place.unwrap_or((1, 1));
    json!({
        "ruleId": finding.rule,
        "ruleIndex": RULES.iter().position(|(id, _)| *id == finding.rule),
        "level": finding.level,
        "message": { "text": finding.text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&roots.shown(report, file)) },
                "region": { "startLine": line, "startColumn": column },
            },
        }],
    })
}

/// Encodes a path for an address.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    let encode = |byte: u8| match byte {
        b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).fold(scheme.to_owned(), |uri, part| uri + &part)
}

fn findings(report: &CheckReport) -> impl Iterator<Item = CheckFinding<'_>> {
    report.errors.iter().map(|error| of_error(report, error)).chain(report.warnings.iter().map(|text| {
        let (file, place) = place_of_warning(report, text).map_or(("", None), |(file, place)| (file, Some(place)));
        CheckFinding { level: "warning", rule: WARNING, file, place, text: Cow::Borrowed(text) }
    }))
}

fn of_error<'a>(report: &CheckReport, error: &'a ReportedError) -> CheckFinding<'a> {
    let rule = match error.file.as_str() {
        "" => "settings",
        file if file == report.repo_file => "repo-config",
        _ => "server-config",
    };
    let text = Cow::Owned(error.with_key());
    CheckFinding { level: "error", rule, file: &error.file, place: error.line.zip(error.column), text }
}

/// Returns the place that a warning begins with: `FILE:LINE:COLUMN: ` or `FILE line LINE`.
fn place_of_warning<'a>(report: &'a CheckReport, text: &str) -> Option<(&'a str, (u64, u64))> {
    [&report.repo_file, &report.global_file].into_iter().filter(|file| !file.is_empty()).find_map(|file| {
        if let Some((place, _)) = located(file, text) {
            return Some((file.as_str(), (place.line, place.column)));
        }
        let rest = text.strip_prefix(file.as_str())?.strip_prefix(" line ")?;
        let end = rest.find(|char: char| !char.is_ascii_digit())?;
        Some((file.as_str(), (rest.get(..end)?.parse().ok()?, 1)))
    })
}

impl ReportRoots {
    /// Returns the path of a file, relative to the working directory, else to the checkout, else absolute.
    fn shown(&self, report: &CheckReport, file: &str) -> String {
        let path = match file == report.global_file {
            true => Path::new(file).canonicalize().or_else(|_| absolute(file)).unwrap_or_else(|_| file.into()),
            false => self.checkout.join(file),
        };
        let relative = path.strip_prefix(&self.working).or_else(|_| path.strip_prefix(&self.checkout)).unwrap_or(&path);
        relative.to_string_lossy().into_owned()
    }
}
