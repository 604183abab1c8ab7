//! Renders the Markdown of descriptions and comments as safe HTML. A few harmless tags of raw HTML are kept; the rest is shown as text, and
//! all of it on a host without HTML in Markdown.

use super::super::HostKind;
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Tags that are kept, without attributes (except `<details open>`).
const TAGS: [&str; 11] = ["details", "summary", "br", "code", "b", "strong", "i", "em", "sub", "sup", "kbd"];

/// Opening tag of a block that may be wider than the page.
const SCROLLS: &str = "<pre tabindex=\"0\" role=\"group\" aria-label=\"Output\">";

/// Renders a comment as HTML, as this host does.
pub(super) fn to_html(kind: HostKind, text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer { kind, ..Writer::default() };
    for event in Parser::new_ext(text, options) {
        writer.take(event);
    }
    let mut out = String::with_capacity(text.len() * 2);
    html::push_html(&mut out, writer.events.into_iter());
    for tag in writer.open_tags.iter().rev() {
        out += &format!("</{tag}>");
    }
    // Text contains no `<` any more, so these are tags. Wide blocks become reachable by keyboard, and empty header cells become plain ones.
    out.replace("<pre>", SCROLLS)
        .replace("<th></th>", "<td></td>")
        .replace("<table>", "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"Table\"><table>")
        .replace("</table>", "</table></div>")
}

/// Escapes `&`, `<`, `>` and `"`.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Wraps each line of a diff in a span of its kind; also works for Terraform's plans.
pub(super) fn diff_lines(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let kind = match line.trim_start() {
            _ if line.starts_with("@@") => "hunk",
            rest if rest.starts_with("-/+") || rest.starts_with("+/-") => "replace",
            rest if rest.starts_with('+') => "add",
            rest if rest.starts_with('-') => "delete",
            rest if rest.starts_with(['~', '!']) => "update",
            _ => "same",
        };
        out += &format!("<span class=\"line {kind}\">{}\n</span>", escape(line));
    }
    out
}

/// Returns the level of a comment's heading on the page. Our comments begin with the third level.
fn below_title(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 | HeadingLevel::H2 | HeadingLevel::H3 => HeadingLevel::H2,
        HeadingLevel::H4 => HeadingLevel::H3,
        HeadingLevel::H5 => HeadingLevel::H4,
        HeadingLevel::H6 => HeadingLevel::H5,
    }
}

#[derive(Default)]
struct Writer<'a> {
    kind: HostKind,
    events: Vec<Event<'a>>,
    /// Raw tags that are not closed yet.
    open_tags: Vec<&'static str>,
    /// Text so far of a diff fence, and of a block of raw HTML.
    diff: Option<String>,
    raw: Option<String>,
}

