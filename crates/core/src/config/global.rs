//! Server-side configuration, `repos.yaml`: permissions of repositories, and rules that they cannot weaken.

mod entries;
pub(super) mod parse;
#[cfg(test)]
mod tests;

use super::approvals::ApprovalRules;
use super::drift::DriftRule;
use super::executors::{Executor, ExecutorRules};
use super::freeze::FreezeWindow;
use super::guards::Guards;
use super::merging::MergeMethod;
use super::metrics::Metrics;
use super::people::People;
use super::permissions::Allowed;
use super::policies::Policies;
use super::repo::DEFAULT_FILES;
use super::secrets::SecretRules;
use super::team_authz::TeamAuthz;
use super::workflow::{ShellCommand, Workflow};
use super::{ApplyScope, ConfigErrors, DeletedProjects, LockMode, LockScope, OnMerge, Requirement};
use crate::domain::command::CommandName;
use crate::domain::{AutoApply, RepoId};
use regex::Regex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Name of the built-in workflow.
pub const DEFAULT_WORKFLOW: &str = "default";

/// Default of `reminder_interval`.
const REMINDER_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Keys that `allowed_overrides` may name.
pub const OVERRIDABLE_KEYS: [&str; 19] = [
    "plan_requirements",
    "apply_requirements",
    "import_requirements",
    "workflow",
    "delete_source_branch_on_merge",
    "repo_locking",
    "repo_locks",
    "apply_scope",
    "on_merge",
    "policy_check",
    "custom_policy_check",
    "silence_pr_comments",
    "plan_max_age",
    "reminder_interval",
    "allowed_users",
    "allowed_teams",
    "approvals",
    "auto_apply",
    "freeze",
];

/// The whole file, checked.
#[derive(Debug, Clone)]
pub struct GlobalConfig {
    repos: Vec<RepoEntry>,
    workflows: BTreeMap<String, Workflow>,
    /// `policies`.
    pub policies: Policies,
    /// `team_authz`.
    pub team_authz: Option<TeamAuthz>,
    /// `people`.
    pub people: People,
    /// `metrics`.
    pub metrics: Metrics,
    /// `executors`, without the one that is always there.
    pub executors: BTreeMap<String, Executor>,
    /// Warnings for the log of the start: keys without an effect.
    pub warnings: Vec<String>,
}

/// An entry of `repos`; absent keys are inherited from earlier entries.
#[derive(Debug, Clone)]
struct RepoEntry {
    id: IdMatch,
    branch: Option<Regex>,
    repo_config_file: Option<String>,
    plan_requirements: Option<Vec<Requirement>>,
    apply_requirements: Option<Vec<Requirement>>,
    import_requirements: Option<Vec<Requirement>>,
    pre_workflow_hooks: Vec<Hook>,
    post_workflow_hooks: Vec<Hook>,
    workflow: Option<String>,
    allowed_workflows: Option<Vec<String>>,
    allowed_overrides: Option<Vec<String>>,
    allow_custom_workflows: Option<bool>,
    automerge: Option<bool>,
    merge_method: Option<MergeMethod>,
    delete_source_branch_on_merge: Option<bool>,
    replan_after_failed_apply: Option<bool>,
    verify_applies: Option<bool>,
    deleted_projects: Option<DeletedProjects>,
    destroy_requirements: Option<Vec<Requirement>>,
    repo_locks: Option<LockMode>,
    apply_scope: Option<ApplyScope>,
    on_merge: Option<OnMerge>,
    autodiscover: Option<Autodiscover>,
    silence_pr_comments: Option<Vec<CommandName>>,
    terragrunt: Option<bool>,
    terragrunt_version: Option<String>,
    plan_max_age: Option<Duration>,
    reminder_interval: Option<Duration>,
    policy_check: Option<bool>,
    custom_policy_check: Option<bool>,
    allowed_users: Option<Vec<String>>,
    allowed_teams: Option<Vec<String>>,
    approvals: Option<ApprovalRules>,
    auto_apply: Option<AutoApply>,
    freeze: Option<Vec<FreezeWindow>>,
    guards: Option<Guards>,
    secrets: Option<SecretRules>,
    masks: Option<Vec<String>>,
    executor: Option<ExecutorRules>,
    drift: Option<DriftRule>,
}

/// `id` of an entry.
#[derive(Debug, Clone)]
enum IdMatch {
    Exact(String),
    Regex(Regex),
}

impl IdMatch {
    /// Returns the text of the file, without the slashes of a regular expression.
    fn text(&self) -> &str {
        match self {
            IdMatch::Exact(exact) => exact,
            IdMatch::Regex(regex) => regex.as_str(),
        }
    }
}

