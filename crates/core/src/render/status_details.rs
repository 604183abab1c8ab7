//! Details of commit statuses, for hosts with checks: facts of an outcome in Markdown, remarks at lines of code, and buttons. All facts are
//! those that comments tell; the plan itself is in the comment and on the page that the status links to.

mod annotations;
#[cfg(test)]
mod tests;

use super::markdown;
use super::statuses::Statuses;
use super::view::{error_excerpt, headline};
use crate::domain::command::CommandName;
use crate::domain::guards::TrippedGuard;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Planned, PolicyReport, ResourceAction};
use crate::domain::state::{CommitStatus, ProjectState, ProjectStatus, StatusDetails, StatusState};
use crate::wording;

/// Longest summary, in bytes: with the link at its end below GitHub's limit of 65,535. Its documentation counts characters
/// (docs.github.com/rest/checks/runs), and its refusal counts bytes.
const MAX_SUMMARY: usize = 60_000;
/// Most changed resources, and most projects, that a summary lists.
const MAX_ROWS: usize = 200;
/// Most bytes of the row that counts those left out, and of the end of a list.
const MAX_REST: usize = 40;
/// Longest address of a resource, in characters.
const MAX_ADDRESS: usize = 200;
/// Longest quoted output, in characters.
const MAX_OUTPUT: usize = 10_000;

/// Collects blocks of Markdown up to the limit. A block is added as a whole or not at all, so that no fence stays open.
#[derive(Default)]
struct SummaryWriter {
    text: String,
    is_cut: bool,
}

impl SummaryWriter {
    fn block(&mut self, block: &str) {
        self.is_cut |= self.text.len() + block.len() + 2 > MAX_SUMMARY;
        if !self.is_cut && !block.is_empty() {
            self.text += block;
            self.text += "\n\n";
        }
    }

    /// Adds a list of at most [`MAX_ROWS`] rows, as far as they fit.
    fn list(&mut self, rows: &[String]) {
        let mut left = MAX_SUMMARY.saturating_sub(self.text.len() + MAX_REST);
        let fits = |row: &&String| {
            let fits = row.len() < left;
            left = left.saturating_sub(row.len() + 1);
            fits
        };
        let mut shown: Vec<String> = rows.iter().take(MAX_ROWS).take_while(fits).cloned().collect();
        let more = rows.len() - shown.len();
        let is_cut = shown.len() < rows.len().min(MAX_ROWS);
        if more > 0 {
            shown.push(format!("- … and {more} more"));
        }
        self.block(&shown.join("\n"));
        self.is_cut |= is_cut;
    }

    /// Adds output in a fence; the end of a long one is kept.
    fn output(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.block(&markdown::fence(&super::view::cut(&markdown::clean(text), MAX_OUTPUT, None), ""));
        }
    }

    /// Returns the summary. One that was cut ends with a link to the page of the status.
    fn end(self, url: &str) -> String {
        match self.is_cut {
            false => self.text.trim_end().to_owned(),
            true => format!("{}{}", self.text, markdown::link("The rest is on the server's page", url)),
        }
    }
}

impl Statuses {
    /// Adds details about the outcome of a project, if a host of the server shows them.
    pub(super) fn with_outcome(&self, status: CommitStatus, outcome: &JobOutcome) -> CommitStatus {
        if !self.has_details {
            return status;
        }
        let mut summary = SummaryWriter::default();
        let output = match &outcome.outcome {
            Outcome::Planned(planned) => {
                planned_blocks(&mut summary, planned);
                planned.output.as_str()
            }
            Outcome::Errored(fault) => {
                self.error_blocks(&mut summary, outcome, fault);
                fault.output.as_str()
            }
            Outcome::Failed(failure) => {
                self.refusal_blocks(&mut summary, outcome, failure);
                ""
            }
            Outcome::PoliciesChecked(report) => {
                policy_blocks(&mut summary, report);
                ""
            }
            _ => {
                summary.block(&markdown::prose(&self.one_line(outcome)));
                ""
            }
        };
        let details = StatusDetails {
            effect: 0,
            summary: summary.end(&status.url),
            annotations: annotations::read(output, &outcome.project.dir),
            buttons: buttons_of(outcome),
        };
        CommitStatus { details: Some(Box::new(details)), ..status }
    }

    /// Adds a list of the projects of a pull request, if a host of the server shows it.
    pub(super) fn with_projects(&self, status: CommitStatus, projects: &[ProjectStatus]) -> CommitStatus {
        if !self.has_details {
            return status;
        }
        let mut summary = SummaryWriter::default();
        let row = |project: &ProjectStatus| {
            let counts = project.summary.as_ref().filter(|counts| wording::has_totals(counts));
            let counts = counts.map(|counts| format!(": {}", wording::plan_counts(counts))).unwrap_or_default();
            let (label, state) = (markdown::code(&project.project.label()), project.state.title());
            format!("- {label} – {state}{counts}")
        };
        summary.list(&projects.iter().map(row).collect::<Vec<_>>());
        let may_apply = projects.iter().any(|project| project.state == ProjectState::Planned);
        let buttons = if may_apply { vec![CommandName::Plan, CommandName::Apply] } else { vec![CommandName::Plan] };
        let details = StatusDetails { summary: summary.end(&status.url), buttons, ..StatusDetails::default() };
        CommitStatus { details: Some(Box::new(details)), ..status }
    }

