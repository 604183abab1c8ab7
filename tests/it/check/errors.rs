//! `tidelock check` tells all errors of both files.

use super::{check, story};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;

const WRONG_REPOS: &str = "\
repos:
- id: /[/
  branch: main
  apply_requirements: [aproved, mergeable, undivergd]
- workflow: gone
  repo_locks: {mode: exclusive}
  on_merge: apply
  pre_workflow_hooks: [{description: nothing}]
  executor: [{plan: big}]
workflows:
  own:
    plan: {steps: [inti, {run: ''}, plan]}
executors:
  Big: {kind: process}
policies: {conftest_version: newest, policy_sets: [{path: p}, {name: a}, {name: a}]}
people: [{person: a}, {person: b, login: b}]
metrics: {prometheus: {endpoint: x}, statsd: {host: x}}
";

const WRONG_ATLANTIS: &str = "\
version: 4
repo_locks: {mode: exclusive}
autodiscover: {mode: never, ignore_paths: [/a]}
projects:
- dir: ../a
  name: one two
  workspace: a/b
  terraform_version: newest
  workflow: tagged
- dir: net
  name: net
  on_merge: apply
  apply_requirements: [approvd, mergeable, nobody]
  plan_max_age: long
  freeze: [{from: fri}, {from: fri 16:00, to: never}]
- {dir: net}
- {dir: net, terraform_distribution: pulumi}
- {dir: db, name: net, workflow: own}
workflows:
  own:
    plan: {steps: [run: '', env: {}]}
    apply: {steps: [aply]}
";

/// Returns all errors of a check, one per line.
fn errors(args: &[&str]) -> String {
    let (code, json) = check(args, &[]);
    let report: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(code, Some(1), "{json}");
    let line = |error: &Value| {
        let file = error["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        format!("{file}:{}:{}: {}", error["line"], error["column"], error["text"].as_str().unwrap())
    };
    report["errors"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_error_of_both_files_is_told_with_its_place() {
    let dir = story();
    let (repos, place) = (dir.path().join("repos.yaml"), dir.path().to_str().unwrap());
    let args = ["--json", "--repos-config", repos.to_str().unwrap(), place];
    fs::write(&repos, WRONG_REPOS).unwrap();
    fs::write(dir.path().join("atlantis.yaml"), WRONG_ATLANTIS).unwrap();
    assert_snapshot!(errors(&args), @r##"
    repos.yaml:2:7: id: not a valid regex: unclosed character class
    repos.yaml:3:11: branch: the regex must begin and end with a slash, such as `/^main$/`
    repos.yaml:4:24: "aproved" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    repos.yaml:4:44: "undivergd" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    repos.yaml:5:3: id cannot be blank: `id: host/owner/name`, or a regex such as `id: /.*/`
    repos.yaml:5:13: workflow: the workflow `gone` is not defined under `workflows`
    repos.yaml:6:22: "exclusive" is not a valid repo_locks mode; there are: disabled, on_plan, on_apply, strict
    repos.yaml:8:24: pre_workflow_hooks: a hook needs `run: COMMAND`
    repos.yaml:12:20: unknown step `inti`; known: init, plan, show, policy_check, apply, import, state_rm; your own command is `- run: COMMAND`
    repos.yaml:12:26: step `run` needs `command`
    repos.yaml:14:3: executors: `Big` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`
    repos.yaml:15:30: conftest_version: "newest" is no version such as 0.66.0
    repos.yaml:15:52: policy_sets: a set needs `name`
    repos.yaml:15:74: policy_sets: there are two sets with the name `a`
    repos.yaml:16:10: people: an entry needs `person` and `login`, such as `{person: ada@example.com, login: git.example.com/ada}`
    repos.yaml:16:42: people: `b` is no login of the form `host/login`
    repos.yaml:17:34: endpoint: `x` is no path such as `/metrics`
    repos.yaml:17:46: statsd: it needs `host` and `port`, such as `host: 127.0.0.1` and `port: 8125`
    atlantis.yaml:1:10: version: only versions 2 and 3 are supported, not 4; write `version: 3`
    atlantis.yaml:2:20: "exclusive" is not a valid repo_locks mode; there are: disabled, on_plan, on_apply, strict
    atlantis.yaml:3:22: "never" is not a valid autodiscover mode; there are: auto, enabled, disabled
    atlantis.yaml:3:44: autodiscover.ignore_paths: `/a` must be relative to the repository's root; drop the leading slash
    atlantis.yaml:5:8: dir cannot contain `..`; it is relative to the repository's root
    atlantis.yaml:6:9: name: "one two" must contain only URL safe characters: letters, digits, `-`, `_`, `.`, `~`, `/`
    atlantis.yaml:7:14: workspace: `a/b` is not a valid name: it must not contain a slash or backslash
    atlantis.yaml:8:22: terraform_version: "newest" is not a version, such as 1.11.4
    atlantis.yaml:13:24: "approvd" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    atlantis.yaml:13:44: "nobody" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    atlantis.yaml:14:17: plan_max_age: "long" is no duration such as 30m or 24h; 0 means no limit
    atlantis.yaml:15:12: freeze: a window needs `from` and `to`, such as `{from: "Fri 16:00", to: "Mon 08:00"}`
    atlantis.yaml:15:47: freeze.to: "never": it is neither a day and a time such as `Fri 16:00` nor a date and a time such as `2026-12-20 18:00`
    atlantis.yaml:16:3: there are two or more projects with dir: "net" workspace: "default"; give each a `name`, so that commands can tell them apart
    atlantis.yaml:17:3: there are two or more projects with dir: "net" workspace: "default"; give each a `name`, so that commands can tell them apart
    atlantis.yaml:17:38: "pulumi" is not a valid terraform_distribution; there are: terraform, opentofu
    atlantis.yaml:18:3: found two or more projects with name "net"; names must be unique
    atlantis.yaml:21:20: step `run` needs `command`
    atlantis.yaml:21:29: step `env` needs `name`
    atlantis.yaml:22:21: unknown step `aply`; known: init, plan, show, policy_check, apply, import, state_rm; your own command is `- run: COMMAND`
    "##);
    // With rules, errors of keys that they do not allow are told as well, and workflows that they do not have.
    fs::write(&repos, "repos: [{id: /.*/, allowed_overrides: [workflow]}]\n").unwrap();
    let allowed =
        "version: 3\nprojects:\n- {dir: net, workflow: tagged, repo_locking: false}\n- {dir: db, freeze: []}\n";
    fs::write(dir.path().join("atlantis.yaml"), allowed).unwrap();
    assert_snapshot!(errors(&args), @r##"
    atlantis.yaml:3:24: workflow: `tagged` is not defined; there are: default
    atlantis.yaml:3:46: not allowed to set `repo_locking` here: remove it, or have an operator set `allowed_overrides: [repo_locking]` for this repository in the server-side config
    atlantis.yaml:4:21: not allowed to set `freeze` here: remove it, or have an operator set `allowed_overrides: [freeze]` for this repository in the server-side config
    "##);
    // Errors of the YAML itself end the reading of their file alone.
    fs::write(&repos, "repos: [{id: /.*/, color: red}]\n").unwrap();
    let wrong = "version: 3\nprojects: [{dir: .., repo_locking: false}, {dir: net, workflow: tagged}]\n";
    fs::write(dir.path().join("atlantis.yaml"), wrong).unwrap();
    assert_snapshot!(errors(&args), @r##"
    repos.yaml:1:20: unknown key `color`; known here: id, branch, repo_config_file, plan_requirements, apply_requirements, import_requirements, pre_workflow_hooks, post_workflow_hooks, workflow, allowed_workflows, allowed_overrides, allow_custom_workflows, automerge, merge_method, delete_source_branch_on_merge, replan_after_failed_apply, verify_applies, deleted_projects, destroy_requirements, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, autodiscover, silence_pr_comments, terragrunt, terragrunt_version, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze, guards, secrets, masks, executor, drift
    atlantis.yaml:2:18: dir cannot contain `..`; it is relative to the repository's root
    "##);
}

#[test]
fn errors_without_end_are_cut() {
    let dir = story();
    let wrong = format!("version: 3\nprojects:\n{}", "- {dir: ''}\n".repeat(1_000));
    fs::write(dir.path().join("atlantis.yaml"), wrong).unwrap();
    let told = errors(&["--json", dir.path().to_str().unwrap()]);
    let (first, last) = (told.lines().next().unwrap(), told.lines().last().unwrap());
    assert_eq!(told.lines().count(), 21, "{told}");
    assert_eq!(first, "atlantis.yaml:3:9: dir cannot be blank: every project needs `dir`, such as `dir: .`");
    assert_eq!(last, "atlantis.yaml:null:null: there are more errors; correct these first");
}
