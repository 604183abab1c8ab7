//! Items of the queues of pull requests: the work that a recorded delivery or re-plan causes.

use crate::domain::command::{Command, CommandName};
use crate::domain::state::{Cause, Run};
use crate::domain::waiting::ReplanId;
use crate::domain::{AutoApplyEvent, CommentEvent, CommitSha, FollowUp, Login, MergeGroupEvent, PullEvent};
use crate::execute::RemainingProjects;
use jiff::Timestamp;
use std::time::Duration;

/// A recorded delivery or re-plan that waits for its turn.
#[derive(Clone)]
pub(in crate::dispatch) struct Item {
    pub(in crate::dispatch) cause: Cause,
    /// Time at which the delivery was accepted, or the re-plan queued.
    pub(in crate::dispatch) received: Timestamp,
    pub(in crate::dispatch) task: Task,
}

/// Work for an actor.
#[derive(Clone)]
pub(in crate::dispatch) enum Task {
    /// Plan what a pull request changes, because it was opened or pushed to.
    Autoplan(Box<PullEvent>),
    /// Free what a closed pull request holds.
    Closed(Box<PullEvent>),
    /// Answer a merge queue.
    MergeGroup(MergeGroupEvent),
    /// Make an automatic re-plan; its record has the projects.
    Replan(ReplanId),
    /// Apply after the merge, if the changes are the same as before it.
    FollowUp(Box<FollowUp>),
    /// Apply what is due without a command.
    AutoApply(AutoApplyEvent),
    /// Do what a comment asks.
    Command { comment: CommentEvent, command: Box<Command> },
    /// Follow the jobs of a run that went on at executors, and answer it.
    TakeUp(Box<TakenUpRun>),
}

/// A run of an earlier server whose jobs went on at executors.
#[derive(Clone)]
pub(in crate::dispatch) struct TakenUpRun {
    pub(in crate::dispatch) run: Run,
    pub(in crate::dispatch) command: Command,
    /// What becomes of its projects that had not begun.
    pub(in crate::dispatch) others: RemainingProjects,
    /// Pause before its jobs are followed.
    pub(in crate::dispatch) pause: Duration,
    /// The person who cancelled it before.
    pub(in crate::dispatch) cancelled_by: Option<Login>,
}

impl Task {
    pub(in crate::dispatch) fn command(&self) -> Option<CommandName> {
        match self {
            Task::Autoplan(_) | Task::Replan(_) => Some(CommandName::Plan),
            Task::Closed(_) | Task::MergeGroup(_) => None,
            Task::Command { command, .. } => Some(command.name),
            Task::TakeUp(taken_up) => Some(taken_up.command.name),
            Task::FollowUp(follow_up) => Some(follow_up.command.name),
            Task::AutoApply(_) => Some(CommandName::Apply),
        }
    }

    /// Returns true if it plans everything that the pull request changes.
    pub(super) fn plans_everything(&self) -> bool {
        match self {
            Task::Autoplan(_) => true,
            Task::Command { command, .. } => command.name == CommandName::Plan && command.target.is_all(),
            Task::TakeUp(taken_up) => taken_up.run.command == CommandName::Plan && taken_up.run.everything,
            Task::Closed(_) | Task::MergeGroup(_) | Task::Replan(_) | Task::FollowUp(_) | Task::AutoApply(_) => false,
        }
    }

    /// Returns the head that it is about, if its event names one.
    pub(super) fn head(&self) -> Option<&CommitSha> {
        match self {
            Task::Autoplan(event) => event.pull.head(),
            Task::TakeUp(taken_up) => Some(&taken_up.run.head),
            Task::Closed(_)
            | Task::MergeGroup(_)
            | Task::Replan(_)
            | Task::FollowUp(_)
            | Task::AutoApply(_)
            | Task::Command { .. } => None,
        }
    }
}

impl Item {
    /// Describes the item in the reply to `cancel`.
    pub(in crate::dispatch) fn title(&self) -> String {
        match &self.task {
            Task::Autoplan(_) => "the waiting autoplan".into(),
            Task::Closed(_) => "the clean-up".into(),
            Task::MergeGroup(_) => "the answer to the merge queue".into(),
            Task::Replan(_) => "the waiting plan of what is free again".into(),
            Task::FollowUp(_) => "the waiting `apply` of what was merged".into(),
            Task::AutoApply(_) => "the waiting look for automatic applies".into(),
            Task::TakeUp(taken_up) => format!("the running `{}`", taken_up.command.name.spoken()),
            Task::Command { command, .. } => format!("the waiting `{}`", command.name.spoken()),
        }
    }
}
