//! Errors of requests to a host, distinguished by their remedy.

use std::time::Duration;

/// Error of a request to a host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// 404: it does not exist, or our token may not see it.
    #[error("{what}: not found (the token may lack access)")]
    NotFound {
        /// The request.
        what: String,
    },
    /// The host's answer is about another repository than the requested one, which was renamed or transferred.
    #[error("{what}: the host leads to another repository, {to}; nothing is done under a former name")]
    Moved {
        /// The request.
        what: String,
        /// Present name of the repository, or the address that the host redirects to.
        to: String,
    },
    /// No settings name this host. It implies nothing about the repository or the pull request.
    #[error("the host {host} is not configured on this server")]
    NotConfigured {
        /// Name of the host.
        host: String,
    },
    /// 401 or 403: refused until somebody corrects the token or its permissions.
    #[error("{what}: refused by the host: {message}")]
    Denied {
        /// The request.
        what: String,
        /// Message of the host.
        message: String,
    },
    /// Too many requests; the next one is possible after `wait`.
    #[error("{what}: rate limit, free again in {wait:?}")]
    RateLimited {
        /// The request.
        what: String,
        /// Time to wait.
        wait: Duration,
    },
    /// 4xx other than those, also for a locked or deleted conversation: a retry is useless.
    #[error("{what}: {status}: {message}")]
    Rejected {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// Message of the host.
        message: String,
    },
    /// A comment is longer than the host allows; a shorter one may be accepted.
    #[error("{what}: {message}")]
    TooLong {
        /// The request.
        what: String,
        /// Message of the host.
        message: String,
    },
    /// The host does not know the pushed commit, either not yet or never.
    #[error("{what}: {message}")]
    UnknownCommit {
        /// The request.
        what: String,
        /// Message of the host.
        message: String,
    },
    /// 5xx, timeouts, resets: a retry may help.
    #[error("{what}: {message}")]
    Unavailable {
        /// The request.
        what: String,
        /// Description of the error.
        message: String,
    },
}

impl HostError {
    /// Converts the error of a posted comment: a rejection because of its length becomes [`HostError::TooLong`].
    pub(crate) fn of_comment(self) -> HostError {
        let is_too_long = |message: &str| {
            let message = message.to_ascii_lowercase();
            ["too long", "maximum", "at most"].iter().any(|words| message.contains(words))
        };
        match self {
            HostError::Rejected { what, status: 400 | 413 | 422, message } if is_too_long(&message) => {
                HostError::TooLong { what, message }
            }
            error => error,
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, HostError::RateLimited { .. } | HostError::Unavailable { .. })
    }

    /// Returns true if the same request may succeed once somebody has configured the host or corrected the token's permissions. Examples
    /// are an expired token, single sign-on of an organisation, and a list of allowed addresses.
    pub fn is_mendable(&self) -> bool {
        matches!(self, HostError::Denied { .. } | HostError::NotFound { .. } | HostError::NotConfigured { .. })
    }
}
