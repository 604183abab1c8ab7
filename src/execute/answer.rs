//! The answer to a command.

use super::command_run::CommandRun;
use super::ids::random_bits;
use super::policies::CheckedPlans;
use super::status_update::StatusUpdate;
use crate::domain::outcome::{Fault, JobOutcome, Reason, RunEnd};
use crate::domain::reply::{Message, Reply, ReplyBody, Results};
use crate::domain::state::Delivery;
use crate::domain::{PullId, RunId};

/// Longest reason that the record of a run keeps, in characters.
const MAX_FAULT: usize = 500;

/// The answer to a command: comment and statuses, recorded together with the run's end.
#[derive(Clone)]
pub(super) struct CommandAnswer {
    pub(super) body: Option<ReplyBody>,
    pub(super) statuses: StatusUpdate,
    /// Results of the policy checks of a plan.
    pub(super) policies: Option<CheckedPlans>,
    /// Delivery to handle next.
    pub(super) follows: Option<Delivery>,
}

impl CommandAnswer {
    pub(super) fn new(body: Option<ReplyBody>, statuses: StatusUpdate) -> CommandAnswer {
        CommandAnswer { body, statuses, policies: None, follows: None }
    }

    pub(super) fn error(fault: Fault) -> CommandAnswer {
        let because = fault.message.lines().next().unwrap_or_default().to_owned();
        CommandAnswer::new(Some(ReplyBody::CommandError(fault)), StatusUpdate::Failed(because))
    }

    /// Returns the answer to a command that was refused before it did anything.
    pub(super) fn refusal(fault: Fault) -> CommandAnswer {
        let statuses = StatusUpdate::AsBefore("it is refused".into());
        CommandAnswer::new(Some(ReplyBody::CommandError(fault)), statuses)
    }

    pub(super) fn message(message: Message) -> CommandAnswer {
        CommandAnswer::new(Some(ReplyBody::Message(message)), StatusUpdate::Nothing)
    }

    pub(super) fn results(
        work: &CommandRun,
        outcomes: Vec<JobOutcome>,
        remarks: Vec<String>,
        statuses: StatusUpdate,
    ) -> CommandAnswer {
        let results = Results { outcomes, base_branch: work.pull.base.branch.clone(), remarks };
        CommandAnswer::new(Some(ReplyBody::Results(results)), statuses)
    }

    /// Returns the outcomes of its projects.
    pub(super) fn outcomes(&self) -> &[JobOutcome] {
        match &self.body {
            Some(ReplyBody::Results(results)) => &results.outcomes,
            _ => &[],
        }
    }

    /// Returns the end of a run with this answer.
    pub(super) fn end(&self) -> RunEnd {
        match (&self.body, &self.statuses) {
            (Some(ReplyBody::CommandError(fault)), _) if fault.reason == Reason::Cancelled => RunEnd::Stopped,
            (Some(ReplyBody::CommandError(_) | ReplyBody::Message(Message::ApplyDisabled { .. })), _)
            | (_, StatusUpdate::Failed(_)) => RunEnd::Failed,
            (Some(ReplyBody::Message(Message::NotLocked { .. })), _) => RunEnd::Locked,
            _ => {
                let checked = self.policies.iter().flat_map(|checked| &checked.outcomes);
                RunEnd::of(self.outcomes().iter().chain(checked))
            }
        }
    }

    /// Returns the reason for which the command failed although no result says so, in one line.
    pub(super) fn fault(&self) -> Option<String> {
        let because = match (&self.body, &self.statuses) {
            (Some(ReplyBody::CommandError(fault)), _) => fault.message.clone(),
            (Some(ReplyBody::Message(Message::ApplyDisabled { because })), _) | (_, StatusUpdate::Failed(because)) => {
                because.clone()
            }
            (Some(ReplyBody::Results(results)), _) => {
                let silenced = results.outcomes.iter().find(|one| one.silenced && !one.outcome.is_success())?;
                format!("{} failed", silenced.project.label())
            }
            _ => return None,
        };
        Some(because.lines().next().unwrap_or_default().chars().take(MAX_FAULT).collect())
    }

    /// Returns true if the command or one of its projects failed or was refused.
    pub(super) fn has_errors(&self) -> bool {
        let said = match &self.body {
            Some(ReplyBody::Results(results)) => results.outcomes.iter().any(|o| !o.outcome.is_success()),
            Some(ReplyBody::CommandError(_)) => true,
            Some(ReplyBody::Message(message)) => !matches!(message, Message::NoProjects { .. }),
            None => false,
        };
        let checked = self.policies.iter().flat_map(|checked| &checked.outcomes);
        let unmet = checked.into_iter().any(|outcome| !outcome.outcome.is_success());
        said || unmet || matches!(self.statuses, StatusUpdate::Failed(_))
    }
}

/// Returns a reply that belongs to no run and answers no command.
pub(crate) fn reply_without_run(pull: &PullId, body: impl Into<ReplyBody>) -> Reply {
    Reply::new(RunId::from_bits(random_bits()), pull, body)
}
