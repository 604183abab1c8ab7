//! Entries of the audit log.

use super::{CommitSha, Login, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An audited action: who did what. It has no secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Time of the action.
    pub at: Timestamp,
    /// The person or program: a login, an e-mail address, or `loopback`.
    pub who: String,
    /// Name that the host shows for `who`, if that is an id. Its owner may change it at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
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

impl AuditEntry {
    /// Creates an entry about a person, with the rest empty.
    pub fn by(person: &Login) -> AuditEntry {
        AuditEntry {
            who: person.as_str().to_owned(),
            name: person.shown_name().map(str::to_owned),
            ..AuditEntry::default()
        }
    }

    /// Returns the person for people: the shown name with the id, or the login alone.
    pub fn person(&self) -> String {
        self.name.as_ref().map_or_else(|| self.who.clone(), |name| format!("{name} ({})", self.who))
    }
}
