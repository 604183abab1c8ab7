//! People in approval rules and freeze windows: `user:NAME`, `team:NAME`, `codeowners`. Pure.

use serde::{Deserialize, Serialize};

/// Most entries of one list.
pub(super) const MAX_APPROVERS: usize = 100;

/// A person or group that a rule names; names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approver {
    /// A login of the host.
    User(String),
    /// `team` of the repository's owner, or `owner/team`.
    Team(String),
    /// Owners of files by the repository's `CODEOWNERS`.
    CodeOwners,
}

impl Approver {
    /// Parses an entry of a list; the error is for people.
    pub fn parse(text: &str) -> Result<Approver, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("codeowners") {
            return Ok(Approver::CodeOwners);
        }
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim().trim_start_matches('@').to_lowercase();
        if !name.is_empty() && !name.contains(char::is_whitespace) {
            match kind {
                "user" => return Ok(Approver::User(name)),
                "team" => return Ok(Approver::Team(name)),
                _ => {}
            }
        }
        Err("it is none of `user:NAME`, `team:NAME`, `team:OWNER/NAME`, `codeowners`".to_owned())
    }

    /// Returns the text for people.
    pub fn describe(&self) -> String {
        match self {
            Approver::User(name) => name.clone(),
            Approver::Team(name) => format!("team {name}"),
            Approver::CodeOwners => "the code owners".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_named_by_kind() {
        assert_eq!(Approver::parse("user:Alice"), Ok(Approver::User("alice".into())));
        assert_eq!(Approver::parse("team:@acme/SRE"), Ok(Approver::Team("acme/sre".into())));
        assert_eq!(Approver::parse("CodeOwners"), Ok(Approver::CodeOwners));
        for wrong in ["alice", "user:", "user: ", "team:a b", "group:x", ""] {
            assert!(Approver::parse(wrong).is_err(), "{wrong}");
        }
    }
}
