use super::*;
use crate::config::metrics::StatsdAddress;
use crate::config::team_authz::TeamAuthz;
use crate::config::workflow::{EnvValue, OutputFilter, Step};
use insta::assert_snapshot;

const FILE: &str = "repos.yaml";

fn repo(full_name: &str) -> RepoId {
    let (owner, name) = full_name.split_once('/').unwrap();
    RepoId { host: "github.com".into(), owner: owner.into(), name: name.into() }
}

fn rules(yaml: &str, full_name: &str, base: &str) -> RepoRules {
    GlobalConfig::parse(yaml, FILE).unwrap().rules(&repo(full_name), base)
}

fn error(yaml: &str) -> String {
    GlobalConfig::parse(yaml, FILE).unwrap_err().to_string()
}

#[test]
fn each_key_comes_from_the_last_matching_entry_that_has_it() {
    let yaml = "
repos:
- id: /.*/
  apply_requirements: [approved, mergeable]
  plan_requirements: [undiverged]
  allowed_overrides: [workflow]
  repo_locks: {mode: on_apply}
- id: github.com/acme/infra
  apply_requirements: []
  workflow: own
  allowed_workflows: [own, default]
  repo_locking: false
- id: github.com/other/repo
  plan_requirements: [approved]
workflows:
  own:
    plan: {steps: [init]}
";
    let infra = rules(yaml, "acme/infra", "main");
    assert!(infra.apply_requirements.is_empty(), "an empty list is said, too");
    assert_eq!(infra.plan_requirements, [Requirement::Undiverged]);
    assert_eq!(infra.workflow, "own");
    assert_eq!(infra.allowed_workflows, ["own", "default"]);
    assert_eq!(infra.repo_locks, LockMode::Disabled);
    assert!(infra.allows_override("workflow") && !infra.allows_override("repo_locks"));
    assert_eq!(infra.workflows.keys().collect::<Vec<_>>(), ["default", "own"]);

    let another = rules(yaml, "acme/app", "main");
    assert_eq!(another.apply_requirements, [Requirement::Approved, Requirement::Mergeable]);
    assert_eq!(another.workflow, "default");
    assert_eq!(another.repo_locks, LockMode::OnApply);
}

#[test]
fn ids_are_exact_or_unanchored_regexes() {
    for (id, name, expected) in [
        ("/.*/", "acme/infra", true),
        ("/acme/", "acme/infra", true),
        ("/^github.com\\/acme\\/.*$/", "acme/infra", true),
        ("/^acme/", "acme/infra", false),
        ("/^github.com\\/Acme\\/.*$/", "acme/infra", true),
        ("github.com/acme/infra", "acme/infra", true),
        ("github.com/acme/inf", "acme/infra", false),
        ("github.com/acme/infra", "acme/infra2", false),
    ] {
        let yaml = format!("repos:\n- id: {id}\n  allow_custom_workflows: true");
        assert_eq!(rules(&yaml, name, "main").allow_custom_workflows, expected, "{id} {name}");
    }
}

#[test]
fn only_the_last_entry_decides_on_branch_and_file() {
    let yaml = "
repos:
- id: /.*/
  branch: /^main$/
  repo_config_file: ci/atlantis.yaml
- id: github.com/acme/infra
";
    assert!(!rules(yaml, "acme/app", "release").branch_allowed);
    assert_eq!(rules(yaml, "acme/app", "main").repo_config_file.as_deref(), Some("ci/atlantis.yaml"));
    assert!(rules(yaml, "acme/infra", "release").branch_allowed);
    assert_eq!(rules(yaml, "acme/infra", "main").repo_config_file, None);
}

