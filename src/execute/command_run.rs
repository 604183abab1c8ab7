//! A running command, and its end.

use super::answer::CommandAnswer;
use super::cancel::{Cancel, CancelReason};
use super::context::Context;
use super::ids::random_bits;
use super::merged::AfterMerge;
use super::status_update::StatusUpdate;
use super::unrecorded_outcomes::UnrecordedOutcomes;
use crate::config::ProjectConfig;
use crate::config::global::{Hook, RepoRules};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::{JobOutcome, Outcome, Reason};
use crate::domain::reply::{Reply, ReplyBody};
use crate::domain::state::{AuditEntry, Cause, Delivery, JobState, Run};
use crate::domain::{CommitSha, ProjectId, PullRequest, RunId};
use crate::executors::PackedTrees;
use crate::render::statuses::ApplyFailures;
use crate::wording;
use jiff::Timestamp;
use std::time::Duration;

/// A running command.
pub(crate) struct CommandRun {
    /// The run, recorded before anything visible happens.
    pub run: Run,
    /// The pull request as it was when the command began.
    pub pull: PullRequest,
    pub command: Command,
    /// Rules of the repository and base branch.
    pub rules: RepoRules,
    /// Data of a merged pull request with unapplied projects, whose head is then the tip of the base branch; absent otherwise.
    pub after_merge: Option<AfterMerge>,
    /// Handle that stops it.
    pub cancel: Cancel,
    /// Ends of jobs that its answer records.
    pub unrecorded: UnrecordedOutcomes,
    /// Trees that are stored for its jobs on executors.
    pub packed_trees: PackedTrees,
    /// Outcomes of projects that an earlier server had begun, for the answer.
    pub begun_before: Vec<JobOutcome>,
}

/// Returns a run of this command that begins now, without a cause. Records nothing.
pub(crate) fn new_run(pull: &PullRequest, command: &Command) -> Run {
    Run {
        id: RunId::from_bits(random_bits()),
        pull: pull.id.clone(),
        command: command.name,
        // Nobody has typed the command of a drift run.
        typed: if command.trigger == Trigger::Drift { String::new() } else { wording::typed(command) },
        trigger: command.trigger,
        user: command.user.clone(),
        head: pull.head.commit.clone(),
        cause: Cause::None,
        everything: command.target.is_all(),
        received: None,
        started: Timestamp::now(),
        finished: None,
        answered: false,
        end: None,
        fault: None,
        results: Vec::new(),
        automerge: None,
    }
}

impl CommandRun {
    /// Returns true if the command has any hooks.
    pub(super) fn has_hooks(&self) -> bool {
        let mut hooks = self.rules.pre_workflow_hooks.iter().chain(&self.rules.post_workflow_hooks);
        hooks.any(|hook| self.runs_hook(hook))
    }

    /// Returns true if a hook is for the command: its `commands` is a text in which the command's name has to occur.
    pub(super) fn runs_hook(&self, hook: &Hook) -> bool {
        hook.commands.as_ref().is_none_or(|commands| commands.contains(self.command.name.spec().hook_word))
    }

    /// Creates a command on a pull request that is not merged.
    pub(crate) fn new(run: Run, pull: PullRequest, command: Command, rules: RepoRules, cancel: Cancel) -> CommandRun {
        let (unrecorded, packed_trees) = (UnrecordedOutcomes::default(), PackedTrees::default());
        let begun_before = Vec::new();
        CommandRun { run, pull, command, rules, after_merge: None, cancel, unrecorded, packed_trees, begun_before }
    }

    /// Returns true if it plans for a drift run. Its results are the answer of one request, which is asked again.
    pub(super) fn looks_for_drift(&self) -> bool {
        self.command.trigger == Trigger::Drift && !self.command.name.changes_state()
    }

    /// Returns a reply to the command.
    pub(super) fn reply(&self, body: ReplyBody) -> Reply {
        Reply {
            command: Some(self.command.clone()),
            head: Some(self.pull.head.commit.clone()),
            ..Reply::new(self.run.id.clone(), &self.pull.id, body)
        }
    }

