//! Steps of a job: their times, and the lines of its log that they printed.

use serde::{Deserialize, Serialize};

/// Maximum number of steps of a job that are recorded: a job at an executor may report any number.
pub const MAX_STEPS: usize = 100;

/// Maximum number of time marks of a job.
pub const MAX_MARKS: usize = 200;

/// Times of one job that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTimes {
    /// Its steps, in order.
    pub steps: Vec<StepTime>,
    /// Times of some lines of its log, in order; at most [`MAX_MARKS`].
    pub marks: Vec<TimeMark>,
}

/// Time of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// The step.
    pub kind: StepKind,
    /// Its time, in milliseconds.
    pub millis: u64,
    /// Time from the job's beginning to its own, in milliseconds.
    #[serde(default)]
    pub began: u64,
    /// Number of the log's line with which its output begins, from 1; 0 if that is not known.
    #[serde(default)]
    pub line: u64,
    /// Number of lines that it printed.
    #[serde(default)]
    pub lines: u64,
}

/// Time at which a line of the log began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeMark {
    /// Number of the line, from 1.
    pub line: u64,
    /// Time since the job's beginning, in milliseconds.
    pub millis: u64,
}

/// Kinds of steps whose time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of steps in workflows")]
pub enum StepKind {
    Init,
    Plan,
    Apply,
    Show,
    Import,
    StateRm,
    PolicyCheck,
    /// Steps `run`, `env` and `multienv`, which run commands of the user.
    Run,
}

impl StepKind {
    /// Returns the name in metrics, on pages and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            StepKind::Init => "init",
            StepKind::Plan => "plan",
            StepKind::Apply => "apply",
            StepKind::Show => "show",
            StepKind::Import => "import",
            StepKind::StateRm => "state_rm",
            StepKind::PolicyCheck => "policy_check",
            StepKind::Run => "run",
        }
    }
}

impl JobTimes {
    /// Returns what a job reports as far as it can be true: no step or mark is after the end of the job, which took `took` milliseconds,
    /// or outside of its log of `lines` lines, and each one begins where the one before it ends, or later. `line_of` turns the number of a
    /// line that the job printed into that of its log; `None` if it is not known.
    pub fn checked(
        steps: &[StepTime],
        marks: &[TimeMark],
        took: u64,
        lines: u64,
        line_of: impl Fn(u64) -> Option<u64>,
    ) -> JobTimes {
        let (mut free, mut time) = (1, 0);
        // One past the last line is where a step without output at the end of the log begins.
        let place = |line: u64| line_of(line).map(|line| line.min(lines.saturating_add(1)));
        let checked_step = |step: &StepTime| {
            let began = step.began.clamp(time, time.max(took));
            time = began;
            let millis = step.millis.min(took.saturating_sub(began));
            let from = Some(step.line).filter(|line| *line > 0).and_then(place);
            let Some(from) = from else { return StepTime { began, millis, line: 0, lines: 0, ..*step } };
            let line = from.max(free);
            let end = place(step.line.saturating_add(step.lines)).unwrap_or(line).max(line);
            free = end;
            StepTime { began, millis, line, lines: end - line, ..*step }
        };
        let steps: Vec<StepTime> = steps.iter().take(MAX_STEPS).map(checked_step).collect();
        let mut checked: Vec<TimeMark> = Vec::new();
        for mark in marks.iter().take(MAX_MARKS) {
            let before = checked.last().map_or(TimeMark { line: 0, millis: 0 }, |mark| *mark);
            let line = line_of(mark.line).filter(|line| *line > before.line && *line <= lines);
            if let Some(line) = line.filter(|_| mark.millis >= before.millis && mark.millis <= took) {
                checked.push(TimeMark { line, millis: mark.millis });
            }
        }
        JobTimes { steps, marks: checked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(began: u64, millis: u64, line: u64, lines: u64) -> StepTime {
        StepTime { kind: StepKind::Run, millis, began, line, lines }
    }

    #[test]
    fn what_a_job_reports_stays_where_it_can_be_true() {
        let (steps, marks) = ([step(10, 20, 1, 2), step(30, 60, 3, 5)], [TimeMark { line: 4, millis: 50 }]);
        let moved = JobTimes::checked(&steps, &marks, 100, 20, |line| Some(line + 1));
        assert_eq!(moved.steps, [step(10, 20, 2, 2), step(30, 60, 4, 5)]);
        assert_eq!(moved.marks, [TimeMark { line: 5, millis: 50 }]);
    }

    #[test]
    fn places_that_are_not_known_are_left_out_and_times_stay() {
        let marks = [TimeMark { line: 4, millis: 50 }];
        let unknown = JobTimes::checked(&[step(10, 20, 1, 2)], &marks, 100, 20, |_| None);
        assert_eq!(unknown, JobTimes { steps: vec![step(10, 20, 0, 0)], marks: Vec::new() });
    }

    proptest! {
        #[test]
        fn nothing_that_is_reported_gets_out_of_the_job_and_its_log(
            steps in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..150),
            near in proptest::collection::vec((0..30u64, 0..30u64, 0..30u64, 0..30u64), 0..20),
            marks in proptest::collection::vec((0..30u64, 0..30u64), 0..300),
            took in 0..20u64,
            lines in 0..20u64,
        ) {
            let steps: Vec<StepTime> = steps.into_iter().chain(near).map(|(a, b, c, d)| step(a, b, c, d)).collect();
            let marks: Vec<TimeMark> = marks.into_iter().map(|(line, millis)| TimeMark { line, millis }).collect();
            let times = JobTimes::checked(&steps, &marks, took, lines, Some);
            prop_assert!(times.steps.len() <= MAX_STEPS && times.marks.len() <= MAX_MARKS);
            let placed: Vec<_> = times.steps.iter().filter(|step| step.line > 0).collect();
            prop_assert!(placed.iter().all(|step| step.line + step.lines <= lines + 1));
            prop_assert!(placed.windows(2).all(|two| two[0].line + two[0].lines <= two[1].line));
            prop_assert!(times.steps.iter().all(|step| step.began + step.millis <= took));
            prop_assert!(times.marks.iter().all(|mark| mark.line >= 1 && mark.line <= lines && mark.millis <= took));
            prop_assert!(times.marks.windows(2).all(|two| two[0].line < two[1].line && two[0].millis <= two[1].millis));
        }
    }
}
