//! Judges the ends of jobs at an executor: each is reported as it was, whatever the server did meanwhile, and nothing is left.

use super::judge::events_of;
use super::trace::{Act, Event, Locking, Trace};
use std::collections::BTreeSet;
use std::ops::Range;

/// Returns all violations, each with its kind in front.
pub(super) fn violations(trace: &Trace) -> Vec<String> {
    let mut found: Vec<String> = trace.left.iter().map(|what| format!("left: {what}")).collect();
    for (pull, dirs) in &trace.dirs {
        interruptions(trace, *pull, &mut found);
        dirs.iter().for_each(|dir| true_ends(trace, *pull, dir, &mut found));
    }
    found
}

/// Returns the places within these at which a job of a project was killed, and true for that of an apply.
pub(super) fn kills<'a>(
    trace: &'a Trace,
    pull: u64,
    dir: &'a str,
    within: Range<usize>,
) -> impl Iterator<Item = (usize, bool)> + 'a {
    trace.events.iter().enumerate().filter_map(move |(at, event)| match event {
        Event::JobKilled { is_apply, pull: of, dir: project } if *of == pull && project == dir => {
            within.contains(&at).then_some((at, *is_apply))
        }
        _ => None,
    })
}

fn is_apply_of(event: &Event, pull: u64, dir: &str) -> bool {
    matches!(event, Event::Ran { is_apply: true, pull: of, dir: project, .. } if *of == pull && project == dir)
}

/// Checks that only a killed job is reported as interrupted, and each once. An apply whose steps never began may be as well, if the server
/// ended before it could start it.
fn interruptions(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let mut told = BTreeSet::new();
    let mut asked = 0;
    for (place, event) in events_of(trace, pull) {
        match event {
            Event::Said { act: Act::Apply | Act::ApplyMerged, .. } => asked = place,
            Event::Answered { command, results, text, .. } => {
                let is_apply = command == "apply";
                for result in results.iter().filter(|result| result.reason == "interrupted") {
                    let mut own =
                        kills(trace, pull, &result.dir, 0..place).filter(|(_, of_apply)| *of_apply == is_apply);
                    let began = || trace.events[asked..place].iter().any(|event| is_apply_of(event, pull, &result.dir));
                    let is_cut = || trace.events[..place].contains(&Event::Ending);
                    let is_told = own.any(|(at, _)| told.insert(at));
                    let never_began = is_apply && is_cut() && !began();
                    if !is_told && !never_began {
                        found.push(format!("untrue_end: {command} of {} on {pull} was not killed: {text}", result.dir));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Checks that each apply that was not killed is reported with its success.
fn true_ends(trace: &Trace, pull: u64, dir: &str, found: &mut Vec<String>) {
    // In mode `strict` some fail by themselves.
    let succeeds = |plan: &str| trace.locking != Locking::Strict || !plan.starts_with(['0', '1']);
    let ran = trace.applied.iter().filter(|line| line.pull == pull && line.dir == dir && succeeds(&line.plan)).count();
    let killed = kills(trace, pull, dir, 0..trace.events.len()).filter(|(_, is_apply)| *is_apply).count();
    let told = events_of(trace, pull).filter(|(_, event)| match event {
        Event::Answered { command, results, .. } => {
            command == "apply" && results.iter().any(|result| result.dir == dir && result.outcome == "success")
        }
        _ => false,
    });
    let told = told.count();
    if told + killed < ran {
        found.push(format!(
            "untrue_end: {dir} of {pull} was applied {ran} times, {killed} killed, and {told} succeeded"
        ));
    }
}
