//! Azure DevOps Services and Server over REST (7.0).

mod completion;
mod policies;
mod setup;
mod statuses;
#[cfg(test)]
mod tests;
mod threads;
mod votes;

pub use setup::{Scope, Subscription};

use super::AzureDevOpsAddress;
use super::address::{organization_of, repo_path, segments};
use super::shapes::{self, HEADS};
use crate::vcs::http::{Http, odd, segment, too_many};
use crate::vcs::told::ToldKeys;
use crate::vcs::{
    Budget, Comments, GitCredentials, Host, HostError, Mergeability, Merging, OpenPull, Profile, RepoAccess, Review,
    ShownComment, SourceBranch, TokenSource,
};
use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tidelock_core::domain::state::CommitStatus;
use tidelock_core::domain::{CommitAddress, CommitSha, Login, OwnersLanguage, PullId, PullRequest, RepoId};

/// Longest comment, in characters.
const COMMENT_LIMIT: usize = 150_000;
/// Version of the API in requests. Server 2022 and Services support it.
const VERSION: &str = "api-version=7.0";
/// Version for the parts of the API that are still a preview.
const PREVIEW: &str = "api-version=7.0-preview";
/// Most pages of a list that is continued by tokens.
const TOKEN_PAGES: u32 = 100;
/// Pull requests on one page.
const PULLS_PER_PAGE: u32 = 100;
/// Most pages of open pull requests of one repository.
const PULL_PAGES: u32 = 100;

/// Address of Azure DevOps, and our account there.
pub struct AzureDevOpsOptions {
    /// Address of the host.
    pub address: AzureDevOpsAddress,
    /// Our login: the unique name of the token's account.
    pub user: Login,
    /// Personal access token.
    pub token: TokenSource,
    /// Organizations, or collections, whose repositories are listed.
    pub organizations: Vec<String>,
    /// First part of the names of our statuses.
    pub status_name: String,
}

/// An Azure DevOps host. Creating one is cheap; the first request loads certificates.
pub struct AzureDevOps {
    address: AzureDevOpsAddress,
    profile: Profile,
    user: Login,
    organizations: Vec<String>,
    status_name: String,
    http: Http,
    /// Account of the token in each organization.
    accounts: Mutex<HashMap<String, Account>>,
    told: ToldKeys,
}

/// Account of the token in one organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Id of the account on the host.
    pub id: String,
    /// Unique name: an email address, or `DOMAIN\name`.
    pub login: Login,
}

impl AzureDevOps {
    /// Creates a host, without a request.
    pub fn new(options: AzureDevOpsOptions) -> AzureDevOps {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // Makes the host refuse, instead of redirecting to a sign-in page.
        headers.insert("x-tfs-fedauthredirect", HeaderValue::from_static("Suppress"));
        AzureDevOps {
            http: Http::new(options.address.base().to_owned(), options.token, headers).basic(""),
            profile: profile(&options.address),
            address: options.address,
            user: options.user,
            organizations: options.organizations,
            status_name: options.status_name,
            accounts: Mutex::default(),
            told: ToldKeys::default(),
        }
    }

    /// Returns the JSON of a pull request, after checking that it is the requested one.
    async fn pull(&self, id: &PullId) -> Result<Value, HostError> {
        let path = format!("{}?{VERSION}", pull_path(id)?);
        let body = self.http.get(&path).await?.body;
        self.is_asked_for(id, &path, &body)?;
        self.told.record(&id.repo, shapes::key(&body["repository"]));
        Ok(body)
    }

    /// Fails if an answer is about another repository or number: the host may redirect the former name of a project.
    fn is_asked_for(&self, id: &PullId, what: &str, body: &Value) -> Result<(), HostError> {
        let found =
            shapes::pull_id(&self.address, organization_of(&id.repo), body).map_err(|wrong| odd(what, wrong))?;
        if !found.repo.is_named(&id.repo.owner, &id.repo.name) {
            return Err(HostError::Moved { what: what.to_owned(), to: found.repo.full_name() });
        }
        if found.number == id.number { Ok(()) } else { Err(odd(what, "another number")) }
    }

    /// Returns the tip of a branch; absent if there is no such branch.
    async fn tip(&self, repo: &RepoId, branch: &str) -> Result<Option<CommitSha>, HostError> {
        // The filter is a prefix: names of other branches may begin with this one.
        let path = format!("{}/refs?filter={}&{VERSION}", repo_path(repo)?, segment(&format!("heads/{branch}")));
        let name = format!("{HEADS}{branch}");
        let found = self.rows(&path).await?.into_iter().find(|reference| reference["name"] == name.as_str());
        Ok(found.and_then(|reference| shapes::sha(&reference["objectId"])))
    }

