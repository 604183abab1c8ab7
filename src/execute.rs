//! Runs one command on one pull request: checkout, schedule, jobs, and the answer that is recorded with its results.
//!
//! [`run`] never fails: what breaks becomes the answer. Everything visible is enqueued in the transaction that records it.

pub mod abandoned;
mod admission;
mod apply;
mod arguments;
mod candidates;
mod current;
pub mod errored_state;
mod extra;
mod force_unlock;
mod hooks;
mod job;
mod memory;
mod plan;
mod prepare;
mod requirements;
mod room;
pub mod state_locks;
mod status_update;
mod unrecorded;

use crate::checkout::Checkouts;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::{Fault, JobOutcome, Reason};
use crate::domain::reply::{Message, Reply, ReplyBody, Results};
use crate::domain::state::{AuditEntry, DeliveryState, Effect, JobState, NewEffect, Run};
use crate::domain::{ProjectId, PullId, PullRequest};
use crate::process::Redactor;
use crate::reply::marker;
use crate::reply::outbox::Outbox;
use crate::reply::render::{RenderOptions, render};
use crate::reply::statuses::Statuses;
use crate::runner::local::Local;
use crate::settings::Settings;
use crate::store::logs::Logs;
use crate::store::{Store, Tx, is_deposed};
use crate::terraform::install::Installer;
use crate::vcs::Hosts;
use anyhow::Result;
use futures::FutureExt as _;
use jiff::Timestamp;
use status_update::StatusUpdate;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;
use unrecorded::{JobEnd, Unrecorded};

pub use admission::Admission;
pub use plan::remove_plan_files;
pub use room::{Room, before_restore};

/// Of a job whose end could not be recorded, although its command went on.
const END_LOST: &str = "its end could not be recorded";

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
    /// Wording of commit statuses.
    pub statuses: Statuses,
    /// Wording of comments.
    pub rendering: RenderOptions,
    /// Masks secrets.
    pub redactor: Redactor,
    /// Bounds the jobs of all pull requests together.
    pub admission: Admission,
    /// Bounds what they take of disk and memory.
    pub room: Room,
    /// Runs the steps of jobs.
    pub runner: Local,
    /// Killed jobs that nobody was told of yet.
    pub doubts: state_locks::Doubts,
}

impl Context {
    /// A pull request as its host writes it, such as `#7`.
    pub fn written(&self, pull: &PullId) -> String {
        let mark = self.hosts.of(&pull.repo).map_or('#', |host| host.profile().pull_mark);
        format!("{mark}{}", pull.number)
    }
}

/// Asks a command to stop, and says why.
#[derive(Clone, Default)]
pub struct Cancel {
    /// What jobs wait for.
    pub token: CancellationToken,
    why: Arc<OnceLock<Why>>,
    /// The pull request may be another one than when the command began.
    changed: Arc<AtomicBool>,
}

/// Why a command was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Somebody said `cancel`.
    Person(String),
    /// The pull request has a newer head, this one.
    Push(String),
    /// The pull request was closed.
    Closed,
    /// The server is stopping.
    Shutdown,
}

impl Cancel {
    /// Stops it; the first reason counts.
    pub fn cancel(&self, why: Why) {
        let _ = self.why.set(why);
        self.token.cancel();
    }

    /// Says that something happened to the pull request: what has not begun yet looks at it again. Nothing is stopped.
    pub fn note_change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Whether something happened to it since this was asked last.
    pub fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Why it was stopped, if it was.
    pub fn why(&self) -> Option<&Why> {
        self.why.get()
    }

    fn by(&self) -> String {
        match self.why() {
            Some(Why::Person(user)) => user.clone(),
            Some(Why::Push(head)) => format!("a push of {}", &head[..head.len().min(7)]),
            Some(Why::Closed) => "the closing of the pull request".into(),
            Some(Why::Shutdown) | None => "the server's shutdown".into(),
        }
    }
}

