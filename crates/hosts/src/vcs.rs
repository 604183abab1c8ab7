//! VCS hosts: the [`Host`] trait that the rest of the server uses, and what its implementations share: the HTTP client with its rate
//! limits, and errors.
//!
//! Only the module of a host knows that host's field names. Headers of paging and limits are in `http`, for all hosts.

mod error;
mod hosts;
pub(crate) mod http;
mod issue;
pub(crate) mod own_status;
mod profile;
mod shown;
pub(crate) mod told;

pub use error::HostError;
pub use hosts::Hosts;
pub use issue::{HostIssue, IssueEdit, NewIssue};
pub use profile::Profile;
pub use shown::ShownComment;

use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::SecretString;
use std::path::PathBuf;
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitSha, Login, PullId, PullRequest, PullVersion, RepoId};

/// Requests of the server to a host. Data that it reads is always about the requested repository, by that name: an answer about another one
/// is [`HostError::Moved`]. Its posts (comments, statuses, reactions) follow a repository to its new name, if that is served.
#[async_trait]
pub trait Host: Send + Sync {
    /// Host name without scheme and port, as in [`RepoId::host`].
    fn hostname(&self) -> &str;

    /// Login of the server's account, whose own comments are never commands.
    fn bot_login(&self) -> &Login;

    /// Asks for the server's account, where that is known by the token only. It is asked once; each later call does nothing.
    async fn learn_account(&self) -> Result<(), HostError> {
        Ok(())
    }

    /// Limits and features of the host. They stay the same while the server runs.
    fn profile(&self) -> &Profile;

    /// Returns the pull request as it is now.
    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError>;

    /// Returns the latest review of each person. Those of people without write access have [`Review::can_write`] false.
    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError>;

    /// Returns the approvals that rules of the host itself still require, as text for people; absent if none are missing, or if the host
    /// has no such rules.
    async fn missing_approvals(&self, _pull: &PullRequest) -> Result<Option<String>, HostError> {
        Ok(None)
    }

    /// Dismisses every approval of a pull request, also those of others, and gives the reason where the host shows one. Fails if an
    /// approval remains.
    async fn dismiss_approvals(&self, pull: &PullRequest, because: &str) -> Result<(), HostError>;

