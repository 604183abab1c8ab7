//! Conversion of a comment's Markdown into text for a terminal: headings, tables and wrapped lines. Folded parts become one line, and the
//! hidden marker is left out. No control character of a comment is printed.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Maximum number of columns of text; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

/// Maximum number of lines of a code block that is not folded.
const MAX_CODE_LINES: usize = 30;

/// Style of written text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// True if ANSI colours are used.
    pub colours: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Style {
    /// Text without colours, 80 columns.
    #[cfg(test)]
    pub(crate) const PLAIN: Style = Style { colours: false, width: 80 };

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(in crate::sandbox) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Formats a line about an action.
    pub(in crate::sandbox) fn event(self, text: &str) -> String {
        format!("{} {}\n", self.paint("36;1", "●"), self.bold(&clean(text).replace('\n', " ")))
    }

    /// Formats a line of less weight.
    pub(in crate::sandbox) fn faint(self, text: &str) -> String {
        format!("{}\n", self.paint("2", &format!("  {}", clean(text).replace('\n', " "))))
    }

    fn text_width(self) -> usize {
        self.width.clamp(40, MAX_WIDTH) - 4
    }
}

/// Removes control characters, except for tabs and line ends.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Formats a comment in a box: first its author, then its text.
pub(in crate::sandbox) fn comment(author: &str, body: &str, style: Style) -> String {
    let edge = |text: &str| style.paint("36", text);
    let head = format!("{} {}", clean(author), "─".repeat(style.text_width().saturating_sub(author.chars().count())));
    let mut out = format!("  {}\n", edge(&format!("┌ {head}")));
    for line in markdown(body, style).trim_matches('\n').lines() {
        out += format!("  {} {line}", edge("│")).trim_end();
        out.push('\n');
    }
    out + &format!("  {}\n", edge(&format!("└{}", "─".repeat(style.text_width() + 2))))
}

fn markdown(body: &str, style: Style) -> String {
    let text = clean(body);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut writer = Writer { style, ..Writer::new(style) };
    for event in Parser::new_ext(&text, options) {
        writer.take(event);
    }
    writer.finish()
}

struct Writer {
    style: Style,
    out: String,
    /// Present paragraph, heading, item or cell, with its colours.
    inline: String,
    /// Raw HTML of the present block.
    html: String,
    /// Number of open `<details>`, whose contents are not written.
    folded: usize,
    /// Summary of the outermost one, while it is read.
    summary: Option<String>,
    code: Option<(bool, String)>,
    rows: Vec<Vec<String>>,
    items: Vec<Option<u64>>,
    link: Option<String>,
}

