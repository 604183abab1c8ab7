//! The reason that nobody can tell whether a project is approved.

use super::prepare::Stop;
use crate::checkout::CheckoutError;
use crate::vcs::HostError;

/// Error of a check of approvals.
pub(super) enum ApprovalError {
    /// The host did not respond. The caller words it.
    Host(HostError),
    Stop(Stop),
}

impl From<HostError> for ApprovalError {
    fn from(error: HostError) -> ApprovalError {
        ApprovalError::Host(error)
    }
}

impl From<Stop> for ApprovalError {
    fn from(stop: Stop) -> ApprovalError {
        ApprovalError::Stop(stop)
    }
}

impl From<CheckoutError> for ApprovalError {
    fn from(error: CheckoutError) -> ApprovalError {
        ApprovalError::Stop(error.into())
    }
}

impl From<anyhow::Error> for ApprovalError {
    fn from(error: anyhow::Error) -> ApprovalError {
        ApprovalError::Stop(error.into())
    }
}
