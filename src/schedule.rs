//! Which projects a command runs on, in which order. Pure: it sees the repository through [`Tree`].

pub mod discover;
pub mod modules;
pub mod patterns;

use crate::config::global::{AutodiscoverMode, RepoRules};
use crate::config::repo::RepoConfig;
use crate::config::{ConfigError, ProjectConfig};
use crate::domain::ProjectId;
use crate::domain::command::Command;

/// A checked-out repository as discovery sees it. Paths are relative to the root, with `/`, `.` for the root.
pub trait Tree {
    /// Whether the directory exists, inside the tree.
    fn is_dir(&self, dir: &str) -> bool;
    /// Names of the files directly in a directory.
    fn files(&self, dir: &str) -> Vec<String>;
    /// All directories, without `.git`, `.terraform` and `.terragrunt-cache`.
    fn dirs(&self) -> Vec<String>;
    /// A file's text, if it is there, is inside the tree, and has at most 1 MiB of UTF-8.
    fn read(&self, path: &str) -> Option<String>;
}

/// All that a schedule is made of.
pub struct Facts<'a> {
    /// The rules of the repository.
    pub rules: &'a RepoRules,
    /// Its repo config, if it has one.
    pub repo_config: Option<&'a RepoConfig>,
    /// Files that the pull request changes.
    pub modified: &'a [String],
    /// Its tree.
    pub tree: &'a dyn Tree,
    /// Flags.
    pub options: &'a Options,
}

/// Flags that matter here.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--autodiscover-mode`.
    pub autodiscover_mode: AutodiscoverMode,
    /// `--autoplan-file-list`.
    pub autoplan_file_list: Vec<String>,
    /// `--autoplan-modules-from-projects`, already resolved with `--autoplan-modules`; empty: off.
    pub autoplan_modules_from: Vec<String>,
    /// `--enable-regexp-cmd`.
    pub enable_regexp_cmd: bool,
    /// `--restrict-file-list`.
    pub restrict_file_list: bool,
    /// `--silence-no-projects`.
    pub silence_no_projects: bool,
    /// `--parallel-plan`.
    pub parallel_plan: bool,
    /// `--parallel-apply`.
    pub parallel_apply: bool,
}

/// Projects in execution order.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Groups in ascending `execution_order_group`; stable within.
    pub groups: Vec<Vec<ProjectConfig>>,
    /// Projects of a group may be planned at the same time.
    pub parallel_plan: bool,
    /// Projects of a group may be applied at the same time.
    pub parallel_apply: bool,
    /// After a failed group the later ones do not start.
    pub abort_on_execution_order_fail: bool,
}

/// Why there is no schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// For people: `no project with name 'x'; there are: a, b`. Nothing at all is said under `--silence-no-projects` where Atlantis is silent.
    Target(String),
    /// The configuration is wrong.
    Config(ConfigError),
    /// To be passed over in silence.
    Silent,
}

/// Projects for `plan` (autoplan or comment), `import`, `state rm`: atlantis.md §5.5, §7.3.
pub fn for_plan(_command: &Command, _facts: &Facts<'_>) -> Result<Schedule, Refusal> {
    todo!()
}

/// Effective config of projects that were planned earlier, for `apply`, `version`: configured ones by name or dir and workspace,
/// others with the rules' defaults. Narrowed by the command's target; a target that no planned project matches yields the project
/// that `for_plan` would choose, so that the refusal can name it.
pub fn for_planned(_command: &Command, _planned: &[ProjectId], _facts: &Facts<'_>) -> Result<Schedule, Refusal> {
    todo!()
}
