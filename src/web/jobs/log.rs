//! Lines of a log: their numbers, their kinds, and their text without colours.

use super::ansi::{Span, TextStyle};
use super::{HEAD_LINES, MAX_PAGE_LINES};

/// CSS class of a line that begins an error.
pub(super) const ERROR: &str = "err";

/// Returns the lines of a log. Links and IDs of the stream depend on this count.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let some = !text.is_empty();
    text.strip_suffix('\n').unwrap_or(text).split('\n').filter(move |_| some)
}

/// Returns the log without any escape.
pub(in crate::web) fn plain(text: &str) -> String {
    plain_piece(text, &mut TextStyle::default())
}

/// Returns whole lines of a log without any escape. The style is that of the lines before.
pub(super) fn plain_piece(text: &str, style: &mut TextStyle) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in lines(text) {
        style.spans(line).into_iter().for_each(|Span(_, text)| plain.push_str(&text));
        plain.push('\n');
    }
    plain
}

/// Returns the lines that the page leaves out of so many, counted from 0.
pub(super) fn hidden(lines: usize) -> std::ops::Range<usize> {
    if lines > MAX_PAGE_LINES { HEAD_LINES..HEAD_LINES + (lines - MAX_PAGE_LINES) } else { 0..0 }
}

/// Returns true if the page of a log of so many lines has this one, counted from 0.
pub(in crate::web) fn shows_line(line: usize, lines: usize) -> bool {
    !hidden(lines).contains(&line)
}

/// Adds escaped text.
pub(in crate::web) fn put_text(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

/// Returns the CSS class of a line that begins an error, or of an uncoloured line: part of a plan, warning.
pub(super) fn kind(spans: &[Span]) -> &'static str {
    let mut texts = spans.iter().map(|Span(_, text)| text.trim_start_matches(['│', '╷', '╵', '|', ' ']));
    let text = texts.find(|text| !text.is_empty()).unwrap_or_default();
    if text.starts_with("Error: ") || text.starts_with("Error ") {
        return ERROR;
    }
    let [Span(classes, _)] = spans else { return "" };
    if !classes.is_empty() {
        return "";
    }
    if text.starts_with("Warning: ") {
        return "warn";
    }
    if text.starts_with("Plan: ") || text.starts_with("Apply complete!") || text.starts_with("No changes.") {
        return "sum";
    }
    if text.starts_with("-/+ ") || text.starts_with("+/- ") {
        return "del";
    }
    // `init` lists installed packages with dashes too: only lines in the form of a plan count.
    let of_plan = |rest: &str| {
        rest.starts_with("resource ")
            || rest.contains(" = ")
            || rest.contains("-> null")
            || rest.starts_with('"')
            || rest.ends_with(['{', '[', '(', '}', ']', ')'])
    };
    match (text.get(..2), text.get(2..)) {
        (Some("+ "), Some(rest)) if of_plan(rest) => "add",
        (Some("- "), Some(rest)) if of_plan(rest) => "del",
        (Some("~ "), Some(rest)) if of_plan(rest) => "chg",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_the_same_with_and_without_a_last_newline() {
        for (text, count) in [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\n\nb\n", 3), ("a\n\n", 2)] {
            assert_eq!(lines(text).count(), count, "{text:?}");
        }
    }

    #[test]
    fn plan_lines_are_told_from_lists() {
        let vectors = [
            ("  + resource \"null_resource\" \"a\" {", "add"),
            ("      ~ name = \"a\" -> \"b\"", "chg"),
            ("  - resource \"x\" \"y\" {", "del"),
            ("-/+ resource \"x\" \"y\" {", "del"),
            ("- Installing hashicorp/null v3.2.4...", ""),
            ("- Finding latest version of hashicorp/null", ""),
            ("│ Error: Invalid reference", "err"),
            (
                "\u{1b}[31m│\u{1b}[0m \u{1b}[0m\u{1b}[1m\u{1b}[31mError: \u{1b}[0m\u{1b}[0m\u{1b}[1mInvalid reference",
                "err",
            ),
            ("\u{1b}[31m│\u{1b}[0m \u{1b}[0mThe Error: of it", ""),
            ("│ Warning: Deprecated", "warn"),
            ("Plan: 1 to add, 0 to change, 0 to destroy.", "sum"),
            ("ä", ""),
        ];
        for (line, expected) in vectors {
            assert_eq!(kind(&TextStyle::default().spans(line)), expected, "{line}");
        }
    }

    #[test]
    fn the_download_has_no_escapes() {
        assert_eq!(plain("\x1b[1mPlan\x1b[0m\n50%\r100%\n\nend"), "Plan\n100%\n\nend\n");
    }
}
