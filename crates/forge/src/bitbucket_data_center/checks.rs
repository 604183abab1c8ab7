//! Merge checks: what vetoes the merge of a pull request. Texts of builds, approvals and requested changes are those of
//! `StashApiClientTest` of the Jenkins plugin stash-pullrequest-builder; where nothing else is said, the others are the forge's own.

use super::super::Repo;
use super::super::state::{PullState, RepoState, State};
use super::access::{self, Level};
use super::api::{RepoCall, most, ok};
use super::{Refusal, Result, builds, comments, reviews};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Merge checks and settings of a repository. At the beginning nothing is checked, and a merge does not wait.
#[derive(Clone, Default)]
pub(super) struct RepositoryRules {
    /// Number of approvals that a merge needs.
    pub(super) approvals: usize,
    /// True if every reviewer has to approve.
    pub(super) needs_all_reviewers: bool,
    /// True if nobody may request changes.
    pub(super) needs_no_changes_requested: bool,
    /// True if every task has to be done.
    pub(super) needs_tasks: bool,
    /// Number of successful builds that a merge needs, and that none has failed or is in progress; 0 for no check.
    pub(super) builds: usize,
    /// Build parents that have to be successful, for each pull request.
    pub(super) required_builds: Vec<String>,
    /// Branches that only these people change, by their name.
    pub(super) restricted: Vec<(String, Vec<String>)>,
    /// True if a push takes approvals back.
    pub(super) resets_approvals: bool,
    /// True if merges may wait for the checks.
    pub(super) has_auto_merge: bool,
    /// Summary and detail of a veto of an app.
    pub(super) veto: Option<(String, String)>,
}

pub(super) fn of<'a>(state: &'a State, repo: &RepoState) -> std::borrow::Cow<'a, RepositoryRules> {
    use std::borrow::Cow;
    state
        .bitbucket_data_center
        .rules
        .get(&repo.id)
        .map_or_else(|| Cow::Owned(RepositoryRules::default()), Cow::Borrowed)
}

/// Returns true if a merge has conflicts.
pub(super) fn is_conflicting(pull: &PullState) -> bool {
    pull.conflicts || pull.forced_mergeable_state.as_deref() == Some("dirty")
}

/// A veto (OpenAPI, `RestRepositoryHookVeto`).
fn veto(summary: &str, detail: impl Into<String>) -> Value {
    json!({"summaryMessage": summary, "detailedMessage": detail.into()})
}

fn approvals(missing: usize) -> Value {
    let noun = if missing == 1 { "approval" } else { "approvals" };
    let detail = format!("You need {missing} more {noun} before this pull request can be merged.");
    veto("Requires approvals", detail)
}

/// Returns the vetoes of a merge, by this person if it is one.
pub(super) fn vetoes(state: &State, repo: &RepoState, pull: &PullState, login: Option<&str>) -> Vec<Value> {
    let rules = of(state, repo);
    let mut all = Vec::new();
    if pull.draft {
        // Drafts cannot be merged; the host's words for it are in no source.
        all.push(veto("Draft pull request", "You cannot merge a draft pull request."));
    }
    if let Some(detail) = builds::blocker(state, repo, pull, rules.builds, &rules.required_builds) {
        all.push(veto("Not all required builds are successful yet", detail));
    }
    let granted = reviews::approvals(pull);
    if let Some(missing) = rules.approvals.checked_sub(granted).filter(|missing| *missing > 0) {
        all.push(approvals(missing));
    }
    if rules.needs_all_reviewers && !reviews::have_all_approved(state, pull) {
        let detail = "All reviewers must approve this pull request before it can be merged.";
        all.push(veto("Not all required reviewers have approved yet", detail));
    }
    if rules.needs_no_changes_requested && reviews::needs_work(pull) {
        all.push(veto("Needs work", "PR marked as Needs Work from reviewer(s)"));
    }
    let open = comments::tasks(state, pull, "OPEN");
    if rules.needs_tasks && open > 0 {
        let detail = format!("You still have {open} open task(s) to complete before this pull request can be merged.");
        all.push(veto("Not all required tasks are complete", detail));
    }
    let is_restricted = |(branch, people): &(String, Vec<String>)| {
        *branch == pull.base_ref && login.is_some_and(|login| !people.iter().any(|one| one.eq_ignore_ascii_case(login)))
    };
    if rules.restricted.iter().any(is_restricted) {
        // OpenAPI, `RestRepositoryHookVeto`, has the summary as its example.
        let detail = format!("You have insufficient permissions to update 'refs/heads/{}'.", pull.base_ref);
        all.push(veto("Insufficient branch permissions", detail));
    }
    all.extend(rules.veto.iter().map(|(summary, detail)| veto(summary, detail.as_str())));
    all
}

/// Fails with the reason for which nobody can merge a pull request.
pub(in super::super) fn check(state: &State, repo: &RepoState, pull: &PullState) -> anyhow::Result<()> {
    if !pull.open {
        bail!("This pull request has already been merged or declined.");
    }
    if is_conflicting(pull) {
        bail!("The pull request has conflicts and cannot be merged.");
    }
    match vetoes(state, repo, pull, None).first() {
        Some(veto) => bail!("{}", veto["detailedMessage"].as_str().unwrap_or_default()),
        None => Ok(()),
    }
}

