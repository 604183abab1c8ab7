//! Merges: at once, as a task that is polled, or by the queue.

use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, kind, pull, repo, timestamp};
use super::api::{RepoCall, ok};
use super::pulls::already_closed;
use super::{Refusal, Result, restrictions, reviews, shapes};
use anyhow::bail;
use axum::response::IntoResponse;
use http::{StatusCode, header};
use serde_json::{Value, json};

/// Text for a conflict (khbb).
const CONFLICT: &str = "You can't merge until you resolve all merge conflicts.";
/// Text for a merge during which somebody pushed (OpenAPI: 409).
const REFS_CHANGED: &str = "Unable to merge because one of the refs involved changed while attempting to merge";
/// Text for a merge that cannot fast-forward (khbb).
const NO_FAST_FORWARD: &str = "Unable to fast forward due to changes in the destination branch.";

/// Strategies, and the methods of the forge that they are (OpenAPI, `pullrequest_merge_parameters`).
const STRATEGIES: [(&str, &str); 6] = [
    ("merge_commit", "merge"),
    ("squash", "squash"),
    ("fast_forward", "fast-forward-only"),
    ("squash_fast_forward", "squash"),
    ("rebase_fast_forward", "rebase"),
    ("rebase_merge", "rebase-merge"),
];

/// A merge that was answered with 202.
pub(super) struct MergeTask {
    pull: u64,
    how: Merge,
    /// Head, and tip of the base branch, that are to be merged.
    ends: [String; 2],
    /// Polls that still find it pending.
    polls_left: usize,
    /// Its end: the pull request, or the refusal.
    ended: Option<(StatusCode, Value)>,
}

/// A merge as it was asked for.
#[derive(Clone)]
struct Merge {
    by: String,
    method: &'static str,
    is_fast_forward: bool,
    message: Option<String>,
    closes_branch: bool,
}

/// Head of a pull request, and the tip of its base branch.
fn ends(pull: &PullState) -> [String; 2] {
    [pull.head_sha.clone(), pull.tried_with.clone()]
}

/// The strategies that a repository allows, the usual one first.
pub(super) fn strategies(repo: &RepoState) -> Vec<&'static str> {
    let is_allowed = |method: &str| match method {
        "merge" => repo.allow_merge_commit,
        "squash" => repo.allow_squash_merge,
        _ => repo.allow_rebase_merge,
    };
    STRATEGIES.iter().filter(|(_, method)| is_allowed(method)).map(|(name, _)| *name).collect()
}

fn is_conflicting(pull: &PullState) -> bool {
    pull.conflicts || pull.forced_mergeable_state.as_deref() == Some("dirty")
}

/// Returns the reason for which nobody can merge an open pull request.
fn refusal(state: &State, repo: &RepoState, pull: &PullState) -> Option<String> {
    match () {
        // The answer for a draft is in no source. The forge refuses it, so that nobody relies on the opposite.
        () if pull.draft => Some("You can't merge a draft pull request.".to_owned()),
        () if is_conflicting(pull) => Some(CONFLICT.to_owned()),
        () => restrictions::blocker(state, repo, pull),
    }
}

/// Fails with the reason for which nobody can merge a pull request.
pub(in super::super) fn check(state: &State, repo: &RepoState, pull: &PullState) -> anyhow::Result<()> {
    if !pull.open {
        bail!("This pull request is already closed.");
    }
    match refusal(state, repo, pull) {
        Some(reason) => bail!("{reason}"),
        None => Ok(()),
    }
}

/// Makes the host say this `mergeable_state` of GitHub by what it has itself: a missing approval, a conflict, a draft.
pub(in super::super) fn force(state: &mut State, full_name: &str, number: u64, word: &str) -> anyhow::Result<()> {
    let pull = state.pull(full_name, number)?;
    let (base, granted) = (pull.base_ref.clone(), reviews::approvals(pull));
    let pull = state.pull_mut(full_name, number)?;
    pull.forced_mergeable_state = (word == "dirty").then(|| word.to_owned());
    pull.draft |= word == "draft";
    let least = match word {
        "dirty" | "draft" => return Ok(()),
        "blocked" => granted as u64 + 1,
        "clean" | "unstable" | "has_hooks" => 0,
        other => bail!("Bitbucket Cloud has no state {other}"),
    };
    restrictions::set(state, full_name, "require_approvals_to_merge", &base, Some(least))?;
    restrictions::set(state, full_name, "enforce_merge_checks", &base, None)
}

