//! Pull requests as deliveries describe them, whole or in part.

use super::{CommitSha, PullId, PullRequest, PullState};
use serde::{Deserialize, Serialize};

/// A pull request as a delivery describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeliveredPull {
    /// All of it.
    Whole(Box<PullRequest>),
    /// A part of it. The host is asked for the rest before any work.
    Part(PartialPull),
}

/// The part of a pull request that decides whether there is work. Earlier versions of the server cannot read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialPull {
    /// Its id.
    pub id: PullId,
    /// Open, closed or merged.
    pub state: PullState,
    /// Commit of the head; absent if it is not told in full.
    pub head: Option<CommitSha>,
    /// First digits of the head's commit, where the host cuts it; absent if they are not told. They only show that a head is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_start: Option<String>,
    /// True if it is not ready for review; absent if that is not told.
    pub draft: Option<bool>,
    /// True if the head is in another repository than the base; absent if that is not told.
    pub fork: Option<bool>,
    /// Names of its labels; absent if they are not told.
    pub labels: Option<Vec<String>>,
}

impl DeliveredPull {
    /// Returns its id.
    pub fn id(&self) -> &PullId {
        match self {
            DeliveredPull::Whole(pull) => &pull.id,
            DeliveredPull::Part(part) => &part.id,
        }
    }

    /// Returns whether it is open, closed or merged.
    pub fn state(&self) -> &PullState {
        match self {
            DeliveredPull::Whole(pull) => &pull.state,
            DeliveredPull::Part(part) => &part.state,
        }
    }

    /// Returns true if it is neither merged nor closed.
    pub fn is_open(&self) -> bool {
        *self.state() == PullState::Open
    }

    /// Returns the commit of the head; absent if it is not told in full.
    pub fn head(&self) -> Option<&CommitSha> {
        match self {
            DeliveredPull::Whole(pull) => Some(&pull.head.commit),
            DeliveredPull::Part(part) => part.head.as_ref(),
        }
    }

    /// Returns true if the head is told, perhaps cut, and this commit may be it.
    pub fn may_have_head(&self, commit: &CommitSha) -> bool {
        let start = match self {
            DeliveredPull::Whole(_) => None,
            DeliveredPull::Part(part) => part.head_start.as_deref().filter(|start| !start.is_empty()),
        };
        self.has_head(commit) || self.head().is_none() && start.is_some_and(|start| commit.as_str().starts_with(start))
    }

    /// Returns true if this commit is told to be the head, with all digits.
    fn has_head(&self, commit: &CommitSha) -> bool {
        self.head() == Some(commit)
    }

    fn draft(&self) -> Option<bool> {
        match self {
            DeliveredPull::Whole(pull) => Some(pull.draft),
            DeliveredPull::Part(part) => part.draft,
        }
    }

    /// Returns true if it is told to be a draft.
    pub fn is_draft(&self) -> bool {
        self.draft() == Some(true)
    }

    /// Returns true if it is told not to be a draft.
    pub fn is_ready(&self) -> bool {
        self.draft() == Some(false)
    }

    /// Returns true if its head is told to be in another repository.
    pub fn is_fork(&self) -> bool {
        match self {
            DeliveredPull::Whole(pull) => pull.fork,
            DeliveredPull::Part(part) => part.fork == Some(true),
        }
    }

    /// Returns the labels that are told.
    pub fn labels(&self) -> &[String] {
        match self {
            DeliveredPull::Whole(pull) => &pull.labels,
            DeliveredPull::Part(part) => part.labels.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the pull request if all of it is told.
    pub fn whole(&self) -> Option<&PullRequest> {
        match self {
            DeliveredPull::Whole(pull) => Some(pull),
            DeliveredPull::Part(_) => None,
        }
    }
}

impl From<PullRequest> for DeliveredPull {
    fn from(pull: PullRequest) -> DeliveredPull {
        DeliveredPull::Whole(Box::new(pull))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_part_are_read_back_and_a_whole_one_as_earlier_versions_wrote_it() {
        let whole = r#"{"id":{"repo":{"host":"h","owner":"acme","name":"infra"},"number":7},"title":"t","url":"u","author":"a",
            "head":{"branch":"b","commit":"c","repo_owner":"acme","repo_name":"infra"},"base":{"branch":"main","commit":"d"},
            "draft":false,"open":true,"labels":["x"],"repo_size_kib":null,"clone_url":"x"}"#;
        let whole: DeliveredPull = serde_json::from_str(whole).unwrap();
        assert!(whole.whole().is_some() && whole.is_ready() && whole.has_head(&"c".into()) && whole.labels() == ["x"]);
        let part = PartialPull {
            id: whole.id().clone(),
            state: PullState::Merged { commit: None },
            head: None,
            head_start: None,
            draft: None,
            fork: None,
            labels: None,
        };
        let cut = PartialPull { head_start: Some("da1560886d4f".into()), ..part.clone() };
        let part = DeliveredPull::Part(part);
        assert!(!part.is_open() && !part.is_draft() && !part.is_ready() && !part.is_fork() && part.labels().is_empty());
        assert!(
            !part.may_have_head(&"c".into()) && whole.may_have_head(&"c".into()) && !whole.may_have_head(&"d".into())
        );
        let cut = DeliveredPull::Part(cut);
        assert!(cut.may_have_head(&"da1560886d4f094c".into()) && !cut.may_have_head(&"da1560886d4e094c".into()));
        assert!(!cut.has_head(&"da1560886d4f".into()) && cut.head().is_none());
        for pull in [whole, part, cut] {
            let written = serde_json::to_string(&pull).unwrap();
            assert_eq!(serde_json::from_str::<DeliveredPull>(&written).unwrap(), pull);
        }
    }
}
