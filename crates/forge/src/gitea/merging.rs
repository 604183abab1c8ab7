//! Mergeability and merges (services/pull/check.go, services/pull/merge.go, services/automerge).

use super::super::git::GitRepo;
use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, pull, repo, timestamp};
use super::api::{RepoCall, no_content};
use super::{Refusal, Result, access, feed, protection, reviews, shapes};
use anyhow::bail;
use axum::response::IntoResponse;
use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a scheduled merge before the list is read again.
const ROUND: Duration = Duration::from_secs(3600);

/// What git says of a pull request.
#[derive(Default, Clone)]
pub(in super::super) struct Measure {
    /// Tip of the base branch.
    pub base: String,
    pub head: String,
    pub merge_base: String,
    /// Commits of the base branch that the head does not have.
    pub behind: u64,
    pub additions: u64,
    pub deletions: u64,
    pub changed_files: usize,
    /// True if the diff is another one than that of the former head.
    pub has_changed: bool,
}

/// A merge that waits for its checks.
#[derive(Clone)]
pub(super) struct ScheduledMerge {
    by: String,
    /// The method in Gitea's words.
    style: String,
    message: Option<String>,
    deletes_branch: bool,
}

/// Asks git about a pull request with this tip of the base branch and this head. `former` is the head before.
pub(in super::super) async fn measure(
    git: &GitRepo,
    base: &str,
    head: &str,
    former: Option<&str>,
) -> anyhow::Result<Measure> {
    let merge_base = git.merge_base(base, head).await.unwrap_or_default();
    let (_, behind) = git.distance(base, head).await?;
    let files = git.changed_files(base, head).await?;
    let has_changed = match former.filter(|former| *former != head) {
        Some(former) => git.diff(base, former).await? != git.diff(base, head).await?,
        None => false,
    };
    Ok(Measure {
        base: base.to_owned(),
        head: head.to_owned(),
        merge_base,
        behind,
        additions: files.iter().map(|file| file.additions).sum(),
        deletions: files.iter().map(|file| file.deletions).sum(),
        changed_files: files.len(),
        has_changed,
    })
}

/// Records what git says of a pull request; reviews follow a push to its head.
pub(in super::super) fn note(state: &mut State, full_name: &str, number: u64, measure: Measure) -> anyhow::Result<()> {
    let (id, has_changed) = (state.pull(full_name, number)?.id, measure.has_changed);
    let facts = state.gitea.facts_mut(id);
    let is_push = facts.measure.head != measure.head && !facts.measure.head.is_empty();
    facts.measure = measure;
    if is_push { reviews::follow_push(state, full_name, number, has_changed) } else { Ok(()) }
}

/// Asks git about a pull request again whose base branch is to be another one, with this tip.
pub(in super::super) async fn retarget(shared: &Shared, full_name: &str, number: u64, tip: &str) -> anyhow::Result<()> {
    let head = shared.lock().pull(full_name, number)?.head_sha.clone();
    let measure = measure(&shared.git(full_name)?, tip, &head, None).await?;
    shared.change(|state| note(state, full_name, number, measure))
}

/// Records which branches of a repository have moved, and which head branches are gone.
pub(in super::super) fn follow_heads(
    state: &mut State,
    full_name: &str,
    heads: &BTreeMap<String, String>,
    actor: &str,
) {
    feed::follow(state, full_name, heads, actor);
    let pulls = state.repos.values().flat_map(|repo| &repo.pulls);
    let of_repo = pulls.filter(|pull| pull.head_repo.eq_ignore_ascii_case(full_name));
    let known: Vec<(u64, bool)> = of_repo.map(|pull| (pull.id, !heads.contains_key(&pull.head_ref))).collect();
    for (id, is_gone) in known {
        state.gitea.facts_mut(id).is_branch_gone = is_gone;
    }
}

