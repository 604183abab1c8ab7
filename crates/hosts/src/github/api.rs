//! GitHub.com and GitHub Enterprise Server over REST (v3).

mod answers;
mod app;
mod bypass;
mod cache;
mod checks;
mod folding;
mod graphql;
mod issues;
mod lists;
mod merge;
mod moved;
mod redeliver;
mod reviews;
mod setup;
mod sign_in;
mod teams;

use crate::vcs::http::{Http, odd, segment};
use crate::vcs::told::ToldKeys;
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostError, HostIssue, IssueEdit, Mergeability, Merging, NewIssue, OpenPull,
    PostLimit, Profile, RepoAccess, Review, ShownComment, SourceBranch, TokenSource,
};
use app::App;
use async_trait::async_trait;
use backon::Retryable as _;
use cache::Cache;
use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::sync::Arc;
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

pub use app::{AppFacts, AppOptions, Installation};
pub use bypass::BypassedStatuses;
pub use setup::{NewApp, convert_manifest};
pub use sign_in::{CodeError, OauthApp, SignedInAccount};

/// Longest comment, in characters.
const COMMENT_LIMIT: usize = 65_536;
/// Most requests for a pull request that is not found: GitHub's API lags behind its own webhooks.
const PULL_TRIES: usize = 3;
/// Name under which git sends a token that belongs to no account.
const OF_TOKEN: &str = "x-access-token";

/// Address of GitHub, and our account there.
pub struct GithubOptions {
    /// Host name as in repository ids, without scheme and port.
    pub hostname: String,
    /// `https://api.github.com` or `https://HOST/api/v3`, without trailing slash.
    pub api_url: String,
    /// Login of our account.
    pub user: Login,
    /// Token of the account; unused if the server is an App.
    pub token: TokenSource,
    /// GitHub App that the server is, instead of an account with a token.
    pub app: Option<AppOptions>,
    /// Returns true if a repository is served. Posts follow a renamed or transferred repository only to a served name.
    pub serves: Serves,
    /// Most posts in an hour; absent: no limit.
    pub posts_per_hour: Option<u32>,
    /// Id of the App that posts statuses as check runs; absent: they are posted as commit statuses.
    pub checks_of: Option<u64>,
    /// Statuses that mergeability ignores; absent: GitHub's own answer decides.
    pub bypassed: Option<BypassedStatuses>,
}

/// Returns true if a repository is served.
pub type Serves = Arc<dyn Fn(&RepoId) -> bool + Send + Sync>;

/// A GitHub host. Creating one is cheap; the first request loads certificates.
pub struct Github {
    hostname: String,
    /// Address of the host's pages, and prefix of its git addresses.
    pages: String,
    profile: Profile,
    user: Login,
    serves: Serves,
    http: Http,
    app: Option<Arc<App>>,
    posts_per_hour: Option<u32>,
    checks_of: Option<u64>,
    bypassed: Option<BypassedStatuses>,
    /// Lists that reconciliation requests in every round.
    pulls: Cache<OpenPull>,
    statuses: Cache<(CommitStatus, bool)>,
    told: ToldKeys,
    repositories: Cache<RepoAccess>,
}

impl Github {
    /// Creates a host, without a request.
    pub fn new(options: GithubOptions) -> Github {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
        let mut http = Http::new(options.api_url.trim_end_matches('/').to_owned(), options.token, headers);
        let app = options.app.map(|app| Arc::new(App::new(app, pages_url(&options.api_url))));
        if let Some(app) = &app {
            http = http.with_issued(Arc::clone(app) as _);
        }
        Github {
            hostname: options.hostname,
            pages: pages_url(&options.api_url),
            profile: Profile { status_details: options.checks_of.is_some(), ..profile(&options.api_url) },
            user: options.user,
            serves: options.serves,
            http,
            app,
            posts_per_hour: options.posts_per_hour,
            checks_of: options.checks_of,
            bypassed: options.bypassed,
            pulls: Cache::default(),
            statuses: Cache::default(),
            told: ToldKeys::default(),
            repositories: Cache::default(),
        }
    }

    /// Loads certificates before the first request, while the port is open and no request waits yet.
    pub async fn prepare(&self) -> Result<(), HostError> {
        self.http.prepare().await
    }

