//! Runs one command on one pull request: checkout, schedule, jobs, and the answer that is recorded with its results.
//!
//! [`run`] never fails: what breaks becomes the answer. Everything visible is enqueued in the transaction that records it.

pub(crate) mod abandoned;
mod admission;
mod applicable_plans;
mod apply;
mod approvals;
mod arguments;
pub(crate) mod automerge;
pub(crate) mod base_moves;
mod capacity;
mod current;
pub(crate) mod discarded;
mod discarded_approvals;
pub(crate) mod drift;
pub(crate) mod errored_state;
mod force_unlock;
mod freeze;
mod groups;
mod hooks;
mod job;
pub(crate) mod linked_dirs;
mod lock;
mod memory;
pub(crate) mod merged;
pub(crate) mod merged_changes;
mod names;
pub(crate) mod notices;
mod parts;
pub(crate) mod permissions;
mod plan;
mod plan_files;
mod policies;
mod prepare;
mod recorder;
mod requirements;
pub(crate) mod spare_trees;
mod state_commands;
pub(crate) mod state_locks;
mod status_update;
mod unrecorded_outcomes;

use crate::checkout::Checkouts;
use crate::config::ProjectConfig;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::{Fault, JobOutcome, Reason};
use crate::domain::reply::{Message, Reply, ReplyBody, Results};
use crate::domain::state::{AuditEntry, Delivery, Effect, JobState, Run};
use crate::domain::{CommitSha, Login, ProjectId, PullRequest, RunId};
use crate::notifications::Notifier;
use crate::process::Redactor;
use crate::reply::comments;
use crate::reply::outbox::Outbox;
use crate::reply::render::RenderOptions;
use crate::reply::statuses::Statuses;
use crate::runner::local::Local;
use crate::settings::Settings;
use crate::store::logs::Logs;
use crate::store::{Store, is_deposed};
use crate::terraform::install::Installer;
use crate::vcs::Hosts;
use anyhow::Result;
use futures::FutureExt as _;
use jiff::Timestamp;
use merged::AfterMerge;
use policies::CheckedPlans;
use status_update::StatusUpdate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use unrecorded_outcomes::UnrecordedOutcomes;

pub(crate) use admission::Admission;
pub(crate) use capacity::{Capacity, before_restore};
pub(crate) use plan::{remove_plan_files, waited_for};
pub(crate) use prepare::{read_config as read_repo_config, schedule_options};

/// The services that commands need; made once by `app`.
pub struct Context {
    /// Settings.
    pub settings: Arc<Settings>,
    /// Server-side configuration.
    pub global: GlobalConfig,
    /// State.
    pub store: Store,
    /// Logs of jobs.
    pub logs: Logs,
    /// The VCS hosts.
    pub hosts: Hosts,
    /// Working trees.
    pub checkouts: Checkouts,
    /// Terraform binaries.
    pub installer: Arc<Installer>,
    /// Posts what is recorded.
    pub outbox: Outbox,
    /// Tells those who are told besides the pull request.
    pub notifier: Notifier,
    /// Wording of commit statuses.
    pub statuses: Statuses,
    /// Wording of comments.
    pub rendering: RenderOptions,
    /// Masks secrets.
    pub redactor: Redactor,
    /// Bounds the jobs of all pull requests together.
    pub admission: Admission,
    /// Bounds what they take of disk and memory.
    pub capacity: Capacity,
    /// Runs the steps of jobs.
    pub runner: Local,
    /// Killed jobs that nobody was told of yet.
    pub orphaned_locks: state_locks::OrphanedLocks,
    /// Memberships of teams.
    pub teams: permissions::TeamMembers,
}

/// Asks a command to stop, and says why.
#[derive(Clone, Default)]
pub(crate) struct Cancel {
    /// What jobs wait for.
    pub token: CancellationToken,
    reason: Arc<OnceLock<CancelReason>>,
    /// The pull request may be another one than when the command began.
    changed: Arc<AtomicBool>,
    answered: Arc<AtomicBool>,
}

/// Why a command was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// Somebody said `cancel`.
    Person(Login),
    /// The pull request has a newer head.
    Push {
        /// The newer head.
        head: CommitSha,
        /// Whether a plan of it is queued.
        is_planned: bool,
    },
    /// The pull request was closed.
    Closed,
    /// The server is stopping.
    Shutdown,
}

impl Cancel {
    /// Stops it; the first reason counts.
    pub(crate) fn cancel(&self, why: CancelReason) {
        let _ = self.reason.set(why);
        self.token.cancel();
    }

    /// Says that something happened to the pull request: what has not begun yet looks at it again. Nothing is stopped.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Whether something happened to it since this was asked last.
    pub(crate) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Says that the command's answer is recorded: what still runs of it are hooks, and the removal of its trees.
    fn note_answered(&self) {
        self.answered.store(true, Ordering::SeqCst);
    }

