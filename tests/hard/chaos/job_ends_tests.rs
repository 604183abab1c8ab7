//! The judge of jobs at an executor finds each fault that is put into a good trace.

use super::engines::JobEngine;
use super::judge::violations;
use super::trace::{Act, Applied, Event, JobsAt, Result, Trace};

fn apply_answer(outcome: &str, reason: &str) -> Event {
    let result = Result { dir: "a".to_owned(), outcome: outcome.to_owned(), reason: reason.to_owned() };
    let (command, head, text) = ("apply".to_owned(), "head".to_owned(), String::new());
    Event::Answered { pull: 1, id: 0, command, head, results: vec![result], text }
}

/// An apply goes on while the server is killed, and is reported with its end.
fn good() -> Trace {
    let run = Event::Ran { is_apply: true, pull: 1, dir: "a".to_owned(), plan: "one".to_owned() };
    Trace {
        jobs: JobsAt::Executor(JobEngine::Process),
        events: vec![
            Event::Said { pull: 1, act: Act::Apply, accepted: true },
            run,
            Event::Ending,
            Event::Ended,
            apply_answer("success", ""),
        ],
        dirs: [(1, vec!["a".to_owned()])].into(),
        applied: vec![Applied { pull: 1, dir: "a".to_owned(), plan: "one".to_owned() }],
        ..Trace::default()
    }
}

/// Returns the kinds of the violations of the good trace with this change.
fn kinds(change: impl FnOnce(&mut Trace)) -> Vec<String> {
    let mut trace = good();
    change(&mut trace);
    let kind = |violation: String| violation.split(':').next().unwrap().to_owned();
    let mut kinds: Vec<String> = violations(&trace).into_iter().map(kind).collect();
    kinds.dedup();
    kinds
}

fn killed(is_apply: bool) -> Event {
    Event::JobKilled { is_apply, pull: 1, dir: "a".to_owned() }
}

#[test]
fn an_apply_is_reported_with_its_end_unless_it_was_killed() {
    assert_eq!(kinds(|_| {}), Vec::<String>::new());
    let interrupted = |trace: &mut Trace| trace.events[4] = apply_answer("error", "interrupted");
    assert_eq!(kinds(interrupted), ["untrue_end"]);
    let of_a_plan = |trace: &mut Trace| {
        interrupted(trace);
        trace.events.insert(2, killed(false));
    };
    assert_eq!(kinds(of_a_plan), ["untrue_end"]);
    let of_the_apply = |trace: &mut Trace| {
        interrupted(trace);
        trace.events.insert(2, killed(true));
    };
    assert_eq!(kinds(of_the_apply), Vec::<String>::new());
    // The server has ended before it could start it.
    let not_begun = |trace: &mut Trace| {
        interrupted(trace);
        trace.events.remove(1);
        trace.applied.clear();
    };
    assert_eq!(kinds(not_begun), Vec::<String>::new());
    // One kill explains one interruption.
    let twice = |trace: &mut Trace| {
        of_the_apply(trace);
        trace.events.extend([good().events.remove(0), good().events.remove(1), apply_answer("error", "interrupted")]);
    };
    assert_eq!(kinds(twice), ["untrue_end"]);
}

#[test]
fn what_is_left_of_jobs_is_found() {
    assert_eq!(kinds(|trace| trace.left.push("the process 7".to_owned())), ["left"]);
}
