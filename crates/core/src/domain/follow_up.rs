//! Work that the server queues by itself because of earlier work. It is recorded like a delivery, in the same commit as its cause.

use super::command::Command;
use super::state::Delivery;
use super::{DeliveryId, Event, ProjectId, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Prefix of the identities of such deliveries; no host has signed them.
const OWN: &str = "own:";

/// An apply after the merge. It accepts only plans with the same changes as those before the merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowUp {
    /// The pull request, which is merged.
    pub pull: PullId,
    /// The apply, with the person who caused it.
    pub command: Command,
    /// Its projects; empty for all unapplied projects of the pull request.
    pub projects: Vec<ProjectId>,
    /// Number of such applies before it. Each found that the base branch had moved, and planned again.
    pub round: u8,
}

impl FollowUp {
    /// Returns true if it names this project's state. The project may have another name on the base branch since.
    pub fn asks_for(&self, project: &ProjectId) -> bool {
        self.projects.iter().any(|asked| asked.is_same_state(project))
    }

    /// Returns the delivery that records it. `cause` names the event that it follows from, so that one cause queues it only once.
    pub fn delivery(self, cause: &str) -> Delivery {
        own_delivery(&self.pull.clone(), cause, Event::FollowUp(Box::new(self)))
    }
}

/// Returns the delivery of an event that the server causes by itself.
pub(super) fn own_delivery(pull: &PullId, cause: &str, event: Event) -> Delivery {
    let identity = DeliveryId::new(format!("{OWN}{pull}:{cause}"));
    Delivery { identity, host_id: "own".to_owned(), received: Timestamp::now(), event }
}
