//! Log of a pull request (`GET /repositories/{workspace}/{repo_slug}/pullrequests/{pull_request_id}/activity`): comments, approvals, and
//! updates, each with the pull request as it was from then on.

use super::{BitbucketCloud, answers};
use crate::vcs::HostError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use tidelock_core::domain::PullRequest;

/// Most pages of the log that are read, of fifty entries each.
const MAX_PAGES: u32 = 10;

/// What the log tells of a pull request.
#[derive(Default)]
pub(super) struct CloudLog {
    /// Time since which it has its head; absent if the log does not tell it. Approvals from then on are of the head.
    pub(super) head_since: Option<Timestamp>,
    /// Time of the last approval of each person, by UUID.
    pub(super) approvals: HashMap<String, Timestamp>,
}

/// Reads the log of a pull request.
pub(super) async fn log(host: &BitbucketCloud, pull: &PullRequest) -> Result<CloudLog, HostError> {
    let path = format!("{}/activity?pagelen=50", host.pull_path(&pull.id)?);
    let rows = match host.http.value_pages(&path, MAX_PAGES).await {
        Ok(found) => found.rows,
        // The log is longer: a part of it does not tell whether the head changed.
        Err(HostError::Rejected { status: 200, .. } | HostError::NotFound { .. }) => return Ok(CloudLog::default()),
        Err(error) => return Err(error),
    };
    let mut log = CloudLog::default();
    for approval in rows.iter().map(|row| &row["approval"]) {
        if let (Some(uuid), Some(at)) = (approval["user"]["uuid"].as_str(), answers::moment(&approval["date"])) {
            let last = log.approvals.entry(uuid.to_owned()).or_insert(at);
            *last = at.max(*last);
        }
    }
    let mut updates: Vec<(Timestamp, &Value)> = Vec::new();
    for update in rows.iter().map(|row| &row["update"]).filter(|update| update.is_object()) {
        let Some(at) = answers::moment(&update["date"]) else { return Ok(log) };
        updates.push((at, update));
    }
    updates.sort_by_key(|(at, _)| *at);
    log.head_since = since(&updates, pull);
    Ok(log)
}

/// Returns the time of the last update that may have been a push. One that changes nothing that is told counts as one: the first digits of
/// two heads may be the same.
fn since(updates: &[(Timestamp, &Value)], pull: &PullRequest) -> Option<Timestamp> {
    let start = |update: &Value| answers::start(&update["source"]["commit"]).map(str::to_owned);
    let (_, last) = updates.last()?;
    if !pull.head.commit.as_str().starts_with(&start(last)?) {
        return None;
    }
    let may_be_push = |pair: &[(Timestamp, &Value)]| {
        let (before, after) = (pair[0].1, pair[1].1);
        start(before) != start(after) || facts(before) == facts(after)
    };
    let pushed = updates.windows(2).rev().find(|pair| may_be_push(pair)).map(|pair| pair[1].0);
    pushed.or(updates.first().map(|(at, _)| *at))
}

/// Returns what people can change in a pull request without a push.
fn facts(update: &Value) -> [&Value; 6] {
    ["title", "description", "state", "draft", "reviewers", "reason"].map(|key| &update[key])
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_head_is_as_old_as_the_last_update_that_may_be_a_push() {
        let head = "8e0b45049b6253b8984cde9241830d2851168142";
        let pull = |head: &str| {
            serde_json::from_value::<PullRequest>(json!({"id": {"repo": {"host": "h", "owner": "a", "name": "b"}, "number": 7},
                "title": "t", "url": "u", "author": "x", "draft": false, "open": true, "labels": [], "repo_size_kib": null,
                "head": {"branch": "b", "commit": head, "repo_owner": "a", "repo_name": "b"},
                "base": {"branch": "main", "commit": head}, "clone_url": "x"}))
            .unwrap()
        };
        let update = |hash: &str, title: &str| json!({"source": {"commit": {"hash": hash}}, "title": title});
        let judged = |list: &[(&str, &str)], head: &str| {
            let updates: Vec<Value> = list.iter().map(|(hash, title)| update(hash, title)).collect();
            let at = |number: usize| Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
            let updates: Vec<_> = updates.iter().enumerate().map(|(number, update)| (at(number), update)).collect();
            since(&updates, &pull(head)).map(|at| at.as_second())
        };
        let (now, old) = (&head[..12], "1111eeee455f");
        assert_eq!(judged(&[], head), None);
        assert_eq!(judged(&[(now, "a")], head), Some(0));
        assert_eq!(judged(&[(old, "a"), (now, "a")], head), Some(1));
        assert_eq!(judged(&[(old, "a"), (now, "a"), (now, "b")], head), Some(1), "another title is no push");
        assert_eq!(judged(&[(now, "a"), (now, "a")], head), Some(1), "a head with the same first digits");
        assert_eq!(judged(&[(now, "a"), (old, "a"), (now, "a"), (now, "b")], head), Some(2));
        assert_eq!(judged(&[(now, "a"), (old, "a")], head), None, "the log lags behind");
        assert_eq!(judged(&[("odd", "a")], head), None);
    }
}
