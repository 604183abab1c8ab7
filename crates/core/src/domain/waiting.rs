//! Who waits for a project that another pull request holds, and what is planned again without anybody asking.

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
    /// Since when.
    pub since: Timestamp,
    /// Why it waits.
    pub cause: WaitCause,
    /// Where its state is, as its workflow says.
    #[serde(default, skip_serializing_if = "StateAddress::is_unknown")]
    pub address: StateAddress,
}

impl WaitingPull {
    /// Whether it waits for this pull request to be done with this project, whose state is there.
    pub fn is_behind(&self, holder: &PullId, project: &ProjectId, address: &StateAddress) -> bool {
        let is_other = self.pull.repo == holder.repo && self.pull != *holder;
        is_other && self.project.is_same_state(project) && (self.project == *project || !self.address.differs(address))
    }

    /// Whether the plan of this one would keep the other one out.
    pub fn excludes(&self, other: &WaitingPull) -> bool {
        other.is_behind(&self.pull, &self.project, &self.address)
    }
}

/// Why a pull request waits for a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCause {
    /// Its plan was refused by a lock. The next plan takes that lock.
    Plan,
    /// Its apply was refused by a lock or an owner.
    Apply,
    /// Its plan fell.
    Fall,
}

/// Where in the line a pull request is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceInLine {
    /// 1 for the first one.
    pub number: usize,
    /// Who comes just before it: the holder of the project, or another one that waits.
    pub behind: PullId,
}

/// What keeps a pull request out, and its place in the line for it; as JSON the keys of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked<T> {
    /// Who has the project.
    #[serde(flatten)]
    pub by: T,
    /// Absent where nobody waits.
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

/// Whether a plan that fell is made again without anybody asking.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAgain {
    /// No.
    #[default]
    No,
    /// As soon as the server has time.
    Now,
    /// Once this pull request has the project no more.
    After(PullId),
}

/// Work that no delivery asked for: projects of a pull request that are planned again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplanEvent {
    /// The pull request.
    pub pull: PullId,
    /// The projects.
    pub projects: Vec<ProjectId>,
}
