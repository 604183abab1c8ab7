//! The server's record of a tree's state.

use super::{Fetched, Strategy};
use crate::platform;
use std::fs;
use std::path::Path;
use tidelock_core::domain::CommitSha;

/// Name of the marker file. It is written last and removed first, so that an interrupted checkout is not trusted.
pub(super) const MARKER: &str = "tidelock-commit";

/// Returns true if the tree of this git directory was finished since the machine started, and has all directories.
pub(super) fn is_whole(admin: &Path) -> bool {
    let marker = fs::read_to_string(admin.join(MARKER)).ok().and_then(|text| Marker::parse(&text));
    marker.is_some_and(|marker| marker.sparse.is_none() && marker.boot == platform::this_machine().trim())
}

/// State of a tree, as recorded in its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) strategy: Strategy,
    pub(super) head: CommitSha,
    pub(super) base: CommitSha,
    /// Identity of the machine since its start, when the marker was written; empty if unknown.
    pub(super) boot: String,
    /// Patterns of a sparse tree.
    pub(super) sparse: Option<String>,
}

impl Marker {
    pub(super) fn new(strategy: Strategy, fetched: &Fetched, sparse: Option<&str>) -> Marker {
        let Fetched { head, base_tip } = fetched.clone();
        let boot = platform::this_machine().trim().to_owned();
        Marker { strategy, head, base: base_tip, boot, sparse: sparse.map(str::to_owned) }
    }

    pub(super) fn text(&self) -> String {
        let strategy = if self.strategy == Strategy::Merge { "merge" } else { "branch" };
        let sparse = self.sparse.as_ref().map_or(String::new(), |patterns| format!("sparse\n{patterns}"));
        format!("{strategy} {} {} {}\n{sparse}", self.head, self.base, self.boot)
    }

    pub(super) fn parse(text: &str) -> Option<Marker> {
        let (first, rest) = text.split_once('\n')?;
        let mut words = first.split(' ');
        let strategy = if words.next()? == "merge" { Strategy::Merge } else { Strategy::Branch };
        let (head, base) = (CommitSha::parse(words.next()?).ok()?, CommitSha::parse(words.next()?).ok()?);
        let boot = words.next().unwrap_or_default().to_owned();
        Some(Marker { strategy, head, base, boot, sparse: rest.strip_prefix("sparse\n").map(str::to_owned) })
    }

    /// Returns true if a tree with this marker serves as the wanted one, provided its files are whole. A new base changes a merge, but not
    /// the head alone.
    pub(super) fn serves(&self, wanted: &Marker) -> bool {
        let same = self.strategy == wanted.strategy && self.head == wanted.head && self.sparse == wanted.sparse;
        same && (self.strategy == Strategy::Branch || self.base == wanted.base)
    }
}