impl Writer {
    fn new(style: Style) -> Writer {
        Writer {
            style,
            out: String::new(),
            inline: String::new(),
            html: String::new(),
            folded: 0,
            summary: None,
            code: None,
            rows: Vec::new(),
            items: Vec::new(),
            link: None,
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Html(text) => self.html += &text,
            Event::InlineHtml(text) => self.raw(&text),
            Event::End(TagEnd::HtmlBlock) => {
                let html = std::mem::take(&mut self.html);
                self.raw(&html);
            }
            Event::Text(text) | Event::Code(text) if self.summary.is_some() => {
                self.summary.get_or_insert_default().push_str(&text);
            }
            _ if self.folded > 0 => {}
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.inline += &text,
            },
            Event::Code(text) => self.inline += &self.style.paint("36", &format!("`{text}`")),
            Event::SoftBreak | Event::HardBreak => self.inline.push('\n'),
            Event::Rule => self.block(&"─".repeat(self.style.text_width())),
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::CodeBlock(kind) => {
                let diff = matches!(kind, CodeBlockKind::Fenced(language) if &*language == "diff");
                self.code = Some((diff, String::new()));
            }
            Tag::List(first) => {
                self.flush();
                self.items.push(first);
            }
            Tag::Item => self.flush(),
            Tag::Link { dest_url, .. } => self.link = Some(dest_url.into_string()),
            Tag::Strong if self.style.colours => self.inline += "\x1b[1m",
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let text = std::mem::take(&mut self.inline);
                let code =
                    if matches!(level, HeadingLevel::H1 | HeadingLevel::H2 | HeadingLevel::H3) { "1;4" } else { "1" };
                // Code within it ends with a reset; restart the style of the heading after that.
                let text = text.replace("\x1b[0m", &format!("\x1b[0m\x1b[{code}m"));
                for line in wrap(&text, self.style.text_width()) {
                    self.out += &format!("{}\n", self.style.paint(code, &line));
                }
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Item => {
                self.flush();
            }
            TagEnd::List(_) => {
                self.items.pop();
                self.out.push('\n');
            }
            TagEnd::Link => {
                let address = self.link.take().unwrap_or_default();
                if !address.is_empty() && !self.inline.ends_with(&address) {
                    self.inline += &self.style.paint("2", &format!(" ({address})"));
                }
            }
            TagEnd::Strong if self.style.colours => self.inline += "\x1b[0m",
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Paragraph if self.items.is_empty() => {
                let text = std::mem::take(&mut self.inline);
                self.block(&text);
            }
            _ => {}
        }
    }

    /// Writes a paragraph and an empty line after it.
    fn block(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        for line in wrap(text.trim(), self.style.text_width()) {
            self.out += &format!("{line}\n");
        }
        self.out.push('\n');
    }

    /// Writes a waiting list item, if any.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.inline);
        if text.trim().is_empty() {
            return;
        }
        let depth = self.items.len().max(1);
        let mark = match self.items.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        let indent = "  ".repeat(depth - 1);
        let width = self.style.text_width().saturating_sub(indent.len() + mark.chars().count());
        for (at, line) in wrap(text.trim(), width).iter().enumerate() {
            let lead = if at == 0 { mark.clone() } else { " ".repeat(mark.chars().count()) };
            self.out += &format!("{indent}{lead}{line}\n");
        }
    }

    fn end_code(&mut self) {
        let Some((diff, text)) = self.code.take() else { return };
        let lines: Vec<_> = text.lines().collect();
        for line in lines.iter().take(MAX_CODE_LINES) {
            let code = match line.trim_start().chars().next() {
                Some('+') if diff => "32",
                Some('-') if diff => "31",
                Some('~' | '!') if diff => "33",
                _ => "2",
            };
            self.out += &format!("  {}\n", self.style.paint(code, line));
        }
        if lines.len() > MAX_CODE_LINES {
            self.out += &format!("  … {} more lines\n", lines.len() - MAX_CODE_LINES);
        }
        self.out.push('\n');
    }

    fn end_table(&mut self) {
        let mut rows: Vec<_> = std::mem::take(&mut self.rows).iter().flat_map(|row| lines_of(row)).collect();
        rows.retain(|row| row.iter().any(|cell| !cell.trim().is_empty()));
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |text| visible(text));
        let widths: Vec<_> = (0..columns).map(|at| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0)).collect();
        for row in &rows {
            let padded: Vec<_> = row
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text}{}", " ".repeat(width.saturating_sub(visible(text)))))
                .collect();
            self.out += &format!("  {}\n", padded.join("  ").trim_end());
        }
        self.out.push('\n');
    }

    /// Handles raw HTML, of which only `details` and `summary` have an effect.
    fn raw(&mut self, html: &str) {
        let mut rest = html;
        while let Some((before, tag)) = rest.split_once('<') {
            self.raw_text(before);
            if let Some(comment) = tag.strip_prefix("!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            let Some((name, after)) = tag.split_once('>') else {
                self.raw_text(tag);
                return;
            };
            match name.trim().to_lowercase().as_str() {
                "details" | "details open" => self.folded += 1,
                "/details" => self.folded = self.folded.saturating_sub(1),
                "summary" if self.folded == 1 => self.summary = Some(String::new()),
                "/summary" => {
                    if let Some(text) = self.summary.take() {
                        let line = format!("▸ {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
                        self.out += &format!("{}\n\n", self.style.paint("2", &line));
                    }
                }
                "br" | "br/" | "br /" => self.inline.push('\n'),
                _ => {}
            }
            rest = after;
        }
        self.raw_text(rest);
    }

    fn raw_text(&mut self, text: &str) {
        match &mut self.summary {
            Some(summary) => summary.push_str(text),
            None if self.folded == 0 => self.inline += text.trim_matches('\n'),
            None => {}
        }
    }

    fn finish(mut self) -> String {
        self.flush();
        let mut out = String::new();
        let mut empty = true;
        // At most one empty line in a row.
        for line in self.out.lines() {
            if !(line.trim().is_empty() && empty) {
                out += &format!("{line}\n");
            }
            empty = line.trim().is_empty();
        }
        out
    }
}

