//! What a host refuses until somebody mends the token or its rights: those posts wait behind a door, which is tried slowly.

use super::pace::Rank;
use super::{Pace, lock};
use crate::domain::RepoId;
use crate::domain::state::{Effect, PendingEffect};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use tokio::time::Instant;

/// What is refused together: rights are given for repositories, and for kinds of posts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Door {
    repo: RepoId,
    kind: &'static str,
}

impl Door {
    fn of(effect: &PendingEffect) -> Door {
        Door { repo: effect.pull.repo.clone(), kind: kind(&effect.effect) }
    }
}

/// In words.
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

/// Posts that the host refuses, for `/status` and the heartbeat. It names no repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedPosts {
    /// Since when, by our clock.
    pub since: Timestamp,
    /// How many comments, statuses and reactions wait for that.
    pub waiting: usize,
}

/// Doors that are closed.
#[derive(Default)]
pub(super) struct Refusals {
    doors: Mutex<HashMap<Door, Closed>>,
}

impl Refusals {
    /// Until when an effect waits because others like it were refused.
    pub(super) fn closed(&self, effect: &PendingEffect, now: Instant) -> Option<Instant> {
        let mut doors = lock(&self.doors);
        let closed = doors.get_mut(&Door::of(effect))?;
        closed.waiting.insert(effect.id);
        Some(closed.until).filter(|until| *until > now)
    }

    /// An effect was refused; whether that is the first time, and until when its door is closed.
    pub(super) fn refused(&self, effect: &PendingEffect, pace: Pace, now: Instant) -> (bool, Instant) {
        let mut doors = lock(&self.doors);
        let closed = doors.entry(Door::of(effect)).or_insert_with(|| Closed {
            since: Timestamp::now(),
            tries: 0,
            until: now,
            waiting: HashSet::new(),
        });
        closed.waiting.insert(effect.id);
        // Those that were under way with the one that closed it say nothing new.
        if closed.until <= now {
            closed.tries = closed.tries.saturating_add(1);
            closed.until = now + pace.after(closed.tries);
        }
        (closed.tries == 1, closed.until)
    }

    /// An effect was done: whether a door opens by that.
    pub(super) fn passed(&self, effect: &PendingEffect) -> bool {
        lock(&self.doors).remove(&Door::of(effect)).is_some()
    }

    /// An effect was given up, or is needless: nobody waits for it.
    pub(super) fn forget(&self, effect: i64) {
        lock(&self.doors).retain(|_, closed| {
            closed.waiting.remove(&effect);
            !closed.waiting.is_empty()
        });
    }

    /// All of them; absent when nothing is refused.
    pub(super) fn all(&self) -> Option<RefusedPosts> {
        let doors = lock(&self.doors);
        let since = doors.values().map(|closed| closed.since).min()?;
        Some(RefusedPosts { since, waiting: doors.values().map(|closed| closed.waiting.len()).sum() })
    }
}

/// Whether an effect may be given up after many tries: nobody learns a result from it.
pub(super) fn is_passing(effect: &Effect) -> bool {
    Rank::of(effect) == Rank::Passing
}
