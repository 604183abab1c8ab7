//! Differences between hosts in a decision on an event: some do not say what has changed, and the server's login differs on each.

use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::{auto_applies, merge_again, plan_invalidation};
use crate::comment::ParserSettings;
use crate::domain::{DeliveryId, Event, PullAction, PullEvent, PullId, PullState, RepoId};
use crate::store::View;
use anyhow::Result;
use std::sync::Arc;

impl Inner {
    /// Handles an event that only says where to look, and is not recorded itself; absent for all others.
    pub(super) async fn handle_unrecorded(
        self: &Arc<Self>,
        event: &Event,
        identity: &DeliveryId,
    ) -> Option<DeliveryOutcome> {
        match event {
            Event::Push(push) => Some(plan_invalidation::on_push(self, push).await),
            Event::Verdict(verdict) => {
                let merged = merge_again::on_verdict(self, verdict).await;
                let is_served = self.allowlist.allows(&verdict.repo) && merged.is_final();
                let applied = match is_served {
                    true => auto_applies::on_verdict(self, verdict, identity).await,
                    false => None,
                };
                Some(applied.unwrap_or(merged))
            }
            Event::Pull(changed) if changed.action == PullAction::Updated => {
                // It may be a vote, which some hosts report like any other change.
                merge_again::try_in_background(self, changed.pull.id());
                auto_applies::on_update(self, changed.pull.id(), identity).await;
                None
            }
            _ => None,
        }
    }

    /// Replaces an event whose host only says that a pull request changed by the change since it was last recorded.
    pub(super) async fn compared(&self, event: Event) -> Result<Event> {
        let Event::Pull(event) = event else { return Ok(event) };
        if event.action != PullAction::Updated {
            return Ok(Event::Pull(event));
        }
        let id = event.pull.id().clone();
        let in_hand = self.actors.newest_head(&id);
        let read = move |view: &View<'_>| Ok((view.known_pull(&id)?, view.last_planned_head(&id)?));
        let (known, planned) = self.ctx.store.read(read).await?;
        let known = known.filter(|known| known.open);
        // A command on some projects may have been faster than the event of a push, and have recorded the head.
        let recorded =
            || known.as_ref().map(|known| &known.pull.head.commit).filter(|head| planned.as_ref() == Some(head));
        let is_pushed = !in_hand.as_ref().or_else(recorded).is_some_and(|head| event.pull.may_have_head(head));
        let action = if !event.pull.is_open() {
            PullAction::Closed { merged: *event.pull.state() != PullState::Closed }
        } else if is_pushed {
            PullAction::Pushed
        } else if known.is_some_and(|known| known.pull.draft) && event.pull.is_ready() {
            PullAction::Ready
        } else {
            return Ok(Event::Other("pull request updated, head and draft as before".to_owned()));
        };
        Ok(Event::Pull(PullEvent { action, ..event }))
    }

    /// Returns the name of a pull request as its host writes it, such as `#7`.
    pub(super) fn pull_name(&self, pull: &PullId) -> String {
        let host = self.ctx.hosts.for_repo(&pull.repo).ok();
        host.map_or_else(|| format!("#{}", pull.number), |host| host.profile().pull_name(pull.number))
    }

    /// Returns the parser's settings for the host of a repository; absent if that host is not configured.
    pub(super) fn names_for(&self, repo: &RepoId) -> Option<ParserSettings> {
        let host = self.ctx.hosts.for_repo(repo).ok()?;
        let (bot_login, pull_mark) = (host.bot_login().clone(), host.profile().pull_mark);
        Some(ParserSettings { bot_login, pull_mark, ..self.names.clone() })
    }

    /// The same for comments accepted earlier: they are answered even if their host is not configured any more.
    pub(super) fn names_or_default(&self, repo: &RepoId) -> ParserSettings {
        self.names_for(repo).unwrap_or_else(|| self.names.clone())
    }
}
