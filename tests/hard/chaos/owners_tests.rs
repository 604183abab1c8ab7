//! The judge of mode `strict` finds each fault that is put into a good trace.

use super::judge::violations;
use super::trace::{Act, Applied, Event, Locking, Owned, Result, Trace};

fn said_event(pull: u64, act: Act) -> Event {
    Event::Said { pull, act, accepted: true }
}

fn answered(pull: u64, command: &str, outcomes: &[(&str, &str)], text: &str) -> Event {
    let result = |(outcome, reason): &(&str, &str)| Result {
        dir: "a".to_owned(),
        outcome: (*outcome).to_owned(),
        reason: (*reason).to_owned(),
    };
    let results = outcomes.iter().map(result).collect();
    let (command, head) = (command.to_owned(), "head".to_owned());
    Event::Answered { pull, id: 0, command, head, results, text: text.to_owned() }
}

fn ran(is_apply: bool, pull: u64, plan: &str) -> Event {
    Event::Ran { is_apply, pull, dir: "a".to_owned(), plan: plan.to_owned() }
}

fn row(pull: u64, state: &str) -> Owned {
    Owned { pull, dir: "a".to_owned(), state: state.to_owned() }
}

const DONE: [(&str, &str); 1] = [("success", "")];
const LOCKED: [(&str, &str); 1] = [("failure", "locked")];
const NO_PLAN: [(&str, &str); 1] = [("failure", "no_plan")];
const INVALIDATED: &str = "- dir `a`\nThe server plans it again";

/// Pull request 1 is planned and applied, and merged. The plan of 2 is invalidated; 2 is refused, planned again, merged unapplied, and
/// applied then. 3 is closed after its apply.
fn good() -> Trace {
    let mut trace = Trace {
        locking: Locking::Strict,
        events: vec![
            said_event(1, Act::Open),
            ran(false, 1, "one"),
            answered(1, "plan", &DONE, ""),
            said_event(2, Act::Open),
            ran(false, 2, "two"),
            answered(2, "plan", &DONE, ""),
            said_event(1, Act::Apply),
            ran(true, 1, "one"),
            answered(1, "apply", &DONE, ""),
            answered(2, "plans_fell", &[], INVALIDATED),
            said_event(2, Act::Apply),
            answered(2, "apply", &LOCKED, ""),
            said_event(1, Act::Merge),
            answered(1, "cleanup", &[], ""),
            ran(false, 2, "three"),
            answered(2, "replan", &DONE, ""),
            said_event(2, Act::Merge),
            answered(2, "owes", &[], "Merged\n- dir `a`"),
            said_event(2, Act::ApplyMerged),
            ran(false, 2, "four"),
            answered(2, "plan", &DONE, ""),
            ran(true, 2, "four"),
            answered(2, "apply", &DONE, ""),
            said_event(3, Act::Open),
            ran(false, 3, "five"),
            answered(3, "plan", &DONE, ""),
            said_event(3, Act::Apply),
            ran(true, 3, "five"),
            answered(3, "apply", &DONE, ""),
            said_event(3, Act::Close),
            answered(3, "owes", &[], "no merged branch contains the change\n- dir `a`"),
        ],
        dirs: [1, 2, 3].map(|pull| (pull, vec!["a".to_owned()])).into(),
        owned: vec![row(3, "closed_applied")],
        ..Trace::default()
    };
    trace.applied = applied(&trace);
    trace
}

fn applied(trace: &Trace) -> Vec<Applied> {
    let applied = |event: &Event| match event {
        Event::Ran { is_apply: true, pull, dir, plan } => {
            Some(Applied { pull: *pull, dir: dir.clone(), plan: plan.clone() })
        }
        _ => None,
    };
    trace.events.iter().filter_map(applied).collect()
}

/// Checks that the trace with this change has violations of this kind.
#[track_caller]
fn is_found(kind: &str, change: impl FnOnce(&mut Trace)) {
    let mut trace = good();
    change(&mut trace);
    trace.applied = applied(&trace);
    let found = violations(&trace);
    assert!(found.iter().any(|violation| violation.starts_with(&format!("{kind}: "))), "{kind}: {found:?}");
}

