//! Pull requests. Each change names the version that it is made to; pushes, comments and reviews leave the version as it is.

use super::super::repo::close;
use super::super::state::{PullState, RepoState, State};
use super::super::{pull, timestamp};
use super::access::Level;
use super::activities::Happened;
use super::api::{RepoCall, most, no_route, ok};
use super::merging::AutoMerge;
use super::{BitbucketDataCenterState, Refusal, Result, hooks, shapes};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the host knows of a pull request besides the shared state.
#[derive(Default)]
pub(super) struct PullFacts {
    pub(super) version: i64,
    /// Logins of the people who were asked for a review, in lower case.
    pub(super) reviewers: BTreeSet<String>,
    /// Activities that are neither comments nor pushes.
    pub(super) happened: Vec<Happened>,
    /// Title, text, draft and target as the last delivery had them.
    pub(super) told: Option<Told>,
    /// Merge that waits until nothing vetoes it.
    pub(super) auto_merge: Option<AutoMerge>,
}

/// Fields whose former values a delivery has.
#[derive(Clone)]
pub(super) struct Told {
    title: String,
    text: String,
    is_draft: bool,
    target: (String, String),
}

impl Told {
    pub(super) fn of(pull: &PullState) -> Told {
        Told {
            title: pull.title.clone(),
            text: pull.body.clone(),
            is_draft: pull.draft,
            target: (pull.base_ref.clone(), pull.tried_with.clone()),
        }
    }

    /// The fields of `pr:modified` (go-playground, pr-modified.json, and webhooks for the draft).
    pub(super) fn shaped(&self, url: &str, state: &State, repo: &RepoState) -> Value {
        let (branch, commit) = &self.target;
        let mut target = shapes::target(url, state, repo, branch, commit);
        target["latestChangeset"] = commit.as_str().into();
        json!({
            "previousTitle": self.title, "previousDescription": self.text, "previousDraft": self.is_draft, "previousTarget": target,
        })
    }
}

impl BitbucketDataCenterState {
    pub(super) fn facts_mut(&mut self, pull: u64) -> &mut PullFacts {
        self.pulls.entry(pull).or_default()
    }
}

