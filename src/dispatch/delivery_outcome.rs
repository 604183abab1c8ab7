//! Outcome of a delivery. `web` maps it to HTTP.

use crate::domain::Event;
use crate::store::{is_closed, is_deposed};
use std::fmt;

/// Outcome of a delivery. Its text is for people who view the delivery on the host, and for the log.
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
    /// Returns the outcome of an event that is about no pull request and never causes work.
    pub fn without_work(event: &Event) -> Option<DeliveryOutcome> {
        match event {
            Event::Ping => Some(DeliveryOutcome::Ignored("pong")),
            Event::Other(_) => Some(DeliveryOutcome::Ignored("Nothing to do for this event.")),
            Event::Pull(_)
            | Event::Comment(_)
            | Event::MergeGroup(_)
            | Event::FollowUp(_)
            | Event::AutoApply(_)
            | Event::Request(_)
            | Event::Push(_)
            | Event::Check(_)
            | Event::Verdict(_) => None,
        }
    }

    /// Returns and logs the outcome of a delivery about `subject` that was not recorded because of `error`. The host or the next leader
    /// delivers it again, so it is logged as an error only if this server neither stops nor is deposed.
    pub(super) fn unrecorded(error: &anyhow::Error, subject: &dyn fmt::Display, problem: &str) -> DeliveryOutcome {
        let is_deposed = is_deposed(error);
        if is_deposed || is_closed(error) {
            tracing::info!(%subject, "{problem}: {error:#}");
        } else {
            tracing::error!(%subject, error = format!("{error:#}"), "{problem}");
        }
        if is_deposed { DeliveryOutcome::NotLeading } else { DeliveryOutcome::Unrecorded }
    }

    /// Returns true if the delivery needs no further attempt, here or on the server that leads.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use std::sync::Arc;

    fn is_logged_as_error(error: &anyhow::Error) -> bool {
        let kept = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_writer(Arc::new(kept.reopen().unwrap())).with_ansi(false).finish();
        let outcome =
            tracing::subscriber::with_default(log, || DeliveryOutcome::unrecorded(error, &"acme/infra#1", "not read"));
        assert_eq!(outcome, DeliveryOutcome::Unrecorded);
        let line = std::fs::read_to_string(kept.path()).unwrap();
        assert!(line.contains("not read"), "{line}");
        line.contains("ERROR")
    }

    #[tokio::test]
    async fn a_delivery_that_comes_while_the_server_stops_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.close().await.unwrap();
        let stopping = store.read(|view| view.locks()).await.unwrap_err();
        assert!(!is_logged_as_error(&stopping));
        assert!(is_logged_as_error(&anyhow::anyhow!("the disk is full")));
    }
}
