//! Trials in which approvals, and no comments, cause the applies (`auto_apply: {when: approved}`), and the judge of them.

use super::judge::{events_of, succeeded};
use super::trace::{Act, Event, Trace};

/// What causes applies in a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ApplyCause {
    #[default]
    Comment,
    Approval,
}

impl ApplyCause {
    /// Returns the keys of the repository in `repos.yaml`.
    pub(super) fn keys(self) -> &'static str {
        match self {
            ApplyCause::Comment => "",
            ApplyCause::Approval => "\n    apply_requirements: [approved]\n    auto_apply: {when: approved}",
        }
    }

    /// Returns the act of a person who wants an apply.
    pub(super) fn act(self) -> Act {
        match self {
            ApplyCause::Comment => Act::Apply,
            ApplyCause::Approval => Act::Approve,
        }
    }
}

/// Returns the violations of automatic applies.
pub(super) fn violations(trace: &Trace) -> Vec<String> {
    let mut found = Vec::new();
    for pull in trace.dirs.keys() {
        unapproved(trace, *pull, &mut found);
        forgotten(trace, *pull, &mut found);
    }
    found
}

/// Checks that each apply was approved since somebody asked for its plan, and that there was no push since.
fn unapproved(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let made = |wanted: &str| {
        let is_it = |event: &Event| matches!(event, Event::Ran { is_apply: false, plan, .. } if plan == wanted);
        trace.events.iter().position(is_it)
    };
    for (applied, event) in trace.events.iter().enumerate() {
        let Event::Ran { is_apply: true, pull: of, plan, .. } = event else { continue };
        if *of != pull {
            continue;
        }
        let said = |place: &usize| match &trace.events[*place] {
            Event::Said { pull: of, act, .. } if *of == pull => Some(*act),
            _ => None,
        };
        let asked = (0..made(plan).unwrap_or_default())
            .rev()
            .find(|place| matches!(said(place), Some(Act::Open | Act::Push | Act::Plan)));
        let since: Vec<Act> = (asked.map_or(0, |place| place + 1)..applied).filter_map(|place| said(&place)).collect();
        // A push may be recorded before it is made, while the apply begins.
        if !since.contains(&Act::Approve) {
            found
                .push(format!("unapproved_apply: {plan} of {pull} was applied, and since it was asked for: {since:?}"));
        }
    }
}

/// Checks that an approval of a pull request whose plans all succeeded is followed by an apply, unless somebody acts again.
fn forgotten(trace: &Trace, pull: u64, found: &mut Vec<String>) {
    let (mut planned, mut due, mut failed) = (false, false, false);
    for (_, event) in events_of(trace, pull) {
        match event {
            Event::Answered { command, results, .. } if command == "plan" => {
                planned = succeeded(results) && results.len() == trace.dirs[&pull].len();
            }
            Event::Answered { command, results, .. } if command == "apply" => {
                // A failed apply is not repeated at the same head.
                failed |= !succeeded(results);
                (planned, due) = (false, false);
            }
            Event::Answered { command, .. } if ["unlock", "cleanup"].contains(&command.as_str()) => {
                (planned, due) = (false, false);
            }
            Event::Said { act: Act::Approve, accepted, .. } => due |= *accepted && planned && !failed,
            Event::Said { act, .. } => {
                failed &= *act != Act::Push;
                (planned, due) = (false, false);
            }
            _ => {}
        }
    }
    if due {
        found.push(format!("lost_approval: all of {pull} was planned and then approved, and it was not applied"));
    }
}