/// Cuts the trace before this event.
fn until(trace: &mut Trace, last: &Event) {
    let place = trace.events.iter().position(|event| event == last).unwrap();
    trace.events.truncate(place);
    trace.owned.clear();
}

#[test]
fn a_good_trace_of_strict_has_no_violation() {
    assert_eq!(violations(&good()), Vec::<String>::new());
}

#[test]
fn each_fault_of_answers_and_plans_is_found() {
    for place in [2, 5, 8, 11, 25, 28] {
        is_found("duplicate", |trace| trace.events.insert(place, trace.events[place].clone()));
    }
    is_found("duplicate", |trace| trace.events.insert(20, trace.events[20].clone()));
    for place in [2, 5, 8, 11, 25, 28] {
        is_found("lost_delivery", |trace| drop(trace.events.remove(place)));
    }
    is_found("lost_delivery", |trace| {
        trace.events.remove(22);
        trace.events.remove(20);
    });
    is_found("error", |trace| trace.events[2] = answered(1, "plan", &[("error", "internal")], ""));
    is_found("lost_plan", |trace| trace.events[8] = answered(1, "apply", &NO_PLAN, ""));
    // An invalidated plan was reported.
    let change = |trace: &mut Trace| trace.events[11] = answered(2, "apply", &NO_PLAN, "");
    let mut trace = good();
    change(&mut trace);
    assert_eq!(violations(&trace), Vec::<String>::new());
    is_found("lost_plan", |trace| {
        change(trace);
        trace.events.remove(9);
    });
    // A later merge of another pull request is a reason as well.
    let refused_as_stale = |trace: &mut Trace, act: Act| {
        trace.events.remove(9);
        trace.events[10] =
            answered(2, "apply", &[("failure", "stale_plan")], "files changed on `main`, which is now at 0123456");
        trace.events.insert(6, said_event(4, act));
        trace.dirs.insert(4, vec!["a".to_owned()]);
    };
    is_found("lost_plan", |trace| refused_as_stale(trace, Act::Push));
    let mut trace = good();
    refused_as_stale(&mut trace, Act::Merge);
    assert!(!violations(&trace).iter().any(|found| found.starts_with("lost_plan: ")), "{trace:?}");
    is_found("double_apply", |trace| trace.events.insert(22, ran(true, 2, "four")));
    is_found("silent_apply", |trace| trace.events.insert(28, ran(true, 3, "five")));
    is_found("unplanned_apply", |trace| drop(trace.events.remove(19)));
    // The plan of 2 from before the apply of 1, and from before its merge.
    is_found("stale_apply", |trace| trace.events[21] = ran(true, 2, "two"));
    is_found("stale_apply", |trace| {
        trace.events[12..15].rotate_right(1);
        trace.events[21] = ran(true, 2, "three");
    });
}

#[test]
fn each_fault_of_owners_is_found() {
    is_found("two_owners", |trace| drop(trace.events.drain(12..14)));
    is_found("two_owners", |trace| {
        trace.events.extend([
            said_event(4, Act::Open),
            ran(false, 4, "six"),
            said_event(4, Act::Apply),
            ran(true, 4, "six"),
        ]);
        trace.dirs.insert(4, vec!["a".to_owned()]);
    });
    is_found("two_owners", |trace| trace.owned.push(row(1, "applied_unmerged")));
    is_found("over_obligation", |trace| drop(trace.events.drain(18..23)));
    is_found("lost_obligation", |trace| trace.owned.clear());
    is_found("lost_obligation", |trace| until(trace, &said_event(2, Act::ApplyMerged)));
    is_found("lost_obligation", |trace| until(trace, &said_event(1, Act::Merge)));
    is_found("lost_obligation", |trace| {
        until(trace, &said_event(2, Act::Merge));
        trace.events.insert(9, said_event(1, Act::Push));
    });
    for state in ["planned", "applied_unmerged", "closed_applied", "merged_unapplied"] {
        is_found("leaked_owner", |trace| trace.owned.push(row(1, state)));
    }
    is_found("leaked_owner", |trace| trace.events.push(said_event(3, Act::AcceptDrift)));
}