impl<'a> Writer<'a> {
    fn take(&mut self, event: Event<'a>) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if *language == *"diff" => {
                self.diff = Some(String::new());
            }
            Event::End(TagEnd::CodeBlock) if self.diff.is_some() => {
                let lines = diff_lines(&self.diff.take().unwrap_or_default());
                self.events.push(Event::Html(format!("<pre class=\"diff\" tabindex=\"0\" role=\"group\" aria-label=\"Output\"><code>{lines}</code></pre>\n").into()));
            }
            Event::Text(text) if self.diff.is_some() => {
                self.diff.get_or_insert_default().push_str(&text);
            }
            Event::Start(Tag::HtmlBlock) => self.raw = Some(String::new()),
            Event::End(TagEnd::HtmlBlock) => {
                let raw = self.raw.take().unwrap_or_default();
                self.raw_html(&raw);
            }
            Event::Html(text) if self.raw.is_some() => self.raw.get_or_insert_default().push_str(&text),
            Event::Html(text) | Event::InlineHtml(text) => self.raw_html(&text),
            // Images would be fetched from other sites; a link with their description is enough.
            Event::Start(
                Tag::Link { link_type, dest_url, title, id } | Tag::Image { link_type, dest_url, title, id },
            ) => {
                let dest_url = if is_harmless(&dest_url) { dest_url } else { CowStr::Borrowed("#") };
                self.events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::End(TagEnd::Image) => self.events.push(Event::End(TagEnd::Link)),
            // The page's title is the only heading of the first level; those of comments begin right below it.
            Event::Start(Tag::Heading { level, id, classes, attrs }) => {
                self.events.push(Event::Start(Tag::Heading { level: below_title(level), id, classes, attrs }));
            }
            Event::End(TagEnd::Heading(level)) => self.events.push(Event::End(TagEnd::Heading(below_title(level)))),
            Event::SoftBreak => self.events.push(Event::HardBreak),
            other => self.events.push(other),
        }
    }

    /// Keeps known tags, removes comments, and escapes anything else. Both Bitbuckets show all of it.
    fn raw_html(&mut self, mut text: &str) {
        if matches!(self.kind, HostKind::BitbucketCloud | HostKind::BitbucketDataCenter) {
            return self.events.push(Event::Text(text.to_owned().into()));
        }
        let mut out = String::new();
        while let Some(at) = text.find('<') {
            let (before, tag) = text.split_at(at);
            out += &escape(before);
            if let Some(comment) = tag.strip_prefix("<!--") {
                text = comment.split_once("-->").map_or("", |(_, rest)| rest);
                continue;
            }
            match self.known_tag(tag) {
                Some((html, length)) => {
                    out += &html;
                    text = tag.get(length..).unwrap_or_default();
                }
                None => {
                    out += "&lt;";
                    text = tag.get(1..).unwrap_or_default();
                }
            }
        }
        out += &escape(text);
        self.events.push(Event::Html(out.into()));
    }

    /// Returns the HTML for a known tag at the start of the text, and the tag's length. An end tag without its start becomes empty.
    fn known_tag(&mut self, text: &str) -> Option<(String, usize)> {
        let (inner, _) = text.get(1..)?.split_once('>')?;
        let length = inner.len() + 2;
        let (closing, name) = inner.strip_prefix('/').map_or((false, inner), |name| (true, name));
        let (name, open) = match name.trim().trim_end_matches('/').trim_end().split_once(' ') {
            Some((name, "open")) if name.eq_ignore_ascii_case("details") => (name, " open"),
            Some(_) => return None,
            None => (name.trim().trim_end_matches('/').trim_end(), ""),
        };
        let tag = *TAGS.iter().find(|tag| tag.eq_ignore_ascii_case(name))?;
        if tag == "br" {
            return Some(("<br>".to_owned(), length));
        }
        if !closing {
            self.open_tags.push(tag);
            return Some((format!("<{tag}{open}>"), length));
        }
        let Some(at) = self.open_tags.iter().rposition(|open| *open == tag) else {
            return Some((String::new(), length));
        };
        let ends = self.open_tags.drain(at..).rev().map(|tag| format!("</{tag}>")).collect();
        Some((ends, length))
    }
}

/// Returns true for web and mail addresses, and for places on this site.
fn is_harmless(address: &str) -> bool {
    ["http://", "https://", "mailto:", "/", "#"].iter().any(|start| address.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;

    #[test]
    fn folded_plans_stay_foldable_and_markers_vanish() {
        let text = "### Plan\n<details><summary>Full plan</summary>\n\n```diff\n+ a <b>\n  ~ c\n- d\n```\n\n</details>\n\n<!-- tidelock:{\"v\":1} -->";
        assert_snapshot!(to_html(HostKind::Github, text), @r#"
        <h2>Plan</h2>
        <details><summary>Full plan</summary>
        <pre class="diff" tabindex="0" role="group" aria-label="Output"><code><span class="line add">+ a &lt;b&gt;
        </span><span class="line update">  ~ c
        </span><span class="line delete">- d
        </span></code></pre>
        </details>
        "#);
    }

    #[test]
    fn nothing_that_acts_gets_through() {
        for attack in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<details onclick=alert(1)>x",
            "<details open onclick=alert(1)>x",
            "[x](javascript:alert(1))",
            "![x](data:text/html,alert)",
            "<scr<details>ipt>",
            "<a href=javascript:alert(1)>x</a>",
            "<br/onload=alert(1)>",
            "<!-- --><script>x",
            "<!--\n--> <style>x",
        ] {
            let html = to_html(HostKind::Github, attack);
            for danger in [
                "<script",
                "<img",
                "<a href=j",
                "onclick=\"",
                "<style",
                "javascript:alert(1)\"",
                "data:text",
                "<details o",
                "<br/o",
            ] {
                assert!(!html.contains(danger), "{attack:?} became {html:?}");
            }
        }
    }

    #[test]
    fn what_is_left_open_is_closed_and_what_was_never_open_is_dropped() {
        assert_eq!(
            to_html(HostKind::Github, "<details>x\n\ny").trim_end().replace('\n', ""),
            "<details>x<p>y</p></details>"
        );
        assert_eq!(to_html(HostKind::Github, "x</details></div>y").trim(), "<p>x&lt;/div&gt;y</p>");
    }
}