    /// Returns all rows of a list, from all pages.
    async fn rows(&self, path: &str) -> Result<Vec<Value>, HostError> {
        let (mut all, mut page) = (Vec::new(), path.to_owned());
        for _ in 0..TOKEN_PAGES {
            let mut answer = self.http.get(&page).await?;
            let Some(Value::Array(rows)) = answer.body.get_mut("value").map(Value::take) else {
                return Err(odd(path, "not a list"));
            };
            all.extend(rows);
            match answer.continuation {
                Some(token) => page = format!("{path}&continuationToken={}", segment(&token)),
                None => return Ok(all),
            }
        }
        let message = format!("more than {TOKEN_PAGES} pages");
        Err(HostError::Rejected { what: format!("GET {path}"), status: 200, message })
    }

    /// Fills in the commits that the host leaves out until it has tried to merge.
    async fn with_tips(&self, repo: &RepoId, mut pull: Value) -> Result<Value, HostError> {
        for (commit, branch) in [("lastMergeSourceCommit", "sourceRefName"), ("lastMergeTargetCommit", "targetRefName")]
        {
            let is_fork = pull["forkSource"].is_object() && commit == "lastMergeSourceCommit";
            let name = pull[branch].as_str().and_then(|name| name.strip_prefix(HEADS)).map(str::to_owned);
            if shapes::commit(&pull[commit]).is_none()
                && !is_fork
                && let Some(name) = name
                && let Some(tip) = self.tip(repo, &name).await?
            {
                pull[commit] = serde_json::json!({ "commitId": tip });
            }
        }
        Ok(pull)
    }

    /// Returns the account of the token in an organization. It is requested once.
    pub async fn account(&self, organization: &str) -> Result<Account, HostError> {
        let known = || self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = known().get(organization) {
            return Ok(account.clone());
        }
        let path = format!("/{}/_apis/connectionData?{PREVIEW}", segments(organization));
        let body = self.http.get(&path).await?.body;
        let user = &body["authenticatedUser"];
        let account = Account {
            id: user["id"].as_str().ok_or_else(|| odd(&path, "no authenticatedUser.id"))?.to_owned(),
            login: user["properties"]["Account"]["$value"].as_str().map_or_else(Login::unknown, Login::new),
        };
        known().insert(organization.to_owned(), account.clone());
        Ok(account)
    }

    /// Login of a person. Our own is the one in the settings, independent of the host's name for it.
    fn login(&self, account: &Account, person: &Value) -> Login {
        if person["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(&account.id)) {
            return self.user.clone();
        }
        shapes::login(person)
    }
}

/// Limits and features of this host.
pub fn profile(address: &AzureDevOpsAddress) -> Profile {
    Profile {
        api_type: "AzureDevops",
        comment_limit: COMMENT_LIMIT,
        folds: true,
        html_comments: true,
        pull_mark: '!',
        versions_cover_comments: false,
        reactions: false,
        statuses_of_commits: false,
        status_details: false,
        // Types and states of work items depend on the process of a project.
        issues: false,
        // The documented deliveries have no labels (learn.microsoft.com/azure/devops/service-hooks/events).
        deliveries_tell_labels: false,
        deliveries_prove_comments: true,
        owner_files: &["CODEOWNERS", "docs/CODEOWNERS"],
        owner_language: OwnersLanguage::LastRule,
        merge_methods: completion::METHODS.iter().map(|(name, ..)| *name).collect(),
        commit_address: Some(CommitAddress::below(address.base()).in_folder("_git")),
    }
}

/// Path of a pull request in the API.
fn pull_path(pull: &PullId) -> Result<String, HostError> {
    Ok(format!("{}/pullRequests/{}", repo_path(&pull.repo)?, pull.number))
}

/// Rows of a list.
fn list(body: &Value) -> impl Iterator<Item = &Value> {
    body["value"].as_array().into_iter().flatten()
}

#[async_trait]
impl Host for AzureDevOps {
    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn bot_login(&self) -> &Login {
        &self.user
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clone_url(&self, repo: &RepoId) -> Option<String> {
        self.address.clone_url(repo)
    }

    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError> {
        let body = self.with_tips(&pull.repo, self.pull(pull).await?).await?;
        shapes::pull_request(&self.address, pull, &body).map_err(|wrong| odd(&format!("pull request {pull}"), wrong))
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        votes::latest(self, pull).await
    }

    async fn pusher(&self, pull: &PullRequest) -> Result<Login, HostError> {
        let head = statuses::iteration_to_come(self, &pull.id, &pull.head.commit).await?;
        Ok(head.map_or_else(Login::unknown, |push| push.author))
    }

    async fn contributors(&self, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
        let pushes = statuses::iterations(self, &pull.id).await?;
        Ok(pushes.into_iter().map(|push| push.author).collect())
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, _: &str) -> Result<(), HostError> {
        votes::reset_approvals(self, pull).await
    }

    async fn mergeability(&self, pull: &PullRequest) -> Result<Mergeability, HostError> {
        policies::mergeability(self, pull).await
    }

    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError> {
        threads::create(self, pull, body).await
    }

    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        threads::comments(self, pull, since).await
    }

