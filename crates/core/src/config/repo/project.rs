//! An entry of `projects`: checked against the rules, expanded, and merged into the effective configuration.

use super::{MAX_PROJECTS, NamedDirectories, Root, check_unique, permitted};
use crate::config::global::RepoRules;
use crate::config::paths::{Glob, clean, is_glob};
use crate::config::permissions::{self, Allowed};
use crate::config::raw::{LocatedText, RawProject};
use crate::config::workflow::Workflow;
use crate::config::yaml::{error_at, quoted};
use crate::config::{
    ConfigError, ConfigErrors, DEFAULT_WHEN_MODIFIED, DEFAULT_WORKSPACE, LockMode, OnMerge, ProjectConfig, Requirement,
    workspace_problem,
};
use crate::config::{approvals, auto_apply, checks, freeze};
use crate::domain::{AutoApply, ProjectId};
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, HashSet};

/// Context that all projects of the file share.
pub(super) struct ProjectContext<'a> {
    pub(super) file: &'a str,
    pub(super) rules: &'a RepoRules,
    pub(super) base_branch: &'a str,
    pub(super) directories: &'a dyn NamedDirectories,
    pub(super) root: &'a Root,
    pub(super) workflows: &'a BTreeMap<String, Workflow>,
}

/// Projects of all entries of `projects`.
pub(super) struct ListedProjects {
    /// The projects for this base branch.
    pub(super) projects: Vec<ProjectConfig>,
    /// The entry that each comes from.
    pub(super) entries: Vec<usize>,
    /// Directories of projects for other branches.
    pub(super) other_branch_dirs: Vec<String>,
}

/// Most names of workflows in a message.
const MAX_NAMED: usize = 20;

/// A directory of an entry.
struct ListedDirectory {
    /// Path as it is written, or as it matches the glob.
    written: String,
    /// Path without links.
    real: String,
}

