//! Commits, their differences, files and branches.

use super::super::git::{ChangedFile, CommitDetails, GitRepo};
use super::super::repo;
use super::api::{RepoCall, no_content, no_route, ok};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::header;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Rows of a page of differences (go-scm, diffstat.json).
const MAX_FILES: usize = 500;

fn broken(error: anyhow::Error) -> Refusal {
    Refusal::broken(&error)
}

impl RepoCall<'_> {
    /// Returns the full id of a commit that a branch, an id or the first digits of one name. Objects of forks are not in the repository
    /// (go-scm, pr.json: the commit of a fork's head is the fork's).
    async fn resolved(&self, name: &str) -> Result<String> {
        let git = self.git()?;
        let unknown = || Refusal::not_found(format!("Commit not found: {name}"));
        // What the host answers is in no source. The forge finds neither commit, so that nobody relies on one of them.
        if self.call.shared.lock().bitbucket_cloud.shared_starts.contains(name) {
            return Err(unknown());
        }
        let commit = git.resolve(name).await.ok_or_else(unknown)?;
        let is_pushed = {
            let state = self.call.shared.lock();
            let pulls = state.repos.values().flat_map(|repo| &repo.pulls);
            pulls
                .filter(|pull| pull.head_repo.eq_ignore_ascii_case(&self.full_name))
                .any(|pull| pull.pushes.iter().any(|push| push.commit == commit))
        };
        match is_pushed || !git.branches_with(&commit).await.map_err(broken)?.is_empty() {
            true => Ok(commit),
            false => Err(unknown()),
        }
    }

    /// Answers with a commit in full (go-scm, commit.json).
    pub(super) async fn commit(&self, name: &str) -> Result {
        let commit = self.resolved(name).await?;
        let body = self.shaped_commit(&self.git()?, &commit).await?;
        ok(body)
    }

    async fn shaped_commit(&self, git: &GitRepo, commit: &str) -> Result<Value> {
        let CommitDetails { time, author, parents, message } = git.details(commit).await.map_err(broken)?;
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let mut body = shapes::commit_links(self.url(), &self.full_name, commit);
        let raw = format!("{author} <{author}@sandbox.invalid>");
        body["author"] = json!({"type": "author", "raw": raw});
        if state.users.contains_key(&author.to_lowercase()) {
            body["author"]["user"] = shapes::person(self.url(), &state, &author);
        }
        let brief = |parent: &String| shapes::commit_brief(self.url(), &self.full_name, parent);
        body["parents"] = parents.iter().map(brief).collect();
        body["date"] = jiff::Timestamp::from_second(time)
            .map(|at| at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string())
            .unwrap_or_default()
            .into();
        let message = format!("{message}\n");
        body["summary"] = shapes::rendered(&message);
        body["message"] = message.into();
        body["participants"] = json!([]);
        body["repository"] = shapes::repo_brief(self.url(), repo);
        Ok(body)
    }

    /// The differences of `SOURCE..DESTINATION`, or of a pull request's `WORKSPACE/NAME:SOURCE\rDESTINATION`, which tell its conflicts.
    pub(super) async fn diffstat(&self, spec: &str) -> Result {
        let pull = self.call.asked("from_pullrequest_id").and_then(|number| number.parse().ok());
        let git = self.git()?;
        let (base, head, forced) = match pull {
            Some(number) => self.of_pull(number, |_, _, pull| {
                let is_forced = pull.forced_mergeable_state.as_deref() == Some("dirty");
                (pull.tried_with.clone(), pull.head_sha.clone(), is_forced)
            })?,
            None => {
                let (head, base) = spec.split_once("..").ok_or_else(|| Refusal::not_found("Commit not found"))?;
                (self.resolved(base).await?, self.resolved(head).await?, false)
            }
        };
        let files = git.changed_files(&base, &head).await.map_err(broken)?;
        let mut conflicts: BTreeSet<String> = BTreeSet::new();
        if pull.is_some() {
            conflicts.extend(git.conflicts(&base, &head).await.map_err(broken)?);
            conflicts.extend(files.iter().filter(|_| forced).map(|file| file.path.clone()));
        }
        let mut rows = Vec::new();
        for file in &files {
            let word = match conflicts.remove(&file.path) {
                false => word_of(file),
                true => conflict_of(&git, &base, &head, &file.path).await,
            };
            rows.push(self.shaped_file(file, word, &base, &head));
        }
        for path in conflicts {
            let word = conflict_of(&git, &base, &head, &path).await;
            let file = ChangedFile { path, former_path: None, status: "changed", additions: 0, deletions: 0 };
            rows.push(self.shaped_file(&file, word, &base, &head));
        }
        self.call.page_of(rows, MAX_FILES, MAX_FILES)
    }

    /// A changed file (go-scm, pr_diffstat.json). The side on which it does not exist is null.
    fn shaped_file(&self, file: &ChangedFile, word: &str, base: &str, head: &str) -> Value {
        let side = |path: &str, commit: &str| {
            let address = format!("{}/src/{commit}/{path}", shapes::api(self.url(), &self.full_name));
            json!({"path": path, "type": "commit_file", "escaped_path": path, "links": {"self": {"href": address}}})
        };
        let former = file.former_path.as_deref().unwrap_or(&file.path);
        json!({
            "type": "diffstat", "status": word, "lines_added": file.additions, "lines_removed": file.deletions,
            "old": (file.status != "added").then(|| side(former, base)), "new": (file.status != "deleted").then(|| side(&file.path, head)),
        })
    }

    /// The bytes of a file, a description of it with `format=meta`, or the files of a directory.
    pub(super) async fn source(&self, commit: &str, path: &str) -> Result {
        let (commit, git) = (self.resolved(commit).await?, self.git()?);
        let absent = || Refusal::not_found(format!("No such file or directory: {path}"));
        let path = path.trim_end_matches('/');
        let text = match path.is_empty() {
            true => None,
            false => git.file(&commit, path).await.map_err(|_| absent())?,
        };
        let base = format!("{}/src/{commit}", shapes::api(self.url(), &self.full_name));
        let shaped = |kind: &str, path: &str| {
            json!({
                "path": path, "type": kind, "commit": shapes::commit_brief(self.url(), &self.full_name, &commit),
                "links": {"self": {"href": format!("{base}/{path}")}, "meta": {"href": format!("{base}/{path}?format=meta")}},
            })
        };
        match text {
            Some(text) if self.call.asked("format") == Some("meta") => {
                let mut body = shaped("commit_file", path);
                (body["size"], body["attributes"]) = (text.len().into(), json!([]));
                ok(body)
            }
            Some(text) => {
                let headers = [(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_DISPOSITION, "attachment")];
                Ok((headers, text).into_response())
            }
            None => {
                let below = if path.is_empty() { String::new() } else { format!("{path}/") };
                let files = git.files(&commit).await.map_err(broken)?;
                let mut names = BTreeSet::new();
                for rest in files.iter().filter_map(|file| file.strip_prefix(&below)) {
                    let (name, kind) =
                        rest.split_once('/').map_or((rest, "commit_file"), |(n, _)| (n, "commit_directory"));
                    names.insert((format!("{below}{name}"), kind));
                }
                if names.is_empty() {
                    return Err(absent());
                }
                self.call.page(names.iter().map(|(path, kind)| shaped(kind, path)).collect(), 100)
            }
        }
    }

    /// Commits from this one on that no excluded one has, the newest first (OpenAPI).
    pub(super) async fn commits(&self, name: &str) -> Result {
        let (commit, git) = (self.resolved(name).await?, self.git()?);
        let mut excluded = Vec::new();
        for name in self.call.all_asked("exclude") {
            excluded.push(self.resolved(name).await?);
        }
        let mut rows = Vec::new();
        for commit in git.reachable(&commit, &excluded).await.map_err(broken)? {
            rows.push(self.shaped_commit(&git, &commit).await?);
        }
        self.call.page(rows, 100)
    }

    /// A branch, or its deletion as a person who may write. The main branch stays (OpenAPI: 400). Without a name, all branches.
    pub(super) async fn of_branches(&self, method: &str, name: &str) -> Result {
        let git = self.git()?;
        let heads = git.heads().await.map_err(broken)?;
        if (method, name) == ("GET", "") {
            let mut rows = Vec::new();
            for (name, tip) in &heads {
                rows.push(self.shaped_branch(&git, name, tip).await?);
            }
            return self.call.page(rows, 100);
        }
        let tip = heads.get(name).ok_or_else(|| Refusal::not_found(format!("Branch \"{name}\" does not exist")))?;
        match method {
            "GET" => ok(self.shaped_branch(&git, name, tip).await?),
            "DELETE" if name == "main" => Err(Refusal::invalid("The main branch cannot be deleted.")),
            "DELETE" => {
                self.check_writer()?;
                let deleted = repo::delete_branch(self.call.shared, &self.full_name, name, &self.call.login).await;
                deleted.map_err(broken)?;
                no_content()
            }
            _ => Err(no_route()),
        }
    }

    /// A branch (go-scm, branch.json).
    async fn shaped_branch(&self, git: &GitRepo, name: &str, tip: &str) -> Result<Value> {
        let address = shapes::api(self.url(), &self.full_name);
        let strategies = super::merging::strategies(self.repo_in(&self.call.shared.lock())?);
        let target = self.shaped_commit(git, tip).await?;
        Ok(json!({
            "type": "branch", "name": name, "target": target, "merge_strategies": strategies,
            "default_merge_strategy": strategies.first(), "links": {
                "self": {"href": format!("{address}/refs/branches/{name}")}, "commits": {"href": format!("{address}/commits/{name}")},
                "html": {"href": format!("{}/{}/branch/{name}", self.url(), self.full_name)}},
        }))
    }

    /// Returns the full id of a commit for a status: also of a fork's head, which the pull request has brought.
    pub(super) async fn any_commit(&self, name: &str) -> Result<String> {
        let unknown = || Refusal::not_found(format!("Commit not found: {name}"));
        self.git()?.resolve(name).await.ok_or_else(unknown)
    }
}

/// Status of a file without a conflict (OpenAPI, `diffstat`).
fn word_of(file: &ChangedFile) -> &'static str {
    match file.status {
        "added" => "added",
        "deleted" => "removed",
        "renamed" => "renamed",
        _ => "modified",
    }
}

/// Status of a file with a conflict, which OpenAPI does not name (runatlantis/atlantis, server/events/vcs/bitbucketcloud/client.go).
async fn conflict_of(git: &GitRepo, base: &str, head: &str, path: &str) -> &'static str {
    let has = async |commit: &str| git.file(commit, path).await.is_ok_and(|text| text.is_some());
    match (has(base).await, has(head).await) {
        (false, true) => "local deleted",
        (true, false) => "remote deleted",
        _ => "merge conflict",
    }
}
