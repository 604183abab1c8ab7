//! Posts that a host refuses until the token or its rights are fixed. Posts of the same kind wait together, and one of
//! them is tried from time to time.

use super::pace::Rank;
use super::{Pace, lock};
use crate::domain::RepoId;
use crate::domain::state::{Effect, PendingEffect};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use tokio::time::Instant;

/// Kind of posts that are refused together: rights belong to repositories and to kinds of posts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PostKind {
    repo: RepoId,
    kind: &'static str,
}

impl PostKind {
    fn of(effect: &PendingEffect) -> PostKind {
        PostKind { repo: effect.pull.repo.clone(), kind: kind(&effect.effect) }
    }
}

/// Returns the kind of an effect in words.
pub(super) fn kind(effect: &Effect) -> &'static str {
    match effect {
        Effect::Comment { .. } => "comment",
        Effect::Status { .. } => "status",
        Effect::React { .. } => "reaction",
        Effect::Hide { .. } => "fold",
        Effect::Issue { .. } => "drift issue",
        Effect::Merge { .. } => "merge",
    }
}

struct Suspension {
    since: Timestamp,
    tries: u32,
    until: Instant,
    waiting: HashSet<i64>,
}

/// Refused posts, for `/status` and the heartbeat. No repository is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedPosts {
    /// Time of the first refusal, by our clock.
    pub since: Timestamp,
    /// Number of waiting comments, changes of issues, statuses and reactions.
    pub waiting: usize,
}

/// All refused kinds of posts.
#[derive(Default)]
pub(super) struct Refusals {
    suspended: Mutex<HashMap<PostKind, Suspension>>,
}

impl Refusals {
    /// Returns the time until which an effect waits because similar ones were refused.
    pub(super) fn suspended_until(&self, effect: &PendingEffect, now: Instant) -> Option<Instant> {
        let mut suspended = lock(&self.suspended);
        let suspension = suspended.get_mut(&PostKind::of(effect))?;
        suspension.waiting.insert(effect.id);
        Some(suspension.until).filter(|until| *until > now)
    }

    /// Records a refused effect. Returns true if it is the first refusal of its kind, and the time until which the kind waits.
    pub(super) fn record(&self, effect: &PendingEffect, pace: Pace, now: Instant) -> (bool, Instant) {
        let mut suspended = lock(&self.suspended);
        let suspension = suspended.entry(PostKind::of(effect)).or_insert_with(|| Suspension {
            since: Timestamp::now(),
            tries: 0,
            until: now,
            waiting: HashSet::new(),
        });
        suspension.waiting.insert(effect.id);
        // Refusals of posts that were already under way do not extend the pause.
        if suspension.until <= now {
            suspension.tries = suspension.tries.saturating_add(1);
            suspension.until = now + pace.after(suspension.tries);
        }
        (suspension.tries == 1, suspension.until)
    }

    /// Records a successful effect; returns true if its kind was refused until now.
    pub(super) fn passed(&self, effect: &PendingEffect) -> bool {
        lock(&self.suspended).remove(&PostKind::of(effect)).is_some()
    }

    /// Drops an effect that was given up or replaced.
    pub(super) fn remove(&self, effect: i64) {
        lock(&self.suspended).retain(|_, suspension| {
            suspension.waiting.remove(&effect);
            !suspension.waiting.is_empty()
        });
    }

    /// Returns all refused posts; `None` if there are none.
    pub(super) fn all(&self) -> Option<RefusedPosts> {
        let suspended = lock(&self.suspended);
        let since = suspended.values().map(|suspension| suspension.since).min()?;
        Some(RefusedPosts { since, waiting: suspended.values().map(|suspension| suspension.waiting.len()).sum() })
    }
}

/// Returns true if an effect may be given up after many attempts: it carries no result.
pub(super) fn is_passing(effect: &Effect) -> bool {
    Rank::of(effect) == Rank::Passing
}
