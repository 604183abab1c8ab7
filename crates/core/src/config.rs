//! Merges `repos.yaml` ([`global`]) and `atlantis.yaml` ([`repo`]) into effective project configurations.

pub mod approvals;
pub mod approvers;
mod auto_apply;
mod blanked;
pub mod changed_keys;
mod checks;
pub mod codeowners;
pub mod drift;
mod errors;
pub mod excluded;
pub mod executors;
pub mod freeze;
pub mod global;
pub mod guards;
pub mod language;
pub mod merging;
pub mod metrics;
pub mod paths;
pub mod people;
pub mod permissions;
pub mod places;
pub mod policies;
mod raw;
pub mod repo;
pub mod secrets;
mod state_address;
pub mod team_authz;
pub mod workflow;
mod yaml;

pub use checks::workspace_problem;
pub use errors::ConfigErrors;
pub use yaml::{MAX_CONFIG_BYTES, decode as yaml_document, quoted};

use crate::domain::command::CommandName;
use crate::domain::{AutoApply, Distribution, ProjectId};
use approvals::ApprovalRules;
use executors::StageExecutors;
use freeze::FreezeWindow;
use global::RepoRules;
use guards::Guard;
use permissions::Allowed;
use secrets::StageSecrets;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::Duration;
use workflow::Workflow;

pub use crate::domain::requirement::Requirement;

/// Default workspace of a project.
pub const DEFAULT_WORKSPACE: &str = "default";

/// Default `when_modified` of a configured project.
pub const DEFAULT_WHEN_MODIFIED: [&str; 5] =
    ["**/*.tf*", "**/*.tofu", "**/*.tofu.json", "**/terragrunt.hcl", "**/.terraform.lock.hcl"];

/// Error in a configuration file, with the file, the position if known, the key, and the correction.
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
    /// Plans take no lock. A pull request that changes the state owns the project until everything is applied and merged.
    Strict(LockScope),
}

/// `repo_locks.scope`: the projects that a pull request owns from its first apply on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockScope {
    /// The project that is applied.
    Project,
    /// All projects that the pull request changes.
    PullRequest,
}

/// `apply_scope`: the projects that must have a plan before one of them is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyScope {
    /// All projects that the pull request changes.
    AllPlanned,
    /// The projects that are applied.
    Selected,
}

impl ApplyScope {
    /// Returns the default in a mode.
    pub fn of_mode(mode: LockMode) -> ApplyScope {
        if matches!(mode, LockMode::Strict(_)) { ApplyScope::AllPlanned } else { ApplyScope::Selected }
    }
}

/// `on_merge`: handling of projects in mode `strict` that a pull request has merged and not applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMerge {
    /// A person has to apply them.
    #[default]
    Nothing,
    /// They are applied, if the plan after the merge has the same changes as the one before it.
    Apply,
}

/// `deleted_projects`: handling of projects whose directory a pull request deletes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletedProjects {
    /// Nothing is planned for them, as in Atlantis.
    #[default]
    Ignore,
    /// They are planned as a destroy, in the tree of the base branch.
    Destroy,
}