/// Takes the prefix of a draft from a title that a person has given it.
pub(in super::super) fn take_prefix(pull: &mut PullState) {
    let plain = shapes::without_draft_prefix(&pull.title).to_owned();
    pull.title = plain;
}

/// Forgets the last check of a pull request: its mergeability is unknown until a request asks for it again.
pub(super) fn recheck(state: &mut State, id: u64) {
    state.gitea.facts_mut(id).checked = None;
}

/// Forgets the checks of all pull requests into a branch, whose rules have changed.
pub(super) fn recheck_all(state: &mut State, full_name: &str, branch: &str) -> anyhow::Result<()> {
    let of_branch = state.repo(full_name)?.pulls.iter().filter(|pull| pull.base_ref == branch).map(|pull| pull.id);
    let ids: Vec<u64> = of_branch.collect();
    ids.into_iter().for_each(|id| recheck(state, id));
    Ok(())
}

/// Makes the host say this `mergeable_state` of GitHub by what it has itself: a missing approval, an outdated branch, a conflict.
pub(in super::super) fn force(state: &mut State, full_name: &str, number: u64, word: &str) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let (key, id, granted) = ((repo.id, pull.base_ref.clone()), pull.id, reviews::granted(state, pull, false));
    let pull = state.pull_mut(full_name, number)?;
    pull.forced_mergeable_state = matches!(word, "dirty" | "unknown").then(|| word.to_owned());
    pull.draft |= word == "draft";
    match word {
        "dirty" | "unknown" | "draft" => {}
        "blocked" => state.gitea.protections.entry(key).or_default().required_approvals = granted + 1,
        "behind" => {
            state.gitea.protections.entry(key).or_default().block_on_outdated_branch = true;
            let facts = state.gitea.facts_mut(id);
            facts.measure.behind = facts.measure.behind.max(1);
        }
        "clean" | "unstable" | "has_hooks" => {
            if let Some(rule) = state.gitea.protections.get_mut(&key) {
                (rule.required_approvals, rule.block_on_outdated_branch) = (0, false);
            }
        }
        other => bail!("Gitea has no state {other}"),
    }
    Ok(())
}

fn is_conflicting(pull: &PullState) -> bool {
    pull.conflicts || pull.forced_mergeable_state.as_deref() == Some("dirty")
}

/// Returns true while the check for conflicts has not run.
fn is_checking(state: &State, pull: &PullState) -> bool {
    let Some(facts) = state.gitea.pulls.get(&pull.id) else { return pull.open };
    let now = (facts.measure.head.clone(), facts.measure.base.clone());
    pull.open && (pull.forced_mergeable_state.as_deref() == Some("unknown") || facts.checked != Some(now))
}

/// `Mergeable` of models/issues/pull.go: nothing about rules of branches.
pub(super) fn is_mergeable(state: &State, pull: &PullState) -> bool {
    let is_draft = pull.draft || shapes::has_draft_prefix(&pull.title);
    !is_checking(state, pull) && !is_conflicting(pull) && !is_draft
}

/// Runs the check of a pull request, as every question about it does.
pub(super) fn ask(state: &mut State, full_name: &str, number: u64) {
    let Ok(id) = state.pull(full_name, number).map(|pull| pull.id) else { return };
    let facts = state.gitea.facts_mut(id);
    facts.checked = Some((facts.measure.head.clone(), facts.measure.base.clone()));
}

/// Fails with the reason for which nobody can merge a pull request.
pub(in super::super) fn check(state: &State, repo: &RepoState, pull: &PullState) -> anyhow::Result<()> {
    if let Some(Refusal(_, body)) = refusal(state, repo, pull, None) {
        bail!("{}", body["message"].as_str().unwrap_or_default());
    }
    match protection::blocker(state, repo, pull) {
        Some(reason) => bail!("{reason}"),
        None => Ok(()),
    }
}

