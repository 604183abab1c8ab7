//! Maps the line numbers of a job's runner to those of its log. They differ because the server adds lines to the log, and the log splits
//! long ones.

use std::ops::Range;

/// Numbers of a job's lines in its log.
#[derive(Debug, Default)]
pub(super) struct SentLines {
    /// Number of lines of the runner so far.
    count: u64,
    /// Lines of the runner after which the numbers differ by another amount, with their numbers in the log. The size of a log bounds how
    /// many lines it can split.
    shifts: Vec<(u64, u64)>,
}

impl SentLines {
    /// Adds the next line of the runner, with its numbers in the log; `None` if the log is full.
    pub(super) fn add(&mut self, numbers: Option<Range<u64>>) {
        self.count += 1;
        let Some(Range { start, end }) = numbers else { return };
        for (line, number) in [(self.count, start), (self.count + 1, end)] {
            // A line of the server may have come between the one that is known and this one.
            self.shifts.pop_if(|(known, expected)| *known == line && *expected != number);
            if self.number_in_log(line) != Some(number) {
                self.shifts.push((line, number));
            }
        }
    }

    /// Returns the number in the log of a line that the runner counts, from 1; `None` if it has sent none. Lines after the last one are
    /// counted on.
    pub(super) fn number_in_log(&self, line: u64) -> Option<u64> {
        let after = self.shifts.partition_point(|(first, _)| *first <= line);
        // A step may begin before the first line.
        let (first, number) = self.shifts.get(after.saturating_sub(1))?;
        Some(number.saturating_add(line.saturating_sub(*first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_server_and_split_ones_are_counted() {
        let mut sent = SentLines::default();
        assert_eq!(sent.number_in_log(1), None);
        // The server has written two lines before, the third line of the runner is split into three, the server adds one after the fifth,
        // and then the log is full.
        let lines = [Some(3..4), Some(4..5), Some(5..8), Some(8..9), Some(9..10), Some(11..12), None, None];
        lines.into_iter().for_each(|numbers| sent.add(numbers));
        let numbers: Vec<_> = (0..=8).filter_map(|line| sent.number_in_log(line)).collect();
        assert_eq!(numbers, [3, 3, 4, 5, 8, 9, 11, 12, 13]);
        assert_eq!((sent.shifts.len(), sent.number_in_log(u64::MAX)), (3, Some(u64::MAX)));
    }

    #[test]
    fn a_last_line_that_is_split_is_whole() {
        let mut sent = SentLines::default();
        [Some(1..2), Some(2..5)].into_iter().for_each(|numbers| sent.add(numbers));
        assert_eq!((sent.number_in_log(2), sent.number_in_log(3)), (Some(2), Some(5)));
        // A notice of the server comes before the next one.
        sent.add(Some(6..9));
        assert_eq!((sent.number_in_log(3), sent.number_in_log(4)), (Some(6), Some(9)));
    }
}
