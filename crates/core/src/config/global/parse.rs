//! Parses `repos.yaml`: from its YAML form to [`GlobalConfig`].

use super::{DEFAULT_WORKFLOW, GlobalConfig, Hook, IdMatch, OVERRIDABLE_KEYS, RepoEntry};
use crate::config::blanked::schema_errors_of;
use crate::config::errors::all;
use crate::config::executors::Executor;
use crate::config::metrics::Metrics;
use crate::config::people::People;
use crate::config::policies::Policies;
use crate::config::raw::{LocatedText, RawGlobal, RawHook, RawRepo, Texts};
use crate::config::team_authz::TeamAuthz;
use crate::config::workflow::{ShellCommand, Workflow};
use crate::config::yaml::{decode, error_at, quoted};
use crate::config::{
    ConfigError, ConfigErrors, LockMode, OnMerge, approvals, auto_apply, checks, drift, executors, freeze, guards,
    merging, permissions, secrets,
};
use crate::domain::AutoApply;
use regex::RegexBuilder;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Most entries of `repos`.
pub(in crate::config) const MAX_ENTRIES: usize = 10_000;

pub(super) fn global(text: &str, file: &str) -> Result<GlobalConfig, ConfigErrors> {
    let empty = || {
        ConfigError(format!(
            "{file}:1:1: the file is empty; write at least `repos: []`, or drop the setting that names the file"
        ))
    };
    let raw: RawGlobal = decode(text, file)?.ok_or_else(empty)?;
    let mut errors = ConfigErrors::default();
    let warnings = raw
        .external_stores
        .iter()
        .map(|node| error_at(file, node, "`external_stores` has no effect: plans are kept in the bucket").to_string());
    let mut warnings: Vec<String> = warnings.collect();
    let mut workflows = BTreeMap::from([(DEFAULT_WORKFLOW.to_owned(), Workflow::default())]);
    for (name, workflow) in raw.workflows.unwrap_or_default() {
        workflows.insert(name, Workflow::from_raw(workflow.unwrap_or_default(), file, &mut errors));
    }
    let raw_executors = raw.executors.unwrap_or_default();
    let executors = errors.take(raw_executors.checked(file));
    let entries = raw.repos.unwrap_or_default();
    if entries.len() > MAX_ENTRIES {
        return Err(ConfigError(format!("{file}: repos: more than {MAX_ENTRIES} entries")).into());
    }
    let context = EntryContext { file, workflows: &workflows, executors: executors.as_ref() };
    let repos = context.entries(&entries, &mut errors);
    warnings.extend(raw_executors.unused(repos.iter().filter_map(|entry| entry.executor.as_ref()), file));
    let of_secrets = entries.iter().filter_map(|entry| entry.value.secrets.as_ref());
    warnings.extend(of_secrets.flat_map(|list| secrets::without_dirs(list, file)));
    let policies = Policies::from_raw(raw.policies.unwrap_or_default(), file, &mut errors);
    let team_authz = errors.key(raw.team_authz.as_ref().map(|raw| TeamAuthz::from_raw(raw, file)));
    let people = errors.take(People::from_raw(&raw.people.unwrap_or_default(), file)).unwrap_or_default();
    let metrics = raw.metrics.map(|raw| Metrics::from_raw(raw, file, &mut errors)).unwrap_or_default();
    let executors = executors.unwrap_or_default();
    errors.none_or(GlobalConfig { repos, workflows, policies, team_authz, people, metrics, executors, warnings })
}

pub(super) fn schema_errors(text: &str, file: &str) -> ConfigErrors {
    schema_errors_of::<RawGlobal>(text, file)
}

/// Context that all entries of the file share.
struct EntryContext<'a> {
    file: &'a str,
    workflows: &'a BTreeMap<String, Workflow>,
    /// Absent if one of them is wrong: then nothing is known of the rules that name them.
    executors: Option<&'a BTreeMap<String, Executor>>,
}

