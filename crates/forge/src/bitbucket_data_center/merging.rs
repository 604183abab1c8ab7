//! Merges: at once, or as soon as nothing vetoes them any more.

use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, pull, timestamp};
use super::access::Level;
use super::activities::Happened;
use super::api::{RepoCall, no_content, no_route, ok};
use super::{Refusal, Result, checks, shapes};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait before the waiting merges are looked at again.
const ROUND: Duration = Duration::from_secs(3600);

/// Strategies, the methods of the forge that they are, and the flags of git (OpenAPI, `RestPullRequestMergeStrategy`;
/// confluence.atlassian.com/bitbucketserver/pull-request-merge-strategies). The first one is the usual one.
const STRATEGIES: [(&str, &str, &str); 7] = [
    ("no-ff", "merge", "--no-ff"),
    ("ff", "fast-forward-only", "--ff"),
    ("ff-only", "fast-forward-only", "--ff-only"),
    ("squash", "squash", "--squash"),
    ("squash-ff-only", "squash", "--squash --ff-only"),
    ("rebase-no-ff", "rebase-merge", "rebase + merge --no-ff"),
    ("rebase-ff-only", "rebase", "rebase + merge --ff-only"),
];

/// A merge that waits for the checks.
#[derive(Clone)]
pub(super) struct AutoMerge {
    by: String,
    how: MergeOrder,
    /// Head and target that it was requested for.
    head: String,
    target: String,
    at: String,
}

/// A merge as it was asked for.
#[derive(Clone)]
struct MergeOrder {
    strategy: &'static str,
    message: Option<String>,
}

/// The strategies that a repository has switched on.
fn enabled(repo: &RepoState) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    STRATEGIES.iter().filter(|(_, method, _)| match *method {
        "merge" => repo.allow_merge_commit,
        "squash" => repo.allow_squash_merge,
        _ => repo.allow_rebase_merge,
    })
}

/// Merges by a strategy. Fails if it wants a fast-forward that there is none of.
async fn merge(shared: &Shared, full_name: &str, number: u64, by: &str, how: &MergeOrder) -> anyhow::Result<()> {
    let can_fast_forward = {
        let (base, head) = {
            let state = shared.lock();
            let pull = state.pull(full_name, number)?;
            (pull.base_ref.clone(), pull.head_sha.clone())
        };
        let git = shared.git(full_name)?;
        let tip = git.heads().await?.remove(&base);
        match tip {
            Some(tip) => git.merge_base(&tip, &head).await.as_ref() == Some(&tip),
            None => false,
        }
    };
    let usual = STRATEGIES.iter().find(|(id, ..)| *id == how.strategy).map_or("merge", |(_, method, _)| *method);
    let method = match how.strategy {
        _ if can_fast_forward => usual,
        "ff" => "merge",
        // Merge bots look for these words.
        "ff-only" | "squash-ff-only" => {
            anyhow::bail!("This repository is configured to require fast-forward merges.")
        }
        _ => usual,
    };
    pull::merge_with(shared, full_name, number, by, method, how.message.as_deref()).await.map(drop)
}

/// Merges what waits as soon as nothing vetoes it any more, until the forge stops. A merge that fails is given up.
pub(in super::super) async fn merge_requested(shared: Arc<Shared>) {
    let due = |state: &State| {
        let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
        all.into_iter().find_map(|(repo, pull)| {
            let order = state.bitbucket_data_center.pulls.get(&pull.id)?.auto_merge.clone()?;
            let is_stale = !pull.open || pull.head_sha != order.head || pull.base_ref != order.target;
            let is_due = is_stale || is_mergeable(state, repo, pull, &order.by);
            is_due.then(|| (repo.full_name(), pull.number, pull.id, order, is_stale))
        })
    };
    let work = async {
        loop {
            let Ok((full_name, number, id, order, is_stale)) = shared.wait_for(ROUND, due).await else { continue };
            let merged = match is_stale {
                // A push or another target cancels it (`STALE` of OpenAPI, `RestAutoMergeProcessingResult`).
                true => false,
                false => match merge(&shared, &full_name, number, &order.by, &order.how).await {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!("sandbox: an automatic merge of {full_name}#{number}: {error:#}");
                        false
                    }
                },
            };
            shared.change(|state| cancel(state, id, (!merged).then_some(order.by.as_str())));
        }
    };
    tokio::select! { () = work => {}, () = shared.stop.cancelled() => {} }
}

fn is_mergeable(state: &State, repo: &RepoState, pull: &PullState, by: &str) -> bool {
    !checks::is_conflicting(pull) && checks::vetoes(state, repo, pull, Some(by)).is_empty()
}

/// Forgets a waiting merge; as this person, unless it has been done.
fn cancel(state: &mut State, pull: u64, by: Option<&str>) {
    let id = state.new_id();
    let facts = state.bitbucket_data_center.facts_mut(pull);
    if facts.auto_merge.take().is_some()
        && let Some(by) = by
    {
        facts.happened.push(Happened::now(id, "AUTO_MERGE_CANCELLED", by));
    }
}

