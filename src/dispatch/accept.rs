//! Acceptance of a delivery: one commit, and then the queue of its pull request.

use super::decide::Decision;
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::queues::{Item, Task};
use super::{actor, immediate_commands, recorder, repository_commands, unlock};
use crate::domain::command::CommandName;
use crate::domain::reply::Message;
use crate::domain::state::{Delivery, DeliveryState, Effect};
use crate::domain::{Event, PullId};
use crate::store::Tx;
use anyhow::Result;
use std::sync::Arc;

impl Inner {
    /// Records the delivery with its immediate replies and `also` in one commit before the 2xx, if it is new. If `also` returns false,
    /// nothing is recorded.
    pub(super) async fn record(
        self: &Arc<Self>,
        delivery: Delivery,
        pull: PullId,
        decision: Decision,
        also: impl FnOnce(&Tx<'_>) -> Result<bool> + Send + 'static,
    ) -> DeliveryOutcome {
        let reaction = self.reaction(&delivery.event, &decision);
        let (task, replies) = match decision {
            Decision::Queue(task) => (Some(task), Vec::new()),
            Decision::Reply(message) => (None, self.answer(&pull, None, message)),
            Decision::Refuse(command, message) => (None, self.answer(&pull, Some(&command), message)),
            Decision::Ignore(_) | Decision::Superseded(_) | Decision::Edited => (None, Vec::new()),
        };
        let state = if task.is_some() { DeliveryState::Queued } else { DeliveryState::Done };
        let (identity, received) = (delivery.identity.clone(), delivery.received);
        let effects = reaction.into_iter().chain(replies).collect();
        match recorder::accept(self, delivery, &pull, effects, state, also).await {
            Ok(true) => {}
            Ok(false) => return DeliveryOutcome::Known,
            Err(error) => {
                return DeliveryOutcome::unrecorded(&error, &pull, "a delivery could not be recorded");
            }
        }
        let Some(task) = task else { return DeliveryOutcome::Answered };
        self.route(pull, Item { cause: identity.into(), received, task }).await;
        DeliveryOutcome::Queued
    }

    /// Enqueues a recorded item, or has it answered beside the queue. Does not wait for a host: the sender of the delivery waits for this.
    pub(super) async fn route(self: &Arc<Self>, pull: PullId, item: Item) {
        match &item.task {
            Task::Command { command, .. } if command.name == CommandName::Cancel => {
                let inner = Arc::clone(self);
                let begun =
                    self.tasks.spawn_work(async move { immediate_commands::cancel(&inner, &pull, &item).await });
                if !begun {
                    tracing::debug!("a cancellation waits for the next start: this server stops");
                }
            }
            Task::Command { command, .. } if repository_commands::is_repository_command(command) => {
                repository_commands::enqueue(self, pull, item);
            }
            Task::Command { command, .. } if command.name == CommandName::Unlock && self.actors.applying(&pull) => {
                unlock::refuse_unlock(self, &pull, &item, command).await;
            }
            _ => actor::enqueue(self, pull, item),
        }
    }

    fn reaction(&self, event: &Event, decision: &Decision) -> Option<Effect> {
        let Event::Comment(comment) = event else { return None };
        let usual = self.ctx.settings.emoji_reaction.as_deref()?;
        let reaction = if matches!(decision, Decision::Edited) { "confused" } else { usual }.to_owned();
        let reacts = self.ctx.hosts.for_repo(&comment.pull.repo).is_ok_and(|host| host.profile().reactions);
        let refused = matches!(decision, Decision::Reply(Message::NotAllowlisted));
        (reacts && !refused).then_some(Effect::React { comment_id: comment.comment_id, reaction })
    }
}
