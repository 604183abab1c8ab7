//! Branches, commits and files (docs.gitlab.com/api/branches, docs.gitlab.com/api/commits, docs.gitlab.com/api/repositories).

use super::super::git::CommitLine;
use super::super::repo;
use super::api::{ProjectCall, no_route, ok};
use super::members::DEVELOPER;
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::{StatusCode, header};
use serde_json::{Value, json};

/// A commit of a list.
pub(super) fn commit(line: &CommitLine) -> Value {
    json!({
        "id": line.sha, "short_id": line.sha.get(..8), "title": line.subject, "message": line.subject, "author_name": line.author,
        "author_email": format!("{}@sandbox.invalid", line.author), "committer_name": line.author,
        "committer_email": format!("{}@sandbox.invalid", line.author), "parent_ids": [],
    })
}

impl ProjectCall<'_> {
    pub(super) async fn of_repository(&self, method: &str, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", ["branches", name]) => self.branch(name).await,
            ("DELETE", ["branches", name]) => self.delete_branch(name).await,
            ("GET", ["merge_base"]) => self.merge_base().await,
            ("GET", ["commits", sha, "refs"]) => self.refs_of(sha).await,
            ("GET", ["files", path, "raw"]) => self.file(path).await,
            _ => Err(no_route()),
        }
    }

    async fn tip(&self, name: &str) -> Result<Option<String>> {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        Ok(git.heads().await.map_err(|error| Refusal::broken(&error))?.remove(name))
    }

    async fn branch(&self, name: &str) -> Result {
        let tip = self.tip(name).await?.ok_or_else(|| Refusal::not_found("Branch"))?;
        let is_default = name == "main";
        self.read(|_, repo| {
            let web = format!("{}/-/tree/{}", shapes::web_url(self.url(), repo), shapes::encoded(name));
            json!({"name": name, "merged": false, "protected": is_default, "default": is_default, "developers_can_push": false,
                "developers_can_merge": false, "can_push": true, "web_url": web,
                "commit": {"id": tip, "short_id": tip.get(..8), "title": "", "message": "", "parent_ids": []}})
        })
    }

    /// A protected branch cannot be deleted: docs.gitlab.com/user/project/repository/branches/protected.
    async fn delete_branch(&self, name: &str) -> Result {
        self.check_level(DEVELOPER)?;
        self.tip(name).await?.ok_or_else(|| Refusal::not_found("Branch"))?;
        if name == "main" {
            return Err(Refusal::forbidden());
        }
        let deleted = repo::delete_branch(self.call.shared, &self.full_name, name, &self.call.login).await;
        deleted.map_err(|error| Refusal::broken(&error))?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Answers with the best common ancestor. `Could not find ref` is of lib/api/repositories.rb.
    async fn merge_base(&self) -> Result {
        let refs = self.call.all("refs[]");
        let [one, other] = refs.as_slice() else {
            return Err(Refusal::bad_request("400 Bad request - Provide at least 2 refs"));
        };
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        for name in [one, other] {
            if git.merge_base(name, name).await.is_none() {
                return Err(Refusal::bad_request(format!("Could not find ref: {name}")));
            }
        }
        let base = git.merge_base(one, other).await.ok_or_else(|| Refusal::not_found("Merge Base"))?;
        ok(commit(&CommitLine { sha: base, author: "alice".to_owned(), subject: String::new() }))
    }

    async fn refs_of(&self, sha: &str) -> Result {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        if !git.has_commit(sha).await {
            return Err(Refusal::not_found("Commit"));
        }
        let branches = git.branches_with(sha).await.map_err(|error| Refusal::broken(&error))?;
        self.call.page(branches.iter().map(|name| json!({"type": "branch", "name": name})).collect())
    }

    async fn file(&self, path: &str) -> Result {
        let reference = self.call.text("ref").unwrap_or_else(|| "main".to_owned());
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        if git.merge_base(&reference, &reference).await.is_none() {
            return Err(Refusal::not_found("Commit"));
        }
        let text = git.file(&reference, path).await.ok().flatten().ok_or_else(|| Refusal::not_found("File"))?;
        Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
    }
}
