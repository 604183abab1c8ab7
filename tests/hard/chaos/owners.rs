//! Judges a trace of mode `strict` by its rules (docs/locks.md), as far as they can be observed from outside.

use super::judge::events_of;
use super::trace::{Act, Event, Owned, Result, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// Reasons of errors that a correct server reports; `apply`: an error of the workflow itself.
const TOLD: [&str; 3] = ["interrupted", "no_plan", "apply"];

/// Returns all violations, each with its kind in front.
pub(crate) fn violations(trace: &Trace) -> Vec<String> {
    let mut found = Vec::new();
    for pull in trace.dirs.keys() {
        answers(trace, *pull, &mut found);
        lost_plan(trace, *pull, &mut found);
        obligations(trace, *pull, &mut found);
    }
    for (place, event) in trace.events.iter().enumerate() {
        if let Event::Ran { is_apply: true, pull, dir, plan } = event {
            two_owners(trace, place, *pull, dir, &mut found);
            stale_apply(trace, place, (*pull, dir, plan), &mut found);
        }
    }
    owned(trace, &mut found);
    found.extend(waiting_in_vain(trace));
    found
}

/// Returns true if a pull request has one of these acts at a place after `after` and before `before`.
fn has_act(trace: &Trace, pull: u64, acts: &[Act], after: usize, before: usize) -> bool {
    events_of(trace, pull)
        .any(|(at, event)| at > after && at < before && matches!(event, Event::Said { act, .. } if acts.contains(act)))
}

/// Returns the last place at which a pull request has one of these acts, and true if that was accepted.
fn last_said(trace: &Trace, pull: u64, acts: &[Act]) -> Option<(usize, bool)> {
    events_of(trace, pull).rev().find_map(|(at, event)| match event {
        Event::Said { act, accepted, .. } if acts.contains(act) => Some((at, *accepted)),
        _ => None,
    })
}

/// Returns true if an event is a comment of this kind that names this directory.
fn tells(event: &Event, kind: &str, dir: &str) -> bool {
    matches!(event, Event::Answered { command, text, .. } if command == kind && text.contains(&format!("dir `{dir}`")))
}

fn is_result(event: &Event, kind: &str, dir: &str, outcome: &str) -> bool {
    let fits = |result: &Result| result.dir == dir && result.outcome == outcome;
    matches!(event, Event::Answered { command, results, .. } if command == kind && results.iter().any(fits))
}

/// Returns the places at which an apply of a directory has begun, with its pull request.
fn begun<'a>(trace: &'a Trace, dir: &'a str) -> impl Iterator<Item = (usize, u64)> + 'a {
    trace.events.iter().enumerate().filter_map(move |(at, event)| match event {
        Event::Ran { is_apply: true, pull, dir: of, .. } if of == dir => Some((at, *pull)),
        _ => None,
    })
}

/// Checks that each accepted command is answered, none twice. `apply` on a merged pull request may be answered by a plan, and by both.
fn answers(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    // `after`: answers to an `apply` after the merge.
    let (mut said, mut owed, mut given) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut is_merged = false;
    for (_, event) in events_of(trace, pull) {
        match event {
            Event::Said { act, accepted, .. } => {
                is_merged |= *act == Act::Merge;
                let kind = if *act == Act::ApplyMerged { "after" } else { act.answered_by() };
                *said.entry(kind).or_insert(0) += 1;
                *owed.entry(kind).or_insert(0) += i32::from(*accepted);
            }
            Event::Answered { command, results, text, .. } => {
                let kind = if is_merged && Act::ApplyMerged.is_answered_by(command) { "after" } else { command };
                *given.entry(kind).or_insert(0) += 1;
                for wrong in results.iter().filter(|r| r.outcome == "error" && !TOLD.contains(&r.reason.as_str())) {
                    found.push(format!("error: on {pull}, {wrong:?}: {text}"));
                }
            }
            Event::Ran { .. } | Event::JobKilled { .. } | Event::Ending | Event::Ended => {}
        }
    }
    let count = |of: &BTreeMap<&str, i32>, kind: &str| of.get(kind).copied().unwrap_or(0);
    for kind in ["plan", "apply", "unlock", "after"] {
        let (most, least, there) = (count(&said, kind), count(&owed, kind), count(&given, kind));
        if there < least {
            found.push(format!("lost_delivery: {least} accepted for {kind} on {pull}, {there} answered"));
        }
        // Commands whose deliveries were missed before the merge may be found and answered after it.
        let late = if kind == "after" {
            count(&said, "plan") + count(&said, "apply") - count(&owed, "plan") - count(&owed, "apply") + most
        } else {
            0
        };
        if there > most + late {
            found.push(format!("duplicate: {most} said for {kind} on {pull}, {there} answered"));
        }
    }
}

/// Checks that nobody applies a project that another pull request has applied and not merged, or merged and not applied, unless the drift
/// was accepted.
fn two_owners(trace: &Trace, place: usize, pull: u64, dir: &str, found: &mut Vec<String>) {
    for (began, other) in begun(trace, dir).filter(|(at, other)| *at < place && *other != pull) {
        let is_over =
            has_act(trace, other, &[Act::AcceptDrift], began, place) || has_act(trace, other, &[Act::Merge], 0, place);
        if !is_over {
            found.push(format!("two_owners: {pull} applies {dir}, which {other} has applied and not merged"));
        }
    }
    if has_act(trace, pull, &[Act::Merge], 0, place) {
        return;
    }
    for other in trace.dirs.keys().filter(|other| **other != pull) {
        let told = events_of(trace, *other).find(|(_, event)| tells(event, "owes", dir) && !is_of_close(event));
        let Some((told, _)) = told.filter(|(told, _)| *told < place) else { continue };
        // A pull request that has begun before keeps its turn: an unmerged owner comes before merged ones. An interrupted apply has begun,
        // though its step may not have run.
        let is_begun = |event: &Event| match event {
            Event::Ran { is_apply, pull: by, .. } => *is_apply && *by == pull,
            Event::Answered { pull: by, command, results, .. } => {
                *by == pull && command == "apply" && results.iter().any(|result| result.reason == "interrupted")
            }
            _ => false,
        };
        let mut own = trace.events[..told].iter().enumerate().rev();
        let owns = own.find(|(_, event)| is_begun(event));
        if owns.is_some_and(|(began, _)| !has_act(trace, pull, &[Act::AcceptDrift], began, place)) {
            continue;
        }
        // It may have begun before the merge was known, and its step may have run after.
        if asked(trace, pull, place).is_some_and(|asked| asked < told) {
            continue;
        }
        let is_merged = |who: u64| who == *other || has_act(trace, who, &[Act::Merge], 0, place);
        let satisfied = begun(trace, dir).any(|(at, who)| at > told && at < place && is_merged(who));
        if !satisfied
            && !is_applied_with_another(trace, *other, dir)
            && !has_act(trace, *other, &[Act::AcceptDrift], told, place)
        {
            found.push(format!("over_obligation: {pull} applies {dir}, which {other} has merged and not applied"));
        }
    }
}

/// Returns true if a merged pull request has a comment that another one was applied at a commit that contains its merge.
fn is_applied_with_another(trace: &Trace, pull: u64, dir: &str) -> bool {
    events_of(trace, pull).any(|(_, event)| tells(event, "applied_by_another", dir))
}

fn is_of_close(event: &Event) -> bool {
    matches!(event, Event::Answered { text, .. } if text.contains("no merged branch contains"))
}

/// Checks that each apply has its plan, without an apply or a known merge of another pull request in between.
fn stale_apply(trace: &Trace, place: usize, (pull, dir, plan): (u64, &str, &str), found: &mut Vec<String>) {
    let is_plan = |event: &Event| matches!(event, Event::Ran { is_apply: false, pull: of, dir: at, plan: same } if *of == pull && at == dir && same == plan);
    let Some(planned) = trace.events[..place].iter().position(is_plan) else {
        found.push(format!("unplanned_apply: {pull} applies plan {plan} of {dir}, which it has not made"));
        return;
    };
    for (_, other) in begun(trace, dir).filter(|(at, other)| *at > planned && *at < place && *other != pull) {
        found.push(format!("stale_apply: {pull} applies a plan of {dir} that is older than the apply of {other}"));
    }
    let asked = asked(trace, pull, place);
    for (other, _) in trace.dirs.iter().filter(|(other, dirs)| **other != pull && dirs.iter().any(|of| of == dir)) {
        let merged = last_said(trace, *other, &[Act::Merge]).map(|(at, _)| at).filter(|at| *at > planned);
        let is_known = |event: &Event| matches!(event, Event::Answered { command, .. } if ["cleanup", "owes"].contains(&command.as_str()));
        let known =
            merged.and_then(|merged| events_of(trace, *other).find(|(at, event)| *at > merged && is_known(event)));
        if known.is_some_and(|(known, _)| asked.is_some_and(|asked| asked > known)) {
            found.push(format!("stale_apply: {pull} applies a plan of {dir} that is older than the merge of {other}"));
        }
    }
}

/// Returns the last place before this one at which a pull request asks for an apply.
fn asked(trace: &Trace, pull: u64, before: usize) -> Option<usize> {
    events_of(trace, pull).filter(|(at, _)| *at < before).rev().find_map(|(at, event)| match event {
        Event::Said { act: Act::Apply | Act::ApplyMerged, .. } => Some(at),
        _ => None,
    })
}

/// Checks that a plan that is missing at its apply was reported as invalidated, or is refused because of another pull request merged since
/// it was asked for.
fn lost_plan(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let mut planned: BTreeSet<&str> = BTreeSet::new();
    // Place at which it is asked for. A plan that is invalidated while others of its run are made is reported before their result.
    let mut since = None;
    for (place, event) in events_of(trace, pull) {
        match event {
            Event::Answered { command, results, .. }
                if ["plan", "replan"].contains(&command.as_str()) && since.is_some() =>
            {
                planned.extend(results.iter().filter(|r| r.outcome == "success").map(|r| r.dir.as_str()));
            }
            Event::Answered { command, results, text, .. } if command == "apply" => {
                let is_stale = text.contains("which is now at")
                    && trace.dirs.keys().any(|other| {
                        *other != pull && since.is_some_and(|since| has_act(trace, *other, &[Act::Merge], since, place))
                    });
                let is_gone =
                    |result: &Result| ["no_plan", "not_planned", "stale_plan"].contains(&result.reason.as_str());
                let all = trace.dirs[&pull].iter().all(|dir| planned.contains(dir.as_str()));
                let is_invalidated = events_of(trace, pull).any(|(at, event)| {
                    Some(at) > since && matches!(event, Event::Answered { command, .. } if command == "plans_fell")
                });
                if all && !is_invalidated && !is_stale && results.iter().any(is_gone) {
                    found.push(format!("lost_plan: on {pull}, all was planned, and apply says {results:?}"));
                }
                planned.clear();
            }
            Event::Said { act: Act::Open | Act::Push | Act::Plan, accepted, .. } => {
                planned.clear();
                since = accepted.then_some(place);
            }
            // A re-plan that ends so drops the plan.
            Event::JobKilled { is_apply: false, dir, .. } => _ = planned.remove(dir.as_str()),
            Event::Said { act: Act::Apply, .. } => {}
            Event::Said { .. } => (planned, since) = (BTreeSet::new(), None),
            _ => {}
        }
    }
}

/// Returns the place at which a merged pull request has applied a directory at the merged head.
fn applied_as_merged(trace: &Trace, pull: u64, dir: &str, merged: usize) -> Option<usize> {
    let last = trace.heads.get(&pull);
    let is_last = |event: &Event| matches!(event, Event::Answered { head, .. } if last.is_none_or(|last| last == head));
    let changed = last_said(trace, pull, &[Act::Push]).map_or(0, |(at, _)| at);
    let mut after = events_of(trace, pull).rev().filter(|(at, _)| *at > changed && *at < merged);
    after.find(|(_, event)| is_result(event, "apply", dir, "success") && is_last(event)).map(|(at, _)| at)
}

/// Returns true if a plan of a directory was answered between an apply and the merge: then there is something to apply again.
fn is_planned_again(trace: &Trace, pull: u64, dir: &str, applied: usize, merged: usize) -> bool {
    let is_plan = |event: &Event| ["plan", "replan"].iter().any(|kind| is_result(event, kind, dir, "success"));
    events_of(trace, pull).any(|(at, event)| at > applied && at < merged && is_plan(event))
}

/// Checks that each project with an unfinished change has an owner at the end.
fn obligations(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let (merged, closed) = (last_said(trace, pull, &[Act::Merge]), last_said(trace, pull, &[Act::Close]));
    let end = trace.events.len();
    for dir in &trace.dirs[&pull] {
        let began = begun(trace, dir).filter(|(_, who)| *who == pull).last().map(|(at, _)| at);
        let is_held = began.is_some_and(|began| !has_act(trace, pull, &[Act::AcceptDrift], began, end));
        let wanted: &[&str] = match (merged, closed) {
            (Some((merged, accepted)), _) => {
                let told = events_of(trace, pull).any(|(_, event)| tells(event, "owes", dir));
                let later =
                    events_of(trace, pull).any(|(at, event)| at > merged && is_result(event, "apply", dir, "success"));
                let by_another = begun(trace, dir)
                    .any(|(at, who)| at > merged && who != pull && has_act(trace, who, &[Act::Merge], 0, at));
                let accepted_drift = has_act(trace, pull, &[Act::AcceptDrift], merged, end);
                let by_another = by_another || is_applied_with_another(trace, pull, dir);
                let done =
                    later || by_another || accepted_drift || applied_as_merged(trace, pull, dir, merged).is_some();
                if done || !accepted && !told { &[] } else { &["merged_unapplied"] }
            }
            (None, Some((_, true))) if is_held => &["closed_applied"],
            (None, Some((_, false))) if is_held => &["closed_applied", "applied_unmerged"],
            (None, None) if is_held => &["applied_unmerged"],
            _ => &[],
        };
        let is_there = |row: &Owned| row.pull == pull && row.dir == *dir && wanted.contains(&row.state.as_str());
        if !wanted.is_empty() && !trace.owned.iter().any(is_there) {
            found.push(format!("lost_obligation: {pull} owes {dir}, {wanted:?}, and {:?} is owned", trace.owned));
        }
    }
}

/// Checks that nothing is owned without a cause, nor by two.
fn owned(trace: &Trace, found: &mut Vec<String>) {
    let mut owners: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for row in &trace.owned {
        let applied = last_said(trace, row.pull, &[Act::Apply]).map(|(at, _)| at);
        let (merged, closed) = (last_said(trace, row.pull, &[Act::Merge]), last_said(trace, row.pull, &[Act::Close]));
        // An act that was not accepted ends nothing.
        let accepts = Event::Said { pull: row.pull, act: Act::AcceptDrift, accepted: true };
        let since = |at: usize| !trace.events[at..].contains(&accepts);
        let is_open = |end: Option<(usize, bool)>| end.is_none_or(|(_, accepted)| !accepted);
        let is_right = match row.state.as_str() {
            "applied_unmerged" => applied.is_some_and(since) && is_open(merged) && is_open(closed),
            "planned" => trace.owned.iter().any(|other| other.pull == row.pull && other.state == "applied_unmerged"),
            "closed_applied" => applied.is_some() && closed.is_some_and(|(at, _)| since(at)),
            "merged_unapplied" => {
                let is_owed = |merged: usize| {
                    let applied = applied_as_merged(trace, row.pull, &row.dir, merged);
                    applied.is_none_or(|applied| is_planned_again(trace, row.pull, &row.dir, applied, merged))
                };
                merged.is_some_and(|(at, _)| since(at) && is_owed(at))
            }
            _ => false,
        };
        if !is_right {
            found.push(format!("leaked_owner: {row:?} has no cause"));
        }
        if row.state != "merged_unapplied" {
            owners.entry(&row.dir).or_default().insert(row.pull);
        }
    }
    for (dir, pulls) in owners.iter().filter(|(_, pulls)| pulls.len() > 1) {
        found.push(format!("two_owners: {dir} is owned by {pulls:?}"));
    }
}

/// Returns the open pull requests that had plans invalidated, or were refused, and are not planned although all that they change is free.
pub(crate) fn waiting_in_vain(trace: &Trace) -> Vec<String> {
    let is_over = |pull: u64| has_act(trace, pull, &[Act::Close, Act::Merge], 0, trace.events.len());
    let mut found = Vec::new();
    for (pull, dirs) in trace.dirs.iter().filter(|(pull, _)| !is_over(**pull)) {
        let mut waits: BTreeMap<&str, &str> = BTreeMap::new();
        for (_, event) in events_of(trace, *pull) {
            match event {
                Event::Answered { command, text, .. }
                    if command == "plans_fell" && text.contains("The server plans") =>
                {
                    waits.extend(
                        dirs.iter().filter(|dir| tells(event, "plans_fell", dir)).map(|dir| (dir.as_str(), "fell")),
                    );
                }
                Event::Answered { results, .. } => {
                    for result in results {
                        waits.remove(result.dir.as_str());
                        if result.reason == "locked" {
                            waits.insert(&result.dir, "was refused");
                        }
                    }
                }
                Event::Said { act: Act::Apply, .. } => {}
                // A command replaces the automatic re-plan.
                Event::Said { .. } => waits.clear(),
                _ => {}
            }
        }
        let is_free = !trace.owned.iter().any(|row| row.pull != *pull && dirs.contains(&row.dir));
        if is_free {
            found.extend(
                waits.iter().map(|(dir, why)| format!("not_planned_again: {dir} of {pull} {why}, and is free")),
            );
        }
    }
    found
}