    /// Adds a whole reason and the button that plans again, if a host of the server shows them.
    pub(super) fn with_reason(&self, status: CommitStatus, because: &str) -> CommitStatus {
        if !self.has_details || status.state == StatusState::Success {
            return status;
        }
        let mut summary = SummaryWriter::default();
        summary.block(&markdown::prose(because));
        let buttons = vec![CommandName::Plan];
        let details = StatusDetails { summary: summary.end(&status.url), buttons, ..StatusDetails::default() };
        CommitStatus { details: Some(Box::new(details)), ..status }
    }

    fn error_blocks(&self, summary: &mut SummaryWriter, outcome: &JobOutcome, fault: &Fault) {
        if let Some(headline) = headline(&fault.output) {
            summary.block(&format!("**{}**", markdown::prose(&headline)));
        }
        summary.block(&markdown::prose(&self.one_line(outcome)));
        summary.output(&error_excerpt(&fault.output));
    }

    fn refusal_blocks(&self, summary: &mut SummaryWriter, outcome: &JobOutcome, failure: &Failure) {
        summary.block(&markdown::prose(&self.one_line(outcome)));
        if let Failure::Requirements(checks) = failure {
            let rows = checks.iter().map(|check| {
                let mark = if check.met { "✓" } else { "✗" };
                format!("- {mark} {}: {}", markdown::code(&check.name), markdown::prose(&check.detail))
            });
            summary.list(&rows.collect::<Vec<_>>());
        }
        summary.block("The server's comment on the pull request says what to do.");
    }
}

fn planned_blocks(summary: &mut SummaryWriter, planned: &Planned) {
    let guard = |guard: &TrippedGuard| {
        let passed = guard.passed.as_ref().map(|pass| format!(", overridden by {}", markdown::prose(pass.by.shown())));
        let (name, findings) = (markdown::code(&guard.name), markdown::prose(&guard.describe()));
        format!("- ⚠ guard {name} tripped{}: {findings}", passed.unwrap_or_default())
    };
    summary.list(&planned.guards.iter().map(guard).collect::<Vec<_>>());
    if wording::has_totals(&planned.summary) {
        summary.block(&format!("**{}**", wording::plan_counts(&planned.summary)));
    }
    if let Some(part) = &planned.part {
        summary.block(&format!("Only a part of the project: {}", markdown::code(part)));
    }
    let mut changes: Vec<_> =
        planned.resources.iter().filter(|resource| resource.action != ResourceAction::Read).collect();
    changes.sort_by_key(|resource| resource.action);
    let row = |(action, address): (ResourceAction, &str)| {
        let address = markdown::code(&markdown::shorten(address, MAX_ADDRESS));
        format!("- {} {address}", word_of(action))
    };
    let rows = changes.iter().map(|change| row((change.action, &change.address)));
    summary.list(&rows.collect::<Vec<_>>());
}

fn policy_blocks(summary: &mut SummaryWriter, report: &PolicyReport) {
    let row = |set: &crate::domain::outcome::PolicySetReport| {
        let (mark, name) = (if set.is_met() { "✓" } else { "✗" }, markdown::code(&set.name));
        match set.passed {
            true => format!("- {mark} {name} passed"),
            false => format!("- {mark} {name} failed, {} of {} approvals", set.approvals, set.required),
        }
    };
    summary.list(&report.sets.iter().map(row).collect::<Vec<_>>());
    report.sets.iter().filter(|set| !set.is_met()).for_each(|set| summary.output(&set.output));
}

fn word_of(action: ResourceAction) -> &'static str {
    match action {
        ResourceAction::Destroy => "destroy",
        ResourceAction::Replace => "replace",
        ResourceAction::Update => "update",
        ResourceAction::Create => "create",
        ResourceAction::Import => "import",
        ResourceAction::Move => "move",
        ResourceAction::Forget => "forget",
        ResourceAction::Read => "read",
    }
}

/// Returns the commands that may follow an outcome. A refused apply keeps its plan, a failed one has used it up.
fn buttons_of(outcome: &JobOutcome) -> Vec<CommandName> {
    match (&outcome.outcome, outcome.command) {
        (Outcome::Planned(planned), _) if planned.can_be_applied() => vec![CommandName::Plan, CommandName::Apply],
        (Outcome::Failed(_), CommandName::Apply) => vec![CommandName::Plan, CommandName::Apply],
        (Outcome::Applied(_), _) => Vec::new(),
        (_, CommandName::Plan | CommandName::Apply | CommandName::PolicyCheck) => vec![CommandName::Plan],
        _ => Vec::new(),
    }
}
