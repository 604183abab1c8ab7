//! Selects the next effects of a pull request. Pure.

use super::pace::Rank;
use crate::domain::state::{Effect, PendingEffect, StatusState};
use crate::store::Lane;
use std::collections::{HashMap, HashSet};
use tokio::time::Instant;

/// Next effects of a lane.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NextEffects {
    /// Statuses that a later one of the same name and commit replaces.
    pub(super) superseded: Vec<i64>,
    /// Effects to perform now, in this order.
    pub(super) ready: Vec<PendingEffect>,
    /// Time at which the next waiting effect is due.
    pub(super) wait_until: Option<Instant>,
}

/// Returns true if a later effect may replace this one: a pending status.
pub(super) fn may_be_replaced(effect: &Effect) -> bool {
    matches!(effect, Effect::Status { status, .. } if status.state == StatusState::Pending)
}

impl NextEffects {
    /// Selects from `mine`, the effects of a lane in the order in which they were recorded: results before pending statuses and reactions.
    /// `waits` has the times before which effects must not be tried.
    pub(super) fn select(
        lane: Lane,
        mut mine: Vec<PendingEffect>,
        waits: &HashMap<i64, Instant>,
        now: Instant,
    ) -> NextEffects {
        let mut step = NextEffects::default();
        if lane == Lane::Marks {
            let mut seen = HashSet::new();
            let replaced = |pending: &PendingEffect| match &pending.effect {
                Effect::Status { commit, status } => !seen.insert((commit.clone(), status.context.clone())),
                _ => false,
            };
            let ids: HashSet<i64> = mine
                .iter()
                .rev()
                .map(|p| p.id)
                .zip(mine.iter().rev().map(replaced))
                .filter_map(|(id, old)| old.then_some(id))
                .collect();
            step.superseded = mine.iter().map(|p| p.id).filter(|id| ids.contains(id)).collect();
            mine.retain(|p| !ids.contains(&p.id));
            mine.sort_by_key(|p| Rank::of(&p.effect));
        }
        for effect in mine {
            match waits.get(&effect.id).filter(|until| **until > now) {
                None => step.ready.push(effect),
                Some(until) => {
                    step.wait_until = Some(step.wait_until.map_or(*until, |earliest| earliest.min(*until)));
                    if lane == Lane::Comments {
                        break;
                    }
                }
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::CommitStatus;
    use crate::domain::{PullId, RepoId};
    use std::time::Duration;

    fn effects(effects: &[&str]) -> Vec<PendingEffect> {
        let repo = RepoId { host: "h".into(), owner: "o".into(), name: "n".into() };
        let effect = |text: &&str| match text.split_once(' ') {
            Some(("status", rest)) => {
                let (commit, context) = rest.split_once(' ').unwrap();
                let status = CommitStatus {
                    context: context.to_owned(),
                    state: StatusState::Pending,
                    description: String::new(),
                    url: String::new(),
                    waits: false,
                    details: None,
                };
                Effect::Status { commit: commit.into(), status }
            }
            Some(("react", _)) => Effect::React { comment_id: 1, reaction: "eyes".to_owned() },
            _ => Effect::Comment { run: "r".into(), part: 1, body: String::new(), over: None },
        };
        let pull = PullId { repo, number: 1 };
        let all = effects.iter().map(effect).enumerate();
        all.map(|(i, effect)| PendingEffect { id: i as i64, pull: pull.clone(), effect, attempts: 0, recorded: None })
            .collect()
    }

    fn ready(step: &NextEffects) -> Vec<i64> {
        step.ready.iter().map(|effect| effect.id).collect()
    }

    #[test]
    fn comments_keep_their_order() {
        let now = Instant::now();
        let pending = effects(&["comment", "comment", "comment"]);
        let step = NextEffects::select(Lane::Comments, pending.clone(), &HashMap::new(), now);
        assert_eq!(ready(&step), [0, 1, 2]);
        let later = now + Duration::from_secs(9);
        let step = NextEffects::select(Lane::Comments, pending.clone(), &HashMap::from([(1, later)]), now);
        assert_eq!((ready(&step), step.wait_until), (vec![0], Some(later)));
        let step = NextEffects::select(Lane::Comments, pending, &HashMap::from([(0, later)]), now);
        assert_eq!((ready(&step), step.wait_until), (vec![], Some(later)));
    }

    #[test]
    fn only_the_last_status_of_a_name_and_commit_is_sent() {
        let pending = effects(&["status a plan", "react x", "status b plan", "status a apply", "status a plan"]);
        let step = NextEffects::select(Lane::Marks, pending, &HashMap::new(), Instant::now());
        assert_eq!((ready(&step), step.superseded), (vec![1, 2, 3, 4], vec![0]));
    }

    #[test]
    fn results_come_before_what_is_under_way() {
        let mut pending = effects(&["react x", "status a plan", "status a apply"]);
        if let Effect::Status { status, .. } = &mut pending[2].effect {
            status.state = StatusState::Failure;
        }
        assert_eq!(ready(&NextEffects::select(Lane::Marks, pending, &HashMap::new(), Instant::now())), [2, 0, 1]);
    }

    #[test]
    fn marks_overtake_one_that_waits() {
        let now = Instant::now();
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        let pending = effects(&["status a plan", "status a apply", "status a policy_check"]);
        let step = NextEffects::select(Lane::Marks, pending, &HashMap::from([(0, later), (2, soon)]), now);
        assert_eq!((ready(&step), step.wait_until), (vec![1], Some(soon)));
    }
}
