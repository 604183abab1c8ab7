//! Pull requests (routers/api/v1/repo/pull.go).

use super::super::git::ChangedFile;
use super::super::pull::reopen;
use super::super::repo::close;
use super::super::state::{PullState, RepoState, State};
use super::api::{RepoCall, created, no_route, ok};
use super::{Refusal, Result, access, commits, hooks, merging, shapes};
use http::StatusCode;
use serde_json::{Value, json};

impl RepoCall<'_> {
    pub(super) async fn of_pulls(&self, method: &str, rest: &[&str]) -> Result {
        let Some((number, rest)) = rest.split_first() else {
            return if method == "GET" { self.pulls() } else { Err(no_route()) };
        };
        let number = number.parse().map_err(|_| Refusal::not_found())?;
        if self.of_pull(number, |_, _, _| ()).is_err() {
            return Err(self.unknown_pull(method, rest));
        }
        match (method, rest) {
            ("GET", []) => self.pull(number),
            ("PATCH", []) => self.edit_pull(number).await,
            ("GET", ["commits"]) => self.pull_commits(number).await,
            ("GET", ["files"]) => self.files(number).await,
            ("GET", ["merge"]) => self.is_merged(number),
            ("POST", ["merge"]) => self.merge(number).await,
            ("DELETE", ["merge"]) => self.cancel_merge(number),
            (method, ["reviews", rest @ ..]) => self.of_reviews(method, number, rest),
            _ => Err(no_route()),
        }
    }

    /// The answer for a number that no pull request has. Some requests name what has failed.
    fn unknown_pull(&self, method: &str, rest: &[&str]) -> Refusal {
        if !matches!((method, rest), (_, ["reviews", ..]) | ("POST", ["merge"])) {
            return Refusal::not_found();
        }
        let id = self.call.shared.lock().repo(&self.full_name).map_or(0, |repo| repo.id);
        let text = "pull request does not exist [id: 0, issue_id: 0, head_repo_id: 0, base_repo_id: ";
        let errors = [format!("{text}{id}, head_branch: , base_branch: ]")];
        Refusal::named("GetPullRequestByIndex", &errors)
    }

    /// Lists pull requests, the newest first or by `sort` (models/issues/pull_list.go, `applySorts`).
    fn pulls(&self) -> Result {
        let wanted = self.call.asked("state").unwrap_or("open").to_owned();
        let (base, poster) = (self.call.asked("base_branch"), self.call.asked("poster"));
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            let is_wanted = |pull: &&PullState| {
                let in_state = match wanted.as_str() {
                    "all" => true,
                    "closed" => !pull.open,
                    _ => pull.open,
                };
                let by = poster.is_none_or(|login| pull.author.eq_ignore_ascii_case(login));
                in_state && by && base.is_none_or(|branch| pull.base_ref == branch)
            };
            let mut pulls: Vec<&PullState> = repo.pulls.iter().filter(is_wanted).collect();
            let updated = |pull: &&PullState| shapes::time(&state, &pull.updated_at);
            match self.call.asked("sort") {
                Some("oldest") => {}
                Some("recentupdate") => pulls.sort_by_key(|pull| std::cmp::Reverse(updated(pull))),
                Some("leastupdate") => pulls.sort_by_key(updated),
                _ => pulls.reverse(),
            }
            pulls.into_iter().map(|pull| listed(self.url(), &state, (repo, pull), &self.call.login)).collect()
        };
        self.call.page(rows)
    }

    /// Answers with a pull request as it is known, and starts the check of its mergeability (services/pull/check.go,
    /// `StartPullRequestCheckOnView`).
    fn pull(&self, number: u64) -> Result {
        let body = self.shaped_pull(number)?;
        self.call.shared.change(|state| merging::ask(state, &self.full_name, number));
        ok(body)
    }

    fn shaped_pull(&self, number: u64) -> Result<Value> {
        self.of_pull(number, |state, repo, pull| shapes::pull(self.url(), state, repo, pull, &self.call.login))
    }

    /// Changes title, text or state as the author or somebody who may write (`EditPullRequest`).
    async fn edit_pull(&self, number: u64) -> Result {
        let (login, level) = (&self.call.login, self.level());
        let (is_own, is_open, is_merged) =
            self.of_pull(number, |_, _, pull| (pull.author == *login, pull.open, pull.merged.is_some()))?;
        if !is_own && !access::is_writer(&level) {
            return Err(Refusal::bare(StatusCode::FORBIDDEN));
        }
        let text = "cannot change state of this pull request, it was already merged";
        if is_merged && self.call.text("state").is_some() {
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        let (title, body, word) = (self.call.text("title"), self.call.text("body"), self.call.text("state"));
        let changed = self.call.shared.change(|state| {
            if let Some(title) = title.filter(|title| !title.is_empty()) {
                hooks::rename(state, self.url(), &self.full_name, number, &title, login)?;
            }
            if let Some(body) = body {
                hooks::rewrite(state, self.url(), &self.full_name, number, &body, login)?;
            }
            match word.as_deref() {
                Some("closed") if is_open => close(state, self.url(), &self.full_name, number, login),
                Some("open") if !is_open => reopen(state, self.url(), &self.full_name, number, login),
                _ => Ok(()),
            }
        });
        changed.map_err(|error| Refusal::broken(&error))?;
        created(self.shaped_pull(number)?)
    }

    /// Lists commits, the newest first.
    async fn pull_commits(&self, number: u64) -> Result {
        let (git, base, head) = self.ends(number)?;
        let lines = git.log(&base, &head).await.map_err(|error| Refusal::broken(&error))?;
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            lines.iter().rev().map(|line| commits::shaped(self.url(), &state, repo, line)).collect()
        };
        self.call.page(rows)
    }

    /// Lists changed files.
    async fn files(&self, number: u64) -> Result {
        let (git, base, head) = self.ends(number)?;
        let files = git.changed_files(&base, &head).await.map_err(|error| Refusal::broken(&error))?;
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            files.iter().map(|file| changed_file(self.url(), repo, &head, file)).collect()
        };
        self.call.page(rows)
    }

    /// The repository in git, the commit that the pull request began from, and its head.
    fn ends(&self, number: u64) -> Result<(super::super::git::GitRepo, String, String)> {
        self.of_pull(number, |state, repo, pull| {
            let start = state.gitea.pulls.get(&pull.id).map(|facts| facts.measure.merge_base.clone());
            (repo.git.clone(), start.unwrap_or_else(|| pull.base_sha.clone()), pull.head_sha.clone())
        })
    }
}

