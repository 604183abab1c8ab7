//! The merge queue: a pull request gets a commit on top of the one ahead of it, and checks are requested for that commit.

use super::pull::Pull;
use super::state::State;
use super::{hooks, shapes};
use anyhow::Context;
use serde_json::{Value, json};

impl Pull {
    /// Adds it to the queue behind the commit of another group, or at the front, and returns the id of its own commit. That has this pull
    /// request merged into the commit ahead, or into the base branch's tip. Queuing it again creates another commit.
    pub async fn enqueue(&self, behind: Option<&str>) -> anyhow::Result<String> {
        let (shared, full_name) = (&self.repo.forge.shared, &self.repo.full_name);
        let _refs = shared.refs.lock().await;
        let git = shared.git(full_name)?;
        let (base_ref, head_sha, id) = shared.change(|state| -> anyhow::Result<_> {
            let id = state.new_id();
            let pull = state.pull(full_name, self.number)?;
            Ok((pull.base_ref.clone(), pull.head_sha.clone(), id))
        })?;
        let base = match behind {
            Some(commit) => commit.to_owned(),
            None => git.heads().await?.remove(&base_ref).context("the base branch is gone")?,
        };
        let tree = git.merge_tree(&base, &head_sha).await?.context("Pull Request is not mergeable")?;
        let message = format!("Merge pull request #{}\n\nEntry {id} of the queue.", self.number);
        let commit = git.commit_tree(&tree, &[&base, &head_sha], "merge-queue", &message).await?;
        let reference = format!("refs/heads/gh-readonly-queue/{base_ref}/pr-{}-{base}", self.number);
        git.update_ref(&reference, &commit, None).await?;
        shared.change(|state| {
            let payload = event(&shared.url, state, full_name, &base_ref, &base, &reference, &commit)?;
            hooks::emit(state, "merge_group", Some("checks_requested"), &payload);
            Ok(commit)
        })
    }
}

fn event(
    url: &str,
    state: &State,
    full_name: &str,
    base_ref: &str,
    base: &str,
    reference: &str,
    commit: &str,
) -> anyhow::Result<Value> {
    let repo = state.repo(full_name)?;
    Ok(json!({
        "action": "checks_requested",
        "merge_group": {"head_sha": commit, "head_ref": reference, "base_sha": base, "base_ref": format!("refs/heads/{base_ref}"),
            "head_commit": {"id": commit}},
        "repository": shapes::repo(url, state, repo), "sender": shapes::user(url, state, "github-merge-queue[bot]"),
    }))
}
