//! Lines of a plan: their signs, and the remarks that Terraform puts in the place of values.

/// Number of columns between an attribute's sign and its name.
const SIGN_WIDTH: usize = 2;

/// Signs in front of what changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names tell the sign")]
pub enum LineSign {
    Add,
    Remove,
    Change,
    DestroyCreate,
    CreateDestroy,
    Read,
}

impl LineSign {
    /// The signs as Terraform prints them; those that begin alike, the longest first.
    const ALL: [(&'static str, LineSign); 6] = [
        ("+/- ", LineSign::CreateDestroy),
        ("-/+ ", LineSign::DestroyCreate),
        ("<= ", LineSign::Read),
        ("+ ", LineSign::Add),
        ("- ", LineSign::Remove),
        ("~ ", LineSign::Change),
    ];

    fn of(text: &str) -> Option<LineSign> {
        LineSign::ALL.into_iter().find(|(start, _)| text.starts_with(start)).map(|(_, sign)| sign)
    }
}

/// Remark of Terraform about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueMark {
    /// It is hidden, as it is sensitive or is only written.
    Sensitive,
    /// It is known after the apply.
    Unknown,
    /// Its change forces a replacement.
    ForcesReplacement,
}

impl ValueMark {
    /// The marks as Terraform prints them.
    const ALL: [(&'static str, ValueMark); 5] = [
        ("(known after apply)", ValueMark::Unknown),
        ("(sensitive value)", ValueMark::Sensitive),
        ("(sensitive)", ValueMark::Sensitive),
        ("(write-only attribute)", ValueMark::Sensitive),
        ("# forces replacement", ValueMark::ForcesReplacement),
    ];
}

/// A line of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLine<'a> {
    /// All of it, without the line feed.
    pub text: &'a str,
    /// Number of spaces in front.
    pub column: usize,
    /// Its sign.
    pub sign: Option<LineSign>,
    /// True inside of a heredoc, where all but the sign is a value.
    pub is_value: bool,
}

impl<'a> PlanLine<'a> {
    /// Returns the pieces of the line, those that are Terraform's marks with the mark. A value cannot look like one: it is in quotes or in a
    /// heredoc.
    pub fn pieces(&self) -> Vec<(Option<ValueMark>, &'a str)> {
        let (mut pieces, mut from) = (Vec::new(), 0);
        let (mut quoted, mut escaped) = (false, false);
        let bytes = if self.is_value { &[] } else { self.text.as_bytes() };
        for (place, byte) in bytes.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b'(' | b'#' if !quoted => {
                    let rest = &self.text[place..];
                    if let Some((words, mark)) = ValueMark::ALL.into_iter().find(|(words, _)| rest.starts_with(words)) {
                        pieces.push((None, &self.text[from..place]));
                        pieces.push((Some(mark), &rest[..words.len()]));
                        from = place + words.len();
                    }
                }
                _ => {}
            }
        }
        pieces.push((None, &self.text[from..]));
        pieces.retain(|(_, text)| !text.is_empty());
        pieces
    }

    /// Returns true if it has this mark.
    pub fn has(&self, mark: ValueMark) -> bool {
        self.pieces().iter().any(|(found, _)| *found == Some(mark))
    }
}

/// Reads lines one after another, and knows which are in a heredoc.
#[derive(Debug, Default)]
pub struct LineReader<'a> {
    /// Delimiter of the current heredoc, and the column of its attribute's name, at which Terraform puts the delimiter.
    heredoc: Option<(&'a str, usize)>,
}

impl<'a> LineReader<'a> {
    /// Reads the next line, without its line feed.
    pub fn read(&mut self, line: &'a str) -> PlanLine<'a> {
        let text = line.trim_start_matches(' ');
        let column = line.len() - text.len();
        let sign = LineSign::of(text);
        let plain = PlanLine { text: line, column, sign, is_value: false };
        if let Some((end, name)) = self.heredoc {
            // Lines of the value begin further right.
            if column <= name + SIGN_WIDTH && text.split([' ', ',']).next() == Some(end) {
                self.heredoc = None;
                return PlanLine { sign: None, ..plain };
            }
            // A changed line has its sign between the name and the text; in any other column, it is a part of the value.
            let sign = sign.filter(|_| column == name + SIGN_WIDTH);
            return PlanLine { sign, is_value: true, ..plain };
        }
        let name = if sign.is_some() { column + SIGN_WIDTH } else { column };
        self.heredoc = heredoc_end(text).map(|end| (end, name));
        plain
    }
}

/// Returns the delimiter of the heredoc that begins at the end of a line.
fn heredoc_end(text: &str) -> Option<&str> {
    let before = text.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    let end = &text[before.len()..];
    let opens = before.ends_with("<<") || before.ends_with("<<-") || before.ends_with("<<~");
    (opens && !end.is_empty()).then_some(end)
}
