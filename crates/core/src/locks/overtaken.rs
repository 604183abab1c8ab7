//! Plans that are invalidated while they are made: an event drops only recorded plans, and one that is still being made is not among them.

use super::WantedLock;
use crate::domain::ownership::InvalidationCause;
use crate::domain::state::PlanRecord;
use crate::domain::state_address::StateAddress;
use crate::domain::{ProjectId, PullId};

/// Returns the cause for which a change of a project's state, which has ended while this plan was made, invalidates the plan; absent if it
/// does not. `wanted` is the lock that the plan was made for, and `pull` has changed the state of `project`, which is at `address`.
pub fn overtaken_by(
    plan: &PlanRecord,
    wanted: &WantedLock,
    pull: &PullId,
    project: &ProjectId,
    address: &StateAddress,
) -> Option<InvalidationCause> {
    // Commands of one pull request run one after the other.
    if pull.repo != plan.pull.repo || *pull == plan.pull {
        return None;
    }
    if plan.depends_on(project) {
        return Some(InvalidationCause::DependencyApplied { project: project.clone() });
    }
    let is_same =
        *project == plan.project || (project.is_same_state(&plan.project) && !wanted.lock.address.differs(address));
    match is_same {
        true if pull.is_branch() => Some(InvalidationCause::DriftApplied),
        // If locks are taken by an apply, or not at all, earlier plans of others stay as well.
        true if wanted.is_strict() || wanted.is_locked_by_plan() => {
            Some(InvalidationCause::AppliedBy { pull: pull.clone() })
        }
        _ => None,
    }
}
