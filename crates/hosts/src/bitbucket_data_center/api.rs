//! Bitbucket Data Center over REST.

mod account;
mod answers;
mod builds;
mod comments;
mod lists;
mod merge;
mod mergeability;
mod moved;
mod people;
mod pushes;
mod reviews;
mod setup;
mod statuses;
#[cfg(test)]
mod tests;

pub use account::BitbucketDataCenterInstance;
pub use setup::{
    BitbucketDataCenterDeliveries, BitbucketDataCenterDelivery, BitbucketDataCenterHook, BitbucketDataCenterRepository,
};

use super::BitbucketDataCenterAddress;
use super::person;
use crate::vcs::http::Http;
use crate::vcs::told::{SourceBranches, ToldKeys};
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostComment, HostError, Mergeability, Merging, OpenPull, Profile,
    RepoAccess, Review, ShownComment, SourceBranch, TokenSource,
};
use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

/// Path of most of the API. Its version is the newest that the instance has.
const API: &str = "/rest/api/latest";
/// Longest comment, in characters (runatlantis/atlantis, `server/events/vcs/bitbucketserver/client.go`).
const COMMENT_LIMIT: usize = 32_768;
/// User name for git where the settings have none: the host takes it with tokens of projects and repositories
/// (confluence.atlassian.com/bitbucketserver, "HTTP access tokens").
const TOKEN_USER: &str = "x-token-auth";
/// Header with which the host takes a change without a form's token
/// (confluence.atlassian.com/cloudkb, "XSRF check failed"), and its value.
const NO_CHECK: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-atlassian-token"), HeaderValue::from_static("no-check"));

/// Returns true if a repository is served.
type ServesDataCenterRepository = Arc<dyn Fn(&RepoId) -> bool + Send + Sync>;

/// Address of Bitbucket Data Center, and our account there.
pub struct BitbucketDataCenterOptions {
    /// Address of the host.
    pub address: BitbucketDataCenterAddress,
    /// User name for git, which is our login if the host does not tell it; empty: the one for tokens of projects and repositories.
    pub user: String,
    /// HTTP access token.
    pub token: TokenSource,
    /// First part of the names of our statuses.
    pub status_name: String,
    /// Address of the server's own pages: a build status has to have an address.
    pub server_url: String,
    /// Returns true if a repository is served. Posts follow a renamed or moved repository only to a served name.
    pub serves: Arc<dyn Fn(&RepoId) -> bool + Send + Sync>,
}

/// A Bitbucket Data Center host. Creating one is cheap; the first request loads certificates.
pub struct BitbucketDataCenter {
    address: BitbucketDataCenterAddress,
    profile: Profile,
    user: String,
    status_name: String,
    server_url: String,
    serves: ServesDataCenterRepository,
    http: Http,
    /// Account of the token, once the host has reported it.
    account: OnceLock<Login>,
    /// Login before that: the one of the settings.
    before: Login,
    /// True once the host has not reported it.
    untold: AtomicBool,
    told: ToldKeys,
    branches: SourceBranches,
}

impl BitbucketDataCenter {
    /// Creates a host, without a request.
    pub fn new(options: BitbucketDataCenterOptions) -> BitbucketDataCenter {
        let mut headers = HeaderMap::from_iter([NO_CHECK]);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let user = Some(options.user).filter(|user| !user.is_empty()).unwrap_or_else(|| TOKEN_USER.to_owned());
        BitbucketDataCenter {
            http: Http::new(options.address.base().to_owned(), options.token, headers),
            profile: profile(&options.address),
            address: options.address,
            before: person::login(Some(user.as_str()).filter(|user| *user != TOKEN_USER)),
            user,
            status_name: options.status_name,
            server_url: options.server_url,
            serves: options.serves,
            account: OnceLock::new(),
            untold: AtomicBool::new(false),
            told: ToldKeys::default(),
            branches: SourceBranches::default(),
        }
    }

    /// Returns the JSON of a pull request, after checking that it is the requested one.
    async fn pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let path = self.pull_path(pull)?;
        let body = self.http.get(&path).await?.body;
        self.check_pull(pull, &format!("GET {path}"), &body)?;
        Ok(body)
    }

    /// Fails if this is not the requested pull request. Remembers what later requests need.
    fn check_pull(&self, pull: &PullId, what: &str, told: &Value) -> Result<(), HostError> {
        answers::is_asked_for(pull, what, told)?;
        self.told.record(&pull.repo, answers::key(&told["toRef"]["repository"]));
        let is_fork = answers::is_repository(&pull.repo, what, &told["fromRef"]["repository"]).is_err();
        // An empty name stands for a fork's.
        let branch = if is_fork { Some(String::new()) } else { answers::branch(&told["fromRef"]) };
        self.branches.record(pull, branch);
        Ok(())
    }

    /// Path of a pull request in the API.
    fn pull_path(&self, pull: &PullId) -> Result<String, HostError> {
        Ok(format!("{}/pull-requests/{}", self.address.repo_path(&pull.repo)?, pull.number))
    }

    /// Returns the JSON of a repository, after checking that it is the requested one.
    async fn told_repository(&self, repo: &RepoId) -> Result<Value, HostError> {
        let path = self.address.repo_path(repo)?;
        let body = self.http.get(&path).await?.body;
        answers::is_repository(repo, &format!("GET {path}"), &body)?;
        self.told.record(repo, answers::key(&body));
        Ok(body)
    }
}

