//! The activity of a repository, as far as it reports pushes to branches (services/feed/notifier.go, `PushCommits` and `CreateRef`).

use super::api::RepoCall;
use super::{Refusal, Result, shapes};
use crate::state::{RepoState, State};
use crate::timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A push to a branch.
struct PushActivity {
    id: u64,
    actor: String,
    branch: String,
    /// Former tip; on a new branch the tip of `main` (services/repository/push.go, `pushUpdates`).
    before: String,
    after: String,
    is_new: bool,
    at: String,
}

/// The pushes to a repository, and the tips that the latest one left.
#[derive(Default)]
pub(super) struct Feed {
    tips: BTreeMap<String, String>,
    /// Oldest first.
    pushes: Vec<PushActivity>,
}

/// Records the branches that have moved, as pushes by this person. The `main` of a new repository is no push.
pub(super) fn follow(state: &mut State, full_name: &str, tips: &BTreeMap<String, String>, actor: &str) {
    let Ok(repo) = state.repo(full_name).map(|repo| repo.id) else { return };
    let (id, at) = (state.new_id(), timestamp());
    let feed = state.gitea.feeds.entry(repo).or_default();
    let known = std::mem::replace(&mut feed.tips, tips.clone());
    for (branch, after) in tips {
        let former = known.get(branch);
        if former == Some(after) || known.is_empty() && branch == "main" {
            continue;
        }
        let before = former.or_else(|| tips.get("main")).unwrap_or(after).clone();
        let (branch, after, is_new) = (branch.clone(), after.clone(), former.is_none());
        feed.pushes.push(PushActivity { id, actor: actor.to_owned(), branch, before, after, is_new, at: at.clone() });
    }
}

impl RepoCall<'_> {
    /// Lists the pushes, newest first.
    pub(super) fn feed(&self) -> Result {
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            let pushes = state.gitea.feeds.get(&repo.id).map(|feed| feed.pushes.as_slice()).unwrap_or_default();
            pushes.iter().rev().flat_map(|push| rows(self.url(), &state, repo, push)).collect()
        };
        self.call.page(rows)
    }
}

/// A push as activities; a new branch has one more, without content (services/convert/activity.go, `ToActivity`).
fn rows(url: &str, state: &State, repo: &RepoState, push: &PushActivity) -> Vec<Value> {
    let compared = format!("{}/compare/{}...{}", repo.full_name(), push.before, push.after);
    let commit = json!({"Sha1": push.after, "Message": "", "AuthorName": push.actor, "CommitterName": push.actor});
    let content = json!({"Commits": [commit], "HeadCommit": commit, "CompareURL": compared, "Len": 1});
    let user = shapes::user(url, state, &push.actor);
    let row = |content: String| {
        json!({
            "id": push.id, "user_id": user["id"], "op_type": "commit_repo", "act_user_id": user["id"], "act_user": user, "repo_id": repo.id,
            "repo": shapes::repo(url, state, repo, "read"), "comment_id": 0, "comment": null,
            "ref_name": format!("refs/heads/{}", push.branch), "is_private": true, "content": content,
            "created": shapes::time(state, &push.at),
        })
    };
    let created = push.is_new.then(|| row(String::new()));
    [row(content.to_string())].into_iter().chain(created).collect()
}
