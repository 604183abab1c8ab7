//! Judges a trace: conditions that hold in whatever way the server ended.

use super::approvals::{self, ApplyCause};
use super::trace::{Act, Event, JobsAt, Locking, Result, Trace};
use super::{job_ends, owners};
use std::collections::BTreeMap;

/// Reasons of errors that a correct server reports: an apply was interrupted, or there is nothing to apply.
const TOLD: [&str; 2] = ["interrupted", "no_plan"];

/// Returns all violations, each with its kind in front.
pub(crate) fn violations(trace: &Trace) -> Vec<String> {
    let mut found: Vec<String> = trace.broken.iter().map(|what| format!("broken: {what}")).collect();
    for pull in trace.dirs.keys() {
        if trace.locking == Locking::OnPlan {
            answers(trace, *pull, &mut found);
            plans_stay(trace, *pull, &mut found);
        }
        statuses(trace, *pull, &mut found);
    }
    match trace.locking {
        Locking::OnPlan => locks(trace, &mut found),
        Locking::Strict => found.extend(owners::violations(trace)),
    }
    applies(trace, &mut found);
    if trace.applies == ApplyCause::Approval {
        found.extend(approvals::violations(trace));
    }
    if trace.jobs != JobsAt::Server {
        found.extend(job_ends::violations(trace));
    }
    found
}

/// Returns the events of one pull request with their places.
pub(crate) fn events_of(trace: &Trace, pull: u64) -> impl DoubleEndedIterator<Item = (usize, &Event)> {
    trace.events.iter().enumerate().filter(move |(_, event)| event.pull() == Some(pull))
}

pub(super) fn succeeded(results: &[Result]) -> bool {
    !results.is_empty() && results.iter().all(|result| result.outcome == "success")
}

/// Returns the directories that a pull request has planned before this place and not given up.
fn held(trace: &Trace, pull: u64, before: usize) -> Vec<String> {
    let mut held: Vec<String> = Vec::new();
    for (_, event) in events_of(trace, pull).take_while(|(place, _)| *place < before) {
        match event {
            Event::Said { act, .. } if act.frees() => held.clear(),
            // A plan whose delivery was missed may be answered between an unlock and its answer.
            Event::Answered { command, .. } if ["unlock", "cleanup"].contains(&command.as_str()) => held.clear(),
            Event::Answered { command, results, .. } if ["plan", "replan"].contains(&command.as_str()) => {
                held.extend(results.iter().filter(|result| result.outcome == "success").map(|r| r.dir.clone()));
                // A plan that fails frees its project.
                held.retain(|dir| !results.iter().any(|result| result.dir == *dir && result.outcome == "error"));
            }
            Event::JobKilled { is_apply: false, dir, .. } => held.retain(|held| held != dir),
            _ => {}
        }
    }
    held
}

/// Returns true if the delivery of an unlock was missed before this place.
fn has_missed_unlock(trace: &Trace, pull: u64, before: usize) -> bool {
    let is_missed = |event: &Event| matches!(event, Event::Said { act: Act::Unlock, accepted: false, .. });
    events_of(trace, pull).take_while(|(place, _)| *place < before).any(|(_, event)| is_missed(event))
}

/// Checks that each accepted command is answered, none twice, and that no answer reports an error of the server.
fn answers(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let (mut said, mut owed, mut given) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (place, event) in events_of(trace, pull) {
        match event {
            Event::Said { act, accepted, .. } => {
                *said.entry(act.answered_by()).or_insert(0) += 1;
                // A closing gets no comment if nothing was held. An unlock whose delivery was missed may be found first.
                let is_owed = match act {
                    Act::Approve => false,
                    act if act.answered_by() == "cleanup" => {
                        !held(trace, pull, place).is_empty() && !has_missed_unlock(trace, pull, place)
                    }
                    _ => true,
                };
                *owed.entry(act.answered_by()).or_insert(0) += i32::from(*accepted && is_owed);
            }
            Event::Answered { command, results, text, .. } => {
                *given.entry(command.as_str()).or_insert(0) += 1;
                for wrong in results.iter().filter(|r| r.outcome == "error" && !TOLD.contains(&r.reason.as_str())) {
                    found.push(format!("error: on {pull}, {wrong:?}: {text}"));
                }
            }
            Event::Ran { .. } | Event::JobKilled { .. } | Event::Ending | Event::Ended => {}
        }
    }
    for (command, count) in &owed {
        let given = given.get(command).copied().unwrap_or(0);
        if given < *count {
            found.push(format!("lost_delivery: {count} accepted for {command} on {pull}, {given} answered"));
        }
    }
    // Re-plans have no command.
    for (command, count) in given.into_iter().filter(|(command, _)| *command != "replan") {
        let said = said.get(command).copied().unwrap_or(0);
        if count > said {
            found.push(format!("duplicate: {said} said for {command} on {pull}, {count} answered"));
        }
    }
}

/// Returns the answer to the act at a place, with its place: the first of its command before any other act.
fn answer_to(trace: &Trace, pull: u64, place: usize, act: Act) -> Option<(usize, &[Result])> {
    let later = events_of(trace, pull).skip_while(move |(at, _)| *at <= place);
    let until = later.take_while(|(_, event)| !matches!(event, Event::Said { .. }));
    until.into_iter().find_map(|(at, event)| match event {
        Event::Answered { command, results, .. } if command == act.answered_by() => Some((at, results.as_slice())),
        _ => None,
    })
}

