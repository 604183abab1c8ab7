//! Bitbucket Cloud over REST (2.0). The host counts the requests of an hour, so each answer is used as far as it goes.

mod account;
mod activity;
mod answers;
mod comments;
mod commits;
mod heads;
mod lists;
mod merge;
mod mergeability;
mod moved;
mod people;
mod recent;
mod restrictions;
mod reviews;
mod setup;
mod statuses;
#[cfg(test)]
mod tests;

pub use account::BitbucketCloudAccount;
pub use setup::{BitbucketCloudHook, BitbucketCloudRepository};

use super::{BitbucketCloudAddress, BitbucketCloudCredentials};
use crate::vcs::http::Http;
use crate::vcs::told::{SourceBranches, ToldKeys};
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostComment, HostError, Mergeability, Merging, OpenPull, Profile,
    RepoAccess, Review, ShownComment, SourceBranch, TokenSource,
};
use async_trait::async_trait;
use commits::FullCommits;
use heads::PullHeads;
use jiff::Timestamp;
use recent::RecentPulls;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::Value;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

/// Longest comment, in characters. The host documents no limit; this is that of Bitbucket Data Center.
const COMMENT_LIMIT: usize = 32_768;
/// Requests that a free workspace permits in an hour (support.atlassian.com/bitbucket-cloud, "API request limits").
const HOURLY_REQUESTS: u32 = 1_000;

/// Returns true if a repository is served.
type ServesCloudRepository = Arc<dyn Fn(&RepoId) -> bool + Send + Sync>;

/// Address of Bitbucket Cloud, and our account there.
pub struct BitbucketCloudOptions {
    /// Address of the host.
    pub address: BitbucketCloudAddress,
    /// Owner of the token.
    pub credentials: BitbucketCloudCredentials,
    /// API token or access token.
    pub token: TokenSource,
    /// First part of the names of our statuses.
    pub status_name: String,
    /// Address of the server's own pages: a status has to have an address.
    pub server_url: String,
    /// Returns true if a repository is served. Posts follow a renamed or transferred repository only to a served name.
    pub serves: Arc<dyn Fn(&RepoId) -> bool + Send + Sync>,
}

/// A Bitbucket Cloud host. Creating one is cheap; the first request loads certificates.
pub struct BitbucketCloud {
    address: BitbucketCloudAddress,
    profile: Profile,
    credentials: BitbucketCloudCredentials,
    status_name: String,
    server_url: String,
    serves: ServesCloudRepository,
    http: Http,
    /// Account of the token, once the host has reported it.
    account: OnceLock<BitbucketCloudAccount>,
    /// Login before that.
    unknown: Login,
    /// True once the host has refused to report it.
    untold: AtomicBool,
    told: ToldKeys,
    commits: FullCommits,
    branches: SourceBranches,
    heads: PullHeads,
    recent: RecentPulls,
}

impl BitbucketCloud {
    /// Creates a host, without a request.
    pub fn new(options: BitbucketCloudOptions) -> BitbucketCloud {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let http = Http::new(options.address.api().to_owned(), options.token, headers);
        BitbucketCloud {
            http: match options.credentials.api_user() {
                Some(user) => http.basic(user),
                None => http,
            },
            profile: profile(&options.address),
            address: options.address,
            credentials: options.credentials,
            status_name: options.status_name,
            server_url: options.server_url,
            serves: options.serves,
            account: OnceLock::new(),
            unknown: Login::unknown(),
            untold: AtomicBool::new(false),
            told: ToldKeys::default(),
            commits: FullCommits::default(),
            branches: SourceBranches::default(),
            heads: PullHeads::default(),
            recent: RecentPulls::default(),
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
        self.told.record(&pull.repo, answers::key(&told["destination"]["repository"]));
        self.branches.record(pull, answers::branch(&told["source"]));
        Ok(())
    }

    /// Path of a pull request in the API.
    fn pull_path(&self, pull: &PullId) -> Result<String, HostError> {
        Ok(format!("{}/pullrequests/{}", self.address.repo_path(&pull.repo)?, pull.number))
    }

    /// Returns the JSON of a repository, after checking that it is the requested one.
    async fn told_repository(&self, repo: &RepoId) -> Result<Value, HostError> {
        let path = self.address.repo_path(repo)?;
        let body = self.http.get(&path).await?.body;
        answers::is_repository(repo, &format!("GET {path}"), &body)?;
        Ok(body)
    }
}

/// Limits and features of this host.
pub fn profile(address: &BitbucketCloudAddress) -> Profile {
    Profile {
        api_type: "BitbucketCloud",
        comment_limit: COMMENT_LIMIT,
        folds: false,
        html_comments: false,
        pull_mark: '#',
        versions_cover_comments: true,
        reactions: false,
        statuses_of_commits: true,
        status_details: false,
        issues: false,
        // There are none.
        deliveries_tell_labels: true,
        // Whoever administers a repository knows the secret of its webhooks.
        deliveries_prove_comments: false,
        // The language of `.bitbucket/CODEOWNERS` is one of its own
        // (support.atlassian.com/bitbucket-cloud/docs/set-up-and-use-code-owners).
        owner_files: &[],
        owner_language: OwnersLanguage::LastRule,
        merge_methods: merge::METHODS.iter().map(|(name, _)| *name).collect(),
        commit_address: Some(CommitAddress::below(address.site()).at("commits")),
    }
}

#[async_trait]
impl Host for BitbucketCloud {
    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn bot_login(&self) -> &Login {
        self.account.get().map_or(&self.unknown, |account| &account.login)
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
        let told = self.present_pull(pull).await?;
        self.whole_pull(pull, &told).await
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        reviews::latest(self, pull).await
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, _: &str) -> Result<(), HostError> {
        reviews::dismiss_approvals(self, pull).await
    }

    async fn is_admin(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        Ok(Some(people::permission(self, repo, login).await?.is_admin()))
    }

    async fn can_write(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        Ok(Some(people::permission(self, repo, login).await?.can_write()))
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

    async fn own_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
        statuses::own(self, pull, commit).await
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

    fn hourly_requests(&self) -> Option<u32> {
        Some(HOURLY_REQUESTS)
    }

    async fn shown_comments(&self, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
        comments::shown(self, pull).await
    }

    /// Does nothing: the host cannot hide comments, and their texts stay.
    async fn hide_comments(&self, _: &PullId, _: &[ShownComment]) -> Result<(), HostError> {
        Ok(())
    }

    async fn rewrite_comment(&self, pull: &PullId, comment: &ShownComment, body: &str) -> Result<bool, HostError> {
        comments::rewrite(self, pull, &comment.id, body).await
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        comments::delete(self, pull, id).await
    }

    /// Does nothing: comments have no reactions.
    async fn react(&self, _: &PullId, _: u64, _: &str) -> Result<(), HostError> {
        Ok(())
    }

    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError> {
        statuses::set(self, pull, commit, status).await
    }

    async fn merge(
        &self,
        pull: &PullRequest,
        method: Option<&str>,
        source: SourceBranch,
    ) -> Result<Merging, HostError> {
        merge::merge(self, pull, method, source).await
    }

    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        let username = self.credentials.git_user().to_owned();
        Some(GitCredentials { username, password: self.http.token().now()? })
    }
}
