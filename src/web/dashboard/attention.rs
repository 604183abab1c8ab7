//! The list "Needs attention": merged changes that are not applied, then failures, then policies that wait for approval, then locks that
//! keep others waiting.

use super::rows::{LockRow, OwnerRow, RowFacts, WaitingView, status_view};
use crate::comment::command_for;
use crate::domain::PullRequest;
use crate::domain::command::CommandName;
use crate::domain::ownership::ProjectOwner;
use crate::domain::policies::PolicyCheckRecord;
use crate::domain::state::{ProjectLock, ProjectStatus};
use crate::domain::state_address::StateAddress;
use crate::store::NeedsAttention;
use crate::web::pages::{ProjectView, PullView, StatusMark, StatusView, When, shown};
use serde::Serialize;

/// Maximum number of rows of each kind. One more is loaded, to know if there are more.
const MAX_OF_KIND: usize = 5;

/// Maximum number of named policy sets of a project.
const MAX_SETS: usize = 5;

/// Number of rows of each kind to load.
pub(super) const LOADED: usize = MAX_OF_KIND + 1;

/// The list.
#[derive(Serialize)]
pub(super) struct AttentionList {
    rows: Vec<AttentionRow>,
    /// True if there are more of a kind.
    more: bool,
}

/// Something that waits for a person.
#[derive(Serialize)]
struct AttentionRow {
    /// Absent if the plan of the whole pull request failed.
    project: Option<ProjectView>,
    pull: PullView,
    mark: StatusMark,
    /// Link of the mark, relative to `/`: a job or a lock.
    link: Option<String>,
    /// Reason of a failure.
    detail: String,
    /// Command on the pull request that is next; absent if a push is.
    next: Option<String>,
    since: Option<When>,
    waiting: WaitingView,
}

impl AttentionList {
    pub(super) fn new(attention: &NeedsAttention, executable: &str, known: &RowFacts<'_>) -> AttentionList {
        let NeedsAttention { owed, failed, faults, unapproved, contested } = attention;
        let mut rows: Vec<AttentionRow> =
            owed.iter().take(MAX_OF_KIND).map(|owner| AttentionRow::of_owner(owner, executable, known)).collect();
        let of_failed =
            |(pull, status): &(PullRequest, ProjectStatus)| AttentionRow::of_failure(pull, status, executable, known);
        rows.extend(failed.iter().take(MAX_OF_KIND).map(of_failed));
        rows.extend(faults.iter().take(MAX_OF_KIND).map(|(pull, fault)| AttentionRow::of_fault(pull, fault)));
        let of_check =
            |(pull, check): &(PullRequest, PolicyCheckRecord)| AttentionRow::of_check(pull, check, executable, known);
        rows.extend(unapproved.iter().take(MAX_OF_KIND).map(of_check));
        let is_listed = |lock: &ProjectLock| {
            failed.iter().any(|(pull, status)| pull.id == lock.holder.pull && status.project == lock.project)
        };
        let contested_only = contested.iter().filter(|lock| !is_listed(lock)).take(MAX_OF_KIND);
        rows.extend(contested_only.map(|lock| AttentionRow::of_lock(lock, executable, known)));
        let loaded = [owed.len(), failed.len(), faults.len(), unapproved.len(), contested.len()];
        let more = loaded.iter().any(|loaded| *loaded > MAX_OF_KIND);
        AttentionList { rows, more }
    }
}

impl AttentionRow {
    fn of_owner(owner: &ProjectOwner, executable: &str, known: &RowFacts<'_>) -> AttentionRow {
        let OwnerRow { project, pull, since, mark, reason, way_out, waiting, .. } =
            OwnerRow::new(owner, executable, known);
        let (detail, since) = (reason, Some(since));
        AttentionRow { project: Some(project), pull, mark, link: None, detail, next: Some(way_out), since, waiting }
    }

    fn of_failure(pull: &PullRequest, status: &ProjectStatus, executable: &str, known: &RowFacts<'_>) -> AttentionRow {
        let StatusView { project, mark, link, .. } = status_view(status, &pull.id, known);
        AttentionRow {
            project: Some(project),
            pull: PullView::find(&pull.id, Some(pull)),
            mark,
            link,
            detail: String::new(),
            // A failed apply has used up its plan.
            next: Some(command_for(executable, CommandName::Plan, &status.project, &[])),
            since: Some(When::new(status.updated, known.now)),
            waiting: WaitingView::new(known.waiters, &pull.id, &status.project, &StateAddress::default()),
        }
    }

    fn of_fault(pull: &PullRequest, fault: &str) -> AttentionRow {
        AttentionRow {
            project: None,
            pull: PullView::find(&pull.id, Some(pull)),
            mark: StatusMark::new("plan failed", "bad"),
            link: None,
            detail: shown(fault),
            next: None,
            since: None,
            waiting: WaitingView::none(),
        }
    }

    fn of_check(pull: &PullRequest, check: &PolicyCheckRecord, executable: &str, known: &RowFacts<'_>) -> AttentionRow {
        let sets = check.sets.iter().filter(|set| set.lacks_approvals()).take(MAX_SETS);
        let names: Vec<String> = sets.map(|set| shown(&set.name)).collect();
        AttentionRow {
            project: Some(ProjectView::of(&pull.id.repo, &check.project)),
            pull: PullView::find(&pull.id, Some(pull)),
            mark: StatusMark::new("waits for approval", "warn"),
            link: None,
            detail: names.join(", "),
            next: Some(command_for(executable, CommandName::ApprovePolicies, &check.project, &[])),
            since: Some(When::new(check.checked, known.now)),
            waiting: WaitingView::new(known.waiters, &pull.id, &check.project, &StateAddress::default()),
        }
    }

    fn of_lock(lock: &ProjectLock, executable: &str, known: &RowFacts<'_>) -> AttentionRow {
        let LockRow { address, project, pull, since, waiting, .. } = LockRow::new(lock, None, known);
        AttentionRow {
            project: Some(project),
            pull,
            mark: StatusMark::new("others wait", "warn"),
            link: Some(address),
            detail: String::new(),
            next: Some(command_for(executable, CommandName::Unlock, &lock.project, &[])),
            since: Some(since),
            waiting,
        }
    }
}
