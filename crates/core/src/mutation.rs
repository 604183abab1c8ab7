//! Valid texts with changes in them, as input of parsers: these have to reject an invalid one with its position, and never panic. More
//! cases: `PROPTEST_CASES=20000 cargo test -p tidelock-core mutated`.

use proptest::prelude::*;
use proptest::sample::Index;
use std::ops::Range;

/// Pieces to insert: YAML, HCL, JSON, globs and shell code, and characters that look like others.
const PIECES: &[&str] = &[
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\0",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "\u{85}",
    "\u{a0}",
    "\u{200b}",
    "é",
    "e\u{301}",
    "🌊",
    "\u{10ffff}",
    "\u{1b}[31m",
    "-",
    "- ",
    "- - - ",
    "--",
    "---\n",
    "...\n",
    "%YAML 1.2\n---\n",
    "%TAG ! tag:x,2000:\n",
    "? ",
    ": ",
    ":",
    ",",
    "#",
    "# ",
    "&a ",
    "*a",
    "*a ",
    "&a [*a]",
    "<<: *a\n",
    "<<: {x: 1}\n",
    "<<: [*a, *a]\n",
    "!!binary ",
    "!!str ",
    "!!int ",
    "!!null ",
    "!!set ",
    "!x ",
    "!",
    "|\n",
    "|2-\n",
    ">-\n",
    ">9\n",
    "~",
    "null",
    "true",
    "no",
    "y",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "\"",
    "'",
    "''",
    "\"\"",
    "`",
    "```",
    "\\",
    "\\\n",
    "\\x",
    "\\u0000",
    "\\ud800",
    "\\U0010ffff",
    "$",
    "${",
    "%{",
    "%{ if true }",
    "${\"${",
    "<<EOT\n",
    "EOT\n",
    "//",
    "/*",
    "*/",
    "/",
    "..",
    "../",
    "/../",
    ".",
    "~/",
    "*",
    "**",
    "**/",
    "?",
    "[!",
    "[^",
    "[a-",
    "{a,b}",
    "{,}",
    "!",
    "^",
    "|",
    "(?",
    "(?i)",
    "/(/",
    "/.*/",
    "=",
    "==",
    "!=",
    "~> ",
    ">= 1",
    "0",
    "-0",
    "-1",
    "1e400",
    "1e-400",
    ".inf",
    ".nan",
    "0x7fffffffffffffff",
    "0o17",
    "1_000",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999999",
    "1.0.0.0",
    "v1",
    "2024-01-01",
    "@",
    "@team",
    "<!--",
    "-->",
    "</details>",
    "version: 3\n",
    "projects:\n",
    "dir: a\n",
    "workflows:\n",
    "steps: [plan]\n",
    "run: x\n",
    "terraform {\n",
    "module \"a\" {\n",
];
/// Length of a text of one repeated character, more than any parser expects.
const LONG: usize = 5_000;

/// One change of a span.
#[derive(Debug, Clone)]
enum TextChange {
    Delete,
    Repeat(usize),
    Put(String),
    /// Puts the piece in place of the span.
    Replace(String),
    /// Moves the span to this place.
    Move(Index),
    /// Puts the span between this many opening and closing pieces.
    Wrap(&'static str, &'static str, usize),
    /// Inserts a byte that is not valid UTF-8.
    Broken(u8),
    Long(char),
    Indent(usize),
}