/// Checks that a plan without a later change is applied.
fn plans_stay(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    // A late answer, to a command whose delivery was missed, may come after the next command.
    let (mut planned, mut is_asked) = (false, false);
    for (place, event) in events_of(trace, pull) {
        match event {
            Event::Answered { command, results, .. } if command == "plan" => planned = is_asked && succeeded(results),
            // A re-plan is of some projects only.
            Event::Answered { command, results, .. } if command == "replan" => planned &= succeeded(results),
            Event::Said { act: Act::Apply, .. } if planned => {
                let Some((answered, results)) = answer_to(trace, pull, place, Act::Apply) else {
                    (planned, is_asked) = (false, false);
                    continue;
                };
                // An apply that was running may have been interrupted, and is not repeated.
                let ended = trace.events[..answered].iter().rposition(|event| *event == Event::Ended);
                let began = trace.events[..answered].contains(&Event::Ending);
                let cut = began && ended.is_none_or(|ended| ended > place);
                // A job that had not begun is reported as cancelled, and its plan stays.
                let is_cancelled = |result: &Result| cut && result.reason == "cancelled";
                let is_interrupted = |result: &Result| {
                    let killed = job_ends::kills(trace, pull, &result.dir, place..answered).next().is_some();
                    result.reason == "interrupted" && (cut || killed)
                };
                let is_told = |result: &Result| is_cancelled(result) || is_interrupted(result);
                let fits = |result: &Result| result.outcome == "success" || is_told(result);
                (planned, is_asked) = (results.iter().all(is_cancelled) && !results.is_empty(), false);
                if results.is_empty() && !cut || !results.iter().all(fits) {
                    found.push(format!("lost_plan: on {pull}, all was planned, and apply says {results:?}"));
                }
            }
            Event::Said { act, .. } => (planned, is_asked) = (false, act.answered_by() == "plan"),
            _ => {}
        }
    }
}

/// Checks that no status is pending at rest, except for applies that wait for people.
fn statuses(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let last = events_of(trace, pull).rev().find_map(|(_, event)| match event {
        Event::Answered { command, results, .. } if !results.is_empty() => Some((command, results)),
        _ => None,
    });
    let is_applied = last.is_some_and(|(command, results)| command == "apply" && succeeded(results));
    for (of, context, state) in &trace.statuses {
        if *of == pull && state == "pending" && (is_applied || !context.contains("/apply")) {
            found.push(format!("stuck_status: {context} of {pull} is pending"));
        }
    }
}

/// Checks that a planned directory is locked for all others until its plan is given up, and no longer.
fn locks(trace: &Trace, found: &mut Vec<String>) {
    for (place, event) in trace.events.iter().enumerate() {
        let Event::Said { pull, act, .. } = event else { continue };
        if act.answered_by() != "plan" {
            continue;
        }
        let Some((answered, results)) = answer_to(trace, *pull, place, *act) else { continue };
        for holder in trace.dirs.keys().filter(|other| *other != pull) {
            let freed = events_of(trace, *holder).any(|(at, event)| {
                at > place && at < answered && matches!(event, Event::Said { act, .. } if act.frees())
            });
            let held = held(trace, *holder, place);
            for result in results.iter().filter(|result| result.outcome == "success" && held.contains(&result.dir)) {
                if !freed {
                    found.push(format!("lost_lock: {} is held by {holder}, and {pull} plans it", result.dir));
                }
            }
        }
        leaked(trace, place, answered, *pull, found);
    }
}

/// Checks that no plan is refused because of a pull request whose closing was answered before the plan was asked for.
fn leaked(trace: &Trace, place: usize, answered: usize, pull: u64, found: &mut Vec<String>) {
    let Event::Answered { results, text, .. } = &trace.events[answered] else { return };
    if !results.iter().any(|result| result.reason == "locked") {
        return;
    }
    for holder in trace.dirs.keys().filter(|other| **other != pull) {
        let closed = events_of(trace, *holder)
            .any(|(at, event)| at < place && matches!(event, Event::Answered { command, .. } if command == "cleanup"));
        let named = text.split(|c: char| c.is_whitespace() || "().,:`[".contains(c));
        if closed && named.into_iter().any(|word| word == format!("{}{holder}", trace.mark)) {
            found.push(format!("leaked_lock: {pull} is refused for {holder}, which is closed"));
        }
    }
}

/// Checks that no plan is applied twice, and that each apply is mentioned in a comment.
fn applies(trace: &Trace, found: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for line in &trace.applied {
        let count = seen.entry(&line.plan).or_insert(0);
        *count += 1;
        if *count == 2 {
            found.push(format!("double_apply: plan {} of {} in {} was applied twice", line.plan, line.pull, line.dir));
        }
    }
    let mut happened: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    for line in &trace.applied {
        *happened.entry((line.pull, &line.dir)).or_insert(0) += 1;
    }
    for ((pull, dir), count) in happened {
        let speaks = |event: &Event| match event {
            Event::Answered { command, results, .. } => {
                command == "apply" && (results.is_empty() || results.iter().any(|result| result.dir == dir))
            }
            _ => false,
        };
        let told = events_of(trace, pull).filter(|(_, event)| speaks(event)).count();
        if told < count {
            found.push(format!("silent_apply: {dir} of {pull} was applied {count} times and told {told} times"));
        }
    }
}
