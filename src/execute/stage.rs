//! Runs the steps of one stage of a workflow, in order, until one breaks. Each step kind is in [`super::steps`].

use super::environment::{self, Environment};
use super::filters::filtered_failure;
use super::job::{self, Job};
use super::plan::project_dir;
use super::prepare::Prepared;
use super::requirements::PullFacts;
use super::state_locks::{self, Left};
use super::{Context, Why, Work};
use crate::config::ProjectConfig;
use crate::config::workflow::{EnvValue, OutputFilter, Step};
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::process::{Finished, Invocation};
use crate::reply::wording::duration;
use crate::store::logs::LogWriter;
use crate::terraform::install::Tool;
use crate::terraform::summary::strip_ansi;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// Bytes of one step's output that are kept for the comment; the log has more.
const OUTPUT_LIMIT: usize = 2 * 1024 * 1024;
/// Between SIGINT and SIGKILL for what changes nothing.
const GRACE: Duration = Duration::from_secs(10);
/// The same for an apply: Terraform finishes the operations that run and saves the state.
const APPLY_GRACE: Duration = Duration::from_secs(300);

/// One stage on one project.
pub(super) struct Stage<'a> {
    pub(super) ctx: &'a Context,
    pub(super) work: &'a Work,
    pub(super) config: &'a ProjectConfig,
    /// What the stage is for: it words errors, and decides how patient an interruption is.
    pub(super) command: CommandName,
    /// Root of the tree.
    pub(super) root: &'a Path,
    /// Our own git directory of the tree.
    pub(super) git_dir: &'a Path,
    /// Project directory.
    pub(super) dir: PathBuf,
    pub(super) tool: &'a Tool,
    pub(super) log: &'a LogWriter,
    pub(super) plan_file: &'a Path,
    pub(super) facts: &'a PullFacts,
    /// Environment of the next step; `env` and `multienv` steps add to it.
    pub(super) env: Environment,
    /// Texts for the comment, in order.
    pub(super) shown: Vec<String>,
    /// Set when a process of it was killed.
    killed: &'a AtomicBool,
}

/// Where the steps of a project run, and with what.
pub(super) struct Place {
    /// Root of the tree.
    pub(super) root: PathBuf,
    /// Our own git directory of the tree.
    pub(super) git_dir: PathBuf,
    /// Project directory.
    pub(super) dir: PathBuf,
    pub(super) tool: Tool,
    pub(super) plan_file: PathBuf,
}

impl Place {
    /// The place of a job that needs no plan. The project's directory is the job's alone until the guard goes. `Err` is how the job ends.
    pub(super) async fn of(
        job: &mut Job<'_>,
        prepared: &Prepared,
        config: &ProjectConfig,
    ) -> Result<(Self, OwnedMutexGuard<()>), Outcome> {
        let (ctx, work) = (job.ctx, job.work);
        let internal = |error: anyhow::Error| {
            Outcome::Errored(Fault { reason: Reason::Internal, message: format!("{error:#}"), output: String::new() })
        };
        let tree = match job::tree(ctx, work, prepared, config, &prepared.fetched).await {
            Ok(tree) => tree,
            Err(stop) => return Err(job::stop_outcome(ctx, work, stop).unwrap_or_else(internal)),
        };
        let dir = project_dir(&tree.root, &config.id.dir).map_err(Outcome::Errored)?;
        let guard = ctx.directories.lock(&dir).await;
        let tool = job.tool(config, &tree).await?;
        let plan_file = dir.join(job::plan_file_name(&config.id));
        Ok((Self { root: tree.root, git_dir: tree.git_dir, dir, tool, plan_file }, guard))
    }
}

/// A program that a step runs.
pub(super) struct Call<'c> {
    /// For messages: `terraform plan`.
    pub(super) what: &'c str,
    pub(super) program: &'c Path,
    pub(super) args: Vec<String>,
    /// Its lines go to the job's log.
    pub(super) logged: bool,
    /// Bytes of its standard output that are kept as they are, for us to read.
    pub(super) read_limit: usize,
    /// Its standard output is not shown when it fails either.
    pub(super) hides_stdout: bool,
    /// What of its output a failure shows.
    pub(super) filters: &'c [OutputFilter],
}