    /// Returns the JSON of a pull request, after checking that it is the requested one. The request is repeated while it is not found.
    async fn pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let found = self.found_pull(pull).await?;
        answers::is_asked_for(pull, &found)?;
        self.told.record(&pull.repo, answers::key(&found["base"]["repo"]));
        Ok(found)
    }

    async fn found_pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let path = format!("{}/pulls/{}", repo_path(&pull.repo)?, pull.number);
        let asked = (|| self.http.get(&path))
            .retry(self.http.waits(PULL_TRIES))
            .when(|error| matches!(error, HostError::NotFound { .. }));
        Ok(asked.await?.body)
    }
}

/// Returns the address of the pages of the host whose API is at this address.
pub fn pages_url(api_url: &str) -> String {
    let url = api_url.trim_end_matches('/').trim_end_matches("/api/v3");
    url.replacen("https://api.", "https://", 1)
}

/// Limits and features of the host whose API is at this address.
pub fn profile(api_url: &str) -> Profile {
    Profile {
        api_type: "Github",
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
        deliveries_prove_comments: true,
        owner_files: &[".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"],
        owner_language: OwnersLanguage::LastRule,
        merge_methods: merge::METHODS.iter().map(|(name, _)| *name).collect(),
        commit_address: Some(CommitAddress::below(pages_url(api_url))),
    }
}

/// `/repos/owner/name`; fails for names that would change the path.
fn repo_path(repo: &RepoId) -> Result<String, HostError> {
    let odd_name = |name: &str| name.is_empty() || name.chars().all(|c| c == '.');
    if odd_name(&repo.owner) || odd_name(&repo.name) {
        let message = "no such repository can exist".to_owned();
        return Err(HostError::Rejected { what: repo.to_string(), status: 404, message });
    }
    Ok(format!("/repos/{}/{}", segment(&repo.owner), segment(&repo.name)))
}

#[async_trait]
impl Host for Github {
    fn hostname(&self) -> &str {
        &self.hostname
    }

    fn bot_login(&self) -> &Login {
        self.app.as_ref().and_then(|app| app.login()).unwrap_or(&self.user)
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clone_url(&self, repo: &RepoId) -> Option<String> {
        let url = format!("{}/{}.git", self.pages, repo.full_name());
        repo.check_clone_url(&url).is_ok().then_some(url)
    }

    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError> {
        let body = self.pull(pull).await?;
        answers::pull_request(pull, &body)
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        reviews::latest(&self.http, pull).await
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, because: &str) -> Result<(), HostError> {
        reviews::dismiss_approvals(&self.http, pull, because).await
    }

    async fn is_team_member(&self, repo: &RepoId, team: &str, login: &str) -> Result<Option<bool>, HostError> {
        teams::is_member(&self.http, repo, team, login).await.map(Some)
    }

    async fn teams_of(&self, repo: &RepoId, login: &str) -> Result<Option<Vec<String>>, HostError> {
        teams::list(self, &repo.owner, login).await.map(Some)
    }

    async fn is_admin(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        reviews::is_admin(&self.http, repo, login).await.map(Some)
    }

    async fn can_write(&self, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
        reviews::is_writer(&self.http, repo, login).await.map(Some)
    }

    async fn contributors(&self, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
        reviews::contributors(&self.http, pull).await
    }

    async fn mergeability(&self, pull: &PullRequest) -> Result<Mergeability, HostError> {
        merge::mergeability(self, pull).await
    }

    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError> {
        let path = format!("/issues/{}/comments", pull.number);
        let answer = self.say(Method::POST, &pull.repo, &path, Some(json!({ "body": body }))).await;
        answer.map_err(HostError::of_comment)?.body["id"].as_u64().ok_or_else(|| odd(&path, "a comment without id"))
    }

    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        lists::comments(self, pull, since).await
    }