impl RepoCall<'_> {
    /// Reads the request for a merge, of a strategy that the repository has switched on.
    fn asked_merge(&self) -> Result<MergeOrder> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let message = self.call.text("/message").filter(|text| !text.trim().is_empty()).map(str::to_owned);
        let found = match self.call.text("/strategyId") {
            Some(id) => enabled(repo).find(|(known, ..)| *known == id),
            None => enabled(repo).next(),
        };
        let (strategy, ..) = found.ok_or_else(|| {
            let id = self.call.text("/strategyId").unwrap_or_default();
            Refusal::field("strategyId", format!("The merge strategy '{id}' is not enabled for this repository."))
        })?;
        Ok(MergeOrder { strategy, message })
    }

    /// Merges as somebody who may write. The version does not tell the head: what is there is merged. With `autoMerge` the merge waits for
    /// the checks (OpenAPI, "Merge pull request").
    pub(super) async fn merge(&self, number: u64) -> Result {
        self.check_level(Level::Write)?;
        let (shared, login) = (self.call.shared, &self.call.login);
        self.check_open(number)?;
        let has_auto_merge = self.of_pull(number, |state, repo, _| checks::of(state, repo).has_auto_merge)?;
        self.check_pull_version(number)?;
        let how = self.asked_merge()?;
        let waits = self.call.flag("/autoMerge") == Some(true);
        if waits && !has_auto_merge {
            return Err(auto_merge_is_off());
        }
        match self.check_mergeable(number) {
            Ok(()) => {}
            Err(_) if waits => return self.request_auto_merge(number, how),
            Err(refusal) => return Err(refusal),
        }
        let merged = merge(shared, &self.full_name, number, login, &how).await;
        merged.map_err(|error| {
            let refusal = Refusal::conflict("pull.PullRequestMergeVetoedException", format!("{error:#}"));
            refusal.with(json!({"conflicted": false, "vetoes": []}))
        })?;
        ok(self.shaped_pull(number)?)
    }

    fn request_auto_merge(&self, number: u64, how: MergeOrder) -> Result {
        let login = self.call.login.clone();
        let requested = self.call.shared.change(|state| {
            let id = state.new_id();
            let pull = state.pull(&self.full_name, number)?;
            let (head, target) = (pull.head_sha.clone(), pull.base_ref.clone());
            let facts_of = pull.id;
            let order = AutoMerge { by: login.clone(), how, head, target, at: timestamp() };
            let facts = state.bitbucket_data_center.facts_mut(facts_of);
            facts.auto_merge = Some(order);
            facts.happened.push(Happened::now(id, "AUTO_MERGE_REQUESTED", &login));
            Ok(())
        });
        requested.map_err(|error: anyhow::Error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// The waiting merge, a new attempt at it, or its end.
    pub(super) async fn of_auto_merge(&self, method: &str, number: u64) -> Result {
        let (id, order) = self.of_pull(number, |state, _, pull| {
            let facts = state.bitbucket_data_center.pulls.get(&pull.id);
            (pull.id, facts.and_then(|facts| facts.auto_merge.clone()))
        })?;
        match (method, order) {
            ("GET", Some(order)) => ok(json!({
                "createdDate": shapes::millis(&order.at), "fromHash": order.head, "message": order.how.message,
                "strategyId": order.how.strategy, "toRefId": format!("refs/heads/{}", order.target), "autoSubject": true,
            })),
            // bb, auto_merge_live_test.go, names the exception.
            ("GET", None) => Err(Refusal::not_found("pull.AutoMergeNotRequestedException", NOT_REQUESTED)),
            ("DELETE", _) => {
                self.check_level(Level::Write)?;
                self.check_open(number)?;
                let login = self.call.login.clone();
                self.call.shared.change(|state| cancel(state, id, Some(&login)));
                no_content()
            }
            ("POST", order) => self.try_auto_merge(number, order).await,
            _ => Err(no_route()),
        }
    }

    async fn try_auto_merge(&self, number: u64, order: Option<AutoMerge>) -> Result {
        self.check_level(Level::Write)?;
        let order = order.ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, "pull.AutoMergeNotRequestedException", NOT_REQUESTED)
        })?;
        let status = match self.check_mergeable(number) {
            Ok(()) => match merge(self.call.shared, &self.full_name, number, &order.by, &order.how).await {
                Ok(()) => "MERGED",
                Err(_) => "UNKNOWN",
            },
            Err(_) => "VETOED",
        };
        ok(json!({"autoMergeProcessingStatus": status, "pullRequest": self.shaped_pull(number)?}))
    }

    pub(super) fn auto_merge_settings(&self) -> Result {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        ok(json!({
            "enabled": checks::of(&state, repo).has_auto_merge, "restrictionState": "NONE",
            "scope": {"type": "REPOSITORY", "resourceId": repo.id},
        }))
    }

    /// Settings of pull requests (OpenAPI, `RestRepositoryPullRequestSettings`).
    pub(super) fn pull_settings(&self) -> Result {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let rules = checks::of(&state, repo);
        let ids: Vec<&str> = enabled(repo).map(|(id, ..)| *id).collect();
        let shape = |(id, _, flag): &(&str, &str, &str)| {
            json!({
                "id": id, "name": id, "description": id, "flag": flag, "enabled": ids.contains(id), "links": {},
            })
        };
        let strategies: Vec<Value> = STRATEGIES.iter().map(shape).collect();
        let usual = STRATEGIES.iter().find(|(id, ..)| Some(id) == ids.first()).map(shape);
        ok(json!({
            "mergeConfig": {"type": "REPOSITORY", "defaultStrategy": usual, "strategies": strategies, "commitSummaries": 20},
            "requiredAllApprovers": rules.needs_all_reviewers, "requiredAllTasksComplete": rules.needs_tasks,
            "requiredApprovers": rules.approvals, "requiredSuccessfulBuilds": rules.builds,
            "needsWork": rules.needs_no_changes_requested,
        }))
    }
}

const NOT_REQUESTED: &str = "An auto-merge request was not submitted for this pull request.";

/// OpenAPI: 403.
fn auto_merge_is_off() -> Refusal {
    let text = "The auto-merge setting is not enabled for this repository.";
    Refusal::new(StatusCode::FORBIDDEN, "pull.AutoMergeDisabledException", text)
}