/// The effective configuration of a project: server side and repository side merged. A plan is bound to its serialised
/// form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectConfig {
    /// The project. Its directory is a path without links.
    pub id: ProjectId,
    /// The path by which its directory was named, if that leads through a link.
    #[serde(default)]
    pub link: Option<String>,
    /// Name of its workflow.
    pub workflow_name: String,
    /// Its workflow.
    pub workflow: Workflow,
    /// Requirements of `plan`.
    pub plan_requirements: Vec<Requirement>,
    /// Requirements of `apply`.
    pub apply_requirements: Vec<Requirement>,
    /// Requirements of `import` and `state rm`.
    pub import_requirements: Vec<Requirement>,
    /// Event that locks the project.
    pub repo_locks: LockMode,
    /// `apply_scope`: the projects that must have a plan before it is applied; absent if the mode decides.
    #[serde(default)]
    pub apply_scope: Option<ApplyScope>,
    /// `on_merge`, which only has an effect in mode `strict`.
    #[serde(default)]
    pub on_merge: OnMerge,
    /// `terraform_version`.
    pub terraform_version: Option<String>,
    /// `terraform_distribution`.
    pub distribution: Option<Distribution>,
    /// `terragrunt`: built-in steps run Terragrunt, if the directory is a unit.
    #[serde(default)]
    pub terragrunt: bool,
    /// `terragrunt_version`.
    #[serde(default)]
    pub terragrunt_version: Option<String>,
    /// Order group; groups run in ascending order.
    pub execution_order_group: i64,
    /// Labels of projects that have to be applied first.
    pub depends_on: Vec<String>,
    /// Commands without comments on their results.
    pub silence_pr_comments: Vec<CommandName>,
    /// True if autoplan is on.
    pub autoplan_enabled: bool,
    /// `when_modified` patterns, relative to its directory; empty for discovered projects.
    pub when_modified: Vec<String>,
    /// `delete_source_branch_on_merge`.
    pub delete_source_branch_on_merge: bool,
    /// `plan_max_age`: an older plan is not applied; zero for no limit, absent if the setting decides.
    pub plan_max_age: Option<Duration>,
    /// `reminder_interval`: interval of reminders to apply or merge, in mode `strict`; zero for never.
    #[serde(default)]
    pub reminder_interval: Duration,
    /// `policy_check`: plans are checked, if the server's setting enables that.
    #[serde(default)]
    pub policy_check: bool,
    /// `custom_policy_check`: the output of `run` steps is the result of the policy sets.
    #[serde(default)]
    pub custom_policy_check: bool,
    /// Its own `allowed_users` and `allowed_teams`, which narrow the rules of the server.
    pub allowed: Option<Allowed>,
    /// `approvals`: the people who have to approve. If present, `approved` is required before an apply.
    #[serde(default)]
    pub approvals: Option<ApprovalRules>,
    /// `auto_apply.when`: the project is applied without a command.
    #[serde(default, skip_serializing_if = "AutoApply::is_never")]
    pub auto_apply: AutoApply,
    /// `freeze`: times in which the project is not applied.
    #[serde(default)]
    pub freeze: Vec<FreezeWindow>,
    /// `guards` of the server for its directory. No repo config changes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Guard>,
    /// `secrets` of the server for its directory and workspace. No repo config changes them.
    #[serde(default, skip_serializing_if = "StageSecrets::is_empty")]
    pub secrets: StageSecrets,
    /// `masks`: patterns of what is masked in the output of its steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<String>,
    /// `tags`: only for `--tag`, never for a permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Executors of its stages.
    #[serde(default, skip_serializing_if = "StageExecutors::are_local")]
    pub executors: StageExecutors,
    /// True if the repo config lists another project in the same directory and workspace.
    #[serde(default)]
    pub shares_state: bool,
    /// True if the pull request deletes its directory: its plans destroy, and its jobs run in a tree of the base branch alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl ProjectConfig {
    /// Returns the configuration of a project that no repo config lists, from the rules alone.
    pub fn from_rules(id: ProjectId, rules: &RepoRules) -> ProjectConfig {
        ProjectConfig {
            executors: rules.executor.of_project(&id.dir),
            guards: rules.guards.of_project(&id.dir),
            secrets: rules.secrets.of_project(&id.dir, &id.workspace),
            masks: rules.masks.clone(),
            id,
            link: None,
            workflow_name: rules.workflow.clone(),
            workflow: rules.workflows.get(&rules.workflow).cloned().unwrap_or_default(),
            plan_requirements: rules.plan_requirements.clone(),
            apply_requirements: rules.apply_requirements.clone(),
            import_requirements: rules.import_requirements.clone(),
            repo_locks: rules.repo_locks,
            apply_scope: rules.apply_scope,
            on_merge: rules.on_merge,
            terraform_version: None,
            distribution: None,
            terragrunt: rules.terragrunt,
            terragrunt_version: rules.terragrunt_version.clone(),
            execution_order_group: 0,
            depends_on: Vec::new(),
            silence_pr_comments: rules.silence_pr_comments.clone(),
            autoplan_enabled: true,
            when_modified: Vec::new(),
            delete_source_branch_on_merge: rules.delete_source_branch_on_merge,
            plan_max_age: rules.plan_max_age,
            reminder_interval: rules.reminder_interval,
            policy_check: rules.policy_check,
            custom_policy_check: rules.custom_policy_check,
            allowed: None,
            approvals: rules.approvals.clone(),
            auto_apply: rules.auto_apply,
            freeze: rules.freeze.clone(),
            tags: Vec::new(),
            shares_state: false,
            deleted: false,
        }
    }

    /// Returns true if all projects that the pull request changes must have a plan before this one is applied.
    pub fn wants_all_planned(&self) -> bool {
        self.apply_scope.unwrap_or_else(|| ApplyScope::of_mode(self.repo_locks)) == ApplyScope::AllPlanned
    }

    /// Returns true if it is applied automatically after the merge.
    pub fn applies_on_merge(&self) -> bool {
        self.on_merge == OnMerge::Apply && matches!(self.repo_locks, LockMode::Strict(_))
    }

    /// Returns the SHA-256 in hex of everything that affects a plan or an apply.
    pub fn digest(&self) -> String {
        // Every field is listed, so that a new one has to be included or excluded.
        let ProjectConfig {
            id,
            // The project is the same by every path.
            link: _,
            workflow_name,
            workflow,
            plan_requirements,
            apply_requirements,
            import_requirements,
            repo_locks,
            // The apply checks its present value.
            apply_scope: _,
            terraform_version,
            distribution,
            terragrunt,
            terragrunt_version,
            depends_on,
            execution_order_group: _,
            silence_pr_comments: _,
            autoplan_enabled: _,
            when_modified: _,
            delete_source_branch_on_merge: _,
            // The apply checks the present limit.
            plan_max_age: _,
            reminder_interval: _,
            // A policy check is bound to its policies by itself.
            policy_check: _,
            custom_policy_check: _,
            // Permissions, too, are checked at their present values.
            allowed: _,
            // An automatic apply uses the value after the merge.
            on_merge: _,
            // Approvals and freezes are checked at their present values.
            approvals: _,
            // The plan records the value of its time.
            auto_apply: _,
            freeze: _,
            // They only select projects.
            tags: _,
            executors,
            guards,
            secrets,
            // They only change what people see.
            masks: _,
            // Other projects in its directory do not change it.
            shares_state: _,
            deleted,
        } = self;
        let mut facts = serde_json::json!({
            "id": id,
            "workflow_name": workflow_name,
            "workflow": workflow,
            "plan_requirements": plan_requirements,
            "apply_requirements": apply_requirements,
            "import_requirements": import_requirements,
            "repo_locks": repo_locks,
            "terraform_version": terraform_version,
            "distribution": distribution,
            "depends_on": depends_on,
        });
        // The rest only if it is set, so that plans of earlier versions keep their digest.
        if *terragrunt {
            facts["terragrunt"] = serde_json::json!({ "version": terragrunt_version });
        }
        if !guards.is_empty() {
            // A change of the people who may override them needs no new plan.
            facts["guards"] = serde_json::json!(guards.iter().map(Guard::without_people).collect::<Vec<_>>());
        }
        if !secrets.is_empty() {
            facts["secrets"] = serde_json::json!(secrets);
        }
        if *deleted {
            facts["deleted"] = serde_json::json!(true);
        }
        if !executors.are_local() {
            facts["executors"] = serde_json::json!(executors);
        }
        hex::encode(Sha256::digest(facts.to_string()))
    }
}

#[cfg(test)]
mod mutated_tests;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
