//! Merge requests as they are read (docs.gitlab.com/api/merge_requests).

use super::super::state::{PullState, PushState, RepoState, State};
use super::api::{ProjectCall, ok};
use super::{Refusal, Result, merging, repository, shapes};
use serde_json::{Value, json};

impl ProjectCall<'_> {
    /// Lists merge requests, by default of every state and latest first.
    pub(super) fn merge_requests(&self) -> Result {
        let wanted = self.call.text("state").unwrap_or_else(|| "all".to_owned());
        if !["opened", "closed", "locked", "merged", "all"].contains(&wanted.as_str()) {
            return Err(Refusal::parameter("state", "does not have a valid value"));
        }
        let by_update = self.call.text("order_by").is_some_and(|order| order == "updated_at");
        let ascending = self.call.text("sort").is_some_and(|sort| sort == "asc");
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let is_wanted = |pull: &&PullState| wanted == "all" || shapes::state_word(pull) == wanted;
            let mut pulls: Vec<&PullState> = repo.pulls.iter().filter(is_wanted).collect();
            pulls.sort_by_key(|pull| (if by_update { &pull.updated_at } else { &pull.created_at }, pull.number));
            if !ascending {
                pulls.reverse();
            }
            pulls.into_iter().map(|pull| shapes::merge_request(self.url(), &state, repo, pull)).collect()
        };
        self.call.page(rows)
    }

    /// Answers with one merge request. The first answer after a change of head or target branch has no merge status yet: it starts the
    /// check (docs.gitlab.com/api/merge_requests, "Merge status").
    pub(super) async fn merge_request(&self, number: u64) -> Result {
        let is_known = self.call.shared.change(|state| merging::ask(state, &self.full_name, number));
        let mut body = self.details(number).await?;
        if !is_known {
            (body["merge_status"], body["detailed_merge_status"]) = (json!("checking"), json!("checking"));
            body["has_conflicts"] = false.into();
        }
        ok(body)
    }

    /// A merge request with what lists leave out.
    pub(super) async fn details(&self, number: u64) -> Result<Value> {
        let (git, start, head) =
            self.of_pull(number, |_, repo, pull| (repo.git.clone(), pull.base_sha.clone(), pull.head_sha.clone()))?;
        let base = git.merge_base(&start, &head).await;
        self.of_pull(number, |state: &State, repo: &RepoState, pull: &PullState| {
            let pipeline = state.gitlab.pipelines.shaped_head(self.url(), state, repo, pull);
            let more = json!({
                "subscribed": false, "changes_count": "1", "latest_build_started_at": null, "latest_build_finished_at": null,
                "first_deployed_to_production_at": null, "pipeline": pipeline, "head_pipeline": pipeline,
                "diff_refs": {"base_sha": base, "head_sha": head, "start_sha": start}, "merge_error": null,
                "first_contribution": false, "user": {"can_merge": true},
            });
            shapes::joined(shapes::merge_request(self.url(), state, repo, pull), more)
        })
    }

    /// Lists the states after each push, latest first (docs.gitlab.com/api/merge_requests, "List merge request diff versions").
    pub(super) async fn versions(&self, number: u64) -> Result {
        let (git, start, head) =
            self.of_pull(number, |_, repo, pull| (repo.git.clone(), pull.base_sha.clone(), pull.head_sha.clone()))?;
        let base = git.merge_base(&start, &head).await;
        let rows = self.of_pull(number, |_, _, pull| {
            let row = |(place, push): (usize, &PushState)| {
                json!({"id": pull.id * 1000 + place as u64, "head_commit_sha": push.commit, "base_commit_sha": base,
                    "start_commit_sha": start, "created_at": shapes::api_time(&push.at), "merge_request_id": pull.id,
                    "state": "collected", "real_size": "1", "patch_id_sha": null})
            };
            pull.pushes.iter().enumerate().rev().map(row).collect()
        })?;
        self.call.page(rows)
    }

    /// Lists commits, newest first.
    pub(super) async fn commits(&self, number: u64) -> Result {
        let (git, start, head) =
            self.of_pull(number, |_, repo, pull| (repo.git.clone(), pull.base_sha.clone(), pull.head_sha.clone()))?;
        let lines = git.log(&start, &head).await.map_err(|error| Refusal::broken(&error))?;
        self.call.page(lines.iter().rev().map(repository::commit).collect())
    }
}
