//! A log as HTML: numbered lines with links and colours; the output of a successful `init` is folded.

use super::ansi::{Span, TextStyle};
use super::{HEAD_LINES, MAX_PAGE_LINES};
use std::fmt::Write;

/// CSS class of a line that begins an error.
const ERROR: &str = "err";

/// A rendered log.
pub(super) struct Rendered {
    /// Safe HTML: the log is escaped.
    pub(super) html: String,
    /// Number of lines of the log.
    pub(super) lines: usize,
    /// Number of the first line that is shown and begins an error.
    pub(super) first_error: Option<usize>,
}

/// Returns the lines of a log. Links and IDs of the stream depend on this count.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let some = !text.is_empty();
    text.split('\n').filter(move |_| some)
}

/// Returns the log without any escape.
pub(in crate::web) fn plain(text: &str) -> String {
    let mut style = TextStyle::default();
    let mut plain = String::with_capacity(text.len());
    for line in lines(text) {
        style.spans(line).into_iter().for_each(|Span(_, text)| plain.push_str(&text));
        plain.push('\n');
    }
    plain
}

/// Returns the lines that the page leaves out of so many, counted from 0.
fn hidden(lines: usize) -> std::ops::Range<usize> {
    if lines > MAX_PAGE_LINES { HEAD_LINES..HEAD_LINES + (lines - MAX_PAGE_LINES) } else { 0..0 }
}

/// Returns true if the page of a log of so many lines has this one, counted from 0.
pub(in crate::web) fn shows_line(line: usize, lines: usize) -> bool {
    !hidden(lines).contains(&line)
}

/// Renders the log as HTML.
pub(super) fn render(text: &str) -> Rendered {
    let all: Vec<&str> = lines(text).collect();
    let fold = init_part(&all);
    let hidden = hidden(all.len());
    let mut html = String::with_capacity(text.len() * 2);
    let mut style = TextStyle::default();
    let (mut first_error, mut hidden_errors) = (None, 0);
    for (index, line) in all.iter().enumerate() {
        let spans = style.spans(line);
        let kind = kind(&spans);
        if hidden.contains(&index) {
            hidden_errors += usize::from(kind == ERROR);
            if index + 1 == hidden.end {
                put_cut(&mut html, hidden.len(), hidden_errors);
            }
            continue;
        }
        if kind == ERROR {
            first_error.get_or_insert(index + 1);
        }
        if let Some(fold) = &fold
            && index == fold.start
            && fold.end <= HEAD_LINES
        {
            let _ = write!(html, "<details class=\"fold\"><summary>init, {} lines</summary>", fold.len());
        }
        put_line(&mut html, index + 1, kind, &spans);
        if fold.as_ref().is_some_and(|fold| index + 1 == fold.end && fold.end <= HEAD_LINES) {
            html.push_str("</details>");
        }
    }
    Rendered { html, lines: all.len(), first_error }
}

/// Adds the note about lines that are left out.
fn put_cut(html: &mut String, lines: usize, errors: usize) {
    let with_errors = match errors {
        0 => String::new(),
        1 => ", one with an error,".to_owned(),
        many => format!(", {many} with an error,"),
    };
    let _ =
        write!(html, "<p class=\"cut\">{lines} lines{with_errors} are not shown here; the download has them all.</p>");
}