fn change() -> impl Strategy<Value = TextChange> {
    let piece = || prop::sample::select(PIECES).prop_map(str::to_owned);
    let pair = prop::sample::select(
        &[
            ("[", "]"),
            ("{a: ", "}"),
            ("(", ")"),
            ("\"${", "}\""),
            ("- ", ""),
            ("{", "}"),
            ("!(", ")"),
            ("<<: ", ""),
            ("x {\n", "\n}\n"),
        ][..],
    );
    prop_oneof![
        3 => Just(TextChange::Delete),
        2 => (1..4_usize).prop_map(TextChange::Repeat),
        4 => piece().prop_map(TextChange::Put),
        4 => piece().prop_map(TextChange::Replace),
        1 => "\\PC{0,8}".prop_map(TextChange::Put),
        2 => any::<Index>().prop_map(TextChange::Move),
        1 => (pair, prop_oneof![1..4_usize, Just(40), Just(300)]).prop_map(|((open, close), n)| TextChange::Wrap(open, close, n)),
        1 => any::<u8>().prop_map(|byte| TextChange::Broken(byte | 0x80)),
        1 => prop::sample::select(&['a', '[', '/', '*', '\u{202e}', '9', ' '][..]).prop_map(TextChange::Long),
        1 => (1..5_usize).prop_map(TextChange::Indent),
    ]
}

/// Returns a span of any bytes.
fn bytes(text: &[u8], from: Index, length: Index) -> Range<usize> {
    let start = from.index(text.len() + 1);
    start..(start + length.index(20)).min(text.len())
}

/// Returns a span of whole lines.
fn lines(text: &[u8], from: Index, length: Index) -> Range<usize> {
    let start = from.index(text.len() + 1);
    let start = text[..start].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let ends = text.iter().enumerate().skip(start).filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    start..ends.take(1 + length.index(3)).last().unwrap_or(text.len())
}

fn changed(text: &mut Vec<u8>, change: &TextChange, at: Range<usize>) {
    let cut = text[at.clone()].to_vec();
    let with = match change {
        TextChange::Delete => Vec::new(),
        TextChange::Repeat(times) => cut.repeat(times + 1),
        TextChange::Put(piece) => [piece.as_bytes(), &cut].concat(),
        TextChange::Replace(piece) => piece.as_bytes().to_vec(),
        TextChange::Move(to) => {
            text.drain(at);
            let to = to.index(text.len() + 1);
            text.splice(to..to, cut);
            return;
        }
        TextChange::Wrap(open, close, times) => {
            [open.repeat(*times).as_bytes(), &cut, close.repeat(*times).as_bytes()].concat()
        }
        TextChange::Broken(byte) => [&[*byte], cut.as_slice()].concat(),
        TextChange::Long(c) => c.to_string().repeat(LONG).into_bytes(),
        TextChange::Indent(by) => [" ".repeat(*by).as_bytes(), &cut].concat(),
    };
    text.splice(at, with);
}

/// Generates one of the texts with up to four changes. Bytes that are not valid UTF-8 become `U+FFFD`.
pub fn mutated(texts: Vec<String>) -> impl Strategy<Value = String> {
    let places = (change(), any::<Index>(), any::<Index>(), any::<bool>());
    (prop::sample::select(texts), prop::collection::vec(places, 0..5)).prop_map(|(text, changes)| {
        let mut text = text.into_bytes();
        for (change, from, length, is_of_lines) in changes {
            let span = if is_of_lines { lines } else { bytes };
            let at = span(&text, from, length);
            changed(&mut text, &change, at);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Returns `inner` nested as deeply as 500,000 bytes of `open` and `close` allow, such as `nested("[", "", "]")`.
pub fn nested(open: &str, inner: &str, close: &str) -> String {
    let times = 500_000 / (open.len() + close.len()).max(1);
    [open.repeat(times), inner.to_owned(), close.repeat(times)].concat()
}

/// Returns the texts of all files below a folder of this repository with this ending. Files of 8,000 bytes or more are left out.
pub fn examples(folder: &str, ending: &str) -> Vec<String> {
    fn walk(dir: &std::path::Path, ending: &str, found: &mut Vec<String>) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.to_string_lossy().ends_with(ending) {
                found.extend(std::fs::read_to_string(&path).ok().filter(|text| text.len() < 8_000));
            }
        }
    }
    let mut found = Vec::new();
    walk(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), ending, &mut found);
    assert!(!found.is_empty(), "no {ending} below {folder}");
    found
}
