//! The forge's state besides git objects: accounts, repositories, pull requests, comments, statuses. In memory, behind one mutex.

use super::app::{AppState, BOT_OF_APP};
use super::azure_devops::BranchPolicies;
use super::bitbucket_cloud::BitbucketCloudState;
use super::bitbucket_data_center::BitbucketDataCenterState;
use super::checks::CheckState;
use super::faults::Planned;
use super::git::GitRepo;
use super::gitea::GiteaState;
use super::gitlab::GitlabState;
use super::hooks::Delivery;
use super::server::Request;
use super::{BOT, HostKind, PEOPLE, timestamp};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub(super) struct State {
    pub kind: HostKind,
    /// Accounts by login in lower case.
    pub users: BTreeMap<String, User>,
    /// Repositories by `owner/name` in lower case.
    pub repos: BTreeMap<String, RepoState>,
    /// Present `owner/name` of repositories that were transferred or renamed, by the former one in lower case.
    pub moved: BTreeMap<String, String>,
    /// Logins of each team, by `organization/slug`, all in lower case; false for those that were only invited.
    pub teams: BTreeMap<String, BTreeMap<String, bool>>,
    pub webhook: Option<String>,
    pub webhooks_paused: bool,
    pub deliveries: VecDeque<Delivery>,
    pub requests: VecDeque<Request>,
    /// Lead of the time in the API's answers.
    pub clock_ahead: jiff::SignedDuration,
    pub faults: Vec<Planned>,
    /// The App that the server under test is, instead of an account.
    pub app: Option<AppState>,
    /// Name and private key of Apps that were made from manifests, by the code that is exchanged for each.
    pub manifests: BTreeMap<String, (String, String)>,
    /// Policies of Azure DevOps only.
    pub policies: BranchPolicies,
    /// State that only GitLab has.
    pub gitlab: GitlabState,
    /// State that only Gitea has.
    pub gitea: GiteaState,
    /// State that only Bitbucket Cloud has.
    pub bitbucket_cloud: BitbucketCloudState,
    /// State that only Bitbucket Data Center has.
    pub bitbucket_data_center: BitbucketDataCenterState,
    last_id: u64,
}

#[derive(Clone)]
pub(super) struct User {
    pub id: u64,
    pub login: String,
    pub token: String,
}

pub(super) struct RepoState {
    pub id: u64,
    pub owner: String,
    pub name: String,
    pub git: GitRepo,
    /// Full name of the repository it was forked from.
    pub parent: Option<String>,
    /// `admin`, `write` or `read`, by login in lower case.
    pub permissions: BTreeMap<String, String>,
    pub allow_merge_commit: bool,
    pub allow_squash_merge: bool,
    pub allow_rebase_merge: bool,
    /// Size in KiB, as the API answers it.
    pub size_kib: u64,
    pub pulls: Vec<PullState>,
    pub issues: Vec<IssueState>,
    /// True if the repository has no issues. Pull requests and their comments stay.
    pub issues_disabled: bool,
    /// Number of the last pull request or issue; both share one sequence.
    pub last_number: u64,
    pub statuses: Vec<StatusState>,
    /// Check runs, on GitHub.
    pub checks: Vec<CheckState>,
    /// Statuses that a pull request needs to be merged.
    pub required: Vec<String>,
    /// Files of Git LFS, by SHA-256 in hex.
    pub large_files: BTreeMap<String, Vec<u8>>,
    pub created_at: String,
}

pub(super) struct PullState {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub author: String,
    pub draft: bool,
    pub open: bool,
    pub labels: Vec<String>,
    /// Full name of the head's repository.
    pub head_repo: String,
    pub head_ref: String,
    pub head_sha: String,
    /// Pushes to the head, oldest first; the last one is the present head.
    pub pushes: Vec<PushState>,
    pub base_ref: String,
    pub base_sha: String,
    /// Commit of the merge, and login of the person who merged.
    pub merged: Option<(String, String)>,
    /// True if it does not merge cleanly into its base.
    pub conflicts: bool,
    /// Tip of the base branch that `conflicts` was computed with.
    pub tried_with: String,
    /// Replaces the computed `mergeable_state` in answers.
    pub forced_mergeable_state: Option<String>,
    pub comments: Vec<CommentState>,
    pub reviews: Vec<ReviewState>,
    pub created_at: String,
    pub updated_at: String,
    pub closed_at: Option<String>,
}

