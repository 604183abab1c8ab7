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
    /// The people who may override it, in words; empty for nobody.
    #[serde(default)]
    pub who: String,
    /// The override that the plan was made with; absent if nobody has overridden it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<GuardPass>,
}

/// Returns true if every one of these guards was overridden.
pub fn are_passed(guards: &[TrippedGuard]) -> bool {
    guards.iter().all(|guard| guard.passed.is_some())
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
    /// Returns the command that overrides it, for a person who may. `line` is the command line for the project without the flag.
    pub fn command(&self, line: &str) -> String {
        format!("{line} --override {} -m 'why'", self.name)
    }

    /// Returns the findings as one text for people.
    pub fn describe(&self) -> String {
        let more = if self.more == 0 { String::new() } else { format!("; and {} more", self.more) };
        format!("{}{more}", self.findings.join("; "))
    }
}
