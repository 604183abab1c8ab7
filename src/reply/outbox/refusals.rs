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

/// Posts that are refused together: rights belong to repositories and to kinds of posts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedKind {
    repo: RepoId,
    kind: &'static str,
}

impl RefusedKind {
    fn of(effect: &PendingEffect) -> RefusedKind {
        RefusedKind { repo: effect.pull.repo.clone(), kind: kind(&effect.effect) }
    }
}

/// The kind of an effect, in words.
pub(super) fn kind(effect: &Effect) -> &'static str {
    match effect {
        Effect::Comment { .. } => "comment",
        Effect::Status { .. } => "status",
        Effect::React { .. } => "reaction",
    }
}

struct Closed {
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
    /// Number of waiting comments, statuses and reactions.
    pub waiting: usize,
}

/// All refused kinds of posts.
#[derive(Default)]
pub(super) struct Refusals {
    doors: Mutex<HashMap<RefusedKind, Closed>>,
}

impl Refusals {
    /// Until when an effect waits because similar ones were refused.
    pub(super) fn closed(&self, effect: &PendingEffect, now: Instant) -> Option<Instant> {
        let mut doors = lock(&self.doors);
        let closed = doors.get_mut(&RefusedKind::of(effect))?;
        closed.waiting.insert(effect.id);
        Some(closed.until).filter(|until| *until > now)
    }

    /// Records a refused effect; returns whether it is the first of its kind, and until when the kind waits.
    pub(super) fn refused(&self, effect: &PendingEffect, pace: Pace, now: Instant) -> (bool, Instant) {
        let mut doors = lock(&self.doors);
        let closed = doors.entry(RefusedKind::of(effect)).or_insert_with(|| Closed {
            since: Timestamp::now(),
            tries: 0,
            until: now,
            waiting: HashSet::new(),
        });
        closed.waiting.insert(effect.id);
        // Refusals of posts that were already under way do not lengthen the pause.
        if closed.until <= now {
            closed.tries = closed.tries.saturating_add(1);
            closed.until = now + pace.after(closed.tries);
        }
        (closed.tries == 1, closed.until)
    }

    /// Records a successful effect; returns whether its kind was refused until now.
    pub(super) fn passed(&self, effect: &PendingEffect) -> bool {
        lock(&self.doors).remove(&RefusedKind::of(effect)).is_some()
    }

    /// Drops an effect that was given up or replaced.
    pub(super) fn forget(&self, effect: i64) {
        lock(&self.doors).retain(|_, closed| {
            closed.waiting.remove(&effect);
            !closed.waiting.is_empty()
        });
    }

    /// All refused posts; `None` if there are none.
    pub(super) fn all(&self) -> Option<RefusedPosts> {
        let doors = lock(&self.doors);
        let since = doors.values().map(|closed| closed.since).min()?;
        Some(RefusedPosts { since, waiting: doors.values().map(|closed| closed.waiting.len()).sum() })
    }
}

/// Whether an effect may be given up after many attempts: nobody learns a result from it.
pub(super) fn is_passing(effect: &Effect) -> bool {
    Rank::of(effect) == Rank::Passing
}
