//! Entries of the audit log.

use super::{CommitSha, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An audited action: who did what. It has no secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Time of the action.
    pub at: Timestamp,
    /// The person or program: a login, an e-mail address, or `loopback`.
    pub who: String,
    /// The action: `apply`, `unlock`, `apply lock`, …
    pub act: String,
    /// Its object, in words.
    pub subject: String,
    /// Its result, in words.
    pub result: String,
    /// The person's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The pull request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullId>,
    /// The project, as it is called in comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The head commit at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSha>,
    /// SHA-256 of the plan file that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The request, or the delivery, that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}
