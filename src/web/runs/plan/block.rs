//! Lines of a plan as HTML. Signs stay in the text; colours only repeat them.

use crate::plan_text::{LineSign, PlanLine, PlanSection, ValueMark};
use crate::web::jobs::put_text;

/// Maximum number of lines of a section, and of characters of a line.
const MAX_LINES: usize = 40;
const MAX_LINE: usize = 240;
/// Maximum number of pieces of a line.
const MAX_PIECES: usize = 20;

/// Lines as HTML.
#[derive(Debug, Default)]
pub(super) struct LinesHtml {
    /// Safe HTML: the lines are escaped.
    pub(super) html: String,
    /// Number of lines that are left out.
    pub(super) more: usize,
}

/// Renders the lines of a section after the first `skipped`.
pub(super) fn render(section: &PlanSection<'_>, skipped: usize) -> LinesHtml {
    let mut rendered = LinesHtml::default();
    // A line that forces a replacement is shown wherever it is.
    let (mut blank, mut forcing) = (0, 0);
    for (number, line) in section.lines().skip(skipped).enumerate() {
        if line.text.trim().is_empty() {
            blank += 1;
        } else if number >= MAX_LINES && (forcing >= MAX_LINES || !line.has(ValueMark::ForcesReplacement)) {
            rendered.more += 1 + std::mem::take(&mut blank);
        } else {
            (0..std::mem::take(&mut blank)).for_each(|_| rendered.html.push('\n'));
            forcing += usize::from(number >= MAX_LINES);
            put_line(&mut rendered.html, &line);
        }
    }
    rendered
}

fn put_line(html: &mut String, line: &PlanLine<'_>) {
    let class = match line.sign {
        Some(LineSign::Add) => "add",
        Some(LineSign::Remove | LineSign::DestroyCreate | LineSign::CreateDestroy) => "del",
        Some(LineSign::Change) => "chg",
        Some(LineSign::Read) | None => "",
    };
    let mut room = MAX_LINE;
    if !class.is_empty() {
        html.push_str("<span class=\"");
        html.push_str(class);
        html.push_str("\">");
    }
    let pieces = line.pieces();
    for (mark, text) in pieces.iter().take(MAX_PIECES).copied() {
        let shown = if mark.is_some() { text.len() } else { room };
        let end = text.char_indices().nth(shown).map_or(text.len(), |(end, _)| end);
        let class = match mark {
            Some(ValueMark::Sensitive) => "sensitive",
            Some(ValueMark::Unknown) => "unknown",
            Some(ValueMark::ForcesReplacement) => "forces",
            None => "",
        };
        if class.is_empty() {
            put_text(html, &text[..end]);
        } else {
            html.push_str("<em class=\"");
            html.push_str(class);
            html.push_str("\">");
            put_text(html, &text[..end]);
            html.push_str("</em>");
        }
        if end < text.len() {
            html.push('…');
        }
        // Marks are shown however long the values before them are.
        room = room.saturating_sub(if mark.is_some() { 0 } else { text.chars().count() });
    }
    if pieces.len() > MAX_PIECES {
        html.push('…');
    }
    if !class.is_empty() {
        html.push_str("</span>");
    }
    html.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_text::PlanText;
    use insta::assert_snapshot;
    use proptest::{prop_assert, proptest};

    fn html(text: &str) -> LinesHtml {
        render(&PlanText::read(text).sections[0], 0)
    }

    #[test]
    fn lines_are_escaped_marked_and_cut() {
        assert_snapshot!(html("  + a = \"<b>\"\n\n      ~ p = (sensitive value) # forces replacement\n\n\n").html, @r#"
        <span class="add">  + a = &quot;&lt;b&gt;&quot;</span>

        <span class="chg">      ~ p = <em class="sensitive">(sensitive value)</em> <em class="forces"># forces replacement</em></span>
        "#);
        let long = html(&format!("{}\n", "ä".repeat(MAX_LINE + 1)));
        assert_eq!(long.html, format!("{}…\n", "ä".repeat(MAX_LINE)));
        let forced =
            html(&format!("{}~ p = \"{}\" # forces replacement\n", "x\n".repeat(MAX_LINES + 1), "ä".repeat(MAX_LINE)));
        assert!(
            forced.more == 1 && forced.html.ends_with("…<em class=\"forces\"># forces replacement</em></span>\n"),
            "{}",
            forced.html
        );
        let many = html(&"x\n\n".repeat(MAX_LINES));
        assert_eq!((many.html.lines().count(), many.more), (MAX_LINES - 1, MAX_LINES));
    }

    proptest! {
        #[test]
        fn nothing_of_a_plan_becomes_markup(text in "([<>&\"'a-c=/+~-]|  \\+ |\\(known after apply\\)|\n){0,80}") {
            let tags = regex::Regex::new(r#"<(span class="(add|del|chg)"|em class="(sensitive|unknown|forces)"|/span|/em)>"#).unwrap();
            if let Some(section) = PlanText::read(&text).sections.first() {
                let html = render(section, 0).html;
                let rest = tags.replace_all(&html, "");
                prop_assert!(!rest.contains(['<', '>', '"', '\'']), "{rest}");
            }
        }
    }
}
