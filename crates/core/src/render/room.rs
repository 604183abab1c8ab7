//! Bounds of a text, tightened until it fits one comment.

use std::iter::successors;

/// Shortest bound of an output, in characters, while resources and results are listed in full.
const LEAST_OUTPUT: usize = 1_000;
/// Bound of an output where there is less room.
const TINY_OUTPUT: usize = 200;
/// Resources of each action that a plan lists.
const RESOURCES: usize = 10;
const FEW_RESOURCES: usize = 3;
/// Most results that are listed where there is no room for all.
const RESULTS: usize = 512;
/// Fewest characters of a row of the table, and of a section.
const LEAST_ROW: usize = 40;
const LEAST_SECTION: usize = 100;

/// Bounds of the parts of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommentRoom {
    /// Maximum number of characters of each output.
    pub(super) output: usize,
    /// Maximum number of resources of each action of a plan.
    pub(super) resources: usize,
    /// Maximum number of results with a section of their own.
    pub(super) sections: usize,
    /// Maximum number of rows in the table of results.
    pub(super) rows: usize,
}

impl CommentRoom {
    /// Bounds outputs alone.
    pub(super) fn of_output(output: usize) -> CommentRoom {
        CommentRoom { output, resources: RESOURCES, sections: usize::MAX, rows: usize::MAX }
    }

    /// Bounds that leave out something of everything.
    pub(super) fn few() -> CommentRoom {
        CommentRoom { output: TINY_OUTPUT, resources: 1, sections: 2, rows: 3 }
    }

    /// Returns tighter and tighter bounds for a comment of this many characters with so many rows and sections: outputs are cut first, then
    /// resources, sections and rows are left out. Bounds that cannot be kept are not among them.
    pub(super) fn tightened(limit: usize, (rows, sections): (usize, usize)) -> Vec<CommentRoom> {
        let outputs =
            successors(Some(limit), |output| Some(output / 4 * 3)).take_while(|output| *output > LEAST_OUTPUT);
        let tiny = CommentRoom::of_output(TINY_OUTPUT);
        let fewer = |most| successors(Some(most), |most| (*most > 0).then_some(most / 2));
        let resources = [RESOURCES, FEW_RESOURCES, 0].map(|resources| CommentRoom { resources, ..tiny });
        let least = resources[2];
        outputs
            .map(CommentRoom::of_output)
            .chain(resources)
            .chain(fewer(RESULTS).map(|sections| CommentRoom { sections, ..least }))
            .chain(fewer(RESULTS).map(|rows| CommentRoom { sections: 0, rows, ..least }))
            .filter(|room| {
                let least = room.rows.min(rows) * LEAST_ROW + room.sections.min(sections) * LEAST_SECTION;
                least <= limit || room.rows == 0
            })
            .collect()
    }

    /// Returns the number of results that have a row or a section.
    pub(super) fn results(&self) -> usize {
        self.rows.max(self.sections)
    }
}
