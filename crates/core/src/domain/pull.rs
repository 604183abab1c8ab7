//! A pull request as a host describes it, and its version.

use super::{CommitSha, Login, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pull request as the host last described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct PullRequest {
    /// Its id.
    pub id: PullId,
    /// Title, untrusted text.
    pub title: String,
    /// URL of its page.
    pub url: String,
    /// The person who opened it.
    pub author: Login,
    /// Source branch.
    pub head: Head,
    /// Target branch.
    pub base: Base,
    /// True if it is not ready for review.
    pub draft: bool,
    /// Open, closed or merged.
    pub state: PullState,
    /// True if the head is in another repository than the base, or in a deleted one.
    pub fork: bool,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Size of the base repository in KiB, if the host reports it; decides how its mirror is cloned.
    pub repo_size_kib: Option<u64>,
    /// URL from which git fetches the base repository, without credentials.
    pub clone_url: String,
}

/// Lifecycle of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    /// Neither merged nor closed.
    Open,
    /// Closed without a merge, or the host does not report it.
    Closed,
    /// Merged into the base branch.
    Merged {
        /// The resulting commit on the base branch; absent if the host does not report it.
        commit: Option<CommitSha>,
    },
}

/// Head of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Branch name, untrusted text.
    pub branch: String,
    /// Full commit id.
    pub commit: CommitSha,
    /// Owner of the head repository. Empty if that was deleted.
    pub repo_owner: String,
    /// Name of the head repository.
    pub repo_name: String,
    /// URL from which git fetches the head repository, without credentials. Absent if the base repository has the commit too, as hosts with
    /// refs of pull requests do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_url: Option<String>,
}

/// Base of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Branch name.
    pub branch: String,
    /// Commit of the base branch according to the host; it may be behind the branch's tip.
    pub commit: CommitSha,
}

impl PullRequest {
    /// Returns true if it is neither merged nor closed.
    pub fn is_open(&self) -> bool {
        self.state == PullState::Open
    }
}

/// Stored form of a pull request, in the state and in deliveries. Earlier versions have `open` only, and detect forks by names.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: PullId,
    title: String,
    url: String,
    author: Login,
    head: Head,
    base: Base,
    draft: bool,
    open: bool,
    #[serde(default)]
    state: Option<PullState>,
    #[serde(default)]
    fork: Option<bool>,
    labels: Vec<String>,
    repo_size_kib: Option<u64>,
    clone_url: String,
}

impl From<Stored> for PullRequest {
    fn from(stored: Stored) -> PullRequest {
        let state = if stored.open { PullState::Open } else { PullState::Closed };
        let fork = !stored.id.repo.is_named(&stored.head.repo_owner, &stored.head.repo_name);
        PullRequest {
            state: stored.state.unwrap_or(state),
            fork: stored.fork.unwrap_or(fork),
            id: stored.id,
            title: stored.title,
            url: stored.url,
            author: stored.author,
            head: stored.head,
            base: stored.base,
            draft: stored.draft,
            labels: stored.labels,
            repo_size_kib: stored.repo_size_kib,
            clone_url: stored.clone_url,
        }
    }
}

impl From<PullRequest> for Stored {
    fn from(pull: PullRequest) -> Stored {
        Stored {
            open: pull.is_open(),
            state: Some(pull.state),
            fork: Some(pull.fork),
            id: pull.id,
            title: pull.title,
            url: pull.url,
            author: pull.author,
            head: pull.head,
            base: pull.base,
            draft: pull.draft,
            labels: pull.labels,
            repo_size_kib: pull.repo_size_kib,
            clone_url: pull.clone_url,
        }
    }
}

/// Version of a pull request in its host's own format. If two are equal, nothing changed in between. If it is a time, versions also have an
/// order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PullVersion(String);

impl PullVersion {
    /// Creates it from the host's text; empty if unknown.
    pub fn new(words: impl Into<String>) -> PullVersion {
        PullVersion(words.into())
    }

    /// Returns its time by the host's clock; absent if the host does not report it.
    pub fn moment(&self) -> Option<Timestamp> {
        self.0.parse().ok()
    }

    /// Returns true if it is known to be older than another one.
    pub fn is_before(&self, other: &PullVersion) -> bool {
        matches!((self.moment(), other.moment()), (Some(one), Some(other)) if one < other)
    }

    /// Returns true if it may be older than another one: it is, or they differ and the host does not report their order.
    pub fn may_be_before(&self, other: &PullVersion) -> bool {
        match (self.moment(), other.moment()) {
            (Some(one), Some(other)) => one < other,
            _ => self != other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(more: &str) -> String {
        format!(
            r#"{{"id":{{"repo":{{"host":"h","owner":"acme","name":"infra"}},"number":7}},"title":"t","url":"u","author":"a",
            "head":{{"branch":"b","commit":"c","repo_owner":"Acme","repo_name":"infra"}},"base":{{"branch":"main","commit":"d"}},
            "draft":false,"labels":[],"repo_size_kib":null,"clone_url":"x",{more}}}"#
        )
    }

    fn read(text: &str) -> PullRequest {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let open = read(&record(r#""open":true"#));
        assert_eq!((open.state, open.fork), (PullState::Open, false));
        let closed = read(&record(r#""open":false"#).replace("Acme", "other"));
        assert_eq!((closed.state, closed.fork), (PullState::Closed, true));
        let deleted = read(&record(r#""open":true"#).replace("Acme", ""));
        assert!(deleted.fork, "a head repository that was deleted is another one");
    }

    #[test]
    fn what_is_written_is_read_back_and_an_earlier_version_can_read_it() {
        let merged = PullState::Merged { commit: Some("e".into()) };
        let pull = PullRequest { state: merged, fork: true, ..read(&record(r#""open":true"#)) };
        let written = serde_json::to_value(&pull).unwrap();
        assert_eq!(written["open"], false);
        assert_eq!(serde_json::from_value::<PullRequest>(written).unwrap(), pull);
    }

    #[test]
    fn versions_that_are_no_times_have_no_order() {
        let [one, two] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"].map(PullVersion::new);
        assert!(one.is_before(&two) && one.may_be_before(&two) && !two.may_be_before(&one) && !one.may_be_before(&one));
        let [a, b] = ["a", "b"].map(PullVersion::new);
        assert!(
            !a.is_before(&b) && !b.is_before(&a) && a.may_be_before(&b) && b.may_be_before(&a) && !a.may_be_before(&a)
        );
        assert!(!PullVersion::default().is_before(&one));
    }
}
