//! Guards that a plan or its code has tripped, and how people passed them.

use super::Login;
use serde::{Deserialize, Serialize};

/// A guard that has tripped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrippedGuard {
    /// Its name in `repos.yaml`.
    pub name: String,
    /// The first findings, in words. Names in them come from the pull request.
    pub findings: Vec<String>,
    /// Number of findings that are left out.
    #[serde(default)]
    pub more: usize,
    /// True if the code trips it, so that Terraform does not run until a person overrides it.
    #[serde(default)]
    pub of_code: bool,
    /// The override that the plan was made with; absent if nobody has overridden it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<GuardPass>,
}

/// Override of a guard by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPass {
    /// The person.
    pub by: Login,
    /// The reason, one line, untrusted.
    pub why: String,
}

impl TrippedGuard {
    /// Returns the findings as one text for people.
    pub fn describe(&self) -> String {
        let more = if self.more == 0 { String::new() } else { format!("; and {} more", self.more) };
        format!("{}{more}", self.findings.join("; "))
    }
}
