//! Times from which our own comments are searched before an attempt of one, so that the cost of a search does not grow with their number.
//!
//! The search for a comment of an earlier process begins well before it was recorded, since that clock is unknown. The same holds for
//! comments that were tried before. The first attempt of a comment that this process recorded can find no other one of it. It
//! uses the difference between the two clocks that the host's last response showed.

use super::lock;
use crate::domain::state::PendingEffect;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Largest difference between a process's clock and the host's.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(10);
/// Largest change of the difference between our clock and the host's since its last response; hosts write whole seconds.
const CLOCKS_DRIFT: SignedDuration = SignedDuration::from_secs(5);

/// State for the times from which comments are searched.
pub(super) struct SearchStart {
    /// Last effect that an earlier process recorded.
    inherited: i64,
    /// Comments that were tried and are not done.
    tried: Mutex<HashSet<i64>>,
    /// Lead of each host's clock over ours, by its last response.
    ahead: Mutex<HashMap<String, SignedDuration>>,
}

impl SearchStart {
    pub(super) fn new(inherited: i64) -> SearchStart {
        SearchStart { inherited, tried: Mutex::default(), ahead: Mutex::default() }
    }

    /// Returns the time on the host's clock from which comments are searched before this attempt; `None` for all of them.
    pub(super) fn start_of(&self, effect: &PendingEffect) -> Option<Timestamp> {
        let recorded = effect.recorded?;
        let first = lock(&self.tried).insert(effect.id) && effect.id > self.inherited;
        let ahead = lock(&self.ahead).get(&effect.pull.repo.host).copied().filter(|_| first);
        let on_host = |ahead: SignedDuration| recorded.checked_add(ahead).ok()?.checked_sub(CLOCKS_DRIFT).ok();
        ahead.map_or_else(|| recorded.checked_sub(CLOCKS_DIFFER).ok(), on_host)
    }

    /// Records the time of a response by the host's clock.
    pub(super) fn answered(&self, host: &str, now: Timestamp) {
        lock(&self.ahead).insert(host.to_owned(), now.duration_since(Timestamp::now()));
    }

    /// Forgets an effect that is done.
    pub(super) fn remove(&self, effect: i64) {
        lock(&self.tried).remove(&effect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::Effect;
    use crate::domain::{PullId, RepoId};

    fn effect(id: i64, recorded: Timestamp) -> PendingEffect {
        let repo = RepoId { host: "h".into(), owner: "o".into(), name: "n".into() };
        let effect = Effect::Comment { run: "r".into(), part: 1, body: String::new(), over: None };
        PendingEffect { id, pull: PullId { repo, number: 1 }, effect, attempts: 0, recorded: Some(recorded) }
    }

    #[test]
    fn only_the_first_try_of_what_this_process_recorded_is_searched_from_its_own_time() {
        let search = SearchStart::new(7);
        let now = Timestamp::now();
        let before = |id: i64| now.duration_since(search.start_of(&effect(id, now)).unwrap());
        assert_eq!(before(8), CLOCKS_DIFFER, "the host's clock is not known yet");
        let ahead = SignedDuration::from_secs(90);
        search.answered("h", Timestamp::now() + ahead);
        assert_eq!(before(7), CLOCKS_DIFFER, "an earlier process recorded it");
        assert_eq!(before(8), CLOCKS_DIFFER, "it was tried before");
        let first = before(9) + ahead;
        assert!(first.as_secs_f64() > 4.0 && first.as_secs_f64() < 10.0, "{first:?}");
        assert_eq!(before(9), CLOCKS_DIFFER, "it was tried before");
        search.remove(9);
        assert!(before(9) < CLOCKS_DIFFER);
        assert_eq!(search.start_of(&PendingEffect { recorded: None, ..effect(10, now) }), None);
    }
}
