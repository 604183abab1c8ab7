//! Workflow, stage, step: their YAML forms and the built-in default workflow (atlantis.md §4).

use serde::{Deserialize, Serialize};

/// Stages of a workflow; a stage that the YAML leaves out has the built-in steps.
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

/// A command for a shell: `sh -c COMMAND` unless told otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCommand {
    /// The text.
    pub command: String,
    /// Shell, `sh` by default.
    pub shell: String,
    /// Its arguments before the text, `-c` by default.
    pub shell_args: Vec<String>,
}

/// Where an `env` step takes its value from.
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
    /// As it is.
    Show,
    /// Not in the comment, when the step succeeds.
    Hide,
    /// Without what is before the last refresh line.
    StripRefreshing,
    /// Matches become `${1}<redacted>$2`.
    FilterRegex(String),
}
