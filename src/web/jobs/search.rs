//! Search in a log: a text that lines contain, without regard to case.

use super::ansi::{Span, TextStyle};
use regex::{Regex, RegexBuilder};
use std::ops::Range;

/// Longest text, in characters; the rest is cut.
const MAX_TEXT: usize = 200;

/// Maximum number of places that are marked in one line.
const MAX_PLACES: usize = 20;

/// A text to look for in a log.
pub(super) struct LogSearch {
    /// The text, as it was asked for.
    pub(super) text: String,
    pattern: Regex,
}

impl LogSearch {
    /// Returns the search for a text; absent if there is none but spaces.
    pub(super) fn new(text: &str) -> Option<LogSearch> {
        let text: String = text.trim().chars().take(MAX_TEXT).collect();
        if text.is_empty() {
            return None;
        }
        let pattern = RegexBuilder::new(&regex::escape(&text)).case_insensitive(true).build().ok()?;
        Some(LogSearch { text, pattern })
    }

    /// Returns true if a line of a log shows the text.
    pub(super) fn finds(&self, line: &str) -> bool {
        // What a page shows of such a line is the line.
        if line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return self.pattern.is_match(line);
        }
        self.pattern.is_match(&shown(&TextStyle::default().spans(line)))
    }

    /// Returns the first [`MAX_PLACES`] places in the text of these spans, in bytes.
    pub(super) fn places(&self, spans: &[Span]) -> Vec<Range<usize>> {
        self.pattern.find_iter(&shown(spans)).map(|found| found.range()).take(MAX_PLACES).collect()
    }
}

/// Returns the text of spans, without their styles.
pub(super) fn shown(spans: &[Span]) -> String {
    spans.iter().map(|Span(_, text)| text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_literal_and_found_across_colours_in_any_case() {
        let vectors = [
            ("error", "An \u{1b}[31mEr\u{1b}[1mror\u{1b}[0m here", true),
            ("a.c", "abc", false),
            ("A.C", "xa.cx", true),
            ("ÄÖ", "äö", true),
            ("ß", "ẞ", true),
            ("31m", "\u{1b}[31mred", false),
            ("10%", "10%\r20%", false),
            ("20%", "10%\r20%\r", true),
            ("(", "f(x)", true),
        ];
        for (text, line, found) in vectors {
            assert_eq!(LogSearch::new(text).unwrap().finds(line), found, "{text} in {line:?}");
        }
        assert!(LogSearch::new("  ").is_none() && LogSearch::new("").is_none());
        assert_eq!(LogSearch::new(&"€".repeat(1_000)).unwrap().text.chars().count(), MAX_TEXT);
    }
}
