//! Parses `repos.yaml`: from its YAML form to [`GlobalConfig`].

use super::{DEFAULT_WORKFLOW, GlobalConfig, Hook, IdMatch, OVERRIDABLE_KEYS, RepoEntry};
use crate::config::executors::Executor;
use crate::config::metrics::Metrics;
use crate::config::people::People;
use crate::config::policies::Policies;
use crate::config::raw::{LocatedText, RawGlobal, RawHook, RawRepo, Texts};
use crate::config::team_authz::TeamAuthz;
use crate::config::workflow::{ShellCommand, Workflow};
use crate::config::yaml::{decode, error_at, quoted};
use crate::config::{
    ConfigError, LockMode, OnMerge, Requirement, approvals, checks, drift, executors, freeze, permissions,
};
use regex::RegexBuilder;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Most entries of `repos`.
const MAX_ENTRIES: usize = 10_000;

pub(super) fn global(text: &str, file: &str) -> Result<GlobalConfig, ConfigError> {
    let empty = || {
        ConfigError(format!(
            "{file}:1:1: the file is empty; write at least `repos: []`, or drop the setting that names the file"
        ))
    };
    let raw: RawGlobal = decode(text, file)?.ok_or_else(empty)?;
    let warnings = raw
        .external_stores
        .iter()
        .map(|node| error_at(file, node, "`external_stores` has no effect: plans are kept in the bucket").to_string());
    let mut warnings: Vec<String> = warnings.collect();
    let mut workflows = BTreeMap::from([(DEFAULT_WORKFLOW.to_owned(), Workflow::default())]);
    for (name, workflow) in raw.workflows.unwrap_or_default() {
        workflows.insert(name, Workflow::from_raw(workflow.unwrap_or_default(), file)?);
    }
    let raw_executors = raw.executors.unwrap_or_default();
    let executors = raw_executors.checked(file)?;
    let entries = raw.repos.unwrap_or_default();
    if entries.len() > MAX_ENTRIES {
        return Err(ConfigError(format!("{file}: repos: more than {MAX_ENTRIES} entries")));
    }
    let mut repos: Vec<RepoEntry> = Vec::with_capacity(entries.len());
    for raw in entries {
        let entry = entry(&raw, &workflows, &executors, file)?;
        let is_strict = |entry: &RepoEntry| matches!(entry.repo_locks, Some(LockMode::Strict(_)));
        // If an entry does not set locks, an earlier one has to.
        let may_be_strict = is_strict(&entry) || (entry.repo_locks.is_none() && repos.iter().any(is_strict));
        if let (Some(text), Some(OnMerge::Apply), false) = (&raw.value.on_merge, entry.on_merge, may_be_strict) {
            return Err(checks::on_merge_needs_strict(text, file));
        }
        repos.push(entry);
    }
    warnings.extend(raw_executors.unused(repos.iter().filter_map(|entry| entry.executor.as_ref()), file));
    let policies = Policies::from_raw(raw.policies.unwrap_or_default(), file)?;
    let team_authz = raw.team_authz.as_ref().map(|raw| TeamAuthz::from_raw(raw, file)).transpose()?;
    let people = People::from_raw(&raw.people.unwrap_or_default(), file)?;
    let metrics = raw.metrics.map(|raw| Metrics::from_raw(raw, file)).transpose()?.unwrap_or_default();
    Ok(GlobalConfig { repos, workflows, policies, team_authz, people, metrics, executors, warnings })
}

