//! Approvals and requested changes, which the host keeps with the reviewers and participants of a pull request.

use super::{BitbucketDataCenter, answers, people};
use crate::vcs::http::odd;
use crate::vcs::{HostError, Review, ReviewVerdict};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tidelock_core::domain::{Login, PullRequest};

/// Most people whose verdicts are read, with one request each for what they may do.
const MOST_PEOPLE: usize = 200;
/// Most concurrent requests for permissions.
const MAX_CONCURRENT: usize = 4;
/// Activities on one page.
const PER_PAGE: u32 = 100;
/// Most pages of activities of one pull request.
const MAX_PAGES: u32 = 100;

/// Returns the verdict of each person but the author.
pub(super) async fn latest(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let told = host.pull(&pull.id).await?;
    let mut verdicts = verdicts(&told, &pull.author)?;
    if verdicts.len() > MOST_PEOPLE {
        let message = format!("it has more than {MOST_PEOPLE} reviews");
        return Err(HostError::Rejected { what: format!("reviews of {}", pull.id), status: 200, message });
    }
    add_times(host, pull, &mut verdicts).await?;
    let repo = &pull.id.repo;
    let asked = futures::stream::iter(verdicts).map(|review| async move {
        let can_write = people::has(host, repo, review.user.as_str(), "REPO_WRITE").await?;
        Ok::<_, HostError>(Review { can_write, ..review })
    });
    asked.buffered(MAX_CONCURRENT).try_collect().await
}

/// Adds the time of each approval: that of the person's latest activity of this kind, as the approval itself has none. One that is not found
/// stays without.
async fn add_times(host: &BitbucketDataCenter, pull: &PullRequest, verdicts: &mut [Review]) -> Result<(), HostError> {
    let mut untimed: Vec<&mut Review> =
        verdicts.iter_mut().filter(|review| review.verdict == ReviewVerdict::Approved).collect();
    if untimed.is_empty() {
        return Ok(());
    }
    let path = format!("{}/activities", host.pull_path(&pull.id)?);
    let note = |row: &Value| {
        if row["action"] == "APPROVED" {
            let user = answers::login(&row["user"]);
            if let Some(found) = untimed.iter().position(|review| review.user.is(&user)) {
                untimed.swap_remove(found).at = answers::moment(&row["createdDate"]);
            }
        }
        untimed.is_empty()
    };
    host.http.start_pages_until(&path, PER_PAGE, MAX_PAGES, note).await.map(drop)
}

/// Returns the people of a pull request, each once.
fn people(told: &Value) -> Result<Vec<&Value>, HostError> {
    let list = |key: &str| told[key].as_array().ok_or_else(|| odd("GET pull-requests", &format!("no {key}")));
    let mut once: Vec<&Value> = Vec::new();
    for row in list("reviewers")?.iter().chain(list("participants")?) {
        let login = answers::login(&row["user"]);
        if !once.iter().any(|known| answers::login(&known["user"]).is(&login)) {
            once.push(row);
        }
    }
    Ok(once)
}

/// Reads the verdicts, before it is known who may write. The last reviewed commit is the head at the time of the verdict
/// (`PUT .../participants/{userSlug}`).
fn verdicts(told: &Value, author: &Login) -> Result<Vec<Review>, HostError> {
    let read = |row: &Value| {
        let user = answers::login(&row["user"]);
        let verdict = match row["status"].as_str() {
            Some("NEEDS_WORK") => ReviewVerdict::ChangesRequested,
            Some("APPROVED") if answers::is_active(&row["user"]) => ReviewVerdict::Approved,
            _ => return None,
        };
        let is_author = user.is(author) || user.is(&answers::login(&told["author"]["user"])) || row["role"] == "AUTHOR";
        let commit = answers::sha(&row["lastReviewedCommit"]);
        (!user.is_unknown() && !is_author).then_some(Review { user, can_write: false, verdict, commit, at: None })
    };
    Ok(people(told)?.into_iter().filter_map(read).collect())
}

/// Fails if there is an approval: everybody can change only their own status (`PUT .../participants/{userSlug}`).
pub(super) async fn dismiss_approvals(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<(), HostError> {
    let told = host.pull(&pull.id).await?;
    if !people(&told)?.iter().any(|row| row["status"] == "APPROVED" || row["approved"] == true) {
        return Ok(());
    }
    let message = "Bitbucket Data Center lets nobody take back another person's approval: switch `--discard-approval-on-plan` off \
                   there, and have approvals reset on changes by the settings of the repository"
        .to_owned();
    Err(HostError::Rejected { what: format!("approvals of {}", pull.id), status: 405, message })
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reviewers_and_participants_have_one_verdict_each() {
        let row = |name: &str, status: &str, commit: char| {
            json!({"user": {"name": name}, "role": "REVIEWER", "status": status, "approved": status == "APPROVED",
                "lastReviewedCommit": commit.to_string().repeat(40)})
        };
        let told = json!({"author": {"user": {"name": "author"}},
            "reviewers": [row("ann", "APPROVED", 'a'), row("bob", "NEEDS_WORK", 'b'), row("cid", "UNAPPROVED", 'a')],
            "participants": [row("dan", "APPROVED", 'x'), row("Ann", "NEEDS_WORK", 'a'), row("Author", "APPROVED", 'a'),
                json!({"user": {"name": "gone", "active": false}, "status": "APPROVED"}),
                json!({"user": {"name": "left", "active": false}, "status": "NEEDS_WORK"}),
                json!({"user": null, "status": "APPROVED"})]});
        let found = verdicts(&told, &Login::new("author")).unwrap();
        let facts: Vec<_> = found.iter().map(|one| (one.user.as_str(), one.verdict, one.commit.is_some())).collect();
        let want = [
            ("ann", ReviewVerdict::Approved, true),
            ("bob", ReviewVerdict::ChangesRequested, true),
            ("dan", ReviewVerdict::Approved, false),
            ("left", ReviewVerdict::ChangesRequested, false),
        ];
        assert_eq!(facts, want);
        assert!(verdicts(&json!({"reviewers": []}), &Login::unknown()).unwrap_err().is_transient());
    }
}
