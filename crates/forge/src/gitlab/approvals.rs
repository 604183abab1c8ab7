//! Approvals and reviewers (docs.gitlab.com/api/merge_request_approvals).

use super::super::state::{PullState, RepoState, ReviewState, State};
use super::super::{BOT, Shared, pull};
use super::api::{ProjectCall, created, no_record, no_route, ok};
use super::members::DEVELOPER;
use super::merging::{check_sha, follow_auto_merges};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Latest vote of each person, by login in lower case.
fn votes(pull: &PullState) -> BTreeMap<String, &ReviewState> {
    pull.reviews.iter().map(|review| (review.user.to_lowercase(), review)).collect()
}

/// Returns true if the latest vote of this person approves.
pub(super) fn has_approved(pull: &PullState, login: &str) -> bool {
    votes(pull).get(&login.to_lowercase()).is_some_and(|review| review.vote > 0)
}

/// Approvals that a merge request still needs.
pub(super) fn left(state: &State, repo: &RepoState, pull: &PullState) -> usize {
    let required = state.gitlab.projects.get(&repo.id).map_or(0, |settings| settings.approvals_required);
    required.saturating_sub(votes(pull).values().filter(|review| review.vote > 0).count())
}

/// Approves (10) or takes an approval back (0).
pub(super) fn vote(shared: &Shared, full_name: &str, number: u64, login: &str, vote: i64) -> anyhow::Result<()> {
    shared.change(|state| {
        if has_approved(state.pull(full_name, number)?, login) == (vote > 0) {
            anyhow::bail!("{login} has voted like that already");
        }
        pull::vote(state, &shared.url, full_name, number, login, vote)
    })
}

fn shaped(url: &str, state: &State, repo: &RepoState, pull: &PullState, login: &str) -> Value {
    let left = left(state, repo, pull);
    let required = state.gitlab.projects.get(&repo.id).map_or(0, |settings| settings.approvals_required);
    let by = |review: &&ReviewState| {
        let at = shapes::api_time(&review.submitted_at);
        json!({"user": shapes::person(url, state, &review.user), "approved_at": at})
    };
    let votes = votes(pull);
    let approved_by: Vec<Value> = votes.values().filter(|review| review.vote > 0).map(by).collect();
    let has_approved = has_approved(pull, login);
    json!({
        "id": pull.id, "iid": pull.number, "project_id": repo.id, "title": shapes::title(pull), "description": pull.body,
        "state": shapes::state_word(pull), "created_at": shapes::api_time(&pull.created_at),
        "updated_at": shapes::api_time(&pull.updated_at), "merge_status": "can_be_merged", "approved": left == 0,
        "approvals_required": required, "approvals_left": left, "require_password_to_approve": false, "approved_by": approved_by,
        "suggested_approvers": [], "approvers": [], "approver_groups": [], "user_has_approved": has_approved,
        "user_can_approve": !has_approved, "approval_rules_left": [], "has_approval_rules": required > 0,
        "merge_request_approvers_available": false, "multiple_approval_rules_available": false,
    })
}

impl ProjectCall<'_> {
    fn shaped_approvals(&self, number: u64) -> Result<Value> {
        self.of_pull(number, |state, repo, pull| shaped(self.url(), state, repo, pull, &self.call.login))
    }

    pub(super) fn approvals(&self, number: u64) -> Result {
        ok(self.shaped_approvals(number)?)
    }

    /// Rules are a feature of Premium: docs.gitlab.com/user/project/merge_requests/approvals/rules.
    pub(super) fn approval_state(&self, number: u64) -> Result {
        let rules = self.of_pull(number, |state, repo, _| {
            state.gitlab.projects.get(&repo.id).and_then(|settings| settings.approval_rules.clone())
        })?;
        ok(json!({"approval_rules_overwritten": false, "rules": rules.ok_or_else(no_route)?}))
    }

    /// 401 for a second approval: lib/api/merge_request_approvals.rb, `unauthorized! unless success`.
    pub(super) async fn approve(&self, number: u64) -> Result {
        self.check_level(DEVELOPER)?;
        check_sha(self.call.text("sha"), &self.of_pull(number, |_, _, pull| pull.head_sha.clone())?)?;
        vote(self.call.shared, &self.full_name, number, &self.call.login, 10).map_err(|_| Refusal::unauthorized())?;
        follow_auto_merges(self.call.shared).await.map_err(|error| Refusal::broken(&error))?;
        created(self.shaped_approvals(number)?)
    }

    /// 404 if there is no approval to take back: lib/api/merge_request_approvals.rb, `not_found! unless success`.
    pub(super) fn unapprove(&self, number: u64) -> Result {
        self.check_level(DEVELOPER)?;
        vote(self.call.shared, &self.full_name, number, &self.call.login, 0).map_err(|_| no_record())?;
        created(self.shaped_approvals(number)?)
    }

    /// Bot users of project or group tokens alone may do it (docs.gitlab.com/api/merge_request_approvals, "Reset approvals").
    pub(super) fn reset_approvals(&self, number: u64) -> Result {
        let is_bot = self.call.login == BOT && self.call.shared.lock().gitlab.token.is_of_bot;
        let is_merged = self.of_pull(number, |_, _, pull| pull.merged.is_some())?;
        if !is_bot || is_merged {
            return Err(Refusal::unauthorized());
        }
        self.call.shared.change(|state| {
            let pull = state.pull_mut(&self.full_name, number).map_err(|_| no_record())?;
            for review in pull.reviews.iter_mut().filter(|review| review.vote > 0) {
                (review.state, review.vote) = ("DISMISSED", 0);
            }
            Ok(StatusCode::ACCEPTED.into_response())
        })
    }

    /// docs.gitlab.com/api/merge_requests, "Retrieve merge request reviewers".
    pub(super) fn reviewers(&self, number: u64) -> Result {
        let rows = self.of_pull(number, |state, _, pull| {
            let row = |review: &&ReviewState| {
                json!({"user": shapes::person(self.url(), state, &review.user), "state": reviewer_state(review.vote),
                    "created_at": shapes::api_time(&review.submitted_at)})
            };
            votes(pull).values().map(row).collect()
        })?;
        self.call.page(rows)
    }
}

/// State of a reviewer after this vote.
pub(super) fn reviewer_state(vote: i64) -> &'static str {
    match vote {
        1.. => "approved",
        0 => "unapproved",
        _ => "requested_changes",
    }
}
