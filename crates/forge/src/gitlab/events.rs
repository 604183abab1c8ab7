//! Events of a project (docs.gitlab.com/api/events): pushes to the branches of its merge requests, and comments on them.

use super::super::state::{CommentState, PullState, PushState, RepoState, State};
use super::api::ProjectCall;
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

impl ProjectCall<'_> {
    /// Lists events, latest first: those of one action if asked for.
    pub(super) fn events(&self) -> Result {
        let action = self.call.text("action");
        let is_wanted = |name: &str| action.as_deref().is_none_or(|action| action == name);
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let own = state.repos.values().flat_map(|target| &target.pulls);
            let own = own.filter(|pull| is_wanted("pushed") && pull.head_repo.eq_ignore_ascii_case(&self.full_name));
            let pushes = own.flat_map(|pull| pushes(self.url(), &state, repo, pull));
            let said = repo.pulls.iter().filter(|_| is_wanted("commented"));
            let said = said.flat_map(|pull| comments(self.url(), &state, repo, pull));
            let mut rows: Vec<(&str, Value)> = pushes.chain(said).collect();
            rows.sort_by(|(one, _), (other, _)| other.cmp(one));
            rows.into_iter().map(|(_, row)| row).collect()
        };
        self.call.page(rows)
    }
}

fn event(url: &str, state: &State, repo: &RepoState, (id, action): (u64, &str), (author, at): (&str, &str)) -> Value {
    json!({
        "id": id, "project_id": repo.id, "action_name": action, "target_id": null, "target_iid": null, "target_type": null,
        "target_title": null, "imported": false, "imported_from": "none", "author_id": shapes::id_of(state, author),
        "created_at": shapes::api_time(at), "author": shapes::person(url, state, author), "author_username": author,
    })
}

fn pushes<'a>(url: &str, state: &State, repo: &RepoState, pull: &'a PullState) -> Vec<(&'a str, Value)> {
    let row = |(place, push): (usize, &'a PushState)| {
        let before = place.checked_sub(1).and_then(|before| pull.pushes.get(before)).map(|push| &push.commit);
        let (name, action) = if place == 0 { ("pushed new", "created") } else { ("pushed to", "pushed") };
        let mut row = event(url, state, repo, (pull.id * 1000 + place as u64, name), (&push.author, &push.at));
        row["push_data"] = json!({"commit_count": 1, "action": action, "ref_type": "branch", "commit_from": before,
            "commit_to": push.commit, "ref": pull.head_ref, "commit_title": pull.title, "ref_count": null});
        (push.at.as_str(), row)
    };
    pull.pushes.iter().enumerate().map(row).collect()
}

fn comments<'a>(url: &str, state: &State, repo: &RepoState, pull: &'a PullState) -> Vec<(&'a str, Value)> {
    let row = |note: &'a CommentState| {
        let mut row = event(url, state, repo, (note.id, "commented on"), (&note.author, &note.created_at));
        (row["target_id"], row["target_iid"], row["target_type"]) = (note.id.into(), note.id.into(), json!("Note"));
        row["note"] = shapes::note(url, state, repo, pull, (note, false));
        (note.created_at.as_str(), row)
    };
    pull.comments.iter().map(row).collect()
}