/// One command at work.
pub struct Work {
    /// The run, recorded before anything visible happens.
    pub run: Run,
    /// The pull request as it was when the command began.
    pub pull: PullRequest,
    /// The command.
    pub command: Command,
    /// Rules of the repository and base branch.
    pub rules: RepoRules,
    /// Stops it.
    pub cancel: Cancel,
    /// How many jobs it has begun.
    pub begun: AtomicUsize,
    /// What its answer records besides itself.
    pub unrecorded: Unrecorded,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Its answer is recorded, and its delivery done.
    Answered,
    /// It was stopped without an answer; dispatch decides what becomes of its delivery.
    Stopped(Why),
}

/// Runs a command to its answer.
pub async fn run(ctx: &Context, work: &Work) -> Ended {
    let error = match with_room(ctx, work).await {
        Ok(ended) => return ended,
        Err(error) => error,
    };
    if is_deposed(&error) {
        for end in work.unrecorded.take() {
            unrecorded::pass_on(ctx, work, &end.outcome).await;
        }
        tracing::info!(pull = %work.pull.id, command = work.command.name.as_str(), "another server leads now: {error:#}");
        return Ended::Stopped(Why::Shutdown);
    }
    tracing::error!(pull = %work.pull.id, command = work.command.name.as_str(), error = format!("{error:#}"), "command broke");
    let id = work.run.id.clone();
    if ctx.store.read(move |view| Ok(view.run(&id)?.is_some_and(|run| run.answered))).await.unwrap_or(false) {
        // What broke came after its answer: that stays the only one.
        return Ended::Answered;
    }
    let fault = Fault {
        reason: Reason::Internal,
        message: ctx.redactor.redact(&format!("Something broke inside the server: {error:#}")),
        output: String::new(),
    };
    match (Answer::error(fault)).record(ctx, work).await {
        Ok(()) => Ended::Answered,
        Err(error) => {
            tracing::error!(pull = %work.pull.id, error = format!("{error:#}"), "the answer could not be recorded");
            Ended::Stopped(Why::Shutdown)
        }
    }
}

/// Runs it, if there is room for it; what it uses is not removed meanwhile to make room for others.
async fn with_room(ctx: &Context, work: &Work) -> Result<Ended> {
    let settings = &ctx.settings;
    if let Some(fault) = arguments::refused(&work.command, &settings.var_file_allowlist, &ctx.rendering.executable) {
        Answer::refused(fault).record(ctx, work).await?;
        return Ok(Ended::Answered);
    }
    let _checkouts = ctx.checkouts.using(&work.pull.id).await;
    if let Some(fault) = room::on_disk(ctx, work).await {
        Answer::error(fault).record(ctx, work).await?;
        return Ok(Ended::Answered);
    }
    let _binaries = ctx.installer.using().await;
    match work.command.name {
        CommandName::Plan => plan::run(ctx, work).boxed().await,
        CommandName::Apply => apply::run(ctx, work).boxed().await,
        _ => extra::run(ctx, work).boxed().await,
    }
}

/// The answer to a command: what is said and which statuses are set, recorded together with the run's end.
#[derive(Clone)]
struct Answer {
    body: Option<ReplyBody>,
    statuses: StatusUpdate,
}

impl Answer {
    fn error(fault: Fault) -> Answer {
        let because = fault.message.lines().next().unwrap_or_default().to_owned();
        Answer { body: Some(ReplyBody::CommandError(fault)), statuses: StatusUpdate::Failed(because) }
    }

    /// A command that was refused before anything was done.
    fn refused(fault: Fault) -> Answer {
        let statuses = StatusUpdate::AsBefore("an argument is refused".into());
        Answer { body: Some(ReplyBody::CommandError(fault)), statuses }
    }

    fn message(message: Message) -> Answer {
        Answer { body: Some(ReplyBody::Message(message)), statuses: StatusUpdate::Nothing }
    }

