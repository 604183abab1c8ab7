//! What happened to a delivery. `web` says what that is over HTTP.

use crate::domain::Event;
use std::fmt;

/// What happened to a delivery. Its text is for whoever looks at the delivery on the host, and for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// It causes no work, for the reason in the text.
    Ignored(&'static str),
    /// A push that is not planned by itself. Plans of older heads were cancelled.
    HeadNoted,
    /// It is recorded, and its pull request's queue has it.
    Queued,
    /// It is recorded together with the comment that answers it.
    Answered,
    /// It was recorded before, and nothing was done.
    Known,
    /// It is not recorded: another server leads.
    NotLeading,
    /// It is not recorded: the state could not be read or written.
    Unrecorded,
}

impl DeliveryOutcome {
    /// The outcome of an event that is about no pull request and never causes work.
    pub fn without_work(event: &Event) -> Option<DeliveryOutcome> {
        match event {
            Event::Ping => Some(DeliveryOutcome::Ignored("pong")),
            Event::Other(_) | Event::Replan(_) => Some(DeliveryOutcome::Ignored("Nothing to do for this event.")),
            Event::Pull(_)
            | Event::Comment(_)
            | Event::MergeGroup(_)
            | Event::FollowUp(_)
            | Event::Request(_)
            | Event::Push(_) => None,
        }
    }

    /// Whether the delivery needs no other try, here or on the server that leads.
    pub fn is_final(self) -> bool {
        !matches!(self, DeliveryOutcome::NotLeading | DeliveryOutcome::Unrecorded)
    }
}

impl fmt::Display for DeliveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeliveryOutcome::Ignored(why) => why,
            DeliveryOutcome::HeadNoted => "Noted the new head; it is not planned by itself.",
            DeliveryOutcome::Queued => "Processing...",
            DeliveryOutcome::Answered => "Answering with a comment.",
            DeliveryOutcome::Known => "This delivery is known already; nothing is done twice.",
            DeliveryOutcome::NotLeading => "Another server leads. Deliver it again.",
            DeliveryOutcome::Unrecorded => "The delivery could not be recorded. Deliver it again.",
        })
    }
}