    /// Returns true if a person is in a team (a group) of the repository's owner, by `team` or `owner/team`; absent if the host has no
    /// teams. A failed request is an error, never false.
    async fn is_team_member(&self, _repo: &RepoId, _team: &str, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// Returns a person's teams of the repository's owner, and those above them; absent if the host has no teams. A failed request is an
    /// error, never an empty list.
    async fn teams_of(&self, _repo: &RepoId, _login: &str) -> Result<Option<Vec<String>>, HostError> {
        Ok(None)
    }

    /// Returns true if a person administers the repository; absent if the host cannot report it. A failed request is an error, never false.
    async fn is_admin(&self, _repo: &RepoId, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// Returns true if a person may write to the repository; absent if the host cannot report it. A failed request is an error, never
    /// false.
    async fn can_write(&self, _repo: &RepoId, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// Returns the login that pushed the pull request's head; unknown if the host cannot report it.
    async fn pusher(&self, _pull: &PullRequest) -> Result<Login, HostError> {
        Ok(Login::unknown())
    }

    /// Returns everybody who wrote or pushed commits of the pull request, as far as the host reports it. An unknown login is among them if
    /// the host does not know one of them.
    async fn contributors(&self, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
        Ok(vec![self.pusher(pull).await?])
    }

    /// Reports whether the host would allow the merge.
    async fn mergeability(&self, pull: &PullRequest) -> Result<Mergeability, HostError>;

    /// Posts a comment and returns its id.
    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError>;

    /// Returns comments, oldest first; with `since` those written or changed at or after it, by the host's clock.
    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError>;

    /// Returns a comment as it is now; absent if it is gone, or not for everybody to read. Needed where deliveries prove no comments
    /// ([`Profile::deliveries_prove_comments`]).
    async fn comment(&self, pull: &PullId, _id: u64) -> Result<Option<HostComment>, HostError> {
        Err(HostError::NotConfigured { host: pull.repo.host.clone() })
    }

    /// Returns true if a commit is the tip of a branch or one of its ancestors.
    async fn is_on_branch(&self, repo: &RepoId, commit: &CommitSha, branch: &str) -> Result<bool, HostError>;

    /// Returns all open pull requests of a repository. An unchanged list is almost free if the host supports conditional requests.
    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError>;

    /// Returns all repositories that our token lists; none if the host cannot list them.
    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        Ok(Vec::new())
    }

    /// Returns the host's id of a repository in the last answer about that name; absent before the first.
    fn told_key(&self, _repo: &RepoId) -> Option<String> {
        None
    }

    /// Returns the present name of the repository with this id; absent if it is deleted or hidden from our token. `near` is a present or
    /// former name of it, whose owner selects the token of the request.
    async fn present_name(&self, near: &RepoId, _key: &str) -> Result<Option<RepoId>, HostError> {
        Err(HostError::NotConfigured { host: near.host.clone() })
    }

    /// Returns true if a pull request that was not found is deleted for good: its repository can be read and does not have it.
    async fn is_gone(&self, _pull: &PullId) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Returns the limit of what may be posted; absent: none.
    fn post_limit(&self) -> Option<PostLimit> {
        None
    }

    /// Returns the latest status of each context that our own account has set on a pull request's commit, as far as one page reports them.
    async fn own_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError>;

    /// Returns the rate limit as the host last reported it; absent if it reports none, and after its reset.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Returns the present time by the host's clock, as its last answer told it; absent before the first.
    fn clock(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the number of requests that were sent to the host's API.
    fn requests(&self) -> u64 {
        0
    }

    /// Returns the requests that the host permits in an hour, if it permits few and does not say how many are left.
    fn hourly_requests(&self) -> Option<u32> {
        None
    }

    /// Returns our own among the latest comments that are not hidden, in the order in which they were last written; none if the host
    /// cannot hide comments.
    async fn shown_comments(&self, _pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
        Ok(Vec::new())
    }

    /// Hides comments as outdated: people see that there is one, and can open it. A deleted comment is not an error.
    async fn hide_comments(&self, _pull: &PullId, _comments: &[ShownComment]) -> Result<(), HostError> {
        Ok(())
    }

    /// Replaces the text of a comment of ours. Returns false if the comment is gone.
    async fn rewrite_comment(&self, _pull: &PullId, _comment: &ShownComment, _body: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Deletes a comment of ours. A deleted comment is not an error.
    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError>;

    /// Returns open issues that our own account has opened, the newest first. Pull requests are not among them.
    async fn own_issues(&self, repo: &RepoId) -> Result<Vec<HostIssue>, HostError> {
        Err(issue::unsupported(repo))
    }

    /// Returns an issue as it is now; absent if it was deleted or transferred, or if issues are disabled.
    async fn issue(&self, repo: &RepoId, _number: u64) -> Result<Option<HostIssue>, HostError> {
        Err(issue::unsupported(repo))
    }

    /// Opens an issue.
    async fn create_issue(&self, repo: &RepoId, _issue: &NewIssue) -> Result<HostIssue, HostError> {
        Err(issue::unsupported(repo))
    }

    /// Changes an issue; false if it is absent, as for [`Host::issue`].
    async fn edit_issue(&self, repo: &RepoId, _number: u64, _edit: &IssueEdit) -> Result<bool, HostError> {
        Err(issue::unsupported(repo))
    }

    /// Adds a reaction to a comment.
    async fn react(&self, pull: &PullId, comment_id: u64, reaction: &str) -> Result<(), HostError>;

    /// Sets a status of a commit: on the commit itself or on the pull request, depending on the host.
    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError>;

    /// Merges the pull request if its head is still `pull.head.commit`, or enqueues it if the branch has a merge queue. A
    /// host that can delete the source branch with the merge does so if `source` demands it.
    async fn merge(&self, pull: &PullRequest, method: Option<&str>, source: SourceBranch)
    -> Result<Merging, HostError>;

    /// Deletes the source branch of a merged pull request if the host does not do so with the merge. The default branch is never deleted,
    /// nor a branch that has moved since.
    async fn delete_source_branch(&self, _pull: &PullRequest) -> Result<(), HostError> {
        Ok(())
    }

    /// Returns the address from which git fetches a repository, without credentials; absent if it cannot exist, or if the host has none.
    fn clone_url(&self, _repo: &RepoId) -> Option<String> {
        None
    }

    /// Returns user and token for git in the repositories of this owner; absent for public access.
    async fn git_credentials(&self, owner: &str) -> Option<GitCredentials>;

    /// Returns credentials for module sources below an address of this host, each with the part of the address that it is valid for.
    async fn module_credentials(&self, address: &str) -> Vec<(String, GitCredentials)> {
        let credentials = self.git_credentials("").await;
        credentials.map(|credentials| (address.to_owned(), credentials)).into_iter().collect()
    }

    /// Returns the same with tokens that can only read code, for jobs on other machines; `None` if the host issues no such tokens.
    async fn reading_credentials(&self, _address: &str) -> Option<Vec<(String, GitCredentials)>> {
        None
    }

    /// Requests the failed deliveries again and returns their number; 0 if the host keeps no list that we may read.
    async fn redeliver_missed(&self) -> Result<usize, HostError> {
        Ok(0)
    }
}

/// The latest review of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Author of the review.
    pub user: Login,
    /// True if the person may write to the repository; other reviews never count.
    pub can_write: bool,
    /// Verdict of the review.
    pub verdict: ReviewVerdict,
    /// Commit that was reviewed; absent if the host does not report it.
    pub commit: Option<CommitSha>,
    /// Time of the review, by the host's clock; absent if the host does not report it.
    pub at: Option<Timestamp>,
}

/// Verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReviewVerdict {
    Approved,
    ChangesRequested,
}

/// Fate of the source branch at a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SourceBranch {
    Keep,
    Delete,
}

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merging {
    /// Merged, with the resulting commit if the host reports it.
    Merged(Option<CommitSha>),
    /// Added to the branch's merge queue.
    Queued,
}

/// Mergeability of a pull request, as the host judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mergeability {
    /// True if the host would merge it.
    pub mergeable: bool,
    /// Reason, in words for people.
    pub detail: String,
}

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostComment {
    /// Id on the host. On GitHub it grows with time, on Azure DevOps with the thread.
    pub id: u64,
    /// Author of the comment; unknown if the account is deleted.
    pub author: Login,
    /// Time of its creation, by the host's clock.
    pub created: Timestamp,
    /// True if it was changed later, by anybody, or if the host does not report that.
    pub edited: bool,
    /// Whole text, untrusted.
    pub body: String,
}

