//! Values of a repository and of each of its projects, with their origins.

use super::CheckedRepository;
use super::origins::DEFAULT;
use super::report::{CheckReport, EffectiveValue, ProjectReport};
use crate::config::executors::StageExecutors;
use crate::config::global::{AutodiscoverMode, DEFAULT_WORKFLOW};
use crate::config::guards::Guard;
use crate::config::secrets::SecretStage;
use crate::config::secrets::reference::SecretReference;
use crate::config::workflow::{EnvValue, Step, Workflow};
use crate::config::{DeletedProjects, LockMode, LockScope, ProjectConfig, Requirement};
use crate::domain::duration;
use crate::domain::{AutoApply, Distribution};
use crate::inputs::required_versions;
use std::time::Duration;

/// Longest displayed word of a command, in characters.
const MAX_WORD: usize = 40;

/// Adds the rules of the repository and its projects to the report.
pub(super) fn describe(found: &CheckedRepository, report: &mut CheckReport) {
    report.rules = of_repository(found);
    for (config, entry) in &found.projects {
        let listed = entry.map(|entry| found.origins.entry(entry));
        for name in config.depends_on.iter().filter(|name| !is_project(found, name)) {
            let from = found.origins.project(*entry, "depends_on").unwrap_or_default();
            report.warnings.push(format!("{from}: depends_on: there is no project `{name}`; it is not waited for"));
        }
        report.projects.push(ProjectReport {
            label: config.id.label(),
            dir: config.id.dir.clone(),
            workspace: config.id.workspace.clone(),
            listed,
            values: of_project(found, config, *entry),
        });
    }
}

fn is_project(found: &CheckedRepository, name: &str) -> bool {
    found.projects.iter().any(|(config, _)| config.id.name.as_deref() == Some(name))
}

