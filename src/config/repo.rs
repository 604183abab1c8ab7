//! Repo config, `atlantis.yaml` (atlantis.md §3), read from the pull request and held against the [`RepoRules`].

use super::global::{Autodiscover, RepoRules};
use super::{ConfigError, ProjectConfig};

/// The file, checked against the rules. `projects` have globs expanded, other base branches dropped, and are effective.
#[derive(Debug, Clone)]
pub struct RepoConfig {
    /// Its projects, in the file's order, sorted by nothing.
    pub projects: Vec<ProjectConfig>,
    /// `autodiscover`.
    pub autodiscover: Option<Autodiscover>,
    /// `automerge`.
    pub automerge: Option<bool>,
    /// `parallel_plan`.
    pub parallel_plan: Option<bool>,
    /// `parallel_apply`.
    pub parallel_apply: Option<bool>,
    /// `abort_on_execution_order_fail`.
    pub abort_on_execution_order_fail: bool,
    /// `allowed_regexp_prefixes`.
    pub allowed_regexp_prefixes: Vec<String>,
}

/// Reads YAML. `directories` expands a glob `dir` to the directories that hold Terraform files (see `schedule::Tree`).
pub fn parse(
    _text: &str,
    _file: &str,
    _rules: &RepoRules,
    _base_branch: &str,
    _directories: &dyn Fn(&str) -> Vec<String>,
) -> Result<RepoConfig, ConfigError> {
    todo!()
}
