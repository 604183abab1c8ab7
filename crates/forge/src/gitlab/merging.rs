//! Mergeability and merges (docs.gitlab.com/api/merge_requests, "Merge status" and "Merge a merge request").

use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, pull, repo};
use super::api::{ProjectCall, ok};
use super::members::{self, DEVELOPER, MAINTAINER};
use super::{Refusal, Result, approvals};
use anyhow::bail;
use http::StatusCode;

/// Options of a merge.
#[derive(Clone, Default)]
pub(super) struct Merge {
    by: String,
    squash: bool,
    removes_branch: bool,
    message: Option<String>,
    /// Head of an auto-merge; a push cancels it.
    head: String,
}

impl Merge {
    /// A merge by this person with the usual options.
    pub(super) fn by(login: &str) -> Merge {
        Merge { by: login.to_owned(), ..Merge::default() }
    }
}

/// Head and target branch that a check is about.
fn checked_now(pull: &PullState) -> (String, String) {
    (pull.head_sha.clone(), pull.tried_with.clone())
}

fn is_checked(state: &State, pull: &PullState) -> bool {
    state.gitlab.merges.get(&pull.id).is_some_and(|merge| merge.checked == Some(checked_now(pull)))
}

/// Detailed merge status as far as it is known: nobody has asked for it since the head or the target branch moved if it is `unchecked`.
pub(super) fn known_status<'a>(state: &'a State, repo: &'a RepoState, pull: &'a PullState) -> &'a str {
    match pull.open && pull.forced_mergeable_state.is_none() && !is_checked(state, pull) {
        true => "unchecked",
        false => status(state, repo, pull),
    }
}

/// Records that the mergeability was asked for. Returns false for the first time since the head or the target branch moved.
pub(super) fn ask(state: &mut State, full_name: &str, number: u64) -> bool {
    let Ok(pull) = state.pull(full_name, number) else { return true };
    let (id, now) = (pull.id, Some(checked_now(pull)));
    let is_known = !pull.open || pull.forced_mergeable_state.is_some() || is_checked(state, pull);
    state.gitlab.merges.entry(id).or_default().checked = now;
    is_known
}

/// Detailed merge status: the first check that fails. Pipelines come last (app/services/merge_requests/mergeability/
/// `detailed_merge_status_service.rb`).
fn status<'a>(state: &'a State, repo: &'a RepoState, pull: &'a PullState) -> &'a str {
    let settings = state.gitlab.projects.get(&repo.id);
    let threads = state.gitlab.merges.get(&pull.id).map_or(0, |merge| merge.open_threads);
    match &pull.forced_mergeable_state {
        Some(forced) if pull.open => forced,
        _ if !pull.open => "not_open",
        _ if pull.draft => "draft_status",
        _ if threads > 0 && settings.is_some_and(|settings| settings.needs_resolved_threads) => {
            "discussions_not_resolved"
        }
        _ if approvals::left(state, repo, pull) > 0 => "not_approved",
        _ if pull.conflicts => "conflict",
        _ => ci_status(state, repo, pull),
    }
}

/// docs.gitlab.com/user/project/merge_requests/auto_merge, "Require a successful pipeline for merge".
fn ci_status(state: &State, repo: &RepoState, pull: &PullState) -> &'static str {
    if !state.gitlab.projects.get(&repo.id).is_some_and(|settings| settings.needs_successful_pipeline) {
        return "mergeable";
    }
    match state.gitlab.pipelines.status_of_head(state, repo, pull) {
        Some("success") => "mergeable",
        Some("running" | "pending" | "created") => "ci_still_running",
        _ => "ci_must_pass",
    }
}

/// Fails with the reason for which a merge request cannot be merged.
pub(in super::super) fn check(state: &State, repo: &RepoState, pull: &PullState) -> anyhow::Result<()> {
    match status(state, repo, pull) {
        "mergeable" => Ok(()),
        other => bail!("Branch cannot be merged: {other}"),
    }
}

