//! Pull requests that wait for a project that another pull request holds, and projects that are planned again automatically.

use super::state_address::StateAddress;
use super::{ProjectId, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A pull request that waits in line for a project. It has one row for each project; the oldest row is the first in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingPull {
    /// The project.
    pub project: ProjectId,
    /// The pull request; the project is one of its repository.
    pub pull: PullId,
    /// Time since which it waits.
    pub since: Timestamp,
    /// Cause of the wait.
    pub cause: WaitCause,
    /// Address of the project's state, from its workflow.
    #[serde(default, skip_serializing_if = "StateAddress::is_unknown")]
    pub address: StateAddress,
}

impl WaitingPull {
    /// Returns true if it waits for this pull request to release this project, whose state has this address.
    pub fn is_behind(&self, holder: &PullId, project: &ProjectId, address: &StateAddress) -> bool {
        let is_other = self.pull.repo == holder.repo && self.pull != *holder;
        is_other && self.project.is_same_state(project) && (self.project == *project || !self.address.differs(address))
    }

    /// Returns true if its plan would block the other one.
    pub fn excludes(&self, other: &WaitingPull) -> bool {
        other.is_behind(&self.pull, &self.project, &self.address)
    }
}

/// Causes for which a pull request waits for a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCause {
    /// A lock refused its plan. The next plan takes that lock.
    Plan,
    /// A lock or an owner refused its apply.
    Apply,
    /// Its plan was invalidated.
    #[serde(rename = "fall")]
    Invalidated,
    /// Its apply failed.
    ApplyFailed,
}

impl WaitCause {
    /// Returns true if a lock or an owner refused the pull request.
    pub fn is_refusal(self) -> bool {
        matches!(self, WaitCause::Plan | WaitCause::Apply)
    }
}

/// Position of a pull request in the line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceInLine {
    /// 1 for the first one.
    pub number: usize,
    /// The pull request just before it: the holder of the project, or another one that waits.
    pub behind: PullId,
}

/// The holder that blocks a pull request, and the position in the line for it. As JSON it has the fields of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked<T> {
    /// Holder of the project.
    #[serde(flatten)]
    pub by: T,
    /// Position in line; absent if it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceInLine>,
}

impl<T> Deref for Blocked<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.by
    }
}

impl<T> From<T> for Blocked<T> {
    fn from(by: T) -> Blocked<T> {
        Blocked { by, place: None }
    }
}

/// Automatic re-plan of a plan that was invalidated.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAgain {
    /// No automatic re-plan.
    #[default]
    No,
    /// As soon as the server has time.
    Now,
    /// As soon as this pull request has released the project.
    After(PullId),
}

/// Id of an automatic re-plan. Ids are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplanId(pub i64);

/// An automatic re-plan that has not ended: projects of a pull request that are planned again without a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replan {
    /// Its id.
    pub id: ReplanId,
    /// Its progress.
    pub state: ReplanState,
    /// Time at which it was queued.
    pub queued: Timestamp,
    /// Its pull request and projects.
    pub scope: ReplanScope,
}

/// Progress of an automatic re-plan. A running one is never queued again: the next leader resumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplanState {
    /// It has not begun: later turns of its pull request are added to it.
    Queued,
    /// It has begun with its projects.
    Running,
}

/// Pull request and projects of an automatic re-plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplanScope {
    /// The pull request.
    pub pull: PullId,
    /// The projects.
    pub projects: Vec<ProjectId>,
}
