//! Branches, as refs.

use super::super::repo;
use super::{Call, NOT_FOUND, Refusal, Result, ok};
use http::StatusCode;
use serde_json::{Value, json};

impl Call<'_> {
    /// The tip of a branch.
    pub(super) async fn branch(&self, name: &str) -> Result {
        let git = self.shared.git(&self.full_name).map_err(|_| NOT_FOUND())?;
        let sha = git.heads().await.ok().and_then(|mut heads| heads.remove(name)).ok_or_else(NOT_FOUND)?;
        ok(json!({"ref": format!("refs/heads/{name}"), "object": {"type": "commit", "sha": sha}}))
    }

    /// Deletes it.
    pub(super) async fn delete_branch(&self, name: &str) -> Result {
        let deleted = repo::delete_branch(self.shared, &self.full_name, name, &self.login).await;
        deleted.map_err(|_| Refusal(StatusCode::UNPROCESSABLE_ENTITY, "Reference does not exist".to_owned()))?;
        ok(Value::Null)
    }
}
