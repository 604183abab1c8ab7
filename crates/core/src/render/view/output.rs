//! Output of Terraform and steps: the shown and the folded part.

use super::{Maker, ResultSection};
use crate::domain::outcome::Planned;
use crate::render::diff::diff_markdown;
use crate::render::markdown::{self, Folding};
use minijinja::Value;

/// Maximum number of lines of an error that are not folded.
const ERROR_LINES: usize = 40;
/// Longest error in a heading, in characters.
const HEADLINE: usize = 120;
/// Words of errors of Terraform and OpenTofu that announce others.
const ANNOUNCEMENTS: [&str; 3] = [
    "encountered problems during initialisation",
    "encountered problems during initialization",
    "There are some problems with the configuration",
];
/// Maximum number of lines of output values before a log.
const OUTPUT_VALUE_LINES: usize = 20;
/// Logs of at most this many lines are not folded, so nothing is quoted from them.
const SHORT_LOG: usize = 12;

impl Maker<'_> {
    /// Formats output in a fence, folded if it is long; `None` if it is empty.
    pub(super) fn block(&self, text: &str, language: &str, title: &str, log: Option<&str>) -> Option<Value> {
        self.shown(text, language, title, log, self.options.folding())
    }

    fn shown(&self, text: &str, language: &str, title: &str, log: Option<&str>, folding: Folding) -> Option<Value> {
        if text.trim().is_empty() {
            return None;
        }
        let text = cut(text, self.room.output, log);
        Some(Value::from_safe_string(markdown::output(&text, language, title, folding)))
    }

    /// Formats the text of a plan, which is not folded within a fold.
    pub(super) fn plan_output(&self, planned: &Planned, section: ResultSection, log: Option<&str>) -> Option<Value> {
        let text = markdown::clean(&planned.output);
        let text = if self.options.diff_format { diff_markdown(&text) } else { markdown::diff_columns(&text) };
        let folding = if section == ResultSection::Fold { Folding::Never } else { self.options.folding() };
        self.shown(&text, "diff", "Full plan", log, folding)
    }

    /// Formats the output values of an apply, if its log is long, and the log.
    pub(super) fn apply_output(&self, output: &str, log: Option<&str>) -> (Option<Value>, Option<Value>) {
        let whole = self.block(output, "", "Log", log);
        let lines: Vec<&str> = output.trim_end().lines().collect();
        let values = lines.iter().rposition(|line| line.trim_end() == "Outputs:").map(|at| &lines[at..]);
        let highlights = values
            .filter(|values| {
                lines.len() > SHORT_LOG && values.len() <= OUTPUT_VALUE_LINES && !self.options.disable_folding
            })
            .and_then(|values| self.shown(&values.join("\n"), "", "Outputs", log, Folding::Never));
        (highlights, whole)
    }

    /// Formats the lines of an error, and the whole log if it has more.
    pub(super) fn error_output(&self, output: &str, log: Option<&str>) -> (Option<Value>, Option<Value>) {
        let text = markdown::clean(output);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let excerpt = error_lines(&lines);
        // Output before the error is folded, however short it is.
        let whole = (excerpt.len() < lines.len()).then(|| {
            let text = cut(output, self.room.output, log);
            let fold = !self.options.disable_folding;
            Value::from_safe_string(if fold {
                markdown::folded(&text, "Whole log")
            } else {
                markdown::fence(&text, "")
            })
        });
        (self.shown(&excerpt.join("\n"), "", "Error", log, Folding::Never), whole)
    }
}

/// Returns the text after `Error:` on a line, with or without Terraform's frame.
fn error_on(line: &str) -> Option<&str> {
    Some(line.trim_start_matches(['│', ' ', '╷']).strip_prefix("Error:")?.trim())
}

/// Returns true if an error only says that others follow, as `init` does for errors of the code.
fn announces(error: &str) -> bool {
    ANNOUNCEMENTS.iter().any(|words| error.contains(words))
}

