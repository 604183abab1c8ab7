//! Replies on a pull request, as data. `render` words them.

use super::command::{Command, CommandName, Trigger};
use super::freeze::Freeze;
use super::outcome::{Fault, JobOutcome};
use super::ownership::{InvalidationCause, OwnerState};
use super::waiting::PlannedAgain;
use super::{CommitSha, JobId, Login, ProjectId, PullId, RunId};
use serde::{Deserialize, Serialize};

/// One reply: its content and its pull request. It becomes one comment, or several parts of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The run's id, or one of its own for a reply that belongs to no run.
    pub run: RunId,
    /// The pull request on which it is posted.
    pub pull: PullId,
    /// The command it answers.
    pub command: Option<Command>,
    /// Head commit the run worked on.
    pub head: Option<CommitSha>,
    /// Content of the reply.
    pub body: ReplyBody,
}

/// `--comment-style`: how much of a reply is posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommentStyle {
    /// One comment, and a second one for a single result that needs it. What does not fit is left out, with a link to the log or the run.
    #[default]
    Short,
    /// Everything, in as many comments as that takes.
    Full,
}

/// Kinds of content of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ReplyBody {
    /// Results of a run, in execution order.
    Results(Results),
    /// The command failed before any project began (`scope: command`).
    CommandError(Fault),
    /// A reply without results.
    Message(Message),
}

impl From<Message> for ReplyBody {
    fn from(message: Message) -> ReplyBody {
        ReplyBody::Message(message)
    }
}

impl From<Fault> for ReplyBody {
    fn from(fault: Fault) -> ReplyBody {
        ReplyBody::CommandError(fault)
    }
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// One per job.
    pub outcomes: Vec<JobOutcome>,
    /// Branch and commit of the base, for the first line.
    pub base_branch: String,
    /// Remarks for people under the results, such as that a review is of an earlier head.
    pub remarks: Vec<String>,
}

impl Results {
    /// Returns the results that are listed one by one. Silenced ones are left out, and those that did not start because of others.
    pub fn shown(&self) -> impl Iterator<Item = &JobOutcome> {
        let only_held = self.outcomes.iter().all(|job| job.silenced || job.outcome.is_held());
        self.outcomes.iter().filter(move |job| !job.silenced && (only_held || !job.outcome.is_held()))
    }

    /// Returns the results that did not start because of others; they share one line.
    pub fn held(&self) -> impl Iterator<Item = &JobOutcome> {
        let has_others = self.shown().any(|job| !job.outcome.is_held());
        self.outcomes.iter().filter(move |job| has_others && !job.silenced && job.outcome.is_held())
    }
}

/// A change of a project's state by a pull request that was closed without a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmergedChange {
    /// The project.
    pub project: ProjectId,
    /// The command as people type it: `apply`, `import` or `state rm`.
    pub command: String,
    /// The head that it ran on.
    pub head: CommitSha,
    /// Its job.
    pub job: JobId,
    /// True if it failed or its end is unknown: some of it may be real.
    pub partial: bool,
    /// Later apply of the project: another pull request as its host writes it, or a drift run. Empty for none.
    pub since: String,
}

