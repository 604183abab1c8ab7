//! Answers of the REST API 7.0, as far as the server uses it.

use super::super::state::{OfPush, PullState, RepoState, State, StatusState};
use super::super::{Shared, comments, pull, repo, timestamp};
use super::{MAX_COMMENT, Refusal, shapes};
use http::Method;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Most policy evaluations in one answer: the host may send fewer than requested.
const MOST_EVALUATIONS: usize = 2;

/// Rows of a list if the request gives no number.
const USUAL_ROWS: usize = 100;

/// States of statuses: learn.microsoft.com/rest/api/azure/devops/git/pull-request-statuses/create.
const STATES: [&str; 6] = ["pending", "succeeded", "failed", "error", "notSet", "notApplicable"];

type Result<T = Value> = std::result::Result<T, Refusal>;

/// One request, with its user and its collection.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Shared,
    pub(super) collection: &'a str,
    pub(super) login: String,
    pub(super) query: HashMap<String, String>,
    pub(super) body: Value,
}

/// learn.microsoft.com/rest/api/azure/devops/git/repositories/get-repository.
fn no_repository() -> Refusal {
    Refusal::new(404, "GitRepositoryNotFoundException", "TF401019: no such repository")
}

/// learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-request.
fn no_pull() -> Refusal {
    Refusal::new(404, "GitPullRequestNotFoundException", "TF401180: The requested pull request was not found")
}

fn no_resource(what: &[&str]) -> Refusal {
    Refusal::new(404, "VssResourceNotFoundException", what.join("/"))
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(400, "InvalidArgumentValueException", message)
}

fn rows(rows: Vec<Value>) -> Value {
    json!({"count": rows.len(), "value": rows})
}