impl RepoCall<'_> {
    pub(super) async fn of_pulls(&self, method: &str, rest: &[&str]) -> Result {
        let Some((number, rest)) = rest.split_first() else {
            return if method == "GET" { self.pulls() } else { Err(no_route()) };
        };
        let number = number.parse().map_err(|_| no_route())?;
        self.of_pull(number, |_, _, _| ())?;
        match (method, rest) {
            ("GET", []) => ok(self.shaped_pull(number)?),
            ("PUT", []) => self.edit_pull(number).await,
            ("POST", ["decline"]) => self.decline(number),
            ("POST", ["reopen"]) => self.reopen(number).await,
            ("GET", ["activities"]) => self.activities(number),
            (method, ["comments", rest @ ..]) => self.of_comments(method, number, rest),
            (method, ["participants", rest @ ..]) => self.of_participants(method, number, rest),
            ("GET", ["changes"]) => self.changes_of_pull(number).await,
            ("GET", ["commits"]) => self.commits_of_pull(number).await,
            ("GET", ["merge"]) => self.mergeability(number),
            ("POST", ["merge"]) => self.merge(number).await,
            (method, ["auto-merge"]) => self.of_auto_merge(method, number).await,
            _ => Err(no_route()),
        }
    }

    /// Lists pull requests, the newest first and open ones alone unless the request says otherwise (OpenAPI).
    fn pulls(&self) -> Result {
        let word = self.call.asked("state").unwrap_or("OPEN").to_uppercase();
        if !["OPEN", "MERGED", "DECLINED", "ALL"].contains(&word.as_str()) {
            return Err(Refusal::field("state", format!("{word} is no state of a pull request")));
        }
        let at = self.call.asked("at");
        let is_outgoing = self.call.asked("direction").is_some_and(|way| way.eq_ignore_ascii_case("OUTGOING"));
        let mut rows: Vec<(u64, Value)> = {
            let state = self.call.shared.lock();
            let is_here = |repo: &RepoState, pull: &PullState| {
                let (name, branch) = match is_outgoing {
                    true => (pull.head_repo.clone(), &pull.head_ref),
                    false => (repo.full_name(), &pull.base_ref),
                };
                let is_at = at.is_none_or(|at| at == format!("refs/heads/{branch}"));
                name.eq_ignore_ascii_case(&self.full_name) && is_at
            };
            let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
            let wanted = all.filter(|(repo, pull)| is_here(repo, pull));
            let wanted = wanted.filter(|(_, pull)| word == "ALL" || word == shapes::state_word(pull));
            let shape =
                |(repo, pull): (&RepoState, &PullState)| (pull.id, shapes::pull_of_api(self.url(), &state, repo, pull));
            wanted.map(shape).collect()
        };
        rows.sort_by_key(|(id, _)| *id);
        if self.call.asked("order") != Some("OLDEST") {
            rows.reverse();
        }
        self.call.page(rows.into_iter().map(|(_, row)| row).collect(), most::PULLS)
    }

    pub(super) fn shaped_pull(&self, number: u64) -> Result<Value> {
        self.of_pull(number, |state, repo, pull| shapes::pull_of_api(self.url(), state, repo, pull))
    }

    /// Refuses a change of a pull request that is merged or declined (bb has the answer for a merged one).
    pub(super) fn check_open(&self, number: u64) -> Result<()> {
        let (is_open, word) = self.of_pull(number, |_, _, pull| (pull.open, shapes::state_word(pull)))?;
        if is_open {
            return Ok(());
        }
        let text = format!("This pull request has already been {}.", word.to_lowercase());
        Err(Refusal::conflict("pull.IllegalPullRequestStateException", text))
    }

    /// Refuses another version than that of the pull request; an absent one is -1
    /// (support.atlassian.com/bitbucket-data-center/kb/bitbucket-server-rest-api-for-merging-pull-request-fails).
    pub(super) fn check_pull_version(&self, number: u64) -> Result<()> {
        let pull = self.shaped_pull(number)?;
        let expected = self.call.version().unwrap_or(-1);
        if pull["version"] == expected {
            return Ok(());
        }
        let text = "You are attempting to modify a pull request based on out-of-date information.";
        let more = json!({"currentVersion": pull["version"], "expectedVersion": expected, "pullRequest": pull});
        Err(Refusal::conflict("pull.PullRequestOutOfDateException", text).with(more))
    }

    /// Changes title, text, draft, reviewers or target as the author or somebody who may write. Reviewers that are absent are removed.
    async fn edit_pull(&self, number: u64) -> Result {
        let (shared, login) = (self.call.shared, &self.call.login);
        let is_own = self.of_pull(number, |_, _, pull| pull.author.eq_ignore_ascii_case(login))?;
        if !is_own {
            self.check_level(Level::Write)?;
        }
        if self.call.version().is_none() {
            return Err(Refusal::field("version", "The pull request's version must be specified."));
        }
        if self.call.part("/author").is_some() || self.call.part("/participants").is_some() {
            return Err(Refusal::invalid("The author and the participants may not be updated."));
        }
        self.check_open(number)?;
        self.check_pull_version(number)?;
        let title = self.call.text("/title").map(str::to_owned);
        if title.as_ref().is_some_and(|title| title.trim().is_empty()) {
            return Err(Refusal::field("title", "Please enter a title."));
        }
        let target = match self.call.text("/toRef/id") {
            None => None,
            Some(id) => {
                let name = id.strip_prefix("refs/heads/").unwrap_or(id);
                let heads = self.git()?.heads().await.map_err(|error| Refusal::broken(&error))?;
                let unknown =
                    || Refusal::not_found("repository.NoSuchBranchException", format!("Branch {id} does not exist."));
                Some((name.to_owned(), heads.get(name).cloned().ok_or_else(unknown)?))
            }
        };
        let names = self.call.part("/reviewers").and_then(Value::as_array).cloned().unwrap_or_default();
        let name_of = |entry: &Value| entry["user"]["name"].as_str().map(str::to_lowercase);
        let reviewers: Option<BTreeSet<String>> = names.iter().map(name_of).collect();
        let reviewers = reviewers.ok_or_else(|| Refusal::field("reviewers", "A reviewer has no name."))?;
        let (text, draft) = (self.call.text("/description").map(str::to_owned), self.call.flag("/draft"));
        let changed = shared.change(|state: &mut State| {
            let pull = state.pull_mut(&self.full_name, number)?;
            pull.title = title.unwrap_or_else(|| pull.title.clone());
            pull.body = text.unwrap_or_else(|| pull.body.clone());
            pull.draft = draft.unwrap_or(pull.draft);
            if let Some((branch, tip)) = target {
                pull.base_ref = branch;
                (pull.base_sha, pull.tried_with) = (tip.clone(), tip);
            }
            pull.updated_at = timestamp();
            let id = pull.id;
            state.bitbucket_data_center.facts_mut(id).reviewers = reviewers;
            hooks::emit_pull(state, self.url(), &self.full_name, number, "edited", login, &Value::Null)
        });
        changed.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// Declines a pull request.
    fn decline(&self, number: u64) -> Result {
        self.check_open(number)?;
        self.check_pull_version(number)?;
        let login = &self.call.login;
        let declined = self.call.shared.change(|state| close(state, self.url(), &self.full_name, number, login));
        declined.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// Reopens a declined pull request, unless its branch is gone.
    async fn reopen(&self, number: u64) -> Result {
        let (word, source) = self.of_pull(number, |_, _, pull| {
            (shapes::state_word(pull), (pull.head_repo.clone(), pull.head_ref.clone()))
        })?;
        if word != "DECLINED" {
            let text = format!("Pull request {number} is not declined.");
            return Err(Refusal::conflict("pull.IllegalPullRequestStateException", text));
        }
        self.check_pull_version(number)?;
        let heads = match self.call.shared.git(&source.0) {
            Ok(git) => git.heads().await.map_err(|error| Refusal::broken(&error))?,
            Err(_) => Default::default(),
        };
        if !heads.contains_key(&source.1) {
            let text = format!("Branch {} does not exist.", source.1);
            return Err(Refusal::new(StatusCode::CONFLICT, "pull.IllegalPullRequestStateException", text));
        }
        let login = &self.call.login;
        let reopened = self.call.shared.change(|state| pull::reopen(state, self.url(), &self.full_name, number, login));
        reopened.map_err(|error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }
}
