//! The judge finds each fault that is put into a good trace.

use super::approvals::ApplyCause;
use super::judge::violations;
use super::trace::{Act, Applied, Event, Result, Trace};

fn said_event(pull: u64, act: Act) -> Event {
    Event::Said { pull, act, accepted: true }
}

fn answered(pull: u64, command: &str, outcomes: &[(&str, &str, &str)]) -> Event {
    let result = |(dir, outcome, reason): &(&str, &str, &str)| Result {
        dir: (*dir).to_owned(),
        outcome: (*outcome).to_owned(),
        reason: (*reason).to_owned(),
    };
    let results: Vec<Result> = outcomes.iter().map(result).collect();
    let text = if outcomes.iter().any(|(_, _, reason)| *reason == "locked") { "waits for !1 Change" } else { "" };
    let (command, head) = (command.to_owned(), "head".to_owned());
    Event::Answered { pull, id: 0, command, head, results, text: text.to_owned() }
}

const DONE: (&str, &str, &str) = ("a", "success", "");
const LOCKED: (&str, &str, &str) = ("a", "failure", "locked");

/// Pull request 1 is planned and applied with a server that ends in between, and merged; 2 waits for it.
fn good() -> Trace {
    Trace {
        mark: "!".to_owned(),
        events: vec![
            said_event(1, Act::Open),
            answered(1, "plan", &[DONE]),
            Event::Ending,
            Event::Ended,
            said_event(2, Act::Open),
            answered(2, "plan", &[LOCKED]),
            said_event(1, Act::Apply),
            answered(1, "apply", &[DONE]),
            said_event(1, Act::Merge),
            answered(1, "cleanup", &[]),
            said_event(2, Act::Plan),
            answered(2, "plan", &[DONE]),
        ],
        dirs: [(1, vec!["a".to_owned()]), (2, vec!["a".to_owned()])].into(),
        statuses: vec![(2, "atlantis/plan".to_owned(), "success".to_owned())],
        applied: vec![Applied { pull: 1, dir: "a".to_owned(), plan: "one".to_owned() }],
        ..Trace::default()
    }
}

/// Checks that the trace with this change has violations of this kind.
#[track_caller]
fn is_found(kind: &str, change: impl FnOnce(&mut Trace)) {
    let mut trace = good();
    change(&mut trace);
    let found = violations(&trace);
    assert!(found.iter().any(|violation| violation.starts_with(&format!("{kind}: "))), "{kind}: {found:?}");
}

/// The server finds the unlock before it handles the closing, which then has nothing to free.
#[test]
fn a_closing_after_a_missed_unlock_may_have_no_answer() {
    let mut trace = good();
    trace.events[8] = Event::Said { pull: 1, act: Act::Unlock, accepted: false };
    trace.events[9] = said_event(1, Act::Merge);
    trace.events.insert(10, answered(1, "unlock", &[]));
    assert_eq!(violations(&trace), Vec::<String>::new());
    trace.events.remove(8);
    trace.events.remove(9);
    assert!(violations(&trace).iter().any(|violation| violation.starts_with("lost_delivery: ")));
}

#[test]
fn a_good_trace_has_no_violation() {
    assert_eq!(violations(&good()), Vec::<String>::new());
}

#[test]
fn each_fault_is_found() {
    for place in [1, 5, 7, 9, 11] {
        is_found("lost_delivery", |trace| drop(trace.events.remove(place)));
        is_found("duplicate", |trace| trace.events.insert(place, trace.events[place].clone()));
    }
    is_found("error", |trace| trace.events[1] = answered(1, "plan", &[("a", "error", "internal")]));
    is_found("lost_plan", |trace| trace.events[7] = answered(1, "apply", &[("a", "failure", "no_plan")]));
    is_found("lost_plan", |trace| trace.events[7] = answered(1, "apply", &[("a", "error", "interrupted")]));
    is_found("lost_lock", |trace| trace.events[5] = answered(2, "plan", &[DONE]));
    is_found("leaked_lock", |trace| trace.events[11] = answered(2, "plan", &[LOCKED]));
    is_found("double_apply", |trace| trace.applied.push(trace.applied[0].clone()));
    is_found("silent_apply", |trace| trace.applied[0].pull = 2);
    is_found("stuck_status", |trace| trace.statuses[0].2 = "pending".to_owned());
    is_found("broken", |trace| trace.broken.push("the server does not start".to_owned()));
}

