//! Reviews of pull requests (models/issues/review.go, routers/api/v1/repo/pull_review.go).

use super::super::state::{PullState, RepoState, ReviewState, State};
use super::super::timestamp;
use super::api::{RepoCall, no_route, ok};
use super::{Refusal, Result, ReviewMarks, access, hooks, shapes};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Marks of a review that the state has; only a review of the forge's own making has none.
fn marks<'a>(state: &'a State, review: &ReviewState) -> Option<&'a ReviewMarks> {
    state.gitea.reviews.get(&review.id)
}

/// Number of approvals that count: `GetGrantedApprovalsCount` of models/issues/pull.go.
pub(super) fn granted(state: &State, pull: &PullState, ignores_stale: bool) -> usize {
    let counts = |marks: &&ReviewMarks| {
        marks.kind == "APPROVED" && marks.official && !marks.dismissed && !(ignores_stale && marks.stale)
    };
    pull.reviews.iter().filter_map(|review| marks(state, review)).filter(counts).count()
}

/// Checks for a rejection that counts: `MergeBlockedByRejectedReview` of models/issues/pull.go.
pub(super) fn is_rejected(state: &State, pull: &PullState) -> bool {
    let rejects = |marks: &ReviewMarks| marks.kind == "REQUEST_CHANGES" && marks.official && !marks.dismissed;
    pull.reviews.iter().filter_map(|review| marks(state, review)).any(rejects)
}

/// Reviews as a person by a vote: positive ones approve, negative ones reject, and 0 dismisses the person's reviews, which is not
/// delivered.
pub(in super::super) fn vote(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    user: &str,
    vote: i64,
) -> anyhow::Result<()> {
    let (kind, body) = match vote {
        5 | 10 => ("APPROVED", ""),
        -5 | -10 => ("REQUEST_CHANGES", "Not like this."),
        0 => {
            let pull = state.pull_mut(full_name, number)?;
            let own: Vec<u64> = pull
                .reviews
                .iter()
                .filter(|review| review.user.eq_ignore_ascii_case(user))
                .map(|review| review.id)
                .collect();
            own.into_iter().for_each(|id| dismiss(state, full_name, number, id));
            return Ok(());
        }
        _ => bail!("there is no vote {vote}"),
    };
    submit(state, url, full_name, number, (user, kind, body)).map(drop)
}

/// Adds a review of the present head and queues its delivery; fails with the text of the refusal. A new verdict of a
/// person dismisses the earlier ones, which are not official any more (models/issues/review.go, `SubmitReview` and `CreateReview`).
fn submit(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    (user, kind, body): (&str, &'static str, &str),
) -> anyhow::Result<u64> {
    let id = state.new_id();
    let can_write = access::is_writer(access::level(state.repo(full_name)?, user));
    let pull = state.pull_mut(full_name, number)?;
    let is_own = pull.author.eq_ignore_ascii_case(user);
    match kind {
        "APPROVED" if is_own => bail!("approve your own pull is not allowed"),
        "REQUEST_CHANGES" if is_own => bail!("reject your own pull is not allowed"),
        "APPROVED" => {}
        "COMMENT" if body.trim().is_empty() => bail!("review event COMMENT requires a body or a comment"),
        _ if body.trim().is_empty() => bail!("review event {kind} requires a body"),
        _ => {}
    }
    if !pull.open {
        bail!("can't submit review for a closed or merged PR");
    }
    let (word, vote) = match kind {
        "APPROVED" => ("APPROVED", 10),
        "REQUEST_CHANGES" => ("CHANGES_REQUESTED", -10),
        _ => ("COMMENTED", 0),
    };
    let at = timestamp();
    let is_verdict = vote != 0;
    let earlier: Vec<u64> = pull
        .reviews
        .iter()
        .filter(|review| is_verdict && review.user.eq_ignore_ascii_case(user))
        .map(|review| review.id)
        .collect();
    pull.reviews.push(ReviewState {
        id,
        user: user.to_owned(),
        state: word,
        vote,
        body: body.to_owned(),
        commit: pull.head_sha.clone(),
        submitted_at: at.clone(),
    });
    pull.updated_at.clone_from(&at);
    for id in earlier {
        dismiss(state, full_name, number, id);
        if let Some(marks) = state.gitea.reviews.get_mut(&id) {
            marks.official = false;
        }
    }
    let official = is_verdict && can_write;
    state.gitea.reviews.insert(id, ReviewMarks { kind, official, stale: false, dismissed: false, updated_at: at });
    hooks::emit_review(state, url, full_name, number)?;
    Ok(id)
}

/// Dismisses a review. Its state stays what it was in the API.
fn dismiss(state: &mut State, full_name: &str, number: u64, id: u64) {
    let Some(marks) = state.gitea.reviews.get_mut(&id).filter(|marks| marks.kind != "COMMENT") else { return };
    (marks.dismissed, marks.updated_at) = (true, timestamp());
    let Ok(pull) = state.pull_mut(full_name, number) else { return };
    if let Some(review) = pull.reviews.iter_mut().find(|review| review.id == id) {
        (review.state, review.vote) = ("DISMISSED", 0);
    }
}

/// Follows a push to the head: reviews of another diff are stale, those of this very commit are not, and a rule of the base branch may
/// dismiss approvals (services/pull/pull.go, `AddTestPullRequestTask`).
pub(super) fn follow_push(state: &mut State, full_name: &str, number: u64, has_changed: bool) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let rule = super::protection::rule_of(state, repo, &pull.base_ref);
    let head = pull.head_sha.clone();
    let reviews: Vec<(u64, bool)> = pull.reviews.iter().map(|review| (review.id, review.commit == head)).collect();
    let dismisses = has_changed && rule.is_some_and(|rule| rule.dismiss_stale_approvals);
    for (id, is_of_head) in reviews {
        let Some(marks) = state.gitea.reviews.get_mut(&id) else { continue };
        marks.stale = (marks.stale || has_changed) && !is_of_head;
        if dismisses && marks.kind == "APPROVED" {
            dismiss(state, full_name, number, id);
        }
    }
    Ok(())
}

