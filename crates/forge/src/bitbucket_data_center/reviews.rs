//! Reviewers and participants of pull requests: approvals and requested changes.

use super::super::state::{PullState, ReviewState, State};
use super::super::{Shared, timestamp};
use super::activities::Happened;
use super::api::{RepoCall, no_route, ok};
use super::{Refusal, Result, hooks, shapes};
use anyhow::bail;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The review of each person that counts, by login in lower case.
pub(super) fn latest(pull: &PullState) -> BTreeMap<String, &ReviewState> {
    pull.reviews.iter().map(|review| (review.user.to_lowercase(), review)).collect()
}

/// Status of a person after this vote (OpenAPI, `RestPullRequestParticipant`).
fn status_of(vote: i64) -> &'static str {
    match vote {
        1.. => "APPROVED",
        0 => "UNAPPROVED",
        _ => "NEEDS_WORK",
    }
}

/// Number of approvals. Authors cannot approve.
pub(super) fn approvals(pull: &PullState) -> usize {
    latest(pull).values().filter(|review| review.vote > 0).count()
}

/// Returns true if somebody requests changes.
pub(super) fn needs_work(pull: &PullState) -> bool {
    latest(pull).values().any(|review| review.vote < 0)
}

/// Returns true if this reviewer, or each of them, has approved.
pub(super) fn have_all_approved(state: &State, pull: &PullState) -> bool {
    let reviews = latest(pull);
    let has_approved = |login: &String| reviews.get(login).is_some_and(|review| review.vote > 0);
    state.bitbucket_data_center.pulls.get(&pull.id).is_none_or(|facts| facts.reviewers.iter().all(has_approved))
}

/// The entry of a person with this role. The last reviewed commit is that of the latest review which was no withdrawal.
fn entry(url: &str, state: &State, pull: &PullState, login: &str, role: &str) -> Value {
    let reviews = latest(pull);
    let vote = reviews.get(&login.to_lowercase()).map_or(0, |review| review.vote);
    let mut body = json!({
        "user": shapes::person(url, state, login), "role": role, "approved": vote > 0, "status": status_of(vote),
    });
    let reviewed = pull.reviews.iter().rfind(|review| review.user.eq_ignore_ascii_case(login) && review.vote != 0);
    if let Some(review) = reviewed {
        body["lastReviewedCommit"] = review.commit.as_str().into();
    }
    body
}

/// Returns reviewers and participants. Whoever comments, reviews, merges or declines is a participant; reviewers are named as such.
pub(super) fn lists(url: &str, state: &State, pull: &PullState) -> (Vec<Value>, Vec<Value>) {
    let facts = state.bitbucket_data_center.pulls.get(&pull.id);
    let reviewers = facts.map(|facts| facts.reviewers.clone()).unwrap_or_default();
    let mut others: BTreeMap<String, String> = BTreeMap::new();
    let commenters = pull.comments.iter().map(|comment| &comment.author);
    let acting = facts.into_iter().flat_map(|facts| facts.happened.iter().map(|happened| &happened.by));
    for login in commenters.chain(pull.reviews.iter().map(|review| &review.user)).chain(acting) {
        let key = login.to_lowercase();
        if !reviewers.contains(&key) && !login.eq_ignore_ascii_case(&pull.author) {
            others.insert(key, login.clone());
        }
    }
    let of = |login: &String, role: &str| entry(url, state, pull, login, role);
    (
        reviewers.iter().map(|login| of(login, "REVIEWER")).collect(),
        others.values().map(|login| of(login, "PARTICIPANT")).collect(),
    )
}

/// Reviews as a person by a vote: positive ones approve, negative ones request changes, and 0 takes the person's own vote back. The version
/// and `updatedDate` stay (go-playground, pr-reviewer-approved.json).
pub(in super::super) fn vote(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    user: &str,
    vote: i64,
) -> anyhow::Result<()> {
    let id = state.new_id();
    let pull = state.pull_mut(full_name, number)?;
    if !pull.open {
        bail!("#{number} is merged or declined and cannot be reviewed");
    }
    if pull.author.eq_ignore_ascii_case(user) {
        bail!("{user} opened #{number} and cannot review it; choose somebody else");
    }
    let before = latest(pull).get(&user.to_lowercase()).map_or(0, |review| review.vote);
    let word = match vote {
        1.. => "APPROVED",
        0 => "DISMISSED",
        _ => "CHANGES_REQUESTED",
    };
    pull.reviews.push(ReviewState {
        id,
        user: user.to_owned(),
        state: word,
        vote,
        body: String::new(),
        commit: pull.head_sha.clone(),
        submitted_at: timestamp(),
    });
    // A status that is set again tells nobody.
    if status_of(vote) == status_of(before) {
        return Ok(());
    }
    let pull_id = pull.id;
    let (action, event) = match vote {
        1.. => ("APPROVED", "pr:reviewer:approved"),
        0 => ("UNAPPROVED", "pr:reviewer:unapproved"),
        // The documentation's `pr:reviewer:changes_requested` is no event of the host (bb).
        _ => ("REVIEWED", "pr:reviewer:needs_work"),
    };
    state.bitbucket_data_center.facts_mut(pull_id).happened.push(Happened::now(id, action, user));
    let role = match state.bitbucket_data_center.facts_mut(pull_id).reviewers.contains(&user.to_lowercase()) {
        true => "REVIEWER",
        false => "PARTICIPANT",
    };
    let participant = entry(url, state, state.pull(full_name, number)?, user, role);
    let more = json!({"participant": participant, "previousStatus": status_of(before)});
    hooks::emit(state, url, full_name, number, (event, user), more)
}

impl RepoCall<'_> {
    pub(super) fn of_participants(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => {
                let (reviewers, others) = self.of_pull(number, |state, _, pull| lists(self.url(), state, pull))?;
                self.call.page(reviewers.into_iter().chain(others).collect(), super::api::most::PEOPLE)
            }
            ("PUT", [slug]) => self.set_status(number, slug),
            _ => Err(no_route()),
        }
    }

    /// Sets the status of the account itself (OpenAPI, "Change pull request status").
    fn set_status(&self, number: u64, slug: &str) -> Result {
        let (shared, login): (&Shared, &str) = (self.call.shared, &self.call.login);
        let (author, head) = self.of_pull(number, |_, _, pull| (pull.author.clone(), pull.head_sha.clone()))?;
        if shapes::slug_of(login) != slug {
            return Err(Refusal::unauthorized());
        }
        let vote = match self.call.text("/status") {
            Some("APPROVED") => 10,
            Some("UNAPPROVED") => 0,
            Some("NEEDS_WORK") => -10,
            _ => return Err(Refusal::field("status", "The status is invalid.")),
        };
        if author.eq_ignore_ascii_case(login) {
            return Err(Refusal::invalid("Authors may not update their status."));
        }
        self.check_open(number)?;
        if self.call.text("/lastReviewedCommit").is_some_and(|commit| commit != head) {
            let text = "The pull request has been updated since the last reviewed commit.";
            return Err(Refusal::new(StatusCode::CONFLICT, "pull.PullRequestOutOfDateException", text));
        }
        let set = shared.change(|state| self::vote(state, self.url(), &self.full_name, number, login, vote));
        set.map_err(|error| Refusal::broken(&error))?;
        ok(self.of_pull(number, |state, _, pull| entry(self.url(), state, pull, login, "PARTICIPANT"))?)
    }
}