    /// Whether its answer is recorded.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Why it was stopped, if it was.
    pub(crate) fn reason(&self) -> Option<&CancelReason> {
        self.reason.get()
    }

    fn by(&self) -> String {
        match self.reason() {
            Some(CancelReason::Person(user)) => user.to_string(),
            Some(CancelReason::Push { head, .. }) => format!("a push of {}", head.short()),
            Some(CancelReason::Closed) => "the closing of the pull request".into(),
            Some(CancelReason::Shutdown) | None => "the server's shutdown".into(),
        }
    }
}

/// One command at work.
pub(crate) struct CommandRun {
    /// The run, recorded before anything visible happens.
    pub run: Run,
    /// The pull request as it was when the command began.
    pub pull: PullRequest,
    /// The command.
    pub command: Command,
    /// Rules of the repository and base branch.
    pub rules: RepoRules,
    /// On a merged pull request that has not applied all of it. Its head is the tip of the base branch then.
    pub after_merge: Option<AfterMerge>,
    /// Stops it.
    pub cancel: Cancel,
    /// Ends of jobs that its answer records.
    pub unrecorded: UnrecordedOutcomes,
}

/// A run of this command that begins now, without a delivery. Nothing of it is recorded yet.
pub(crate) fn new_run(pull: &PullRequest, command: &Command) -> Run {
    Run {
        id: RunId::of(random_bits()),
        pull: pull.id.clone(),
        command: command.name,
        trigger: command.trigger,
        user: command.user.clone(),
        head: pull.head.commit.clone(),
        delivery: None,
        everything: command.target.is_all(),
        started: Timestamp::now(),
        finished: None,
        answered: false,
        results: Vec::new(),
        automerge: None,
    }
}

impl CommandRun {
    /// A command on a pull request that is not merged.
    pub(crate) fn new(run: Run, pull: PullRequest, command: Command, rules: RepoRules, cancel: Cancel) -> CommandRun {
        CommandRun { run, pull, command, rules, after_merge: None, cancel, unrecorded: UnrecordedOutcomes::default() }
    }

    /// The head that people have reviewed: after the merge, the one that was merged.
    fn reviewed_head(&self) -> &CommitSha {
        self.after_merge.as_ref().map_or(&self.pull.head.commit, |after| &after.pull.head.commit)
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its answer is recorded, and its delivery done.
    Answered {
        /// Delivery that the answer has recorded, to be taken up next.
        follows: Option<Box<Delivery>>,
    },
    /// It was stopped without an answer; dispatch decides what becomes of its delivery.
    Stopped(CancelReason),
}

impl Ended {
    fn answered() -> Ended {
        Ended::Answered { follows: None }
    }
}

/// Runs a command to its answer.
pub(crate) async fn run(ctx: &Context, work: &mut CommandRun) -> Ended {
    let error = match with_capacity(ctx, work).await {
        Ok(ended) => return ended,
        Err(error) => error,
    };
    if is_deposed(&error) {
        for end in work.unrecorded.take() {
            unrecorded_outcomes::pass_on(ctx, work, &end.outcome).await;
        }
        tracing::info!(pull = %work.pull.id, command = work.command.name.as_str(), "another server leads now: {error:#}");
        return Ended::Stopped(CancelReason::Shutdown);
    }
    tracing::error!(pull = %work.pull.id, command = work.command.name.as_str(), error = format!("{error:#}"), "command broke");
    let id = work.run.id.clone();
    if ctx.store.read(move |view| Ok(view.run(&id)?.is_some_and(|run| run.answered))).await.unwrap_or(false) {
        // What broke came after its answer: that stays the only one.
        return Ended::answered();
    }
    let fault = Fault {
        reason: Reason::Internal,
        message: ctx.redactor.redact(&format!("Something broke inside the server: {error:#}")),
        output: String::new(),
    };
    match recorder::answer(ctx, work, CommandAnswer::error(fault)).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(pull = %work.pull.id, error = format!("{error:#}"), "the answer could not be recorded");
            Ended::Stopped(CancelReason::Shutdown)
        }
    }
}

/// Runs it, if there is room for it; what it uses is not removed meanwhile to make room for others.
async fn with_capacity(ctx: &Context, work: &mut CommandRun) -> Result<Ended> {
    let settings = &ctx.settings;
    if let Some(fault) = arguments::refused(&work.command, &settings.var_file_allowlist, &ctx.rendering.executable) {
        return recorder::answer(ctx, work, CommandAnswer::refused(fault)).await;
    }
    if let Some(answer) = permissions::refused_everywhere(ctx, work).await {
        return recorder::answer(ctx, work, answer).await;
    }
    let _checkouts = ctx.checkouts.using(&work.pull.id).await?;
    if let Some(fault) = capacity::on_disk(ctx, work).await {
        return recorder::answer(ctx, work, CommandAnswer::error(fault)).await;
    }
    let _binaries = ctx.installer.using().await;
    // What its hooks and jobs have as home directory.
    let _folder = ctx.runner.folder(&work.run.id, &work.pull.id);
    match work.command.name {
        CommandName::Plan => plan::run(ctx, work).boxed().await,
        CommandName::Apply => apply::run(ctx, work).boxed().await,
        _ => state_commands::run(ctx, work).boxed().await,
    }
}

