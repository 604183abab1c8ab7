//! `merge_group`: an entry of GitHub's merge queue requests its checks.
//!
//! The queue's branch names the one pull request that the entry adds, `gh-readonly-queue/BASE/pr-NUMBER-COMMIT`; only GitHub can push such
//! a branch. The base of an entry determines the other entries that it contains. The identity of a delivery has the pull request and the
//! base.

use super::payload::{Payload, commit, present, text};
use super::{HEADS, KIND};
use crate::webhook::Rejection;
use crate::webhook::merge_queue::entry_identities;
use crate::webhook::short;
use tidelock_core::domain::{DeliveryId, Event, MergeGroupEvent, PullId};

/// Prefix of the names of a queue's branches.
const QUEUE: &str = "gh-readonly-queue/";

pub(super) fn read(json: &[u8], host: &str) -> Result<(Event, Option<DeliveryId>), Rejection> {
    let payload = Payload::parse(json)?;
    let action = text(&payload.action, "action")?;
    if action != "checks_requested" {
        return Ok((Event::Other(format!("merge_group {}", short(action))), None));
    }
    let group = present(&payload.merge_group, "merge_group")?;
    // The address for git is unused: nothing is fetched for an entry.
    let (repo, _) = payload.repository(host)?;
    let number = number(text(&group.head_ref, "merge_group.head_ref")?)
        .ok_or_else(|| Rejection::new(400, "The payload's merge_group.head_ref names no pull request"))?;
    let base_ref = text(&group.base_ref, "merge_group.base_ref")?;
    let event = MergeGroupEvent {
        base_branch: base_ref.strip_prefix(HEADS).unwrap_or(base_ref).to_owned(),
        base: commit(&group.base_sha, "merge_group.base_sha")?,
        commit: commit(&group.head_sha, "merge_group.head_sha")?,
        pull: PullId { repo, number },
    };
    let identity = format!("{}{number}:{}", entry_identities(KIND, &event.pull.repo, &event.commit), event.base);
    Ok((Event::MergeGroup(event), Some(DeliveryId::new(identity))))
}

/// Returns the pull request of a queue's branch.
fn number(reference: &str) -> Option<u64> {
    let branch = reference.strip_prefix(HEADS).unwrap_or(reference).strip_prefix(QUEUE)?;
    let (_, entry) = branch.rsplit_once('/')?;
    entry.strip_prefix("pr-")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_branch_names_its_pull_request() {
        for (reference, wanted) in [
            ("refs/heads/gh-readonly-queue/main/pr-104-abc", Some(104)),
            ("gh-readonly-queue/release/1.x/pr-7-abc", Some(7)),
            ("refs/heads/pr-104-abc", None),
            ("refs/heads/main/pr-104-abc", None),
            ("refs/heads/gh-readonly-queue/main/pr--abc", None),
            ("refs/heads/gh-readonly-queue/main/x-104", None),
        ] {
            assert_eq!(number(reference), wanted, "{reference}");
        }
    }
}