    fn results(work: &Work, outcomes: Vec<JobOutcome>, remarks: Vec<String>, statuses: StatusUpdate) -> Answer {
        let results = Results { outcomes, base_branch: work.pull.base.branch.clone(), remarks };
        Answer { body: Some(ReplyBody::Results(results)), statuses }
    }

    /// Whether it tells that something broke or was refused: all of the command, or one of its projects.
    fn has_errors(&self) -> bool {
        let said = match &self.body {
            Some(ReplyBody::Results(results)) => results.outcomes.iter().any(|o| !o.outcome.is_success()),
            Some(ReplyBody::CommandError(_)) => true,
            Some(ReplyBody::Message(message)) => !matches!(message, Message::NoProjects { .. }),
            None => false,
        };
        said || matches!(self.statuses, StatusUpdate::Failed(_))
    }

    /// One commit: the run ends, its delivery is done, comments and statuses are in the outbox, and ends of jobs that are not recorded
    /// yet are.
    async fn record(self, ctx: &Context, work: &Work) -> Result<()> {
        let ends = work.unrecorded.take();
        if ends.is_empty() {
            return self.record_with(ctx, work, ends).await;
        }
        match self.clone().record_with(ctx, work, ends).await {
            Err(error) if !is_deposed(&error) => {
                // What was changed is told, whatever of its record finds no room.
                tracing::error!(pull = %work.pull.id, run = work.run.id, error = format!("{error:#}"), "the end of a job was not recorded");
                self.record_with(ctx, work, Vec::new()).await
            }
            recorded => recorded,
        }
    }

    async fn record_with(self, ctx: &Context, work: &Work, ends: Vec<JobEnd>) -> Result<()> {
        let mut run = work.run.clone();
        run.results = self.body.as_ref().map(marker::results).unwrap_or_default();
        let comments = self.body.map(|body| reply_comments(ctx, work, body)).unwrap_or_default();
        run.finished = Some(Timestamp::now());
        run.answered = true;
        let (pull, head, name) = (work.pull.id.clone(), work.pull.head.commit.clone(), work.command.name);
        let (statuses, update) = (ctx.statuses.clone(), self.statuses);
        let fault = update.fault_of_pull(work);
        let jobs: Vec<_> = ends.iter().map(JobEnd::recording).collect();
        let begun = beginning(ctx, work);
        let recorded = ctx
            .store
            .write(move |tx| {
                begun(tx)?;
                jobs.iter().try_for_each(|record| record(tx))?;
                if let Some(fault) = fault {
                    tx.set_fault(&pull, fault.as_deref())?;
                }
                // All that is said of this run is said here: a job of it that still seems to run has nobody.
                abandoned::end(tx, &statuses, END_LOST, false, |job| job.run == run.id)?;
                for status in update.resolve(tx, &statuses, &pull, &head, name)? {
                    let effect = Effect::Status { commit: head.clone(), status };
                    tx.enqueue(&NewEffect { pull: pull.clone(), effect })?;
                }
                for effect in comments {
                    tx.enqueue(&NewEffect { pull: pull.clone(), effect })?;
                }
                if let Some(delivery) = &run.delivery {
                    tx.set_delivery_state(delivery, DeliveryState::Done, &format!("run {}", run.id))?;
                }
                tx.put_run(&run)
            })
            .await;
        if let Err(error) = &recorded
            && is_deposed(error)
        {
            for end in &ends {
                unrecorded::pass_on(ctx, work, &end.outcome).await;
            }
        }
        recorded?;
        ctx.outbox.wake(&work.pull.id);
        Ok(())
    }
}

fn reply_comments(ctx: &Context, work: &Work, body: ReplyBody) -> Vec<Effect> {
    let reply = Reply {
        run: work.run.id.clone(),
        pull: work.pull.id.clone(),
        command: Some(work.command.clone()),
        head: Some(work.pull.head.commit.clone()),
        body,
    };
    comment_effects(&ctx.hosts, &ctx.rendering, &reply)
}