/// An issue that is no pull request.
pub(super) struct IssueState {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub author: String,
    pub open: bool,
    pub labels: Vec<String>,
    pub comments: Vec<CommentState>,
    pub created_at: String,
    pub updated_at: String,
    pub closed_at: Option<String>,
}

pub(super) struct PushState {
    pub commit: String,
    pub author: String,
    pub at: String,
}

pub(super) struct CommentState {
    pub id: u64,
    pub author: String,
    pub body: String,
    pub created_at: String,
    /// Equal to `created_at` until somebody edits it.
    pub updated_at: String,
    pub reactions: Vec<ReactionState>,
    /// Folded as outdated; on Azure DevOps its thread is closed.
    pub hidden: bool,
}

#[derive(Clone)]
pub(super) struct ReactionState {
    pub id: u64,
    pub user: String,
    pub content: String,
    pub created_at: String,
}

pub(super) struct ReviewState {
    pub id: u64,
    pub user: String,
    /// `APPROVED`, `CHANGES_REQUESTED`, `DISMISSED` for a vote that was taken back, or `COMMENTED`.
    pub state: &'static str,
    /// The same in the numbers of Azure DevOps: 10, 5, 0, -5 or -10.
    pub vote: i64,
    pub body: String,
    pub commit: String,
    pub submitted_at: String,
}

pub(super) struct StatusState {
    pub id: u64,
    pub sha: String,
    pub creator: String,
    pub state: String,
    pub context: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
    pub created_at: String,
    /// Push of a pull request that the status belongs to, on Azure DevOps.
    pub of_push: Option<OfPush>,
}

/// The push that a status belongs to, and the status as it was posted.
pub(super) struct OfPush {
    /// Number of the pull request.
    pub pull: u64,
    /// Number of the push, counted from 1.
    pub number: usize,
    pub posted: serde_json::Value,
}

impl State {
    /// Returns a new id, greater than all others of any kind.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        1000 + self.last_id
    }

    /// The id that the next new thing gets.
    pub(super) fn next_id(&self) -> u64 {
        1001 + self.last_id
    }

    /// Returns the account with that login, and creates it with this token if there is none.
    pub(super) fn add_user(&mut self, login: &str, token: String) -> &User {
        let id = self.new_id();
        let user = User { id, login: login.to_owned(), token: format!("{}{token}", self.kind.token_prefix()) };
        self.users.entry(login.to_lowercase()).or_insert(user)
    }

    /// Returns the login of a token.
    pub(super) fn login_of_token(&self, token: &str) -> Option<String> {
        let of_app = self.app.as_ref().filter(|app| app.installation_of(token).is_some()).map(AppState::login);
        of_app.or_else(|| self.users.values().find(|user| user.token == token).map(|user| user.login.clone()))
    }

    pub(super) fn repo(&self, full_name: &str) -> anyhow::Result<&RepoState> {
        self.repos.get(&self.key(full_name)).with_context(|| format!("there is no repository {full_name}"))
    }

    /// Returns the key in `repos` of a present or former name.
    fn key(&self, full_name: &str) -> String {
        let key = full_name.to_lowercase();
        self.moved.get(&key).map_or(key, |now| now.to_lowercase())
    }

    /// Gives a repository another owner or name. Its former name redirects to it.
    pub(super) fn transfer(&mut self, from: &str, owner: &str, name: &str) -> anyhow::Result<()> {
        let to = format!("{owner}/{name}");
        if self.repo(&to).is_ok() {
            bail!("{to} is there already");
        }
        let mut repo = self.repos.remove(&self.key(from)).with_context(|| format!("there is no repository {from}"))?;
        let before = repo.full_name();
        (repo.owner, repo.name) = (owner.to_owned(), name.to_owned());
        self.repos.insert(to.to_lowercase(), repo);
        for pull in self.repos.values_mut().flat_map(|repo| &mut repo.pulls) {
            if pull.head_repo.eq_ignore_ascii_case(&before) {
                pull.head_repo.clone_from(&to);
            }
        }
        self.moved.insert(before.to_lowercase(), to);
        Ok(())
    }

    pub(super) fn repo_mut(&mut self, full_name: &str) -> anyhow::Result<&mut RepoState> {
        let key = self.key(full_name);
        self.repos.get_mut(&key).with_context(|| format!("there is no repository {full_name}"))
    }

    pub(super) fn pull(&self, full_name: &str, number: u64) -> anyhow::Result<&PullState> {
        let pulls = &self.repo(full_name)?.pulls;
        pulls.iter().find(|pull| pull.number == number).with_context(|| format!("{full_name} has no #{number}"))
    }

    pub(super) fn pull_mut(&mut self, full_name: &str, number: u64) -> anyhow::Result<&mut PullState> {
        let pulls = &mut self.repo_mut(full_name)?.pulls;
        pulls.iter_mut().find(|pull| pull.number == number).with_context(|| format!("{full_name} has no #{number}"))
    }
}

