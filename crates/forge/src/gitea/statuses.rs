//! Commit statuses (routers/api/v1/repo/status.go, models/git/commit_status.go).

use super::super::state::{RepoState, State, StatusState};
use super::super::timestamp;
use super::api::{RepoCall, created, total_count};
use super::{Refusal, Result, access, shapes};
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::{Value, json};

impl RepoCall<'_> {
    /// Adds a status: a new row each time, of which the last of a context counts. Any word is taken for a state, and a context may be empty.
    pub(super) async fn set_status(&self, sha: &str) -> Result {
        self.check_writer()?;
        // `NewCommitStatus` has no case of its own for an unknown commit.
        let unknown = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "");
        let commit = self.commit(sha).await.map_err(unknown)?;
        let word = self.call.text("state").unwrap_or_default();
        let context = self.call.text("context");
        let (shared, login) = (self.call.shared, &self.call.login);
        shared.change(|state| {
            let id = state.new_id();
            let repo = state.repo_mut(&self.full_name).map_err(|_| Refusal::not_found())?;
            repo.statuses.push(StatusState {
                id,
                sha: commit,
                creator: login.clone(),
                state: word,
                context: context.unwrap_or_default(),
                description: self.call.text("description"),
                target_url: self.call.text("target_url"),
                created_at: timestamp(),
                of_push: None,
            });
            let (state, repo) = (&*state, state.repo(&self.full_name).map_err(|_| Refusal::not_found())?);
            created(repo.statuses.last().map(|status| shaped(self.url(), state, repo, status)).into())
        })
    }

    /// Returns the full id of a commit or of a branch's tip.
    async fn commit(&self, reference: &str) -> Result<String> {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found())?;
        if git.has_commit(reference).await {
            return Ok(reference.to_owned());
        }
        let heads = git.heads().await.map_err(|error| Refusal::broken(&error))?;
        let unknown = || Refusal::absent(Some(format!("object does not exist [id: {reference}, rel_path: ]")));
        heads.get(reference).cloned().ok_or_else(unknown)
    }

    /// Lists all statuses of a commit. The latest second comes first, but within a second the oldest: the order does not tell the last one,
    /// ids do (`ToOrders` of models/git/commit_status.go).
    pub(super) async fn statuses(&self, reference: &str) -> Result {
        self.statuses_of(&self.commit(reference).await?)
    }

    /// The same by the id of a commit, which need not be there.
    pub(super) fn statuses_of(&self, commit: &str) -> Result {
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            let mut of_commit: Vec<&StatusState> = repo.statuses.iter().filter(|status| status.sha == commit).collect();
            of_commit.sort_by_key(|status| std::cmp::Reverse(shapes::time(&state, &status.created_at)));
            of_commit.into_iter().map(|status| shaped(self.url(), &state, repo, status)).collect()
        };
        self.call.page(rows)
    }

    /// One page of the latest statuses of contexts, and what they come to. The latest are on the first page (models/git/commit_status.go,
    /// `GetLatestCommitStatus`).
    pub(super) async fn combined_status(&self, reference: &str) -> Result {
        let commit = self.commit(reference).await?;
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let mut latest: Vec<&StatusState> = repo.latest_statuses(&commit).into_values().collect();
        let ((page, limit), total) = (self.call.paging(), latest.len());
        latest.sort_by_key(|status| std::cmp::Reverse(status.id));
        latest = latest.into_iter().skip((page - 1).saturating_mul(limit)).take(limit).collect();
        latest.sort_by_key(|status| status.id);
        let rows: Vec<Value> = latest.iter().map(|status| shaped(self.url(), &state, repo, status)).collect();
        let api = shapes::api(self.url(), repo);
        let body = json!({
            "state": combined(&latest), "sha": commit, "total_count": rows.len(),
            "statuses": if rows.is_empty() { Value::Null } else { rows.into() },
            "repository": shapes::repo(self.url(), &state, repo, access::level(repo, &self.call.login)),
            "commit_url": format!("{api}/commits/{commit}"), "url": format!("{api}/commits/{commit}/status"),
        });
        Ok((self.call.links(total), total_count(total), axum::Json(body)).into_response())
    }
}

/// `Combine` of modules/commitstatus/commit_status.go.
fn combined(latest: &[&StatusState]) -> &'static str {
    let has = |words: &[&str]| latest.iter().any(|status| words.contains(&status.state.as_str()));
    match () {
        () if has(&["error", "failure", "warning"]) => "failure",
        () if latest.is_empty() || has(&["pending"]) => "pending",
        () => "success",
    }
}

/// A status; its id is its place among those of the commit (services/convert/status.go, `ToCommitStatus`).
fn shaped(url: &str, state: &State, repo: &RepoState, status: &StatusState) -> Value {
    let place = repo.statuses.iter().filter(|other| other.sha == status.sha && other.id <= status.id).count();
    let at = shapes::time(state, &status.created_at);
    json!({
        "id": place, "status": status.state, "target_url": status.target_url.as_deref().unwrap_or_default(),
        "description": status.description.as_deref().unwrap_or_default(),
        "url": format!("{}/statuses/{}", shapes::api(url, repo), status.sha), "context": status.context,
        "creator": shapes::user(url, state, &status.creator), "created_at": at, "updated_at": at,
    })
}
