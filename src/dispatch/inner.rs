//! State that all of dispatch shares, and the answers to deliveries that no run answers.

use super::allowlist::Allowlist;
use super::drift::DriftRuns;
use super::late_jobs::LateLooks;
use super::plan_invalidation::BaseBranches;
use super::queues::Actors;
use super::reconcile::FirstRounds;
use super::reconcile::poll::LastLooks;
use super::recorder::Commit;
use super::replans::WaitingReplans;
use super::repository_commands::RepositoryCommandQueues;
use super::tasks::Tasks;
use crate::comment::ParserSettings;
use crate::domain::PullId;
use crate::domain::command::Command;
use crate::domain::outcome::{Fault, Reason};
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::state::{Cause, Effect};
use crate::execute::{Context, reply_without_run};
use crate::webhook::Intake;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// State that all of dispatch shares, with one configuration. What has begun with an `Inner` keeps its configuration to the end; what
/// begins takes the present one by [`Inner::now`].
#[derive(Clone)]
pub(super) struct Inner {
    /// Knows the present configuration.
    pub(super) present: Weak<PresentInner>,
    pub(super) ctx: Context,
    /// Parser settings without the server's login, which differs from host to host: see `names_for`.
    pub(super) names: ParserSettings,
    pub(super) allowlist: Allowlist,
    /// Doors of the hosts, which know the identities of deliveries.
    pub(super) intake: Intake,
    pub(super) actors: Arc<Actors>,
    /// Escape hatches that are answered beside the actors.
    pub(super) repository_commands: Arc<RepositoryCommandQueues>,
    /// Branches that plans were made for.
    pub(super) bases: Arc<BaseBranches>,
    pub(super) tasks: Arc<Tasks>,
    /// Automatic re-plans that are in no queue yet.
    pub(super) replans: Arc<WaitingReplans>,
    pub(super) drift: Arc<DriftRuns>,
    pub(super) first_rounds: Arc<FirstRounds>,
    pub(super) late_looks: Arc<LateLooks>,
    /// Looks of polling.
    pub(super) last_looks: Arc<LastLooks>,
    /// Lock under which the state of one repository at a time follows a rename on its host.
    pub(super) renames: Arc<tokio::sync::Mutex<()>>,
    /// Start of this process; deliveries accepted before it are checked against the host.
    pub(super) started: Timestamp,
}

/// The [`Inner`] with the present configuration.
pub(super) struct PresentInner(RwLock<Arc<Inner>>);

impl PresentInner {
    /// Makes it of an [`Inner`] that knows it.
    pub(super) fn new(make: impl FnOnce(Weak<PresentInner>) -> Inner) -> Arc<PresentInner> {
        Arc::new_cyclic(|present| PresentInner(RwLock::new(Arc::new(make(Weak::clone(present))))))
    }

    pub(super) fn get(&self) -> Arc<Inner> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set(&self, inner: Inner) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(inner);
    }
}

impl Inner {
    /// Returns the state with the present configuration.
    pub(super) fn now(self: &Arc<Inner>) -> Arc<Inner> {
        self.present.upgrade().map_or_else(|| Arc::clone(self), |present| present.get())
    }

    /// Returns a reply outside of any run, as effects.
    pub(super) fn answer(&self, pull: &PullId, command: Option<&Command>, body: impl Into<ReplyBody>) -> Vec<Effect> {
        let reply = Reply { command: command.cloned(), ..reply_without_run(pull, body) };
        self.ctx.comments(&reply)
    }

    /// Records a message as the answer to a delivery or re-plan; without one, that there is nothing to say.
    pub(super) async fn answer_delivery(
        &self,
        pull: &PullId,
        cause: &Cause,
        command: Option<&Command>,
        message: Option<Message>,
    ) -> Result<()> {
        let outcome = if message.is_some() { "answered" } else { "nothing to say" };
        let effects = message.into_iter().flat_map(|message| self.answer(pull, command, message));
        Commit::about(pull).posts(effects).done(cause, outcome).record(self).await
    }

    /// Records an error as the answer to a delivery of which no project has begun.
    pub(super) async fn fail_delivery(
        &self,
        pull: &PullId,
        cause: &Cause,
        command: &Command,
        because: &str,
    ) -> Result<()> {
        let message = self.ctx.redactor.redact(because);
        let fault = Fault { reason: Reason::Internal, message, output: String::new() };
        Commit::about(pull).posts(self.answer(pull, Some(command), fault)).done(cause, "answered").record(self).await
    }
}
