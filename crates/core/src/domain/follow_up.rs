//! Work that follows from what was done before, and that nobody has typed: it is recorded like a delivery, together with what it follows
//! from.

use super::command::Command;
use super::state::Delivery;
use super::{DeliveryId, Event, ProjectId, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What identities of such deliveries begin with; nobody signed them.
const OWN: &str = "own:";

/// An apply after the merge that takes only plans that change the same as those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowUp {
    /// On this pull request, which is merged.
    pub pull: PullId,
    /// The apply, with who caused it.
    pub command: Command,
    /// Of these projects; empty: of all that it owes.
    pub projects: Vec<ProjectId>,
    /// How many such applies came before it: each found that the base branch had moved, and planned again.
    pub round: u8,
}

impl FollowUp {
    /// Whether it names this project; the base branch may have given it another name since.
    pub fn asks_for(&self, project: &ProjectId) -> bool {
        self.projects.iter().any(|asked| asked.is_same_state(project))
    }

    /// The delivery that records it. `cause` names what it follows from, which causes it once.
    pub fn delivery(self, cause: &str) -> Delivery {
        let identity = DeliveryId::new(format!("{OWN}{}:{cause}", self.pull));
        Delivery { identity, host_id: "own".to_owned(), received: Timestamp::now(), event: Event::FollowUp(self) }
    }
}
