//! Workflow, stage, step: their YAML forms and the default workflow.

pub(super) mod raw;

use super::errors::all;
use super::yaml::{error_at, quoted, regex_problem};
use super::{ConfigError, ConfigErrors};
use raw::{RawEnv, RawOutput, RawRun, RawStage, RawStep, RawWorkflow, Words};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

/// Built-in steps that run Terraform.
const BUILTIN_STEPS: [&str; 7] = ["init", "plan", "show", "policy_check", "apply", "import", "state_rm"];
/// Most steps of one stage.
pub(super) const MAX_STEPS: usize = 200;

/// The stages of a workflow; a stage that the YAML leaves out has the built-in steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the stages")]
pub struct Workflow {
    pub plan: Vec<Step>,
    pub apply: Vec<Step>,
    pub policy_check: Vec<Step>,
    pub import: Vec<Step>,
    pub state_rm: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum Step {
    Init { extra_args: Vec<String> },
    Plan { extra_args: Vec<String> },
    Show { extra_args: Vec<String> },
    PolicyCheck { extra_args: Vec<String> },
    Apply { extra_args: Vec<String> },
    Import { extra_args: Vec<String> },
    StateRm { extra_args: Vec<String> },
    Run { command: ShellCommand, output: Vec<OutputFilter> },
    Env { name: String, value: EnvValue },
    Multienv { command: ShellCommand, show: bool },
}

/// A shell command: `sh -c COMMAND` by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCommand {
    /// The text.
    pub command: String,
    /// Shell, `sh` by default.
    pub shell: String,
    /// Its arguments before the text, `-c` by default.
    pub shell_args: Vec<String>,
}

/// The source of an `env` step's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum EnvValue {
    Value(String),
    Command(ShellCommand),
}

/// `run.output`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFilter {
    /// The output is unchanged.
    Show,
    /// Hidden in comments if the step succeeds.
    Hide,
    /// Without the text before the last refresh line.
    StripRefreshing,
    /// Matches become `${1}<redacted>$2`.
    FilterRegex(String),
}

impl Default for Workflow {
    /// The built-in workflow.
    fn default() -> Workflow {
        let extra_args = Vec::new;
        let init = || Step::Init { extra_args: extra_args() };
        Workflow {
            plan: vec![init(), Step::Plan { extra_args: extra_args() }],
            apply: vec![Step::Apply { extra_args: extra_args() }],
            policy_check: vec![Step::Show { extra_args: extra_args() }, Step::PolicyCheck { extra_args: extra_args() }],
            import: vec![init(), Step::Import { extra_args: extra_args() }],
            state_rm: vec![init(), Step::StateRm { extra_args: extra_args() }],
        }
    }
}

impl ShellCommand {
    /// Creates `sh -c COMMAND`.
    pub fn sh(command: impl Into<String>) -> ShellCommand {
        ShellCommand { command: command.into(), shell: "sh".to_owned(), shell_args: vec!["-c".to_owned()] }
    }

    pub(super) fn new(command: String, shell: Option<String>, shell_args: Option<Words>) -> ShellCommand {
        let mut made = ShellCommand::sh(command);
        if let Some(shell) = shell {
            made.shell = shell;
        }
        if let Some(Words(words)) = shell_args {
            made.shell_args = words;
        }
        made
    }
}

impl Workflow {
    /// Checks a workflow; stages that are missing or have no steps get the built-in ones, and those with errors none.
    pub(super) fn from_raw(raw: RawWorkflow, file: &str, errors: &mut ConfigErrors) -> Workflow {
        let built_in = Workflow::default();
        let mut stage = |raw, built_in| errors.take(stage(raw, built_in, file)).unwrap_or_default();
        Workflow {
            plan: stage(raw.plan, built_in.plan),
            apply: stage(raw.apply, built_in.apply),
            policy_check: stage(raw.policy_check, built_in.policy_check),
            import: stage(raw.import, built_in.import),
            state_rm: stage(raw.state_rm, built_in.state_rm),
        }
    }

    /// Returns true if any stage runs a custom command.
    pub fn has_commands(&self) -> bool {
        let stages = [&self.plan, &self.apply, &self.policy_check, &self.import, &self.state_rm];
        let is_command = |step: &Step| {
            matches!(step, Step::Run { .. } | Step::Multienv { .. } | Step::Env { value: EnvValue::Command(_), .. })
        };
        stages.iter().any(|stage| stage.iter().any(is_command))
    }

    /// Splits `run` commands of plan and apply into words and joins them with spaces, for version 2 of the repo config.
    pub(super) fn rejoin_run_commands<T>(&mut self, file: &str, place: &Spanned<T>) -> Result<(), ConfigError> {
        for step in self.plan.iter_mut().chain(&mut self.apply) {
            if let Step::Run { command, .. } = step {
                let words = shlex::split(&command.command).ok_or_else(|| {
                    let text = quoted(&command.command);
                    let message = format!("`run: {text}` has an unclosed quote; fix it, or use `version: 3`");
                    error_at(file, place, message)
                })?;
                command.command = words.join(" ");
            }
        }
        Ok(())
    }
}