/// Merges, and deletes the source branch if asked to. A squash is reported as in a project with fast-forward merges: the squash commit is
/// the tip of the target branch.
pub(super) async fn merge(shared: &Shared, full_name: &str, number: u64, how: &Merge) -> anyhow::Result<()> {
    let method = if how.squash { "squash" } else { "merge" };
    let (id, branch, own) = {
        let state = shared.lock();
        let pull = state.pull(full_name, number)?;
        (pull.id, pull.head_ref.clone(), pull.head_repo.eq_ignore_ascii_case(full_name))
    };
    shared.change(|state| state.gitlab.merges.entry(id).or_default().is_squashed = how.squash);
    pull::merge_with(shared, full_name, number, &how.by, method, how.message.as_deref()).await?;
    shared.change(|state| state.gitlab.merges.entry(id).or_default().auto_merge = None);
    if own && how.removes_branch {
        repo::delete_branch(shared, full_name, &branch, &how.by).await?;
    }
    Ok(())
}

/// Merges what was set to merge by itself and passes all checks now. A head that has moved meanwhile is not merged.
pub(super) async fn follow_auto_merges(shared: &Shared) -> anyhow::Result<()> {
    let due: Vec<(String, u64, Merge)> = {
        let state = shared.lock();
        let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
        let due = all.filter_map(|(repo, pull)| {
            let how = state.gitlab.merges.get(&pull.id)?.auto_merge.clone()?;
            let is_running = is_in_progress(state.gitlab.pipelines.status_of_head(&state, repo, pull));
            let is_due = how.head == pull.head_sha && !is_running && check(&state, repo, pull).is_ok();
            is_due.then(|| (repo.full_name(), pull.number, how))
        });
        due.collect()
    };
    for (full_name, number, how) in due {
        merge(shared, &full_name, number, &how).await?;
    }
    Ok(())
}

fn is_in_progress(status: Option<&str>) -> bool {
    matches!(status, Some("running" | "pending" | "created"))
}

impl ProjectCall<'_> {
    /// The order of the refusals is that of `put ':id/merge_requests/:merge_request_iid/merge'` in lib/api/merge_requests.rb: 401, 405,
    /// 422, 409. An auto-merge needs a pipeline, or a check that does not pass yet.
    pub(super) async fn merge(&self, number: u64) -> Result {
        let shared = self.call.shared;
        shared.change(|state| ask(state, &self.full_name, number));
        let auto = self.call.flag("auto_merge") || self.call.flag("merge_when_pipeline_succeeds");
        let (is_allowed, found, pipeline, head) = self.of_pull(number, |state, repo, pull| {
            // The default branch is protected: docs.gitlab.com/user/project/repository/branches/protected.
            let least = if pull.base_ref == "main" { MAINTAINER } else { DEVELOPER };
            let is_allowed = members::level(state, repo, &self.call.login) >= least;
            let pipeline = state.gitlab.pipelines.status_of_head(state, repo, pull);
            (is_allowed, status(state, repo, pull).to_owned(), pipeline, pull.head_sha.clone())
        })?;
        if !is_allowed {
            return Err(Refusal::unauthorized());
        }
        let is_mergeable = found == "mergeable";
        let is_now = is_mergeable && (!auto || pipeline == Some("success"));
        let is_later = auto
            && !matches!(found.as_str(), "not_open" | "conflict" | "need_rebase")
            && (!is_mergeable || is_in_progress(pipeline));
        match found.as_str() {
            _ if is_now || is_later => {}
            "conflict" | "need_rebase" => {
                return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Branch cannot be merged"));
            }
            _ => return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed")),
        }
        check_sha(self.call.text("sha"), &head)?;
        let how = Merge {
            by: self.call.login.clone(),
            squash: self.call.flag("squash"),
            removes_branch: self.call.flag("should_remove_source_branch"),
            message: self.call.text("merge_commit_message"),
            head,
        };
        if is_now {
            let merged = merge(shared, &self.full_name, number, &how).await;
            // `render_api_error!("Branch cannot be merged", 422)` of the same file, for a merge that fails after all checks.
            merged.map_err(|_| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Branch cannot be merged"))?;
        } else {
            let id = self.of_pull(number, |_, _, pull| pull.id)?;
            shared.change(|state| state.gitlab.merges.entry(id).or_default().auto_merge = Some(how));
        }
        ok(self.details(number).await?)
    }
}

/// `check_sha_param!` of lib/api/helpers.rb.
pub(super) fn check_sha(sha: Option<String>, head: &str) -> Result<()> {
    match sha {
        Some(sha) if sha != head => {
            let message = format!("SHA does not match HEAD of source branch: {head}");
            Err(Refusal::new(StatusCode::CONFLICT, message))
        }
        _ => Ok(()),
    }
}
