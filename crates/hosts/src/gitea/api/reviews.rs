//! Reviews. The host itself says whether one counts: it is `official` if its author may write to the repository, or is on the list of the
//! branch's rule (models/issues/review.go, `IsOfficialReviewer`), `stale` if the head has changed since, and `dismissed` also if its author
//! has given another verdict.

use super::{Gitea, answers};
use crate::vcs::{HostError, Review, ReviewVerdict};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{Login, PullId, PullRequest};

/// Most pages of reviews. A pull request with more is refused: a part of its reviews is no basis for a decision.
const MAX_PAGES: u32 = 60;
/// Most approvals that are dismissed, with one request each.
const MOST_DISMISSALS: usize = 100;

/// Returns all reviews of a pull request, oldest first.
pub(super) async fn all(host: &Gitea, pull: &PullId) -> Result<Vec<Value>, HostError> {
    let path = format!("{}/reviews", host.pull_path(pull)?);
    let rows = host.rows(&path, MAX_PAGES).await?;
    let page = format!("/{}/pulls/{}", pull.repo.full_name(), pull.number).to_ascii_lowercase();
    let leads_here = |row: &Value| {
        let address = row["pull_request_url"].as_str().unwrap_or_default();
        address.to_ascii_lowercase().ends_with(&page)
    };
    if !rows.iter().all(leads_here) {
        return Err(HostError::Moved { what: format!("GET {path}"), to: "which its reviews are of".to_owned() });
    }
    Ok(rows)
}

/// Returns the latest verdict of each person but the author, if it still counts.
pub(super) async fn latest(host: &Gitea, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    Ok(verdicts(&all(host, &pull.id).await?, &pull.author))
}

/// Latest verdicts, in the order in which people first gave one. A comment does not change a verdict. A rejection outlives a push, as it
/// does on the host (models/issues/pull.go, `MergeBlockedByRejectedReview`).
fn verdicts(rows: &[Value], author: &Login) -> Vec<Review> {
    let mut latest: Vec<(Login, Option<Review>)> = Vec::new();
    for row in rows {
        let user = answers::login(&row["user"]);
        let verdict = match row["state"].as_str() {
            Some("APPROVED") => ReviewVerdict::Approved,
            Some("REQUEST_CHANGES") => ReviewVerdict::ChangesRequested,
            _ => continue,
        };
        if user.is_unknown() || user.is(author) {
            continue;
        }
        let counts = row["dismissed"] != true && (verdict != ReviewVerdict::Approved || row["stale"] != true);
        let review = counts.then(|| Review {
            user: user.clone(),
            can_write: row["official"] == true,
            verdict,
            commit: answers::sha(&row["commit_id"]),
            at: answers::moment(&row["submitted_at"]),
        });
        match latest.iter_mut().find(|(name, _)| name.is(&user)) {
            Some((_, slot)) => *slot = review,
            None => latest.push((user, review)),
        }
    }
    latest.into_iter().filter_map(|(_, review)| review).collect()
}

/// Dismisses every approval, also stale ones and those that are not official: the host may count them later.
pub(super) async fn dismiss_approvals(host: &Gitea, pull: &PullRequest, because: &str) -> Result<(), HostError> {
    let path = format!("{}/reviews", host.pull_path(&pull.id)?);
    let approvals = approvals(&all(host, &pull.id).await?);
    if approvals.is_empty() {
        return Ok(());
    }
    if approvals.len() > MOST_DISMISSALS {
        let message = format!("it has {} approvals, and no more than {MOST_DISMISSALS} are dismissed", approvals.len());
        return Err(HostError::Rejected { what: format!("POST {path}"), status: 422, message });
    }
    for id in approvals {
        let body = json!({ "message": because, "priors": false });
        match host.http.send(Method::POST, &format!("{path}/{id}/dismissals"), Some(body)).await {
            // routers/api/v1/repo/pull_review.go, `dismissReview`.
            Err(HostError::Denied { what, message }) if message.contains("repo admin") => {
                let message = format!(
                    "{message}: only an administrator of the repository may dismiss approvals, so the account of `--gitea-token` has to be one"
                );
                return Err(HostError::Denied { what, message });
            }
            answered => answered?,
        };
    }
    if approvals_left(host, &pull.id).await? {
        let message = "an approval is left, or was given meanwhile".to_owned();
        return Err(HostError::Rejected { what: format!("POST {path}"), status: 200, message });
    }
    Ok(())
}

async fn approvals_left(host: &Gitea, pull: &PullId) -> Result<bool, HostError> {
    Ok(!approvals(&all(host, pull).await?).is_empty())
}

/// Returns the numbers of the approvals that are not dismissed.
fn approvals(rows: &[Value]) -> Vec<u64> {
    let standing = |row: &&Value| row["state"] == "APPROVED" && row["dismissed"] != true;
    rows.iter().filter(standing).filter_map(|row| row["id"].as_u64()).collect()
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn review(user: &str, state: &str, mark: &str) -> Value {
        let mut row = json!({"id": 1, "user": {"id": 5, "login": user}, "state": state, "commit_id": "1".repeat(40),
            "official": true, "stale": false, "dismissed": false, "submitted_at": "2026-01-01T00:00:00+01:00"});
        if !mark.is_empty() {
            row[mark] = json!(mark != "official");
        }
        row
    }

    #[test]
    fn the_latest_verdict_of_each_person_counts_if_the_host_counts_it() {
        let rows = [
            review("ann", "REQUEST_CHANGES", ""),
            review("bob", "APPROVED", ""),
            review("Ann", "APPROVED", ""),
            review("bob", "COMMENT", ""),
            review("cid", "APPROVED", "stale"),
            review("dan", "APPROVED", ""),
            review("dan", "REQUEST_CHANGES", "dismissed"),
            review("eve", "APPROVED", "official"),
            review("fay", "REQUEST_CHANGES", "stale"),
            review("author", "APPROVED", ""),
            json!({"user": {"id": -1, "login": "Ghost"}, "state": "APPROVED", "official": true}),
            json!({"user": null, "state": "REQUEST_REVIEW", "official": true}),
            json!("odd"),
        ];
        let got: Vec<_> = verdicts(&rows, &"Author".into())
            .into_iter()
            .map(|review| (review.user.to_string(), review.verdict, review.can_write))
            .collect();
        let want = [
            ("Ann", ReviewVerdict::Approved, true),
            ("bob", ReviewVerdict::Approved, true),
            ("eve", ReviewVerdict::Approved, false),
            ("fay", ReviewVerdict::ChangesRequested, true),
        ];
        assert_eq!(got, want.map(|(user, verdict, can_write)| (user.to_owned(), verdict, can_write)));
        let one = &verdicts(&rows, &"author".into())[0];
        assert_eq!(one.at, "2025-12-31T23:00:00Z".parse().ok());
        assert_eq!(one.commit, Some("1".repeat(40).as_str().into()));
    }
}