impl RepoEntry {
    /// Compares IDs without case, like the allowlist, as hosts ignore the case of names.
    fn is_for(&self, id: &str) -> bool {
        match &self.id {
            IdMatch::Exact(exact) => exact.eq_ignore_ascii_case(id),
            IdMatch::Regex(regex) => regex.is_match(id),
        }
    }

    fn allows_branch(&self, branch: &str) -> bool {
        self.branch.as_ref().is_none_or(|regex| regex.is_match(branch))
    }
}

/// A workflow hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The command.
    pub command: ShellCommand,
    /// Description in its commit status; numbered if absent.
    pub description: Option<String>,
    /// Commands for which it runs (a substring test, as in Atlantis); all if absent.
    pub commands: Option<String>,
}

/// `autodiscover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autodiscover {
    /// Value of `autodiscover.mode`.
    pub mode: AutodiscoverMode,
    /// Globs (doublestar) of directories that are never discovered, if given.
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

/// The global config for one repository and base branch: for each key, the last matching entry that has it.
#[derive(Debug, Clone)]
pub struct RepoRules {
    /// True if the base branch matches the branch regex of the last matching entry; otherwise commands are ignored.
    pub branch_allowed: bool,
    /// Name of the repo config file; `None` for the default, `atlantis.yaml` and then `tidelock.yaml`.
    pub repo_config_file: Option<String>,
    /// Pre-workflow hooks of all matching entries.
    pub pre_workflow_hooks: Vec<Hook>,
    /// Post-workflow hooks.
    pub post_workflow_hooks: Vec<Hook>,
    /// Requirements before `plan`.
    pub plan_requirements: Vec<Requirement>,
    /// Requirements before `apply`.
    pub apply_requirements: Vec<Requirement>,
    /// Requirements before `import`.
    pub import_requirements: Vec<Requirement>,
    /// Name of the workflow.
    pub workflow: String,
    /// Workflows that a repo config may choose; any if empty.
    pub allowed_workflows: Vec<String>,
    /// Keys that a repo config may set.
    pub allowed_overrides: Vec<String>,
    /// True if a repo config may define workflows.
    pub allow_custom_workflows: bool,
    /// `automerge`, if an entry has it.
    pub automerge: Option<bool>,
    /// `merge_method`, if an entry has it.
    pub merge_method: Option<MergeMethod>,
    /// `delete_source_branch_on_merge`.
    pub delete_source_branch_on_merge: bool,
    /// `replan_after_failed_apply`: a project is planned again once its apply has failed.
    pub replan_after_failed_apply: bool,
    /// `verify_applies`: the job of an apply plans again, and tells what is left.
    pub verify_applies: bool,
    /// `deleted_projects`: handling of projects whose directory a pull request deletes.
    pub deleted_projects: DeletedProjects,
    /// `destroy_requirements`: requirements before the apply of a deleted project, besides those of `apply`.
    pub destroy_requirements: Vec<Requirement>,
    /// `repo_locks`, including the old key `repo_locking`.
    pub repo_locks: LockMode,
    /// `apply_scope`; absent if the mode decides.
    pub apply_scope: Option<ApplyScope>,
    /// `on_merge`.
    pub on_merge: OnMerge,
    /// `autodiscover`, if an entry has it; it overrides the repo config.
    pub autodiscover: Option<Autodiscover>,
    /// `silence_pr_comments`.
    pub silence_pr_comments: Vec<CommandName>,
    /// `terragrunt`: directories with Terragrunt's file are units.
    pub terragrunt: bool,
    /// `terragrunt_version`.
    pub terragrunt_version: Option<String>,
    /// `plan_max_age`: an older plan is not applied; zero for no limit, absent if the setting decides.
    pub plan_max_age: Option<Duration>,
    /// `reminder_interval`: interval of reminders to apply or merge, in mode `strict`; zero for never.
    pub reminder_interval: Duration,
    /// `policy_check`: plans are checked, if the server's setting enables that.
    pub policy_check: bool,
    /// `custom_policy_check`.
    pub custom_policy_check: bool,
    /// `allowed_users` and `allowed_teams`; absent if there are no restrictions.
    pub allowed: Option<Allowed>,
    /// `approvals`: the people who have to approve; absent for any person with write access.
    pub approvals: Option<ApprovalRules>,
    /// `auto_apply.when`: projects are applied without a command.
    pub auto_apply: AutoApply,
    /// `freeze`: times in which nothing is applied.
    pub freeze: Vec<FreezeWindow>,
    /// `guards`: limits on plans and their code, which no repo config changes.
    pub guards: Guards,
    /// `secrets`: variables that its projects get from stores of secrets, which no repo config changes.
    pub secrets: SecretRules,
    /// `masks`: patterns of what is masked in the output of steps.
    pub masks: Vec<String>,
    /// `executor`: where the jobs of its projects run.
    pub executor: ExecutorRules,
    /// Workflows of the file, and `default`.
    pub workflows: BTreeMap<String, Workflow>,
    /// True if the file cannot be read, so that it may have a workflow of any name.
    pub any_workflow: bool,
}

