//! Commits, their differences, files and branches.

use super::super::git::{ChangedFile, CommitDetails, GitRepo};
use super::super::repo;
use super::access::Level;
use super::api::{RepoCall, most, no_content, no_route, ok};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::header;
use serde_json::{Value, json};

fn broken(error: anyhow::Error) -> Refusal {
    Refusal::broken(&error)
}

/// A file's path in its parts (go-scm, changes.json).
fn path_parts(path: &str) -> Value {
    let parts: Vec<&str> = path.split('/').collect();
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut body = json!({"components": parts, "parent": parent, "name": name, "toString": path});
    if let Some((_, extension)) = name.rsplit_once('.') {
        body["extension"] = extension.into();
    }
    body
}

/// A changed file (go-scm, changes.json).
fn shaped_change(file: &ChangedFile) -> Value {
    let word = match file.status {
        "added" => "ADD",
        "deleted" => "DELETE",
        "renamed" => "MOVE",
        _ => "MODIFY",
    };
    let mut body = json!({"path": path_parts(&file.path), "type": word, "nodeType": "FILE", "executable": false});
    if let Some(former) = &file.former_path {
        body["srcPath"] = path_parts(former);
    }
    body
}

impl RepoCall<'_> {
    pub(super) async fn of_commits(&self, method: &str, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => self.commits().await,
            ("GET", [commit]) => {
                // OpenAPI: "ref names like "refs/heads/master" are no longer accepted by this resource".
                let is_id = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
                if !is_id {
                    return Err(self.no_commit(commit));
                }
                let commit = self.known_commit(commit).await?;
                let body = self.shaped_commit(&self.git()?, &commit).await?;
                ok(body)
            }
            ("GET", [commit, "changes"]) => {
                let commit = self.known_commit(commit).await?;
                let since = self.call.asked("since").map_or_else(|| format!("{commit}~1"), str::to_owned);
                self.changes(&since, &commit).await
            }
            (method, [commit, "builds"]) => self.of_builds(method, commit).await,
            _ => Err(no_route()),
        }
    }

    /// Returns the full id of the commit that an id, the first digits of one or a branch names.
    pub(super) async fn known_commit(&self, name: &str) -> Result<String> {
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
        self.git()?.resolve(branch).await.ok_or_else(|| self.no_commit(name))
    }

    fn no_commit(&self, name: &str) -> Refusal {
        let text = format!("Commit '{name}' does not exist in repository '{}'.", self.full_name);
        Refusal::not_found("commit.NoSuchCommitException", text)
    }

    /// A commit (go-scm, commit.json).
    async fn shaped_commit(&self, git: &GitRepo, commit: &str) -> Result<Value> {
        let CommitDetails { time, author, parents, message } = git.details(commit).await.map_err(broken)?;
        let state = self.call.shared.lock();
        let person = match state.users.contains_key(&author.to_lowercase()) {
            true => shapes::person(self.url(), &state, &author),
            false => json!({"name": author, "emailAddress": format!("{author}@sandbox.invalid")}),
        };
        let parents: Vec<Value> = parents.iter().map(|id| json!({"id": id, "displayId": shapes::short(id)})).collect();
        Ok(json!({
            "id": commit, "displayId": shapes::short(commit), "author": person, "authorTimestamp": time * 1000,
            "committer": person, "committerTimestamp": time * 1000, "message": message, "parents": parents,
        }))
    }

    /// Commits up to `until`, or the default branch, and after `since` (OpenAPI, "Get commits").
    async fn commits(&self) -> Result {
        let until = self.known_commit(self.call.asked("until").unwrap_or("main")).await?;
        let since = match self.call.asked("since") {
            Some(name) => vec![self.known_commit(name).await?],
            None => Vec::new(),
        };
        self.page_of_commits(&until, &since).await
    }

    pub(super) async fn commits_of_pull(&self, number: u64) -> Result {
        let (head, base) = self.of_pull(number, |_, _, pull| (pull.head_sha.clone(), pull.tried_with.clone()))?;
        self.page_of_commits(&head, &[base]).await
    }

    async fn page_of_commits(&self, until: &str, since: &[String]) -> Result {
        let (git, mut rows) = (self.git()?, Vec::new());
        for commit in git.reachable(until, since).await.map_err(broken)? {
            rows.push(self.shaped_commit(&git, &commit).await?);
        }
        self.call.page(rows, most::COMMITS)
    }

    pub(super) async fn changes_of_pull(&self, number: u64) -> Result {
        let (head, base) = self.of_pull(number, |_, _, pull| (pull.head_sha.clone(), pull.tried_with.clone()))?;
        self.changes(&base, &head).await
    }

    /// Differences of two commits or branches (OpenAPI, "Compare commits").
    pub(super) async fn compared(&self) -> Result {
        let from = self.known_commit(self.call.asked("from").unwrap_or("main")).await?;
        let to = self.known_commit(self.call.asked("to").unwrap_or("main")).await?;
        self.changes(&to, &from).await
    }

    async fn changes(&self, base: &str, head: &str) -> Result {
        let files = self.git()?.changed_files(base, head).await.map_err(broken)?;
        self.call.page(files.iter().map(shaped_change).collect(), most::CHANGES)
    }

    /// The commit of the parameter `at`, or the tip of the default branch.
    async fn asked_commit(&self) -> Result<String> {
        self.known_commit(self.call.asked("at").unwrap_or("main")).await
    }

    /// The bytes of a file (OpenAPI, "Get raw content of a file at revision").
    pub(super) async fn raw(&self, path: &str) -> Result {
        let commit = self.asked_commit().await?;
        let text = match path.is_empty() {
            true => return Err(Refusal::invalid("A path is required.")),
            false => self.git()?.file(&commit, path).await.unwrap_or_default(),
        };
        let text = text.ok_or_else(|| {
            let at = self.call.asked("at").unwrap_or("refs/heads/main");
            let text = format!("The path \"{path}\" does not exist at revision \"{at}\"");
            Refusal::not_found("content.NoSuchPathException", text)
        })?;
        Ok(([(header::CONTENT_TYPE, "text/plain;charset=UTF-8")], text).into_response())
    }

    /// Paths of all files of a directory and those below it, relative to it (OpenAPI, "Get files in directory").
    pub(super) async fn files(&self, path: &str) -> Result {
        let files = self.git()?.files(&self.asked_commit().await?).await.map_err(broken)?;
        let below = if path.is_empty() { String::new() } else { format!("{path}/") };
        let rows = files.iter().filter_map(|file| file.strip_prefix(&below)).map(Value::from).collect();
        self.call.page(rows, most::FILES)
    }

    /// Branches whose names have the text of `filterText` (go-scm, branches.json).
    pub(super) async fn branches(&self) -> Result {
        let filter = self.call.asked("filterText").unwrap_or_default().to_lowercase();
        let heads = self.git()?.heads().await.map_err(broken)?;
        let named = heads.iter().filter(|(name, _)| name.to_lowercase().contains(&filter));
        self.call.page(named.map(|(name, tip)| shaped_branch(name, tip)).collect(), most::BRANCHES)
    }

    pub(super) async fn default_branch(&self) -> Result {
        let tip = self.known_commit("main").await?;
        ok(shaped_branch("main", &tip))
    }

    /// Deletes a branch as somebody who may write, if it is at `endPoint`. One that is not there is gone already (OpenAPI).
    pub(super) async fn delete_branch(&self) -> Result {
        self.check_level(Level::Write)?;
        let name = self.call.text("/name").ok_or_else(|| Refusal::field("name", "A branch name is required."))?;
        let name = name.strip_prefix("refs/heads/").unwrap_or(name);
        let heads = self.git()?.heads().await.map_err(broken)?;
        let Some(tip) = heads.get(name) else { return no_content() };
        if name == "main" {
            return Err(Refusal::invalid("The default branch cannot be deleted."));
        }
        if self.call.text("/endPoint").is_some_and(|commit| commit != tip) {
            let text = format!("Branch refs/heads/{name} does not point to the expected commit, but to {tip}.");
            return Err(Refusal::field("endPoint", text));
        }
        if self.call.flag("/dryRun") != Some(true) {
            let deleted = repo::delete_branch(self.call.shared, &self.full_name, name, &self.call.login).await;
            deleted.map_err(broken)?;
        }
        no_content()
    }
}

fn shaped_branch(name: &str, tip: &str) -> Value {
    json!({
        "id": format!("refs/heads/{name}"), "displayId": name, "type": "BRANCH", "latestCommit": tip, "latestChangeset": tip,
        "isDefault": name == "main", "default": name == "main",
    })
}
