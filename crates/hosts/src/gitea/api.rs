//! Gitea and Forgejo over REST (v1).

mod answers;
mod comments;
mod globs;
mod issues;
mod lists;
mod merge;
mod mergeability;
mod moved;
mod pages;
mod people;
mod protection;
mod pushes;
mod reviews;
mod setup;
mod statuses;
#[cfg(test)]
mod tests;

pub use setup::{GiteaAccount, GiteaHook, GiteaRepository, GiteaVersion, TokenScopes, scopes_in};

use super::GiteaAddress;
use crate::vcs::http::{Http, odd, segment};
use crate::vcs::told::ToldKeys;
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostComment, HostError, HostIssue, IssueEdit, Mergeability, Merging,
    NewIssue, OpenPull, Profile, RepoAccess, Review, ShownComment, SourceBranch, TokenSource,
};
use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

/// Longest comment, in characters. The host has no limit of its own; its deliveries, database and proxies do.
const COMMENT_LIMIT: usize = 1_000_000;
/// Path of the API below the address of an instance.
const API: &str = "/api/v1";
/// User name for git where our login is not known: the host accepts any with a token as the password (services/auth/basic.go).
const ANY_USER: &str = "oauth2";

/// Returns true if a repository is served.
type ServesRepository = Arc<dyn Fn(&RepoId) -> bool + Send + Sync>;

/// Address of Gitea or Forgejo, and our account there.
pub struct GiteaOptions {
    /// Address of the instance.
    pub address: GiteaAddress,
    /// Our login; unknown: the one that the host reports for the token, which needs the scope `read:user`.
    pub user: Login,
    /// Access token of the account.
    pub token: TokenSource,
    /// First part of the names of our statuses.
    pub status_name: String,
    /// Returns true if a repository is served. Posts follow a renamed or transferred repository only to a served name.
    pub serves: Arc<dyn Fn(&RepoId) -> bool + Send + Sync>,
}

/// A Gitea or Forgejo host. Creating one is cheap; the first request loads certificates.
pub struct Gitea {
    address: GiteaAddress,
    profile: Profile,
    user: Login,
    status_name: String,
    serves: ServesRepository,
    http: Http,
    /// Account of the token, once the host has reported it.
    account: OnceLock<GiteaAccount>,
    told: ToldKeys,
}

impl Gitea {
    /// Creates a host, without a request.
    pub fn new(options: GiteaOptions) -> Gitea {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Gitea {
            http: Http::new(format!("{}{API}", options.address.base()), options.token, headers),
            profile: profile(&options.address),
            address: options.address,
            user: options.user,
            status_name: options.status_name,
            serves: options.serves,
            account: OnceLock::new(),
            told: ToldKeys::default(),
        }
    }

    /// Returns the JSON of a pull request, after checking that it is the requested one.
    async fn pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let path = self.pull_path(pull)?;
        let body = self.http.get(&path).await?.body;
        answers::is_asked_for(pull, &format!("GET {path}"), &body)?;
        self.told.record(&pull.repo, answers::key(&body["base"]["repo"]));
        Ok(body)
    }

    /// Path of a pull request in the API.
    fn pull_path(&self, pull: &PullId) -> Result<String, HostError> {
        Ok(format!("{}/pulls/{}", self.address.repo_path(&pull.repo)?, pull.number))
    }

    /// Returns the JSON of a branch, with what its rule tells everybody.
    async fn branch(&self, repo: &RepoId, name: &str) -> Result<Value, HostError> {
        let path = format!("{}/branches/{}", self.address.repo_path(repo)?, segment(name));
        let body = self.http.get(&path).await?.body;
        if body["name"] == name { Ok(body) } else { Err(odd(&path, "another branch")) }
    }

    /// Returns our login; requests it if neither the settings have it nor the host has been asked.
    async fn own_login(&self) -> Result<&Login, HostError> {
        match self.bot_login() {
            known if !known.is_unknown() => Ok(known),
            _ => Ok(&self.account().await?.login),
        }
    }
}

/// Limits and features of this host.
pub fn profile(address: &GiteaAddress) -> Profile {
    Profile {
        api_type: "Gitea",
        comment_limit: COMMENT_LIMIT,
        folds: true,
        html_comments: true,
        pull_mark: '#',
        versions_cover_comments: true,
        reactions: true,
        statuses_of_commits: true,
        status_details: false,
        issues: true,
        deliveries_tell_labels: true,
        deliveries_prove_comments: false,
        owner_files: &["CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS", ".forgejo/CODEOWNERS"],
        owner_language: OwnersLanguage::EveryRule,
        merge_methods: setup::STYLES.iter().map(|(name, _)| *name).collect(),
        commit_address: Some(CommitAddress::below(address.base())),
    }
}

#[async_trait]
impl Host for Gitea {
    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn bot_login(&self) -> &Login {
        self.account.get().map_or(&self.user, |account| &account.login)
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clone_url(&self, repo: &RepoId) -> Option<String> {
        self.address.clone_url(repo)
    }

    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError> {
        let told = self.pull(pull).await?;
        answers::pull_request(&self.address, pull, &told).map_err(|wrong| odd(&format!("pull request {pull}"), wrong))
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        reviews::latest(self, pull).await
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, because: &str) -> Result<(), HostError> {
        reviews::dismiss_approvals(self, pull, because).await
    }

    async fn is_team_member(&self, repo: &RepoId, team: &str, login: &str) -> Result<Option<bool>, HostError> {
        people::is_in_team(self, repo, team, login).await.map(Some)
    }

    async fn teams_of(&self, repo: &RepoId, login: &str) -> Result<Option<Vec<String>>, HostError> {
        people::teams_of(self, &repo.owner, login).await.map(Some)
    }

    async fn is_admin(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        people::is_admin(self, repo, login).await
    }

    async fn can_write(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        people::can_write(self, repo, login).await
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

    async fn present_name(&self, _: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        self.name_of_key(key).await
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

    async fn own_issues(&self, repo: &RepoId) -> Result<Vec<HostIssue>, HostError> {
        issues::own(self, repo).await
    }

    async fn issue(&self, repo: &RepoId, number: u64) -> Result<Option<HostIssue>, HostError> {
        issues::get(self, repo, number).await
    }

    async fn create_issue(&self, repo: &RepoId, issue: &NewIssue) -> Result<HostIssue, HostError> {
        issues::create(self, repo, issue).await
    }

    async fn edit_issue(&self, repo: &RepoId, number: u64, edit: &IssueEdit) -> Result<bool, HostError> {
        issues::edit(self, repo, number, edit).await
    }

    async fn react(&self, pull: &PullId, comment_id: u64, reaction: &str) -> Result<(), HostError> {
        comments::react(self, pull, comment_id, reaction).await
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
        let login = self.bot_login();
        let username = if login.is_unknown() { ANY_USER } else { login.as_str() };
        Some(GitCredentials { username: username.to_owned(), password: self.http.token().now()? })
    }
}
