//! Sets commit statuses again that were overwritten.

use super::{HostOrStateError, Round, tolerate};
use crate::dispatch::recorder::Commit;
use crate::domain::PullId;
use crate::domain::state::Effect;
use anyhow::Result;
use jiff::Timestamp;
use std::collections::HashSet;

/// Most pull requests of one round whose statuses are compared; the next round goes on with others.
const PER_ROUND: usize = 20;
/// Idle pull requests of one round, once each was compared. A comparison is up to two requests, so that a hundred idle ones cost no more
/// than two dozen in an hour of rounds every five minutes.
const IDLE_PER_ROUND: usize = 1;
/// Rounds in which a pull request is compared after a change: some hosts move statuses to what appears a moment after the push.
const ROUNDS_AFTER_CHANGE: u32 = 3;

impl Round<'_> {
    /// Sets statuses again that a late request of a former leader may have overwritten. After this server took the lead, each is compared
    /// once; later, those that have changed lately, and the others in turn. `turn`: number of those compared in turn.
    pub(super) async fn statuses(&self, pulls: &[PullId], turn: &mut usize) -> Result<(), HostOrStateError> {
        let changed = self.changed_lately(pulls).await?;
        for id in chosen(pulls, &changed, turn) {
            if !self.may_ask() || self.inner.actors.busy(id) || self.inner.actors.draining() {
                continue;
            }
            tolerate(id, self.turned_back(id).await)?;
        }
        Ok(())
    }

    /// Returns those that the host has changed within the last rounds.
    async fn changed_lately(&self, pulls: &[PullId]) -> Result<HashSet<PullId>> {
        let lately = self.inner.ctx.settings.reconcile_interval.saturating_mul(ROUNDS_AFTER_CHANGE);
        let since = Timestamp::now().checked_sub(lately).unwrap_or(Timestamp::MIN);
        let pulls = pulls.to_vec();
        let changed = self.inner.ctx.store.read(move |view| {
            let mut changed = HashSet::new();
            for pull in pulls {
                let mark = view.known_pull(&pull)?.and_then(|known| known.watermark);
                if mark.and_then(|mark| mark.version.moment()).is_some_and(|at| at >= since) {
                    changed.insert(pull);
                }
            }
            Ok(changed)
        });
        changed.await
    }

    async fn turned_back(&self, id: &PullId) -> Result<(), HostOrStateError> {
        let (target, are_shared) = (id.clone(), self.host.profile().statuses_of_commits);
        let wanted = self.inner.ctx.store.read(move |view| {
            let Some(pull) = view.pull(&target)? else { return Ok(None) };
            let head = pull.head.commit;
            let told = view.told_statuses(&target, &head)?.into_iter().map(|own| {
                let wanted = if are_shared { view.status_of_commit(&target, &head, own.clone())? } else { own.clone() };
                Ok((own, wanted))
            });
            Ok(Some((told.collect::<Result<Vec<_>>>()?, head)))
        });
        let Some((told, head)) = wanted.await?.filter(|(told, _)| !told.is_empty()) else { return Ok(()) };
        let there = self.host.own_statuses(id, &head).await?;
        let turned = told.into_iter().filter(|(_, wanted)| {
            let found = there.iter().find(|one| one.context == wanted.context);
            found.is_some_and(|one| one.state != wanted.state || one.description != wanted.description)
        });
        // It is combined again with those of other pull requests at this head when it is set.
        let effects: Vec<Effect> = turned.map(|(status, _)| Effect::Status { commit: head.clone(), status }).collect();
        if effects.is_empty() || self.inner.actors.busy(id) {
            return Ok(());
        }
        tracing::warn!(pull = %id, statuses = effects.len(), "statuses differ from what was told last; they are set again");
        Ok(Commit::about(id).posts(effects).record(self.inner).await?)
    }
}

/// Selects the pull requests of one round, and moves `turn` on.
fn chosen<'a>(pulls: &'a [PullId], changed: &HashSet<PullId>, turn: &mut usize) -> Vec<&'a PullId> {
    let is_first_pass = *turn < pulls.len();
    let count = if is_first_pass { PER_ROUND } else { IDLE_PER_ROUND }.min(pulls.len());
    let (before, after) = pulls.split_at(*turn % pulls.len().max(1));
    *turn = turn.wrapping_add(count);
    let in_turn = after.iter().chain(before);
    let others = in_turn.clone().skip(count).filter(|id| changed.contains(id)).take(PER_ROUND - count);
    in_turn.take(count).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;

    fn pulls(count: u64) -> Vec<PullId> {
        let repo = RepoId { host: "gitlab.com".into(), owner: "acme".into(), name: "infra".into() };
        (1..=count).map(|number| PullId { repo: repo.clone(), number }).collect()
    }

    fn numbers(pulls: &[PullId], changed: &HashSet<PullId>, turn: &mut usize) -> Vec<u64> {
        chosen(pulls, changed, turn).iter().map(|id| id.number).collect()
    }

    #[test]
    fn each_is_compared_soon_and_idle_ones_seldom_after_that() {
        let (all, none, mut turn) = (pulls(100), HashSet::new(), 0);
        let first: Vec<u64> = (0..5).flat_map(|_| numbers(&all, &none, &mut turn)).collect();
        assert_eq!(first, (1..=100).collect::<Vec<_>>());
        // Rounds of an hour, every five minutes.
        let hour: Vec<u64> = (0..12).flat_map(|_| numbers(&all, &none, &mut turn)).collect();
        assert_eq!(hour, (1..=12).collect::<Vec<_>>());
        assert!(numbers(&[], &none, &mut turn).is_empty());
        assert_eq!(numbers(&all[..1], &none, &mut turn), [1]);
    }

    #[test]
    fn those_that_have_changed_are_compared_in_each_round_up_to_a_limit() {
        let (all, mut turn) = (pulls(100), 100);
        let changed: HashSet<PullId> = [all[0].clone(), all[49].clone()].into();
        assert_eq!(numbers(&all, &changed, &mut turn), [1, 50]);
        assert_eq!(numbers(&all, &changed, &mut turn), [2, 50, 1]);
        let changed: HashSet<PullId> = all.iter().cloned().collect();
        assert_eq!(numbers(&all, &changed, &mut turn).len(), PER_ROUND);
        let mut first = 0;
        assert_eq!(numbers(&all, &changed, &mut first).len(), PER_ROUND);
    }
}
