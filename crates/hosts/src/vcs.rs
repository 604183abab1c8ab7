//! VCS hosts: the [`Host`] trait that the rest of the server sees, and one module per host that speaks its API.
//!
//! Only this module and `webhook` know a host's field names.

pub mod azure_devops;
pub mod github;
mod hosts;
mod http;
mod profile;
mod told;

pub use hosts::Hosts;
pub use profile::Profile;

use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::SecretString;
use std::path::PathBuf;
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitSha, Login, PullId, PullRequest, PullVersion, RepoId};

/// What the server asks of a host. What it learns is always about the repository that it asked for, by that name: an answer about
/// another one is [`HostError::Moved`]. What it says (comments, statuses, reactions) follows a repository to its new name, if that is
/// served.
#[async_trait]
pub trait Host: Send + Sync {
    /// Host name without scheme and port, as in [`RepoId::host`].
    fn hostname(&self) -> &str;

    /// Login of the account that we act as, for "never our own comments".
    fn bot_login(&self) -> &Login;

    /// How it wants to be written to. It stays the same as long as the server runs.
    fn profile(&self) -> &Profile;

    /// The pull request as it is now.
    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError>;

    /// Reviews, boiled down: the latest of each person with write access.
    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError>;

    /// Takes back every approval of a pull request, whoever gave it, and says why where the host shows that. Not having done so is an
    /// error.
    async fn dismiss_approvals(&self, pull: &PullRequest, because: &str) -> Result<(), HostError>;