/// Merges, and deletes the source branch if asked to. The answer is the pull request, with the whole merge commit (khbb).
async fn merge(shared: &Shared, full_name: &str, number: u64, how: &Merge) -> Result<Value> {
    let (branch, is_own) = {
        let state = shared.lock();
        let repo = state.repo(full_name).map_err(|error| Refusal::broken(&error))?;
        let pull = state.pull(full_name, number).map_err(|error| Refusal::broken(&error))?;
        if !pull.open {
            return Err(already_closed());
        }
        if let Some(reason) = refusal(&state, repo, pull) {
            return Err(Refusal::invalid(reason));
        }
        (pull.head_ref.clone(), pull.head_repo.eq_ignore_ascii_case(full_name))
    };
    if how.is_fast_forward && !can_fast_forward(shared, full_name, number).await? {
        return Err(Refusal::invalid(NO_FAST_FORWARD));
    }
    let merged = pull::merge_with(shared, full_name, number, &how.by, how.method, how.message.as_deref()).await;
    let commit = merged.map_err(|error| Refusal::invalid(format!("{error:#}")))?;
    if is_own && how.closes_branch {
        let deleted = repo::delete_branch(shared, full_name, &branch, &how.by).await;
        deleted.map_err(|error| Refusal::broken(&error))?;
    }
    let state = shared.lock();
    let found = state.repo(full_name).and_then(|repo| Ok((repo, state.pull(full_name, number)?)));
    let (repo, pull) = found.map_err(|error| Refusal::broken(&error))?;
    let mut body = shapes::pull(&shared.url, &state, repo, pull);
    body["merge_commit"]["hash"] = commit.into();
    Ok(body)
}

async fn can_fast_forward(shared: &Shared, full_name: &str, number: u64) -> Result<bool> {
    let broken = |error: anyhow::Error| Refusal::broken(&error);
    let (base, head) = {
        let state = shared.lock();
        let pull = state.pull(full_name, number).map_err(broken)?;
        (pull.base_ref.clone(), pull.head_sha.clone())
    };
    let git = shared.git(full_name).map_err(broken)?;
    let tip = git.heads().await.map_err(broken)?.remove(&base);
    Ok(match tip {
        Some(tip) => git.merge_base(&tip, &head).await.as_ref() == Some(&tip),
        None => false,
    })
}

