//! Escapes untrusted text for Markdown: prose, inline code, fences. No title, branch, directory or output of a pull
//! request can ping people, open HTML, end a fence or imitate our marker.

use std::fmt::Write as _;

/// Longest untrusted prose, in characters.
const MAX_PROSE: usize = 4000;
/// Longest inline code or command, in characters: as long as a path may be.
const MAX_CODE: usize = 4200;
/// Longest run of backticks that is kept; a fence has to be longer.
const MAX_TICKS: usize = 100;
/// Output of this many lines is folded, as in Atlantis.
const FOLD_FROM_LINES: usize = 13;

/// Place of prose in its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProsePlace {
    /// At the start, where more characters need escaping.
    Start,
    Within,
}

/// Choice between a fence and a fold for output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folding {
    IfLong,
    Never,
}

/// Removes terminal escapes, control characters and characters that change the direction of text; `\n` and `\t` stay.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || turns_direction(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Returns true for characters that reorder or hide text.
pub(crate) fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}')
}

/// Skips the rest of an escape after ESC: a control sequence, an operating-system command, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next_if(|c| *c != '\n') {
        Some('[') => while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {},
        Some(']') => {
            while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
            if chars.next_if_eq(&'\u{1b}').is_some() {
                chars.next_if_eq(&'\\');
            }
            return;
        }
        _ => return,
    }
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Formats one line of prose. Code spans stay code spans; everything else that Markdown, HTML or the host would interpret is escaped.
pub(crate) fn prose(text: &str) -> String {
    inline(text, ProsePlace::Start)
}

fn inline(text: &str, place: ProsePlace) -> String {
    let flat = shorten(&clean(text).split_whitespace().collect::<Vec<_>>().join(" "), MAX_PROSE);
    let mut out = String::with_capacity(flat.len() + 16);
    let mut rest = flat.as_str();
    while let Some(at) = rest.find('`') {
        literal(&mut out, &rest[..at], place);
        let ticks = rest[at..].bytes().take_while(|b| *b == b'`').count();
        let after = &rest[at + ticks..];
        rest = match closing(after, ticks) {
            Some(end) => {
                out.push_str(&code(&after[..end]));
                &after[end + ticks..]
            }
            None => {
                out.push_str(&"&#96;".repeat(ticks));
                after
            }
        };
    }
    literal(&mut out, rest, place);
    out
}

/// Returns the position of a run of exactly `ticks` backticks.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].bytes().take_while(|b| *b == b'`').count();
        if run == ticks && start > 0 {
            return Some(start);
        }
        at = start + run;
    }
    None
}

fn literal(out: &mut String, text: &str, place: ProsePlace) {
    let at_start = place == ProsePlace::Start;
    let chars: Vec<char> = text.chars().collect();
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i)).copied().unwrap_or(' ');
        let after = chars.get(i + 1).copied().unwrap_or(' ');
        let escape = match c {
            '<' | '>' | '&' | '*' | '|' | '\\' | '$' => true,
            '_' => !(before.is_alphanumeric() && after.is_alphanumeric()),
            '~' => before == '~' || after == '~',
            '!' => after == '[',
            ']' => matches!(after, '(' | '[' | ':'),
            '#' | '-' | '+' | '=' | ':' => at_start && out.is_empty(),
            '.' | ')' => at_start && out.len() < 10 && !out.is_empty() && out.bytes().all(|b| b.is_ascii_digit()),
            _ => false,
        };
        if escape {
            let _ = write!(out, "&#{};", u32::from(c));
        } else {
            out.push(c);
        }
        // `@{id}` is a mention on hosts without login names.
        if c == '@' && (after == '{' || !before.is_alphanumeric() && after.is_alphanumeric()) {
            out.push('\u{200b}');
        }
    }
}

/// Formats inline code, also valid in table cells and headings.
pub fn code(text: &str) -> String {
    let text = shorten(&clean(text).replace(['\n', '\t'], " "), MAX_CODE);
    if text.trim().is_empty() {
        return "`(empty)`".to_owned();
    }
    let plain = !text.contains(['`', '|', '\\', '<']) && !text.starts_with(' ') && !text.ends_with(' ');
    if plain { format!("`{text}`") } else { html_code(&text) }
}

/// Formats code as HTML, for places without Markdown (`<summary>`) and for text that no code span can hold.
pub(crate) fn html_code(text: &str) -> String {
    let mut out = String::from("<code>");
    for c in shorten(&clean(text).replace(['\n', '\t'], " "), MAX_CODE).chars() {
        match c {
            '.' | '/' | '-' | ',' | ' ' => out.push(c),
            '_' if !out.ends_with(|c: char| !c.is_alphanumeric()) => out.push(c),
            c if c.is_ascii_punctuation() => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push_str("</code>");
    out
}

/// Formats a link with prose as its text. An address that is not http(s) gives the text alone.
pub(crate) fn link(text: &str, url: &str) -> String {
    let safe = |c: char| c.is_ascii_graphic() && !matches!(c, '(' | ')' | '<' | '>' | '"' | '\\' | '`' | '|');
    let text = inline(text, ProsePlace::Within).replace('[', "&#91;").replace(']', "&#93;");
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        return text;
    }
    let mut address = String::with_capacity(url.len());
    for c in url.chars() {
        if safe(c) {
            address.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(address, "%{byte:02X}");
            }
        }
    }
    format!("[{text}]({address})")
}