fn put_line(html: &mut String, number: usize, kind: &str, spans: &[Span]) {
    let _ = write!(
        html,
        "<div class=\"l {kind}\" id=\"L{number}\"><a class=\"n\" href=\"#L{number}\" data-n=\"{number}\" tabindex=\"-1\" \
         aria-label=\"line {number}\"></a><span class=\"t\">"
    );
    for Span(classes, text) in spans {
        if classes.is_empty() {
            put_text(html, text);
        } else {
            let _ = write!(html, "<span class=\"{classes}\">");
            put_text(html, text);
            html.push_str("</span>");
        }
    }
    html.push_str("</span></div>\n");
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

/// Returns the lines of `init`, if it succeeded.
fn init_part(lines: &[&str]) -> Option<std::ops::Range<usize>> {
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let begin = lines.iter().position(|line| {
        has(
            line,
            &["Initializing the backend", "Initializing modules", "Initializing provider plugins", "Upgrading modules"],
        )
    })?;
    let done = begin
        + lines[begin..].iter().position(|line| {
            has(line, &["Terraform has been successfully initialized", "OpenTofu has been successfully initialized"])
        })?;
    // The advice after an empty line has three lines in two paragraphs.
    let advice =
        ["You may now begin working", "any changes that are required", "should now work.", "If you ever set or change"];
    let more = ["rerun this command", "commands will detect it"];
    let rest = lines[done + 1..].iter();
    let length = rest.take_while(|line| line.trim().is_empty() || has(line, &advice) || has(line, &more)).count();
    Some(begin..done + 1 + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use proptest::prelude::*;

    #[test]
    fn lines_are_counted_the_same_with_and_without_a_last_newline() {
        for (text, count) in [("", 0), ("\n", 0), ("a", 1), ("a\n", 1), ("a\n\nb\n", 3), ("a\n\n", 2)] {
            assert_eq!(lines(text).count(), count, "{text:?}");
        }
    }

    #[test]
    fn a_line_is_escaped_numbered_and_coloured() {
        assert_snapshot!(render("<b>&\"'\x1b[31mred").html, @r##"<div class="l " id="L1"><a class="n" href="#L1" data-n="1" tabindex="-1" aria-label="line 1"></a><span class="t">&lt;b&gt;&amp;&quot;&#39;<span class="c1">red</span></span></div>"##);
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
    fn init_is_folded_only_when_it_is_through() {
        let done = "Initializing the backend...\n- Installing x\n\nTerraform has been successfully initialized!\n\nYou may now begin working\n\nPlan: 1 to add\n";
        let html = render(done).html;
        assert!(html.starts_with("<details class=\"fold\"><summary>init, 7 lines</summary>"), "{html}");
        assert!(html.contains("</details><div class=\"l sum\" id=\"L8\">"), "{html}");
        assert!(!render("Initializing the backend...\n- Installing x\n").html.contains("<details"));
    }

    #[test]
    fn a_huge_log_shows_its_beginning_and_its_end() {
        let text: String = (1..=MAX_PAGE_LINES + 5).map(|n| format!("{n}\n")).collect();
        let rendered = render(&text);
        assert_eq!(rendered.lines, MAX_PAGE_LINES + 5);
        assert!(rendered.html.contains("5 lines are not shown here"));
        for (number, shown) in [(1, true), (HEAD_LINES, true), (HEAD_LINES + 1, false), (HEAD_LINES + 5, false)] {
            assert_eq!(rendered.html.contains(&format!("id=\"L{number}\"")), shown, "{number}");
        }
        assert!(rendered.html.contains(&format!("id=\"L{}\"", MAX_PAGE_LINES + 5)));
    }

    #[test]
    fn the_first_error_that_is_shown_is_found_and_hidden_ones_are_counted() {
        assert_eq!(render("a\n│ Error: b\nError: c\n").first_error, Some(2));
        assert_eq!(render("a\nb: Error: c\n").first_error, None);
        let error_in = |lines: &[usize]| {
            let line = |n| if lines.contains(&n) { "Error: x\n".to_owned() } else { format!("{n}\n") };
            render(&(1..=MAX_PAGE_LINES + 5).map(line).collect::<String>())
        };
        let rendered = error_in(&[HEAD_LINES + 1, HEAD_LINES + 5, HEAD_LINES + 6]);
        assert_eq!(rendered.first_error, Some(HEAD_LINES + 6));
        assert!(rendered.html.contains("5 lines, 2 with an error, are not shown here"));
        assert!(error_in(&[HEAD_LINES + 2]).html.contains("5 lines, one with an error, are not shown here"));
    }

    #[test]
    fn the_download_has_no_escapes() {
        assert_eq!(plain("\x1b[1mPlan\x1b[0m\n50%\r100%\n\nend"), "Plan\n100%\n\nend\n");
    }

    proptest! {
        #[test]
        fn nothing_of_a_log_becomes_markup(text in "[<>&\"'a-c=/\n\x1b\\[m01;]{0,80}") {
            let html = render(&text).html;
            let allowed = regex::Regex::new(
                r##"<div class="l [a-z]*" id="L\d+"><a class="n" href="#L\d+" data-n="\d+" tabindex="-1" aria-label="line \d+"></a><span class="t">|</?span( class="[a-z0-9 ]+")?>|</div>"##,
            ).unwrap();
            let rest = allowed.replace_all(&html, "");
            prop_assert!(!rest.contains(['<', '>', '"', '\'']), "{rest}");
        }
    }
}
