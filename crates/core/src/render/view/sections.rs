//! Order and places of results: which have a heading, which are folded, and which say the same as one before.

use super::Maker;
use crate::domain::ProjectId;
use crate::domain::outcome::{Failure, JobOutcome, Outcome, Planned, Reason};
use crate::domain::reply::{CommentStyle, Results};
use crate::render::RenderOptions;
use crate::wording;
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of results that are told under headings. More are folded, but for the first that failed.
const HEADINGS: usize = 4;

/// Place of a result among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResultSection {
    Heading,
    Fold,
    Absent,
}

/// A result and its place.
pub(super) struct Arranged<'a> {
    pub(super) job: &'a JobOutcome,
    pub(super) section: ResultSection,
    /// The project of a result before it that says the same.
    pub(super) same: Option<&'a ProjectId>,
}

/// The text of a result, without the name of its project. Results with the same text are shown once.
#[derive(PartialEq, Eq, Hash)]
enum Essence<'a> {
    Plan(String, &'a str),
    Refusal(String),
    Error(Reason, &'a str, &'a str),
}

impl Maker<'_> {
    /// Returns visible results in reading order, each with its place.
    pub(super) fn arranged<'a>(&self, results: &'a Results) -> Vec<Arranged<'a>> {
        let mut jobs: Vec<&JobOutcome> = results.shown().collect();
        jobs.sort_by_key(|job| rank(&job.outcome));
        let is_short = self.options.style == CommentStyle::Short && jobs.len() > 1;
        let open = jobs.iter().filter(|job| rank(&job.outcome) < UNCHANGED).count();
        // A host that shows no HTML shows the title of a fold as a bold line, which is no heading.
        let has_folds = self.options.html_comments;
        let has_many = has_folds && is_short && open > HEADINGS && !self.options.disable_folding;
        let folds = has_many && self.options.templates.know_sections();
        let refers = is_short && self.options.templates.know_references();
        let mut told: HashMap<Essence<'a>, &'a ProjectId> = HashMap::new();
        let arranged = jobs.into_iter().enumerate().map(|(at, job)| {
            let essence = if refers { Essence::of(job) } else { None };
            let same = essence.and_then(|essence| match told.entry(essence) {
                Entry::Occupied(first) => Some(*first.get()),
                Entry::Vacant(first) => {
                    first.insert(&job.project);
                    None
                }
            });
            let is_first_trouble = rank(&job.outcome) == TROUBLE && at < HEADINGS && same.is_none();
            let section = match rank(&job.outcome) {
                UNCHANGED if self.options.hide_unchanged => ResultSection::Absent,
                _ if at >= self.room.sections => ResultSection::Absent,
                UNCHANGED if has_folds => ResultSection::Fold,
                _ if folds && !is_first_trouble => ResultSection::Fold,
                _ => ResultSection::Heading,
            };
            Arranged { job, section, same }
        });
        arranged.collect()
    }
}

/// Returns the number of results with a row in the table, and of those that have a section besides if there is room.
pub(in crate::render) fn wanted(results: &Results, options: &RenderOptions) -> (usize, usize) {
    let is_hidden = |job: &&JobOutcome| options.hide_unchanged && rank(&job.outcome) == UNCHANGED;
    let rows = results.shown().count();
    (rows, rows - results.shown().filter(is_hidden).count())
}

impl Arranged<'_> {
    /// Returns true if its outputs are shown.
    pub(super) fn is_told(&self) -> bool {
        self.section != ResultSection::Absent && self.same.is_none()
    }
}

impl<'a> Essence<'a> {
    /// Returns the essence of a result, if another may be told by a reference to it.
    fn of(job: &'a JobOutcome) -> Option<Essence<'a>> {
        match &job.outcome {
            // The text of a plan tells all of it only if Terraform made it, and nothing of it is left out.
            Outcome::Planned(planned) => {
                let Planned { summary, part, saved, output, .. } = planned;
                let tells_all = *saved && wording::has_totals(summary) && !output.contains(" left out");
                let facts = serde_json::to_string(&(summary, part)).ok().filter(|_| tells_all && !summary.no_changes);
                facts.map(|facts| Essence::Plan(facts, output))
            }
            // Projects are locked one by one, at slightly different times.
            Outcome::Failed(Failure::Locked(holder)) => {
                Some(Essence::Refusal(format!("locked {} {:?}", holder.pull, holder.place)))
            }
            Outcome::Failed(Failure::Owned(owner)) => {
                let project = Some(&owner.project).filter(|project| **project != job.project);
                let (pull, state) = (&owner.holder.pull, owner.state.as_str());
                Some(Essence::Refusal(format!("owned {pull} {state} {project:?} {:?}", owner.place)))
            }
            Outcome::Failed(failure) => serde_json::to_string(failure).ok().map(Essence::Refusal),
            Outcome::Errored(fault) => Some(Essence::Error(fault.reason, &fault.message, &fault.output)),
            _ => None,
        }
    }
}

const TROUBLE: u8 = 0;
const UNCHANGED: u8 = 2;

/// Returns the place of a result in the reading order.
fn rank(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Failed(_) | Outcome::Errored(_) => TROUBLE,
        Outcome::PoliciesChecked(report) | Outcome::PoliciesApproved(report) if !report.is_met() => TROUBLE,
        Outcome::Planned(planned) if is_unchanged(planned) => UNCHANGED,
        _ => 1,
    }
}

/// Returns true if a plan of a whole project changes nothing.
pub(super) fn is_unchanged(planned: &Planned) -> bool {
    planned.summary.no_changes && planned.part.is_none()
}