/// Returns the first line of the first error of an output that states a cause.
pub(in crate::render) fn headline(output: &str) -> Option<String> {
    let text = markdown::clean(output);
    let mut errors = text.lines().filter_map(error_on).filter(|error| !error.is_empty());
    let announced = errors.next()?;
    let first = if announces(announced) { errors.next().unwrap_or(announced) } else { announced };
    Some(markdown::shorten(first.trim_end_matches(['.', ':']), HEADLINE))
}

/// Returns the lines of the first error of an output, as a comment shows them.
pub(in crate::render) fn error_excerpt(output: &str) -> String {
    let text = markdown::clean(output);
    error_lines(&text.trim_end().lines().collect::<Vec<_>>()).join("\n")
}

/// Returns the lines from the first error on, as many as are shown; the last lines if there is no error. Lines before an error do not
/// belong to it.
fn error_lines<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    let with_frame = |at: usize| match at.checked_sub(1) {
        Some(above) if lines[above].trim() == "╷" => above,
        _ => at,
    };
    match lines.iter().position(|line| error_on(line).is_some()).map(with_frame) {
        Some(first) => &lines[first..lines.len().min(first + ERROR_LINES)],
        None => &lines[lines.len().saturating_sub(ERROR_LINES)..],
    }
}

/// Cuts text to at most `budget` characters. Cuts the middle at line breaks, and keeps more of the end than of the beginning.
pub(in crate::render) fn cut(text: &str, budget: usize, log: Option<&str>) -> String {
    let length = text.chars().count();
    if length <= budget {
        return text.to_owned();
    }
    let index = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let head = &text[..index(budget / 4)];
    let tail = &text[index(length - budget * 3 / 4)..];
    let head = head.rfind('\n').map_or(head, |at| &head[..at]);
    let tail = tail.find('\n').map_or(tail, |at| &tail[at + 1..]);
    let left_out = length - head.chars().count() - tail.chars().count();
    let whereabouts = log.map_or(String::new(), |log| format!("; the whole log: {log}"));
    format!("{head}\n[… {left_out} characters are left out here{whereabouts} …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_own_lines_are_found() {
        let noise: Vec<String> = (0..60).map(|i| format!("line {i}")).collect();
        let mut lines: Vec<&str> = noise.iter().map(String::as_str).collect();
        assert_eq!(error_lines(&lines), &lines[20..]);
        lines.extend(["╷", "│ Error: one", "╵", "╷", "│ Error: two", "╵"]);
        assert_eq!(error_lines(&lines), &lines[60..]);
        let many = [&["╷", "│ Error: first"][..], &lines[..60], &["Error: last", "why"][..]].concat();
        assert_eq!(error_lines(&many), &many[..ERROR_LINES]);
        let short = ["Initializing the backend...", "", "╷", "│ Error: Failed to query", "╵"];
        assert_eq!(error_lines(&short), &short[2..], "what succeeded before is left out");
        assert_eq!(error_lines(&short[..2]), &short[..2]);
        assert_eq!(headline(&short.join("\n")).as_deref(), Some("Failed to query"));
        assert_eq!(headline("no Error: here"), None);
        let announced = "╷\n│ Error: Terraform encountered problems during initialisation, including problems\n│ with the \
                         configuration, described below.\n╵\n";
        assert!(headline(announced).is_some_and(|said| said.contains("encountered problems")));
        let with_first = format!("{announced}╷\n│ Error: Invalid expression\n╵\n╷\n│ Error: Another one\n╵\n");
        assert_eq!(headline(&with_first).as_deref(), Some("Invalid expression"));
    }

    #[test]
    fn the_middle_is_left_out() {
        let text = (0..100).map(|i| format!("line {i}\n")).collect::<String>();
        let cut = cut(&text, 100, Some("https://t/jobs/1"));
        assert!(cut.starts_with("line 0\n") && cut.trim_end().ends_with("line 99"), "{cut}");
        assert!(cut.contains("characters are left out here; the whole log: https://t/jobs/1"), "{cut}");
        assert!(cut.chars().count() < 200);
    }
}