impl Call<'_> {
    /// Answers a request below the collection.
    pub(super) async fn answer(&self, method: &Method, segments: &[String]) -> Result {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (project, rest) = match segments.as_slice() {
            ["_apis", rest @ ..] => (None, rest),
            [project, "_apis", rest @ ..] => (Some(*project), rest),
            other => return Err(no_resource(other)),
        };
        match (method.as_str(), rest) {
            ("GET", ["connectionData"]) => Ok(self.connection()),
            ("GET", ["git", "repositories"]) => Ok(self.repositories(project)),
            ("GET", ["policy", "evaluations"]) => Ok(self.evaluations()),
            ("GET", ["git", "policy", "configurations"]) => {
                Ok(rows(self.shared.lock().policies.configurations.clone()))
            }
            (method, ["git", "repositories", name, tail @ ..]) => {
                let full_name = self.find(project, name).ok_or_else(no_repository)?;
                self.of_repo(method, &full_name, tail).await
            }
            (_, rest) => Err(no_resource(rest)),
        }
    }

    fn connection(&self) -> Value {
        let state = self.shared.lock();
        let person = shapes::person(&state, &self.login);
        let account = json!({"Account": {"$type": "System.String", "$value": person["uniqueName"]}});
        json!({"authenticatedUser": {"id": person["id"], "properties": account}})
    }

    fn is_here(&self, repo: &RepoState, project: Option<&str>) -> bool {
        shapes::collection(repo).eq_ignore_ascii_case(self.collection)
            && project.is_none_or(|project| shapes::project(repo).eq_ignore_ascii_case(project))
    }

    fn repositories(&self, project: Option<&str>) -> Value {
        let state = self.shared.lock();
        let seen = state.repos.values().filter(|repo| self.is_here(repo, project) && repo.parent.is_none());
        rows(seen.map(|repo| shapes::repo(&self.shared.url, repo)).collect())
    }

    /// Finds a repository by its name or its id.
    fn find(&self, project: Option<&str>, name: &str) -> Option<String> {
        let state = self.shared.lock();
        let fits = |repo: &&RepoState| repo.name.eq_ignore_ascii_case(name) || shapes::guid(repo.id) == name;
        state.repos.values().filter(|repo| self.is_here(repo, project)).find(fits).map(RepoState::full_name)
    }

    /// Returns a number among the parameters of the address.
    fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name).and_then(|text| text.parse().ok())
    }

    /// Applies `$top` and `$skip`: learn.microsoft.com/rest/api/azure/devops/policy/evaluations/list.
    fn page(&self, all: impl Iterator<Item = Value>, most: usize) -> Value {
        let (skip, top) = (self.number("$skip").unwrap_or_default(), self.number("$top").unwrap_or(USUAL_ROWS));
        rows(all.skip(skip).take(top.min(most)).collect())
    }

    fn evaluations(&self) -> Value {
        let all = self.shared.lock().policies.evaluations.clone();
        self.page(all.into_iter(), MOST_EVALUATIONS)
    }

    async fn of_repo(&self, method: &str, full_name: &str, tail: &[&str]) -> Result {
        match (method, tail) {
            ("GET", []) => {
                let state = self.shared.lock();
                Ok(shapes::repo(&self.shared.url, state.repo(full_name).map_err(|_| no_repository())?))
            }
            ("GET", ["refs"]) => self.refs(full_name).await,
            ("GET", ["commits", one, "mergebases"]) => {
                let git = self.shared.git(full_name).map_err(|_| no_repository())?;
                let other = self.query.get("otherCommitId").map(String::as_str).unwrap_or_default();
                match git.merge_base(one, other).await {
                    Some(base) => Ok(rows(vec![json!({"commitId": base})])),
                    // learn.microsoft.com/rest/api/azure/devops/git/merge-bases/list.
                    None => Err(Refusal::new(404, "GitCommitDoesNotExistException", "TF401175: no such commit")),
                }
            }
            ("POST", ["commits", one, "statuses"]) => self.set_commit_status(full_name, one).await,
            ("GET", [word]) if word.eq_ignore_ascii_case("pullRequests") => self.pulls(full_name),
            (method, [word, number, tail @ ..]) if word.eq_ignore_ascii_case("pullRequests") => {
                let number = number.parse().map_err(|_| no_pull())?;
                self.shared.lock().pull(full_name, number).map_err(|_| no_pull())?;
                self.of_pull(method, full_name, number, tail).await
            }
            _ => Err(no_resource(tail)),
        }
    }

    /// Lists branches. The filter is a prefix of the names: learn.microsoft.com/rest/api/azure/devops/git/refs/list.
    async fn refs(&self, full_name: &str) -> Result {
        let git = self.shared.git(full_name).map_err(|_| no_repository())?;
        let heads = git.heads().await.map_err(|error| Refusal::new(500, "git", format!("{error:#}")))?;
        let filter = self.query.get("filter").map(String::as_str).unwrap_or_default();
        let named = heads.into_iter().map(|(name, tip)| (format!("heads/{name}"), tip));
        let found = named.filter(|(name, _)| name.starts_with(filter));
        Ok(rows(found.map(|(name, tip)| json!({"name": format!("refs/{name}"), "objectId": tip})).collect()))
    }

    /// Lists pull requests, by default active ones. Latest first:
    /// learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-requests.
    fn pulls(&self, full_name: &str) -> Result {
        let state = self.shared.lock();
        let repo = state.repo(full_name).map_err(|_| no_repository())?;
        let wanted = self.query.get("searchCriteria.status").map_or("active", String::as_str);
        let all = repo.pulls.iter().rev().map(|pull| shapes::pull(&self.shared.url, &state, repo, pull));
        Ok(self.page(all.filter(|pull| wanted == "all" || pull["status"] == wanted), usize::MAX))
    }

    fn read<T>(
        &self,
        full_name: &str,
        number: u64,
        find: impl FnOnce(&State, &RepoState, &PullState) -> T,
    ) -> Result<T> {
        let state = self.shared.lock();
        match (state.repo(full_name), state.pull(full_name, number)) {
            (Ok(repo), Ok(pull)) => Ok(find(&state, repo, pull)),
            _ => Err(no_pull()),
        }
    }

    fn pull(&self, full_name: &str, number: u64) -> Result {
        self.read(full_name, number, |state, repo, pull| shapes::pull(&self.shared.url, state, repo, pull))
    }

    async fn of_pull(&self, method: &str, full_name: &str, number: u64, tail: &[&str]) -> Result {
        match (method, tail) {
            ("GET", []) => self.pull(full_name, number),
            ("PATCH", []) => self.complete(full_name, number).await,
            ("PATCH", ["reviewers"]) => self.reset_votes(full_name, number),
            ("GET", ["iterations"]) => self.read(full_name, number, |state, _, pull| {
                let row = |(place, push): (usize, &super::super::state::PushState)| {
                    json!({"id": place + 1, "createdDate": push.at, "author": shapes::person(state, &push.author),
                        "sourceRefCommit": {"commitId": push.commit}})
                };
                rows(pull.pushes.iter().enumerate().map(row).collect())
            }),
            ("GET", ["threads"]) => self.read(full_name, number, |state, _, pull| rows(shapes::threads(state, pull))),
            ("POST", ["threads"]) => self.begin_thread(full_name, number),
            ("PATCH", ["threads", thread]) => self.change_thread(full_name, number, thread),
            ("PATCH", ["threads", thread, "comments", "1"]) => self.rewrite_comment(full_name, number, thread),
            ("DELETE", ["threads", thread, "comments", "1"]) => self.delete_comment(full_name, number, thread),
            ("GET", ["statuses"]) => self.statuses(full_name, number),
            ("POST", ["statuses"]) => self.set_status(full_name, number),
            _ => Err(no_resource(tail)),
        }
    }

    /// Resets votes; those of others cannot be given:
    /// learn.microsoft.com/rest/api/azure/devops/git/pull-request-reviewers/update-pull-request-reviewers.
    fn reset_votes(&self, full_name: &str, number: u64) -> Result {
        let asked = self.body.as_array().filter(|all| all.iter().all(|one| one["vote"] == 0));
        let asked = asked.ok_or_else(|| invalid("votes of others can only be reset"))?;
        self.shared.change(|state| {
            let ids: Vec<(String, Value)> =
                state.users.values().map(|user| (user.login.clone(), shapes::person(state, &user.login))).collect();
            let pull = state.pull_mut(full_name, number).map_err(|_| no_pull())?;
            for (login, _) in ids.iter().filter(|(_, person)| asked.iter().any(|one| one["id"] == person["id"])) {
                for review in pull.reviews.iter_mut().filter(|review| review.user == *login) {
                    (review.state, review.vote) = ("DISMISSED", 0);
                }
            }
            Ok(Value::Null)
        })
    }

    /// learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads/create.
    fn begin_thread(&self, full_name: &str, number: u64) -> Result {
        let text = self.body["comments"][0]["content"].as_str().unwrap_or_default();
        let url = &self.shared.url;
        let begun = self.shared.change(|state| comments::add(state, url, full_name, number, &self.login, text));
        let id =
            begun.map_err(|error| invalid(format!("A comment has from 1 to {MAX_COMMENT} characters: {error}")))?;
        self.read(full_name, number, |state, _, pull| {
            let said = pull.comments.iter().find(|comment| comment.id == id);
            said.map(|said| shapes::thread(state, said)).unwrap_or_default()
        })
    }

    /// learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads/update.
    fn change_thread(&self, full_name: &str, number: u64, thread: &str) -> Result {
        let closed = match self.body["status"].as_str() {
            Some("closed") => true,
            Some("active") => false,
            _ => return Err(invalid("the forge closes threads and opens them, and nothing else")),
        };
        self.shared.change(|state| {
            let pull = state.pull_mut(full_name, number).map_err(|_| no_pull())?;
            let said = pull.comments.iter_mut().find(|comment| comment.id.to_string() == thread);
            let said = said.ok_or_else(|| no_resource(&["threads", thread]))?;
            said.hidden = closed;
            Ok(json!({"id": said.id}))
        })
    }

    /// Deletes a comment, of its author only: learn.microsoft.com/rest/api/azure/devops/git/pull-request-thread-comments/delete.
    fn delete_comment(&self, full_name: &str, number: u64, thread: &str) -> Result {
        self.shared.change(|state| {
            let pull = state.pull_mut(full_name, number).map_err(|_| no_pull())?;
            let place = pull.comments.iter().position(|comment| comment.id.to_string() == thread);
            let place = place.ok_or_else(|| no_resource(&["threads", thread]))?;
            if pull.comments[place].author != self.login {
                return Err(Refusal::new(403, "CommentUnauthorizedException", "it is somebody else's comment"));
            }
            pull.comments.remove(place);
            Ok(Value::Null)
        })
    }

    /// Replaces the text of a comment, of its author only: learn.microsoft.com/rest/api/azure/devops/git/pull-request-thread-comments/update.
    fn rewrite_comment(&self, full_name: &str, number: u64, thread: &str) -> Result {
        let text = self.body["content"].as_str().unwrap_or_default();
        self.shared.change(|state| {
            let pull = state.pull(full_name, number).map_err(|_| no_pull())?;
            let said = pull.comments.iter().find(|comment| comment.id.to_string() == thread);
            let said = said.ok_or_else(|| no_resource(&["threads", thread]))?;
            if said.author != self.login {
                return Err(Refusal::new(403, "CommentUnauthorizedException", "it is somebody else's comment"));
            }
            let id = said.id;
            comments::edit(state, &self.shared.url, full_name, number, &self.login, (id, text))
                .map_err(|error| invalid(format!("A comment has from 1 to {MAX_COMMENT} characters: {error}")))?;
            Ok(json!({ "id": 1, "content": text }))
        })
    }

    fn statuses(&self, full_name: &str, number: u64) -> Result {
        self.read(full_name, number, |_, repo, _| {
            let of_pull = repo.statuses.iter().filter_map(|status| status.of_push.as_ref());
            rows(of_pull.filter(|push| push.pull == number).map(|push| push.posted.clone()).collect())
        })
    }

    /// Sets a status, with name, state and an existing iteration:
    /// learn.microsoft.com/rest/api/azure/devops/git/pull-request-statuses/create.
    fn set_status(&self, full_name: &str, number: u64) -> Result {
        let wrong = || invalid("a status needs a name, a state and an iteration");
        let (context, state) = self.posted_status().ok_or_else(wrong)?;
        let iteration = self.body["iterationId"].as_u64().unwrap_or_default() as usize;
        self.shared.change(|all| {
            let pull = all.pull(full_name, number).map_err(|_| no_pull())?;
            let commit = iteration.checked_sub(1).and_then(|place| pull.pushes.get(place)).map(|push| &push.commit);
            let sha = commit.ok_or_else(wrong)?.clone();
            self.keep_status(all, full_name, (context, state, sha), Some((number, iteration)))
        })
    }

    /// Sets a status of an existing commit: learn.microsoft.com/rest/api/azure/devops/git/statuses/create.
    async fn set_commit_status(&self, full_name: &str, commit: &str) -> Result {
        let (context, state) = self.posted_status().ok_or_else(|| invalid("a status needs a name and a state"))?;
        let git = self.shared.git(full_name).map_err(|_| no_repository())?;
        if git.merge_base(commit, commit).await.is_none() {
            return Err(Refusal::new(404, "GitCommitDoesNotExistException", "TF401175: no such commit"));
        }
        self.shared.change(|all| self.keep_status(all, full_name, (context, state, commit.to_owned()), None))
    }

    /// Context and state of a status, in GitHub's words.
    fn posted_status(&self) -> Option<(String, &'static str)> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (name, word) = (text(&self.body["context"]["name"])?, text(&self.body["state"])?);
        let context = text(&self.body["context"]["genre"]).map_or(name.clone(), |genre| format!("{genre}/{name}"));
        let state = match word.as_str() {
            word if !STATES.contains(&word) => return None,
            "pending" | "notSet" => "pending",
            "succeeded" | "notApplicable" => "success",
            "error" => "error",
            _ => "failure",
        };
        Some((context, state))
    }

    fn keep_status(
        &self,
        all: &mut State,
        full_name: &str,
        (context, state, sha): (String, &str, String),
        of_push: Option<(u64, usize)>,
    ) -> Result {
        let (id, creator, now) = (all.new_id(), shapes::person(all, &self.login), timestamp());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut posted = self.body.clone();
        posted["id"] = json!(id);
        posted["createdBy"] = creator;
        (posted["creationDate"], posted["updatedDate"]) = (json!(now), json!(now));
        let repo = all.repo_mut(full_name).map_err(|_| no_repository())?;
        repo.statuses.push(StatusState {
            id,
            sha,
            creator: self.login.clone(),
            state: state.to_owned(),
            context,
            description: text(&self.body["description"]),
            target_url: text(&self.body["targetUrl"]),
            created_at: now,
            of_push: of_push.map(|(pull, number)| OfPush { pull, number, posted: posted.clone() }),
        });
        Ok(posted)
    }

    /// learn.microsoft.com/rest/api/azure/devops/git/pull-requests/update.
    async fn complete(&self, full_name: &str, number: u64) -> Result {
        let edited = |message: &str| Err(invalid(format!("TF401181: The pull request cannot be edited: {message}")));
        let (open, head, branch, own) = self.read(full_name, number, |_, repo, pull| {
            let own = pull.head_repo == repo.full_name();
            (pull.open, pull.head_sha.clone(), pull.head_ref.clone(), own)
        })?;
        if self.body["status"] != "completed" || !open {
            return edited("it is not active, or it is not to be completed");
        }
        if self.body["lastMergeSourceCommit"]["commitId"] != head.as_str() {
            let message = "TF401192: The source branch has been modified";
            return Err(Refusal::new(409, "GitPullRequestStaleException", message));
        }
        let options = &self.body["completionOptions"];
        if options["bypassPolicy"] != true && self.shared.lock().policies.evaluations.iter().any(is_in_the_way) {
            // `PullRequestAsyncStatus` of the same page: the answer is a success, and the pull request stays active.
            let mut pull = self.pull(full_name, number)?;
            pull["mergeStatus"] = json!("rejectedByPolicy");
            return Ok(pull);
        }
        // `GitPullRequestMergeStrategy` of the same page. Here, a rebase of several commits results in one commit.
        let method = match options["mergeStrategy"].as_str() {
            None | Some("noFastForward" | "rebaseMerge") => "merge",
            Some("squash" | "rebase") => "squash",
            Some(_) => return edited("there is no such mergeStrategy"),
        };
        let merged = pull::merge(self.shared, full_name, number, &self.login, method).await;
        merged.map_err(|error| Refusal::new(409, "GitPullRequestConflictException", format!("{error:#}")))?;
        if own && options["deleteSourceBranch"] == true {
            let deleted = repo::delete_branch(self.shared, full_name, &branch, &self.login).await;
            deleted.map_err(|error| Refusal::new(500, "git", format!("{error:#}")))?;
        }
        self.pull(full_name, number)
    }
}

/// Returns true if a policy blocks the completion.
fn is_in_the_way(evaluation: &Value) -> bool {
    let configuration = &evaluation["configuration"];
    configuration["isBlocking"] == true
        && configuration["isEnabled"] != false
        && !matches!(evaluation["status"].as_str(), Some("approved" | "notApplicable"))
}
