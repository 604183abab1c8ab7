//! GitLab over REST (v4).

mod answers;
mod lists;
mod merge;
mod mergeability;
mod notes;
mod people;
mod pushes;
mod quick_actions;
mod redeliver;
mod reviews;
mod setup;
mod statuses;
#[cfg(test)]
mod tests;

pub use people::GitlabAccount;
pub use setup::{AccessToken, HookAnswer, ProjectHook};

use super::GitlabAddress;
use crate::vcs::http::{Http, odd, segment};
use crate::vcs::told::ToldKeys;
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostComment, HostError, Mergeability, Merging, OpenPull, PostLimit,
    Profile, RepoAccess, Review, ShownComment, SourceBranch, TokenSource,
};
use async_trait::async_trait;
use jiff::Timestamp;
use people::UserIds;
use redeliver::ResendRounds;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::Value;
use std::sync::OnceLock;
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

/// Longest comment, in characters. The host's own limit is 1,000,000 (docs.gitlab.com/administration/instance_limits), and a page of
/// comments has to fit into one answer.
const COMMENT_LIMIT: usize = 250_000;
/// Path of the API below the address of an instance.
const API: &str = "/api/v4";
/// User name for git where our login is not known: GitLab accepts any with a token
/// (docs.gitlab.com/user/profile/personal_access_tokens, "Clone repository").
const ANY_USER: &str = "oauth2";
/// GitLab.com, whose limits are known. Those of other instances are settings of theirs.
const GITLAB_COM: &str = "gitlab.com";
/// Most comments of one account on GitLab.com in a minute (docs.gitlab.com/user/gitlab_com, "Rate limits on GitLab.com").
const COMMENTS_PER_MINUTE: u32 = 60;

/// Address of GitLab, and our account there.
pub struct GitlabOptions {
    /// Address of the instance.
    pub address: GitlabAddress,
    /// Our login; absent: the one that the host reports for the token.
    pub user: Option<Login>,
    /// Personal, project or group access token.
    pub token: TokenSource,
    /// First part of the names of our statuses.
    pub status_name: String,
    /// Full paths of the groups that [`Host::teams_of`] looks in: the host lists nobody's groups.
    pub groups: Vec<String>,
    /// Address that webhooks deliver to us. Failed deliveries to it are requested again; empty: none are.
    pub events_url: String,
}

/// A GitLab host. Creating one is cheap; the first request loads certificates.
pub struct Gitlab {
    address: GitlabAddress,
    profile: Profile,
    user: Login,
    status_name: String,
    groups: Vec<String>,
    events_url: String,
    http: Http,
    /// Account of the token, once the host has reported it.
    account: OnceLock<GitlabAccount>,
    users: UserIds,
    told: ToldKeys,
    resends: ResendRounds,
}

impl Gitlab {
    /// Creates a host, without a request.
    pub fn new(options: GitlabOptions) -> Gitlab {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Gitlab {
            http: Http::new(format!("{}{API}", options.address.base()), options.token, headers),
            profile: profile(&options.address),
            address: options.address,
            user: options.user.unwrap_or_else(Login::unknown),
            status_name: options.status_name,
            groups: options.groups,
            events_url: options.events_url,
            account: OnceLock::new(),
            users: UserIds::default(),
            told: ToldKeys::default(),
            resends: ResendRounds::default(),
        }
    }

    /// Returns the JSON of a merge request, after checking that it is the requested one.
    async fn merge_request(&self, pull: &PullId) -> Result<Value, HostError> {
        let path = self.pull_path(pull)?;
        let body = self.http.get(&path).await?.body;
        answers::is_asked_for(pull, &format!("GET {path}"), &body)?;
        self.told.record(&pull.repo, answers::key(&body));
        Ok(body)
    }

    /// Returns the JSON of a project, after checking that it is the requested one.
    async fn project(&self, repo: &RepoId) -> Result<Value, HostError> {
        let path = self.address.project_path(repo)?;
        let body = self.http.get(&path).await?.body;
        let name = body["path_with_namespace"].as_str().ok_or_else(|| odd(&path, "no path_with_namespace"))?;
        answers::is_project(repo, &format!("GET {path}"), name)?;
        Ok(body)
    }

    /// Path of a merge request in the API.
    fn pull_path(&self, pull: &PullId) -> Result<String, HostError> {
        Ok(format!("{}/merge_requests/{}", self.address.project_path(&pull.repo)?, pull.number))
    }

