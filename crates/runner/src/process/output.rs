//! Output of a child: split into lines, kept as a bounded text of head and tail, and as unchanged bytes.

use super::Redactor;
use std::collections::VecDeque;

/// Longest line, in bytes. The rest is dropped, and its length is stated.
pub const LINE_LIMIT: usize = 64 << 10;
/// Bytes that are read beyond [`LINE_LIMIT`] and dropped after redaction, so that a secret that crosses the limit is complete:
/// the largest secret of a store, in every form in which it is masked.
const OVERHANG: usize = 64 << 10;

/// Splits a stream into lines.
#[derive(Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// Number of dropped bytes of this line.
    dropped: usize,
    /// True if the last byte was a carriage return: the following text overwrites the line, unless a newline follows.
    returned: bool,
}

/// A line as it arrived, not redacted yet.
pub(super) struct RawLine<'a> {
    bytes: &'a [u8],
    dropped: usize,
}

impl Lines {
    /// Calls `each` for every line that these bytes complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(RawLine<'_>)) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match piece {
                [text @ .., end @ (b'\n' | b'\r')] => (text, Some(*end)),
                text => (text, None),
            };
            if !text.is_empty() && self.returned {
                self.clear(); // progress: the last state counts, as on a terminal
            }
            let kept = text.len().min((LINE_LIMIT + OVERHANG).saturating_sub(self.line.len()));
            self.line.extend_from_slice(&text[..kept]);
            self.dropped += text.len() - kept;
            match end {
                Some(b'\n') => {
                    each(RawLine { bytes: &self.line, dropped: self.dropped });
                    self.clear();
                }
                Some(_) => self.returned = true,
                None => {}
            }
        }
    }

    /// Returns true if there is an incomplete line.
    pub(super) fn unfinished(&self) -> bool {
        !self.line.is_empty()
    }

    fn clear(&mut self) {
        self.line.clear();
        self.dropped = 0;
        self.returned = false;
    }
}

impl RawLine<'_> {
    /// Returns the redacted text, cut at [`LINE_LIMIT`]; sets `is_cut` if it is cut.
    pub(super) fn redacted(&self, redactor: &Redactor, is_cut: &mut bool) -> String {
        let mut text = redactor.mask(&String::from_utf8_lossy(self.bytes)).into_owned();
        if self.dropped > 0 || text.len() > LINE_LIMIT {
            *is_cut = true;
            // The end of a cut line may be part of a secret, however much shorter redaction made it.
            let sure = if self.dropped > 0 { text.len().saturating_sub(OVERHANG) } else { text.len() };
            let cut = border(&text, sure.min(LINE_LIMIT));
            let left_out = text.len() - cut + self.dropped;
            text.truncate(cut);
            text.push_str(&format!(" [... {left_out} bytes of this line left out]"));
        }
        text
    }
}

/// Returns printed bytes as they would be in [`super::Finished::output`], but unmasked; `None` if a part of a line would be left out there.
pub fn printed_text(bytes: &[u8]) -> Option<String> {
    let (mut lines, mut text, mut is_cut, unmasked) = (Lines::default(), String::new(), false, Redactor::default());
    let mut add = |line: RawLine<'_>| {
        text.push_str(&line.redacted(&unmasked, &mut is_cut));
        text.push('\n');
    };
    lines.feed(bytes, &mut add);
    if lines.unfinished() {
        lines.feed(b"\n", &mut add);
    }
    (!is_cut).then_some(text)
}

/// Returns the last character boundary at or before `at`.
fn border(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first and last lines of a text, and the number of bytes between them.
pub(super) struct Bounded {
    half: usize,
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    left_out: usize,
    /// True if lines, or parts of one, are left out.
    pub(super) is_cut: bool,
}

impl Bounded {
    /// Keeps about `limit` bytes.
    pub(super) fn new(limit: usize) -> Bounded {
        Bounded {
            half: limit / 2,
            head: String::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            left_out: 0,
            is_cut: false,
        }
    }

    pub(super) fn push(&mut self, line: &str) {
        let size = line.len() + 1;
        if self.tail.is_empty() && self.left_out == 0 && self.head.len() + size <= self.half {
            self.head.push_str(line);
            self.head.push('\n');
            return;
        }
        self.tail.push_back(line.to_owned());
        self.tail_bytes += size;
        while self.tail_bytes > self.half {
            let Some(oldest) = self.tail.pop_front() else { break };
            self.tail_bytes -= oldest.len() + 1;
            self.left_out += oldest.len() + 1;
            self.is_cut = true;
        }
    }

    pub(super) fn into_text(self) -> String {
        let mut text = self.head;
        if self.left_out > 0 {
            text.push_str(&format!("\n[... {} bytes of output left out here ...]\n\n", self.left_out));
        }
        for line in self.tail {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// The unchanged beginning of a stream.
pub(super) struct Unread {
    limit: usize,
    pub(super) bytes: Vec<u8>,
    /// True if the stream was longer.
    pub(super) cut: bool,
}

impl Unread {
    /// Keeps at most `limit` bytes. With a limit of 0 nothing counts as cut.
    pub(super) fn new(limit: usize) -> Unread {
        Unread { limit, bytes: Vec::new(), cut: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.limit - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.cut |= self.limit > 0 && kept < bytes.len();
    }
}