impl GlobalConfig {
    /// Returns the configuration without a file.
    pub fn without_file() -> GlobalConfig {
        let workflows = BTreeMap::from([(DEFAULT_WORKFLOW.to_owned(), Workflow::default())]);
        let (policies, people) = (Policies::default(), People::default());
        let (metrics, repos, warnings) = (Metrics::default(), Vec::new(), Vec::new());
        let executors = BTreeMap::new();
        GlobalConfig { repos, workflows, policies, team_authz: None, people, metrics, executors, warnings }
    }

    /// Parses YAML; `origin` is the file's name for messages.
    ///
    /// # Errors
    ///
    /// All errors of the file, or the first one of its YAML, keys and types.
    pub fn parse(text: &str, origin: &str) -> Result<GlobalConfig, ConfigErrors> {
        parse::global(text, origin)
    }

    /// Returns all errors of the file's keys and types, of which [`GlobalConfig::parse`] returns the first. It takes several passes over the
    /// file.
    pub fn schema_errors(text: &str, origin: &str) -> ConfigErrors {
        parse::schema_errors(text, origin)
    }

    /// Returns the `id`s of entries that match none of these repositories.
    pub fn ids_of_none(&self, repos: &[&RepoId]) -> Vec<&str> {
        let names: Vec<String> = repos.iter().map(|repo| repo.to_string()).collect();
        let idle = self.repos.iter().filter(|entry| !names.iter().any(|name| entry.is_for(name)));
        idle.map(|entry| entry.id.text()).collect()
    }

    /// Returns the indexes of the entries of `repos` that match a repository, from 0.
    pub fn entries_for(&self, repo: &RepoId) -> Vec<usize> {
        let id = repo.to_string();
        self.repos.iter().enumerate().filter(|(_, entry)| entry.is_for(&id)).map(|(number, _)| number).collect()
    }

    /// Returns true if the last matching entry of a repository has a branch pattern, and it matches this branch.
    pub fn names_branch(&self, repo: &RepoId, branch: &str) -> bool {
        let id = repo.to_string();
        let last = self.repos.iter().rfind(|entry| entry.is_for(&id));
        last.is_some_and(|entry| entry.branch.is_some() && entry.allows_branch(branch))
    }

    /// Returns the same for a pattern that does not match every branch.
    pub fn names_branch_alone(&self, repo: &RepoId, branch: &str) -> bool {
        // No branch can have this name.
        const NO_BRANCH: &str = "\u{1}";
        self.names_branch(repo, branch) && !self.names_branch(repo, NO_BRANCH)
    }

    /// Returns each `merge_method` with the host of its entry; without one for an entry with a pattern.
    pub(super) fn merge_methods(&self) -> impl Iterator<Item = (Option<&str>, &MergeMethod)> {
        self.repos.iter().filter_map(|entry| {
            let host = match &entry.id {
                IdMatch::Exact(id) => id.split('/').next(),
                IdMatch::Regex(_) => None,
            };
            Some((host, entry.merge_method.as_ref()?))
        })
    }