    /// Sends a change. For a project under a former name the host refuses it without naming the present one: it redirects a GET alone.
    async fn change(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, HostError> {
        match self.http.send(method, path, body).await {
            Err(HostError::Rejected { what, status: 405, message }) if message.contains("moved projects") => {
                Err(HostError::Moved { what, to: "the project's present name".to_owned() })
            }
            answered => Ok(answered?.body),
        }
    }
}

/// Limits and features of this host.
pub fn profile(address: &GitlabAddress) -> Profile {
    Profile {
        api_type: "Gitlab",
        comment_limit: COMMENT_LIMIT,
        folds: true,
        html_comments: true,
        pull_mark: '!',
        versions_cover_comments: true,
        reactions: true,
        statuses_of_commits: true,
        status_details: false,
        issues: false,
        deliveries_tell_labels: true,
        // A custom template of a webhook makes its body (docs.gitlab.com/user/project/integrations/webhooks, "Custom webhook template").
        deliveries_prove_comments: false,
        owner_files: &["CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"],
        owner_language: OwnersLanguage::Sections,
        merge_methods: merge::METHODS.to_vec(),
        // The host redirects it to the same path after `/-/`.
        commit_address: Some(CommitAddress::below(address.base())),
    }
}

#[async_trait]
impl Host for Gitlab {
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
        let told = self.merge_request(pull).await?;
        let what = format!("merge request {pull}");
        let read = answers::pull_request(&self.address, pull, &told).map_err(|wrong| odd(&what, wrong))?;
        self.with_source(read, &told["source_project_id"]).await
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        reviews::latest(self, pull).await
    }

    async fn missing_approvals(&self, pull: &PullRequest) -> Result<Option<String>, HostError> {
        reviews::missing(self, pull).await
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, _: &str) -> Result<(), HostError> {
        reviews::reset_approvals(self, pull).await
    }

    async fn is_team_member(&self, _: &RepoId, team: &str, login: &str) -> Result<Option<bool>, HostError> {
        people::is_in_group(self, team, login).await.map(Some)
    }

    async fn teams_of(&self, _: &RepoId, login: &str) -> Result<Option<Vec<String>>, HostError> {
        people::groups_of(self, login).await.map(Some)
    }

    async fn is_admin(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        Ok(Some(people::access_level(self, repo, login).await? >= people::MAINTAINER))
    }

    async fn can_write(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        Ok(Some(people::access_level(self, repo, login).await? >= people::DEVELOPER))
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
        notes::create(self, pull, body).await
    }

    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        notes::comments(self, pull, since).await
    }

    async fn comment(&self, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
        notes::one(self, pull, id).await
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
        let path = format!("/projects/{}", segment(key));
        let found = match self.http.get(&path).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        if found["id"].as_u64().map(|id| id.to_string()).as_deref() != Some(key) {
            return Err(odd(&path, "another project"));
        }
        let name = found["path_with_namespace"].as_str().and_then(|name| self.address.repository(name));
        name.map(Some).ok_or_else(|| odd(&path, "a name that no project can have"))
    }

    async fn is_gone(&self, pull: &PullId) -> Result<bool, HostError> {
        match self.project(&pull.repo).await {
            Err(HostError::NotFound { .. }) => return Ok(false),
            answer => answer?,
        };
        match self.http.get(&self.pull_path(pull)?).await {
            Err(HostError::NotFound { .. }) => Ok(true),
            answer => answer.map(|_| false),
        }
    }

    fn post_limit(&self) -> Option<PostLimit> {
        let is_known = self.hostname() == GITLAB_COM;
        is_known.then_some(PostLimit::CommentsPerMinute(COMMENTS_PER_MINUTE))
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
        notes::shown(self, pull).await
    }

    async fn hide_comments(&self, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
        notes::hide(self, pull, comments).await
    }

    async fn rewrite_comment(&self, pull: &PullId, comment: &ShownComment, body: &str) -> Result<bool, HostError> {
        notes::rewrite(self, pull, &comment.id, body).await
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        notes::delete(self, pull, id).await
    }

    async fn react(&self, pull: &PullId, comment_id: u64, reaction: &str) -> Result<(), HostError> {
        notes::react(self, pull, comment_id, reaction).await
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

    async fn redeliver_missed(&self) -> Result<usize, HostError> {
        redeliver::missed(self).await
    }

    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        let login = self.bot_login();
        let username = if login.is_unknown() { ANY_USER } else { login.as_str() };
        Some(GitCredentials { username: username.to_owned(), password: self.http.token().now()? })
    }
}