/// A pull request in a list, which leaves out the counts of lines and files and does not know who has merged it
/// (services/convert/pull.go, `ToAPIPullRequests`).
fn listed(url: &str, state: &State, (repo, pull): (&RepoState, &PullState), viewer: &str) -> Value {
    let mut body = shapes::pull(url, state, repo, pull, viewer);
    (body["assignees"], body["merged_by"]) = (Value::Null, Value::Null);
    if let Some(fields) = body.as_object_mut() {
        for name in ["additions", "deletions", "changed_files"] {
            fields.remove(name);
        }
    }
    body
}

/// A changed file: `ToChangedFile` of services/convert/convert.go.
fn changed_file(url: &str, repo: &RepoState, head: &str, file: &ChangedFile) -> Value {
    let (web, api) = (shapes::web(url, repo), shapes::api(url, repo));
    let mut body = json!({
        "filename": file.path, "status": file.status, "additions": file.additions, "deletions": file.deletions,
        "changes": file.additions + file.deletions, "html_url": format!("{web}/src/commit/{head}/{}", file.path),
        "contents_url": format!("{api}/contents/{}?ref={head}", file.path), "raw_url": format!("{web}/raw/commit/{head}/{}", file.path),
    });
    if let Some(before) = &file.former_path {
        body["previous_filename"] = json!(before);
    }
    body
}
