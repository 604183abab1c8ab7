//! Limits on the cost of reading all units of one repository together: the author of any pull request can write these files.

use std::cell::{Cell, RefCell};

/// Most bytes of values that expressions evaluate to, and of names that are kept.
const MAX_MADE: usize = 32 << 20;
/// Most bytes of files that are read; a file that several units include counts for each of them.
const MAX_READ: usize = 512 << 20;
/// Most bytes of shared files that are kept parsed.
const MAX_PARSED: usize = 16 << 20;
/// Most expressions that are evaluated.
const MAX_STEPS: usize = 2_000_000;
/// Most pairs of a unit and one that it depends on, directly or not.
pub(in super::super) const MAX_EDGES: usize = 500_000;

/// Amounts that are spent, and the first limit that was exceeded.
#[derive(Default)]
pub(in super::super) struct ReadingBudget {
    made: Cell<usize>,
    read: Cell<usize>,
    parsed: Cell<usize>,
    steps: Cell<usize>,
    edges: Cell<usize>,
    exceeded: RefCell<Option<String>>,
}

impl ReadingBudget {
    /// Spends bytes of values or names, made for this file. Returns false if that exceeds the limit, and from then on.
    pub(super) fn make(&self, bytes: usize, file: &str) -> bool {
        self.spend(&self.made, bytes, MAX_MADE, "bytes of values", file)
    }

    /// Spends bytes of this file that are read.
    pub(super) fn read(&self, bytes: usize, file: &str) -> bool {
        self.spend(&self.read, bytes, MAX_READ, "bytes of files", file)
    }

    /// Spends bytes of this file that are kept parsed.
    pub(super) fn parse(&self, bytes: usize, file: &str) -> bool {
        self.spend(&self.parsed, bytes, MAX_PARSED, "bytes of files that are included or read", file)
    }

    /// Spends one expression in this file.
    pub(super) fn step(&self, file: &str) -> bool {
        self.spend(&self.steps, 1, MAX_STEPS, "expressions", file)
    }

    /// Spends one dependency of the unit of this file.
    pub(super) fn edge(&self, file: &str) -> bool {
        self.spend(&self.edges, 1, MAX_EDGES, "dependencies between units", file)
    }

    /// Returns the exceeded limit, for people.
    pub(in super::super) fn exceeded(&self) -> Option<String> {
        self.exceeded.borrow().clone()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.exceeded.borrow().is_some()
    }

    fn spend(&self, spent: &Cell<usize>, more: usize, most: usize, what: &str, file: &str) -> bool {
        if self.is_spent() {
            return false;
        }
        let sum = spent.get().saturating_add(more);
        if sum > most {
            let file = file.replace('`', "'");
            *self.exceeded.borrow_mut() = Some(format!(
                "units of Terragrunt have more than {most} {what}, at `{file}`; make these files smaller, or set `terragrunt: false`"
            ));
            return false;
        }
        spent.set(sum);
        true
    }

    #[cfg(test)]
    pub(super) fn bytes_made(&self) -> usize {
        self.made.get()
    }
}