/// Why a pull request cannot be merged, besides rules of branches, in the order of `CheckPullMergeable` of services/pull/check.go and with
/// the statuses of `MergePullRequest` of routers/api/v1/repo/pull.go. A conflict has the same text as a check that has not run. With
/// `login`, rights and the check count.
fn refusal(state: &State, repo: &RepoState, pull: &PullState, login: Option<&str>) -> Option<Refusal> {
    let is_allowed = login.is_none_or(|login| access::is_writer(access::level(repo, login)));
    let is_draft = pull.draft || shapes::has_draft_prefix(&pull.title);
    match () {
        () if pull.merged.is_some() => Some(Refusal::not_allowed("The PR is already merged")),
        () if !pull.open => Some(Refusal::not_found()),
        () if !is_allowed => Some(Refusal::not_allowed("User not allowed to merge PR")),
        () if is_draft => Some(Refusal::not_allowed("Work in progress PRs cannot be merged")),
        () if is_conflicting(pull) || (login.is_some() && is_checking(state, pull)) => {
            Some(Refusal::not_allowed("Please try again later"))
        }
        () => None,
    }
}

/// Checks for a method that the repository allows.
fn allows(repo: &RepoState, style: &str) -> bool {
    match style {
        "merge" => repo.allow_merge_commit,
        "squash" => repo.allow_squash_merge,
        "rebase" | "rebase-merge" | "fast-forward-only" => repo.allow_rebase_merge,
        _ => false,
    }
}

/// Merges, and deletes the head branch if asked to.
async fn merge(shared: &Shared, full_name: &str, number: u64, how: &ScheduledMerge) -> anyhow::Result<()> {
    let (id, branch, own) = {
        let state = shared.lock();
        let pull = state.pull(full_name, number)?;
        (pull.id, pull.head_ref.clone(), pull.head_repo.eq_ignore_ascii_case(full_name))
    };
    pull::merge_with(shared, full_name, number, &how.by, &how.style, how.message.as_deref()).await?;
    shared.change(|state| state.gitea.facts_mut(id).scheduled = None);
    if own && how.deletes_branch {
        repo::delete_branch(shared, full_name, &branch, &how.by).await?;
    }
    Ok(())
}

/// Merges what was scheduled as soon as nothing is in its way any more, until the forge stops. A merge that fails is given up.
pub(in super::super) async fn merge_scheduled(shared: Arc<Shared>) {
    let due = |state: &State| {
        let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
        all.into_iter().find_map(|(repo, pull)| {
            let how = state.gitea.pulls.get(&pull.id)?.scheduled.clone()?;
            check(state, repo, pull).ok().map(|()| (repo.full_name(), pull.number, pull.id, how))
        })
    };
    let work = async {
        loop {
            let Ok((full_name, number, id, how)) = shared.wait_for(ROUND, due).await else { continue };
            if let Err(error) = merge(&shared, &full_name, number, &how).await {
                tracing::warn!("sandbox: a scheduled merge of {full_name}#{number}: {error:#}");
                shared.change(|state| state.gitea.facts_mut(id).scheduled = None);
            }
        }
    };
    tokio::select! { () = work => {}, () = shared.stop.cancelled() => {} }
}

