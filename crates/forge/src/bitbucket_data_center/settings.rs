//! Settings of Bitbucket Data Center, its repositories and pull requests that tests choose.

use super::super::state::State;
use super::super::{Forge, Pull, Repo, hooks as deliveries};
use super::checks::{self, RepositoryRules};
use super::comments::{self, CommentFacts};
use super::hooks;
use anyhow::Context;
use serde_json::{Value, json};

/// Takes the secret of the webhook away.
pub(in super::super) fn take_secret(state: &mut State) {
    state.bitbucket_data_center.hook.has_no_secret = true;
}

/// Sets the name that a person is shown with.
pub(in super::super) fn set_display_name(state: &mut State, login: &str, name: &str) {
    state.bitbucket_data_center.display_names.insert(login.to_lowercase(), name.to_owned());
}

/// Sets whether deliveries are skipped after failures.
pub(in super::super) fn set_circuit_breaker(state: &mut State, is_on: bool) {
    state.bitbucket_data_center.hook.never_skips = !is_on;
}

/// Adds a comment on a line of a file (OpenAPI, "Add pull request comment").
pub(in super::super) fn comment_on_line(
    pull: &Pull,
    user: &str,
    path: &str,
    line: u64,
    text: &str,
) -> anyhow::Result<u64> {
    let anchor = json!({
        "path": path, "line": line, "lineType": "ADDED", "fileType": "TO", "diffType": "EFFECTIVE", "orphaned": false,
    });
    pull.comment_with(user, text, CommentFacts { anchor: Some(anchor), ..CommentFacts::default() })
}

/// Takes approvals back after a push where the repository is so.
pub(super) fn follow_push(state: &mut State, full_name: &str, number: u64) -> anyhow::Result<()> {
    if !checks::of(state, state.repo(full_name)?).resets_approvals {
        return Ok(());
    }
    for review in state.pull_mut(full_name, number)?.reviews.iter_mut().filter(|review| review.vote > 0) {
        (review.state, review.vote) = ("DISMISSED", 0);
    }
    Ok(())
}

impl Forge {
    /// Sets the version that Bitbucket Data Center tells, such as `8.19.1`.
    pub fn set_data_center_version(&self, version: &str) {
        self.shared.change(|state| state.bitbucket_data_center.version = Some(version.to_owned()));
    }

    /// Gives a project of Bitbucket Data Center another name. Names say nothing: they may be the key of another project.
    pub fn set_project_name(&self, key: &str, name: &str) {
        self.shared.change(|state| {
            state.bitbucket_data_center.project_names.insert(key.to_lowercase(), name.to_owned());
        });
    }

    /// Sends the ping of Bitbucket Data Center's "Test connection" to the webhook, which is not signed.
    pub fn ping_webhook(&self) {
        self.shared.change(hooks::ping);
    }

    /// Queues a delivery of Bitbucket Data Center with this event and payload, signed like all others.
    pub fn deliver(&self, event: &str, payload: &Value) {
        self.shared.change(|state| deliveries::emit(state, event, None, payload));
    }
}

impl Repo {
    fn change_rules(&self, act: impl FnOnce(&mut RepositoryRules)) -> anyhow::Result<()> {
        self.forge.shared.change(|state| checks::change(state, &self.full_name, act))
    }