    /// Whether somebody is in a team (a group) of the repository's owner, by `team` or `owner/team`; absent where the host has no teams.
    /// No answer is not a no: an error.
    async fn is_team_member(&self, _repo: &RepoId, _team: &str, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// The teams of the repository's owner that somebody is in, and those above them; absent where the host has no teams. No answer is
    /// not a no: an error.
    async fn teams_of(&self, _repo: &RepoId, _login: &str) -> Result<Option<Vec<String>>, HostError> {
        Ok(None)
    }

    /// Whether somebody administers the repository; absent where the host cannot tell. No answer is not a no: an error.
    async fn is_admin(&self, _repo: &RepoId, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// Whether somebody may write to the repository; absent where the host cannot tell. No answer is not a no: an error.
    async fn can_write(&self, _repo: &RepoId, _login: &str) -> Result<Option<bool>, HostError> {
        Ok(None)
    }

    /// Who pushed the pull request's head; unknown where the host cannot tell.
    async fn pusher(&self, _pull: &PullRequest) -> Result<Login, HostError> {
        Ok(Login::unknown())
    }

    /// Everybody who pushed to the pull request, as far as the host tells: who wrote its commits, or pushed them. Somebody unknown is
    /// among them where the host does not know who that was.
    async fn contributors(&self, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
        Ok(vec![self.pusher(pull).await?])
    }

    /// Whether the host would let it be merged.
    async fn mergeability(&self, pull: &PullRequest) -> Result<Mergeability, HostError>;

    /// Posts a comment; its id.
    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError>;

    /// Comments, oldest first; with `since` those that were written or changed at or after it, by the host's clock.
    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError>;

    /// Whether a commit is the tip of a branch or one before it.
    async fn is_on_branch(&self, repo: &RepoId, commit: &CommitSha, branch: &str) -> Result<bool, HostError>;

    /// All open pull requests of a repository. A list that has not changed costs next to nothing where the host can say so.
    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError>;

    /// All repositories that our token lists; none where the host cannot tell.
    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        Ok(Vec::new())
    }

    /// The host's id of a repository in the last answer about that name; absent before there is one.
    fn told_key(&self, _repo: &RepoId) -> Option<String> {
        None
    }

    /// What the repository with this id is called now; absent where it is gone, or our token may not see it. `near`: a name that it has
    /// or had, whose owner says which token is asked with.
    async fn present_name(&self, near: &RepoId, _key: &str) -> Result<Option<RepoId>, HostError> {
        Err(HostError::NotConfigured { host: near.host.clone() })
    }

    /// Whether a pull request that was not found is gone for ever: its repository can be read, and it is not there.
    async fn is_gone(&self, _pull: &PullId) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Most comments, statuses and reactions that may be posted in an hour; absent where the host sets no such limit.
    fn posts_per_hour(&self) -> Option<u32> {
        None
    }

    /// The latest status of each context of a pull request's commit that our own account has set, as far as one page of them tells.
    async fn own_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError>;

    /// How many requests are left of how many, as the host last told; absent where it tells nothing, and once that has been reset.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Our own ones among the latest comments that are not hidden, oldest first; none where the host hides none.
    async fn shown_comments(&self, _pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
        Ok(Vec::new())
    }

    /// Hides comments as outdated: people see that there is one, and can open it. One that is gone is fine.
    async fn hide_comments(&self, _pull: &PullId, _comments: &[ShownComment]) -> Result<(), HostError> {
        Ok(())
    }

    /// Deletes a comment of ours; absent is fine.
    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError>;

    /// Adds a reaction to a comment.
    async fn react(&self, pull: &PullId, comment_id: u64, reaction: &str) -> Result<(), HostError>;

    /// Sets a status of a commit: on the commit itself or on the pull request, as the host has it.
    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError>;

    /// Merges the pull request, if its head is still `pull.head.commit`, or queues it where the branch has a merge queue. With
    /// `delete_branch` the host is asked to delete its source branch, where it does that together.
    async fn merge(&self, pull: &PullRequest, method: Option<&str>, delete_branch: bool) -> Result<Merging, HostError>;

    /// Deletes the source branch of a pull request that was merged, where the host does not do so with the merge: never the default
    /// branch, and not when it has moved on.
    async fn delete_source_branch(&self, _pull: &PullRequest) -> Result<(), HostError> {
        Ok(())
    }

    /// Where git fetches a repository, without credentials; absent where its names cannot be those of one, or the host does not tell.
    fn clone_url(&self, _repo: &RepoId) -> Option<String> {
        None
    }

    /// User and token for git in the repositories of this owner, or none for public access.
    async fn git_credentials(&self, owner: &str) -> Option<GitCredentials>;

    /// The same for sources of modules below an address of this host, each with the part of the address that it is for.
    async fn module_credentials(&self, address: &str) -> Vec<(String, GitCredentials)> {
        let credentials = self.git_credentials("").await;
        credentials.map(|credentials| (address.to_owned(), credentials)).into_iter().collect()
    }

    /// Has the host send deliveries again that nobody has taken; how many. None where the host keeps no list that we may read.
    async fn redeliver_missed(&self) -> Result<usize, HostError> {
        Ok(0)
    }
}

/// The latest review of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Who gave it.
    pub user: Login,
    /// Whether the person may write to the repository; others never count.
    pub can_write: bool,
    /// What it says.
    pub verdict: ReviewVerdict,
    /// Commit it was given for; absent where the host does not tell.
    pub commit: Option<CommitSha>,
    /// When it was given, by the host's clock; absent where the host does not tell.
    pub at: Option<Timestamp>,
}

/// What a review says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReviewVerdict {
    Approved,
    ChangesRequested,
}

/// What a merge came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merging {
    /// It is merged, as this commit, where the host tells.
    Merged(Option<CommitSha>),
    /// It is in the branch's merge queue.
    Queued,
}

/// Whether the host would let a pull request be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mergeability {
    /// Whether.
    pub mergeable: bool,
    /// Why not, in the host's words turned into ours.
    pub detail: String,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostComment {
    /// The host's id; grows with time.
    pub id: u64,
    /// Its author; unknown when the account is gone.
    pub author: Login,
    /// When it was written, by the host's clock.
    pub created: Timestamp,
    /// Whether it was changed since, by whomever; also where the host does not tell.
    pub edited: bool,
    /// Whole text, untrusted.
    pub body: String,
}

/// A comment of ours that is not hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownComment {
    /// What the host knows it by where it is hidden.
    pub id: String,
    /// Whole text.
    pub body: String,
}

/// Comments of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comments {
    /// Oldest first.
    pub list: Vec<HostComment>,
    /// The moment of the answer, by the host's clock.
    pub now: Timestamp,
}

/// An open pull request of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPull {
    /// As it is now.
    pub pull: PullRequest,
    /// When it was opened, by the host's clock.
    pub created: Timestamp,
    /// Its version, in the same words as in the host's deliveries.
    pub version: PullVersion,
}

