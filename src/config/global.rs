//! Server-side configuration, `repos.yaml` (atlantis.md §2): what repositories may do and which rules they cannot weaken.

use super::workflow::{ShellCommand, Workflow};
use super::{ConfigError, LockMode, Requirement};
use crate::domain::RepoId;
use crate::domain::command::CommandName;
use std::collections::BTreeMap;

/// The whole file, checked.
#[derive(Debug, Clone)]
pub struct GlobalConfig {}

/// A workflow hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// What it runs.
    pub command: ShellCommand,
    /// For its commit status; absent: numbered.
    pub description: Option<String>,
    /// Commands it runs for (a substring test, as in Atlantis); absent: all.
    pub commands: Option<String>,
}

/// `autodiscover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autodiscover {
    /// Mode.
    pub mode: AutodiscoverMode,
    /// Globs (doublestar) of directories that are never discovered; absent: not said.
    pub ignore_paths: Option<Vec<String>>,
}

/// `autodiscover.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum AutodiscoverMode {
    Auto,
    Enabled,
    Disabled,
}

/// What the global config says about one repository and base branch: last matching entry with the key wins, key by key.
#[derive(Debug, Clone)]
pub struct RepoRules {
    /// The last matching entry's branch regex accepts the base branch; otherwise commands are passed over in silence.
    pub branch_allowed: bool,
    /// Name of the repo config file; `None` means the default, which looks for `atlantis.yaml` and then `tidelock.yaml`.
    pub repo_config_file: Option<String>,
    /// Before commands, of all matching entries.
    pub pre_workflow_hooks: Vec<Hook>,
    /// After commands.
    pub post_workflow_hooks: Vec<Hook>,
    /// Requirements before `plan`.
    pub plan_requirements: Vec<Requirement>,
    /// Requirements before `apply`.
    pub apply_requirements: Vec<Requirement>,
    /// Requirements before `import`.
    pub import_requirements: Vec<Requirement>,
    /// Name of the workflow.
    pub workflow: String,
    /// Workflows that a repo config may choose; empty: any.
    pub allowed_workflows: Vec<String>,
    /// Keys that a repo config may set.
    pub allowed_overrides: Vec<String>,
    /// May a repo config define workflows?
    pub allow_custom_workflows: bool,
    /// `delete_source_branch_on_merge`.
    pub delete_source_branch_on_merge: bool,
    /// `repo_locks`, with the old `repo_locking` in it.
    pub repo_locks: LockMode,
    /// `autodiscover`, if an entry says so; it overrides the repo config.
    pub autodiscover: Option<Autodiscover>,
    /// `silence_pr_comments`.
    pub silence_pr_comments: Vec<CommandName>,
    /// Workflows of the file, with `default` always among them.
    pub workflows: BTreeMap<String, Workflow>,
}

impl GlobalConfig {
    /// What holds without a file.
    pub fn without_file() -> GlobalConfig {
        todo!()
    }

    /// Reads YAML; `origin` is the file's name for messages. Keys whose effect is not built (`policies`, `team_authz`, `metrics`,
    /// `external_stores`, `policy_check: true`, `custom_policy_check: true`) are refused by name.
    pub fn parse(_text: &str, _origin: &str) -> Result<GlobalConfig, ConfigError> {
        todo!()
    }

    /// The rules for one repository and base branch.
    pub fn rules(&self, _repo: &RepoId, _base_branch: &str) -> RepoRules {
        todo!()
    }
}
