//! Events of a project (docs.gitlab.com/api/events): pushes to the branches of its merge requests.

use super::super::state::{PullState, PushState, RepoState, State};
use super::api::ProjectCall;
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

impl ProjectCall<'_> {
    /// Lists pushes, latest first.
    pub(super) fn events(&self) -> Result {
        let is_wanted = self.call.text("action").is_none_or(|action| action == "pushed");
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let own = state.repos.values().flat_map(|target| &target.pulls);
            let own = own.filter(|pull| is_wanted && pull.head_repo.eq_ignore_ascii_case(&self.full_name));
            let mut pushes: Vec<(&str, Value)> = own.flat_map(|pull| of_pull(self.url(), &state, repo, pull)).collect();
            pushes.sort_by(|(one, _), (other, _)| other.cmp(one));
            pushes.into_iter().map(|(_, row)| row).collect()
        };
        self.call.page(rows)
    }
}

fn of_pull<'a>(url: &str, state: &State, repo: &RepoState, pull: &'a PullState) -> Vec<(&'a str, Value)> {
    let row = |(place, push): (usize, &'a PushState)| {
        let before = place.checked_sub(1).and_then(|before| pull.pushes.get(before)).map(|push| &push.commit);
        let row = json!({
            "id": pull.id * 1000 + place as u64, "project_id": repo.id, "action_name": if place == 0 { "pushed new" } else { "pushed to" },
            "target_id": null, "target_iid": null, "target_type": null, "target_title": null, "imported": false,
            "author_id": shapes::id_of(state, &push.author), "created_at": shapes::api_time(&push.at),
            "author": shapes::person(url, state, &push.author), "author_username": push.author,
            "push_data": {"commit_count": 1, "action": if place == 0 { "created" } else { "pushed" }, "ref_type": "branch",
                "commit_from": before, "commit_to": push.commit, "ref": pull.head_ref, "commit_title": pull.title, "ref_count": null},
        });
        (push.at.as_str(), row)
    };
    pull.pushes.iter().enumerate().map(row).collect()
}
