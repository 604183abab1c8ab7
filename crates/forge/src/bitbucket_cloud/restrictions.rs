//! Rules of branches (OpenAPI, `branchrestriction`). Merge checks warn, unless the branch enforces them, which is a feature of Premium
//! (support.atlassian.com/bitbucket-cloud/docs/suggest-or-require-checks-before-a-merge).

use super::super::Repo;
use super::super::state::{PullState, RepoState, State};
use super::api::{RepoCall, ok};
use super::{Refusal, Result, reviews, shapes, statuses};
use serde_json::{Value, json};

/// A rule of the branches that match its pattern.
#[derive(Clone)]
pub(super) struct BranchRestriction {
    pub id: u64,
    pub kind: &'static str,
    /// In it, `*` stands for any characters.
    pub pattern: String,
    pub value: Option<u64>,
}

/// The rules of a repository: those that were set, and the builds that it requires for `main`.
fn all(state: &State, repo: &RepoState) -> Vec<BranchRestriction> {
    let mut rules = state.bitbucket_cloud.restrictions.get(&repo.id).cloned().unwrap_or_default();
    if !repo.required.is_empty() {
        let rule = |id, kind, value| BranchRestriction { id, kind, pattern: "main".to_owned(), value };
        rules.push(rule(1, "require_passing_builds_to_merge", Some(repo.required.len() as u64)));
        rules.push(rule(2, "enforce_merge_checks", None));
    }
    rules
}

/// The rules of a branch.
pub(super) fn of(state: &State, repo: &RepoState, branch: &str) -> impl Iterator<Item = BranchRestriction> {
    let branch = branch.to_owned();
    all(state, repo).into_iter().filter(move |rule| matches(&rule.pattern, &branch))
}

fn matches(pattern: &str, branch: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| branch.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Returns the merge check that refuses a pull request, in words of the forge's own: the host's are in no source. Checks that are not
/// enforced refuse nothing.
pub(super) fn blocker(state: &State, repo: &RepoState, pull: &PullState) -> Option<String> {
    let rules: Vec<BranchRestriction> = of(state, repo, &pull.base_ref).collect();
    if !rules.iter().any(|rule| rule.kind == "enforce_merge_checks") {
        return None;
    }
    let open_tasks = state.bitbucket_cloud.pulls.get(&pull.id).map_or(0, |facts| facts.open_tasks);
    rules.iter().find_map(|rule| {
        let least = usize::try_from(rule.value.unwrap_or_default()).unwrap_or(usize::MAX);
        let (is_met, what) = match rule.kind {
            "require_approvals_to_merge" => {
                (reviews::approvals(pull) >= least, format!("at least {least} approval(s)"))
            }
            "require_passing_builds_to_merge" => {
                let is_met = statuses::are_passing(state, repo, &pull.head_sha, least);
                (is_met, format!("at least {least} successful build(s) and none that failed or is in progress"))
            }
            "require_tasks_to_be_completed" => (open_tasks == 0, "no unresolved task".to_owned()),
            "require_no_changes_requested" => (!reviews::is_rejected(pull), "no requested changes".to_owned()),
            // The forge cannot judge it, and refuses, so that nobody takes it for met.
            kind if kind.starts_with("require_") => (false, format!("the condition {kind}")),
            _ => return None,
        };
        (!is_met).then(|| format!("Unresolved merge checks: {what}"))
    })
}

/// Adds a rule of the branches that match a pattern, or replaces it.
pub(super) fn set(
    state: &mut State,
    full_name: &str,
    kind: &'static str,
    pattern: &str,
    value: Option<u64>,
) -> anyhow::Result<()> {
    let (id, repo) = (state.new_id(), state.repo(full_name)?.id);
    let rules = state.bitbucket_cloud.restrictions.entry(repo).or_default();
    rules.retain(|rule| rule.kind != kind || rule.pattern != pattern);
    rules.push(BranchRestriction { id, kind, pattern: pattern.to_owned(), value });
    Ok(())
}

/// Requires this number of approvals of pull requests into `main`, and enforces it.
pub(in super::super) fn require_approvals(repo: &Repo, count: usize) -> anyhow::Result<()> {
    repo.forge.shared.change(|state| {
        set(state, &repo.full_name, "require_approvals_to_merge", "main", Some(count as u64))?;
        set(state, &repo.full_name, "enforce_merge_checks", "main", None)
    })
}

impl RepoCall<'_> {
    /// Only administrators see the rules (OpenAPI).
    pub(super) fn restrictions(&self, rest: &[&str]) -> Result {
        self.check_admin()?;
        let rules: Vec<BranchRestriction> = {
            let state = self.call.shared.lock();
            all(&state, self.repo_in(&state)?)
        };
        if let [id] = rest {
            let found = rules.iter().find(|rule| rule.id.to_string() == *id).map(|rule| self.shaped_rule(rule));
            return ok(found.ok_or_else(|| Refusal::not_found("Not found"))?);
        }
        let is_wanted = |rule: &&BranchRestriction| {
            self.call.asked("kind").is_none_or(|kind| rule.kind == kind)
                && self.call.asked("pattern").is_none_or(|pattern| rule.pattern == pattern)
        };
        self.call.page(rules.iter().filter(is_wanted).map(|rule| self.shaped_rule(rule)).collect(), 100)
    }

    fn shaped_rule(&self, rule: &BranchRestriction) -> Value {
        let own = format!("{}/branch-restrictions/{}", shapes::api(self.url(), &self.full_name), rule.id);
        json!({
            "type": "branchrestriction", "id": rule.id, "kind": rule.kind, "pattern": rule.pattern, "value": rule.value,
            "branch_match_kind": "glob", "users": [], "groups": [], "links": {"self": {"href": own}},
        })
    }
}

#[cfg(test)]
mod unit_tests {
    use super::matches;

    #[test]
    fn a_pattern_is_a_glob_of_whole_names() {
        for (pattern, branch) in
            [("main", "main"), ("*", "a/b"), ("release/*", "release/1"), ("a*c*e", "abcde"), ("a*", "a")]
        {
            assert!(matches(pattern, branch), "{pattern} {branch}");
        }
        for (pattern, branch) in
            [("main", "main2"), ("main", "mai"), ("foo*", "barfoo"), ("a*c*e", "abde"), ("*x", "xy")]
        {
            assert!(!matches(pattern, branch), "{pattern} {branch}");
        }
    }
}
