//! Times of the steps of a job while it runs, and of lines that they print.

use jiff::Timestamp;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidelock_core::domain::job_times::{JobTimes, MAX_MARKS, StepKind, StepTime, TimeMark};

/// Milliseconds from a mark, or the beginning of a step, to the first line that gets a mark. It doubles whenever marks are thinned out.
const MARK_AFTER: u64 = 5_000;

/// Times of a running job, in milliseconds since its beginning.
pub(super) struct Timeline {
    /// Age of the job when its steps began. The beginning is the server's record, and this machine's clock may differ.
    age: Duration,
    began: Instant,
    recorded: Mutex<RecordedTimes>,
}

/// A step that runs.
pub(super) struct BegunStep {
    kind: StepKind,
    began: u64,
    /// Number of lines before it.
    lines: u64,
}

struct RecordedTimes {
    /// Number of lines so far.
    lines: u64,
    steps: Vec<StepTime>,
    marks: Vec<TimeMark>,
    /// Time of the last mark or beginning of a step.
    last: u64,
    /// Milliseconds from it to the next mark.
    mark_after: u64,
}

impl Timeline {
    /// Returns the timeline of a job that began at this time.
    pub(super) fn new(started: Timestamp) -> Timeline {
        let age = Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default();
        Timeline { age, began: Instant::now(), recorded: Mutex::new(RecordedTimes::new()) }
    }

    /// Counts a line that begins now.
    pub(super) fn line(&self) {
        self.recorded().line(self.now());
    }

    /// Notes that a step begins.
    pub(super) fn begin(&self, kind: StepKind) -> BegunStep {
        self.recorded().begin(kind, self.now())
    }

    /// Records a step that ends.
    pub(super) fn end(&self, step: BegunStep) {
        self.recorded().end(step, self.now());
    }

    /// Returns the number of lines and the times.
    pub(super) fn into_times(self) -> (u64, JobTimes) {
        let RecordedTimes { lines, steps, marks, .. } =
            self.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        (lines, JobTimes { steps, marks })
    }

    fn now(&self) -> u64 {
        let now = self.age.saturating_add(self.began.elapsed());
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn recorded(&self) -> MutexGuard<'_, RecordedTimes> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordedTimes {
    fn new() -> RecordedTimes {
        RecordedTimes { lines: 0, steps: Vec::new(), marks: Vec::new(), last: 0, mark_after: MARK_AFTER }
    }

    fn line(&mut self, now: u64) {
        self.lines += 1;
        if now.saturating_sub(self.last) < self.mark_after {
            return;
        }
        if self.marks.len() == MAX_MARKS {
            // Every second one stays, so that marks are as dense at the end of a long job as at its beginning.
            let mut index = 0;
            self.marks.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.mark_after *= 2;
        }
        self.marks.push(TimeMark { line: self.lines, millis: now });
        self.last = now;
    }

    fn begin(&mut self, kind: StepKind, now: u64) -> BegunStep {
        self.last = now;
        BegunStep { kind, began: now, lines: self.lines }
    }

    fn end(&mut self, step: BegunStep, now: u64) {
        let BegunStep { kind, began, lines } = step;
        let millis = now.saturating_sub(began);
        self.steps.push(StepTime { kind, millis, began, line: lines + 1, lines: self.lines - lines });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_know_their_lines_and_long_ones_have_marks() {
        let mut times = RecordedTimes::new();
        times.line(0);
        let init = times.begin(StepKind::Init, 100);
        times.line(150);
        times.line(160);
        times.end(init, 200);
        let plan = times.begin(StepKind::Plan, 1_000);
        for seconds in [1, 2, 6, 7, 12] {
            times.line(seconds * 1_000);
        }
        times.end(plan, 12_500);
        assert_eq!(
            times.steps,
            [
                StepTime { kind: StepKind::Init, millis: 100, began: 100, line: 2, lines: 2 },
                StepTime { kind: StepKind::Plan, millis: 11_500, began: 1_000, line: 4, lines: 5 },
            ]
        );
        assert_eq!(times.marks, [TimeMark { line: 6, millis: 6_000 }, TimeMark { line: 8, millis: 12_000 }]);
    }

    #[test]
    fn marks_of_a_long_job_are_thinned_out_evenly_to_its_end() {
        let mut times = RecordedTimes::new();
        let lines = 24 * 3_600;
        (1..=lines).for_each(|second| times.line(second * 1_000));
        assert!((MAX_MARKS / 2..=MAX_MARKS).contains(&times.marks.len()), "{}", times.marks.len());
        let gaps: Vec<u64> = times.marks.windows(2).map(|two| two[1].line - two[0].line).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(*most <= 2 * least, "{least} to {most}");
        assert!(lines - times.marks.last().unwrap().line <= 2 * most);
    }
}