#[test]
fn hooks_of_all_matching_entries_add_up() {
    let yaml = "
repos:
- id: /.*/
  pre_workflow_hooks:
  - run: one
  post_workflow_hooks:
  - run: after
- id: /acme/
  branch: /main/
  pre_workflow_hooks:
  - run: two
    description: Second
    shell: bash
    shellArgs: -e -c
    commands: plan, apply
  post_workflow_hooks:
  - run: after main
";
    let rules = rules(yaml, "acme/infra", "release");
    let before: Vec<&str> = rules.pre_workflow_hooks.iter().map(|hook| hook.command.command.as_str()).collect();
    assert_eq!(before, ["one", "two"]);
    assert_eq!(rules.pre_workflow_hooks[0].command, ShellCommand::sh("one"));
    let second = &rules.pre_workflow_hooks[1];
    assert_eq!((second.command.shell.as_str(), second.command.shell_args.join("|").as_str()), ("bash", "-e|-c"));
    assert_eq!((second.description.as_deref(), second.commands.as_deref()), (Some("Second"), Some("plan, apply")));
    assert_eq!(rules.post_workflow_hooks.len(), 1, "the other one is for another base branch");
}

#[test]
fn workflows_keep_every_spelling_of_a_step() {
    let yaml = "
workflows:
  default:
    plan:
      steps:
      - env: {name: A, value: 1.10}
      - env:
          name: B
          command: echo b
          shell: bash
          shellArgs: [-x, -c]
      - multienv: echo A=b
      - multienv: {command: echo A=b, output: hide}
      - init: {extra_args: [-upgrade, 2024-01-01]}
      - plan
      - run: true
      - run:
          command: make
          output: [strip_refreshing, {filter_regex: ['a', 'b']}, {filter_regex: c}]
      - run: {command: make, output: hide}
    apply:
";
    let rules = rules(yaml, "o/r", "main");
    let workflow = &rules.workflows["default"];
    assert_eq!(workflow.apply, Workflow::default().apply);
    assert_eq!(workflow.plan[0], Step::Env { name: "A".into(), value: EnvValue::Value("1.10".into()) });
    let bash =
        ShellCommand { command: "echo b".into(), shell: "bash".into(), shell_args: vec!["-x".into(), "-c".into()] };
    assert_eq!(workflow.plan[1], Step::Env { name: "B".into(), value: EnvValue::Command(bash) });
    assert_eq!(workflow.plan[2], Step::Multienv { command: ShellCommand::sh("echo A=b"), show: true });
    assert_eq!(workflow.plan[3], Step::Multienv { command: ShellCommand::sh("echo A=b"), show: false });
    assert_eq!(workflow.plan[4], Step::Init { extra_args: vec!["-upgrade".into(), "2024-01-01".into()] });
    assert_eq!(workflow.plan[6], Step::Run { command: ShellCommand::sh("true"), output: vec![OutputFilter::Show] });
    let filter = |text: &str| OutputFilter::FilterRegex(text.into());
    let output = vec![OutputFilter::StripRefreshing, filter("a"), filter("b"), filter("c")];
    assert_eq!(workflow.plan[7], Step::Run { command: ShellCommand::sh("make"), output });
    assert_eq!(workflow.plan[8], Step::Run { command: ShellCommand::sh("make"), output: vec![OutputFilter::Hide] });
}

#[test]
fn a_step_without_arguments_may_be_written_in_every_way_that_atlantis_takes() {
    for step in ["plan", "plan:", "plan: {}", "plan: {extra_args: }", "plan: {extra_args: []}"] {
        let yaml = format!("workflows:\n  w:\n    plan:\n      steps:\n      - {step}");
        let plan = &rules(&yaml, "o/r", "main").workflows["w"].plan;
        assert_eq!(*plan, [Step::Plan { extra_args: Vec::new() }], "{step}");
    }
}

#[test]
fn a_command_that_decides_who_may_has_to_be_there() {
    let read = |yaml: &str| GlobalConfig::parse(yaml, "repos.yaml").map(|config| config.team_authz);
    let authz = TeamAuthz { command: "/bin/authz".into(), args: vec!["1".into(), "x y".into()] };
    assert_eq!(read("team_authz: {command: ' /bin/authz\n', args: [1, x y]}").unwrap(), Some(authz));
    assert_eq!(read("repos: []").unwrap(), None);
    for yaml in ["team_authz: {}", "team_authz: {command: ' '}", "team_authz: {args: [a]}"] {
        assert!(error(yaml).contains("it needs `command`"), "{yaml}");
    }
}