fn value(key: &'static str, value: impl Into<String>, from: impl Into<String>) -> EffectiveValue {
    EffectiveValue { key, value: value.into(), from: from.into(), note: String::new() }
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Returns the values that apply to all projects of the repository.
fn of_repository(found: &CheckedRepository) -> Vec<EffectiveValue> {
    let (origins, rules, settings) = (&found.origins, &found.rules, &found.settings);
    let config = found.repo_config.as_ref();
    let root_or = |key: &str, setting: &str| origins.root(key).unwrap_or_else(|| origins.setting(setting));
    let permitted = |key: &str| origins.rules(&[key]).unwrap_or_else(|| DEFAULT.to_owned());
    let mut values = vec![
        autodiscover(found),
        value("allowed_overrides", listed(&rules.allowed_overrides), permitted("allowed_overrides")),
        value("allow_custom_workflows", on(rules.allow_custom_workflows), permitted("allow_custom_workflows")),
        value(
            "parallel_plan",
            on(config.and_then(|config| config.parallel_plan).unwrap_or(settings.parallel_plan)),
            root_or("parallel_plan", "parallel-plan"),
        ),
        value(
            "parallel_apply",
            on(config.and_then(|config| config.parallel_apply).unwrap_or(settings.parallel_apply)),
            root_or("parallel_apply", "parallel-apply"),
        ),
        automerge(found),
    ];
    values.extend(merge_method(found));
    for (key, is_on) in
        [("replan_after_failed_apply", rules.replan_after_failed_apply), ("verify_applies", rules.verify_applies)]
    {
        values.extend(is_on.then(|| value(key, "on", permitted(key))));
    }
    if rules.deleted_projects == DeletedProjects::Destroy {
        let key = "destroy_requirements";
        let wanted: Vec<&str> = rules.destroy_requirements.iter().map(|one| one.name()).collect();
        values.push(value("deleted_projects", "destroy", permitted("deleted_projects")));
        values.push(value(key, listed(&wanted), permitted(key)));
    }
    if !rules.allowed_workflows.is_empty() {
        values.push(value("allowed_workflows", listed(&rules.allowed_workflows), permitted("allowed_workflows")));
    }
    if config.is_some_and(|config| config.abort_on_execution_order_fail) {
        let from = origins.root("abort_on_execution_order_fail").unwrap_or_default();
        values.push(value("abort_on_execution_order_fail", "on", from));
    }
    if let Some(schedule) = &found.drift {
        values.push(value("drift", &schedule.text, permitted("drift")));
    }
    for (key, hooks) in
        [("pre_workflow_hooks", &rules.pre_workflow_hooks), ("post_workflow_hooks", &rules.post_workflow_hooks)]
    {
        if !hooks.is_empty() {
            let commands: Vec<String> =
                hooks.iter().map(|hook| format!("`{}`", short(&hook.command.command))).collect();
            values.push(value(key, listed(&commands), permitted(key)));
        }
    }
    values
}

/// Returns the names of the project's guards; absent without any.
fn guards(found: &CheckedRepository, config: &ProjectConfig) -> Option<EffectiveValue> {
    const KEY: &str = "guards";
    let names: Vec<&str> = config.guards.iter().map(|guard| guard.name.as_str()).collect();
    let never = config.terragrunt && config.guards.iter().any(Guard::has_code_rules);
    let note = if never { "guards with rules about code refuse every unit of Terragrunt" } else { "" };
    let from = found.origins.rules(&[KEY]).unwrap_or_default();
    (!names.is_empty()).then(|| EffectiveValue { note: note.to_owned(), ..value(KEY, listed(&names), from) })
}

/// Returns the references of the project's secrets, each with its rule, and its masks.
fn secrets(found: &CheckedRepository, config: &ProjectConfig) -> Vec<EffectiveValue> {
    const KEY: &str = "secrets";
    let (id, rules) = (&config.id, &found.rules.secrets);
    let from = found.origins.rules(&[KEY]).unwrap_or_default();
    let of_stage = |stage: SecretStage, word: &str| {
        let told = |(variable, reference): (&String, &SecretReference)| {
            let rule = rules.index_for(&id.dir, &id.workspace, stage, variable).map_or(0, |rule| rule + 1);
            value(KEY, format!("{word}: {variable} from {reference}"), format!("{from}, rule {rule}"))
        };
        config.secrets.of(stage).iter().map(told).collect::<Vec<_>>()
    };
    let mut values = of_stage(SecretStage::Plan, "plan");
    values.extend(of_stage(SecretStage::Apply, "apply"));
    if !config.masks.is_empty() {
        let from = found.origins.rules(&["masks"]).unwrap_or_default();
        values.push(value("masks", format!("{} patterns", config.masks.len()), from));
    }
    values
}

/// Returns the value of `automerge` and its origin.
fn automerge(found: &CheckedRepository) -> EffectiveValue {
    const KEY: &str = "automerge";
    let (origins, of_repo) = (&found.origins, found.repo_config.as_ref().and_then(|config| config.automerge));
    let of_rules = || origins.rules(&[KEY]);
    let from = match found.rules.automerge {
        Some(false) => of_rules(),
        _ => origins.root(KEY).filter(|_| of_repo.is_some()).or_else(of_rules),
    };
    let is_on = found.rules.automerges(of_repo, found.settings.automerge);
    let ignored = of_repo == Some(true) && !is_on;
    let note = if ignored { "the repo config cannot turn it on here" } else { "" };
    EffectiveValue { note: note.to_owned(), ..value(KEY, on(is_on), from.unwrap_or_else(|| origins.setting(KEY))) }
}

/// Returns the method of merges and its origin; absent if the host's own order decides.
fn merge_method(found: &CheckedRepository) -> Option<EffectiveValue> {
    const KEY: &str = "merge_method";
    match (&found.rules.merge_method, &found.settings.automerge_method) {
        (Some(method), _) => Some(value(KEY, &method.name, found.origins.rules(&[KEY]).unwrap_or_default())),
        (None, Some(method)) => Some(value(KEY, method, found.origins.setting("automerge-method"))),
        (None, None) => None,
    }
}

/// Returns the mode of autodiscovery and its origin.
fn autodiscover(found: &CheckedRepository) -> EffectiveValue {
    let origins = &found.origins;
    let of_repo = found.repo_config.as_ref().and_then(|config| config.autodiscover.as_ref());
    let (mode, from) = match (&found.rules.autodiscover, of_repo) {
        (Some(block), _) => (block.mode, origins.rules(&["autodiscover"]).unwrap_or_default()),
        (None, Some(block)) => (block.mode, origins.root("autodiscover").unwrap_or_default()),
        (None, None) => (found.settings.autodiscover_mode, origins.setting("autodiscover-mode")),
    };
    let lists = found
        .repo_config
        .as_ref()
        .is_some_and(|config| !config.entries.is_empty() || !config.other_branch_dirs.is_empty());
    let (word, note) = match mode {
        AutodiscoverMode::Enabled => ("enabled", "directories that nobody lists are projects as well"),
        AutodiscoverMode::Disabled => ("disabled", "only listed projects are planned"),
        AutodiscoverMode::Auto if lists => ("auto", "the repo config lists projects, so only those are planned"),
        AutodiscoverMode::Auto => ("auto", "no project is listed, so directories with changed files are projects"),
    };
    EffectiveValue { note: note.to_owned(), ..value("autodiscover", word, from) }
}

fn of_project(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> Vec<EffectiveValue> {
    let origins = &found.origins;
    let requirements = |key: &'static str, list: &[Requirement]| {
        value(key, listed(&list.iter().map(|one| one.name()).collect::<Vec<_>>()), origins.origin_of(entry, key))
    };
    let mut values = vec![
        workflow(found, config, entry),
        requirements("plan_requirements", &config.plan_requirements),
        requirements("apply_requirements", &config.apply_requirements),
        requirements("import_requirements", &config.import_requirements),
        locks(found, config, entry),
        terraform(found, config, entry),
        autoplan(found, config, entry),
    ];
    if found.settings.enable_policy_checks {
        let checked = if config.policy_check { "on: what fails is not applied" } else { "off" };
        let from = match origins.origin_of(entry, "policy_check") {
            from if from == DEFAULT => origins.setting("enable-policy-checks"),
            from => from,
        };
        values.push(value("policy_check", checked, from));
    }
    values.extend(guards(found, config));
    values.extend(secrets(found, config));
    values.extend(unusual(found, config, entry));
    values
}

/// Returns the values of keys that most projects do not set.
fn unusual(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> Vec<EffectiveValue> {
    let origins = &found.origins;
    let own = |key: &str| origins.project(entry, key).unwrap_or_default();
    let mut values = Vec::new();
    if config.execution_order_group != 0 {
        let group = config.execution_order_group.to_string();
        values.push(value("execution_order_group", group, own("execution_order_group")));
    }
    if !config.tags.is_empty() {
        values.push(value("tags", listed(&config.tags), own("tags")));
    }
    if !config.depends_on.is_empty() {
        values.push(value("depends_on", listed(&config.depends_on), own("depends_on")));
    }
    if config.terragrunt {
        values.push(value("terragrunt", "the directory is a unit", origins.origin_of(entry, "terragrunt")));
    }
    if config.delete_source_branch_on_merge {
        let key = "delete_source_branch_on_merge";
        values.push(value(key, "on", origins.of_root_too(entry, key)));
    }
    if !config.silence_pr_comments.is_empty() {
        let commands: Vec<&str> = config.silence_pr_comments.iter().map(|name| name.spoken()).collect();
        values.push(value("silence_pr_comments", listed(&commands), origins.of_root_too(entry, "silence_pr_comments")));
    }
    if config.custom_policy_check {
        values.push(value("custom_policy_check", "on", origins.origin_of(entry, "custom_policy_check")));
    }
    let (age, from) = match (config.plan_max_age, found.settings.plan_max_age) {
        (Some(age), _) => (age, origins.origin_of(entry, "plan_max_age")),
        (None, age) => (age, origins.setting("plan-max-age")),
    };
    if age > Duration::ZERO {
        values.push(value("plan_max_age", duration::format(age), from));
    }
    if let Some(rules) = &config.approvals {
        let people: Vec<String> = rules.any_of.iter().chain(&rules.all_of).map(|one| one.describe()).collect();
        let whose = if people.is_empty() { "anybody who may write".to_owned() } else { people.join(", ") };
        values.push(value("approvals", whose, origins.origin_of(entry, "approvals")));
    }
    if !config.auto_apply.is_never() {
        let when = if config.auto_apply == AutoApply::Met { "when: met" } else { "when: approved" };
        values.push(value("auto_apply", when, origins.origin_of(entry, "auto_apply")));
    }
    if !config.freeze.is_empty() {
        values.push(value("freeze", format!("{} windows", config.freeze.len()), origins.origin_of(entry, "freeze")));
    }
    if found.rules.allowed.is_some() || config.allowed.is_some() {
        let keys = ["allowed_users", "allowed_teams"];
        let from = keys.iter().filter_map(|key| origins.project(entry, key)).chain(origins.rules(&keys)).next();
        values.push(value("allowed_users, allowed_teams", "set", from.unwrap_or_default()));
    }
    values.extend(executors(found, config));
    values
}

/// Returns where the jobs of a project run and the rule that says it, unless all of them run in the server.
fn executors(found: &CheckedRepository, config: &ProjectConfig) -> Option<EffectiveValue> {
    let StageExecutors { plan, apply } = &config.executors;
    let rule = found.rules.executor.index_for(&config.id.dir).filter(|_| !config.executors.are_local())?;
    let from = found.origins.rules(&[&format!("executor[{rule}]")]).unwrap_or_default();
    let note = "plan covers policy checks and drift; apply covers import, state rm and force-unlock".to_owned();
    let from = format!("{from}, rule {}", rule + 1);
    Some(EffectiveValue { note, ..value("executor", format!("plan: {plan}, apply: {apply}"), from) })
}

fn workflow(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> EffectiveValue {
    let (name, from) = (&config.workflow_name, found.origins.origin_of(entry, "workflow"));
    let is_built_in = name == DEFAULT_WORKFLOW && config.workflow == Workflow::default();
    let note = if is_built_in {
        String::new()
    } else {
        let steps = |steps: &[Step]| steps.iter().map(step).collect::<Vec<_>>().join(", ");
        let Workflow { plan, apply, .. } = &config.workflow;
        format!("{}: plan: {}; apply: {}", found.origins.workflow(name), steps(plan), steps(apply))
    };
    EffectiveValue { note, ..value("workflow", name, from) }
}

fn step(step: &Step) -> String {
    let with = |name: &str, args: &[String]| match args {
        [] => name.to_owned(),
        args => format!("{name} {}", args.iter().map(|arg| without_value(arg)).collect::<Vec<_>>().join(" ")),
    };
    match step {
        Step::Init { extra_args } => with("init", extra_args),
        Step::Plan { extra_args } => with("plan", extra_args),
        Step::Show { extra_args } => with("show", extra_args),
        Step::PolicyCheck { extra_args } => with("policy_check", extra_args),
        Step::Apply { extra_args } => with("apply", extra_args),
        Step::Import { extra_args } => with("import", extra_args),
        Step::StateRm { extra_args } => with("state_rm", extra_args),
        Step::Run { command, .. } => format!("run `{}`", short(&command.command)),
        Step::Env { name, value: EnvValue::Value(_) } => format!("env {name}"),
        Step::Env { name, value: EnvValue::Command(command) } => format!("env {name} of `{}`", short(&command.command)),
        Step::Multienv { command, .. } => format!("multienv `{}`", short(&command.command)),
    }
}

/// Returns the first word of a command: the rest may contain secrets.
fn short(command: &str) -> String {
    let word = command.split_whitespace().next().unwrap_or_default();
    let cut: String = without_value(word).chars().take(MAX_WORD).collect();
    if cut == command.trim() { cut } else { format!("{cut} …") }
}

/// Returns an argument without its value, which may be secret.
fn without_value(arg: &str) -> String {
    arg.split_once('=').map_or_else(|| arg.to_owned(), |(name, _)| format!("{name}=…"))
}

fn locks(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> EffectiveValue {
    let setting = "disable-repo-locking";
    if found.settings.disable_repo_locking {
        let note = "nothing is locked in any repository: several pull requests may plan and apply it".to_owned();
        return EffectiveValue { note, ..value("repo_locks.mode", "disabled", found.origins.setting(setting)) };
    }
    let (mode, note) = match config.repo_locks {
        LockMode::OnPlan => {
            ("on_plan", "a plan locks it until its pull request is merged, closed or unlocked; others cannot plan it")
        }
        LockMode::OnApply => {
            ("on_apply", "everybody may plan it; the first apply locks it until merge, close or unlock")
        }
        LockMode::Disabled => ("disabled", "nothing is locked: several pull requests may plan and apply it"),
        LockMode::Strict(LockScope::PullRequest) => (
            "strict",
            "plans lock nothing; the first apply owns all that the pull request changes until all is applied and merged",
        ),
        LockMode::Strict(LockScope::Project) => {
            ("strict, scope project", "plans lock nothing; the first apply owns it until it is applied and merged")
        }
    };
    EffectiveValue { note: note.to_owned(), ..value("repo_locks.mode", mode, found.origins.locks(entry)) }
}

/// Returns tool and version, as far as they are known without a network request.
fn terraform(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> EffectiveValue {
    let (settings, origins) = (&found.settings, &found.origins);
    let which = config.distribution.unwrap_or(settings.default_tf_distribution);
    let tool = if which == Distribution::Terraform { "Terraform" } else { "OpenTofu" };
    let required = required_versions(&found.tree, &config.id.dir, which);
    let is_default = which == settings.default_tf_distribution;
    let (version, from) = match (&config.terraform_version, required.as_slice(), &settings.default_tf_version) {
        (Some(version), ..) => (version.clone(), origins.origin_of(entry, "terraform_version")),
        (None, [_, ..], _) => {
            (format!("newest of {}", required.join(", ")), format!("required_version in {}", config.id.dir))
        }
        (None, [], Some(version)) if is_default => (version.clone(), origins.setting("default-tf-version")),
        (None, [], _) => ("the one on PATH".to_owned(), DEFAULT.to_owned()),
    };
    let note = match origins.project(entry, "terraform_distribution") {
        Some(from) => format!("{tool}: {from}"),
        None if origins.is_given("default-tf-distribution") => {
            format!("{tool}: {}", origins.setting("default-tf-distribution"))
        }
        None => String::new(),
    };
    EffectiveValue { note, ..value("terraform_version", format!("{tool} {version}"), from) }
}

fn autoplan(found: &CheckedRepository, config: &ProjectConfig, entry: Option<usize>) -> EffectiveValue {
    let (settings, origins) = (&found.settings, &found.origins);
    if settings.disable_autoplan {
        return value("autoplan", "off", origins.setting("disable-autoplan"));
    }
    let patterns = match entry {
        Some(_) => format!("files: {}", listed(&config.when_modified)),
        None => format!("files: {}: {}", origins.setting("autoplan-file-list"), settings.autoplan_file_list.join(", ")),
    };
    let from = origins.project(entry, "autoplan").unwrap_or_else(|| DEFAULT.to_owned());
    EffectiveValue { note: patterns, ..value("autoplan", on(config.autoplan_enabled), from) }
}
