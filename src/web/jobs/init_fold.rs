//! The output of a successful `init` in a log without recorded steps.

use std::ops::Range;

const BEGINS: [&str; 4] =
    ["Initializing the backend", "Initializing modules", "Initializing provider plugins", "Upgrading modules"];
const ENDS: [&str; 2] = ["Terraform has been successfully initialized", "OpenTofu has been successfully initialized"];
/// The advice after an empty line has three lines in two paragraphs.
const ADVICE: [&str; 6] = [
    "You may now begin working",
    "any changes that are required",
    "should now work.",
    "If you ever set or change",
    "rerun this command",
    "commands will detect it",
];

/// Finds the lines of `init` while a log is read.
#[derive(Debug, Default)]
pub(super) enum InitFold {
    #[default]
    Before,
    /// It began at this line, counted from 0.
    Runs(usize),
    /// It succeeded; its advice may follow.
    Succeeded(Range<usize>),
    Ended(Range<usize>),
}

impl InitFold {
    /// Takes the next line.
    pub(super) fn add(&mut self, index: usize, line: &str) {
        let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
        match self {
            InitFold::Before if has(&BEGINS) => *self = InitFold::Runs(index),
            InitFold::Runs(begin) if has(&ENDS) => *self = InitFold::Succeeded(*begin..index + 1),
            InitFold::Succeeded(lines) if line.trim().is_empty() || has(&ADVICE) => lines.end = index + 1,
            InitFold::Succeeded(lines) => *self = InitFold::Ended(lines.clone()),
            InitFold::Before | InitFold::Runs(_) | InitFold::Ended(_) => {}
        }
    }

    /// Returns the lines of `init`, if it succeeded.
    pub(super) fn lines(self) -> Option<Range<usize>> {
        match self {
            InitFold::Succeeded(lines) | InitFold::Ended(lines) => Some(lines),
            InitFold::Before | InitFold::Runs(_) => None,
        }
    }
}
