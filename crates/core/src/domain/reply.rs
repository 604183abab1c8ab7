//! What we say back on a pull request, as data. `reply::render` words it.

use super::command::{Command, CommandName, Trigger};
use super::freeze::Freeze;
use super::outcome::{Fault, JobOutcome};
use super::ownership::{FallCause, OwnerState};
use super::waiting::PlannedAgain;
use super::{CommitSha, JobId, Login, ProjectId, PullId, RunId};
use serde::{Deserialize, Serialize};

/// One reply: what happened and to which pull request it is said. It becomes one comment, or several parts of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The run's id, or one of its own for a reply that belongs to no run.
    pub run: RunId,
    /// Where it is said.
    pub pull: PullId,
    /// The command it answers.
    pub command: Option<Command>,
    /// Head commit the run worked on.
    pub head: Option<CommitSha>,
    /// What is said.
    pub body: ReplyBody,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ReplyBody {
    /// Results of a run, in execution order.
    Results(Results),
    /// The command broke before any project began (`scope: command`).
    CommandError(Fault),
    /// A reply that is no result.
    Message(Message),
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
    /// Those that people read, one by one: what is silenced is left out, and what did not start because of others.
    pub fn shown(&self) -> impl Iterator<Item = &JobOutcome> {
        let only_held = self.outcomes.iter().all(|job| job.silenced || job.outcome.is_held());
        self.outcomes.iter().filter(move |job| !job.silenced && (only_held || !job.outcome.is_held()))
    }

    /// What did not start because of others; told in a line.
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
    /// The command, as a person writes it: `apply`, `import` or `state rm`.
    pub command: String,
    /// The head that it worked on.
    pub head: CommitSha,
    /// Its job.
    pub job: JobId,
    /// It did not end well, or nobody knows its end: some of it may be real.
    pub partial: bool,
    /// What has applied the project since: another pull request as its host writes it, or a drift run. Empty for nothing.
    pub since: String,
}