#[test]
fn what_a_server_that_ends_may_do_is_no_fault() {
    // An interrupted apply is reported as such; a delivery that was not accepted needs no answer.
    let mut trace = good();
    trace.events[7] = answered(1, "apply", &[("a", "error", "interrupted")]);
    trace.events.remove(2);
    trace.events.remove(2);
    let place = trace.events.iter().position(|event| *event == said_event(1, Act::Apply)).unwrap();
    trace.events.splice(place + 1..place + 1, [Event::Ending, Event::Ended]);
    assert_eq!(violations(&trace), Vec::<String>::new());
    trace.events.push(Event::Said { pull: 2, act: Act::Apply, accepted: false });
    assert_eq!(violations(&trace), Vec::<String>::new());
    // A plan whose delivery was missed is answered before the unlock that came later, which frees its locks.
    let mut trace = good();
    let late = Event::Said { pull: 1, act: Act::Push, accepted: false };
    let unlocked = [late, said_event(1, Act::Unlock), answered(1, "plan", &[DONE]), answered(1, "unlock", &[])];
    let taken = [said_event(2, Act::Open), answered(2, "plan", &[DONE]), said_event(1, Act::Merge)];
    trace.events.splice(2..9, unlocked.into_iter().chain(taken));
    trace.applied.clear();
    assert_eq!(violations(&trace), Vec::<String>::new());
    // An apply that had not begun is reported as cancelled, and its plan stays.
    let mut trace = good();
    trace.events.splice(2..4, []);
    let cancelled = [Event::Ending, answered(1, "apply", &[("a", "failure", "cancelled")]), Event::Ended];
    trace.events.splice(5..6, cancelled.into_iter().chain([said_event(1, Act::Apply), answered(1, "apply", &[DONE])]));
    assert_eq!(violations(&trace), Vec::<String>::new());
    trace.events[9] = answered(1, "apply", &[("a", "error", "no_plan")]);
    assert!(violations(&trace).iter().any(|violation| violation.starts_with("lost_plan: ")));
    // A pull request that is about to give a lock up may have done so already.
    let mut trace = good();
    trace.events[5] = answered(2, "plan", &[DONE]);
    trace.events.insert(5, said_event(1, Act::Unlock));
    trace.events.insert(7, answered(1, "unlock", &[]));
    trace.events[9] = answered(1, "apply", &[("a", "failure", "no_plan")]);
    trace.events.remove(11);
    trace.applied.clear();
    assert!(!violations(&trace).iter().any(|violation| violation.starts_with("lost_")), "{:?}", violations(&trace));
}

/// Pull request 1 is planned, approved and applied without a command.
fn approved() -> Trace {
    let ran = |is_apply| Event::Ran { is_apply, pull: 1, dir: "a".to_owned(), plan: "one".to_owned() };
    Trace {
        events: vec![
            said_event(1, Act::Open),
            ran(false),
            answered(1, "plan", &[DONE]),
            said_event(1, Act::Approve),
            ran(true),
            answered(1, "apply", &[DONE]),
        ],
        dirs: [(1, vec!["a".to_owned()])].into(),
        statuses: Vec::new(),
        applies: ApplyCause::Approval,
        ..good()
    }
}

#[test]
fn applies_without_an_approval_and_approvals_without_an_apply_are_found() {
    assert_eq!(violations(&approved()), Vec::<String>::new());
    let found = |change: &dyn Fn(&mut Vec<Event>)| {
        let mut trace = approved();
        change(&mut trace.events);
        trace.applied.retain(|_| trace.events.iter().any(|event| matches!(event, Event::Ran { is_apply: true, .. })));
        violations(&trace).join("\n")
    };
    let unapproved = found(&|events| drop(events.remove(3)));
    assert!(unapproved.contains("unapproved_apply: one of 1"), "{unapproved}");
    let early = found(&|events| {
        let approval = events.remove(3);
        events.insert(0, approval);
    });
    assert!(early.contains("unapproved_apply: one of 1"), "{early}");
    let lost = found(&|events| events.truncate(4));
    assert!(lost.contains("lost_approval: all of 1"), "{lost}");
    // A person who acts again may prevent the apply, and one that failed is not repeated.
    let pushed = found(&|events| {
        events.truncate(4);
        events.push(said_event(1, Act::Push));
    });
    assert!(!pushed.contains("lost_approval"), "{pushed}");
    let failed = found(&|events| {
        events[5] = answered(1, "apply", &[("a", "error", "interrupted")]);
        events.extend([said_event(1, Act::Plan), answered(1, "plan", &[DONE]), said_event(1, Act::Approve)]);
    });
    assert!(!failed.contains("lost_approval"), "{failed}");
}
