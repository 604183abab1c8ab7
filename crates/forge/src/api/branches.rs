//! Branches: their comparison, their tips, and their deletion.

use super::super::repo;
use super::{Call, NOT_FOUND, Refusal, Result, ok};
use http::StatusCode;
use serde_json::{Value, json};

impl Call<'_> {
    /// Compares `base...head`, without their commits and files.
    pub(super) async fn compare(&self, commits: &str) -> Result {
        let (base, head) = commits.split_once("...").ok_or_else(NOT_FOUND)?;
        let git = self.shared.git(&self.full_name).map_err(|_| NOT_FOUND())?;
        let (ahead, behind) = git.distance(base, head).await.map_err(|_| NOT_FOUND())?;
        let status = match (ahead, behind) {
            (0, 0) => "identical",
            (_, 0) => "ahead",
            (0, _) => "behind",
            _ => "diverged",
        };
        ok(
            json!({"status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead, "commits": [], "files": []}),
        )
    }

    pub(super) async fn branch(&self, name: &str) -> Result {
        let git = self.shared.git(&self.full_name).map_err(|_| NOT_FOUND())?;
        let sha = git.heads().await.ok().and_then(|mut heads| heads.remove(name)).ok_or_else(NOT_FOUND)?;
        ok(json!({"ref": format!("refs/heads/{name}"), "object": {"type": "commit", "sha": sha}}))
    }

    pub(super) async fn delete_branch(&self, name: &str) -> Result {
        let deleted = repo::delete_branch(self.shared, &self.full_name, name, &self.login).await;
        deleted.map_err(|_| Refusal(StatusCode::UNPROCESSABLE_ENTITY, "Reference does not exist".to_owned()))?;
        ok(Value::Null)
    }
}