/// Replies that are no results; names as in the comment marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Help text.
    Help {
        /// Made by `comment` from its table.
        text: String,
    },
    /// A command with wrong flags or arguments.
    Usage {
        /// What is wrong, and the usage; made by `comment`.
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
        /// Which.
        name: CommandName,
        /// Allowed ones.
        allowed: Vec<CommandName>,
    },
    /// The first word looks like a typo of our name.
    DidYouMean {
        /// What to type instead.
        suggestion: String,
    },
    /// Applies are stopped by the apply lock, or by settings.
    ApplyDisabled {
        /// Who stopped them, since when and why, or which setting; and what to do.
        because: String,
    },
    /// Locks and plans of the pull request were dropped.
    Unlocked {
        /// Which.
        projects: Vec<ProjectId>,
        /// Projects that it owns still: something was applied, or merged and not applied.
        #[serde(default)]
        kept: Vec<ProjectId>,
        /// Why, as the person said; may be empty.
        #[serde(default)]
        why: String,
        /// Who is planned there now.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// The pull request was merged or closed, and owns projects on.
    Owes {
        /// Why it owns them.
        state: OwnerState,
        /// Which.
        projects: Vec<ProjectId>,
        /// It was told before.
        #[serde(default)]
        again: bool,
    },
    /// The pull request was merged, and it is not known yet what it changes.
    MergeUnknown {
        /// Why.
        because: String,
        /// It was told before.
        #[serde(default)]
        again: bool,
    },
    /// It is known now what the pull request has changed: nothing that is to be applied.
    MergeKnown,
    /// The pull request was merged into the head branch of another one.
    MergedOnto {
        /// The other one.
        onto: PullId,
        /// Projects that were applied in it, which the other one owns from now on.
        projects: Vec<ProjectId>,
    },
    /// What was merged and not applied is applied by another pull request.
    AppliedByAnother {
        /// The project.
        project: ProjectId,
        /// The other one.
        pull: PullId,
    },
    /// Another pull request has planned what this one changes, in mode `strict`.
    AlsoChanged {
        /// Which projects.
        projects: Vec<ProjectId>,
        /// The other one.
        pull: PullId,
    },
    /// Plans fell.
    PlansFell {
        /// Of which projects.
        projects: Vec<ProjectId>,
        /// Why.
        cause: FallCause,
        /// Whether they are made again without anybody asking.
        #[serde(default)]
        again: PlannedAgain,
    },
    /// A project that the pull request waited for is free, and is not planned without being asked.
    LockFreed {
        /// Which projects.
        projects: Vec<ProjectId>,
        /// Why they are not planned.
        because: String,
    },
    /// What `unlock #12 #15` came to.
    UnlockedOthers {
        /// One sentence for each of them.
        lines: Vec<String>,
    },
    /// Somebody unlocked this pull request from another one.
    UnlockedBy {
        /// Which projects.
        projects: Vec<ProjectId>,
        /// Who.
        user: Login,
        /// From where, as its host writes it: `#5`.
        from: String,
        /// Why; may be empty.
        why: String,
        /// Who is planned there now.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// The repository is frozen.
    Frozen {
        /// Who froze it, when and why.
        freeze: Freeze,
        /// It was so before.
        already: bool,
    },
    /// The repository is frozen no more.
    Unfrozen {
        /// What was lifted; absent where nothing was.
        freeze: Option<Freeze>,
        /// Who lifted it.
        user: Login,
    },
    /// `lock` has taken the locks of what the pull request changes.
    Locked {
        /// Which projects.
        projects: Vec<ProjectId>,
        /// Why.
        why: String,
    },
    /// `lock` is refused: other pull requests hold some of it.
    NotLocked {
        /// One sentence for each project that is held.
        lines: Vec<String>,
    },
    /// `unlock` is refused while an apply runs, or by a label.
    UnlockRefused {
        /// What blocks and what to do.
        because: String,
        /// Page of the running apply's log.
        link: Option<String>,
    },
    /// `cancel` stopped something, or nothing was there.
    Cancelled {
        /// What was stopped, in words, one each.
        stopped: Vec<String>,
        /// What goes on, and how to stop it.
        left: Vec<String>,
    },
    /// Forks are refused.
    ForkRefused,
    /// The repository is not allowlisted.
    NotAllowlisted,
    /// The person may not do this.
    NotPermitted {
        /// Why.
        because: String,
    },
    /// The pull request is closed.
    ClosedPull,
    /// Locks and plans were dropped at closing.
    Cleanup {
        /// Directory and its workspaces.
        locks: Vec<(String, Vec<String>)>,
        /// State that the pull request has changed and that no merge makes good, where no owner keeps others out.
        #[serde(default)]
        unmerged: Vec<UnmergedChange>,
        /// What to look at before anybody goes on there: an apply that was interrupted.
        #[serde(default)]
        remarks: Vec<String>,
        /// Who is planned there now.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// Somebody deleted a lock on the web page.
    Discarded {
        /// Whose plan.
        project: ProjectId,
        /// By whom; may be empty.
        user: String,
        /// Who is planned there now.
        #[serde(default)]
        next: Vec<NextInLine>,
    },
    /// Plans were dropped, as what they were made with changed in another pull request.
    OutdatedPlans {
        /// Whose.
        projects: Vec<ProjectId>,
        /// The project that was applied.
        on: ProjectId,
        /// The number of the other pull request.
        number: u64,
    },
    /// All of it is applied, and the host is asked to merge it.
    Automerging,
    /// It was to be merged automatically, and is not.
    NotMerged {
        /// Why.
        because: String,
    },
    /// A pre-workflow hook failed and the setting says to stop.
    HookFailed {
        /// The hook's output and error.
        output: String,
    },
    /// Something was under way when the server stopped.
    Interrupted {
        /// What, and what to do next.
        because: String,
    },
    /// Terraform was killed and not run again: it may have left its lock on a state.
    StateLocks {
        /// Where.
        left: Vec<LeftLock>,
    },
    /// A job that was told as interrupted has ended after all.
    LateEnd {
        /// On which project.
        project: ProjectId,
        /// How, in sentences.
        because: String,
        /// What it printed.
        output: String,
    },
    /// The server is stopping.
    ShuttingDown,
    /// Nothing matches.
    NoProjects {
        /// Why, and what to do.
        because: String,
    },
    /// A newer commit made this plan obsolete and no new one was started.
    Superseded {
        /// The newer head.
        head: CommitSha,
    },
    /// A plan that somebody asked for has covered a pushed commit before its autoplan began.
    PlannedAlready {
        /// The commit.
        head: CommitSha,
    },
}

/// The pull request whose turn it is where a project got free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextInLine {
    /// The project.
    pub project: ProjectId,
    /// Number of the pull request.
    pub number: u64,
}

/// Where a killed Terraform may have left its lock on the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftLock {
    /// The project.
    pub project: ProjectId,
    /// What ran there: `plan`.
    pub kind: String,
    /// Its job.
    pub job: JobId,
    /// What is known, and what to do, in sentences.
    pub because: String,
}

impl Reply {
    /// The command's name, if it answers one.
    pub fn command_name(&self) -> Option<CommandName> {
        self.command.as_ref().map(|command| command.name)
    }

    /// How the command came about.
    pub fn trigger(&self) -> Option<Trigger> {
        self.command.as_ref().map(|command| command.trigger)
    }
}