fn stage(raw: Option<RawStage>, built_in: Vec<Step>, file: &str) -> Result<Vec<Step>, ConfigErrors> {
    let steps = raw.and_then(|stage| stage.steps).unwrap_or_default();
    if let Some(step) = steps.get(MAX_STEPS) {
        return Err(error_at(file, step, format!("too many steps: at most {MAX_STEPS} in one stage")).into());
    }
    if steps.is_empty() {
        return Ok(built_in);
    }
    all(steps.into_iter().map(|raw| {
        let place = Spanned::new((), raw.referenced, raw.defined);
        step(raw.value).map_err(|message| error_at(file, &place, message))
    }))
}

fn step(raw: RawStep) -> Result<Step, String> {
    match raw {
        RawStep::Bare(name) => built_in_step(&name, Vec::new()),
        RawStep::Builtin { name, extra_args } => built_in_step(&name, extra_args),
        RawStep::Run(run) => {
            let output = output_filters(run.output.as_ref().map(|output| output.0.as_slice()))?;
            Ok(Step::Run { command: shell_command("run", run)?, output })
        }
        RawStep::Multienv(run) => {
            let show = match run.output.as_ref().map(|output| output.0.as_slice()) {
                None => true,
                Some([RawOutput::Named(name)]) if name == "show" => true,
                Some([RawOutput::Named(name)]) if name == "hide" => false,
                Some(_) => return Err("`multienv.output` is `show` or `hide`".to_owned()),
            };
            Ok(Step::Multienv { command: shell_command("multienv", run)?, show })
        }
        RawStep::Env(env) => env_step(env),
    }
}

fn built_in_step(name: &str, extra_args: Vec<String>) -> Result<Step, String> {
    Ok(match name {
        "init" => Step::Init { extra_args },
        "plan" => Step::Plan { extra_args },
        "show" => Step::Show { extra_args },
        "policy_check" => Step::PolicyCheck { extra_args },
        "apply" => Step::Apply { extra_args },
        "import" => Step::Import { extra_args },
        "state_rm" => Step::StateRm { extra_args },
        "run" | "multienv" => return Err(format!("step `{name}` needs a command: `- {name}: COMMAND`")),
        "env" => return Err("step `env` needs a name and a value: `- env: {name: NAME, value: VALUE}`".to_owned()),
        other => {
            let known = BUILTIN_STEPS.join(", ");
            return Err(format!(
                "unknown step `{}`; known: {known}; your own command is `- run: COMMAND`",
                quoted(other)
            ));
        }
    })
}

fn shell_command(step: &str, run: RawRun) -> Result<ShellCommand, String> {
    let command = run.command.filter(|command| !command.trim().is_empty());
    let command = command.ok_or_else(|| format!("step `{step}` needs `command`"))?;
    check_shell(step, run.shell.as_ref(), run.shell_args.as_ref())?;
    Ok(ShellCommand::new(command, run.shell, run.shell_args))
}

fn check_shell(step: &str, shell: Option<&String>, shell_args: Option<&Words>) -> Result<(), String> {
    if shell.is_none() && shell_args.is_some() {
        return Err(format!("step `{step}`: `shellArgs` needs `shell`"));
    }
    if shell.is_some_and(|shell| shell.trim().is_empty()) {
        return Err(format!("step `{step}`: `shell` is empty"));
    }
    Ok(())
}

fn env_step(env: RawEnv) -> Result<Step, String> {
    let name = env.name.filter(|name| !name.is_empty()).ok_or("step `env` needs `name`")?;
    if name.contains(['=', '\0']) {
        return Err(format!("step `env`: `{}` cannot be a variable's name", quoted(&name)));
    }
    check_shell("env", env.shell.as_ref(), env.shell_args.as_ref())?;
    let value = match (env.value, env.command) {
        (Some(value), Some(_)) if !value.is_empty() => {
            return Err(format!("step `env` of `{name}` has both `value` and `command`; keep one"));
        }
        (_, Some(command)) => EnvValue::Command(ShellCommand::new(command, env.shell, env.shell_args)),
        (_, None) if env.shell.is_some() => return Err(format!("step `env` of `{name}`: `shell` needs `command`")),
        (Some(value), None) => EnvValue::Value(value),
        (None, None) => EnvValue::Value(String::new()),
    };
    Ok(Step::Env { name, value })
}

fn output_filters(raw: Option<&[RawOutput]>) -> Result<Vec<OutputFilter>, String> {
    let mut filters = Vec::new();
    for one in raw.unwrap_or(&[RawOutput::Named(String::new())]) {
        match one {
            RawOutput::Named(name) => filters.push(match name.as_str() {
                "" | "show" => OutputFilter::Show,
                "hide" => OutputFilter::Hide,
                "strip_refreshing" => OutputFilter::StripRefreshing,
                other => {
                    return Err(format!(
                        "`run.output`: `{}` is not one of show, hide, strip_refreshing, filter_regex",
                        quoted(other)
                    ));
                }
            }),
            RawOutput::FilterRegex(patterns) => {
                for pattern in patterns {
                    Regex::new(pattern)
                        .map_err(|error| format!("`filter_regex`: not a valid regex: {}", regex_problem(&error)))?;
                    filters.push(OutputFilter::FilterRegex(pattern.clone()));
                }
            }
        }
    }
    Ok(filters)
}
