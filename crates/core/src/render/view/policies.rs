//! Policy sets of a plan: each with its result, its output, the people who may approve, and the next commands.

use super::{Maker, Offer, capitalized};
use crate::domain::ProjectId;
use crate::domain::outcome::{PolicyReport, PolicySetReport};
use minijinja::Value;
use serde::Serialize;

/// All policy sets of a project.
#[derive(Serialize)]
pub(super) struct PoliciesView {
    sets: Vec<PolicySetView>,
    before: Option<Value>,
    after: Option<Value>,
    /// Number of sets that did not pass. An apply is refused unless it is 0.
    unmet: usize,
    /// True if the reply is to `approve_policies`.
    approving: bool,
}

/// One policy set.
#[derive(Serialize)]
struct PolicySetView {
    name: String,
    state: &'static str,
    /// `1 of 2 approvals`.
    approvals: String,
    /// `1 previously approved item`.
    known: String,
    /// Owners who may approve failed policies.
    owners: String,
    /// True if nobody may approve.
    ownerless: bool,
    note: String,
    output: Option<Value>,
}

impl PoliciesView {
    /// Makes it the view of a reply to `approve_policies`.
    pub(super) fn approving(mut self) -> PoliciesView {
        // Known items count as approvals by now.
        self.sets.iter_mut().for_each(|set| set.known.clear());
        PoliciesView { approving: true, ..self }
    }
}

/// Returns `1 approval`, `2 approvals`.
pub(in crate::render) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Maker<'_> {
    pub(super) fn policies(&self, report: &PolicyReport, log: Option<&str>) -> PoliciesView {
        let text = |text: &str, title| self.block(text, "", title, log);
        let set = |set: &PolicySetReport| {
            let waits = !set.is_met();
            PolicySetView {
                name: set.name.clone(),
                state: match (set.passed, set.is_met()) {
                    (true, _) => "✓ passed",
                    (false, true) => "✓ approved",
                    (false, false) => "✗ did not pass",
                },
                approvals: match set.passed {
                    true => String::new(),
                    false => {
                        let approvals = if set.required == 1 { "approval" } else { "approvals" };
                        format!("{} of {} {approvals}", set.approvals, set.required)
                    }
                },
                known: match set.known_items {
                    0 => String::new(),
                    known => counted(known, "previously approved item"),
                },
                owners: if waits { set.owners.clone() } else { String::new() },
                ownerless: waits && set.owners.is_empty(),
                note: set.note.clone(),
                output: text(&set.output, "Output"),
            }
        };
        PoliciesView {
            sets: report.sets.iter().map(set).collect(),
            before: text(&report.before, "Before"),
            after: text(&report.after, "After"),
            unmet: report.sets.iter().filter(|set| !set.is_met()).count(),
            approving: false,
        }
    }

    /// Returns the next commands.
    pub(super) fn after_policies(&self, report: &PolicyReport, project: &ProjectId) -> Vec<Offer> {
        let mut offers = Vec::new();
        if report.is_met() {
            if self.options.offer_apply {
                offers.push(self.offer("to apply", "apply", Some(project), &[]));
            }
        } else {
            if report.sets.iter().any(|set| !set.is_met() && !set.owners.is_empty()) {
                offers.push(self.offer("to approve", "approve_policies", Some(project), &[]));
            }
            offers.push(self.offer("to plan again after the fix", "plan", Some(project), &[]));
        }
        capitalized(offers)
    }
}

/// Returns `1 of 2 policy sets did not pass`.
pub(super) fn policy_counts(report: &PolicyReport) -> String {
    let unmet = report.sets.iter().filter(|set| !set.is_met()).count();
    let approved = report.sets.iter().filter(|set| !set.passed && set.is_met()).count();
    let all = counted(report.sets.len(), "policy set");
    match (unmet, approved) {
        (0, 0) => format!("{all} passed"),
        (0, approved) => format!("{all}, {approved} by approval"),
        (unmet, _) => format!("{unmet} of {all} did not pass"),
    }
}