    async fn is_on_branch(&self, repo: &RepoId, commit: &CommitSha, branch: &str) -> Result<bool, HostError> {
        let Some(tip) = self.tip(repo, branch).await? else { return Ok(false) };
        if tip == *commit {
            return Ok(true);
        }
        let path = format!(
            "{}/commits/{}/mergebases?otherCommitId={}&{PREVIEW}",
            repo_path(repo)?,
            segment(tip.as_str()),
            segment(commit.as_str())
        );
        match self.http.get(&path).await {
            Ok(answer) => Ok(list(&answer.body).any(|base| shapes::commit(base).as_ref() == Some(commit))),
            Err(HostError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
        let path = format!("{}/pullrequests?searchCriteria.status=active&{VERSION}", repo_path(repo)?);
        let mut open = Vec::new();
        for page in 0..PULL_PAGES {
            let path = format!("{path}&$top={PULLS_PER_PAGE}&$skip={}", page * PULLS_PER_PAGE);
            let body = self.http.get(&path).await?.body;
            let Value::Array(rows) = &body["value"] else { return Err(odd(&path, "not a list")) };
            for row in rows {
                let number = row["pullRequestId"].as_u64().ok_or_else(|| odd(&path, "no pullRequestId"))?;
                let id = PullId { repo: repo.clone(), number };
                self.is_asked_for(&id, &path, row)?;
                self.told.record(repo, shapes::key(&row["repository"]));
                let row = self.with_tips(repo, row.clone()).await?;
                let created = shapes::moment(&row["creationDate"]).ok_or_else(|| odd(&path, "no creationDate"))?;
                match shapes::pull_request(&self.address, &id, &row) {
                    Ok(pull) => open.push(OpenPull { created, version: shapes::version(&pull), pull }),
                    // For example, the branch of a fork was deleted. It cannot be planned, but must not hide the others.
                    Err(wrong) => tracing::warn!(pull = %id, "an open pull request is passed over: {wrong}"),
                }
            }
            if rows.len() < PULLS_PER_PAGE as usize {
                return Ok(open);
            }
        }
        Err(too_many(&path, PULLS_PER_PAGE, PULL_PAGES))
    }

    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        let mut all = Vec::new();
        for organization in &self.organizations {
            all.extend(self.repositories_of(organization).await?);
        }
        Ok(all)
    }

    fn told_key(&self, repo: &RepoId) -> Option<String> {
        self.told.get(repo)
    }

    async fn present_name(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        let organization = organization_of(near);
        let path = format!("/{}/_apis/git/repositories/{}?{VERSION}", segments(organization), segment(key));
        let found = match self.http.get(&path).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        let of = serde_json::json!({ "repository": found });
        if shapes::key(&of["repository"]).as_deref() != Some(key) {
            return Err(odd(&path, "another repository"));
        }
        shapes::repository(&self.address, organization, &of).map(Some).map_err(|wrong| odd(&path, wrong))
    }

    async fn is_gone(&self, pull: &PullId) -> Result<bool, HostError> {
        match self.http.get(&format!("{}?{VERSION}", repo_path(&pull.repo)?)).await {
            Err(HostError::NotFound { .. }) => return Ok(false),
            answer => answer?,
        };
        match self.http.get(&format!("{}?{VERSION}", pull_path(pull)?)).await {
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
        threads::shown(self, pull).await
    }

    async fn hide_comments(&self, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
        threads::close(self, pull, comments).await
    }

    async fn rewrite_comment(&self, pull: &PullId, comment: &ShownComment, body: &str) -> Result<bool, HostError> {
        threads::rewrite(self, pull, comment, body).await
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        threads::delete(self, pull, id).await
    }

    async fn react(&self, _: &PullId, _: u64, _: &str) -> Result<(), HostError> {
        let message = "comments have no reactions here".to_owned();
        Err(HostError::Rejected { what: "a reaction".to_owned(), status: 400, message })
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
        completion::complete(self, pull, method, source).await
    }

    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        // The host ignores the user name.
        Some(GitCredentials { username: "tidelock".to_owned(), password: self.http.token().now()? })
    }
}
