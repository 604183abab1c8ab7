//! Sets commit statuses again that were overwritten.

use super::{HostOrStateError, Round, tolerate};
use crate::dispatch::recorder::Commit;
use crate::domain::PullId;
use crate::domain::state::Effect;
use anyhow::Result;

/// Pull requests of one round whose statuses are compared; the next round goes on with others.
const PER_ROUND: usize = 20;

impl Round<'_> {
    /// Sets statuses again that a late request of a former leader may have overwritten. Each round takes the next pull requests in turn.
    pub(super) async fn statuses(&self, pulls: &[PullId], turn: &mut usize) -> Result<(), HostOrStateError> {
        let count = pulls.len().min(PER_ROUND);
        let chosen = pulls.iter().cycle().skip(*turn % pulls.len().max(1)).take(count);
        *turn = turn.wrapping_add(count);
        for id in chosen {
            if !self.may_ask() || self.inner.actors.busy(id) || self.inner.actors.draining() {
                continue;
            }
            tolerate(id, self.turned_back(id).await)?;
        }
        Ok(())
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
