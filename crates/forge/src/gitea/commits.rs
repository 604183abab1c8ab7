//! Commits, comparisons and files (routers/api/v1/repo/compare.go, routers/api/v1/repo/file.go).

use super::super::git::CommitLine;
use super::super::state::{RepoState, State};
use super::api::{RepoCall, ok};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use base64::Engine;
use serde_json::{Value, json};

impl RepoCall<'_> {
    /// Lists the commits that the head of `BASE...HEAD` has and the base does not, the newest first.
    pub(super) async fn compare(&self, range: &str) -> Result {
        let (base, head) = range.split_once("...").ok_or_else(Refusal::not_found)?;
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found())?;
        let heads = git.heads().await.map_err(|error| Refusal::broken(&error))?;
        let commit = async |name: &str| match heads.get(name) {
            Some(tip) => Ok(tip.clone()),
            None if git.has_commit(name).await => Ok(name.to_owned()),
            None => Err(Refusal::not_found()),
        };
        let (base, head) = (commit(base).await?, commit(head).await?);
        let lines = git.log(&base, &head).await.map_err(|error| Refusal::broken(&error))?;
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let rows: Vec<Value> = lines.iter().rev().map(|line| shaped(self.url(), &state, repo, line)).collect();
        ok(json!({"total_commits": rows.len(), "commits": rows}))
    }

    async fn text_of(&self, path: &str) -> Result<String> {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found())?;
        let reference = self.call.asked("ref").unwrap_or("main");
        let text = git.file(reference, path).await.map_err(|_| Refusal::not_found())?;
        text.ok_or_else(|| Refusal::absent(Some(format!("object does not exist [id: , rel_path: {path}]"))))
    }

    /// Answers with the content of a file.
    pub(super) async fn raw(&self, path: &str) -> Result {
        Ok(self.text_of(path).await?.into_response())
    }

    /// Answers with a file and its content in Base64.
    pub(super) async fn contents(&self, path: &str) -> Result {
        let text = self.text_of(path).await?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let content = base64::prelude::BASE64_STANDARD.encode(&text);
        ok(
            json!({"name": name, "path": path, "type": "file", "size": text.len(), "encoding": "base64", "content": content,
            "target": null, "submodule_git_url": null}),
        )
    }
}

/// A commit: `ToCommit` of services/convert/git_commit.go.
pub(super) fn shaped(url: &str, state: &State, repo: &RepoState, line: &CommitLine) -> Value {
    let (own, web) = (format!("{}/git/commits/{}", shapes::api(url, repo), line.sha), shapes::web(url, repo));
    let known = state.users.contains_key(&line.author.to_lowercase());
    let author = known.then(|| shapes::user(url, state, &line.author));
    let person = json!({"name": line.author, "email": format!("{}@sandbox.invalid", line.author)});
    json!({
        "url": own, "sha": line.sha, "html_url": format!("{web}/commit/{}", line.sha), "author": author, "committer": author,
        "commit": {"url": own, "author": person, "committer": person, "message": format!("{}\n", line.subject)},
    })
}