    /// Returns the answer with the outcomes of projects that an earlier server had begun. What it says of the command as a whole is then
    /// about the others.
    pub(super) fn with_begun_before(&self, answer: CommandAnswer) -> CommandAnswer {
        if self.begun_before.is_empty() {
            return answer;
        }
        const OTHERS: &str = "Projects not listed here were not started";
        let (mut outcomes, mut remarks) = (self.begun_before.clone(), Vec::new());
        match answer.body {
            Some(ReplyBody::Results(results)) => {
                outcomes.extend(results.outcomes);
                remarks.extend(results.remarks);
            }
            Some(ReplyBody::CommandError(fault)) => remarks.push(format!("{OTHERS}: {}", fault.message)),
            Some(ReplyBody::Message(_)) | None => {}
        }
        let failed = ApplyFailures::of(&outcomes);
        let statuses = match self.command.name {
            CommandName::Apply => StatusUpdate::AfterApply { failed },
            _ => StatusUpdate::Nothing,
        };
        let body = CommandAnswer::results(self, outcomes, remarks, statuses);
        CommandAnswer { policies: answer.policies, follows: answer.follows, ..body }
    }

    /// Returns the head that people have reviewed: after the merge, the one that was merged.
    pub(super) fn reviewed_head(&self) -> &CommitSha {
        self.after_merge.as_ref().map_or(&self.pull.head.commit, |after| &after.pull.head.commit)
    }
}

/// End of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its answer is recorded, and its delivery or re-plan has ended.
    Answered {
        /// Delivery that the answer has recorded, to be handled next.
        follows: Option<Box<Delivery>>,
    },
    /// It was stopped without an answer; dispatch decides about its cause.
    Stopped(CancelReason),
}

impl Ended {
    pub(super) fn answered() -> Ended {
        Ended::Answered { follows: None }
    }
}

/// Returns true if an interrupted run of this command is resumed. Commands that change states are not repeated; all others begin anew.
pub(crate) fn may_go_on(name: CommandName) -> bool {
    name == CommandName::Plan
}

/// Returns an entry of the audit log on a project of the command.
pub(super) fn audit_entry(work: &CommandRun, project: &ProjectId, result: String) -> AuditEntry {
    let pull = Some(&work.pull.id).filter(|pull| !pull.is_branch());
    let place = pull.map_or_else(|| work.pull.id.repo.to_string(), ToString::to_string);
    let command = &work.command;
    let overrides: String = command.overrides.iter().map(|name| format!(" --override {name}")).collect();
    let act = match command.trigger {
        Trigger::AutoApply => "automatic apply".to_owned(),
        _ => format!("{}{}{overrides}", command.name.spoken(), if command.force { " --force" } else { "" }),
    };
    AuditEntry {
        at: Timestamp::now(),
        act: if pull.is_some() { act } else { format!("drift {act}") },
        subject: format!("{} of {place} at {}", project.label(), &work.pull.head.commit),
        result,
        why: work.command.why.clone(),
        pull: pull.cloned(),
        project: Some(project.label()),
        commit: Some(work.pull.head.commit.clone()),
        request: (work.run.cause != Cause::None).then(|| work.run.cause.to_string()),
        ..AuditEntry::by(&work.command.asked_by())
    }
}

/// Returns the maximum age of a plan of this project when it is applied; `None` for no limit.
pub(super) fn plan_limit(ctx: &Context, config: &ProjectConfig) -> Option<Duration> {
    Some(config.plan_max_age.unwrap_or(ctx.settings.plan_max_age)).filter(|limit| !limit.is_zero())
}

/// Returns the state of a job that has ended with this outcome.
pub(super) fn job_state(outcome: &JobOutcome) -> JobState {
    match &outcome.outcome {
        Outcome::Errored(fault) if fault.reason == Reason::Interrupted => JobState::Interrupted,
        outcome if outcome.is_success() => JobState::Succeeded,
        _ => JobState::Failed,
    }
}
