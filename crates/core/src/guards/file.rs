//! A configuration file, and the places in it that findings name.

use serde_json::value::RawValue;

/// One configuration file.
pub(super) struct File<'a> {
    pub(super) path: String,
    pub(super) dir: &'a str,
    pub(super) text: &'a str,
    /// Places of the ends of its lines.
    line_ends: Vec<usize>,
}

impl<'a> File<'a> {
    pub(super) fn new(path: String, dir: &'a str, text: &'a str) -> File<'a> {
        let line_ends = text.match_indices('\n').map(|(at, _)| at).collect();
        File { path, dir, text, line_ends }
    }

    /// Returns the place of a byte of the text.
    pub(super) fn at(&self, start: Option<usize>) -> String {
        let line = self.line_ends.partition_point(|end| start.is_some_and(|start| *end < start));
        format!("{}:{}", self.path, 1 + line)
    }

    /// Returns the place of a value, which is a slice of the text.
    pub(super) fn at_json(&self, value: &RawValue) -> String {
        self.at(value.get().as_ptr().addr().checked_sub(self.text.as_ptr().addr()))
    }
}
