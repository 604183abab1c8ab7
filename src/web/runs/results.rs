//! Results of a run, as its record keeps them in the form of the comment marker.

use super::plan_address;
use crate::domain::outcome::PlanSummary;
use crate::domain::state::{Job, Run};
use crate::domain::{JobId, ProjectId};
use crate::web::locks::target_flags;
use crate::web::pages::{ProjectView, StatusMark, Total, kind_words, shown, totals};
use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Maximum number of results of a run that a list of runs reads.
const MAX_LABELLED: usize = 500;

/// A result in the form of docs/comment-marker.md.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct RunOutcome {
    cmd: String,
    dir: Option<String>,
    workspace: String,
    project: Option<String>,
    outcome: String,
    reason: Option<String>,
    owner: Option<u64>,
    next: Option<String>,
    place: Option<usize>,
    plan: Option<PlanCounts>,
    no_changes: bool,
    apply: Option<ApplyCounts>,
    in_part: bool,
    pub(in crate::web) policy_sets: Vec<MarkedPolicySet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlanCounts {
    add: u64,
    change: u64,
    destroy: u64,
    import: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApplyCounts {
    added: u64,
    changed: u64,
    destroyed: u64,
}

/// A policy set with its approvals.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::web) struct MarkedPolicySet {
    pub(in crate::web) name: String,
    passed: bool,
    approvals: u32,
    required: u32,
}

impl MarkedPolicySet {
    /// Returns a set that has not passed, and of whose approvals nothing is known.
    pub(in crate::web) fn of_unknown_approvals(name: &str) -> MarkedPolicySet {
        MarkedPolicySet { name: name.to_owned(), ..MarkedPolicySet::default() }
    }

    /// Returns true if it has passed or is approved.
    pub(in crate::web) fn is_met(&self) -> bool {
        self.passed || self.approvals >= self.required
    }
}

impl RunOutcome {
    /// Parses the first results of a run.
    pub(in crate::web) fn all(run: &Run, limit: usize) -> anyhow::Result<Vec<RunOutcome>> {
        let parse = |row: &String| {
            serde_json::from_str(row).with_context(|| format!("cannot read a result of the run {}", run.id))
        };
        run.results.iter().take(limit).map(parse).collect()
    }

    /// Returns its project; none if the command failed before any.
    pub(in crate::web) fn project(&self) -> Option<ProjectId> {
        let dir = self.dir.clone()?;
        Some(ProjectId { dir, workspace: self.workspace.clone(), name: self.project.clone() })
    }

    /// Returns true if this job of its run has this result.
    pub(super) fn is_of(&self, job: &Job) -> bool {
        job.kind == self.cmd && job.project.is_some() && job.project == self.project()
    }

    fn mark(&self) -> StatusMark {
        let reason = self.reason.as_deref().unwrap_or_default();
        match self.outcome.as_str() {
            "success" => StatusMark::new("succeeded", "good"),
            "error" => StatusMark::new("failed", "bad"),
            _ if matches!(reason, "locked" | "dependency" | "cancelled") => StatusMark::new("not done", "warn"),
            _ => StatusMark::new("refused", "bad"),
        }
    }

    /// Returns the totals of a plan, or of an apply.
    fn totals(&self) -> Vec<Total> {
        let summary = match (&self.plan, &self.apply) {
            (Some(plan), _) => PlanSummary {
                add: plan.add,
                change: plan.change,
                destroy: plan.destroy,
                import: plan.import,
                no_changes: self.no_changes,
                ..PlanSummary::default()
            },
            (None, Some(apply)) => PlanSummary {
                add: apply.added,
                change: apply.changed,
                destroy: apply.destroyed,
                ..PlanSummary::default()
            },
            (None, None) => return Vec::new(),
        };
        let done = |long: String| {
            long.replace("to add", "added").replace("to change", "changed").replace("to destroy", "destroyed")
        };
        let word = |total: Total| if self.apply.is_some() { Total { long: done(total.long), ..total } } else { total };
        totals(&summary).into_iter().map(word).collect()
    }