/// Limits and features of this host.
pub fn profile(address: &BitbucketDataCenterAddress) -> Profile {
    Profile {
        api_type: "BitbucketServer",
        comment_limit: COMMENT_LIMIT,
        folds: false,
        html_comments: false,
        pull_mark: '#',
        // The time of the last change does not move (github.com/go-playground/webhooks, `pr-comment-added.json`).
        versions_cover_comments: false,
        reactions: true,
        statuses_of_commits: true,
        status_details: false,
        issues: false,
        // There are none.
        deliveries_tell_labels: true,
        // Whoever administers a repository chooses the secret of its webhooks.
        deliveries_prove_comments: false,
        // The language of `.bitbucket/CODEOWNERS` is one of its own (confluence.atlassian.com/bitbucketserver, "Code owners").
        owner_files: &[],
        owner_language: OwnersLanguage::LastRule,
        merge_methods: merge::METHODS.iter().map(|(name, _)| *name).collect(),
        commit_address: Some(CommitAddress::below(address.base()).of_projects_and_people().at("commits")),
    }
}

#[async_trait]
impl Host for BitbucketDataCenter {
    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn bot_login(&self) -> &Login {
        self.account.get().unwrap_or(&self.before)
    }

    async fn learn_account(&self) -> Result<(), HostError> {
        self.own_login().await.map(drop)
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clone_url(&self, repo: &RepoId) -> Option<String> {
        self.address.clone_url(repo)
    }

    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError> {
        let told = self.pull(pull).await?;
        let read = answers::pull_request(&self.address, pull, &told);
        read.map_err(|wrong| crate::vcs::http::odd(&format!("pull request {pull}"), wrong))
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        reviews::latest(self, pull).await
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, _: &str) -> Result<(), HostError> {
        reviews::dismiss_approvals(self, pull).await
    }

    async fn is_team_member(&self, repo: &RepoId, team: &str, login: &str) -> Result<Option<bool>, HostError> {
        people::is_in_group(self, repo, team, login).await.map(Some)
    }

    async fn teams_of(&self, _: &RepoId, login: &str) -> Result<Option<Vec<String>>, HostError> {
        people::groups_of(self, login).await.map(Some)
    }

    async fn is_admin(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        people::has(self, repo, login, "REPO_ADMIN").await.map(Some)
    }

    async fn can_write(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        people::has(self, repo, login, "REPO_WRITE").await.map(Some)
    }

    async fn pusher(&self, pull: &PullRequest) -> Result<Login, HostError> {
        pushes::pusher(self, pull).await
    }

    async fn contributors(&self, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
        pushes::contributors(self, pull).await
    }

    async fn mergeability(&self, pull: &PullRequest) -> Result<Mergeability, HostError> {
        mergeability::mergeability(self, pull).await
    }

    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError> {
        comments::create(self, pull, body).await
    }

    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        comments::list(self, pull, since).await
    }

    async fn comment(&self, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
        comments::one(self, pull, id).await
    }

    async fn is_on_branch(&self, repo: &RepoId, commit: &CommitSha, branch: &str) -> Result<bool, HostError> {
        lists::is_on_branch(self, repo, commit, branch).await
    }

    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
        lists::open_pulls(self, repo).await
    }

    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        lists::repositories(self).await
    }

    fn told_key(&self, repo: &RepoId) -> Option<String> {
        self.told.get(repo)
    }

    async fn present_name(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        self.name_of_key(near, key).await
    }

    async fn is_gone(&self, pull: &PullId) -> Result<bool, HostError> {
        match self.told_repository(&pull.repo).await {
            Err(HostError::NotFound { .. }) => return Ok(false),
            answer => answer?,
        };
        match self.http.get(&self.pull_path(pull)?).await {
            Err(HostError::NotFound { .. }) => Ok(true),
            answer => answer.map(|_| false),
        }
    }

    async fn own_statuses(&self, _: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
        statuses::own(self, commit).await
    }

    fn budget(&self) -> Option<Budget> {
        self.http.budget()
    }

    fn clock(&self) -> Option<Timestamp> {
        self.http.clock()
    }

    fn requests(&self) -> u64 {
        self.http.sent()
    }

    async fn shown_comments(&self, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
        comments::shown(self, pull).await
    }

    async fn hide_comments(&self, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
        comments::hide(self, pull, comments).await
    }

    async fn rewrite_comment(&self, pull: &PullId, comment: &ShownComment, body: &str) -> Result<bool, HostError> {
        comments::rewrite(self, pull, &comment.id, body).await
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        comments::delete(self, pull, id).await
    }

    async fn react(&self, pull: &PullId, id: u64, reaction: &str) -> Result<(), HostError> {
        comments::react(self, pull, id, reaction).await
    }

    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError> {
        statuses::set(self, pull, commit, status).await
    }

    /// Merges. The source branch is deleted afterwards.
    async fn merge(&self, pull: &PullRequest, method: Option<&str>, _: SourceBranch) -> Result<Merging, HostError> {
        merge::merge(self, pull, method).await
    }

    async fn delete_source_branch(&self, pull: &PullRequest) -> Result<(), HostError> {
        merge::delete_source_branch(self, pull).await
    }

    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        Some(GitCredentials { username: self.user.clone(), password: self.http.token().now()? })
    }
}