impl<'c> Call<'c> {
    /// Logged, and shown as it is when it fails.
    pub(super) fn new(what: &'c str, program: &'c Path, args: Vec<String>) -> Call<'c> {
        Call { what, program, args, logged: true, read_limit: 0, hides_stdout: false, filters: &[] }
    }
}

/// A step that ends its stage.
pub(super) enum Broken {
    /// With an error.
    Fault(Fault),
    /// Because the command was stopped.
    Stopped,
    /// With a refusal, such as `-target` on apply.
    Refused(Failure),
}

impl Broken {
    /// As the job's outcome.
    pub(super) fn outcome(self, work: &Work) -> Outcome {
        match self {
            Broken::Fault(fault) => Outcome::Errored(fault),
            Broken::Refused(failure) => Outcome::Failed(failure),
            Broken::Stopped => Outcome::Failed(Failure::Cancelled { by: work.cancel.by() }),
        }
    }
}

impl<'a> Stage<'a> {
    /// The stage that a job's command asks for.
    pub(super) fn new(
        job: &'a Job<'a>,
        config: &'a ProjectConfig,
        place: &'a Place,
        facts: &'a PullFacts,
    ) -> Stage<'a> {
        let files = environment::Files { dir: &place.dir, plan: &place.plan_file };
        Stage {
            ctx: job.ctx,
            work: job.work,
            config,
            command: job.work.command.name,
            root: &place.root,
            git_dir: &place.git_dir,
            dir: place.dir.clone(),
            tool: &place.tool,
            log: &job.log,
            plan_file: &place.plan_file,
            facts,
            env: environment::for_steps(job.ctx, job.work, config, &place.tool, &files),
            shown: Vec::new(),
            killed: &job.killed,
        }
    }
}