/// Whether what a host tells to have been at `told` was at or after a moment of this machine's clock. A host that tells whole
/// seconds may mean any moment of that second, so the second of the moment counts as a whole.
pub fn is_since(told: Timestamp, moment: Timestamp) -> bool {
    match told.subsec_nanosecond() {
        0 => told.as_second() >= moment.as_second(),
        _ => told >= moment,
    }
}

/// What a host still lets us ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Requests that are left.
    pub left: u64,
    /// Of so many.
    pub all: u64,
}

impl Budget {
    /// Whether what nobody waits for should be put off: a fifth is kept for answers.
    pub fn is_low(self) -> bool {
        self.left.saturating_mul(5) < self.all
    }
}

/// A repository that our token sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoAccess {
    /// Which.
    pub repo: RepoId,
    /// Its owner is an organization, which may have webhooks.
    pub of_organization: bool,
    /// Nothing can be changed in it.
    pub archived: bool,
    /// Commit statuses can be set.
    pub can_write: bool,
}

/// A webhook as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// Where it delivers to.
    pub url: String,
    /// It is switched on.
    pub active: bool,
    /// Its content type is JSON.
    pub json: bool,
    /// The host checks our certificate.
    pub verifies_tls: bool,
    /// Names of events, or `*`.
    pub events: Vec<String>,
    /// It has delivered something.
    pub was_used: bool,
    /// Status of the answer to the last delivery; absent when there was none.
    pub last_status: Option<u16>,
    /// What the host says about that delivery.
    pub last_message: String,
    /// Our answer to it in one line, where it was asked for.
    pub last_answer: String,
    /// Path of its deliveries below the API's address; empty where the host does not tell.
    pub deliveries: String,
}

/// Where a token comes from.
#[derive(Clone)]
pub enum TokenSource {
    /// Given as it is.
    Value(SecretString),
    /// A file that is read again on every use, so that a new token needs no restart.
    File(PathBuf),
}

/// What git needs to fetch.
#[derive(Clone)]
pub struct GitCredentials {
    /// User name.
    pub username: String,
    /// Token.
    pub password: SecretString,
}

/// How a request to a host can fail.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// 404: it is not there, or our token may not see it.
    #[error("{what}: not found (the token may lack access)")]
    NotFound {
        /// The request.
        what: String,
    },
    /// The host answers about another repository than the one that was asked for: it was renamed or transferred.
    #[error("{what}: the host leads to another repository, {to}; nothing is done under a former name")]
    Moved {
        /// The request.
        what: String,
        /// Its name there, or the address that the host redirects to.
        to: String,
    },
    /// No settings name this host. It says nothing about the repository or the pull request.
    #[error("the host {host} is not configured on this server")]
    NotConfigured {
        /// Its name.
        host: String,
    },
    /// 401 or 403: refused until somebody mends the token or its rights.
    #[error("{what}: refused by the host: {message}")]
    Denied {
        /// The request.
        what: String,
        /// The host's own words.
        message: String,
    },
    /// Too many requests; after `wait` it may go.
    #[error("{what}: rate limit, free again in {wait:?}")]
    RateLimited {
        /// The request.
        what: String,
        /// How long to wait.
        wait: std::time::Duration,
    },
    /// 4xx other than those, and a conversation that is locked or gone: repeating the request is useless.
    #[error("{what}: {status}: {message}")]
    Rejected {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// The host's own words.
        message: String,
    },
    /// The host does not know the commit yet that was pushed, or will never know it.
    #[error("{what}: {message}")]
    UnknownCommit {
        /// The request.
        what: String,
        /// The host's own words.
        message: String,
    },
    /// 5xx, timeouts, resets: repeating may help.
    #[error("{what}: {message}")]
    Unavailable {
        /// The request.
        what: String,
        /// What happened.
        message: String,
    },
}

impl HostError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, HostError::RateLimited { .. } | HostError::Unavailable { .. })
    }

    /// Whether the same request may succeed once somebody has configured the host, or given the token its rights: an expired token,
    /// single sign-on of an organisation, a list of allowed addresses.
    pub fn is_mendable(&self) -> bool {
        matches!(self, HostError::Denied { .. } | HostError::NotFound { .. } | HostError::NotConfigured { .. })
    }
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