/// Comments of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comments {
    /// The comments, oldest first.
    pub list: Vec<HostComment>,
    /// Time of the answer, by the host's clock.
    pub now: Timestamp,
}

/// An open pull request of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPull {
    /// The pull request as it is now.
    pub pull: PullRequest,
    /// Time of its creation, by the host's clock.
    pub created: Timestamp,
    /// Version, in the same form as in the host's deliveries.
    pub version: PullVersion,
}

/// Returns true if `told`, a time that a host reports, is at or after a moment of this machine's clock. A host that reports whole seconds
/// may mean any part of that second, so it is compared with the second of the moment.
pub fn is_since(told: Timestamp, moment: Timestamp) -> bool {
    match told.subsec_nanosecond() {
        0 => told.as_second() >= moment.as_second(),
        _ => told >= moment,
    }
}

/// Most posts that a host takes from us in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostLimit {
    /// Comments, statuses and reactions in an hour, and about a sixth of them in one minute.
    PostsPerHour(u32),
    /// Comments in a minute; other posts have no limit.
    CommentsPerMinute(u32),
}

/// Rate limit of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Requests that are left.
    pub left: u64,
    /// Requests of the whole period.
    pub all: u64,
}

impl Budget {
    /// Returns true if work that nobody waits for should be postponed: a fifth of the requests is reserved for answers.
    pub fn is_low(self) -> bool {
        self.left.saturating_mul(5) < self.all
    }
}

/// A repository that our token sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoAccess {
    /// The repository.
    pub repo: RepoId,
    /// True if its owner is an organization, which may have webhooks.
    pub of_organization: bool,
    /// True if it is read-only.
    pub archived: bool,
    /// True if commit statuses can be set.
    pub can_write: bool,
}

/// A webhook as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// Address that it delivers to.
    pub url: String,
    /// True if it is enabled.
    pub active: bool,
    /// True if its content type is JSON.
    pub json: bool,
    /// True if the host verifies our certificate.
    pub verifies_tls: bool,
    /// Names of events, or `*`.
    pub events: Vec<String>,
    /// True if it has delivered something.
    pub was_used: bool,
    /// Status of the answer to the last delivery; absent if there was none.
    pub last_status: Option<u16>,
    /// Message of the host about that delivery.
    pub last_message: String,
    /// Our answer to it in one line, if it was requested.
    pub last_answer: String,
    /// Path of its deliveries below the API's address; empty if the host does not report it.
    pub deliveries: String,
}

/// Source of a token.
#[derive(Clone)]
pub enum TokenSource {
    /// The token itself.
    Value(SecretString),
    /// File that is read again on every use, so that a new token needs no restart.
    File(PathBuf),
}

/// Credentials for git.
#[derive(Clone)]
pub struct GitCredentials {
    /// User name.
    pub username: String,
    /// Token.
    pub password: SecretString,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_the_second_of_a_moment_counts_as_after_it() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let moment = at("2026-11-24T02:20:05.9Z");
        assert!(is_since(at("2026-11-24T02:20:05Z"), moment) && is_since(at("2026-11-24T02:20:06Z"), moment));
        assert!(!is_since(at("2026-11-24T02:20:04Z"), moment));
        assert!(is_since(at("2026-11-24T02:20:05.95Z"), moment) && !is_since(at("2026-11-24T02:20:05.1Z"), moment));
    }
}