/// Makes the host say this `mergeable_state` of GitHub by what it has itself: a missing approval, a conflict, a draft.
pub(in super::super) fn force(state: &mut State, full_name: &str, number: u64, word: &str) -> anyhow::Result<()> {
    let granted = reviews::approvals(state.pull(full_name, number)?);
    let pull = state.pull_mut(full_name, number)?;
    pull.forced_mergeable_state = (word == "dirty").then(|| word.to_owned());
    pull.draft |= word == "draft";
    let least = match word {
        "dirty" | "draft" => return Ok(()),
        "blocked" => granted + 1,
        "clean" | "unstable" | "has_hooks" => 0,
        other => bail!("Bitbucket Data Center has no state {other}"),
    };
    change(state, full_name, |rules| rules.approvals = least)
}

/// Changes the rules of a repository.
pub(super) fn change(state: &mut State, full_name: &str, act: impl FnOnce(&mut RepositoryRules)) -> anyhow::Result<()> {
    let id = state.repo(full_name).context("rules of a repository")?.id;
    act(state.bitbucket_data_center.rules.entry(id).or_default());
    Ok(())
}

/// Requires this number of approvals of every pull request.
pub(in super::super) fn require_approvals(repo: &Repo, count: usize) -> anyhow::Result<()> {
    repo.forge.shared.change(|state| change(state, &repo.full_name, |rules| rules.approvals = count))
}

impl RepoCall<'_> {
    /// Tells whether the account could merge (OpenAPI, "Test if pull request can be merged"). The outcome is about conflicts alone.
    pub(super) fn mergeability(&self, number: u64) -> Result {
        let login = &self.call.login;
        self.check_open(number)?;
        let (is_conflicting, vetoes) = self.of_pull(number, |state, repo, pull| {
            let mut vetoes = vetoes(state, repo, pull, Some(login));
            if access::level(repo, login) < Level::Write {
                let detail = "You do not have permission to merge this pull request.";
                vetoes.push(veto("Insufficient permissions", detail));
            }
            (is_conflicting(pull), vetoes)
        })?;
        ok(json!({
            "canMerge": !is_conflicting && vetoes.is_empty(), "conflicted": is_conflicting,
            "outcome": if is_conflicting { "CONFLICTED" } else { "CLEAN" }, "vetoes": vetoes,
        }))
    }

    /// The required builds (OpenAPI, `RestRequiredBuildCondition`).
    pub(super) fn required_builds(&self) -> Result {
        let keys = {
            let state = self.call.shared.lock();
            let repo = self.repo_in(&state)?;
            let mut keys = of(&state, repo).required_builds.clone();
            // A required status of the forge vetoes merges as well.
            keys.extend(repo.required.iter().cloned());
            keys
        };
        let any = json!({"id": "ANY_REF_MATCHER_ID", "displayId": "ANY_REF_MATCHER_ID", "type": {"id": "ANY_REF", "name": "Any branch"}});
        let rows = if keys.is_empty() {
            Vec::new()
        } else {
            vec![json!({"id": 1, "buildParentKeys": keys, "refMatcher": any, "exemptRefMatcher": null})]
        };
        self.call.page(rows, most::CHANGES)
    }

    /// The restrictions of branches (OpenAPI, `RestRefRestriction`). Only administrators see them.
    pub(super) fn restrictions(&self) -> Result {
        self.check_level(Level::Admin)?;
        let rows = {
            let state = self.call.shared.lock();
            let repo = self.repo_in(&state)?;
            let row = |(number, (branch, people)): (usize, &(String, Vec<String>))| {
                let users: Vec<Value> =
                    people.iter().map(|login| super::shapes::person(self.url(), &state, login)).collect();
                json!({
                    "id": number + 1, "type": "read-only", "groups": [], "accessKeys": [], "users": users,
                    "scope": {"type": "REPOSITORY", "resourceId": repo.id},
                    "matcher": {"id": format!("refs/heads/{branch}"), "displayId": branch, "type": {"id": "BRANCH", "name": "Branch"}},
                })
            };
            of(&state, repo).restricted.iter().enumerate().map(row).collect()
        };
        self.call.page(rows, most::CHANGES)
    }

    /// Refuses with the vetoes or the conflict (text of the conflict: a recording in github.com/sourcegraph/sourcegraph).
    pub(super) fn check_mergeable(&self, number: u64) -> Result<()> {
        let login = &self.call.login;
        let (is_conflicting, vetoes) =
            self.of_pull(number, |state, repo, pull| (is_conflicting(pull), vetoes(state, repo, pull, Some(login))))?;
        let text = match (is_conflicting, vetoes.is_empty()) {
            (false, true) => return Ok(()),
            (true, _) => "The pull request has conflicts and cannot be merged.",
            (false, false) => "Merging the pull request has been vetoed.",
        };
        let refusal = Refusal::conflict("pull.PullRequestMergeVetoedException", text);
        Err(refusal.with(json!({"conflicted": is_conflicting, "vetoes": vetoes})))
    }
}
