//! `tidelock check` on correct and broken example files: effective values, their sources, and the places of errors.

mod errors;
mod formats;
mod guards;
mod merging;
mod secrets;

use insta::assert_snapshot;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::{TempDir, tempdir};

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/check").join(folder);
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    assert!(found.len() > 5, "{found:?}");
    found
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Runs the check without this process' environment. Returns exit code and output.
fn check(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    check_in(Path::new("."), args, variables)
}

/// Runs the check in a directory.
fn check_in(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("check").args(args).current_dir(dir).env_clear().envs(variables.iter().copied());
    let done = command.env("HOME", "/nowhere").stdin(Stdio::null()).output().unwrap();
    (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
}

/// A checkout without a file of its own, which is checked with files of the server.
struct RulesStory(TempDir);

impl RulesStory {
    fn new() -> RulesStory {
        let dir = story();
        fs::remove_file(dir.path().join("atlantis.yaml")).unwrap();
        RulesStory(dir)
    }

    fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Runs the check with this `repos.yaml`. Returns exit code and output.
    fn check(&self, rules: &str, args: &[&str]) -> (Option<i32>, String) {
        let repos = self.0.path().join("repos.yaml");
        fs::write(&repos, rules).unwrap();
        check(&[&["--repos-config", repos.to_str().unwrap(), self.root()], args].concat(), &[])
    }
}

const REPO: &str = "--repo=github.com/acme/infra";

/// Returns the only error, which has to name file, line, column and key.
fn only_error(code: Option<i32>, json: &str) -> String {
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let errors = report["errors"].as_array().unwrap();
    assert_eq!((code, errors.len()), (Some(1), 1), "{json}");
    let error = &errors[0];
    assert!(error["file"].as_str().is_some_and(|file| file.ends_with(".yaml")), "{error}");
    assert!(error["line"].as_u64() > Some(0) && error["column"].as_u64() > Some(0), "{error}");
    assert!(error["key"].as_str().is_some_and(|key| !key.is_empty()), "{error}");
    format!(
        "{}:{} {}: {}",
        error["line"],
        error["column"],
        error["key"].as_str().unwrap(),
        error["text"].as_str().unwrap()
    )
}

#[test]
fn example_files_are_right_and_their_projects_are_listed() {
    let mut all = String::new();
    for case in fixtures("right") {
        let (repos, dir) = (case.join("repos.yaml"), case.join("repo"));
        let args = ["--repos-config", repos.to_str().unwrap(), REPO, "--json", dir.to_str().unwrap()];
        let (code, json) = check(&args, &[]);
        let report: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert_eq!(code, Some(0), "{json}");
        let labels = report["projects"].as_array().unwrap().iter().map(|project| {
            let listed = if project["listed"].is_null() { " (discovered)" } else { "" };
            format!("{}{listed}", project["label"].as_str().unwrap())
        });
        writeln!(all, "{}: {}", name(&case), labels.collect::<Vec<_>>().join(", ")).unwrap();
    }
    assert_snapshot!(all, @r##"
    e2e-custom-repo-config-file: infrastructure/staging/default, infrastructure/production/default
    e2e-modules-yaml: staging/default, production/default
    e2e-tfvars-yaml: default, staging
    e2e-yaml: ./default, ./staging
    new-autodiscover-ignore-paths: app, infra/default (discovered)
    new-order-abort-on-fail: net, db, app
    new-require-project-override: ./default
    new-workflow-run-env-multienv: ./default (discovered)
    policy-disabled-repo-server-side: ./default
    policy-success-quiet: ./default
    "##);
}

#[test]
fn each_mistake_in_a_repositorys_file_names_its_place_and_key() {
    let mut all = String::new();
    for case in fixtures("wrong") {
        let dir = tempdir().unwrap();
        fs::copy(&case, dir.path().join("atlantis.yaml")).unwrap();
        fs::write(dir.path().join("main.tf"), "").unwrap();
        let (code, json) = check(&[REPO, "--json", dir.path().to_str().unwrap()], &[]);
        writeln!(all, "{}: {}", name(&case), only_error(code, &json)).unwrap();
    }
    assert_snapshot!(all, @r##"
    anchor-with-unknown-key: 5:3 projects[0].aplly_requirements: unknown key `aplly_requirements`; did you mean `apply_requirements`?
    apply-req-not-allowed: 4:23 projects[0].apply_requirements: not allowed to set `apply_requirements` here: remove it, or have an operator set `allowed_overrides: [apply_requirements]` for this repository in the server-side config
    bad-apply-req: 4:24 projects[0].apply_requirements[0]: "nope" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    bad-branch: 4:11 projects[0].branch: branch: the regex must begin and end with a slash, such as `/^main$/`
    bad-distribution: 4:27 projects[0].terraform_distribution: "pulumi" is not a valid terraform_distribution; there are: terraform, opentofu
    bad-name: 4:9 projects[0].name: name: "a b" must contain only URL safe characters: letters, digits, `-`, `_`, `.`, `~`, `/`
    bad-tf-version: 4:22 projects[0].terraform_version: terraform_version: "not-a-version" is not a version, such as 1.11.4
    bad-version: 1:10 version: version: only versions 2 and 3 are supported, not 4; write `version: 3`
    bad-workspace: 4:14 projects[0].workspace: workspace: `a/b` is not a valid name: it must not contain a slash or backslash
    bad-yaml: 2:11 projects: `projects`: unclosed bracket '['
    dir-dotdot: 3:8 projects[0].dir: dir cannot contain `..`; it is relative to the repository's root
    dup-dirs: 4:3 projects[1]: there are two or more projects with dir: "." workspace: "default"; give each a `name`, so that commands can tell them apart
    dup-names: 5:3 projects[1]: found two or more projects with name "x"; names must be unique
    duplicate-key: 5:3 workspace: the key `workspace` is there twice
    empty-name: 4:9 projects[0].name: name: if set it cannot be empty; name the project or drop the key
    executor-of-server: 4:3 projects[0].executor: unknown key `executor`; known here: name, branch, dir, workspace, workflow, terraform_distribution, terraform_version, terragrunt, terragrunt_version, autoplan, plan_requirements, apply_requirements, import_requirements, depends_on, delete_source_branch_on_merge, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, silence_pr_comments, execution_order_group, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze, tags
    glob-with-name: 4:9 projects[0].name: name: not allowed together with a glob in `dir`: all matching projects would have this name
    list-expected: 4:15 projects[0].depends_on: `depends_on`: a list is expected here
    missing-dir: 3:3 projects[0]: dir cannot be blank: every project needs `dir`, such as `dir: .`
    missing-version: 1:1 version: version is required: add `version: 3` as the first line
    tabs: 4:1 workspace: a tab in the indentation; YAML wants spaces
    two-documents: 3:1 version: a second document begins here (`---`); only one is allowed
    unclosed-quote: 5:1 terraform_version: invalid indentation in multiline quoted scalar
    unknown-alias: 4:13 autoplan: `autoplan`: alias references unknown anchor
    unknown-key: 2:1 unknown_key: unknown key `unknown_key`; known here: version, projects, workflows, policies, autodiscover, automerge, parallel_plan, parallel_apply, delete_source_branch_on_merge, emoji_reaction, allowed_regexp_prefixes, abort_on_execution_order_fail, repo_locks, silence_pr_comments
    unknown-project-key: 4:3 projects[0].colour: unknown key `colour`; known here: name, branch, dir, workspace, workflow, terraform_distribution, terraform_version, terragrunt, terragrunt_version, autoplan, plan_requirements, apply_requirements, import_requirements, depends_on, delete_source_branch_on_merge, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, silence_pr_comments, execution_order_group, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze, tags
    workflow-not-allowed: 4:13 projects[0].workflow: not allowed to set `workflow` here: remove it, or have an operator set `allowed_overrides: [workflow]` for this repository in the server-side config
    workflows-not-allowed: 5:3 workflows.custom: not allowed to define custom `workflows` here: remove them, or have an operator set `allow_custom_workflows: true` for this repository in the server-side config
    wrong-type: 5:14 projects[0].autoplan.enabled: `enabled`: true or false is expected here
    "##);
}

#[test]
fn each_mistake_in_the_servers_file_names_its_place_and_key() {
    let mut all = String::new();
    let dir = tempdir().unwrap();
    for case in fixtures("wrong-server") {
        let args = ["--repos-config", case.to_str().unwrap(), REPO, "--json", dir.path().to_str().unwrap()];
        let (code, json) = check(&args, &[]);
        writeln!(all, "{}: {}", name(&case), only_error(code, &json)).unwrap();
    }
    assert_snapshot!(all, @r##"
    authz-without-command: 3:3 team_authz.args: team_authz: it needs `command`, such as `command: /usr/local/bin/authz`
    bad-branch: 3:11 repos[0].branch: branch: the regex must begin and end with a slash, such as `/^main$/`
    bad-filter: 6:9 workflows.custom.apply.steps[0]: `filter_regex`: not a valid regex: unclosed group
    bad-regex: 2:7 repos[0].id: id: not a valid regex: unclosed group
    duplicate-key: 4:3 branch: the key `branch` is there twice
    executor-apply-elsewhere: 7:12 repos[0].executor[0].apply: executor.apply: the executor `prod` cannot apply plans that the server makes, because a plan contains absolute paths of the place where it was made; name an executor for `plan` too, or write `apply: local`
    misspelt-key: 3:3 repos[0].aply_requirements: unknown key `aply_requirements`; did you mean `apply_requirements`?
    no-id: 2:3 repos[0]: id cannot be blank: `id: host/owner/name`, or a regex such as `id: /.*/`
    policy-set-without-name: 4:5 policies.policy_sets[0]: policy_sets: a set needs `name`
    repo-config-outside: 3:21 repos[0].repo_config_file: repo_config_file: `../atlantis.yaml` must be a path inside the repository, relative to its root, without `..`
    tabs: 3:1 workflow: a tab in the indentation; YAML wants spaces
    two-keys-in-a-step: 6:9 workflows.custom.plan.steps[0]: a step has exactly one key, this one has `run` and `env`; begin the second with `- `
    unknown-alias: 3:23 apply_requirements: `apply_requirements`: alias references unknown anchor
    unknown-executor-kind: 3:11 executors.plans.kind: "ecs" is not a valid executor kind; there are: local, process, kubernetes, cloud_run
    unknown-executor: 5:21 repos[0].executor[0].plan: executor.plan: the executor `plan` is not defined under `executors`; there are: local, plans
    unknown-lock-mode: 3:22 repos[0].repo_locks.mode: "on_merge" is not a valid repo_locks mode; there are: disabled, on_plan, on_apply, strict
    unknown-override: 3:33 repos[0].allowed_overrides[1]: allowed_overrides: "apply_requirement" is not a key to override; there are: plan_requirements, apply_requirements, import_requirements, workflow, delete_source_branch_on_merge, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, silence_pr_comments, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze
    unknown-requirement: 3:34 repos[0].apply_requirements[1]: "policies_passed" is not a valid apply_requirement; there are: approved, mergeable, undiverged
    unknown-step: 8:9 workflows.custom.plan.steps[1]: unknown step `plann`; known: init, plan, show, policy_check, apply, import, state_rm; your own command is `- run: COMMAND`
    unknown-workflow: 3:13 repos[0].workflow: workflow: the workflow `custom` is not defined under `workflows`
    wrong-type: 3:23 repos[0].apply_requirements: `apply_requirements`: a list is expected here
    "##);
}

const REPOS: &str = "\
repos:
- id: /.*/
  apply_requirements: [approved]
  allowed_overrides: [workflow, repo_locks, apply_requirements]
- id: github.com/acme/other
  apply_requirements: []
- id: github.com/acme/infra
  workflow: tagged
  repo_locks: {mode: on_apply}
  pre_workflow_hooks:
  - run: curl -u \"me:$ATLANTIS_GH_TOKEN\" https://example.com
workflows:
  tagged:
    plan:
      steps: [init, {plan: {extra_args: [-lock-timeout=60s]}}, run: echo planned]
";

const ATLANTIS: &str = "\
version: 3
projects:
- &net
  name: net
  dir: net
  apply_requirements: [approved, undiverged]
- <<: *net
  name: db
  dir: db
  depends_on: [net, gone]
  terraform_version: 1.9.8
  repo_locks: {mode: strict}
- name: empty
  dir: empty
  workflow: default
  tags: [env:prod, net]
";

fn story() -> TempDir {
    let dir = tempdir().unwrap();
    for project in ["net", "db", "other", "empty"] {
        fs::create_dir(dir.path().join(project)).unwrap();
    }
    for project in ["net", "db", "other"] {
        fs::write(dir.path().join(project).join("main.tf"), "terraform {\n  required_version = \"~> 1.5\"\n}\n")
            .unwrap();
    }
    fs::write(dir.path().join("atlantis.yaml"), ATLANTIS).unwrap();
    fs::create_dir_all(dir.path().join("git/refs/remotes/origin")).unwrap();
    fs::rename(dir.path().join("git"), dir.path().join(".git")).unwrap();
    fs::write(dir.path().join(".git/config"), "[remote \"origin\"]\n\turl = git@github.com:acme/infra.git\n").unwrap();
    fs::write(dir.path().join(".git/refs/remotes/origin/HEAD"), "ref: refs/remotes/origin/trunk\n").unwrap();
    fs::write(dir.path().join("repos.yaml"), REPOS).unwrap();
    dir
}

#[test]
fn each_value_comes_with_its_origin_and_what_differs_is_named() {
    let dir = story();
    let repos = dir.path().join("repos.yaml");
    let variables = [("ATLANTIS_PARALLEL_PLAN", "true"), ("ATLANTIS_DEFAULT_TF_VERSION", "1.5.7")];
    let (code, text) = check(&["--repos-config", repos.to_str().unwrap(), dir.path().to_str().unwrap()], &variables);
    assert_eq!(code, Some(0), "{text}");
    let (text, _) = text.split_once("\nWarnings:").unwrap();
    assert_snapshot!(text.replace(dir.path().to_str().unwrap(), "DIR"), @r##"
    github.com/acme/infra, pull requests for trunk

      server-side configuration: DIR/repos.yaml, entries 1 (line 2), 3 (line 7)
      repo config: atlantis.yaml
      autodiscover                 auto   [default]
                                   the repo config lists projects, so only those are planned
      allowed_overrides            workflow, repo_locks, apply_requirements   [DIR/repos.yaml line 4, entry 1]
      allow_custom_workflows       off   [default]
      parallel_plan                on   [ATLANTIS_PARALLEL_PLAN]
      parallel_apply               off   [default]
      automerge                    off   [default]
      pre_workflow_hooks           `curl …`   [DIR/repos.yaml line 10, entry 3]

    Project `net`: directory net, workspace default; atlantis.yaml line 4
      workflow                     tagged   [DIR/repos.yaml line 8, entry 3]
                                   DIR/repos.yaml line 13: plan: init, plan -lock-timeout=…, run `echo …`; apply: apply
      plan_requirements            none   [default]
      apply_requirements           approved, undiverged   [atlantis.yaml line 6]
      import_requirements          none   [default]
      repo_locks.mode              on_apply   [DIR/repos.yaml line 9, entry 3]
                                   everybody may plan it; the first apply locks it until merge, close or unlock
      terraform_version            Terraform newest of ~> 1.5   [required_version in net]
      autoplan                     on   [default]
                                   files: **/*.tf*, **/*.tofu, **/*.tofu.json, **/terragrunt.hcl, **/.terraform.lock.hcl

    Project `db`: directory db, workspace default; atlantis.yaml line 7
      workflow                     tagged   [DIR/repos.yaml line 8, entry 3]
                                   DIR/repos.yaml line 13: plan: init, plan -lock-timeout=…, run `echo …`; apply: apply
      plan_requirements            none   [default]
      apply_requirements           approved, undiverged   [atlantis.yaml line 7]
      import_requirements          none   [default]
      repo_locks.mode              strict   [atlantis.yaml line 12]
                                   plans lock nothing; the first apply owns all that the pull request changes until all is applied and merged
      terraform_version            Terraform 1.9.8   [atlantis.yaml line 11]
      autoplan                     on   [default]
                                   files: **/*.tf*, **/*.tofu, **/*.tofu.json, **/terragrunt.hcl, **/.terraform.lock.hcl
      depends_on                   net, gone   [atlantis.yaml line 10]

    Project `empty`: directory empty, workspace default; atlantis.yaml line 13
      workflow                     default   [atlantis.yaml line 15]
      plan_requirements            none   [default]
      apply_requirements           approved   [DIR/repos.yaml line 3, entry 1]
      import_requirements          none   [default]
      repo_locks.mode              on_apply   [DIR/repos.yaml line 9, entry 3]
                                   everybody may plan it; the first apply locks it until merge, close or unlock
      terraform_version            Terraform 1.5.7   [ATLANTIS_DEFAULT_TF_VERSION]
      autoplan                     on   [default]
                                   files: **/*.tf*, **/*.tofu, **/*.tofu.json, **/terragrunt.hcl, **/.terraform.lock.hcl
      tags                         env:prod, net   [atlantis.yaml line 16]

    Otherwise than in Atlantis, of what is used here:
      - atlantis.yaml line 16: Atlantis has no key `tags`, and refuses the file
      - repo_locks.mode strict: Atlantis has no such mode, and refuses the file
      - approved: the latest review of each person with write access counts; requested changes block, and the author's own approval does not count
      - undiverged is checked with --checkout-strategy=branch too; Atlantis takes it for met there
      - a hook or step uses $ATLANTIS_GH_TOKEN: secrets of the server are in no step's environment
    "##);
}

#[test]
fn a_template_of_jobs_is_read_beside_the_file_that_names_it() {
    let dir = story();
    let repos = dir.path().join("repos.yaml");
    let rules = "repos: [{id: /.*/, executor: [{plan: plans, apply: plans}]}]\n";
    fs::write(&repos, format!("executors: {{plans: {{kind: kubernetes, template: job.yaml}}}}\n{rules}")).unwrap();
    let args = ["--json", "--repos-config", repos.to_str().unwrap(), dir.path().to_str().unwrap()];
    let fails_with = |problem: &str| {
        let (code, json) = check(&args, &[]);
        let json = json.replace(dir.path().to_str().unwrap(), "DIR");
        assert!(code == Some(1) && json.contains(problem), "{json}");
    };
    fails_with("executor `plans`: cannot read the template DIR/job.yaml: No such file");
    let template = "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers: [{name: job, image: tidelock}]\n";
    fs::write(dir.path().join("job.yaml"), format!("{template}      serviceAcountName: plans\n")).unwrap();
    fails_with(
        "executor `plans`: DIR/job.yaml: spec.template.spec.serviceAcountName: a Job of Kubernetes 1.33 has no such field",
    );
    fs::write(dir.path().join("job.yaml"), template).unwrap();
    let needs_bucket = "kind `kubernetes` needs a bucket of Cloud Storage";
    let (_, json) = check(&args, &[]);
    assert!(!json.contains("executor `plans`: ") && !json.contains(needs_bucket), "{json}");
    let (_, json) = check(&[&args[..], &["--server"]].concat(), &[]);
    assert!(!json.contains("executor `plans`: ") && json.contains(needs_bucket), "{json}");
}

const EXECUTORS: &str = "\
executors:
  plans: {kind: process}
  prod: {kind: process, limit: 2}
  idle: {kind: process}
repos:
- id: /.*/
  executor: [{plan: plans}]
  drift: {schedule: 0 3 * * *, timezone: Europe/Berlin}
- id: github.com/acme/infra
  executor:
  - {dirs: n*, plan: plans, apply: local}
  - dirs: [net, empty]
    plan: plans
    apply: prod
  - {dirs: empty, plan: local}
";

#[test]
fn a_project_is_listed_with_its_executors_and_the_rule_that_names_them() {
    let dir = story();
    let repos = dir.path().join("repos.yaml");
    fs::write(&repos, EXECUTORS).unwrap();
    let listed = "version: 3\nprojects: [{dir: net}, {dir: db}, {dir: empty}]\n";
    fs::write(dir.path().join("atlantis.yaml"), listed).unwrap();
    fs::rename(dir.path().join("other"), dir.path().join("new")).unwrap();
    let args = ["--autodiscover-mode=enabled", "--repos-config", repos.to_str().unwrap(), dir.path().to_str().unwrap()];
    let (code, text) = check(&args, &[]);
    assert_eq!(code, Some(0), "{text}");
    let is_told = |line: &&str| ["Project", "drift", "executor", "plan covers"].iter().any(|word| line.contains(word));
    let told: Vec<&str> = text.lines().filter(is_told).map(str::trim).collect();
    assert_snapshot!(told.join("\n").replace(dir.path().to_str().unwrap(), "DIR"), @r##"
    drift                        0 3 * * * Europe/Berlin   [DIR/repos.yaml line 8, entry 1]
    Project `net/default`: directory net, workspace default; atlantis.yaml line 2
    executor                     plan: plans, apply: prod   [DIR/repos.yaml line 12, entry 2, rule 2]
    plan covers policy checks and drift; apply covers import, state rm and force-unlock
    Project `db/default`: directory db, workspace default; atlantis.yaml line 2
    Project `empty/default`: directory empty, workspace default; atlantis.yaml line 2
    Project `new/default`: directory new, workspace default; discovered: no file lists it
    executor                     plan: plans, apply: local   [DIR/repos.yaml line 11, entry 2, rule 1]
    plan covers policy checks and drift; apply covers import, state rm and force-unlock
    - DIR/repos.yaml line 1: Atlantis has no key `executors`, and refuses the file
    - DIR/repos.yaml line 7: Atlantis has no key `executor`, and refuses the file
    - DIR/repos.yaml line 8: Atlantis has no key `drift`, and refuses the file
    - DIR/repos.yaml line 10: Atlantis has no key `executor`, and refuses the file
    - DIR/repos.yaml:4:3: executors: no rule of `executor` names `idle`: nothing runs on it
    "##);
    let (_, json) = check(&[&args[..], &["--json"]].concat(), &[]);
    let report: Value = serde_json::from_str(&json).unwrap();
    let of = |project: usize| {
        let values = report["projects"][project]["values"].as_array().unwrap();
        values.iter().find(|value| value["key"] == "executor").map(|value| value["value"].as_str().unwrap())
    };
    let expected = [Some("plan: plans, apply: prod"), None, None, Some("plan: plans, apply: local")];
    assert_eq!([0, 1, 2, 3].map(of), expected, "{json}");
}

#[test]
fn settings_are_read_as_by_the_server_and_are_required_of_a_server_alone() {
    let dir = story();
    fs::write(dir.path().join("atlantis.yaml"), "version: 3\nprojects:\n- dir: net\n").unwrap();
    let place = dir.path().to_str().unwrap();
    let (code, text) = check(&[place], &[]);
    assert!(code == Some(0) && !text.contains("--") && text.contains(" 0 warnings, 0 errors"), "{text}");
    let (code, text) = check(&["--server", place], &[]);
    assert!(code == Some(1) && text.contains("Errors:\n  - --gh-token"), "{text}");
    let server = [
        ("ATLANTIS_GH_USER", "bot"),
        ("ATLANTIS_GH_TOKEN", "x"),
        ("ATLANTIS_GH_WEBHOOK_SECRET", "0123456789abcdef0123456789abcdef"),
        ("ATLANTIS_REPO_ALLOWLIST", "github.com/acme/*"),
    ];
    let (code, text) = check(&["--server", place], &server);
    assert!(code == Some(0) && text.contains("  - state is kept in --bucket"), "{text}");
    let (code, text) =
        check(&["--port=x", place], &[("ATLANTIS_BITBUCKET_WEBHOOK_SECRET", "hunter2"), ("ATLANTIS_GH_TOKN", "x")]);
    assert_eq!(code, Some(1), "{text}");
    for said in
        ["--port is no number", "ATLANTIS_BITBUCKET_WEBHOOK_SECRET is shorter than", "did you mean ATLANTIS_GH_TOKEN?"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    let (code, text) = check(&[place], &[("ATLANTIS_TFE_TOKEN", "hunter2-of-tfe")]);
    assert!(code == Some(0) && text.contains("as TF_TOKEN_app_terraform_io") && !text.contains("hunter2"), "{text}");
    let (code, text) = check(&["--disable-repo-locking", place], &[]);
    assert!(code == Some(0) && text.contains("disabled   [--disable-repo-locking]"), "{text}");
    let (code, text) = check(&["--no-such-flag", place], &[]);
    assert!(code == Some(2) && text.contains("--no-such-flag"), "{text}");
    let (code, text) = check(&["--repo=x", place], &[]);
    assert!(code == Some(1) && text.contains("not HOST/OWNER/NAME"), "{text}");
}

#[test]
fn logins_of_people_are_of_hosts_that_the_settings_name() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("main.tf"), "").unwrap();
    let repos = dir.path().join("repos.yaml");
    fs::write(&repos, "people:\n- {person: ada@example.com, login: git.example.com/ada}\n").unwrap();
    let args = ["--repos-config", repos.to_str().unwrap(), REPO, "--json", dir.path().to_str().unwrap()];
    // Without a host, the settings are not those of the server.
    let (code, json) = check(&args, &[]);
    assert_eq!(code, Some(0), "{json}");
    let (code, json) = check(&args, &[("ATLANTIS_GH_USER", "bot"), ("ATLANTIS_GH_TOKEN", "x")]);
    assert_eq!(
        only_error(code, &json),
        "2:36 people[0].login: people: no host of this server is called `git.example.com`; there are: github.com"
    );
}
