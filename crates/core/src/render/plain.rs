//! Rewrites the HTML of a comment for hosts that show tags as text: folds become bold titles, code stays code.

/// Returns the comment without HTML elements. Fences and code spans stay as they are; so do character references, which Markdown decodes.
pub(super) fn without_html(comment: &str) -> String {
    let mut out = String::with_capacity(comment.len());
    let mut fence: Option<usize> = None;
    for line in comment.lines() {
        let ticks = ticks_of(line);
        match fence {
            Some(open) => {
                if ticks == open && line.len() == ticks {
                    fence = None;
                }
                out.push_str(line);
            }
            None if ticks >= 3 && !line[ticks..].contains('`') => {
                fence = Some(ticks);
                out.push_str(line);
            }
            None => rewrite(&mut out, line),
        }
        out.push('\n');
    }
    out
}

/// Number of backticks that a text begins with.
fn ticks_of(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'`').count()
}

/// Appends one line outside of fences.
fn rewrite(out: &mut String, line: &str) {
    let in_table = line.starts_with('|');
    let mut rest = line;
    while let Some(at) = rest.find(['`', '<']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with('`') { code_span(out, rest) } else { element(out, rest, in_table) };
        rest = &rest[taken..];
    }
    out.push_str(rest);
}

/// Appends a code span, or backticks that begin none. Returns its length.
fn code_span(out: &mut String, text: &str) -> usize {
    let ticks = ticks_of(text);
    let mut at = ticks;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = ticks_of(&text[start..]);
        at = start + run;
        if run == ticks {
            out.push_str(&text[..at]);
            return at;
        }
    }
    out.push_str(&text[..ticks]);
    ticks
}

/// Appends the text that replaces the tag, or the element of code, at the beginning of `text`. Returns the length of what it replaces.
fn element(out: &mut String, text: &str, in_table: bool) -> usize {
    if let Some((inner, _)) = text.strip_prefix("<code>").and_then(|rest| rest.split_once("</code>")) {
        code(out, inner, in_table);
        return "<code>".len() + inner.len() + "</code>".len();
    }
    let Some(name) = tag(text) else {
        out.push('<');
        return 1;
    };
    match name.trim_matches('/') {
        "summary" => out.push_str("**"),
        "br" => out.push_str(if in_table { ", " } else { "\n" }),
        _ => {}
    }
    text.find('>').map_or(text.len(), |end| end + 1)
}

/// Returns the name of the tag at the beginning of a text, with the slash of an end tag.
fn tag(text: &str) -> Option<&str> {
    let (inside, _) = text.strip_prefix('<')?.split_once('>')?;
    let name = inside.split(' ').next()?;
    let word = name.trim_matches('/');
    let is_word =
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(|c| c.is_ascii_alphanumeric());
    (is_word && !inside.contains('<')).then_some(name)
}

/// Appends code. Code with backticks, or with a bar that would end the cell of a table, is written as text.
fn code(out: &mut String, escaped: &str, in_table: bool) {
    let text = decoded(escaped);
    if text.contains('`') || (in_table && text.contains('|')) || text.trim().is_empty() {
        out.push_str(escaped);
        return;
    }
    let space = if text.starts_with(' ') || text.ends_with(' ') { " " } else { "" };
    out.push_str(&format!("`{space}{text}{space}`"));
}

/// Decodes the references to ASCII characters that [`super::markdown::html_code`] writes.
fn decoded(escaped: &str) -> String {
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find("&#") {
        out.push_str(&rest[..at]);
        let after = &rest[at + 2..];
        let number = after.split_once(';').and_then(|(digits, rest)| Some((digits.parse::<u8>().ok()?, rest)));
        rest = match number.filter(|(byte, _)| byte.is_ascii_punctuation()) {
            Some((byte, after)) => {
                out.push(char::from(byte));
                after
            }
            None => {
                out.push_str("&#");
                after
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::markdown;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_become_markdown() {
        for (html, want) in [
            ("<details><summary>Full plan (14 lines)</summary>", "**Full plan (14 lines)**"),
            ("</details>", ""),
            ("| `a`<br>`b`<br>and 2 more |", "| `a`, `b`, and 2 more |"),
            ("dir <code>infra/dns</code> · x", "dir `infra/dns` · x"),
            ("<code>a&#96;b</code>", "a&#96;b"),
            ("<code>a b </code>", "` a b  `"),
            ("<code>plan -d &#60;dir&#62;</code>", "`plan -d <dir>`"),
            ("<code>a&#124;b</code>", "`a|b`"),
            ("| <code>a&#124;b</code> |", "| a&#124;b |"),
            ("a &#60; b `<sub>` < c", "a &#60; b `<sub>` < c"),
            ("<sub>small</sub> <https://h/p>", "small <https://h/p>"),
            ("```\n<details>\n```\n<b>x</b>", "```\n<details>\n```\nx"),
        ] {
            assert_eq!(without_html(html).trim_end(), want, "{html}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Code that only HTML can hold is the same text afterwards.
        #[test]
        fn code_keeps_its_text(text in "[ -~é🌊]{1,30}") {
            let escaped = markdown::html_code(&text);
            let shown = without_html(&escaped);
            let is_padded = text.starts_with(' ') || text.ends_with(' ');
            let want = match text.contains('`') || text.trim().is_empty() {
                true => escaped.trim_start_matches("<code>").trim_end_matches("</code>").to_owned(),
                false if is_padded => format!("` {text} `"),
                false => format!("`{text}`"),
            };
            prop_assert_eq!(shown.trim_end_matches('\n'), want);
        }

        /// Any text is rewritten without a panic, to about the same length.
        #[test]
        fn any_text_is_rewritten(text in "(<|>|`|</|code|summary|br|&#|96;|\\||\n|[ -~]){0,40}") {
            prop_assert!(without_html(&text).len() <= 2 * text.len() + 8);
        }
    }
}
