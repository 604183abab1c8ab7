//! Configuration of repositories: `repos.yaml` ([`global`]) and `atlantis.yaml` ([`repo`]) to effective project configs.

pub mod global;
pub mod repo;
pub mod workflow;

use crate::domain::command::CommandName;
use crate::domain::{Distribution, ProjectId};
use serde::{Deserialize, Serialize};
use workflow::Workflow;

/// A configuration file is wrong; names the file, the place (line and column where known) and the key, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// `repo_locks.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum LockMode {
    Disabled,
    OnPlan,
    OnApply,
}

/// A requirement that users can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the configuration's")]
pub enum Requirement {
    Approved,
    Mergeable,
    Undiverged,
}

/// Effective configuration of one project: server side and repository side merged. Serialised, it is what a plan is bound to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectConfig {
    /// The project.
    pub id: ProjectId,
    /// Name of its workflow.
    pub workflow_name: String,
    /// Its workflow.
    pub workflow: Workflow,
    /// Before `plan`.
    pub plan_requirements: Vec<Requirement>,
    /// Before `apply`.
    pub apply_requirements: Vec<Requirement>,
    /// Before `import` and `state rm`.
    pub import_requirements: Vec<Requirement>,
    /// When its lock is taken.
    pub repo_locks: LockMode,
    /// `terraform_version`.
    pub terraform_version: Option<String>,
    /// `terraform_distribution`.
    pub distribution: Option<Distribution>,
    /// Ascending groups.
    pub execution_order_group: i64,
    /// Labels of projects that have to be applied first.
    pub depends_on: Vec<String>,
    /// Commands whose results no comment tells.
    pub silence_pr_comments: Vec<CommandName>,
    /// Autoplan is on for it.
    pub autoplan_enabled: bool,
    /// `when_modified` patterns, relative to its directory; empty for discovered projects.
    pub when_modified: Vec<String>,
    /// `delete_source_branch_on_merge`.
    pub delete_source_branch_on_merge: bool,
}

impl ProjectConfig {
    /// SHA-256, hex, of everything that changes what a plan or an apply does.
    pub fn digest(&self) -> String {
        todo!()
    }
}
