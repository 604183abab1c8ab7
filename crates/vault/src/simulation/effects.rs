//! Work, comments and statuses of a leader for deliveries.

use super::Flaw;
use super::leading::Leading;
use super::request::{Op, Reply};
use super::world::{Fact, How};
use crate::VaultError;

/// Tries to post one comment in one pass over the outbox.
const TRIES: usize = 6;

impl Leading<'_> {
    /// Records an outcome for each delivery.
    pub(super) async fn work(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        for fact in &state {
            let Fact::Delivery(d) = fact else { continue };
            if [How::Fine, How::Interrupted].iter().any(|how| self.has(&Fact::Out(d.clone(), *how))) {
                continue;
            }
            let mut how = How::Fine;
            if d.starts_with('a') {
                let apply = Fact::Apply(d.clone());
                if self.has(&apply) && !self.flaw(Flaw::ApplyRepeated) {
                    how = How::Interrupted;
                } else {
                    if self.flaw(Flaw::SpawnBeforeCommit) {
                        self.port().send(Op::Spawn(d.as_str().into())).await;
                    }
                    if !self.has(&apply) {
                        self.commit(apply).await?;
                    }
                    if !self.flaw(Flaw::SpawnBeforeCommit) {
                        self.leader.may_act().await?;
                        self.port().send(Op::Spawn(d.as_str().into())).await;
                    }
                }
            }
            if self.flaw(Flaw::CommentBeforeCommit) {
                self.port().send(Op::Post(d.as_str().into())).await;
            }
            self.commit(Fact::Out(d.clone(), how)).await?;
            if *self.leaving.borrow() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// For each outcome, lists comments, posts one if there is none, and records it as done.
    pub(super) async fn outbox(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        let mut outcomes = 0;
        for fact in &state {
            let Fact::Out(d, _) = fact else { continue };
            outcomes += 1;
            if self.has(&Fact::Done(d.clone())) {
                continue;
            }
            if self.flaw(Flaw::MarkedFirst) {
                self.commit(Fact::Done(d.clone())).await?;
            }
            let posted = self.post(d).await?;
            self.leader.may_act().await?;
            self.port().send(Op::SetStatus(outcomes)).await;
            if posted && !self.flaw(Flaw::MarkedFirst) {
                self.commit(Fact::Done(d.clone())).await?;
            }
            if *self.leaving.borrow() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn post(&self, delivery: &str) -> Result<bool, VaultError> {
        for _ in 0..TRIES {
            match self.port().send(Op::Comments(delivery.into())).await {
                Reply::Comments(ids) if !ids.is_empty() => return Ok(true),
                Reply::Comments(_) => {}
                _ => continue,
            }
            if self.flaw(Flaw::CommentBeforeCommit) {
                return Ok(true);
            }
            self.leader.may_act().await?;
            match self.port().send(Op::Post(delivery.into())).await {
                Reply::Lost if self.flaw(Flaw::MarkedFirst) => return Ok(true),
                Reply::Lost => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Sets a differing status again and deletes duplicate comments.
    pub(super) async fn sweep(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        let outcomes = state.iter().filter(|f| matches!(f, Fact::Out(..))).count() as u64;
        let done: Vec<&String> =
            state.iter().filter_map(|f| if let Fact::Done(d) = f { Some(d) } else { None }).collect();
        if let Reply::Status(there) = self.port().send(Op::Status).await
            && there != outcomes
            && done.len() as u64 == outcomes
        {
            self.leader.may_act().await?;
            self.port().send(Op::SetStatus(outcomes)).await;
        }
        for delivery in done {
            if let Reply::Comments(ids) = self.port().send(Op::Comments(delivery.as_str().into())).await {
                let lowest = ids.iter().min().copied();
                for id in ids.into_iter().filter(|id| Some(*id) != lowest) {
                    self.port().send(Op::DeleteComment(id)).await;
                }
            }
        }
        Ok(())
    }
}