    /// Returns the rules for one repository and base branch.
    pub fn rules(&self, repo: &RepoId, base_branch: &str) -> RepoRules {
        let id = repo.to_string();
        let matching: Vec<&RepoEntry> = self.repos.iter().filter(|entry| entry.is_for(&id)).collect();
        // Branch filter and file name come from the last matching entry as a whole; all other keys from the last entry
        // that has them.
        let last = matching.last();
        let branch_allowed = last.is_none_or(|entry| entry.allows_branch(base_branch));
        let hooks_before = matching.iter().flat_map(|entry| entry.pre_workflow_hooks.clone()).collect();
        let on_branch = matching.iter().filter(|entry| entry.allows_branch(base_branch));
        let hooks_after = on_branch.flat_map(|entry| entry.post_workflow_hooks.clone()).collect();
        RepoRules {
            branch_allowed,
            repo_config_file: last.and_then(|entry| entry.repo_config_file.clone()),
            pre_workflow_hooks: hooks_before,
            post_workflow_hooks: hooks_after,
            plan_requirements: last_said(&matching, |entry| &entry.plan_requirements).unwrap_or_default(),
            apply_requirements: last_said(&matching, |entry| &entry.apply_requirements).unwrap_or_default(),
            import_requirements: last_said(&matching, |entry| &entry.import_requirements).unwrap_or_default(),
            workflow: last_said(&matching, |entry| &entry.workflow).unwrap_or_else(|| DEFAULT_WORKFLOW.to_owned()),
            allowed_workflows: last_said(&matching, |entry| &entry.allowed_workflows).unwrap_or_default(),
            allowed_overrides: last_said(&matching, |entry| &entry.allowed_overrides).unwrap_or_default(),
            allow_custom_workflows: last_said(&matching, |entry| &entry.allow_custom_workflows).unwrap_or_default(),
            automerge: last_said(&matching, |entry| &entry.automerge),
            merge_method: last_said(&matching, |entry| &entry.merge_method),
            delete_source_branch_on_merge: last_said(&matching, |entry| &entry.delete_source_branch_on_merge)
                .unwrap_or_default(),
            replan_after_failed_apply: last_said(&matching, |entry| &entry.replan_after_failed_apply)
                .unwrap_or_default(),
            verify_applies: last_said(&matching, |entry| &entry.verify_applies).unwrap_or_default(),
            deleted_projects: last_said(&matching, |entry| &entry.deleted_projects).unwrap_or_default(),
            destroy_requirements: last_said(&matching, |entry| &entry.destroy_requirements)
                .unwrap_or_else(|| vec![Requirement::Approved]),
            repo_locks: last_said(&matching, |entry| &entry.repo_locks).unwrap_or(LockMode::OnPlan),
            apply_scope: last_said(&matching, |entry| &entry.apply_scope),
            on_merge: last_said(&matching, |entry| &entry.on_merge).unwrap_or_default(),
            autodiscover: last_said(&matching, |entry| &entry.autodiscover),
            silence_pr_comments: last_said(&matching, |entry| &entry.silence_pr_comments).unwrap_or_default(),
            terragrunt: last_said(&matching, |entry| &entry.terragrunt).unwrap_or_default(),
            terragrunt_version: last_said(&matching, |entry| &entry.terragrunt_version),
            plan_max_age: last_said(&matching, |entry| &entry.plan_max_age),
            reminder_interval: last_said(&matching, |entry| &entry.reminder_interval).unwrap_or(REMINDER_INTERVAL),
            policy_check: last_said(&matching, |entry| &entry.policy_check).unwrap_or(true),
            custom_policy_check: last_said(&matching, |entry| &entry.custom_policy_check).unwrap_or_default(),
            allowed: allowed(&matching),
            approvals: last_said(&matching, |entry| &entry.approvals),
            auto_apply: last_said(&matching, |entry| &entry.auto_apply).unwrap_or_default(),
            freeze: last_said(&matching, |entry| &entry.freeze).unwrap_or_default(),
            guards: last_said(&matching, |entry| &entry.guards).unwrap_or_default(),
            secrets: last_said(&matching, |entry| &entry.secrets).unwrap_or_default(),
            masks: last_said(&matching, |entry| &entry.masks).unwrap_or_default(),
            executor: last_said(&matching, |entry| &entry.executor).unwrap_or_default(),
            workflows: self.workflows.clone(),
            any_workflow: false,
        }
    }
}

/// Returns the value of a key in the last entry that has it; an empty list counts.
fn last_said<T: Clone>(entries: &[&RepoEntry], key: impl Fn(&RepoEntry) -> &Option<T>) -> Option<T> {
    entries.iter().rev().find_map(|entry| key(entry).clone())
}

/// Returns `allowed_users` and `allowed_teams`, each of the last entry that has it.
fn allowed(entries: &[&RepoEntry]) -> Option<Allowed> {
    let users = last_said(entries, |entry| &entry.allowed_users);
    let teams = last_said(entries, |entry| &entry.allowed_teams);
    let is_said = users.is_some() || teams.is_some();
    is_said.then(|| Allowed { users: users.unwrap_or_default(), teams: teams.unwrap_or_default() })
}

impl RepoRules {
    /// Allows everything that an entry may allow, to check a repo config whose rules cannot be read.
    #[must_use]
    pub fn allowing_everything(self) -> RepoRules {
        let repo_locks = LockMode::Strict(LockScope::PullRequest);
        let allowed_overrides = OVERRIDABLE_KEYS.map(str::to_owned).to_vec();
        RepoRules { repo_locks, allowed_overrides, allow_custom_workflows: true, any_workflow: true, ..self }
    }

    /// Returns the names that the repo config may have.
    pub fn repo_config_names(&self) -> Vec<&str> {
        match &self.repo_config_file {
            Some(name) => vec![name],
            None => DEFAULT_FILES.to_vec(),
        }
    }

    /// Returns true if a project of the repository may be in mode `strict`.
    pub fn may_be_strict(&self) -> bool {
        matches!(self.repo_locks, LockMode::Strict(_)) || self.allows_override("repo_locks")
    }

    /// Returns true if a repo config may set this key.
    pub fn allows_override(&self, key: &str) -> bool {
        self.allowed_overrides.iter().any(|allowed| allowed == key)
    }
}