fn entry(
    raw: &Spanned<RawRepo>,
    workflows: &BTreeMap<String, Workflow>,
    known_executors: &BTreeMap<String, Executor>,
    file: &str,
) -> Result<RepoEntry, ConfigError> {
    let at = raw;
    let raw = &raw.value;
    let known = |text: &LocatedText, key: &str| match workflows.contains_key(&text.value) {
        true => Ok(text.value.clone()),
        false => Err(error_at(
            file,
            text,
            format!("{key}: the workflow `{}` is not defined under `workflows`", quoted(&text.value)),
        )),
    };
    let all_known = |list: &Vec<LocatedText>| list.iter().map(|text| known(text, "allowed_workflows")).collect();
    Ok(RepoEntry {
        id: id(at, file)?,
        branch: raw.branch.as_ref().map(|text| checks::slashed_regex(text, "branch", file)).transpose()?,
        repo_config_file: raw.repo_config_file.as_ref().map(|text| repo_config_file(text, file)).transpose()?,
        plan_requirements: requirements(&raw.plan_requirements, "plan_requirement", file)?,
        apply_requirements: requirements(&raw.apply_requirements, "apply_requirement", file)?,
        import_requirements: requirements(&raw.import_requirements, "import_requirement", file)?,
        pre_workflow_hooks: hooks(raw.pre_workflow_hooks.as_deref(), "pre_workflow_hooks", file)?,
        post_workflow_hooks: hooks(raw.post_workflow_hooks.as_deref(), "post_workflow_hooks", file)?,
        workflow: raw.workflow.as_ref().map(|text| known(text, "workflow")).transpose()?,
        allowed_workflows: raw.allowed_workflows.as_ref().map(all_known).transpose()?,
        allowed_overrides: raw.allowed_overrides.as_ref().map(|list| allowed_overrides(list, file)).transpose()?,
        allow_custom_workflows: raw.allow_custom_workflows,
        delete_source_branch_on_merge: raw.delete_source_branch_on_merge,
        repo_locks: repo_locks(raw, file)?,
        apply_scope: raw.apply_scope.as_ref().map(|text| checks::apply_scope(text, file)).transpose()?,
        on_merge: raw.on_merge.as_ref().map(|text| checks::on_merge(text, file)).transpose()?,
        autodiscover: raw.autodiscover.as_ref().map(|block| checks::autodiscover(block, file)).transpose()?,
        silence_pr_comments: raw
            .silence_pr_comments
            .as_ref()
            .map(|list| checks::silenced_commands(list, file))
            .transpose()?,
        terragrunt: raw.terragrunt,
        terragrunt_version: raw
            .terragrunt_version
            .as_ref()
            .map(|text| checks::version(text, "terragrunt_version", file))
            .transpose()?,
        plan_max_age: raw.plan_max_age.as_ref().map(|text| checks::age(text, "plan_max_age", file)).transpose()?,
        reminder_interval: raw
            .reminder_interval
            .as_ref()
            .map(|text| checks::age(text, "reminder_interval", file))
            .transpose()?,
        policy_check: raw.policy_check,
        custom_policy_check: raw.custom_policy_check,
        allowed_users: raw.allowed_users.as_ref().map(|list| people(list, "allowed_users", file)).transpose()?,
        allowed_teams: raw.allowed_teams.as_ref().map(|list| people(list, "allowed_teams", file)).transpose()?,
        approvals: raw.approvals.as_ref().map(|raw| approvals::rules(raw, file)).transpose()?,
        freeze: raw.freeze.as_ref().map(|list| freeze::windows(list, file)).transpose()?,
        executor: raw.executor.as_ref().map(|list| executors::rules(list, known_executors, file)).transpose()?,
        drift: raw.drift.as_ref().map(|raw| drift::rule(raw, file)).transpose()?,
    })
}

fn requirements(list: &Texts, kind: &str, file: &str) -> Result<Option<Vec<Requirement>>, ConfigError> {
    list.as_ref().map(|list| checks::requirements(list, kind, file)).transpose()
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

fn allowed_overrides(list: &[LocatedText], file: &str) -> Result<Vec<String>, ConfigError> {
    let known = OVERRIDABLE_KEYS.join(", ");
    list.iter()
        .map(|text| match OVERRIDABLE_KEYS.contains(&text.value.as_str()) {
            true => Ok(text.value.clone()),
            false => {
                let message = format!(
                    "allowed_overrides: \"{}\" is not a key to override; there are: {known}",
                    quoted(&text.value)
                );
                Err(error_at(file, text, message))
            }
        })
        .collect()
}

fn people(list: &[LocatedText], key: &str, file: &str) -> Result<Vec<String>, ConfigError> {
    checks::people(list, key, permissions::check, file)
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

fn hooks(raw: Option<&[Spanned<RawHook>]>, key: &str, file: &str) -> Result<Vec<Hook>, ConfigError> {
    let hooks = raw.unwrap_or_default().iter();
    hooks
        .map(|raw| {
            let hook = &raw.value;
            let run = hook.run.clone().filter(|run| !run.trim().is_empty());
            let run = run.ok_or_else(|| error_at(file, raw, format!("{key}: a hook needs `run: COMMAND`")))?;
            let words = |words: &crate::config::workflow::raw::Words| words.clone();
            Ok(Hook {
                command: ShellCommand::new(run, hook.shell.clone(), hook.shell_args.as_ref().map(words)),
                description: hook.description.clone().filter(|text| !text.is_empty()),
                commands: hook.commands.clone().filter(|text| !text.is_empty()),
            })
        })
        .collect()
}
