//! Context of several results: counts, totals, and commands for all of them.

use super::{Maker, Offer, capitalized};
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Applied, Failure, JobOutcome, Outcome, PlanHold, PlanSummary, Planned};
use crate::domain::reply::Results;
use crate::render::run_address;
use crate::wording;
use minijinja::Value;
use serde::Serialize;

/// Maximum number of held projects that are named.
const LISTED_HELD: usize = 50;
/// Maximum number of named projects that a deferred one waits for.
const LISTED_DEPENDENCIES: usize = 5;
/// Maximum number of commands that apply one project each, in the footer of several plans.
const LISTED_APPLIES: usize = 10;

/// Context of several results.
#[derive(Serialize)]
pub(in crate::render) struct Totals {
    line: String,
    /// Number of results, and below by kind, for an operator's own templates.
    count: usize,
    with_changes: usize,
    without_changes: usize,
    successful: usize,
    failed: usize,
    errored: usize,
    /// Totals of all results, if the line above does not have them.
    sum: String,
    head: Option<Value>,
    base: Option<Value>,
    branch: String,
    /// True if any project has a name, so that the table has a column for it.
    named: bool,
    hide_unchanged: bool,
    /// Commands that apply the planned projects one by one, if not all are planned.
    applies: Vec<String>,
    /// Number of such commands that are not listed.
    more_applies: usize,
    offers: Vec<Offer>,
    locked: bool,
    held: Option<HeldProjectsView>,
    deferred: Vec<DeferredProjectView>,
    /// Number of deferred projects that are not listed.
    more_deferred: usize,
    remarks: Vec<String>,
    /// Number of results without a row in the table, and of those without a section for lack of room.
    more_rows: usize,
    more_sections: usize,
    /// Page of the run, which has all of them.
    run: Option<String>,
}

/// Projects that did not start because an earlier group failed.
#[derive(Serialize)]
struct HeldProjectsView {
    projects: Vec<ProjectId>,
    /// Number of those that are not named.
    more: usize,
    /// Command that runs all remaining projects.
    command: String,
}

/// Project that is planned when others are applied.
#[derive(Serialize)]
struct DeferredProjectView {
    project: ProjectId,
    /// Labels of the first of those others.
    on: Vec<String>,
    /// Number of those that are left out.
    more: usize,
    /// Command that plans it before that.
    command: String,
}

impl Maker<'_> {
    /// Returns the context of the results.
    pub(in crate::render) fn totals(&self, results: &Results) -> Totals {
        let command = self.reply.command_name().unwrap_or(CommandName::Plan);
        let trouble = results.shown().any(|job| !job.outcome.is_success());
        let is_plan = command == CommandName::Plan;
        let bases = results.shown().filter_map(|job| match &job.outcome {
            Outcome::Planned(planned) => planned.base_commit.as_ref(),
            _ => None,
        });
        let to_apply: Vec<&JobOutcome> = results.shown().filter(|job| can_be_applied(job)).collect();
        let offer_apply = is_plan && self.options.offer_apply && !to_apply.is_empty();
        // A plan that waits only for a project of the same command is no trouble.
        let kept = |job: &JobOutcome| match &job.outcome {
            Outcome::Planned(planned) => planned.held.is_some_and(|held| held != PlanHold::Dependency),
            _ => false,
        };
        let one_by_one = offer_apply && (trouble || !self.options.offer_apply_all || results.shown().any(kept));
        let apply =
            |job: &&JobOutcome| wording::command_line(&self.options.executable, "apply", Some(&job.project), &[], &[]);
        let mut offers = Vec::new();
        if is_plan {
            if offer_apply && !one_by_one {
                offers.push(self.offer("to apply all of it", "apply", None, &[]));
            }
            let label = if self.options.locking { "to drop all plans and locks" } else { "to drop all plans" };
            offers.push(self.offer(label, "unlock", None, &[]));
        }
        let (rows, sections) = super::wanted(results, self.options);
        let count = |is: &dyn Fn(&Outcome) -> bool| results.shown().filter(|job| is(&job.outcome)).count();
        Totals {
            count: results.shown().count(),
            with_changes: count(&|outcome| matches!(outcome, Outcome::Planned(planned) if !planned.summary.no_changes)),
            without_changes: count(
                &|outcome| matches!(outcome, Outcome::Planned(planned) if planned.summary.no_changes),
            ),
            successful: count(&Outcome::is_success),
            failed: count(&|outcome| !outcome.is_success() && !matches!(outcome, Outcome::Errored(_))),
            errored: count(&|outcome| matches!(outcome, Outcome::Errored(_))),
            line: self.options.language.title(command).map_or_else(
                || totals_line(command, results),
                |title| format!("{title}: {}", totals_line(command, results)),
            ),
            sum: sum(command, results),
            head: self.reply.head.as_ref().map(|head| self.commit(head)).filter(|_| is_plan),
            base: bases.map(|base| self.commit(base)).next(),
            branch: results.base_branch.clone(),
            named: results.shown().any(|job| job.project.name.is_some()),
            hide_unchanged: self.options.hide_unchanged,
            applies: to_apply.iter().filter(|_| one_by_one).take(LISTED_APPLIES).map(apply).collect(),
            more_applies: if one_by_one { to_apply.len().saturating_sub(LISTED_APPLIES) } else { 0 },
            offers: capitalized(offers),
            locked: is_plan && self.options.locking && results.shown().any(|job| locks(&job.outcome)),
            held: self.held(command, results),
            deferred: self.deferred(results),
            more_deferred: results.held().filter(|job| is_deferred(job)).count().saturating_sub(LISTED_HELD),
            remarks: results.remarks.clone(),
            more_rows: rows.saturating_sub(self.room.rows),
            more_sections: sections.saturating_sub(self.room.sections),
            run: run_address(self.reply, self.options),
        }
    }

    fn deferred(&self, results: &Results) -> Vec<DeferredProjectView> {
        let deferred = results.held().filter_map(|job| match &job.outcome {
            Outcome::Deferred { on } => Some(DeferredProjectView {
                project: job.project.clone(),
                on: on.iter().take(LISTED_DEPENDENCIES).map(ProjectId::label).collect(),
                more: on.len().saturating_sub(LISTED_DEPENDENCIES),
                command: self.offer("", "plan", Some(&job.project), &[]).command,
            }),
            _ => None,
        });
        deferred.take(LISTED_HELD).collect()
    }

    fn held(&self, command: CommandName, results: &Results) -> Option<HeldProjectsView> {
        let held = results.held().filter(|job| !is_deferred(job));
        let mut projects: Vec<ProjectId> = held.map(|job| job.project.clone()).collect();
        let more = projects.len().saturating_sub(LISTED_HELD);
        projects.truncate(LISTED_HELD);
        let command = wording::command_line(&self.options.executable, command.spoken(), None, &[], &[]);
        (!projects.is_empty()).then_some(HeldProjectsView { projects, more, command })
    }
}

