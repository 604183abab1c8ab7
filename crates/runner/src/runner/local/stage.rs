//! Runs the steps of one stage of a workflow, in order, until one breaks. The kinds of steps are in [`super::steps`].

use super::environment::{self, Environment};
use super::filters::filtered_failure;
use super::made_of::MadeOf;
use super::sealed::{Copies, PlanToRead, Sealed};
use super::secrets::JobSecrets;
use super::timeline::Timeline;
use super::{Io, Local, Place, RunFolder, Surroundings, modules};
use crate::process::{Answering, Finished, Invocation, LineSink, Redactor};
use crate::runner::result::{PoliciesRan, StepProblem, kind_of_step};
use crate::runner::spec::JobSpec;
use crate::terraform::summary::strip_ansi;
use secrecy::ExposeSecret;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidelock_core::config::workflow::{EnvValue, OutputFilter, Step};
use tidelock_core::domain::guards::TrippedGuard;

/// One stage on one project.
pub(super) struct Stage<'a> {
    pub(super) local: &'a Local,
    pub(super) spec: &'a JobSpec,
    pub(super) place: &'a Place,
    pub(super) io: &'a Io<'a>,
    /// Environment of the next step; `env` and `multienv` steps add to it.
    pub(super) env: Environment,
    /// Texts for the comment, in order.
    pub(super) shown: Vec<String>,
    /// Results of a `policy_check` step.
    pub(super) policies: Option<PoliciesRan>,
    /// Output of each `run` step of a policy check, if that is the result.
    pub(super) printed: Vec<String>,
    /// Inputs of its plan.
    pub(super) made_of: MadeOf,
    /// Guards that its code trips.
    pub(super) code_guards: Vec<TrippedGuard>,
    /// Copies of sealed files, for commands.
    pub(super) copies: Arc<Copies>,
    /// The plan that it reads; absent if it makes one.
    pub(super) plan: Option<Arc<Sealed>>,
    /// The JSON of the plan, after it was shown.
    pub(super) json: Option<Arc<Sealed>>,
    /// The folder of the run, with the home directory of steps.
    pub(super) folder: Option<Arc<RunFolder>>,
    /// The project's secrets.
    pub(super) secrets: &'a JobSecrets,
    /// Masks secrets in all output, also those of the project.
    pub(super) redactor: &'a Redactor,
    /// Set if one of its processes was killed.
    killed: &'a AtomicBool,
    timeline: &'a Timeline,
}

/// Data that the stages of a job share.
pub(super) struct StageJob<'a> {
    pub(super) local: &'a Local,
    pub(super) spec: &'a JobSpec,
    pub(super) place: &'a Place,
    pub(super) io: &'a Io<'a>,
    /// Set if one of its processes was killed.
    pub(super) killed: &'a AtomicBool,
    /// Times of the steps so far.
    pub(super) timeline: &'a Timeline,
    /// Copies of sealed files, for commands.
    pub(super) copies: &'a Arc<Copies>,
    /// The plan that they read; absent if they make one.
    pub(super) plan: Option<&'a PlanToRead>,
    /// The folder of the run, with the home directory of steps.
    pub(super) folder: Option<&'a Arc<RunFolder>>,
    /// The project's secrets.
    pub(super) secrets: &'a JobSecrets,
}

/// A program that a step runs.
pub(super) struct Call<'c> {
    /// Name for messages, such as `terraform plan`.
    pub(super) what: &'c str,
    pub(super) program: &'c Path,
    pub(super) args: Vec<String>,
    /// True if its lines go to the job's log.
    pub(super) logged: bool,
    /// Bytes of its standard output that are kept unchanged for the server.
    pub(super) read_limit: usize,
    /// True if its standard output is hidden even when it fails.
    pub(super) hides_stdout: bool,
    /// Filters of the output that a failure shows.
    pub(super) filters: &'c [OutputFilter],
    /// Exit codes other than 0 that are a result and not a problem.
    pub(super) failing: &'c [i32],
    /// Time limit, if it is shorter than that of a step of the job.
    pub(super) timeout: Option<Duration>,
    /// True if it fetches modules: git then gets credentials for the origins that the server names.
    pub(super) fetches_modules: bool,
    /// True if it gets the token for Terraform Cloud or Enterprise.
    pub(super) gets_token: bool,
    /// True if it may put providers into the cache, where other jobs find them.
    pub(super) installs: bool,
    /// Sealed file that it reads, which no step can change.
    pub(super) reads: Option<Arc<Sealed>>,
    /// Standard input; empty by default.
    pub(super) stdin: Option<Vec<u8>>,
    /// Answers its questions.
    pub(super) answering: Option<Answering>,
    /// True if something is decided by its output, or by the lines that `answering` gets: no pattern of the project masks these. The caller
    /// masks the output before it is shown; the log is masked.
    pub(super) is_judged: bool,
}