impl RepoState {
    pub(super) fn new(id: u64, owner: &str, name: &str, git: GitRepo, parent: Option<String>) -> RepoState {
        let people = PEOPLE.iter().map(|(login, level)| (login.to_string(), level.to_string()));
        RepoState {
            id,
            owner: owner.to_owned(),
            name: name.to_owned(),
            git,
            parent,
            permissions: people.chain([(BOT.to_owned(), "admin".to_owned())]).collect(),
            allow_merge_commit: true,
            allow_squash_merge: true,
            allow_rebase_merge: false,
            size_kib: 1,
            pulls: Vec::new(),
            issues: Vec::new(),
            issues_disabled: false,
            last_number: 0,
            statuses: Vec::new(),
            checks: Vec::new(),
            required: Vec::new(),
            large_files: BTreeMap::new(),
            created_at: timestamp(),
        }
    }

    /// Takes the next number for a pull request or an issue.
    pub(super) fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// `admin`, `write`, `read` or `none`. The tokens of an App decide which repositories it sees.
    pub(super) fn permission(&self, login: &str) -> &str {
        if login.ends_with(BOT_OF_APP) {
            return "write";
        }
        self.permissions.get(&login.to_lowercase()).map_or("none", String::as_str)
    }

    pub(super) fn can_write(&self, login: &str) -> bool {
        matches!(self.permission(login), "admin" | "write")
    }

    /// The latest status or check run of each context on a commit, by context.
    pub(super) fn latest_statuses(&self, sha: &str) -> BTreeMap<&str, &StatusState> {
        self.latest_of_each(|status| status.sha == sha)
    }

    /// Returns the same for a pull request's head.
    pub(super) fn statuses_of_head(&self, pull: &PullState) -> BTreeMap<&str, &StatusState> {
        self.latest_of_each(|status| match &status.of_push {
            Some(push) => push.pull == pull.number && push.number == pull.pushes.len(),
            None => status.sha == pull.head_sha,
        })
    }

    /// The latest status or check run of each context. If a context has both, one that is not successful counts: GitHub requires both
    /// (docs.github.com, "Troubleshooting required status checks").
    fn latest_of_each(&self, is_wanted: impl Fn(&StatusState) -> bool) -> BTreeMap<&str, &StatusState> {
        let wanted = |status: &&StatusState| is_wanted(status);
        let mut all: BTreeMap<&str, &StatusState> =
            self.statuses.iter().filter(wanted).map(|status| (status.context.as_str(), status)).collect();
        let checks = self
            .checks
            .iter()
            .map(|check| &check.as_status)
            .filter(wanted)
            .map(|check| (check.context.as_str(), check));
        for (name, check) in checks.collect::<BTreeMap<_, _>>() {
            if all.get(name).is_none_or(|status| status.state == "success") {
                all.insert(name, check);
            }
        }
        all
    }

    /// GitHub's `mergeable` and `mergeable_state`.
    pub(super) fn mergeability(&self, pull: &PullState) -> (Option<bool>, String) {
        if !pull.open {
            return (None, "unknown".to_owned());
        }
        let unstable = || self.statuses_of_head(pull).values().any(|status| status.state != "success");
        let misses = || {
            let set = self.statuses_of_head(pull);
            self.required.iter().any(|name| set.get(name.as_str()).is_none_or(|status| status.state != "success"))
        };
        let state = match &pull.forced_mergeable_state {
            Some(forced) => forced,
            None if pull.conflicts => "dirty",
            None if pull.draft => "draft",
            None if misses() => "blocked",
            None if unstable() => "unstable",
            None => "clean",
        };
        let mergeable = (state != "unknown").then_some(state != "dirty");
        (mergeable, state.to_owned())
    }
}