    /// Requires this number of successful builds of each pull request of a repository on Bitbucket Data Center, and none that has failed or
    /// is in progress.
    pub fn require_successful_builds(&self, count: usize) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.builds = count)
    }

    /// Requires successful builds with these parents, or keys if they have none, of a repository on Bitbucket Data Center. They have to
    /// name the source branch.
    pub fn require_build_parents(&self, parents: &[&str]) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.required_builds = parents.iter().map(|one| (*one).to_owned()).collect())
    }

    /// Requires that every reviewer of a pull request of a repository on Bitbucket Data Center approves.
    pub fn require_all_reviewers(&self) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.needs_all_reviewers = true)
    }

    /// Requires that nobody requests changes of pull requests of a repository on Bitbucket Data Center.
    pub fn require_no_needed_work(&self) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.needs_no_changes_requested = true)
    }

    /// Requires that all tasks of pull requests of a repository on Bitbucket Data Center are done.
    pub fn require_done_tasks(&self) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.needs_tasks = true)
    }

    /// Lets these people alone change a branch of a repository on Bitbucket Data Center, also by merges.
    pub fn restrict_branch(&self, branch: &str, people: &[&str]) -> anyhow::Result<()> {
        let people = people.iter().map(|login| (*login).to_owned()).collect();
        self.change_rules(|rules| rules.restricted.push((branch.to_owned(), people)))
    }

    /// Takes approvals back with each push to pull requests of a repository on Bitbucket Data Center.
    pub fn unapprove_on_push(&self) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.resets_approvals = true)
    }

    /// Lets merges of a repository on Bitbucket Data Center wait for the merge checks.
    pub fn enable_auto_merge(&self) -> anyhow::Result<()> {
        self.change_rules(|rules| rules.has_auto_merge = true)
    }

    /// Vetoes every merge in a repository on Bitbucket Data Center, as an app can; an empty summary ends that.
    pub fn veto_merges(&self, summary: &str, detail: &str) -> anyhow::Result<()> {
        let veto = (!summary.is_empty()).then(|| (summary.to_owned(), detail.to_owned()));
        self.change_rules(|rules| rules.veto = veto)
    }
}

impl Pull {
    fn comment_with(&self, user: &str, text: &str, facts: CommentFacts) -> anyhow::Result<u64> {
        self.repo.forge.credentials(user)?;
        let shared = &self.repo.forge.shared;
        shared.change(|state| comments::add(state, &shared.url, &self.repo.full_name, self.number, (user, text), facts))
    }

    /// Adds a reply to a comment of a pull request on Bitbucket Data Center, and returns its id.
    pub fn reply(&self, user: &str, parent: u64, text: &str) -> anyhow::Result<u64> {
        self.comment_with(user, text, CommentFacts { parent: Some(parent), ..CommentFacts::default() })
    }

    /// Adds a task to a pull request on Bitbucket Data Center, and returns the id of its comment.
    pub fn add_task(&self, user: &str, text: &str) -> anyhow::Result<u64> {
        self.comment_with(user, text, CommentFacts { is_task: true, ..CommentFacts::default() })
    }

    /// Marks a task of a pull request on Bitbucket Data Center as done.
    pub fn finish_task(&self, id: u64) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let facts = state.bitbucket_data_center.comments.get_mut(&id).context("there is no such task")?;
            facts.is_resolved = true;
            facts.version += 1;
            Ok(())
        })
    }

    /// Asks a person for a review of a pull request on Bitbucket Data Center. The delivery is `pr:reviewer:updated`.
    pub fn add_reviewer(&self, login: &str) -> anyhow::Result<()> {
        self.repo.forge.credentials(login)?;
        let (shared, full_name) = (&self.repo.forge.shared, &self.repo.full_name);
        shared.change(|state| {
            let id = state.pull(full_name, self.number)?.id;
            let facts = state.bitbucket_data_center.facts_mut(id);
            facts.reviewers.insert(login.to_lowercase());
            facts.version += 1;
            let added = super::shapes::person(&shared.url, state, login);
            let more = json!({"addedReviewers": [added], "removedReviewers": []});
            hooks::emit(state, &shared.url, full_name, self.number, ("pr:reviewer:updated", "alice"), more)
        })
    }

    /// Version of a pull request on Bitbucket Data Center.
    pub fn version(&self) -> anyhow::Result<i64> {
        let state = self.repo.forge.shared.lock();
        let id = state.pull(&self.repo.full_name, self.number)?.id;
        Ok(state.bitbucket_data_center.pulls.get(&id).map_or(0, |facts| facts.version))
    }

    /// Raises the version of a pull request on Bitbucket Data Center, as a change that nobody sees.
    pub fn touch_version(&self) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            state.bitbucket_data_center.facts_mut(id).version += 1;
            Ok(())
        })
    }

    /// True if a merge of a pull request on Bitbucket Data Center waits for the merge checks.
    pub fn waits_for_merge(&self) -> anyhow::Result<bool> {
        let state = self.repo.forge.shared.lock();
        let id = state.pull(&self.repo.full_name, self.number)?.id;
        Ok(state.bitbucket_data_center.pulls.get(&id).is_some_and(|facts| facts.auto_merge.is_some()))
    }
}