impl RepoCall<'_> {
    /// The order of the refusals is that of `MergePullRequest` of routers/api/v1/repo/pull.go. A refused merge makes the next check
    /// necessary.
    pub(super) async fn merge(&self, number: u64) -> Result {
        let style = self.call.text("Do").or_else(|| self.call.text("do")).unwrap_or_default();
        if style.is_empty() {
            return Err(Refusal::invalid("[Do]: Required"));
        }
        if !["merge", "rebase", "rebase-merge", "squash", "fast-forward-only"].contains(&style.as_str()) {
            return Err(Refusal::invalid("[Do]: In"));
        }
        let (shared, is_scheduled) = (self.call.shared, self.call.flag("merge_when_checks_succeed"));
        let found = self.of_pull(number, |state, repo, pull| {
            let refusal = refusal(state, repo, pull, Some(&self.call.login));
            let blocker = protection::blocker(state, repo, pull).filter(|_| !is_scheduled);
            let refusal = refusal.or_else(|| blocker.map(Refusal::not_allowed));
            let is_waiting = state.gitea.pulls.get(&pull.id).is_some_and(|facts| facts.scheduled.is_some());
            let behind = state.gitea.pulls.get(&pull.id).map_or(0, |facts| facts.measure.behind);
            let allowed = allows(repo, &style).then_some(behind);
            (refusal, is_waiting, allowed, pull.head_sha.clone(), pull.id)
        });
        let (refusal, is_waiting, allowed, head, id) = found?;
        shared.change(|state| ask(state, &self.full_name, number));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let title = self.call.text("merge_title_field").filter(|text| !text.trim().is_empty());
        let text = self.call.text("merge_message_field").filter(|text| !text.trim().is_empty());
        let message = title.map(|title| text.map_or(title.clone(), |text| format!("{title}\n\n{text}")));
        let deletes_branch = self.call.flag("delete_branch_after_merge");
        let how = ScheduledMerge { by: self.call.login.clone(), style: style.clone(), message, deletes_branch };
        if is_scheduled {
            if is_waiting {
                let text = "pull request is already scheduled to auto merge when checks succeed";
                return Err(Refusal::new(StatusCode::CONFLICT, format!("{text} [pull_id: {id}]")));
            }
            shared.change(|state| state.gitea.facts_mut(id).scheduled = Some(how));
            return Ok(StatusCode::CREATED.into_response());
        }
        let Some(behind) = allowed else {
            let text = format!("{style} is not allowed an allowed merge style for this repository");
            return Err(Refusal::not_allowed(text));
        };
        let expected = self.call.text("head_commit_id").filter(|commit| !commit.is_empty());
        if expected.is_some_and(|commit| commit != head) {
            shared.change(|state| recheck(state, id));
            return Err(Refusal::new(StatusCode::CONFLICT, "head out of date"));
        }
        if style == "fast-forward-only" && behind > 0 {
            // `MergePullRequest` has no case of its own for `ErrMergeDivergingFastForwardOnly`.
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, ""));
        }
        if let Err(error) = merge(shared, &self.full_name, number, &how).await {
            shared.change(|state| recheck(state, id));
            return Err(Refusal::new(StatusCode::CONFLICT, format!("PushRejected with remote message: {error:#}")));
        }
        Ok(StatusCode::OK.into_response())
    }

    /// 204 for a merged pull request, 404 for others (routers/api/v1/repo/pull.go, `IsPullRequestMerged`).
    pub(super) fn is_merged(&self, number: u64) -> Result {
        match self.of_pull(number, |_, _, pull| pull.merged.is_some())? {
            true => no_content(),
            false => Err(Refusal::not_found()),
        }
    }

    /// Cancels a scheduled merge, as the person who has scheduled it or one who may merge (`CancelScheduledAutoMerge`).
    pub(super) fn cancel_merge(&self, number: u64) -> Result {
        let found = self.of_pull(number, |state, repo, pull| {
            let by =
                state.gitea.pulls.get(&pull.id).and_then(|facts| facts.scheduled.as_ref()).map(|how| how.by.clone());
            let is_allowed =
                access::is_writer(access::level(repo, &self.call.login)) || by.as_ref() == Some(&self.call.login);
            (pull.id, by.is_some(), is_allowed)
        });
        match found? {
            (_, false, _) => Err(Refusal::not_found()),
            (_, _, false) => Err(Refusal::forbidden("user has no permission to cancel the scheduled auto merge")),
            (id, ..) => {
                self.call.shared.change(|state| {
                    state.gitea.facts_mut(id).scheduled = None;
                    if let Ok(pull) = state.pull_mut(&self.full_name, number) {
                        pull.updated_at = timestamp();
                    }
                });
                no_content()
            }
        }
    }
}