impl Stage<'_> {
    /// Runs the steps; the texts for the comment are in `shown` afterwards.
    pub(super) async fn run(&mut self, steps: &[Step]) -> Result<(), Broken> {
        if steps.iter().any(|step| matches!(step, Step::Run { .. } | Step::Env { .. } | Step::Multienv { .. })) {
            self.tell_pull_facts().await;
        }
        for step in steps {
            if self.work.cancel.token.is_cancelled() {
                return Err(Broken::Stopped);
            }
            match step {
                Step::Init { extra_args } => self.init(extra_args).await?,
                Step::Plan { extra_args } => self.plan(extra_args).await?,
                Step::Apply { extra_args } => self.apply(extra_args).await?,
                Step::Show { extra_args } => self.show(extra_args).await?,
                Step::Import { extra_args } => self.state_command(&["import"], extra_args).await?,
                Step::StateRm { extra_args } => self.state_command(&["state", "rm"], extra_args).await?,
                Step::Run { command, output } => self.run_step(command, output).await?,
                Step::Env { name, value: EnvValue::Value(value) } => environment::set(&mut self.env, name, value),
                Step::Env { name, value: EnvValue::Command(command) } => self.env_command(name, command).await?,
                Step::Multienv { command, show } => self.multienv(command, *show).await?,
                Step::PolicyCheck { .. } => {
                    return Err(self.fault(Reason::Config, "the `policy_check` step is not built yet", ""));
                }
            }
        }
        Ok(())
    }

    /// `ATLANTIS_PR_APPROVED` and `ATLANTIS_PR_MERGEABLE`, asked only where a step of the user's could read them.
    async fn tell_pull_facts(&mut self) {
        if !matches!(self.command, CommandName::Plan | CommandName::Apply) {
            return;
        }
        let (approved, mergeable) =
            tokio::join!(self.facts.approved(self.ctx, self.work), self.facts.mergeable(self.ctx, self.work));
        let approved = approved.is_ok_and(|approval| approval.met);
        let mergeable = mergeable.is_ok_and(|found| found.mergeable);
        environment::set(&mut self.env, "ATLANTIS_PR_APPROVED", approved.to_string());
        environment::set(&mut self.env, "ATLANTIS_PR_MERGEABLE", mergeable.to_string());
    }

    /// The stage's own word for the marker.
    pub(super) fn reason(&self) -> Reason {
        match self.command {
            CommandName::Apply => Reason::Apply,
            CommandName::Plan => Reason::Plan,
            _ => Reason::Internal,
        }
    }

    /// An error with the output so far.
    pub(super) fn fault(&self, reason: Reason, message: &str, output: &str) -> Broken {
        let mut texts: Vec<&str> = self.shown.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        texts.push(output);
        Broken::Fault(Fault { reason, message: message.to_owned(), output: texts.join("\n") })
    }

    /// Runs a program in the project's directory.
    pub(super) async fn run_call(&self, call: Call<'_>) -> Result<Finished, Broken> {
        let began = Instant::now();
        let Call { what, program, args, logged, read_limit, hides_stdout, filters } = call;
        let invocation = Invocation {
            timeout: self.ctx.settings.job_timeout,
            grace: if self.changes_something() { APPLY_GRACE } else { GRACE },
            output_limit: OUTPUT_LIMIT,
            read_limit,
            hides_stdout,
            run_as: self.ctx.settings.run_as_user,
            ..Invocation::new(program, args, &self.dir).env(self.env.clone())
        };
        let sink = |line: &str| self.log.line(line);
        let running = crate::process::run(
            invocation,
            &self.ctx.redactor,
            &self.work.cancel.token,
            logged.then_some(&sink as crate::process::LineSink<'_>),
        );
        let finished = tokio::select! {
            finished = running => finished.map_err(|error| self.fault(self.reason(), &format!("{what}: {error:#}"), ""))?,
            () = self.shutdown_deadline() => {
                self.killed.store(true, Ordering::Relaxed);
                if !self.changes_something() {
                    return Err(Broken::Stopped);
                }
                let message = format!(
                    "{what}: the server was told to stop; this was interrupted, did not end within {} s and was killed. {}",
                    self.until_killed().as_secs(),
                    state_locks::after_kill(self.ctx, &self.config.id, &Left::Unknown)
                );
                return Err(self.fault(Reason::Interrupted, &message, ""));
            }
        };
        if finished.signal == Some(rustix::process::Signal::KILL.as_raw()) {
            self.killed.store(true, Ordering::Relaxed);
        }
        self.judge(what, finished, filters, began)
    }

    /// Exit 0 is fine; everything else is worded, with as much of the output as its filters let through.
    fn judge(
        &self,
        what: &str,
        finished: Finished,
        filters: &[OutputFilter],
        began: Instant,
    ) -> Result<Finished, Broken> {
        if finished.code == Some(0) && !finished.cancelled && !finished.timed_out {
            return Ok(finished);
        }
        let ended = match (finished.code, finished.signal) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        };
        let time = duration(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let output = filtered_failure(strip_ansi(&finished.output), filters);
        if finished.timed_out {
            let message = format!("{what}: interrupted after {time}, the limit set by --job-timeout ({ended})");
            return Err(self.fault(Reason::Timeout, &message, &output));
        }
        if !finished.cancelled {
            return Err(self.fault(self.reason(), &format!("{what}: {ended}"), &output));
        }
        if !self.changes_something() {
            return Err(Broken::Stopped);
        }
        let by = self.work.cancel.by();
        let lock = match self.killed.load(Ordering::Relaxed) {
            true => format!(". {}", state_locks::after_kill(self.ctx, &self.config.id, &Left::Unknown)),
            false => String::new(),
        };
        let message = format!(
            "{what}: interrupted by {by} after {time} ({ended}). What had been changed until then is changed; see what is left with \
             a new plan{lock}"
        );
        Err(self.fault(Reason::Interrupted, &message, &output))
    }

    /// Whether an interruption may leave something half done, so that it is waited for and told.
    fn changes_something(&self) -> bool {
        matches!(self.command, CommandName::Apply | CommandName::Import | CommandName::StateRm)
    }

    async fn shutdown_deadline(&self) {
        self.work.cancel.token.cancelled().await;
        if self.work.cancel.why() != Some(&Why::Shutdown) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.until_killed()).await;
    }

    /// How long a shutdown waits for what it interrupted; the rest of the time is for telling how it ended.
    fn until_killed(&self) -> Duration {
        self.ctx.settings.interrupt_time() * 3 / 4
    }
}