impl<'c> Call<'c> {
    /// Returns a call that is logged, and whose whole output is shown if it fails.
    pub(super) fn new(what: &'c str, program: &'c Path, args: Vec<String>) -> Call<'c> {
        Call {
            what,
            program,
            args,
            logged: true,
            read_limit: 0,
            hides_stdout: false,
            filters: &[],
            failing: &[],
            timeout: None,
            fetches_modules: false,
            gets_token: true,
            installs: false,
            reads: None,
            stdin: None,
            answering: None,
            is_judged: false,
        }
    }
}

/// Reason that a stage ended early.
pub(super) enum Broken {
    /// A step has a problem. The text is the output so far.
    Problem(StepProblem, String),
    /// The job was stopped.
    Stopped,
}

impl<'a> Stage<'a> {
    /// Returns a stage with the environment that every stage of the job begins with. Commands find their copy of the plan in `PLANFILE`.
    pub(super) fn new(job: &StageJob<'a>) -> Stage<'a> {
        let StageJob { local, spec, place, io, killed, timeline, copies, plan, folder, secrets } = *job;
        let mut env = environment::for_steps(local, spec, place, folder.map(Arc::as_ref));
        secrets.add_to(&mut env);
        if let Some(copy) = plan.and_then(|plan| plan.copy.as_ref()) {
            environment::set(&mut env, "PLANFILE", copy.to_string_lossy());
        }
        let (copies, plan) = (Arc::clone(copies), plan.map(|plan| Arc::clone(&plan.sealed)));
        let (shown, policies, printed, made_of, code_guards) = Default::default();
        let folder = folder.cloned();
        Stage {
            local,
            spec,
            place,
            io,
            env,
            shown,
            policies,
            printed,
            made_of,
            code_guards,
            copies,
            plan,
            json: None,
            folder,
            secrets,
            redactor: &secrets.redactor,
            killed,
            timeline,
        }
    }

    /// Runs the steps. Afterwards `shown` has the texts for the comment.
    pub(super) async fn run(&mut self, steps: &[Step]) -> Result<(), Broken> {
        for step in steps {
            if self.io.stop.is_cancelled() {
                return Err(Broken::Stopped);
            }
            let begun = kind_of_step(step).map(|kind| self.timeline.begin(kind));
            let ended = self.step(step).await;
            begun.into_iter().for_each(|step| self.timeline.end(step));
            ended?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Broken> {
        match step {
            Step::Init { extra_args } => self.init(extra_args).await?,
            Step::Plan { extra_args } => self.plan(extra_args).await?,
            Step::Apply { extra_args } => self.apply(extra_args).await?,
            Step::Show { extra_args } => self.show(extra_args).await?,
            Step::Import { extra_args } => self.state_command(&["import"], extra_args).await?,
            Step::StateRm { extra_args } => self.state_command(&["state", "rm"], extra_args).await?,
            Step::Run { command, output } => {
                self.made_of.note_command(&command.command);
                self.run_step(command, output).await?;
            }
            Step::Env { name, value: EnvValue::Value(value) } => environment::set(&mut self.env, name, value),
            Step::Env { name, value: EnvValue::Command(command) } => self.env_command(name, command).await?,
            Step::Multienv { command, show } => {
                let added = self.multienv(command).await?;
                self.shown.extend(show.then_some(added));
            }
            Step::PolicyCheck { extra_args } => self.policy_check(extra_args).await?,
        }
        Ok(())
    }

    /// Returns a problem with the output so far.
    pub(super) fn broken(&self, problem: StepProblem, output: &str) -> Broken {
        let mut texts: Vec<&str> = self.shown.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        texts.push(output);
        Broken::Problem(problem, texts.join("\n"))
    }

    /// Runs a program in the project's directory.
    pub(super) async fn run_call(&self, call: Call<'_>) -> Result<Finished, Broken> {
        let began = Instant::now();
        let Call { what, program, args, logged, read_limit, hides_stdout, filters, failing, timeout, .. } = call;
        let mut env = self.env.clone();
        if let Some((name, token)) = self.local.tfe_token.as_ref().filter(|_| call.gets_token)
            && environment::get(&env, name).is_none()
        {
            environment::set(&mut env, name, token.expose_secret());
        }
        let origins = if call.fetches_modules { (self.local.module_origins)().await } else { Vec::new() };
        let modules = modules::for_init(&origins, &mut env);
        let redactor = self.redactor.with(modules.tokens);
        let redactor = if call.is_judged { redactor.without_masks() } else { redactor };
        let confinement = self.local.confinement(&Surroundings {
            folder: self.folder.as_deref(),
            tree: &self.place.tree.root,
            pull: &self.spec.tree.pull.id,
            // Terragrunt runs `init` by itself if necessary.
            installs: call.installs || self.place.tool.terragrunt.is_some(),
            reads: Some(self.copies.folder()),
        });
        let invocation = Invocation {
            timeout: timeout.unwrap_or(self.spec.limits.timeout).min(self.spec.limits.timeout),
            grace: self.spec.limits.grace,
            output_limit: self.spec.limits.output,
            read_limit,
            hides_stdout,
            run_as: self.local.checkouts.owner(&self.spec.tree.pull.id),
            confinement,
            secret_file: modules.secret,
            open_files: call.reads.iter().filter_map(|read| read.file()).collect(),
            stdin: call.stdin,
            answering: call.answering,
            ..Invocation::new(program, args, &self.place.dir).env(env)
        };
        let masking = |line: &str| (self.io.log)(&self.redactor.redact(line));
        let sink: LineSink<'_> = if call.is_judged { &masking } else { self.io.log };
        let log = logged.then_some(sink);
        let running = crate::process::run(invocation, &redactor, self.io.stop, log);
        let mut finished = tokio::select! {
            finished = running => finished.map_err(|error| {
                let error = self.redactor.redact(&format!("{error:#}"));
                let problem = StepProblem::NotStarted { program: what.to_owned(), error, init: false };
                self.broken(problem, "")
            })?,
            () = self.io.kill.cancelled() => {
                self.killed.store(true, Ordering::Relaxed);
                if !self.spec.command.name.changes_state() {
                    return Err(Broken::Stopped);
                }
                return Err(self.broken(StepProblem::Killed { program: what.to_owned() }, ""));
            }
        };
        if finished.signal == Some(rustix::process::Signal::KILL.as_raw()) {
            self.killed.store(true, Ordering::Relaxed);
        }
        let is_answer = finished.code.is_some_and(|code| failing.contains(&code));
        if is_answer && !finished.timed_out && !finished.cancelled {
            return Ok(finished);
        }
        if call.is_judged && !finished.success() {
            finished.output = self.redactor.redact(&finished.output);
        }
        self.judge(what, finished, filters, began)
    }

    /// Turns every ending other than exit status 0 into a problem, with the output that its filters let through.
    fn judge(
        &self,
        what: &str,
        finished: Finished,
        filters: &[OutputFilter],
        began: Instant,
    ) -> Result<Finished, Broken> {
        if finished.success() {
            return Ok(finished);
        }
        let ending = match (finished.code, finished.signal) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        };
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let output = filtered_failure(strip_ansi(&finished.output), filters);
        let program = what.to_owned();
        let problem = if finished.timed_out {
            StepProblem::TimedOut { program, ending, millis }
        } else if !finished.cancelled {
            StepProblem::Exit { program, ending, init: false }
        } else if self.spec.command.name.changes_state() {
            StepProblem::Interrupted { program, ending, millis, killed: self.killed.load(Ordering::Relaxed) }
        } else {
            return Err(Broken::Stopped);
        };
        Err(self.broken(problem, &output))
    }
}
