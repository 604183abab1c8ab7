//! Issues about drifted projects, which `drift.issue` asks for. The results of a scheduled detection decide which of them are opened,
//! updated and closed. The changes are recorded in the commit of the results, and the outbox carries them out.

use super::DriftRequest;
use crate::config::drift::{IssueRule, ProjectPatterns};
use crate::domain::drift::{DriftDetection, DriftKind, ProjectDrift};
use crate::domain::drift_issue::{DriftIssue, drift_digest};
use crate::domain::state::IssueChange;
use crate::domain::{RepoId, RunId};
use crate::execute::context::Context;
use crate::execute::ids::random_bits;
use crate::render::RenderOptions;
use crate::render::drift_issue::{self, IssueEnd};
use crate::reply::comments;
use crate::store::Tx;
use anyhow::Result;
use std::collections::HashSet;

/// Most issues that one detection opens; the next ones go on.
const MAX_NEW: usize = 20;
/// Most issues that one detection updates; the next ones go on.
const MAX_UPDATES: usize = 50;
/// Refusal on a host where the server keeps no issues.
const UNSUPPORTED: &str = "the server keeps no issues on this host";

/// The issues of one detection.
pub(super) struct DetectionIssues {
    repo: RepoId,
    branch: String,
    rule: IssueRule,
    patterns: Option<ProjectPatterns>,
    /// Findings; those with drift have the texts of their plans.
    found: Vec<(ProjectDrift, Option<String>)>,
    /// Absent if the server keeps no issues on the host.
    options: Option<RenderOptions>,
}

impl DetectionIssues {
    /// Returns the issues of a detection; `None` if it keeps none.
    pub(super) fn of(ctx: &Context, request: &DriftRequest, detection: &DriftDetection) -> Option<DetectionIssues> {
        let scheduled = request.scheduled.as_ref()?;
        let has_issues = ctx.hosts.for_repo(&request.repo).is_ok_and(|host| host.profile().issues);
        Some(DetectionIssues {
            repo: request.repo.clone(),
            branch: request.branch.clone(),
            rule: scheduled.issue.clone()?,
            patterns: scheduled.projects.clone(),
            found: detection
                .projects
                .iter()
                .map(|(found, output)| (found.clone(), text_of(found, output.as_deref())))
                .collect(),
            options: has_issues.then(|| comments::at_present(&ctx.hosts, &ctx.rendering, &request.repo)),
        })
    }

    /// Records the changes of the issues, and how many projects have none yet.
    pub(super) fn record(self, tx: &Tx<'_>) -> Result<()> {
        let Some(options) = &self.options else { return self.refuse(tx) };
        let pending = tx.issues_with_effects(&self.repo)?;
        let mut known = tx.drift_issues_in(&self.repo)?;
        known.retain(|issue| !issue.closing || !pending.contains(&issue.id));
        let mut changes = pending.len();
        for issue in &mut known {
            if std::mem::take(&mut issue.closing) {
                // Its closing was given up.
                tx.put_drift_issue(issue)?;
            }
            if let Some(end) = self.end_of(issue) {
                changes += 1;
                let comment = drift_issue::closing(issue, end, options);
                let closed = DriftIssue { closing: true, ..issue.clone() };
                tx.change_drift_issue(&closed, IssueChange::Close { comment })?;
            }
        }
        let (mut opened, mut updated, mut waiting) = (0, 0, 0);
        for (found, output) in self.found.iter().filter(|(found, _)| found.finding.has_drift()) {
            let Some(summary) = found.finding.summary() else { continue };
            let output = output.as_deref().unwrap_or_default();
            let shows = drift_digest(summary, output);
            match self.open_one(tx, &known, &pending, found)? {
                Some(issue) if issue.shows == shows || updated == MAX_UPDATES => {}
                // The host takes no changes now, or has not taken the last one yet: the next detection tells what there is then.
                Some(issue) if pending.contains(&issue.id) => {}
                Some(issue) => {
                    updated += 1;
                    let body = drift_issue::body(found, output, issue.since, options);
                    let issue = DriftIssue { shows, ..issue.clone() };
                    tx.change_drift_issue(&issue, IssueChange::Update { body })?;
                }
                None if opened == MAX_NEW => waiting += 1,
                None => {
                    opened += 1;
                    let issue = DriftIssue::new(RunId::from_bits(random_bits()), found, shows);
                    let body = drift_issue::body(found, output, issue.since, options);
                    let (title, labels) = (drift_issue::title(&found.branch, &found.project), self.rule.labels.clone());
                    tx.change_drift_issue(&issue, IssueChange::Open { title, body, labels })?;
                }
            }
        }
        if waiting > 0 {
            tracing::warn!(repository = %self.repo, waiting, "more than {MAX_NEW} projects need an issue about their drift");
        }
        changes += opened + updated + waiting;
        tx.change_missing_issues(&self.repo, |missing| {
            missing.waiting = waiting;
            missing.refused.take_if(|_| changes == 0);
        })
    }

    fn refuse(&self, tx: &Tx<'_>) -> Result<()> {
        tx.change_missing_issues(&self.repo, |missing| {
            if missing.refused.replace(UNSUPPORTED.to_owned()).is_none() {
                tracing::warn!(repository = %self.repo, "`drift.issue` in repos.yaml has no effect: {UNSUPPORTED}");
            }
        })
    }

    /// Returns the reason for which an issue is closed; `None` if it stays as it is.
    fn end_of(&self, issue: &DriftIssue) -> Option<IssueEnd<'_>> {
        if issue.branch != self.branch {
            return Some(IssueEnd::OtherBranch);
        }
        let is_included = self.patterns.as_ref().is_none_or(|patterns| patterns.matches(&issue.project));
        match self.found.iter().find(|(found, _)| found.project == issue.project) {
            Some((found, _)) if found.finding.kind() == DriftKind::Clean => Some(IssueEnd::NoDrift(found)),
            Some(_) => None,
            None if is_included => Some(IssueEnd::ProjectGone),
            None => Some(IssueEnd::NotIncluded),
        }
    }

    /// Returns the issue about a drifted project. Drops the record of one that the host has refused to open.
    fn open_one<'a>(
        &self,
        tx: &Tx<'_>,
        known: &'a [DriftIssue],
        pending: &HashSet<RunId>,
        found: &ProjectDrift,
    ) -> Result<Option<&'a DriftIssue>> {
        let Some(issue) = known.iter().find(|issue| issue.is_about(&self.branch, &found.project)) else {
            return Ok(None);
        };
        if issue.place.is_none() && !pending.contains(&issue.id) {
            tx.forget_drift_issue(&issue.id)?;
            return Ok(None);
        }
        Ok(Some(issue))
    }
}

/// Returns the text of a plan with drift.
fn text_of(found: &ProjectDrift, output: Option<&str>) -> Option<String> {
    output.filter(|_| found.finding.has_drift()).map(str::to_owned)
}

/// Records the closing of an issue whose repository has no schedule with issues any more.
pub(crate) fn switch_off(tx: &Tx<'_>, issue: &DriftIssue, options: &RenderOptions) -> Result<()> {
    let comment = drift_issue::closing(issue, IssueEnd::SwitchedOff, options);
    tx.change_drift_issue(&DriftIssue { closing: true, ..issue.clone() }, IssueChange::Close { comment })
}
