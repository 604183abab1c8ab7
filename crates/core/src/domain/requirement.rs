//! Requirements of commands that users can set.

use serde::{Deserialize, Serialize};

/// A requirement that users can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum Requirement {
    Approved,
    Mergeable,
    Undiverged,
}

impl Requirement {
    /// Every requirement, in the order in which messages list them.
    pub const ALL: [Requirement; 3] = [Requirement::Approved, Requirement::Mergeable, Requirement::Undiverged];

    /// Returns its name in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Requirement::Approved => "approved",
            Requirement::Mergeable => "mergeable",
            Requirement::Undiverged => "undiverged",
        }
    }

    /// Returns the requirement of this name.
    pub fn of_name(name: &str) -> Option<Requirement> {
        Requirement::ALL.into_iter().find(|requirement| requirement.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::variants_of;

    #[test]
    fn every_requirement_is_listed_under_its_name_in_files() {
        assert_eq!(variants_of::<Requirement>(), Requirement::ALL.map(Requirement::name));
        assert_eq!(Requirement::of_name("policies_passed"), None);
    }
}