/// Splits a row whose cells have several lines into several rows.
fn lines_of(row: &[String]) -> Vec<Vec<String>> {
    let count = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
    let line = |at: usize| row.iter().map(|cell| cell.lines().nth(at).unwrap_or_default().to_owned()).collect();
    (0..count).map(line).collect()
}

/// Returns the number of columns of a text, without its colours.
fn visible(text: &str) -> usize {
    let mut count = 0;
    let mut escape = false;
    for c in text.chars() {
        match c {
            '\x1b' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            _ => count += 1,
        }
    }
    count
}

/// Wraps text into lines of at most `width` columns, broken at spaces; a longer word stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && visible(&line) + 1 + visible(word) > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;

    #[test]
    fn a_plan_reads_well_in_a_terminal() {
        let body = "### Plan for `network` · dir `infra/network`\n**Plan: 1 to add, 1 to change, 1 to destroy** — ⚠ destroys 1 \
             resource\n\n| | |\n|---|---|\n| **destroy** | `a.legacy_ssh` |\n| **create** | `a.iap`<br>`a.web` |\n\n<details><summary>Full plan \
             (84 lines)</summary>\n\n```diff\n+ x\n```\n\n</details>\n\nTo apply: `atlantis apply -p network` · [log](http://x/y)\n\n\
             1. one\n2. two\n   - deep\n\n```\nplain\n```\n\n<!-- tidelock:{\"v\":1} -->";
        assert_snapshot!(comment("#1  tidelock-bot", body, Style { colours: false, width: 60 }), @"
        ┌ #1  tidelock-bot ────────────────────────────────────────
        │ Plan for `network` · dir `infra/network`
        │ Plan: 1 to add, 1 to change, 1 to destroy — ⚠ destroys 1
        │ resource
        │
        │   destroy  `a.legacy_ssh`
        │   create   `a.iap`
        │            `a.web`
        │
        │ ▸ Full plan (84 lines)
        │
        │ To apply: `atlantis apply -p network` · log (http://x/y)
        │
        │ 1. one
        │ 2. two
        │   • deep
        │
        │   plain
        └──────────────────────────────────────────────────────────
        ");
    }

    #[test]
    fn no_control_character_of_a_comment_reaches_the_terminal() {
        let text = comment("bot", "a \x1b]0;owned\x07 `b\x1b[2J` \u{9b}31m <b>\x1b[1m</b>", Style::PLAIN);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn nothing_of_a_folded_part_is_shown_but_its_summary() {
        let body = "a\n<details open><summary>s <code>x</code></summary>\n\nsecret\n<details><summary>inner</summary>\n\nmore\n</details>\n</details>\n\nb";
        let text = markdown(body, Style::PLAIN);
        assert!(
            text.contains("▸ s x") && text.contains('b') && !text.contains("secret") && !text.contains("more"),
            "{text}"
        );
        assert!(!text.contains("inner"), "{text}");
    }
}