impl EntryContext<'_> {
    /// Checks all entries.
    fn entries(&self, entries: &[Spanned<RawRepo>], errors: &mut ConfigErrors) -> Vec<RepoEntry> {
        let mut repos = Vec::with_capacity(entries.len());
        let wants_approval = |entry: &RepoEntry| {
            let requirements = entry.apply_requirements.as_deref().unwrap_or_default();
            auto_apply::wants_approval(requirements, entry.approvals.is_some())
        };
        let is_strict = |entry: &RepoEntry| matches!(entry.repo_locks, Some(LockMode::Strict(_)));
        for raw in entries {
            if errors.is_cut() {
                break;
            }
            let entry = self.entry(raw, errors);
            // If an entry does not set locks, an earlier one has to.
            let may_be_strict = is_strict(&entry) || (entry.repo_locks.is_none() && repos.iter().any(is_strict));
            if let (Some(text), Some(OnMerge::Apply), false) = (&raw.value.on_merge, entry.on_merge, may_be_strict) {
                errors.add(checks::on_merge_needs_strict(text, self.file));
            }
            // The same for the requirements that `when: approved` needs.
            let is_approved =
                wants_approval(&entry) || (entry.apply_requirements.is_none() && repos.iter().any(wants_approval));
            if let (Some(raw), Some(AutoApply::Approved), false) =
                (&raw.value.auto_apply, entry.auto_apply, is_approved)
            {
                errors.add(auto_apply::needs_approval(raw, self.file));
            }
            repos.push(entry);
        }
        repos
    }

    fn entry(&self, at: &Spanned<RawRepo>, errors: &mut ConfigErrors) -> RepoEntry {
        let (raw, file) = (&at.value, self.file);
        let of_kind = |list: &Texts, kind: &str, errors: &mut ConfigErrors| {
            errors.key(list.as_ref().map(|list| checks::requirements(list, kind, file)))
        };
        let people = |list: &Texts, key: &str, errors: &mut ConfigErrors| {
            errors.key(list.as_ref().map(|list| checks::people(list, key, permissions::check, file)))
        };
        let age = |text: &Option<LocatedText>, key: &str, errors: &mut ConfigErrors| {
            errors.key(text.as_ref().map(|text| checks::age(text, key, file)))
        };
        let all_known = |list: &Vec<LocatedText>| all(list.iter().map(|text| self.known(text, "allowed_workflows")));
        let hooks = |list: &Option<Vec<Spanned<RawHook>>>, key: &str, errors: &mut ConfigErrors| {
            errors.key(list.as_deref().map(|list| hooks(list, key, file))).unwrap_or_default()
        };
        let executor = raw.executor.as_ref().zip(self.executors);
        RepoEntry {
            id: errors.take(id(at, file)).unwrap_or_else(|| IdMatch::Exact(String::new())),
            branch: errors.key(raw.branch.as_ref().map(|text| checks::slashed_regex(text, "branch", file))),
            repo_config_file: errors.key(raw.repo_config_file.as_ref().map(|text| repo_config_file(text, file))),
            plan_requirements: of_kind(&raw.plan_requirements, "plan_requirement", errors),
            apply_requirements: of_kind(&raw.apply_requirements, "apply_requirement", errors),
            import_requirements: of_kind(&raw.import_requirements, "import_requirement", errors),
            pre_workflow_hooks: hooks(&raw.pre_workflow_hooks, "pre_workflow_hooks", errors),
            post_workflow_hooks: hooks(&raw.post_workflow_hooks, "post_workflow_hooks", errors),
            workflow: errors.key(raw.workflow.as_ref().map(|text| self.known(text, "workflow"))),
            allowed_workflows: errors.key(raw.allowed_workflows.as_ref().map(all_known)),
            allowed_overrides: errors.key(raw.allowed_overrides.as_ref().map(|list| allowed_overrides(list, file))),
            allow_custom_workflows: raw.allow_custom_workflows,
            automerge: raw.automerge,
            merge_method: errors.key(raw.merge_method.as_ref().map(|text| merging::method(text, file))),
            delete_source_branch_on_merge: raw.delete_source_branch_on_merge,
            replan_after_failed_apply: raw.replan_after_failed_apply,
            verify_applies: raw.verify_applies,
            deleted_projects: errors
                .key(raw.deleted_projects.as_ref().map(|text| checks::deleted_projects(text, file))),
            destroy_requirements: of_kind(&raw.destroy_requirements, "destroy_requirement", errors),
            repo_locks: errors.take(repo_locks(raw, file)).unwrap_or(Some(checks::UNKNOWN_LOCKS)),
            apply_scope: errors.key(raw.apply_scope.as_ref().map(|text| checks::apply_scope(text, file))),
            on_merge: errors.key(raw.on_merge.as_ref().map(|text| checks::on_merge(text, file))),
            autodiscover: errors.key(raw.autodiscover.as_ref().map(|block| checks::autodiscover(block, file))),
            silence_pr_comments: errors
                .key(raw.silence_pr_comments.as_ref().map(|list| checks::silenced_commands(list, file))),
            terragrunt: raw.terragrunt,
            terragrunt_version: errors
                .key(raw.terragrunt_version.as_ref().map(|text| checks::version(text, "terragrunt_version", file))),
            plan_max_age: age(&raw.plan_max_age, "plan_max_age", errors),
            reminder_interval: age(&raw.reminder_interval, "reminder_interval", errors),
            policy_check: raw.policy_check,
            custom_policy_check: raw.custom_policy_check,
            allowed_users: people(&raw.allowed_users, "allowed_users", errors),
            allowed_teams: people(&raw.allowed_teams, "allowed_teams", errors),
            approvals: errors.key(raw.approvals.as_ref().map(|raw| approvals::rules(raw, file))),
            auto_apply: errors.key(raw.auto_apply.as_ref().map(|raw| auto_apply::rule(raw, file))),
            freeze: errors.key(raw.freeze.as_ref().map(|list| freeze::windows(list, file))),
            guards: errors.key(raw.guards.as_ref().map(|list| guards::guards(list, file))),
            secrets: errors.key(raw.secrets.as_ref().map(|list| secrets::rules(list, file))),
            masks: errors.key(raw.masks.as_ref().map(|list| secrets::masks(list, file))),
            executor: errors.key(executor.map(|(list, known)| executors::rules(list, known, file))),
            drift: errors.key(raw.drift.as_ref().map(|raw| drift::rule(raw, file))),
        }
    }

    /// Returns the name of a workflow of the file.
    fn known(&self, text: &LocatedText, key: &str) -> Result<String, ConfigError> {
        if self.workflows.contains_key(&text.value) {
            return Ok(text.value.clone());
        }
        let message = format!("{key}: the workflow `{}` is not defined under `workflows`", quoted(&text.value));
        Err(error_at(self.file, text, message))
    }
}

