//! The reason that a project does not run, or not to its end.

use super::command_run::CommandRun;
use super::context::Context;
use super::job::is_left;
use super::prepare::Stop;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::store::is_deposed;
use anyhow::Result;

/// Reason that a project does not run.
pub(super) enum NotRun {
    /// A rule refuses it.
    Failure(Failure),
    /// The reason could end a command as well: it was stopped, or something broke.
    Stop(Stop),
}

impl NotRun {
    /// Returns true if another pull request holds the project.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, NotRun::Failure(Failure::Refused { reason: Reason::Locked, .. }))
    }

    /// Returns the outcome of the project; other projects of its command continue. An error means that this server does not lead any more.
    pub(super) fn outcome(self, ctx: &Context, work: &CommandRun) -> Result<Outcome> {
        match self {
            NotRun::Failure(failure) => Ok(Outcome::Failed(failure)),
            NotRun::Stop(Stop::Fault(fault)) => Ok(Outcome::Errored(fault)),
            NotRun::Stop(Stop::Cancelled) => Ok(Outcome::Failed(Failure::Cancelled { by: work.cancel.by() })),
            NotRun::Stop(Stop::Silent) => {
                Ok(Outcome::Errored(Fault { reason: Reason::Config, message: String::new(), output: String::new() }))
            }
            NotRun::Stop(Stop::Other(error)) if is_deposed(&error) || is_left(&error) => Err(error),
            NotRun::Stop(Stop::Other(error)) => {
                tracing::error!(pull = %work.pull.id, run = work.run.id.as_str(), error = format!("{error:#}"), "a project broke off");
                let message = ctx.redactor.redact(&format!("The server had an internal error: {error:#}"));
                Ok(Outcome::Errored(Fault { reason: Reason::Internal, message, output: String::new() }))
            }
        }
    }
}

impl From<Failure> for NotRun {
    fn from(failure: Failure) -> NotRun {
        NotRun::Failure(failure)
    }
}

impl From<Fault> for NotRun {
    fn from(fault: Fault) -> NotRun {
        Stop::Fault(fault).into()
    }
}

impl From<Stop> for NotRun {
    fn from(stop: Stop) -> NotRun {
        NotRun::Stop(stop)
    }
}

impl From<anyhow::Error> for NotRun {
    fn from(error: anyhow::Error) -> NotRun {
        Stop::Other(error).into()
    }
}
