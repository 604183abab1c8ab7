//! Protected branches (models/git/protected_branch.go, services/pull/merge.go).

use super::super::state::{PullState, RepoState, State};
use super::super::timestamp;
use super::api::{RepoCall, no_route, ok};
use super::reviews;
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

/// Rules of a protected branch on Gitea; the default is that of a new one, which requires nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BranchProtection {
    /// Number of official approvals that a pull request needs.
    pub required_approvals: usize,
    /// Globs of statuses that must be `success`; absent if statuses are not checked.
    pub status_contexts: Option<Vec<String>>,
    /// An official rejection blocks merges.
    pub block_on_rejected_reviews: bool,
    /// A head without the tip of the branch blocks merges.
    pub block_on_outdated_branch: bool,
    /// A push that changes the diff dismisses all approvals.
    pub dismiss_stale_approvals: bool,
    /// Approvals of an earlier diff do not count.
    pub ignore_stale_approvals: bool,
}

/// The rules of a branch, with the statuses that the repository requires for `main`; absent if it is not protected.
pub(super) fn rule_of(state: &State, repo: &RepoState, branch: &str) -> Option<BranchProtection> {
    let known = state.gitea.protections.get(&(repo.id, branch.to_owned())).cloned();
    if branch != "main" || repo.required.is_empty() {
        return known;
    }
    let mut rule = known.unwrap_or_default();
    rule.status_contexts.get_or_insert_default().extend(repo.required.iter().cloned());
    Some(rule)
}

/// Returns the reason for which the base branch refuses a pull request, in the order of `CheckPullBranchProtections`.
pub(super) fn blocker(state: &State, repo: &RepoState, pull: &PullState) -> Option<&'static str> {
    let rule = rule_of(state, repo, &pull.base_ref)?;
    if !has_statuses(&rule, repo, pull) {
        return Some("Not all required status checks successful");
    }
    if reviews::granted(state, pull, rule.ignore_stale_approvals) < rule.required_approvals {
        return Some("Does not have enough approvals");
    }
    if rule.block_on_rejected_reviews && reviews::is_rejected(state, pull) {
        return Some("There are requested changes");
    }
    let behind = state.gitea.pulls.get(&pull.id).map_or(0, |facts| facts.measure.behind);
    (rule.block_on_outdated_branch && behind > 0).then_some("The head branch is behind the base branch")
}

/// Checks that every required glob matches a status, and that the latest ones are successful; without globs all statuses count
/// (services/pull/commit_status.go, `MergeRequiredContextsCommitStatus`).
fn has_statuses(rule: &BranchProtection, repo: &RepoState, pull: &PullState) -> bool {
    let Some(contexts) = &rule.status_contexts else { return true };
    let latest = repo.latest_statuses(&pull.head_sha);
    let is_good = |state: &str| matches!(state, "success" | "skipped");
    if contexts.is_empty() {
        return !latest.is_empty() && latest.values().all(|status| is_good(&status.state));
    }
    contexts.iter().all(|context| {
        let Ok(glob) = globset::Glob::new(context) else { return false };
        let glob = glob.compile_matcher();
        let mut matching = latest.iter().filter(|(name, _)| glob.is_match(name)).peekable();
        matching.peek().is_some() && matching.all(|(_, status)| is_good(&status.state))
    })
}

impl RepoCall<'_> {
    /// Only administrators see and change the rules of branches.
    pub(super) fn of_protections(&self, method: &str, name: &str) -> Result {
        self.check_admin()?;
        match (method, name) {
            ("GET", "") => {
                let state = self.call.shared.lock();
                let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
                let mut names: Vec<&str> =
                    state.gitea.protections.keys().filter(|key| key.0 == repo.id).map(|key| key.1.as_str()).collect();
                if !names.contains(&"main") && !repo.required.is_empty() {
                    names.push("main");
                }
                let rows =
                    names.into_iter().filter_map(|name| Some(shaped(&state, name, &rule_of(&state, repo, name)?)));
                ok(rows.collect())
            }
            ("GET", name) => {
                let state = self.call.shared.lock();
                let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
                let rule = rule_of(&state, repo, name).ok_or_else(Refusal::not_found)?;
                ok(shaped(&state, name, &rule))
            }
            _ => Err(no_route()),
        }
    }
}

/// Rules in the API: `ToBranchProtection` of services/convert/convert.go.
fn shaped(state: &State, name: &str, rule: &BranchProtection) -> Value {
    let now = shapes::time(state, &timestamp());
    json!({
        "branch_name": name, "rule_name": name, "priority": 1, "enable_push": false, "enable_push_whitelist": false,
        "push_whitelist_usernames": [], "push_whitelist_teams": [], "push_whitelist_deploy_keys": false, "enable_force_push": false,
        "enable_force_push_allowlist": false, "force_push_allowlist_usernames": [], "force_push_allowlist_teams": [],
        "force_push_allowlist_deploy_keys": false, "enable_merge_whitelist": false, "merge_whitelist_usernames": [],
        "merge_whitelist_teams": [], "enable_status_check": rule.status_contexts.is_some(),
        "status_check_contexts": rule.status_contexts.clone().unwrap_or_default(), "required_approvals": rule.required_approvals,
        "enable_approvals_whitelist": false, "approvals_whitelist_username": [], "approvals_whitelist_teams": [],
        "block_on_rejected_reviews": rule.block_on_rejected_reviews, "block_on_official_review_requests": false,
        "block_on_outdated_branch": rule.block_on_outdated_branch, "dismiss_stale_approvals": rule.dismiss_stale_approvals,
        "ignore_stale_approvals": rule.ignore_stale_approvals, "require_signed_commits": false, "protected_file_patterns": "",
        "unprotected_file_patterns": "", "block_admin_merge_override": false, "created_at": now, "updated_at": now,
    })
}