fn id(entry: &Spanned<RawRepo>, file: &str) -> Result<IdMatch, ConfigError> {
    let Some(id) = entry.value.id.as_ref().filter(|id| !id.value.is_empty()) else {
        return Err(error_at(file, entry, "id cannot be blank: `id: host/owner/name`, or a regex such as `id: /.*/`"));
    };
    if id.value.starts_with('/') && id.value.ends_with('/') && id.value.len() > 1 {
        let regex = checks::slashed_regex(id, "id", file)?;
        let folded = RegexBuilder::new(regex.as_str()).case_insensitive(true).build();
        return Ok(IdMatch::Regex(folded.map_err(|error| error_at(file, id, format!("id: {error}")))?));
    }
    if id.value.starts_with('/') || id.value.contains("://") {
        let message = format!(
            "id: `{}` is neither `host/owner/name` nor a regex that begins and ends with a slash",
            quoted(&id.value)
        );
        return Err(error_at(file, id, message));
    }
    Ok(IdMatch::Exact(id.value.clone()))
}

fn repo_config_file(text: &LocatedText, file: &str) -> Result<String, ConfigError> {
    let path = text.value.as_str();
    let leaves = path.split(['/', '\\']).any(|part| part == "..");
    if path.is_empty() || path.starts_with(['/', '\\']) || leaves || path.contains('\0') {
        let message = format!(
            "repo_config_file: `{}` must be a path inside the repository, relative to its root, without `..`",
            quoted(path)
        );
        return Err(error_at(file, text, message));
    }
    Ok(crate::config::paths::clean(path))
}

fn allowed_overrides(list: &[LocatedText], file: &str) -> Result<Vec<String>, ConfigErrors> {
    let known = OVERRIDABLE_KEYS.join(", ");
    all(list.iter().map(|text| match OVERRIDABLE_KEYS.contains(&text.value.as_str()) {
        true => Ok(text.value.clone()),
        false => {
            let message =
                format!("allowed_overrides: \"{}\" is not a key to override; there are: {known}", quoted(&text.value));
            Err(error_at(file, text, message))
        }
    }))
}

/// Returns `repo_locks`, or the equivalent of the old `repo_locking`.
fn repo_locks(raw: &RawRepo, file: &str) -> Result<Option<LockMode>, ConfigError> {
    let mode = raw.repo_locks.as_ref().map(|locks| checks::lock_mode(locks, file)).transpose()?;
    Ok(match (raw.repo_locking.as_ref(), mode) {
        (Some(old), Some(mode)) if !old.value && mode != LockMode::Disabled => {
            let message = "`repo_locking: false` contradicts `repo_locks`; drop `repo_locking`, which is the old name";
            return Err(error_at(file, old, message));
        }
        (Some(old), _) if !old.value => Some(LockMode::Disabled),
        (Some(_), None) => Some(LockMode::OnPlan),
        (_, mode) => mode,
    })
}

fn hooks(list: &[Spanned<RawHook>], key: &str, file: &str) -> Result<Vec<Hook>, ConfigErrors> {
    all(list.iter().map(|raw| {
        let hook = &raw.value;
        let run = hook.run.clone().filter(|run| !run.trim().is_empty());
        let run = run.ok_or_else(|| error_at(file, raw, format!("{key}: a hook needs `run: COMMAND`")))?;
        let words = |words: &crate::config::workflow::raw::Words| words.clone();
        Ok::<_, ConfigError>(Hook {
            command: ShellCommand::new(run, hook.shell.clone(), hook.shell_args.as_ref().map(words)),
            description: hook.description.clone().filter(|text| !text.is_empty()),
            commands: hook.commands.clone().filter(|text| !text.is_empty()),
        })
    }))
}