/// The comments of a reply, as effects for the outbox.
pub fn comment_effects(hosts: &Hosts, rendering: &RenderOptions, reply: &Reply) -> Vec<Effect> {
    let options = match hosts.of(&reply.pull.repo) {
        Ok(host) => rendering.on(host.profile()),
        Err(_) => RenderOptions { now: Timestamp::now(), ..rendering.clone() },
    };
    let bodies = render(reply, &options);
    let numbered = bodies.into_iter().zip(1..);
    numbered.map(|(body, part)| Effect::Comment { run: reply.run.clone(), part, body }).collect()
}

/// 128 random bits, hex: ids of runs, jobs, plans and replies.
pub fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => hex::encode(bytes),
        // The kernel's generator is never missing on a platform that we run on; an abort beats a guessable id.
        Err(_) => std::process::abort(),
    }
}

/// Whether a pending status of this command is told: only where its end will tell one too, and not with
/// `--silence-vcs-status-no-projects`.
fn tells_pending(ctx: &Context, work: &Work) -> bool {
    let settings = &ctx.settings;
    let autoplan = work.command.trigger == Trigger::Autoplan;
    let ends_with_one = job::status_wanted(work.command.name);
    ends_with_one && !(settings.silence_vcs_status_no_projects || (autoplan && settings.silence_vcs_status_no_plans))
}

/// Records the run's beginning by itself, so that people see it while Terraform does not run yet.
async fn begin(ctx: &Context, work: &Work) -> Result<()> {
    ctx.store.write(beginning(ctx, work)).await?;
    ctx.outbox.wake(&work.pull.id);
    Ok(())
}

/// The run's beginning and its pending status, unless they are recorded already.
fn beginning(ctx: &Context, work: &Work) -> impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static {
    let (run, pull) = (work.run.clone(), work.pull.clone());
    let pending = tells_pending(ctx, work).then(|| ctx.statuses.pending(work.command.name));
    move |tx| {
        if tx.run(&run.id)?.is_some() {
            return Ok(());
        }
        tx.put_run(&run)?;
        tx.put_pull(&pull)?;
        if let Some(delivery) = &run.delivery {
            tx.set_delivery_state(delivery, DeliveryState::Running, &run.id)?;
        }
        if let Some(status) = pending {
            let effect = Effect::Status { commit: pull.head.commit.clone(), status };
            tx.enqueue(&NewEffect { pull: pull.id.clone(), effect })?;
        }
        Ok(())
    }
}

/// The answer of a command that was stopped before it had one: none, where dispatch goes on with its delivery.
async fn stopped(ctx: &Context, work: &Work, why: Why) -> Result<Ended> {
    let mut run = work.run.clone();
    run.finished = Some(Timestamp::now());
    ctx.store.write(move |tx| tx.put_run(&run)).await?;
    Ok(Ended::Stopped(why))
}

fn audit_entry(work: &Work, project: &ProjectId, result: String) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        who: work.command.user.clone(),
        act: work.command.name.spoken().to_owned(),
        subject: format!("{} of {} at {}", project.label(), work.pull.id, &work.pull.head.commit),
        result,
        pull: Some(work.pull.id.clone()),
        project: Some(project.label()),
        commit: Some(work.pull.head.commit.clone()),
        plan: None,
        request: work.run.delivery.clone(),
    }
}

fn job_state(outcome: &JobOutcome) -> JobState {
    use crate::domain::outcome::Outcome;
    match &outcome.outcome {
        Outcome::Errored(fault) if fault.reason == Reason::Interrupted => JobState::Interrupted,
        Outcome::Failed(_) | Outcome::Errored(_) => JobState::Failed,
        _ => JobState::Succeeded,
    }
}