#[test]
fn policy_checks_are_on_unless_an_entry_turns_them_off() {
    let checks = |yaml: &str| {
        let rules = rules(yaml, "o/r", "main");
        (rules.policy_check, rules.custom_policy_check)
    };
    assert_eq!(checks("repos: []"), (true, false));
    assert_eq!(
        checks("repos:\n- {id: /.*/, policy_check: false}\n- {id: /.*/, custom_policy_check: true}"),
        (false, true)
    );
    assert_eq!(checks("repos:\n- {id: /.*/, policy_check: false}\n- {id: /.*/, policy_check: true}"), (true, false));
}

#[test]
fn an_external_store_of_plans_changes_nothing_and_is_warned_of() {
    let config = GlobalConfig::parse("external_stores: {plan_store: {type: s3, s3: {bucket: plans}}}", FILE).unwrap();
    assert_eq!(config.warnings, ["repos.yaml:1:18: `external_stores` has no effect: plans are kept in the bucket"]);
    assert_eq!(GlobalConfig::parse("repos: []", FILE).unwrap().warnings, [""; 0]);
}

#[test]
fn every_overridable_key_is_accepted() {
    let yaml = format!("repos:\n- id: /.*/\n  allowed_overrides: [{}]", OVERRIDABLE_KEYS.join(", "));
    assert_eq!(rules(&yaml, "o/r", "main").allowed_overrides.len(), 19);
}