impl RepoCall<'_> {
    pub(super) fn of_reviews(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => {
                let rows = self.of_pull(number, |state, repo, pull| {
                    let shape = |review| shaped(self.url(), state, (repo, pull), review, &self.call.login);
                    pull.reviews.iter().filter_map(shape).collect()
                })?;
                self.call.page_without_links(rows)
            }
            ("POST", []) => self.review(number),
            ("GET", [id]) => self.shaped_review(number, self.review_id(number, id)?),
            ("POST", [id, "dismissals"]) => self.dismiss_review(number, id),
            _ => Err(no_route()),
        }
    }

    /// Finds a review: `prepareSingleReview`.
    fn review_id(&self, number: u64, id: &str) -> Result<u64> {
        let found = self.of_pull(number, |_, _, pull| {
            pull.reviews.iter().find(|review| review.id.to_string() == id).map(|review| review.id)
        })?;
        found.ok_or_else(|| Refusal::named("GetReviewByID", &[format!("review does not exist [id: {id}]")]))
    }

    fn shaped_review(&self, number: u64, id: u64) -> Result {
        let found = self.of_pull(number, |state, repo, pull| {
            let review = pull.reviews.iter().find(|review| review.id == id)?;
            shaped(self.url(), state, (repo, pull), review, &self.call.login)
        })?;
        ok(found.ok_or_else(Refusal::not_found)?)
    }

    fn review(&self, number: u64) -> Result {
        let kind = match self.call.text("event").as_deref() {
            Some("APPROVED") => "APPROVED",
            Some("REQUEST_CHANGES") => "REQUEST_CHANGES",
            _ => "COMMENT",
        };
        self.of_pull(number, |_, _, _| ())?;
        let body = self.call.text("body").unwrap_or_default();
        let how = (self.call.login.as_str(), kind, body.as_str());
        let id = self.call.shared.change(|state| submit(state, self.url(), &self.full_name, number, how));
        self.shaped_review(number, id.map_err(|error| Refusal::invalid(error.to_string()))?)
    }

    /// Only administrators of the repository dismiss reviews, and only verdicts (`dismissReview`).
    fn dismiss_review(&self, number: u64, id: &str) -> Result {
        if !access::is_admin(&self.level()) {
            return Err(Refusal::forbidden("Must be repo admin"));
        }
        let id = self.review_id(number, id)?;
        let priors = self.call.flag("priors");
        self.call.shared.change(|state| {
            if state.gitea.reviews.get(&id).is_none_or(|marks| marks.kind == "COMMENT") {
                let text = "not need to dismiss this review because it's type is not Approve or change request";
                return Err(Refusal::forbidden(text));
            }
            let pull = state.pull(&self.full_name, number).map_err(|_| Refusal::not_found())?;
            if !pull.open {
                return Err(Refusal::forbidden("can't dismiss a review associated to a closed or merged PR"));
            }
            let user = pull.reviews.iter().find(|review| review.id == id).map(|review| review.user.clone());
            let all = pull.reviews.iter().filter(|review| Some(&review.user) == user.as_ref()).map(|review| review.id);
            let all: Vec<u64> = all.filter(|other| priors || *other == id).collect();
            all.into_iter().for_each(|id| dismiss(state, &self.full_name, number, id));
            Ok(())
        })?;
        self.shaped_review(number, id)
    }
}

/// A review: `ToPullReview` of services/convert/pull_review.go.
fn shaped(
    url: &str,
    state: &State,
    (repo, pull): (&RepoState, &PullState),
    review: &ReviewState,
    viewer: &str,
) -> Option<Value> {
    let marks = marks(state, review)?;
    let page = shapes::page(url, repo, pull);
    Some(json!({
        "id": review.id, "user": shapes::viewed(url, state, &review.user, viewer), "team": null, "state": marks.kind, "body": review.body,
        "commit_id": review.commit, "stale": marks.stale, "official": marks.official, "dismissed": marks.dismissed, "comments_count": 0,
        "submitted_at": shapes::time(state, &review.submitted_at), "updated_at": shapes::time(state, &marks.updated_at),
        "html_url": format!("{page}#issuecomment-{}", review.id), "pull_request_url": page,
    }))
}

/// The latest review of a pull request, and its kind.
pub(super) fn latest<'a>(state: &'a State, pull: &'a PullState) -> anyhow::Result<(&'a ReviewState, &'static str)> {
    let review = pull.reviews.last().with_context(|| format!("#{} has no review", pull.number))?;
    Ok((review, marks(state, review).map_or("COMMENT", |marks| marks.kind)))
}