    /// Returns the reason in words.
    fn because(&self) -> Option<&str> {
        match self.reason.as_deref()? {
            // Only a drift run has no number.
            "locked" if self.owner.is_none() => Some("a drift run has the project"),
            reason => Some(reason_words(reason)),
        }
    }

    /// Returns the command to type next on its pull request, if it has failed.
    fn next(&self, executable: &str) -> Option<String> {
        if self.next.is_some() {
            return self.next.clone();
        }
        let flags = target_flags(&self.project()?);
        Some(match self.reason.as_deref()? {
            "stale_plan" | "no_plan" | "plan" | "init" | "apply" => format!("{executable} plan {flags}"),
            "requirement" => format!("{executable} apply {flags}"),
            "policy" => format!("{executable} approve_policies"),
            "frozen" => format!("{executable} unfreeze"),
            "timeout" | "cancelled" | "interrupted" if self.cmd == "plan" => format!("{executable} plan {flags}"),
            "interrupted" | "timeout" if self.cmd == "apply" => format!("{executable} plan {flags}"),
            _ => return None,
        })
    }
}

/// Returns a reason of the comment marker in words.
fn reason_words(reason: &str) -> &str {
    match reason {
        "locked" => "another pull request has the project",
        "frozen" => "applies of the repository are frozen",
        "requirement" => "a requirement is not met; apply again when it is",
        "dependency" => "another project comes first",
        "policy" => "a policy set has not passed and is not approved",
        "stale_plan" => "the plan does not match any more",
        "no_plan" => "there is no plan to apply",
        "not_planned" => "projects that the pull request changes have no plan",
        "not_permitted" => "the person may not do that",
        "config" => "the configuration has an error",
        "init" => "init failed",
        "plan" => "the plan failed",
        "apply" => "the apply failed",
        "timeout" => "it ran for too long",
        "cancelled" => "it was cancelled",
        "interrupted" => "it was interrupted",
        "internal" => "the server could not do it",
        other => other,
    }
}

/// A result on the page of a run.
#[derive(Serialize)]
pub(super) struct ResultRow {
    command: String,
    project: Option<ProjectView>,
    mark: StatusMark,
    totals: Vec<Total>,
    in_part: bool,
    because: Option<String>,
    /// Number of the pull request that has the project.
    owner: Option<u64>,
    /// Place of this pull request in the line for the project.
    place: Option<usize>,
    next: Option<String>,
    policy_sets: Vec<MarkedPolicySet>,
    /// The job with its log.
    job: Option<JobId>,
    /// Page of what its plan changes, relative to `/`.
    plan: Option<String>,
}

impl ResultRow {
    pub(super) fn new(outcome: &RunOutcome, run: &Run, job: Option<JobId>, executable: &str) -> ResultRow {
        let project = outcome.project();
        let has_plan = job.is_some() && outcome.plan.is_some();
        ResultRow {
            command: kind_words(&outcome.cmd),
            plan: project.as_ref().filter(|_| has_plan).map(|project| plan_address(&run.id, project)),
            project: project.map(|project| ProjectView::of(&run.pull.repo, &project)),
            mark: outcome.mark(),
            totals: outcome.totals(),
            in_part: outcome.in_part,
            because: outcome.because().map(str::to_owned),
            owner: outcome.owner,
            place: outcome.place,
            next: outcome.next(executable).as_deref().map(shown),
            policy_sets: outcome.policy_sets.clone(),
            job,
        }
    }
}

/// Returns the names of the first projects in a run's results, and the number of further ones.
pub(super) fn labels(run: &Run, limit: usize) -> (Vec<String>, usize) {
    let mut labels: Vec<String> = Vec::new();
    for row in run.results.iter().take(MAX_LABELLED) {
        let outcome: RunOutcome = serde_json::from_str(row).unwrap_or_default();
        if let Some(label) = outcome.project().map(|project| shown(&project.label()))
            && !labels.contains(&label)
        {
            labels.push(label);
        }
    }
    let more = labels.len().saturating_sub(limit);
    labels.truncate(limit);
    (labels, more)
}
