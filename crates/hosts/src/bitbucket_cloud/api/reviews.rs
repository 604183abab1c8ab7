//! Approvals and requested changes, which the host keeps with the people who take part in a pull request. It does not say which commit they
//! are of: that is told by the times in the log of the pull request.

use super::activity::CloudLog;
use super::people::{self, CloudPermission};
use super::{BitbucketCloud, activity, answers};
use crate::bitbucket_cloud::person::is_uuid;
use crate::vcs::http::odd;
use crate::vcs::{HostError, Review, ReviewVerdict};
use serde_json::Value;
use tidelock_core::domain::{Login, PullRequest};

/// Verdict of a participant.
struct CloudVerdict {
    review: Review,
    uuid: Option<String>,
}

/// Returns the verdict of each person but the author.
pub(super) async fn latest(host: &BitbucketCloud, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let told = host.recent_pull(&pull.id).await?;
    let mut verdicts = verdicts(&told, &pull.author)?;
    let uuids: Vec<String> = verdicts.iter().filter_map(|one| one.uuid.clone()).collect();
    if verdicts.is_empty() {
        return Ok(Vec::new());
    }
    let permissions = people::permissions(host, &pull.id.repo, &uuids).await?;
    let has_approvals = verdicts.iter().any(|one| one.review.verdict == ReviewVerdict::Approved);
    let log = if has_approvals { activity::log(host, pull).await? } else { CloudLog::default() };
    for one in &mut verdicts {
        let permission = one.uuid.as_ref().and_then(|uuid| permissions.get(uuid)).copied();
        one.review.can_write = permission.is_some_and(CloudPermission::can_write);
        // A later act of the same person may have moved the time that the pull request tells.
        let logged = one.uuid.as_ref().and_then(|uuid| log.approvals.get(uuid)).copied();
        one.review.at = one.review.at.map(|at| logged.map_or(at, |logged| logged.min(at)));
        let is_of_head = log.head_since.zip(one.review.at).is_some_and(|(since, at)| at >= since);
        one.review.commit = is_of_head.then(|| pull.head.commit.clone());
    }
    Ok(verdicts.into_iter().map(|one| one.review).collect())
}

/// Reads the verdicts, before it is known who may write.
fn verdicts(told: &Value, author: &Login) -> Result<Vec<CloudVerdict>, HostError> {
    let participants = told["participants"].as_array();
    let participants = participants.ok_or_else(|| odd("GET pullrequests", "no participants"))?;
    let read = |row: &Value| {
        let user = answers::login(&row["user"]);
        let verdict = match row["state"].as_str() {
            Some("changes_requested") => ReviewVerdict::ChangesRequested,
            _ if row["approved"] == true => ReviewVerdict::Approved,
            _ => return None,
        };
        let counts = !user.is_unknown() && !user.is(author) && !answers::is_same(&row["user"], &told["author"]);
        // Of requested changes it may be the time of a later comment.
        let at = answers::moment(&row["participated_on"]).filter(|_| verdict == ReviewVerdict::Approved);
        let review = Review { user, can_write: false, verdict, commit: None, at };
        let uuid = row["user"]["uuid"].as_str().filter(|uuid| is_uuid(uuid)).map(str::to_owned);
        counts.then_some(CloudVerdict { review, uuid })
    };
    Ok(participants.iter().filter_map(read).collect())
}

/// Fails if there is an approval: everybody can take back only their own
/// (`DELETE /repositories/{workspace}/{repo_slug}/pullrequests/{pull_request_id}/approve`).
pub(super) async fn dismiss_approvals(host: &BitbucketCloud, pull: &PullRequest) -> Result<(), HostError> {
    let told = host.pull(&pull.id).await?;
    let is_approved = |row: &Value| row["approved"] == true;
    if !told["participants"].as_array().is_some_and(|rows| rows.iter().any(is_approved)) {
        return Ok(());
    }
    let message = "Bitbucket Cloud lets nobody take back another person's approval: switch `--discard-approval-on-plan` off there, and \
                   have approvals reset on changes by the branch restrictions of the repository"
        .to_owned();
    Err(HostError::Rejected { what: format!("approvals of {}", pull.id), status: 405, message })
}