impl ProjectContext<'_> {
    /// Checks and expands all entries.
    pub(super) fn projects(&self, raw: &[Spanned<RawProject>], errors: &mut ConfigErrors) -> ListedProjects {
        let mut projects: Vec<(Spanned<()>, ProjectConfig)> = Vec::new();
        let (mut entries, mut elsewhere) = (Vec::new(), Vec::new());
        for (entry, raw) in raw.iter().enumerate() {
            if errors.is_cut() {
                break;
            }
            let (dirs, id) = (errors.take(self.dirs(raw)), errors.take(self.id(&raw.value)));
            let project = self.project(&raw.value, errors);
            let is_for_branch = errors.take(self.is_for_branch(raw));
            let (Some(dirs), Some(id), Some(is_for_branch)) = (dirs, id, is_for_branch) else { continue };
            if !is_for_branch {
                elsewhere.extend(dirs.into_iter().map(|listed| listed.real));
                continue;
            }
            if projects.len() + dirs.len() > MAX_PROJECTS {
                errors.add(error_at(self.file, raw, format!("too many projects: at most {MAX_PROJECTS}")));
                break;
            }
            entries.extend(dirs.iter().map(|_| entry));
            projects.extend(dirs.into_iter().map(|dir| {
                let mut project = project.clone();
                project.link = (dir.written != dir.real).then_some(dir.written);
                project.executors = self.rules.executor.of_project(&dir.real);
                project.guards = self.rules.guards.of_project(&dir.real);
                project.secrets = self.rules.secrets.of_project(&dir.real, &id.workspace);
                project.id = ProjectId { dir: dir.real, ..id.clone() };
                (Spanned::new((), raw.referenced, raw.defined), project)
            }));
        }
        errors.take(check_unique(&projects, self.file));
        let projects = projects.into_iter().map(|(_, project)| project).collect();
        ListedProjects { projects, entries, other_branch_dirs: elsewhere }
    }

    fn is_for_branch(&self, raw: &Spanned<RawProject>) -> Result<bool, ConfigError> {
        let Some(branch) = &raw.value.branch else { return Ok(true) };
        Ok(checks::slashed_regex(branch, "branch", self.file)?.is_match(self.base_branch))
    }

    /// Returns the cleaned `dir`, or the directories that its glob matches, each once.
    fn dirs(&self, raw: &Spanned<RawProject>) -> Result<Vec<ListedDirectory>, ConfigError> {
        let blank = "dir cannot be blank: every project needs `dir`, such as `dir: .`";
        let dir = raw.value.dir.as_ref().ok_or_else(|| error_at(self.file, raw, blank))?;
        let value = dir.value.as_str();
        if value.is_empty() {
            return Err(error_at(self.file, dir, blank));
        }
        if value.contains("..") || value.contains('\0') {
            return Err(error_at(self.file, dir, "dir cannot contain `..`; it is relative to the repository's root"));
        }
        let cleaned = clean(value.trim_start_matches('/'));
        if !is_glob(&cleaned) {
            return Ok(vec![self.real(cleaned)]);
        }
        if let Some(name) = &raw.value.name {
            let message = "name: not allowed together with a glob in `dir`: all matching projects would have this name";
            return Err(error_at(self.file, name, message));
        }
        Glob::new(&cleaned).map_err(|error| error_at(self.file, dir, format!("dir: {error}")))?;
        let mut dirs: Vec<_> = self.directories.matching(&cleaned).into_iter().map(|dir| self.real(dir)).collect();
        // If a directory matches by its own path and by links, its own path is used.
        let by_own_path: HashSet<String> =
            dirs.iter().filter(|dir| dir.real == dir.written).map(|dir| dir.real.clone()).collect();
        let mut seen = HashSet::new();
        dirs.retain(|dir| {
            (dir.real == dir.written || !by_own_path.contains(&dir.real)) && seen.insert(dir.real.clone())
        });
        Ok(dirs)
    }

    /// Resolves links. A path out of the repository stays as it is written, and matches no directory.
    fn real(&self, written: String) -> ListedDirectory {
        let real = self.directories.real(&written).unwrap_or_else(|| written.clone());
        ListedDirectory { written, real }
    }

    /// Returns workspace and name, without the directory.
    fn id(&self, raw: &RawProject) -> Result<ProjectId, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let workspace = errors.key(raw.workspace.as_ref().map(|text| self.workspace(text)));
        let name = errors.key(raw.name.as_ref().map(|text| checks::project_name(text, self.file)));
        let workspace = workspace.unwrap_or_else(|| DEFAULT_WORKSPACE.to_owned());
        errors.none_or(ProjectId { dir: String::new(), workspace, name })
    }

    /// Reads all other keys. Those with errors have the values of the rules.
    fn project(&self, raw: &RawProject, errors: &mut ConfigErrors) -> ProjectConfig {
        let (file, rules) = (self.file, self.rules);
        let id = ProjectId { dir: String::new(), workspace: String::new(), name: None };
        let mut project = ProjectConfig::from_rules(id, rules);
        let at_first = errors.take(permitted(raw.workflow.as_ref(), "workflow", rules, file));
        if let Some(text) = raw.workflow.as_ref().filter(|_| at_first.is_some()) {
            errors.set(&mut project.workflow, Some(self.workflow(text)));
            project.workflow_name.clone_from(&text.value);
        }
        self.check_permissions(raw, errors);
        self.requirements(&mut project.plan_requirements, raw.plan_requirements.as_ref(), "plan", errors);
        self.requirements(&mut project.apply_requirements, raw.apply_requirements.as_ref(), "apply", errors);
        self.requirements(&mut project.import_requirements, raw.import_requirements.as_ref(), "import", errors);
        self.locks(&mut project, raw, errors);
        let version = |text: &Option<LocatedText>, key: &str, errors: &mut ConfigErrors| {
            errors.key(text.as_ref().map(|text| checks::version(text, key, file)))
        };
        project.terraform_version = version(&raw.terraform_version, "terraform_version", errors);
        project.terragrunt = raw.terragrunt.unwrap_or(rules.terragrunt);
        project.terragrunt_version =
            version(&raw.terragrunt_version, "terragrunt_version", errors).or(project.terragrunt_version);
        project.distribution =
            errors.key(raw.terraform_distribution.as_ref().map(|text| checks::distribution(text, file)));
        project.execution_order_group = raw.execution_order_group.unwrap_or_default();
        project.depends_on = raw.depends_on.clone().unwrap_or_default();
        let silence = raw.silence_pr_comments.as_ref().map(|list| checks::silenced_commands(&list.value, file));
        if let Some(silence) = errors.key(silence).or_else(|| self.root.silence_pr_comments.clone()) {
            project.silence_pr_comments = silence;
        }
        let delete = raw.delete_source_branch_on_merge.as_ref().map(|on| on.value);
        if let Some(delete) = delete.or(self.root.delete_source_branch_on_merge) {
            project.delete_source_branch_on_merge = delete;
        }
        let max_age = raw.plan_max_age.as_ref().map(|text| checks::age(text, "plan_max_age", file));
        project.plan_max_age = errors.key(max_age).or(project.plan_max_age);
        let interval = raw.reminder_interval.as_ref().map(|text| checks::age(text, "reminder_interval", file));
        errors.set(&mut project.reminder_interval, interval);
        project.policy_check = raw.policy_check.as_ref().map_or(rules.policy_check, |on| on.value);
        project.custom_policy_check = raw.custom_policy_check.as_ref().map_or(rules.custom_policy_check, |on| on.value);
        project.allowed = self.allowed(raw, errors);
        let approvals = raw.approvals.as_ref().map(|own| approvals::rules(own, file));
        project.approvals = errors.key(approvals).or(project.approvals);
        self.auto_apply(&mut project, raw, errors);
        errors.set(&mut project.freeze, raw.freeze.as_ref().map(|own| freeze::windows(&own.value, file)));
        errors.set(&mut project.tags, raw.tags.as_ref().map(|list| checks::tags(list, file)));
        let autoplan = raw.autoplan.as_ref();
        project.autoplan_enabled = autoplan.and_then(|autoplan| autoplan.enabled).unwrap_or(true);
        project.when_modified = autoplan
            .and_then(|autoplan| autoplan.when_modified.clone())
            .unwrap_or_else(|| DEFAULT_WHEN_MODIFIED.map(str::to_owned).to_vec());
        project
    }

    /// Sets `auto_apply`, once the requirements are known.
    fn auto_apply(&self, project: &mut ProjectConfig, raw: &RawProject, errors: &mut ConfigErrors) {
        let Some(own) = &raw.auto_apply else { return };
        errors.set(&mut project.auto_apply, Some(auto_apply::rule(own, self.file)));
        let is_wanted = auto_apply::wants_approval(&project.apply_requirements, project.approvals.is_some());
        // Without the server's file, its requirements are not known.
        if project.auto_apply == AutoApply::Approved && !is_wanted && !self.rules.any_workflow {
            errors.add(auto_apply::needs_approval(own, self.file));
        }
    }

    /// Sets the keys that concern locks.
    fn locks(&self, project: &mut ProjectConfig, raw: &RawProject, errors: &mut ConfigErrors) {
        let file = self.file;
        project.repo_locks = errors.take(self.repo_locks(raw)).unwrap_or(checks::UNKNOWN_LOCKS);
        let scope = raw.apply_scope.as_ref().map(|text| checks::apply_scope(text, file));
        project.apply_scope = errors.key(scope).or(project.apply_scope);
        if let Some(text) = &raw.on_merge {
            errors.set(&mut project.on_merge, Some(checks::on_merge(text, file)));
            if project.on_merge == OnMerge::Apply && !project.applies_on_merge() {
                errors.add(checks::on_merge_needs_strict(text, file));
            }
        }
    }

    /// Returns the people who may use commands on the project, which narrows the server's rules.
    fn allowed(&self, raw: &RawProject, errors: &mut ConfigErrors) -> Option<Allowed> {
        let mut list = |own: Option<&Spanned<Vec<LocatedText>>>, key| {
            errors.key(own.map(|list| checks::people(&list.value, key, permissions::check_own, self.file)))
        };
        let users = list(raw.allowed_users.as_ref(), "allowed_users");
        let teams = list(raw.allowed_teams.as_ref(), "allowed_teams");
        let is_said = users.is_some() || teams.is_some();
        is_said.then(|| Allowed { users: users.unwrap_or_default(), teams: teams.unwrap_or_default() })
    }

    /// Checks that the rules allow the keys, except those whose value is checked together with that.
    fn check_permissions(&self, raw: &RawProject, errors: &mut ConfigErrors) {
        let (rules, file) = (self.rules, self.file);
        errors.take(permitted(
            raw.delete_source_branch_on_merge.as_ref(),
            "delete_source_branch_on_merge",
            rules,
            file,
        ));
        errors.take(permitted(raw.repo_locking.as_ref(), "repo_locking", rules, file));
        errors.take(permitted(raw.repo_locks.as_ref(), "repo_locks", rules, file));
        errors.take(permitted(raw.apply_scope.as_ref(), "apply_scope", rules, file));
        errors.take(permitted(raw.on_merge.as_ref(), "on_merge", rules, file));
        errors.take(permitted(raw.silence_pr_comments.as_ref(), "silence_pr_comments", rules, file));
        errors.take(permitted(raw.plan_max_age.as_ref(), "plan_max_age", rules, file));
        errors.take(permitted(raw.reminder_interval.as_ref(), "reminder_interval", rules, file));
        errors.take(permitted(raw.approvals.as_ref(), "approvals", rules, file));
        errors.take(permitted(raw.auto_apply.as_ref(), "auto_apply", rules, file));
        errors.take(permitted(raw.freeze.as_ref(), "freeze", rules, file));
        errors.take(permitted(raw.allowed_users.as_ref(), "allowed_users", rules, file));
        errors.take(permitted(raw.allowed_teams.as_ref(), "allowed_teams", rules, file));
        errors.take(permitted(raw.policy_check.as_ref(), "policy_check", rules, file));
        errors.take(permitted(raw.custom_policy_check.as_ref(), "custom_policy_check", rules, file));
    }

    fn workspace(&self, text: &LocatedText) -> Result<String, ConfigError> {
        match workspace_problem(&text.value) {
            Some(problem) => {
                let message = format!("workspace: `{}` is not a valid name: {problem}", quoted(&text.value));
                Err(error_at(self.file, text, message))
            }
            None if text.value.is_empty() => Ok(DEFAULT_WORKSPACE.to_owned()),
            None => Ok(text.value.clone()),
        }
    }

    /// Returns a workflow by name. Workflows of the repository override those of the server, if they are allowed.
    fn workflow(&self, text: &LocatedText) -> Result<Workflow, ConfigError> {
        if let Some(own) = self.workflows.get(&text.value) {
            let mut own = own.clone();
            if !self.rules.allows_override("policy_check") {
                // The author of a plan must not choose its check.
                let server = self.rules.workflows.get(&self.rules.workflow);
                own.policy_check = server.cloned().unwrap_or_default().policy_check;
            }
            return Ok(own);
        }
        let name = quoted(&text.value);
        let Some(workflow) = self.rules.workflows.get(&text.value) else {
            if self.rules.any_workflow {
                return Ok(Workflow::default());
            }
            // Each wrong project lists them.
            let known: Vec<String> = self
                .workflows
                .keys()
                .chain(self.rules.workflows.keys())
                .take(MAX_NAMED)
                .map(|name| quoted(name))
                .collect();
            let message = format!("workflow: `{name}` is not defined; there are: {}", known.join(", "));
            return Err(error_at(self.file, text, message));
        };
        let allowed = &self.rules.allowed_workflows;
        if !allowed.is_empty() && !allowed.contains(&text.value) {
            let message =
                format!("workflow: `{name}` is not allowed for this repository; allowed: {}", allowed.join(", "));
            return Err(error_at(self.file, text, message));
        }
        Ok(workflow.clone())
    }

    /// Sets the requirements of a command. A wrong value is reported instead of a missing permission: the message is more useful.
    fn requirements(
        &self,
        effective: &mut Vec<Requirement>,
        own: Option<&Spanned<Vec<LocatedText>>>,
        command: &str,
        errors: &mut ConfigErrors,
    ) {
        let Some(list) = own else { return };
        let kind = format!("{command}_requirement");
        if let Some(own) = errors.take(checks::requirements(&list.value, &kind, self.file)) {
            errors.take(permitted(Some(list), &format!("{kind}s"), self.rules, self.file));
            *effective = own;
        }
    }

    /// Returns the effective lock mode. A project's value overrides the file's root, which overrides the server's; the old `repo_locking`
    /// has the lowest precedence.
    fn repo_locks(&self, raw: &RawProject) -> Result<LockMode, ConfigError> {
        let mut mode = self.rules.repo_locks;
        match raw.repo_locking.as_ref().map(|on| on.value) {
            Some(false) => mode = LockMode::Disabled,
            Some(true) if mode == LockMode::Disabled => mode = LockMode::OnPlan,
            _ => {}
        }
        let own = raw.repo_locks.as_ref().map(|locks| checks::lock_mode(&locks.value, self.file)).transpose()?;
        Ok(own.or(self.root.repo_locks).unwrap_or(mode))
    }
}