    async fn is_on_branch(&self, repo: &RepoId, commit: &CommitSha, branch: &str) -> Result<bool, HostError> {
        lists::is_on_branch(self, repo, commit, branch).await
    }

    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
        lists::open_pulls(self, repo).await
    }

    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        setup::repositories(self).await
    }

    fn told_key(&self, repo: &RepoId) -> Option<String> {
        self.told.get(repo)
    }

    async fn present_name(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        self.name_of_key(near, key).await
    }

    async fn is_gone(&self, pull: &PullId) -> Result<bool, HostError> {
        let repo = repo_path(&pull.repo)?;
        match self.http.get(&repo).await {
            Err(HostError::NotFound { .. }) => return Ok(false),
            answer => answer?,
        };
        match self.http.get(&format!("{repo}/pulls/{}", pull.number)).await {
            Err(HostError::NotFound { .. }) => Ok(true),
            answer => answer.map(|_| false),
        }
    }

    fn post_limit(&self) -> Option<PostLimit> {
        self.posts_per_hour.map(PostLimit::PostsPerHour)
    }

    async fn own_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
        match self.checks_of {
            Some(app) => checks::own(self, app, &pull.repo, commit).await,
            None => lists::own_statuses(self, &pull.repo, commit).await,
        }
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
        folding::shown(self, pull).await
    }

    async fn hide_comments(&self, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
        folding::hide(self, pull, comments).await
    }

    async fn rewrite_comment(&self, pull: &PullId, comment: &ShownComment, body: &str) -> Result<bool, HostError> {
        folding::rewrite(self, pull, comment, body).await
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        match self.say(Method::DELETE, &pull.repo, &format!("/issues/comments/{id}"), None).await {
            Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
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
        let path = format!("/issues/comments/{comment_id}/reactions");
        self.say(Method::POST, &pull.repo, &path, Some(json!({ "content": reaction }))).await.map(drop)
    }

    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError> {
        match self.checks_of {
            Some(app) => checks::set(self, app, pull, commit, status).await,
            None => lists::set_status(self, &pull.repo, commit, status).await,
        }
    }

    async fn merge(&self, pull: &PullRequest, method: Option<&str>, _: SourceBranch) -> Result<Merging, HostError> {
        merge::merge(self, pull, method).await
    }

    async fn delete_source_branch(&self, pull: &PullRequest) -> Result<(), HostError> {
        merge::delete_source_branch(self, pull).await
    }

    async fn redeliver_missed(&self) -> Result<usize, HostError> {
        match &self.app {
            Some(_) => redeliver::missed(&self.http).await,
            None => Ok(0),
        }
    }

    async fn git_credentials(&self, owner: &str) -> Option<GitCredentials> {
        let password = match &self.app {
            Some(app) => match app.installation_token(&self.http, owner).await {
                Ok(token) => token?,
                Err(error) => {
                    tracing::error!("there is no token for git in the repositories of {owner}: {error}");
                    return None;
                }
            },
            None => self.http.token().now()?,
        };
        let of_account = self.app.is_none() && !self.user.is_unknown();
        let username = if of_account { self.user.as_str() } else { OF_TOKEN };
        Some(GitCredentials { username: username.to_owned(), password })
    }

    async fn module_credentials(&self, address: &str) -> Vec<(String, GitCredentials)> {
        let mut all = Vec::new();
        for (address, owner) in self.module_owners(address).await {
            all.extend(self.git_credentials(&owner).await.map(|credentials| (address, credentials)));
        }
        all
    }

    async fn reading_credentials(&self, address: &str) -> Option<Vec<(String, GitCredentials)>> {
        let app = self.app.as_ref()?;
        let mut all = Vec::new();
        for (address, owner) in self.module_owners(address).await {
            match app.reading_token(&self.http, &owner).await {
                Ok(password) => all.push((address, GitCredentials { username: OF_TOKEN.to_owned(), password })),
                Err(error) => tracing::error!("a job gets no token for modules of {owner}: {error}"),
            }
        }
        Some(all)
    }
}

impl Github {
    /// Returns the accounts whose modules may be fetched from an address, each with the part of the address that is its own.
    async fn module_owners(&self, address: &str) -> Vec<(String, String)> {
        let path = url::Url::parse(address).ok().map(|url| url.path().trim_matches('/').to_owned()).unwrap_or_default();
        let named = path.split('/').next().filter(|owner| !owner.is_empty()).map(str::to_owned);
        match (&self.app, named) {
            (_, Some(owner)) => vec![(address.to_owned(), owner)],
            (None, None) => vec![(address.to_owned(), String::new())],
            // Each installation has a token of its own.
            (Some(app), None) => {
                app.owners(&self.http).await.into_iter().map(|o| (format!("{address}/{o}"), o)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
