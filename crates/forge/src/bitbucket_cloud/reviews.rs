//! Participants of pull requests: approvals and requested changes.

use super::super::state::{PullState, RepoState, ReviewState, State};
use super::super::timestamp;
use super::api::{RepoCall, no_content, no_route, ok};
use super::{Refusal, Result, hooks, restrictions, shapes};
use anyhow::bail;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The review of each person that counts, by login in lower case.
pub(super) fn latest(pull: &PullState) -> BTreeMap<String, &ReviewState> {
    let all = pull.reviews.iter().map(|review| (review.user.to_lowercase(), review));
    all.collect::<BTreeMap<_, _>>().into_iter().filter(|(_, review)| review.vote != 0).collect()
}

/// Number of approvals of others than the author. The author's own is shown and does not count
/// (bitbucket.org/site/master/issues/19032/authors-self-approving-pull-requests).
pub(super) fn approvals(pull: &PullState) -> usize {
    let counts = |review: &&&ReviewState| review.vote > 0 && !review.user.eq_ignore_ascii_case(&pull.author);
    latest(pull).values().filter(counts).count()
}

/// People who have commented or reviewed (OpenAPI, `participants` of `pullrequest`). Approvers come with the time of their approval, others
/// with that of their last act.
pub(super) fn participants(url: &str, state: &State, pull: &PullState) -> Vec<Value> {
    let mut people: BTreeMap<String, (String, String)> = BTreeMap::new();
    for comment in &pull.comments {
        people.insert(comment.author.to_lowercase(), (comment.author.clone(), comment.created_at.clone()));
    }
    let reviews = latest(pull);
    for (login, review) in &reviews {
        people.insert(login.clone(), (review.user.clone(), review.submitted_at.clone()));
    }
    let row = |(key, (login, at)): (String, (String, String))| {
        participant(url, state, &login, &at, reviews.get(&key).map_or(0, |review| review.vote))
    };
    people.into_iter().map(row).collect()
}

/// A participant after this vote.
fn participant(url: &str, state: &State, login: &str, at: &str, vote: i64) -> Value {
    let word = match vote {
        0 => None,
        1.. => Some("approved"),
        _ => Some("changes_requested"),
    };
    json!({
        "type": "participant", "user": shapes::person(url, state, login), "role": "PARTICIPANT", "approved": vote > 0, "state": word,
        "participated_on": shapes::time(at),
    })
}

/// Reviews as a person by a vote: positive ones approve, negative ones request changes, and 0 takes the person's own vote back. Authors may
/// approve (khbb).
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
    let before = latest(pull).get(&user.to_lowercase()).map_or(0, |review| review.vote);
    let (word, event) = match (vote, before) {
        (1.., 1..) => bail!("You already approved this pull request."),
        (1.., _) => ("APPROVED", "pullrequest:approved"),
        (0, 1..) => ("DISMISSED", "pullrequest:unapproved"),
        (0, 0) => bail!("{user} has not reviewed #{number}"),
        (0, _) => ("DISMISSED", "pullrequest:changes_request_removed"),
        _ => ("CHANGES_REQUESTED", "pullrequest:changes_request_created"),
    };
    let at = timestamp();
    pull.updated_at.clone_from(&at);
    pull.reviews.push(ReviewState {
        id,
        user: user.to_owned(),
        state: word,
        vote,
        body: String::new(),
        commit: pull.head_sha.clone(),
        submitted_at: at,
    });
    hooks::emit_vote(state, url, full_name, number, event)
}

/// Takes approvals and requested changes back after a push where a rule of the base branch says so.
pub(super) fn follow_push(state: &mut State, full_name: &str, number: u64) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let has = |kind: &str| restrictions::of(state, repo, &pull.base_ref).any(|rule| rule.kind == kind);
    let resets = (has("reset_pullrequest_approvals_on_change"), has("reset_pullrequest_changes_requested_on_change"));
    for review in &mut state.pull_mut(full_name, number)?.reviews {
        if (review.vote > 0 && resets.0) || (review.vote < 0 && resets.1) {
            (review.state, review.vote) = ("DISMISSED", 0);
        }
    }
    Ok(())
}

/// Returns true if somebody requests changes.
pub(super) fn is_rejected(pull: &PullState) -> bool {
    latest(pull).values().any(|review| review.vote < 0)
}

impl RepoCall<'_> {
    /// Approves or requests changes, or takes that back: everybody for oneself.
    pub(super) fn review(&self, method: &str, number: u64, word: &str) -> Result {
        let own = |pull: &PullState| latest(pull).get(&self.call.login.to_lowercase()).map_or(0, |review| review.vote);
        let (before, is_open) = self.of_pull(number, |_, _: &RepoState, pull| (own(pull), pull.open))?;
        let vote = match (method, word) {
            ("POST", "approve") => 10,
            ("POST", _) => -10,
            ("DELETE", _) => 0,
            _ => return Err(no_route()),
        };
        if !is_open {
            return Err(Refusal::invalid("Pull request has already been closed."));
        }
        if vote > 0 && before > 0 {
            return Err(Refusal::new(StatusCode::CONFLICT, "You already approved this pull request."));
        }
        let is_there = if word == "approve" { before > 0 } else { before < 0 };
        if vote == 0 && !is_there {
            return Err(Refusal::not_found("You haven't reviewed this pull request."));
        }
        let (shared, login) = (self.call.shared, &self.call.login);
        let reviewed = shared.change(|state| self::vote(state, self.url(), &self.full_name, number, login, vote));
        reviewed.map_err(|error| Refusal::broken(&error))?;
        if vote == 0 {
            return no_content();
        }
        ok(participant(self.url(), &shared.lock(), login, &timestamp(), vote))
    }
}
