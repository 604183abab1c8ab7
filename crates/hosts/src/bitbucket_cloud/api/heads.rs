//! Heads of pull requests in the last answers. An answer counts as long as the version of the pull request is the same: a push changes it,
//! also one of a commit with the same first digits.

use crate::vcs::HostError;
use crate::vcs::http::odd;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidelock_core::domain::{CommitSha, PullId};

/// Most pull requests that are remembered. At this number all are removed.
const MOST: usize = 20_000;
/// Time after which a head that was not found is asked for again.
const MISS: Duration = Duration::from_secs(3600);
/// Stands for a head that nobody knows: what git calls the null id.
const NONE: &str = "0000000000000000000000000000000000000000";

/// Head of a pull request.
struct PullHead {
    version: Option<String>,
    /// The head at this version; absent if the host has not found it.
    found: Option<CommitSha>,
    /// The last head that was found.
    last: Option<CommitSha>,
    at: Instant,
}

/// Heads by pull request.
#[derive(Default)]
pub(super) struct PullHeads(Mutex<HashMap<PullId, PullHead>>);

impl PullHeads {
    fn lock(&self) -> MutexGuard<'_, HashMap<PullId, PullHead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the head of a version, or that the host has not found it.
    pub(super) fn record(&self, pull: &PullId, version: Option<String>, found: Option<CommitSha>) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        let before = known.remove(pull).and_then(|before| before.last);
        let last = found.clone().or(before);
        known.insert(pull.clone(), PullHead { version, found, last, at: Instant::now() });
    }

    /// Returns the head of a version, absent inside if the host had none a short time ago; absent if it has to be asked for.
    pub(super) fn get(&self, pull: &PullId, version: &str) -> Option<Option<CommitSha>> {
        let known = self.lock();
        let head = known.get(pull).filter(|head| head.version.as_deref() == Some(version))?;
        (head.found.is_some() || head.at.elapsed() < MISS).then(|| head.found.clone())
    }

    /// Returns the last head that was found, or the null id.
    pub(super) fn last(&self, pull: &PullId) -> Result<CommitSha, HostError> {
        let known = self.lock().get(pull).and_then(|head| head.last.clone());
        known.map_or_else(|| CommitSha::parse(NONE).map_err(|error| odd("null id", &error.to_string())), Ok)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use tidelock_core::domain::RepoId;

    #[test]
    fn a_head_counts_for_its_version() {
        let repo = RepoId { host: "h".into(), owner: "a".into(), name: "b".into() };
        let pull = PullId { repo, number: 7 };
        let heads = PullHeads::default();
        assert_eq!(heads.last(&pull).unwrap().as_str(), NONE);
        let head = CommitSha::parse(&"a".repeat(40)).unwrap();
        heads.record(&pull, Some("1".into()), Some(head.clone()));
        assert_eq!((heads.get(&pull, "1"), heads.get(&pull, "2")), (Some(Some(head.clone())), None));
        heads.record(&pull, Some("2".into()), None);
        assert_eq!((heads.get(&pull, "2"), heads.last(&pull).unwrap()), (Some(None), head));
    }
}
