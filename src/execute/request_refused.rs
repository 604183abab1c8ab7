//! The reason that a request of a program (`/api`) is refused, or has no result.

use super::prepare::Stop;
use crate::checkout::CheckoutError;
use crate::domain::outcome::{Fault, Reason};
use crate::store::is_deposed;

/// Reason for which a request is refused, or has no result. Texts are for people.
#[derive(Debug)]
pub enum RequestRefused {
    /// It cannot be served as it is.
    Wrong(String),
    /// The server's configuration does not permit it, or applies are stopped.
    Forbidden(String),
    /// It contradicts the present state, such as a closed pull request, another head, or an apply without known drift.
    Conflict(String),
    /// Something that it names does not exist, such as a branch or tag.
    NotFound(String),
    /// The host did not answer, or the code could not be fetched.
    Host(String),
    /// Too many requests are at work.
    Busy,
    /// It could not be recorded: the server stops, or another one leads now.
    Stopped,
    /// An internal error.
    Broken(anyhow::Error),
}

impl RequestRefused {
    /// Returns the text for the record of a request that had begun.
    pub(crate) fn describe(&self) -> String {
        match self {
            RequestRefused::Wrong(text)
            | RequestRefused::Forbidden(text)
            | RequestRefused::Conflict(text)
            | RequestRefused::NotFound(text)
            | RequestRefused::Host(text) => text.clone(),
            RequestRefused::Busy => "too many requests are at work".to_owned(),
            RequestRefused::Stopped => "the server stopped".to_owned(),
            RequestRefused::Broken(_) => "the server had an internal error; its log has the details".to_owned(),
        }
    }
}

impl From<anyhow::Error> for RequestRefused {
    fn from(error: anyhow::Error) -> RequestRefused {
        if is_deposed(&error) { RequestRefused::Stopped } else { RequestRefused::Broken(error) }
    }
}

impl From<CheckoutError> for RequestRefused {
    fn from(error: CheckoutError) -> RequestRefused {
        match error {
            CheckoutError::Other(error) => error.into(),
            other => RequestRefused::Host(other.to_string()),
        }
    }
}

impl From<Stop> for RequestRefused {
    fn from(stop: Stop) -> RequestRefused {
        match stop {
            Stop::Fault(Fault { reason: Reason::Config, message, .. }) => RequestRefused::Wrong(message),
            // Of the checkout.
            Stop::Fault(fault) => RequestRefused::Host(fault.message),
            Stop::Silent => RequestRefused::Wrong(String::new()),
            Stop::Cancelled => RequestRefused::Stopped,
            Stop::Other(error) => error.into(),
        }
    }
}
