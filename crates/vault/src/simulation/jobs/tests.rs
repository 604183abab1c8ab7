//! Results of the search: the protocol of jobs holds, and each known way to break it is detected.

use super::broken::JobVariant;
use super::{Deposed, JobBounds, JobSchedules, search};

/// States of a search that does not visit all of them.
const STATES: usize = 30_000;

fn assert_holds(bounds: JobBounds) -> JobSchedules {
    let found = search(None, bounds);
    if let Some(wrong) = found.wrong {
        panic!("{wrong}, after {} states\n  {}", found.states, found.schedule.join("\n  "));
    }
    println!("{bounds:?}: {} states, all: {}", found.states, found.complete);
    found
}

#[test]
fn the_protocol_of_jobs_holds_in_every_schedule() {
    let found = assert_holds(JobBounds { faults: 0, states: usize::MAX, deposed: Deposed::GoesOn });
    assert!(found.complete);
}

#[test]
fn the_protocol_of_jobs_holds_while_an_answer_is_lost() {
    let found = assert_holds(JobBounds { faults: 1, states: usize::MAX, deposed: Deposed::IsGone });
    assert!(found.complete);
    let found = assert_holds(JobBounds { faults: 1, states: STATES, deposed: Deposed::GoesOn });
    assert!(found.complete || found.states == STATES);
}

#[test]
#[ignore = "every schedule with one lost answer, and very many with two: minutes, and gigabytes of memory"]
fn the_protocol_of_jobs_holds_in_very_many_schedules() {
    let found = assert_holds(JobBounds { faults: 1, states: usize::MAX, deposed: Deposed::GoesOn });
    assert!(found.complete);
    assert_holds(JobBounds { faults: 2, states: 1_500_000, deposed: Deposed::IsGone });
}

#[test]
fn each_known_way_to_break_jobs_is_caught() {
    use JobVariant::*;
    const TWICE: &str = "terraform ran twice";
    const RUNS: &str = "told as not started, and it runs";
    const NOT_DONE: &str = "told as done, and it is not";
    const UNTOLD: &str = "its end is stored, and 'interrupted' was told";
    for (variant, faults, expected) in [
        (ClaimOverwritten, 0, TWICE),
        (ClaimDeletedWithTheRest, 0, RUNS),
        (EngineBeforeCommit, 0, "terraform runs of which nothing is recorded"),
        (ResultOverwritten, 0, "its result is overwritten"),
        (WithdrawnInTheEngineOnly, 0, RUNS),
        (GivenUpInTheJournalOnly, 0, UNTOLD),
        (InterruptedAtOnce, 0, UNTOLD),
        (EngineIsBelieved, 0, NOT_DONE),
        (ClaimedAfterTheRun, 0, TWICE),
        (GivenUpResultDeleted, 0, UNTOLD),
        (LateEndDeleted, 0, UNTOLD),
        (LeftAlone, 0, "nothing is told for ever"),
        (RefusedClaimIsOurs, 0, TWICE),
        (AnswerToClaimNotAwaited, 1, TWICE),
    ] {
        for deposed in [Deposed::GoesOn, Deposed::IsGone] {
            let found = search(Some(variant), JobBounds { faults, states: STATES, deposed });
            println!("{variant:?}: {:?} after {} states", found.wrong, found.states);
            assert_eq!(found.wrong, Some(expected), "{variant:?}, {deposed:?}:\n  {}", found.schedule.join("\n  "));
        }
    }
    // Only a leader that goes on starts the engine after it was deposed.
    let found = search(Some(NoSpecIsBelieved), JobBounds { faults: 0, states: STATES, deposed: Deposed::GoesOn });
    assert_eq!(found.wrong, Some(RUNS), "{}", found.schedule.join("\n  "));
}
