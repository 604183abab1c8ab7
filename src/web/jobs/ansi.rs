//! Conversion of terminal output into styled pieces of text. Colours and weight are kept; all other escapes and control characters are
//! dropped.

use serde::Serialize;

/// A piece of text with its CSS classes, for the page and for the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Span(pub(super) String, pub(super) String);

/// Current style of the output; it continues across lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    /// Colour from 0 to 15.
    colour: Option<u8>,
}

impl TextStyle {
    fn classes(&self) -> String {
        let mut classes = String::new();
        for (on, class) in [(self.bold, "b"), (self.dim, "dim"), (self.italic, "i"), (self.underline, "u")] {
            if on {
                classes.push_str(class);
                classes.push(' ');
            }
        }
        if let Some(colour) = self.colour {
            classes.push_str(&format!("c{colour}"));
        }
        classes.truncate(classes.trim_end().len());
        classes
    }

    /// Applies one `ESC [ … m`.
    fn select(&mut self, parameters: &str) {
        let mut codes = parameters.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = TextStyle::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underline = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underline = false,
                30..=37 => self.colour = Some((code - 30) as u8),
                39 => self.colour = None,
                90..=97 => self.colour = Some((code - 90 + 8) as u8),
                38 | 48 => {
                    // Only the sixteen named colours of the large palettes; backgrounds are ignored.
                    let chosen = match codes.next() {
                        Some(5) => codes.next().filter(|index| *index < 16),
                        Some(2) => codes.nth(2).and(None),
                        _ => None,
                    };
                    if code == 38 {
                        self.colour = chosen.map(|index| index as u8);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the pieces of one line. Text that a carriage return overwrote (progress bars) is dropped.
    pub(super) fn spans(&mut self, line: &str) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut text = String::new();
        let mut rest = line.trim_end_matches('\r').chars();
        while let Some(c) = rest.next() {
            match c {
                '\u{1b}' => {
                    let before = self.classes();
                    if let Some(parameters) = escape(&mut rest) {
                        self.select(&parameters);
                    }
                    if self.classes() != before && !text.is_empty() {
                        spans.push(Span(before, std::mem::take(&mut text)));
                    }
                }
                '\r' => {
                    spans.clear();
                    text.clear();
                }
                '\t' => text.push('\t'),
                c if is_dropped(c) => {}
                c => text.push(c),
            }
        }
        if !text.is_empty() {
            spans.push(Span(self.classes(), text));
        }
        spans
    }
}

/// Returns true for control characters, and for those that change the direction of text, which could make a plan read as another one.
fn is_dropped(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Reads one escape sequence after its ESC, and returns the parameters if it selects a style.
fn escape(rest: &mut std::str::Chars<'_>) -> Option<String> {
    let mut ahead = rest.clone();
    match ahead.next()? {
        '[' => {
            let mut parameters = String::new();
            for c in ahead.by_ref() {
                match c {
                    '\u{20}'..='\u{3f}' => parameters.push(c),
                    '\u{40}'..='\u{7e}' => {
                        *rest = ahead;
                        return (c == 'm').then_some(parameters);
                    }
                    // Not an escape sequence: the rest is text.
                    _ => break,
                }
            }
            rest.next();
            None
        }
        // A title or link: text up to BEL or ESC \ that terminals do not show.
        ']' | 'P' | '_' | '^' | 'X' => {
            let mut escaped = false;
            for c in ahead.by_ref() {
                if c == '\u{7}' || (escaped && c == '\\') {
                    break;
                }
                escaped = c == '\u{1b}';
            }
            *rest = ahead;
            None
        }
        '(' | ')' | '#' | '%' => {
            ahead.next();
            *rest = ahead;
            None
        }
        c if c.is_ascii_graphic() => {
            *rest = ahead;
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(line: &str) -> String {
        TextStyle::default().spans(line).iter().map(|Span(class, text)| format!("[{class}|{text}]")).collect()
    }

    #[test]
    fn colours_stay_and_other_escapes_go() {
        let vectors = [
            ("plain", "[|plain]"),
            ("", ""),
            ("\x1b[1m\x1b[32m+\x1b[0m ok", "[b c2|+][| ok]"),
            ("\x1b[31;4mred\x1b[39mstill\x1b[24m", "[u c1|red][u|still]"),
            ("\x1b[38;5;9mx\x1b[38;2;1;2;3my\x1b[0m", "[c9|x][|y]"),
            ("\x1b[48;5;1mno background", "[|no background]"),
            ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x07!", "[|link!]"),
            ("\x1b[2K\x1b[1Gtext\x1b(B", "[|text]"),
            ("10%\r50%\r100%\r", "[|100%]"),
            ("bell\x07back\x08null\0", "[|bellbacknull]"),
            ("right\u{202e}tfel", "[|righttfel]"),
            ("\x1b[9", "[|9]"),
            ("tab\tstays", "[|tab\tstays]"),
        ];
        for (line, expected) in vectors {
            assert_eq!(shown(line), expected, "{line:?}");
        }
    }

    #[test]
    fn style_lasts_over_line_ends() {
        let mut style = TextStyle::default();
        style.spans("\x1b[31mone");
        assert_eq!(style.spans("two"), [Span("c1".into(), "two".into())]);
    }

    proptest! {
        #[test]
        fn no_control_character_is_ever_shown(line in "(\\PC|\x1b|[\\[\\]0-9;m\r\x07\t\u{202e}]){0,60}") {
            let spans = TextStyle::default().spans(&line);
            prop_assert!(spans.iter().all(|Span(_, text)| !text.chars().any(|c| c != '\t' && is_dropped(c))));
        }

        #[test]
        fn text_without_escapes_is_whole(line in "[ -~äß€🌊]{0,80}") {
            let text: String = TextStyle::default().spans(&line).into_iter().map(|Span(_, text)| text).collect();
            prop_assert_eq!(text, line);
        }
    }
}
