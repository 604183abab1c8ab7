//! Differences from Atlantis that concern what a repository and its server use. All of them are in docs/differences.md.

use super::CheckedRepository;
use crate::checkout::Strategy;
use crate::config::policies::PolicyEngine;
use crate::config::repo::DEFAULT_FILES;
use crate::config::workflow::{EnvValue, Step, Workflow};
use crate::config::{ProjectConfig, Requirement};
use crate::inputs::required_versions;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Keys that Atlantis does not have: it refuses a file with one of them.
const KEYS: [&str; 25] = [
    "approvals",
    "auto_apply",
    "apply_scope",
    "on_merge",
    "reminder_interval",
    "people",
    "drift",
    "executor",
    "merge_method",
    "replan_after_failed_apply",
    "verify_applies",
    "deleted_projects",
    "destroy_requirements",
    "executors",
    "freeze",
    "guards",
    "secrets",
    "masks",
    "plan_max_age",
    "allowed_users",
    "allowed_teams",
    "terragrunt",
    "terragrunt_version",
    "tags",
    "scope",
];

/// Variables with secrets of the server, which no step receives.
static SECRETS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?:ATLANTIS|TIDELOCK)_[A-Z_]*(?:TOKEN|SECRET|PASSWORD|APP_KEY)\b").ok());

/// Returns one sentence for each difference.
pub(super) fn describe(found: &CheckedRepository) -> Vec<String> {
    let mut told = of_files(found);
    told.extend(of_requirements(found));
    told.extend(of_settings(found));
    told.extend(of_commands(found));
    for (project, _) in &found.projects {
        let which = project.distribution.unwrap_or(found.settings.default_tf_distribution);
        if project.terraform_version.is_none() && required_versions(&found.tree, &project.id.dir, which).len() > 1 {
            told.push(format!(
                "project `{}` has several required_version constraints: they have to hold together; Atlantis ignores them all",
                project.id.label()
            ));
        }
    }
    told
}

/// Reports keys, modes and files that Atlantis does not know.
fn of_files(found: &CheckedRepository) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for (key, place) in found.origins.keys_named(&KEYS) {
        told.push(format!("{place}: Atlantis has no key `{key}`, and refuses the file"));
    }
    // Atlantis has this key in the other file.
    if let Some(place) = found.origins.rules(&["automerge"]) {
        told.push(format!("{place}: Atlantis has no key `automerge` in `repos.yaml`, and refuses the file"));
    }
    if found.projects.iter().any(|(project, _)| matches!(project.repo_locks, crate::config::LockMode::Strict(_))) {
        told.push("repo_locks.mode strict: Atlantis has no such mode, and refuses the file".to_owned());
    }
    let (named, config) = (&found.rules.repo_config_file, found.repo_config.is_some());
    if config && named.is_none() && found.origins.repo_file() == DEFAULT_FILES[1] {
        told.push(format!(
            "{} is read, as there is no {}; Atlantis reads only the latter",
            DEFAULT_FILES[1], DEFAULT_FILES[0]
        ));
    }
    told
}

fn of_requirements(found: &CheckedRepository) -> Vec<String> {
    let is_used = |wanted| found.projects.iter().flat_map(|(project, _)| required(project)).any(|used| used == wanted);
    let mut told = Vec::new();
    if is_used(Requirement::Approved) {
        told.push(
            "approved: the latest review of each person with write access counts; requested changes block, and the author's own \
             approval does not count"
                .to_owned(),
        );
    }
    if is_used(Requirement::Undiverged) && found.settings.checkout_strategy == Strategy::Branch {
        told.push(
            "undiverged is checked with --checkout-strategy=branch too; Atlantis takes it for met there".to_owned(),
        );
    }
    told
}

fn required(project: &ProjectConfig) -> impl Iterator<Item = Requirement> {
    let lists = [&project.plan_requirements, &project.apply_requirements, &project.import_requirements];
    lists.into_iter().flatten().copied()
}

fn of_settings(found: &CheckedRepository) -> Vec<String> {
    let (settings, origins, config) = (&found.settings, &found.origins, found.repo_config.as_ref());
    let mut told = Vec::new();
    if found.is_server && settings.executable_names.len() > 1 {
        told.push(format!(
            "comments that begin with {} are answered; beside an Atlantis that runs, give --executable-name=tidelock",
            settings.executable_names.join(" or ")
        ));
    }
    if found.is_server && !origins.is_given("bucket") {
        told.push("state is kept in --bucket, by default in the folder vault of --data-dir; locks and plans of Atlantis are not read".to_owned());
    }
    if found.is_server
        && settings.web_basic_auth.is_none()
        && settings.sign_in.is_none()
        && settings.access.iap_audience.is_empty()
        && !settings.allow_unauthenticated_pages
    {
        told.push("pages are for a browser on the server's own machine, until a login is set (--web-basic-auth, --iap-audience, --oidc-issuer, --gh-oauth-client-id)".to_owned());
    }
    if settings.enable_policy_checks && settings.policy_engine == PolicyEngine::Builtin {
        told.push(
            "policies are evaluated by the built-in engine, without conftest; --policy-engine=conftest runs that"
                .to_owned(),
        );
    }
    if let Some(tfe) = &settings.tfe {
        told.push(format!("steps get the token of tfe-token as {}; no ~/.terraformrc is written", tfe.variable()));
    }
    if config.is_some_and(|config| config.abort_on_execution_order_fail) {
        told.push("abort_on_execution_order_fail holds for plans too, and without parallel runs".to_owned());
    }
    if found.rules.automerges(config.and_then(|config| config.automerge), settings.automerge) {
        told.push(
            "automerge: projects without changes do not block it, and what is merged is the commit that was applied"
                .to_owned(),
        );
    }
    if found.projects.iter().any(|(project, _)| project.delete_source_branch_on_merge) {
        told.push("delete_source_branch_on_merge works on every host".to_owned());
    }
    told
}

/// Reports secrets of the server that commands of hooks and steps use and do not receive.
fn of_commands(found: &CheckedRepository) -> Vec<String> {
    let hooks = found.rules.pre_workflow_hooks.iter().chain(&found.rules.post_workflow_hooks);
    let mut commands: Vec<&str> = hooks.map(|hook| hook.command.command.as_str()).collect();
    commands.extend(found.projects.iter().flat_map(|(project, _)| of_workflow(&project.workflow)));
    let Some(secrets) = SECRETS.as_ref() else { return Vec::new() };
    let named: BTreeSet<&str> =
        commands.iter().flat_map(|command| secrets.find_iter(command)).map(|variable| variable.as_str()).collect();
    named
        .into_iter()
        .map(|name| format!("a hook or step uses ${name}: secrets of the server are in no step's environment"))
        .collect()
}

fn of_workflow(workflow: &Workflow) -> impl Iterator<Item = &str> {
    let stages = [&workflow.plan, &workflow.apply, &workflow.policy_check, &workflow.import, &workflow.state_rm];
    stages.into_iter().flatten().filter_map(|step| match step {
        Step::Run { command, .. }
        | Step::Multienv { command, .. }
        | Step::Env { value: EnvValue::Command(command), .. } => Some(command.command.as_str()),
        _ => None,
    })
}