fn is_deferred(job: &JobOutcome) -> bool {
    matches!(job.outcome, Outcome::Deferred { .. })
}

/// Returns true if a plan can be applied, and would change something.
fn can_be_applied(job: &JobOutcome) -> bool {
    matches!(&job.outcome, Outcome::Planned(planned) if planned.can_be_applied())
}

/// Returns the totals of several applies.
fn applied_sum(results: &Results) -> Applied {
    let mut sum = Applied::default();
    for job in results.shown() {
        if let Outcome::Applied(applied) = &job.outcome {
            sum.added += applied.added;
            sum.changed += applied.changed;
            sum.destroyed += applied.destroyed;
        }
    }
    sum
}

/// Returns the totals of several results; empty if they are zero or stated already.
fn sum(command: CommandName, results: &Results) -> String {
    let applied = applied_sum(results);
    match command {
        CommandName::Plan => {
            let mut sum = PlanSummary::default();
            for job in results.shown() {
                if let Outcome::Planned(Planned { summary, .. }) = &job.outcome {
                    sum.add += summary.add;
                    sum.change += summary.change;
                    sum.destroy += summary.destroy;
                    sum.import += summary.import;
                    sum.forget += summary.forget;
                }
            }
            if sum == PlanSummary::default() { String::new() } else { wording::plan_counts(&sum) }
        }
        CommandName::Apply if results.shown().any(|job| !job.outcome.is_success()) => {
            let nothing = applied.added + applied.changed + applied.destroyed == 0;
            if nothing { String::new() } else { wording::applied_counts(&applied) }
        }
        _ => String::new(),
    }
}

/// Returns true if this plan has taken the lock of its project.
pub(super) fn locks(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Planned(planned) if !planned.unlocked)
}

/// Returns `Planned 4 projects: 2 with changes, 1 without changes, 1 failed`; `Plan of 2 projects: 2 failed` where none is planned.
fn totals_line(command: CommandName, results: &Results) -> String {
    let count = |matches: &dyn Fn(&Outcome) -> bool| results.shown().filter(|job| matches(&job.outcome)).count();
    let all = results.shown().count();
    let ok = count(&Outcome::is_success);
    let counts = if command == CommandName::Plan {
        let same = count(&|outcome| matches!(outcome, Outcome::Planned(planned) if planned.summary.no_changes));
        let deferred = count(&|outcome| matches!(outcome, Outcome::Deferred { .. }));
        // A project that waits for a lock is not planned; it has not failed.
        let locked = count(&|outcome| matches!(outcome, Outcome::Failed(Failure::Locked(_))));
        vec![
            (ok - same - deferred, "with changes"),
            (same, "without changes"),
            (all - ok - locked, "failed"),
            (locked, "locked by others"),
            (deferred, "waiting for others"),
        ]
    } else if command == CommandName::Apply {
        if ok == all {
            return format!("Applied {all} projects: {}", wording::applied_counts(&applied_sum(results)));
        }
        let refused = count(&|outcome| matches!(outcome, Outcome::Failed(_)));
        vec![(ok, "applied"), (refused, "refused"), (all - ok - refused, "failed")]
    } else if command == CommandName::PolicyCheck {
        let errored = count(&|outcome| matches!(outcome, Outcome::Errored(_)));
        vec![(ok, "passed"), (all - ok - errored, "failed"), (errored, "errored")]
    } else {
        let failed = count(&|outcome| matches!(outcome, Outcome::Failed(_)));
        vec![(ok, "successful"), (failed, "failed"), (all - ok - failed, "errored")]
    };
    let counts: Vec<_> = counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let total = if command == CommandName::Plan && ok == 0 { "Plan of" } else { command.spec().total };
    format!("{total} {all} projects: {}", counts.join(", "))
}