/// The answer to a command: what is said and which statuses are set, recorded together with the run's end.
#[derive(Clone)]
struct CommandAnswer {
    body: Option<ReplyBody>,
    statuses: StatusUpdate,
    /// What policy checks of a plan add to it.
    policies: Option<CheckedPlans>,
    /// What is to be done next.
    follows: Option<Delivery>,
}

impl CommandAnswer {
    fn new(body: Option<ReplyBody>, statuses: StatusUpdate) -> CommandAnswer {
        CommandAnswer { body, statuses, policies: None, follows: None }
    }

    fn error(fault: Fault) -> CommandAnswer {
        let because = fault.message.lines().next().unwrap_or_default().to_owned();
        CommandAnswer::new(Some(ReplyBody::CommandError(fault)), StatusUpdate::Failed(because))
    }

    /// A command that was refused before anything was done.
    fn refused(fault: Fault) -> CommandAnswer {
        let statuses = StatusUpdate::AsBefore("it is refused".into());
        CommandAnswer::new(Some(ReplyBody::CommandError(fault)), statuses)
    }

    fn message(message: Message) -> CommandAnswer {
        CommandAnswer::new(Some(ReplyBody::Message(message)), StatusUpdate::Nothing)
    }

    fn results(
        work: &CommandRun,
        outcomes: Vec<JobOutcome>,
        remarks: Vec<String>,
        statuses: StatusUpdate,
    ) -> CommandAnswer {
        let results = Results { outcomes, base_branch: work.pull.base.branch.clone(), remarks };
        CommandAnswer::new(Some(ReplyBody::Results(results)), statuses)
    }

    /// Outcomes of its projects.
    fn outcomes(&self) -> &[JobOutcome] {
        match &self.body {
            Some(ReplyBody::Results(results)) => &results.outcomes,
            _ => &[],
        }
    }

    /// Whether it tells that something broke or was refused: all of the command, or one of its projects.
    fn has_errors(&self) -> bool {
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

/// The comments of a reply, as effects for the outbox.
pub(crate) fn comment_effects(ctx: &Context, reply: &Reply) -> Vec<Effect> {
    comments::effects_on(&ctx.hosts, &ctx.rendering, reply)
}

/// 128 random bits, hex.
pub(crate) fn random_id() -> String {
    format!("{:032x}", random_bits())
}

/// Random bits: ids of runs, jobs, plans and replies.
pub(crate) fn random_bits() -> u128 {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_be_bytes(bytes),
        // The kernel's generator is never missing on a platform that we run on; an abort beats a guessable id.
        Err(_) => std::process::abort(),
    }
}

/// Waits until the machine has time for what nobody waits for, at most this long.
pub(crate) async fn calm(ctx: &Context, limit: Duration) {
    let _ = tokio::time::timeout(limit, ctx.admission.calm()).await;
}

/// Whether a run of this command that was cut is gone on with. What changes state is not repeated; what else there is begins anew.
pub(crate) fn may_go_on(name: CommandName) -> bool {
    name == CommandName::Plan
}

fn audit_entry(work: &CommandRun, project: &ProjectId, result: String) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        who: work.command.user.to_string(),
        act: format!("{}{}", work.command.name.spoken(), if work.command.force { " --force" } else { "" }),
        subject: format!("{} of {} at {}", project.label(), work.pull.id, &work.pull.head.commit),
        result,
        why: work.command.why.clone(),
        pull: Some(work.pull.id.clone()),
        project: Some(project.label()),
        commit: Some(work.pull.head.commit.clone()),
        plan: None,
        request: work.run.delivery.as_ref().map(ToString::to_string),
    }
}

/// How old a plan of this project may be when it is applied; absent where that does not matter.
fn plan_limit(ctx: &Context, config: &ProjectConfig) -> Option<Duration> {
    Some(config.plan_max_age.unwrap_or(ctx.settings.plan_max_age)).filter(|limit| !limit.is_zero())
}

fn job_state(outcome: &JobOutcome) -> JobState {
    use crate::domain::outcome::Outcome;
    match &outcome.outcome {
        Outcome::Errored(fault) if fault.reason == Reason::Interrupted => JobState::Interrupted,
        outcome if outcome.is_success() => JobState::Succeeded,
        _ => JobState::Failed,
    }
}
