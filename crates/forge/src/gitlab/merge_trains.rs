//! Merge trains, a feature of Premium (docs.gitlab.com/api/merge_trains). The train of the forge moves when a test says so.

use super::super::Pull;
use super::api::{ProjectCall, created, no_record, ok};
use super::members::DEVELOPER;
use super::merging::{self, Merge, check_sha};
use super::{Refusal, Result, shapes};
use anyhow::Context;
use http::StatusCode;
use serde_json::{Value, json};

impl ProjectCall<'_> {
    pub(super) fn of_merge_trains(&self, method: &str, rest: &[&str]) -> Result {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        if !state.gitlab.projects.get(&repo.id).is_some_and(|settings| settings.has_merge_trains) {
            return Err(Refusal::forbidden());
        }
        drop(state);
        match (method, rest) {
            ("GET", ["merge_requests", number]) => {
                let number = number.parse().map_err(|_| no_record())?;
                ok(self.car(number)?.ok_or_else(no_record)?)
            }
            ("POST", ["merge_requests", number]) => self.join_train(number.parse().map_err(|_| no_record())?),
            _ => Err(no_record()),
        }
    }

    /// A merge request on the train; absent if it is on none.
    fn car(&self, number: u64) -> Result<Option<Value>> {
        self.of_pull(number, |state, _, pull| {
            let merge = state.gitlab.merges.get(&pull.id).filter(|merge| merge.on_train.is_some());
            merge.map(|_| {
                json!({
                    "id": pull.id, "target_branch": pull.base_ref, "status": if pull.merged.is_some() { "merged" } else { "fresh" },
                    "created_at": shapes::api_time(&pull.updated_at), "merged_at": null, "duration": null, "pipeline": null,
                    "merge_request": {"id": pull.id, "iid": pull.number, "title": pull.title, "state": shapes::state_word(pull)},
                    "user": shapes::person(self.url(), state, &self.call.login),
                })
            })
        })
    }

    /// Adds a merge request. Statuses as the page names them: 409 for another head, 400 for one that cannot be merged.
    fn join_train(&self, number: u64) -> Result {
        self.check_level(DEVELOPER)?;
        let (id, head, is_mergeable) = self.of_pull(number, |state, repo, pull| {
            (pull.id, pull.head_sha.clone(), merging::check(state, repo, pull).is_ok())
        })?;
        check_sha(self.call.text("sha"), &head)?;
        if !is_mergeable {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "Failed to merge"));
        }
        let how = Merge::by(&self.call.login);
        self.call.shared.change(|state| state.gitlab.merges.entry(id).or_default().on_train = Some(how));
        created(Value::Array(self.car(number)?.into_iter().collect()))
    }
}

impl Pull {
    /// Merges a merge request that is on the train of its target branch.
    pub async fn arrive(&self) -> anyhow::Result<()> {
        let shared = &self.repo.forge.shared;
        let how = {
            let state = shared.lock();
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            state.gitlab.merges.get(&id).and_then(|merge| merge.on_train.clone())
        };
        let how = how.with_context(|| format!("!{} is on no merge train", self.number))?;
        merging::merge(shared, &self.repo.full_name, self.number, &how).await
    }
}
