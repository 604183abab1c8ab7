//! State that all of dispatch shares, and the answers to deliveries that no run answers.

use super::allowlist::Allowlist;
use super::drift::DriftRuns;
use super::plan_invalidation::BaseBranches;
use super::queues::Actors;
use super::recorder::Commit;
use super::replans::WaitingReplans;
use super::repository_commands::RepositoryCommandQueues;
use super::tasks::Tasks;
use crate::comment::ParserSettings;
use crate::domain::command::Command;
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::state::{Cause, Effect};
use crate::domain::{PullId, RunId};
use crate::execute::{Context, comment_effects, random_bits};
use crate::webhook::Intake;
use anyhow::Result;
use jiff::Timestamp;

/// State that all of dispatch shares.
pub(super) struct Inner {
    pub(super) ctx: Context,
    /// Parser settings without the server's login, which differs from host to host: see `names_for`.
    pub(super) names: ParserSettings,
    pub(super) allowlist: Allowlist,
    /// Doors of the hosts, which know the identities of deliveries.
    pub(super) intake: Intake,
    pub(super) actors: Actors,
    /// Escape hatches that are answered beside the actors.
    pub(super) repository_commands: RepositoryCommandQueues,
    /// Branches that plans were made for.
    pub(super) bases: BaseBranches,
    pub(super) tasks: Tasks,
    /// Automatic re-plans that are in no queue yet.
    pub(super) replans: WaitingReplans,
    pub(super) drift: DriftRuns,
    /// Lock under which the state of one repository at a time follows a rename on its host.
    pub(super) renames: tokio::sync::Mutex<()>,
    /// Start of this process; deliveries accepted before it are checked against the host.
    pub(super) started: Timestamp,
}

impl Inner {
    /// Returns a reply outside of any run, as effects.
    pub(super) fn answer(&self, pull: &PullId, command: Option<&Command>, message: Message) -> Vec<Effect> {
        self.reply(pull, command, ReplyBody::Message(message))
    }

    fn reply(&self, pull: &PullId, command: Option<&Command>, body: ReplyBody) -> Vec<Effect> {
        let reply = Reply {
            run: RunId::from_bits(random_bits()),
            pull: pull.clone(),
            command: command.cloned(),
            head: None,
            body,
        };
        comment_effects(&self.ctx, &reply)
    }

    /// Records a message as the answer to a delivery or re-plan.
    pub(super) async fn answer_delivery(
        &self,
        pull: &PullId,
        cause: &Cause,
        command: Option<&Command>,
        message: Option<Message>,
    ) -> Result<()> {
        self.answer_delivery_with(pull, cause, command, message.map(ReplyBody::Message)).await
    }

    /// The same with any reply.
    pub(super) async fn answer_delivery_with(
        &self,
        pull: &PullId,
        cause: &Cause,
        command: Option<&Command>,
        body: Option<ReplyBody>,
    ) -> Result<()> {
        let effects = body.map(|body| self.reply(pull, command, body)).unwrap_or_default();
        let outcome = if effects.is_empty() { "nothing to say" } else { "answered" };
        Commit::about(pull).posts(effects).done(cause, outcome).record(self).await
    }
}