impl RepoCall<'_> {
    /// Reads a request for a merge, of a strategy that the repository allows.
    fn asked_merge(&self, number: u64) -> Result<Merge> {
        let usual = self.of_pull(number, |state, _, pull| {
            state.bitbucket_cloud.pulls.get(&pull.id).is_some_and(|facts| facts.closes_branch)
        })?;
        let name = self.call.text("/merge_strategy").unwrap_or("merge_commit");
        let allowed = self.of_repo(strategies)?;
        let known = STRATEGIES.iter().find(|(known, _)| *known == name && allowed.contains(known));
        let (name, method) = known.ok_or_else(|| {
            let text = format!("Select a valid choice. {name} is not one of the available choices.");
            Refusal::field("merge_strategy", &text)
        })?;
        Ok(Merge {
            by: self.call.login.clone(),
            method,
            is_fast_forward: matches!(*name, "fast_forward" | "squash_fast_forward"),
            message: self.call.text("/message").filter(|text| !text.trim().is_empty()).map(str::to_owned),
            closes_branch: self.call.part("/close_source_branch").and_then(Value::as_bool).unwrap_or(usual),
        })
    }

    fn of_repo<T>(&self, find: impl FnOnce(&RepoState) -> T) -> Result<T> {
        let state = self.call.shared.lock();
        Ok(find(self.repo_in(&state)?))
    }

    /// Merges. There is no expected head: what is there is merged. With `async=true`, or if it takes long, the answer is the address of a
    /// task (OpenAPI).
    pub(super) async fn merge(&self, number: u64) -> Result {
        self.check_writer()?;
        let how = self.asked_merge(number)?;
        let shared = self.call.shared;
        let is_async = self.call.asked("async") == Some("true");
        let (is_open, has_queue, slow, ends) = self.of_pull(number, |state, repo, pull| {
            let own = &state.bitbucket_cloud;
            (pull.open, own.queues.contains(&repo.id), own.slow_merges, ends(pull))
        })?;
        if !is_open {
            return Err(already_closed());
        }
        if has_queue {
            return self.queue(number);
        }
        let Some(polls_left) = slow.or(is_async.then_some(0)) else {
            return ok(merge(shared, &self.full_name, number, &how).await?);
        };
        let mut id = kind::random_hex().map_err(|error| Refusal::broken(&error))?;
        for at in [8, 13, 18, 23] {
            id.insert(at, '-');
        }
        let place =
            format!("{}/pullrequests/{number}/merge/task-status/{id}", shapes::api(self.url(), &self.full_name));
        shared.change(|state| {
            let task = MergeTask { pull: number, how, ends, polls_left, ended: None };
            state.bitbucket_cloud.tasks.insert(id, task);
        });
        Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], axum::Json(json!(""))).into_response())
    }

    /// Adds a pull request to the queue, in which it stays open (OpenAPI, `queued`).
    fn queue(&self, number: u64) -> Result {
        let refusal = self.of_pull(number, refusal)?;
        if let Some(reason) = refusal {
            return Err(Refusal::invalid(reason));
        }
        let queued = self.call.shared.change(|state| {
            let pull = state.pull_mut(&self.full_name, number)?;
            pull.updated_at = timestamp();
            let id = pull.id;
            state.bitbucket_cloud.facts_mut(id).is_queued = true;
            Ok(())
        });
        queued.map_err(|error: anyhow::Error| Refusal::broken(&error))?;
        ok(self.shaped_pull(number)?)
    }

    /// The state of a merge. A failure has the answer of the merge; an unknown task is pending for ever (khbb).
    pub(super) async fn merge_task(&self, number: u64, id: &str) -> Result {
        let shared = self.call.shared;
        let own = format!("{}/pullrequests/{number}/merge/task-status/{id}", shapes::api(self.url(), &self.full_name));
        let status = |word: &str| json!({"task_status": word, "links": {"self": {"href": own}}});
        let due = shared.change(|state| {
            let task = state.bitbucket_cloud.tasks.get_mut(id).filter(|task| task.pull == number)?;
            if task.ended.is_none() && task.polls_left > 0 {
                task.polls_left -= 1;
                return None;
            }
            Some((task.how.clone(), task.ends.clone(), task.ended.clone()))
        });
        let (status_code, body) = match due {
            None => return ok(status("PENDING")),
            Some((.., Some(ended))) => ended,
            Some((how, asked, None)) => {
                let merged = match self.of_pull(number, |_, _, pull| ends(pull))? == asked {
                    true => merge(shared, &self.full_name, number, &how).await,
                    false => Err(Refusal::new(StatusCode::CONFLICT, REFS_CHANGED)),
                };
                let ended = match merged {
                    Ok(body) => (StatusCode::OK, body),
                    Err(Refusal(status, body)) => (status, body),
                };
                shared.change(|state| {
                    if let Some(task) = state.bitbucket_cloud.tasks.get_mut(id) {
                        task.ended = Some(ended.clone());
                    }
                });
                ended
            }
        };
        if status_code != StatusCode::OK {
            return Err(Refusal(status_code, body));
        }
        let mut told = status("SUCCESS");
        told["merge_result"] = body;
        ok(told)
    }
}