/// 2 is merged while 1 owns the project. 1 applies again, merges, and has to apply what it has planned since.
#[test]
fn who_has_begun_before_goes_on_and_owes_what_is_planned_since() {
    let mut trace = good();
    until(&mut trace, &said_event(1, Act::Merge));
    trace.dirs.remove(&3);
    trace.events.extend([said_event(2, Act::Merge), answered(2, "owes", &[], "Merged\n- dir `a`")]);
    let again = |plan: &str| [said_event(1, Act::Plan), ran(false, 1, plan), answered(1, "plan", &DONE, "")];
    trace.events.extend(again("three"));
    trace.events.extend([said_event(1, Act::Apply), ran(true, 1, "three"), answered(1, "apply", &DONE, "")]);
    trace.events.extend(again("four"));
    trace.events.extend([said_event(1, Act::Merge), answered(1, "owes", &[], "Merged\n- dir `a`")]);
    trace.owned = vec![row(1, "merged_unapplied"), row(2, "merged_unapplied")];
    trace.applied = applied(&trace);
    assert_eq!(violations(&trace), Vec::<String>::new());
    // A project that was applied as it was merged has no owner.
    trace.events.drain(trace.events.len() - 5..trace.events.len() - 2);
    assert!(violations(&trace).iter().any(|found| found.starts_with("leaked_owner: ")), "{trace:?}");
}

/// Its first apply was interrupted before its step ran; or it was asked for before 2 was merged, and its step ran after.
#[test]
fn who_has_begun_unseen_goes_on_as_well() {
    let mut trace = good();
    trace.dirs.remove(&3);
    let place = trace.events.iter().position(|event| *event == said_event(2, Act::ApplyMerged)).unwrap();
    trace.events.truncate(place);
    let by_four = |trace: &mut Trace, first: &[Event], at: usize| {
        trace.events.splice(at..at, first.iter().cloned());
        let planned = [said_event(4, Act::Plan), ran(false, 4, "six"), answered(4, "plan", &DONE, "")];
        trace.events.extend(planned.into_iter().chain([said_event(4, Act::Apply), ran(true, 4, "six")]));
        trace.dirs.insert(4, vec!["a".to_owned()]);
        trace.applied = applied(trace);
    };
    let is_over = |trace: &Trace| violations(trace).iter().any(|found| found.starts_with("over_obligation: 4 "));
    for (reason, is_wrong) in [("interrupted", false), ("locked", true)] {
        let mut trace = trace.clone();
        by_four(&mut trace, &[said_event(4, Act::Apply), answered(4, "apply", &[("error", reason)], "")], 16);
        assert_eq!(is_over(&trace), is_wrong, "{reason}");
    }
    // The command came just before the merge of 2.
    let said_at = trace.events.iter().position(|event| *event == said_event(2, Act::Merge)).unwrap();
    trace.events.insert(said_at, said_event(4, Act::Apply));
    trace.events.extend([ran(true, 4, "six")]);
    trace.dirs.insert(4, vec!["a".to_owned()]);
    assert!(!is_over(&trace));
}

#[test]
fn who_waits_for_what_is_free_is_found() {
    let refused = |trace: &mut Trace| {
        until(trace, &said_event(2, Act::Merge));
        trace.events.truncate(trace.events.len() - 2);
    };
    is_found("not_planned_again", refused);
    is_found("not_planned_again", |trace| {
        refused(trace);
        trace.events.drain(10..12);
    });
    // The owner keeps it waiting.
    let mut trace = good();
    until(&mut trace, &said_event(1, Act::Merge));
    trace.owned.push(row(1, "applied_unmerged"));
    trace.applied = applied(&trace);
    trace.dirs.remove(&3);
    assert_eq!(violations(&trace), Vec::<String>::new());
}