#[test]
fn the_age_of_plans_is_a_duration_and_zero_is_no_limit() {
    let age = |yaml: &str| rules(yaml, "o/r", "main").plan_max_age.map(|age| age.as_secs());
    assert_eq!(age("repos:\n- id: /.*/\n  plan_max_age: 30m\n- id: /r/"), Some(1800));
    assert_eq!(age("repos:\n- id: /.*/\n  plan_max_age: 24h\n- id: /r/\n  plan_max_age: 0"), Some(0));
    assert_eq!(age("repos: []"), None);
    let reminder = |yaml: &str| rules(yaml, "o/r", "main").reminder_interval.as_secs();
    assert_eq!(reminder("repos:\n- id: /.*/"), 86_400);
    assert_eq!(reminder("repos:\n- id: /.*/\n  reminder_interval: 0"), 0);
    assert_snapshot!(error("repos:\n- id: /.*/\n  plan_max_age: a day"), @r#"repos.yaml:3:17: plan_max_age: "a day" is no duration such as 30m or 24h; 0 means no limit"#);
}

#[test]
fn what_is_applied_on_merge_is_in_mode_strict() {
    let applies = |yaml: &str| {
        let id = crate::domain::ProjectId { dir: ".".into(), workspace: "default".into(), name: None };
        crate::config::ProjectConfig::from_rules(id, &rules(yaml, "o/r", "main")).applies_on_merge()
    };
    let all = "repos:\n- id: /.*/\n  repo_locks: {mode: strict}\n";
    assert!(applies(&format!("{all}  on_merge: apply")));
    assert!(applies(&format!("{all}- id: /r/\n  on_merge: apply")));
    assert!(!applies(&format!("{all}  on_merge: apply\n- id: /r/\n  on_merge: nothing")));
    // A repository in another mode does not inherit it.
    assert!(!applies(&format!("{all}  on_merge: apply\n- id: /r/\n  repo_locks: {{mode: on_plan}}")));
    assert!(!applies(all));
    for locks in ["", "  repo_locks: {mode: on_apply}\n"] {
        let said = error(&format!("repos:\n- id: /.*/\n{locks}  on_merge: apply"));
        assert!(said.contains("on_merge: `apply` is for mode `strict` only"), "{said}");
    }
    assert_snapshot!(error(&format!("{all}  on_merge: both")), @r#"repos.yaml:4:13: on_merge: "both" is not known; there are: apply, nothing"#);
}

#[test]
fn an_entry_waits_for_an_approval_only_if_that_is_required() {
    let when = |yaml: &str| rules(yaml, "o/r", "main").auto_apply;
    let all = "repos:\n- id: /.*/\n  apply_requirements: [approved]\n";
    assert_eq!(when(&format!("{all}  auto_apply: {{when: approved}}")), AutoApply::Approved);
    assert_eq!(when(&format!("{all}- id: /r/\n  auto_apply: {{when: approved}}")), AutoApply::Approved);
    assert_eq!(
        when(&format!("{all}  auto_apply: {{when: met}}\n- id: /r/\n  auto_apply: {{when: never}}")),
        AutoApply::Never
    );
    assert_eq!(
        when("repos:\n- id: /.*/\n  approvals: {count: 2}\n  auto_apply: {when: approved}"),
        AutoApply::Approved
    );
    assert_eq!((when("repos:\n- id: /.*/\n  auto_apply: {when: met}"), when(all)), (AutoApply::Met, AutoApply::Never));
    let said = error(&format!("{all}- id: /r/\n  apply_requirements: [mergeable]\n  auto_apply: {{when: approved}}"));
    assert!(said.contains("`when: approved` needs the requirement `approved`"), "{said}");
    assert_snapshot!(error("repos:\n- id: /.*/\n  auto_apply: {when: approved}"), @"repos.yaml:3:22: auto_apply: `when: approved` needs the requirement `approved`. Add `apply_requirements: [approved]` or `approvals`, or use `when: met`");
    assert_snapshot!(error("repos:\n- id: /.*/\n  auto_apply: {when: always}"), @r#"repos.yaml:3:22: auto_apply.when: "always" is not known; there are: approved, met, never"#);
    assert_snapshot!(error("repos:\n- id: /.*/\n  auto_apply: {}"), @"repos.yaml:3:15: auto_apply: it needs `when`: approved, met or never");
}

#[test]
fn approvals_and_freezes_are_those_of_the_last_entry_that_has_them() {
    use crate::config::approvers::Approver::{CodeOwners, Team, User};
    let yaml = "repos:\n- id: /.*/\n  approvals: {any_of: ['user:Bob', 'team:sre'], all_of: [codeowners], count: 2, of_plan: true}\n  \
                freeze: [{from: Fri 16:00, to: Mon 08:00, except: ['user:x']}]\n- id: /r/\n  freeze: []\n";
    let found = rules(yaml, "o/r", "main");
    let approvals = found.approvals.unwrap();
    assert_eq!(approvals.any_of, [User("bob".into()), Team("sre".into())]);
    assert_eq!((approvals.all_of, approvals.count), (vec![CodeOwners], 2));
    assert!(approvals.of_plan && !approvals.exclude_pushers && found.freeze.is_empty());
    assert_eq!(rules(yaml, "o/x", "main").freeze.len(), 1);
    let count = |approvals: &str| {
        rules(&format!("repos:\n- id: /.*/\n  approvals: {approvals}"), "o/r", "main").approvals.unwrap().count
    };
    assert_eq!((count("{all_of: [codeowners]}"), count("{any_of: ['user:a']}"), count("{of_plan: true}")), (0, 1, 1));
    for (line, expected) in [
        (
            r#"approvals: {any_of: [bob]}"#,
            r#"repos.yaml:3:24: approvals.any_of: "bob": it is none of `user:NAME`, `team:NAME`, `team:OWNER/NAME`, `codeowners`"#,
        ),
        (r#"approvals: {count: 0}"#, r#"repos.yaml:3:22: approvals.count: it is a number from 1 to 20"#),
        (
            r#"approvals: {}"#,
            r#"repos.yaml:3:14: approvals: it says nothing; known here: any_of, all_of, count, of_plan, exclude_pushers"#,
        ),
        (r#"approvals: {anyof: []}"#, r#"repos.yaml:3:15: unknown key `anyof`; did you mean `any_of`?"#),
        (
            r#"freeze: [{from: Fri 16:00}]"#,
            r#"repos.yaml:3:12: freeze: a window needs `from` and `to`, such as `{from: "Fri 16:00", to: "Mon 08:00"}`"#,
        ),
        (
            r#"freeze: [{from: Friday, to: Mon 08:00}]"#,
            r#"repos.yaml:3:19: freeze.from: "Friday": it is neither a day and a time such as `Fri 16:00` nor a date and a time such as `2026-12-20 18:00`"#,
        ),
        (
            r#"freeze: [{from: Fri 16:00, to: Mon 08:00, timezone: Mars}]"#,
            r#"repos.yaml:3:55: freeze.timezone: "Mars": no such timezone; write a name such as Europe/Berlin or UTC"#,
        ),
        (
            r#"freeze: [{from: Fri 16:00, to: Mon 08:00, except: [codeowners]}]"#,
            r#"repos.yaml:3:54: freeze.except: "codeowners": it is none of `user:NAME`, `team:NAME`, `team:OWNER/NAME`"#,
        ),
        (r#"freeze: {from: Fri 16:00}"#, r#"repos.yaml:3:11: `freeze`: a list is expected here"#),
    ] {
        assert_eq!(error(&format!("repos:\n- id: /.*/\n  {line}")), expected);
    }
}

#[test]
fn who_may_is_said_by_the_last_entry_that_says_it() {
    let allowed = |yaml: &str| rules(yaml, "o/r", "main").allowed;
    let yaml = "repos:\n- id: /.*/\n  allowed_users: [alice]\n  allowed_teams: ['devs:plan']\n- id: /r/\n  allowed_users: ['bob:apply:conf/**:prod']";
    let found = allowed(yaml).unwrap();
    assert_eq!((found.users, found.teams), (vec!["bob:apply:conf/**:prod".to_owned()], vec!["devs:plan".to_owned()]));
    assert_eq!(allowed("repos:\n- id: /.*/"), None);
    assert!(allowed("repos:\n- id: /.*/\n  allowed_users: []").is_some_and(|found| found.users.is_empty()));
    assert_snapshot!(error("repos:\n- id: /.*/\n  allowed_teams: ['devs:destroy']"), @r#"repos.yaml:3:19: allowed_teams: "devs:destroy": no such command; there are: plan, apply, policy_check, approve_policies, import, state, state_rm, version, unlock, force-unlock, force_unlock, cancel, unlock-others, apply-force, apply-only, freeze, unfreeze, lock, *"#);
}

#[test]
fn json_is_read_too() {
    let rules = rules(
        r#"{"repos": [{"id": "/.*/", "workflow": "w"}], "workflows": {"w": {"plan": {"steps": ["plan"]}}}}"#,
        "o/r",
        "main",
    );
    assert_eq!(rules.workflow, "w");
}

#[test]
fn mistakes_are_named_with_their_place() {
    assert_snapshot!(error(""), @"repos.yaml:1:1: the file is empty; write at least `repos: []`, or drop the setting that names the file");
    assert_snapshot!(error("# only a comment\n"), @"repos.yaml:1:1: the file is empty; write at least `repos: []`, or drop the setting that names the file");
    assert_snapshot!(error("repo: []"), @"repos.yaml:1:1: unknown key `repo`; did you mean `repos`?");
    assert_snapshot!(error("repos:\n- id: /.*/\n  colour: red"), @"repos.yaml:3:3: unknown key `colour`; known here: id, branch, repo_config_file, plan_requirements, apply_requirements, import_requirements, pre_workflow_hooks, post_workflow_hooks, workflow, allowed_workflows, allowed_overrides, allow_custom_workflows, automerge, merge_method, delete_source_branch_on_merge, replan_after_failed_apply, verify_applies, deleted_projects, destroy_requirements, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, autodiscover, silence_pr_comments, terragrunt, terragrunt_version, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze, guards, secrets, masks, executor, drift");
    assert_snapshot!(error("repos:\n- branch: /main/"), @"repos.yaml:2:3: id cannot be blank: `id: host/owner/name`, or a regex such as `id: /.*/`");
    assert_snapshot!(error("repos:\n- id: /acme"), @"repos.yaml:2:7: id: `/acme` is neither `host/owner/name` nor a regex that begins and ends with a slash");
    assert_snapshot!(error("repos:\n- id: https://github.com/a/b"), @"repos.yaml:2:7: id: `https://github.com/a/b` is neither `host/owner/name` nor a regex that begins and ends with a slash");
    assert_snapshot!(error("repos:\n- id: /(/"), @"repos.yaml:2:7: id: not a valid regex: unclosed group");
    assert_snapshot!(error("repos:\n- id: /.*/\n  branch: main"), @"repos.yaml:3:11: branch: the regex must begin and end with a slash, such as `/^main$/`");
    assert_snapshot!(error("repos:\n- id: /.*/\n  repo_config_file: ../x.yaml"), @"repos.yaml:3:21: repo_config_file: `../x.yaml` must be a path inside the repository, relative to its root, without `..`");
    assert_snapshot!(error("repos:\n- id: /.*/\n  apply_requirements: [policies_passed]"), @r#"repos.yaml:3:24: "policies_passed" is not a valid apply_requirement; there are: approved, mergeable, undiverged"#);
    assert_snapshot!(error("repos:\n- id: /.*/\n  allowed_overrides: [autoplan]"), @r#"repos.yaml:3:23: allowed_overrides: "autoplan" is not a key to override; there are: plan_requirements, apply_requirements, import_requirements, workflow, delete_source_branch_on_merge, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, silence_pr_comments, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze"#);
    assert_snapshot!(error("repos:\n- id: /.*/\n  workflow: missing"), @"repos.yaml:3:13: workflow: the workflow `missing` is not defined under `workflows`");
    assert_snapshot!(error("repos:\n- id: /.*/\n  repo_locks: {mode: never}"), @r#"repos.yaml:3:22: "never" is not a valid repo_locks mode; there are: disabled, on_plan, on_apply, strict"#);
    assert_snapshot!(error("repos:\n- id: /.*/\n  repo_locking: false\n  repo_locks: {mode: on_plan}"), @"repos.yaml:3:17: `repo_locking: false` contradicts `repo_locks`; drop `repo_locking`, which is the old name");
    assert_snapshot!(error("repos:\n- id: /.*/\n  autodiscover: {mode: auto, ignore_paths: [/a]}"), @"repos.yaml:3:45: autodiscover.ignore_paths: `/a` must be relative to the repository's root; drop the leading slash");
    assert_snapshot!(error("repos:\n- id: /.*/\n  silence_pr_comments: [import]"), @r#"repos.yaml:3:25: "import" is not a valid value of silence_pr_comments; there are: plan, apply"#);
    assert_snapshot!(error("repos:\n- id: /.*/\n  pre_workflow_hooks:\n  - description: nothing"), @"repos.yaml:4:5: pre_workflow_hooks: a hook needs `run: COMMAND`");
    assert_snapshot!(error("repos:\n- id: /.*/\n  allow_custom_workflows: perhaps"), @"repos.yaml:3:27: `allow_custom_workflows`: true or false is expected here");
    assert_snapshot!(error("repos:\n- id: /.*/\n  id: /b/"), @"repos.yaml:3:3: the key `id` is there twice");
    assert_snapshot!(error("repos:\n\t- id: /.*/"), @"repos.yaml:2:1: a tab in the indentation; YAML wants spaces");
    assert_snapshot!(error("repos: []\n---\nrepos: []"), @"repos.yaml:3:1: a second document begins here (`---`); only one is allowed");
}

#[test]
fn wrong_steps_are_explained() {
    let step = |step: &str| error(&format!("workflows:\n  w:\n    plan:\n      steps:\n      - {step}"));
    assert_snapshot!(step("run"), @"repos.yaml:5:9: step `run` needs a command: `- run: COMMAND`");
    assert_snapshot!(step("env"), @"repos.yaml:5:9: step `env` needs a name and a value: `- env: {name: NAME, value: VALUE}`");
    assert_snapshot!(step("terraform plan"), @"repos.yaml:5:9: unknown step `terraform plan`; known: init, plan, show, policy_check, apply, import, state_rm; your own command is `- run: COMMAND`");
    assert_snapshot!(step("frobnicate: {}"), @"repos.yaml:5:9: unknown step `frobnicate`; known: init, plan, show, policy_check, apply, import, state_rm, run, env, multienv");
    assert_snapshot!(step("{run: a, plan: {}}"), @"repos.yaml:5:9: a step has exactly one key, this one has `run` and `plan`; begin the second with `- `");
    assert_snapshot!(step("{run: a, output: hide}"), @"repos.yaml:5:9: `output` is a key of `run`, and not beside it: write `run: {command: …, output: …}`");
    assert_snapshot!(step("plan: {args: [a]}"), @"repos.yaml:5:16: unknown key `args`; known here: extra_args");
    assert_snapshot!(step("env: {value: a}"), @"repos.yaml:5:9: step `env` needs `name`");
    assert_snapshot!(step("env: {name: A, value: a, command: b}"), @"repos.yaml:5:9: step `env` of `A` has both `value` and `command`; keep one");
    assert_snapshot!(step("run: {command: a, shellArgs: -c}"), @"repos.yaml:5:9: step `run`: `shellArgs` needs `shell`");
    assert_snapshot!(step("run: {shell: bash}"), @"repos.yaml:5:9: step `run` needs `command`");
    assert_snapshot!(step("run: {command: a, output: loud}"), @"repos.yaml:5:9: `run.output`: `loud` is not one of show, hide, strip_refreshing, filter_regex");
    assert_snapshot!(step("run: {command: a, output: {filter_regex: '('}}"), @"repos.yaml:5:9: `filter_regex`: not a valid regex: unclosed group");
    assert_snapshot!(step("multienv: {command: a, output: strip_refreshing}"), @"repos.yaml:5:9: `multienv.output` is `show` or `hide`");
    assert_snapshot!(step("[]"), @"repos.yaml:5:9: expected a step: its name, or a mapping with exactly one key");
}

#[test]
fn ids_are_compared_without_case_as_the_allowlist_is() {
    let yaml =
        "repos:\n  - id: GitHub.com/Acme/INFRA\n    apply_requirements: [approved]\n  - id: github.com/acme/other\n";
    assert_eq!(rules(yaml, "acme/infra", "main").apply_requirements, [Requirement::Approved]);
    assert!(rules(yaml, "acme/infra2", "main").apply_requirements.is_empty());
    let (infra, config) = (repo("acme/infra"), GlobalConfig::parse(yaml, FILE).unwrap());
    assert_eq!(config.ids_of_none(&[&infra]), ["github.com/acme/other"]);
}

#[test]
fn figures_go_to_a_path_and_to_a_port() {
    let read = |yaml: &str| GlobalConfig::parse(&format!("metrics: {yaml}"), "repos.yaml").map(|config| config.metrics);
    let statsd = Some(StatsdAddress { host: "statsd.example.com".into(), port: 8125 });
    let both = read("{prometheus: {endpoint: /a/metrics}, statsd: {host: statsd.example.com, port: \"8125\"}}");
    assert_eq!(both.unwrap(), Metrics { endpoint: Some("/a/metrics".into()), statsd: statsd.clone() });
    assert_eq!(read("{statsd: {host: statsd.example.com, port: 8125}}").unwrap().statsd, statsd);
    assert_eq!(read("{}").unwrap(), Metrics::default());
    for (yaml, says) in [
        ("{prometheus: {}}", "it needs `endpoint`"),
        ("{prometheus: {endpoint: metrics}}", "`metrics` is no path"),
        ("{prometheus: {endpoint: '/jobs/{id}'}}", "is no path"),
        ("{prometheus: {endpoint: /a/../b}}", "is no path"),
        ("{prometheus: {endpoint: /a/}}", "is no path"),
        ("{statsd: {host: localhost}}", "it needs `host` and `port`"),
        ("{statsd: {host: localhost, port: 0}}", "is no port"),
        ("{statsd: {host: localhost, port: x}}", "is no port"),
        ("{statsd: {host: 'a b', port: 1}}", "is no name or address"),
        ("{statsd: {host: a, port: 1, tags: x}}", "unknown key `tags`"),
    ] {
        let message = error(&format!("metrics: {yaml}"));
        assert!(message.contains(says), "{yaml}: {message}");
    }
}