/// Replies without results; names as in the comment marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Help text.
    Help {
        /// Text, from the table of `comment`.
        text: String,
    },
    /// A command with wrong flags or arguments.
    Usage {
        /// The error, and the usage; from `comment`.
        text: String,
    },
    /// No such command.
    UnknownCommand {
        /// The word.
        word: String,
        /// Allowed ones.
        allowed: Vec<CommandName>,
    },
    /// The command is not allowed on this server.
    SwitchedOff {
        /// The command.
        name: CommandName,
        /// Allowed ones.
        allowed: Vec<CommandName>,
    },
    /// The first word looks like a typo of the name of the bot.
    DidYouMean {
        /// The corrected text.
        suggestion: String,
    },
    /// Applies are stopped by the apply lock, or by settings.
    ApplyDisabled {
        /// The person who stopped them, since when and why, or the setting; and the next step.
        because: String,
    },
    /// Locks and plans of the pull request were deleted.
    Unlocked {
        /// Their projects.
        projects: Vec<ProjectId>,
        /// Projects that it still owns: an apply is not merged, or a merged change is not applied.
        #[serde(default)]
        kept: Vec<ProjectId>,
        /// The person's reason; may be empty.
        #[serde(default)]
        why: String,
        /// Pull requests that are planned there next.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// The pull request was merged or closed, and still owns projects.
    Owes {
        /// Reason for the ownership.
        state: OwnerState,
        /// The projects.
        projects: Vec<ProjectId>,
        /// True for a reminder.
        #[serde(default)]
        again: bool,
    },
    /// The pull request was merged, and its changes are not known yet.
    MergeUnknown {
        /// Reason for which they are unknown.
        because: String,
        /// True for a reminder.
        #[serde(default)]
        again: bool,
    },
    /// The changes of the merged pull request are known now, and there is nothing to apply.
    MergeKnown,
    /// The pull request was merged into the head branch of another one.
    MergedOnto {
        /// The other pull request.
        onto: PullId,
        /// Projects applied in this one, which the other one owns from now on.
        projects: Vec<ProjectId>,
    },
    /// Another pull request applies the change that was merged and not applied.
    AppliedByAnother {
        /// The project.
        project: ProjectId,
        /// The other pull request.
        pull: PullId,
    },
    /// Another pull request has planned projects that this one changes, in mode `strict`.
    AlsoChanged {
        /// The projects.
        projects: Vec<ProjectId>,
        /// The other pull request.
        pull: PullId,
    },
    /// Plans were invalidated.
    #[serde(rename = "PlansFell")]
    PlansInvalidated {
        /// Their projects.
        projects: Vec<ProjectId>,
        /// Cause of the invalidation.
        cause: InvalidationCause,
        /// Automatic re-plan, if any.
        #[serde(default)]
        again: PlannedAgain,
    },
    /// Projects that the pull request waited for are free, and are not planned automatically.
    LockFreed {
        /// The projects.
        projects: Vec<ProjectId>,
        /// Reason for which they are not planned.
        because: String,
    },
    /// Result of `unlock #12 #15`.
    UnlockedOthers {
        /// One sentence for each of them.
        lines: Vec<String>,
    },
    /// The pull request was unlocked from another one.
    UnlockedBy {
        /// The projects.
        projects: Vec<ProjectId>,
        /// The person who unlocked it.
        user: Login,
        /// The other pull request as its host writes it: `#5`.
        from: String,
        /// The person's reason; may be empty.
        why: String,
        /// Pull requests that are planned there next.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// The repository is frozen.
    Frozen {
        /// The freeze, with person, time and reason.
        freeze: Freeze,
        /// True if it was frozen before.
        already: bool,
    },
    /// The repository is no longer frozen.
    Unfrozen {
        /// The freeze that was lifted; absent if there was none.
        freeze: Option<Freeze>,
        /// The person who lifted it.
        user: Login,
    },
    /// `lock` has taken the locks of the projects that the pull request changes.
    Locked {
        /// The projects.
        projects: Vec<ProjectId>,
        /// The person's reason.
        why: String,
    },
    /// `lock` is refused, as other pull requests hold some of the projects.
    NotLocked {
        /// One sentence for each project that is held.
        lines: Vec<String>,
    },
    /// `unlock` is refused while an apply runs, or by a label.
    UnlockRefused {
        /// The blocker and the next step.
        because: String,
        /// Log page of the running apply.
        link: Option<String>,
    },
    /// `cancel` stopped jobs, or there was nothing to stop.
    Cancelled {
        /// Stopped work, in words, one entry each.
        stopped: Vec<String>,
        /// Work that still runs, and the way to stop it.
        left: Vec<String>,
    },
    /// Forks are refused.
    ForkRefused,
    /// The repository is not allowlisted.
    NotAllowlisted,
    /// The person may not do this.
    NotPermitted {
        /// Reason for the refusal.
        because: String,
    },
    /// The pull request is closed.
    ClosedPull,
    /// Locks and plans were deleted when the pull request was closed.
    Cleanup {
        /// Each directory and its workspaces.
        locks: Vec<(String, Vec<String>)>,
        /// Applied changes that no merge puts on the base branch, in projects without an owner that keeps others out.
        #[serde(default)]
        unmerged: Vec<UnmergedChange>,
        /// Things to check before further work there, such as an apply that was interrupted.
        #[serde(default)]
        remarks: Vec<String>,
        /// Pull requests that are planned there next.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// A lock was deleted on the web page.
    Discarded {
        /// Project of the plan.
        project: ProjectId,
        /// The person who deleted it; may be empty.
        user: String,
        /// The person's reason; may be empty.
        #[serde(default)]
        why: String,
        /// Pull requests that are planned there next.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// Plans were deleted because an apply of another pull request changed their inputs.
    #[serde(rename = "OutdatedPlans")]
    DependentPlansDiscarded {
        /// Their projects.
        projects: Vec<ProjectId>,
        /// The project that was applied.
        on: ProjectId,
        /// The number of the other pull request.
        number: u64,
    },
    /// All projects are applied, and the host is asked to merge the pull request.
    Automerging,
    /// An automatic merge was due and did not happen.
    NotMerged {
        /// Reason for which it did not happen.
        because: String,
    },
    /// A pre-workflow hook failed, and a setting makes that an error.
    HookFailed {
        /// The hook's output and error.
        output: String,
    },
    /// Work was in progress when the server stopped.
    Interrupted {
        /// The work, and the next step.
        because: String,
    },
    /// Terraform was killed and its job not repeated: it may have left its lock on a state.
    StateLocks {
        /// The locks.
        left: Vec<LeftLock>,
    },
    /// A job that was reported as interrupted has ended after all.
    LateEnd {
        /// Project of the job.
        project: ProjectId,
        /// Its end, in sentences.
        because: String,
        /// Output of the job.
        output: String,
    },
    /// The server is stopping.
    ShuttingDown,
    /// No project matches.
    NoProjects {
        /// Reason, and the next step.
        because: String,
    },
    /// A newer commit superseded this plan, and no new one was started; or the command was for an earlier head.
    Superseded {
        /// The newer head.
        head: CommitSha,
        /// The earlier head that the command was for; absent if a plan was stopped.
        asked_at: Option<CommitSha>,
    },
    /// A plan by command has covered a pushed commit before its autoplan began.
    PlannedAlready {
        /// The commit.
        head: CommitSha,
    },
}

/// The next pull request in line for a released project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextInLine {
    /// The project.
    pub project: ProjectId,
    /// Number of the pull request.
    pub number: u64,
}

/// A Terraform state lock that a killed job may have left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftLock {
    /// The project.
    pub project: ProjectId,
    /// Kind of the job: `plan`.
    pub kind: String,
    /// Its job.
    pub job: JobId,
    /// The known facts, and the next step, in sentences.
    pub because: String,
}

impl Reply {
    /// Returns a reply that answers no command. `run` as in [`Reply::run`].
    pub fn new(run: RunId, pull: &PullId, body: impl Into<ReplyBody>) -> Reply {
        Reply { run, pull: pull.clone(), command: None, head: None, body: body.into() }
    }

    /// Returns the command's name, if it answers one.
    pub fn command_name(&self) -> Option<CommandName> {
        self.command.as_ref().map(|command| command.name)
    }

    /// Returns the cause of the command.
    pub fn trigger(&self) -> Option<Trigger> {
        self.command.as_ref().map(|command| command.trigger)
    }
}