/// Formats a code fence that is longer than any run of backticks inside.
pub(crate) fn fence(text: &str, language: &str) -> String {
    let too_long = "`".repeat(MAX_TICKS + 1);
    let mut text = clean(text);
    while text.contains(&too_long) {
        text = text.replace(&too_long, "`…");
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest.max(2) + 1);
    format!("{ticks}{language}\n{}\n{ticks}", text.trim_matches('\n').trim_end())
}

/// Formats a command on a line of its own.
pub(crate) fn block(command: &str) -> String {
    fence(&shorten(&clean(command).replace(['\n', '\t'], " "), MAX_CODE), "shell")
}

/// Formats output in a fence, perhaps folded under its title and length.
pub(crate) fn output(text: &str, language: &str, title: &str, folding: Folding) -> String {
    let fenced = fence(text, language);
    let lines = fenced.lines().count() - 2;
    if folding == Folding::Never || lines < FOLD_FROM_LINES { fenced } else { details(title, lines, &fenced) }
}

/// Formats output in a fence, folded under its title and length.
pub(crate) fn folded(text: &str, title: &str) -> String {
    let fenced = fence(text, "");
    details(title, fenced.lines().count() - 2, &fenced)
}

fn details(title: &str, lines: usize, fenced: &str) -> String {
    format!("<details><summary>{title} ({lines} lines)</summary>\n\n{fenced}\n\n</details>")
}

/// Cuts text to at most this many characters; an ellipsis marks a cut.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Removes repeated empty lines outside of fences, and empty lines at both ends.
pub(crate) fn tidy(markdown: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut fence: Option<usize> = None;
    for line in markdown.lines() {
        let ticks = line.bytes().take_while(|b| *b == b'`').count();
        match fence {
            Some(open) if ticks == open && line.len() == ticks => fence = None,
            None if ticks >= 3 => fence = Some(ticks),
            None if line.trim().is_empty() => {
                if out.last().is_some_and(|last| !last.is_empty()) {
                    out.push("");
                }
                continue;
            }
            _ => {}
        }
        out.push(if fence.is_none() { line.trim_end() } else { line });
    }
    while out.last().is_some_and(|last| last.is_empty()) {
        out.pop();
    }
    out.join("\n")
}

/// Moves the `+`, `-` and `~` of Terraform's resources to the first column, where the host colours them; those of attributes stay.
pub(crate) fn diff_columns(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let body = line.trim_start_matches(' ');
        let is_resource = line.len() - body.len() == 2
            && ["-/+ ", "+/- ", "<= ", "+ ", "- ", "~ "].iter().any(|marker| body.starts_with(marker));
        out.push_str(if is_resource { body } else { line });
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_taken_literally_but_for_its_code_spans() {
        for (text, want) in [
            ("plain words, a_b and 2 > 1", "plain words, a_b and 2 &#62; 1"),
            ("run `atlantis plan -p a`", "run `atlantis plan -p a`"),
            ("one ` tick", "one &#96; tick"),
            ("<!-- tidelock:{} -->", "&#60;!-- tidelock:{} --&#62;"),
            ("@team and a@b", "@\u{200b}team and a@b"),
            ("@{712020:a} x@{b}", "@\u{200b}{712020:a} x@\u{200b}{b}"),
            ("*bold* __x__", "&#42;bold&#42; &#95;&#95;x&#95;&#95;"),
            ("![x](http://t)", "&#33;[x&#93;(http://t)"),
            ("# no heading", "&#35; no heading"),
            ("1. no list", "1&#46; no list"),
            ("two\nlines\tone", "two lines one"),
            ("``a`b``", "<code>a&#96;b</code>"),
        ] {
            assert_eq!(prose(text), want, "{text:?}");
        }
    }

    #[test]
    fn code_holds_any_name() {
        for (text, want) in [
            ("infra/a b", "`infra/a b`"),
            ("a`b", "<code>a&#96;b</code>"),
            ("a|b", "<code>a&#124;b</code>"),
            ("", "`(empty)`"),
            ("a\u{202e}b\u{1b}[31mc", "`abc`"),
        ] {
            assert_eq!(code(text), want, "{text:?}");
        }
    }

    #[test]
    fn fences_are_longer_than_any_inside() {
        assert_eq!(fence("a\n````\nb\n", "diff"), "`````diff\na\n````\nb\n`````");
        assert_eq!(fence("\n  a", ""), "```\n  a\n```");
    }

    #[test]
    fn terminal_escapes_and_controls_are_gone() {
        for (text, want) in [
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{1b}\\", "link"),
            ("a\r\nb\rc", "a\nb\nc"),
            ("x\u{0}\u{8}\u{9b}y", "xy"),
            ("\u{1b}", ""),
            ("\u{1b}(Bq", "Bq"),
        ] {
            assert_eq!(clean(text), want, "{text:?}");
        }
    }

    #[test]
    fn links_cannot_be_broken_out_of() {
        assert_eq!(link("#41 a](x) b", "https://h/p?a=(b)"), "[#41 a&#93;(x) b](https://h/p?a=%28b%29)");
        assert_eq!(link("t", "javascript:alert(1)"), "t");
    }

    #[test]
    fn markers_of_the_diff_move_to_the_first_column() {
        let plan = "  # a.b will change\n  ~ resource \"a\" \"b\" {\n      ~ x = 1 -> 2\n      - a word in a text\n    }\n  -/+ resource \"c\" \"d\" {\n";
        assert_eq!(
            diff_columns(plan),
            "  # a.b will change\n~ resource \"a\" \"b\" {\n      ~ x = 1 -> 2\n      - a word in a text\n    }\n-/+ resource \"c\" \"d\" {\n"
        );
    }
}
