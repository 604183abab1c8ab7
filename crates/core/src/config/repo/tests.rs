use super::*;
use crate::config::global::{GlobalConfig, OVERRIDABLE_KEYS};
use crate::config::workflow::Step;
use crate::config::{DEFAULT_WHEN_MODIFIED, Requirement};
use crate::domain::{AutoApply, Distribution, RepoId};
use insta::assert_snapshot;
use proptest::prelude::*;

const FILE: &str = "atlantis.yaml";

fn rules(repos_yaml: &str) -> RepoRules {
    let repo = RepoId { host: "github.com".into(), owner: "o".into(), name: "r".into() };
    GlobalConfig::parse(repos_yaml, "repos.yaml").unwrap().rules(&repo, "main")
}

fn strict() -> RepoRules {
    rules("repos: []")
}

/// Returns rules that allow every override.
fn open() -> RepoRules {
    let keys = OVERRIDABLE_KEYS.join(", ");
    rules(&format!("repos:\n- id: /.*/\n  allowed_overrides: [{keys}]\n  allow_custom_workflows: true"))
}

fn read(yaml: &str, rules: &RepoRules) -> Result<RepoConfig, ConfigErrors> {
    let directories = |glob: &str| match glob {
        "envs/*" => vec!["envs/dev".to_owned(), "envs/prod".to_owned()],
        _ => Vec::new(),
    };
    parse(yaml, FILE, rules, "main", &directories)
}

fn projects(yaml: &str, rules: &RepoRules) -> Vec<ProjectConfig> {
    read(yaml, rules).unwrap().projects
}

fn error(yaml: &str) -> String {
    read(yaml, &strict()).unwrap_err().to_string()
}

#[test]
fn defaults_of_a_project() {
    let projects = projects("version: 3\nprojects:\n- dir: ./a//b/", &strict());
    let [project] = projects.as_slice() else { panic!("{projects:?}") };
    assert_eq!(project.id, crate::domain::ProjectId { dir: "a/b".into(), workspace: "default".into(), name: None });
    assert_eq!(project.when_modified, DEFAULT_WHEN_MODIFIED);
    assert!(project.autoplan_enabled);
    assert_eq!(project.execution_order_group, 0);
}

#[test]
fn anchors_and_merge_keys_work_and_bare_values_are_text() {
    let yaml = "
version: 3
parallel_plan: yes
projects:
- &base
  dir: a
  name: one
  workspace: 2024
  terraform_version: 1.5
  autoplan: &autoplan {when_modified: ['*.tf'], enabled: false}
- <<: *base
  name: two
  workspace: 2024-01-01
  terraform_version: v1.11.4-rc1
- {dir: b, autoplan: *autoplan, terraform_distribution: opentofu, depends_on: [one], execution_order_group: -1}
";
    let config = read(yaml, &strict()).unwrap();
    assert_eq!(config.parallel_plan, Some(true));
    let [one, two, three] = config.projects.as_slice() else { panic!("{config:?}") };
    assert_eq!((one.id.workspace.as_str(), one.terraform_version.as_deref()), ("2024", Some("1.5.0")));
    assert_eq!((two.id.dir.as_str(), two.id.workspace.as_str()), ("a", "2024-01-01"));
    assert_eq!(two.terraform_version.as_deref(), Some("1.11.4-rc1"));
    assert!(!two.autoplan_enabled && !three.autoplan_enabled);
    assert_eq!(three.distribution, Some(Distribution::OpenTofu));
    assert_eq!((three.execution_order_group, three.depends_on.as_slice()), (-1, ["one".to_owned()].as_slice()));
}

#[test]
fn hundreds_of_projects_may_share_one_anchor() {
    let mut yaml = String::from("version: 3\nprojects:\n- &base {dir: p, terraform_version: 1.11.4}\n");
    for number in 0..800 {
        yaml.push_str(&format!("- {{<<: *base, dir: p{number}}}\n"));
    }
    assert_eq!(projects(&yaml, &strict()).len(), 801);
}

#[test]
fn alias_bombs_and_deep_nesting_are_refused() {
    let mut bomb = String::from("version: 3\nprojects:\n- dir: a\n  depends_on: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        bomb.push_str(&format!("- dir: a\n  depends_on: &a{level} [{below}]\n"));
    }
    read(&bomb, &strict()).unwrap_err();
    let typed = format!(
        "version: 3\nprojects:\n- dir: a\n  depends_on: &a [{}]\n{}",
        "x, ".repeat(1000),
        "- {dir: a, depends_on: *a}\n".repeat(1000)
    );
    assert_snapshot!(read(&typed, &strict()).unwrap_err(), @"atlantis.yaml:103:24: too large once anchors are expanded, or nested too deeply");
    assert_snapshot!(error(&format!("version: 3\nprojects: {}", "[".repeat(5000))), @"atlantis.yaml:2:43: `projects`: nested too deeply");
    let long = format!("version: 3\n#{}", "x".repeat(crate::config::MAX_CONFIG_BYTES));
    assert_snapshot!(error(&long), @"atlantis.yaml: too large: 1048588 bytes, at most 1048576 are read");
}

#[test]
fn projects_of_other_base_branches_are_dropped_before_they_can_clash() {
    let yaml = "
version: 3
projects:
- {name: a, dir: dev, branch: /^main$/}
- {name: a, dir: rel, branch: /^release-.*/}
- {name: both, dir: both}
";
    let config = read(yaml, &strict()).unwrap();
    let names: Vec<_> = config.projects.iter().map(|project| project.id.label()).collect();
    assert_eq!(names, ["a", "both"]);
    assert_eq!(config.other_branch_dirs, ["rel"]);
}

#[test]
fn a_glob_dir_stands_for_every_directory_it_matches() {
    let projects = projects("version: 3\nprojects:\n- dir: ./envs/*\n  workspace: w", &strict());
    let ids: Vec<_> = projects.iter().map(|project| project.id.label()).collect();
    assert_eq!(ids, ["envs/dev/w", "envs/prod/w"]);
}

#[test]
fn allowed_keys_replace_what_the_server_says() {
    let keys = OVERRIDABLE_KEYS.join(", ");
    let rules = rules(&format!(
        "repos:\n- id: /.*/\n  allowed_overrides: [{keys}]\n  apply_requirements: [approved]\n  repo_locks: {{mode: disabled}}"
    ));
    let yaml = "
version: 3
repo_locks: {mode: on_apply}
delete_source_branch_on_merge: true
silence_pr_comments: [plan]
projects:
- dir: a
  apply_requirements: []
  plan_requirements: [mergeable, undiverged]
- dir: b
  repo_locks: {mode: disabled}
  delete_source_branch_on_merge: false
  silence_pr_comments: [apply]
  policy_check: false
";
    let projects = projects(yaml, &rules);
    let [a, b] = projects.as_slice() else { panic!("{projects:?}") };
    assert!(a.apply_requirements.is_empty());
    assert_eq!(a.plan_requirements, [Requirement::Mergeable, Requirement::Undiverged]);
    assert_eq!((a.repo_locks, b.repo_locks), (LockMode::OnApply, LockMode::Disabled));
    assert_eq!((a.delete_source_branch_on_merge, b.delete_source_branch_on_merge), (true, false));
    assert_eq!((a.silence_pr_comments[0], b.silence_pr_comments[0]), (CommandName::Plan, CommandName::Apply));
    assert_eq!(b.apply_requirements, [Requirement::Approved]);

    let old =
        super::parse("version: 3\nprojects:\n- {dir: a, repo_locking: true}", FILE, &rules, "main", &|_: &str| vec![]);
    assert_eq!(old.unwrap().projects[0].repo_locks, LockMode::OnPlan);
}

#[test]
fn own_workflows_win_over_the_servers_and_are_not_for_those_who_name_none() {
    let yaml = "
version: 3
projects:
- {dir: a, workflow: default}
- {dir: b}
workflows:
  default:
    plan: {steps: [plan]}
";
    let projects = projects(yaml, &open());
    assert_eq!(projects[0].workflow.plan, [Step::Plan { extra_args: vec![] }]);
    assert_eq!(projects[1].workflow, Workflow::default());
}

#[test]
fn an_own_workflow_is_checked_with_the_servers_steps_unless_checks_may_be_overridden() {
    let yaml = "
version: 3
projects:
- {dir: a, workflow: own}
workflows:
  own:
    policy_check: {steps: [{run: 'true'}]}
";
    let server = |overrides: &str| {
        format!(
            "repos: [{{id: /.*/, allow_custom_workflows: true, allowed_overrides: [{overrides}], workflow: w}}]\n\
             workflows: {{w: {{policy_check: {{steps: [show]}}}}}}"
        )
    };
    let show = [Step::Show { extra_args: vec![] }];
    let checked = |overrides: &str| projects(yaml, &rules(&server(overrides)))[0].workflow.policy_check.clone();
    assert_eq!(checked("workflow"), show);
    assert_ne!(checked("workflow, policy_check"), show);
}

#[test]
fn only_allowed_workflows_of_the_server_may_be_chosen() {
    let server = "
repos:
- id: /.*/
  allowed_overrides: [workflow]
  allowed_workflows: [good]
workflows: {good: ~, bad: ~}
";
    let choose = |name: &str| read(&format!("version: 3\nprojects:\n- {{dir: a, workflow: {name}}}"), &rules(server));
    assert_eq!(choose("good").unwrap().projects[0].workflow_name, "good");
    assert_snapshot!(choose("bad").unwrap_err(), @"atlantis.yaml:3:22: workflow: `bad` is not allowed for this repository; allowed: good");
    assert_snapshot!(choose("ugly").unwrap_err(), @"atlantis.yaml:3:22: workflow: `ugly` is not defined; there are: bad, default, good");
}

#[test]
fn version_two_splits_and_joins_run_commands_of_plan_and_apply() {
    let workflow = "workflows: {w: {plan: {steps: [{run: 'echo  \"a b\"   c'}]}, import: {steps: [{run: 'x  y'}]}}}";
    let command = |version: u8| {
        let yaml = format!("version: {version}\nprojects: [{{dir: a, workflow: w}}]\n{workflow}");
        let workflow = projects(&yaml, &open())[0].workflow.clone();
        let run = |step: &Step| match step {
            Step::Run { command, .. } => command.command.clone(),
            other => panic!("{other:?}"),
        };
        (run(&workflow.plan[0]), run(&workflow.import[0]))
    };
    assert_eq!(command(2), ("echo a b c".to_owned(), "x  y".to_owned()));
    assert_eq!(command(3), ("echo  \"a b\"   c".to_owned(), "x  y".to_owned()));
    let unclosed = "version: 2\nworkflows: {w: {plan: {steps: [{run: 'echo \"a'}]}}}";
    assert_snapshot!(read(unclosed, &open()).unwrap_err(), @r#"atlantis.yaml:2:12: `run: echo "a` has an unclosed quote; fix it, or use `version: 3`"#);
}

#[test]
fn a_project_is_applied_on_merge_in_mode_strict_only() {
    let read = |keys: &str| read(&format!("version: 3\nprojects:\n- dir: .\n{keys}"), &open());
    let strict = "  repo_locks: {mode: strict}\n  on_merge: apply\n";
    assert!(read(strict).unwrap().projects[0].applies_on_merge());
    assert!(!read("  repo_locks: {mode: strict}\n").unwrap().projects[0].applies_on_merge());
    let said = read("  on_merge: apply\n").unwrap_err().to_string();
    assert!(said.contains("atlantis.yaml:4:13: on_merge: `apply` is for mode `strict` only"), "{said}");
}

#[test]
fn a_project_waits_for_an_approval_only_if_that_is_required() {
    let read = |keys: &str| read(&format!("version: 3\nprojects:\n- dir: .\n{keys}"), &open());
    let when = |keys: &str| read(keys).unwrap().projects[0].auto_apply;
    let approved = "  auto_apply: {when: approved}\n";
    assert_eq!(when(&format!("{approved}  apply_requirements: [approved]\n")), AutoApply::Approved);
    assert_eq!(when(&format!("{approved}  approvals: {{count: 2}}\n")), AutoApply::Approved);
    assert_eq!(when("  auto_apply: {when: met}\n"), AutoApply::Met);
    assert_eq!((when("  auto_apply: {when: never}\n"), when("")), (AutoApply::Never, AutoApply::Never));
    let said = read(&format!("{approved}  apply_requirements: [mergeable]\n")).unwrap_err().to_string();
    assert!(
        said.contains("atlantis.yaml:4:22: auto_apply: `when: approved` needs the requirement `approved`"),
        "{said}"
    );
}

#[test]
fn every_restricted_key_names_the_override_that_would_allow_it() {
    for (key, value) in [
        ("workflow", "default"),
        ("plan_requirements", "[approved]"),
        ("apply_requirements", "[]"),
        ("import_requirements", "[approved]"),
        ("delete_source_branch_on_merge", "true"),
        ("repo_locking", "true"),
        ("repo_locks", "{mode: on_apply}"),
        ("on_merge", "nothing"),
        ("policy_check", "false"),
        ("custom_policy_check", "false"),
        ("silence_pr_comments", "[plan]"),
        ("plan_max_age", "48h"),
        ("reminder_interval", "48h"),
        ("allowed_users", "[alice]"),
        ("allowed_teams", "['devs:plan']"),
        ("approvals", "{count: 1}"),
        ("auto_apply", "{when: met}"),
        ("freeze", "[]"),
    ] {
        let message = error(&format!("version: 3\nprojects:\n- dir: .\n  {key}: {value}"));
        assert!(message.contains(&format!("not allowed to set `{key}`")), "{message}");
        assert!(message.contains(&format!("`allowed_overrides: [{key}]`")), "{message}");
        read(&format!("version: 3\nprojects:\n- dir: .\n  {key}: {value}"), &open()).unwrap();
    }
    for root in ["repo_locks: {mode: disabled}", "delete_source_branch_on_merge: true", "silence_pr_comments: [plan]"] {
        let message = error(&format!("version: 3\n{root}"));
        assert!(message.contains("not allowed to set"), "{message}");
    }
}

#[test]
fn known_keys_without_effect_yet_are_refused_by_name() {
    read("version: 3\npolicies: {}", &strict()).unwrap();
    assert_eq!(read("version: 3\nautomerge: true\nemoji_reaction: eyes", &strict()).unwrap().automerge, Some(true));
}

#[test]
fn mistakes_are_named_with_their_place() {
    let project = |keys: &str| error(&format!("version: 3\nprojects:\n- dir: .\n  {keys}"));
    assert_snapshot!(error(""), @"atlantis.yaml:1:1: version is required: add `version: 3` as the first line");
    assert_snapshot!(error("projects:\n- dir: ."), @"atlantis.yaml:1:1: version is required: add `version: 3` as the first line");
    assert_snapshot!(error("version: 4"), @"atlantis.yaml:1:10: version: only versions 2 and 3 are supported, not 4; write `version: 3`");
    assert_snapshot!(error("version: 3\nprojects: ["), @"atlantis.yaml:2:11: `projects`: unclosed bracket '['");
    assert_snapshot!(error("version: 3\nunknown_key: 1"), @"atlantis.yaml:2:1: unknown key `unknown_key`; known here: version, projects, workflows, policies, autodiscover, automerge, parallel_plan, parallel_apply, delete_source_branch_on_merge, emoji_reaction, allowed_regexp_prefixes, abort_on_execution_order_fail, repo_locks, silence_pr_comments");
    assert_snapshot!(project("colour: red"), @"atlantis.yaml:4:3: unknown key `colour`; known here: name, branch, dir, workspace, workflow, terraform_distribution, terraform_version, terragrunt, terragrunt_version, autoplan, plan_requirements, apply_requirements, import_requirements, depends_on, delete_source_branch_on_merge, repo_locking, repo_locks, apply_scope, on_merge, policy_check, custom_policy_check, silence_pr_comments, execution_order_group, plan_max_age, reminder_interval, allowed_users, allowed_teams, approvals, auto_apply, freeze, tags");
    assert_snapshot!(error("version: 3\nprojects:\n- name: x"), @"atlantis.yaml:3:3: dir cannot be blank: every project needs `dir`, such as `dir: .`");
    assert_snapshot!(error("version: 3\nprojects:\n- dir: ../x"), @"atlantis.yaml:3:8: dir cannot contain `..`; it is relative to the repository's root");
    assert_snapshot!(project("workspace: a/b"), @"atlantis.yaml:4:14: workspace: `a/b` is not a valid name: it must not contain a slash or backslash");
    assert_snapshot!(project("name: ''"), @"atlantis.yaml:4:9: name: if set it cannot be empty; name the project or drop the key");
    assert_snapshot!(project("name: a b"), @r#"atlantis.yaml:4:9: name: "a b" must contain only URL safe characters: letters, digits, `-`, `_`, `.`, `~`, `/`"#);
    assert_snapshot!(project("name: x\n- dir: b\n  name: x"), @r#"atlantis.yaml:5:3: found two or more projects with name "x"; names must be unique"#);
    assert_snapshot!(project("name: x\n- dir: ."), @r#"atlantis.yaml:5:3: there are two or more projects with dir: "." workspace: "default"; give each a `name`, so that commands can tell them apart"#);
    assert_snapshot!(error("version: 3\nprojects:\n- dir: a*\n  name: x"), @"atlantis.yaml:4:9: name: not allowed together with a glob in `dir`: all matching projects would have this name");
    assert_snapshot!(error("version: 3\nprojects:\n- dir: a["), @"atlantis.yaml:3:8: dir: `a[` is not a valid glob: unclosed character class; missing ']'");
    assert_snapshot!(project("terraform_version: not-a-version"), @r#"atlantis.yaml:4:22: terraform_version: "not-a-version" is not a version, such as 1.11.4"#);
    assert_snapshot!(project("terraform_distribution: pulumi"), @r#"atlantis.yaml:4:27: "pulumi" is not a valid terraform_distribution; there are: terraform, opentofu"#);
    assert_snapshot!(project("branch: main"), @"atlantis.yaml:4:11: branch: the regex must begin and end with a slash, such as `/^main$/`");
    assert_snapshot!(project("apply_requirements: [nope]"), @r#"atlantis.yaml:4:24: "nope" is not a valid apply_requirement; there are: approved, mergeable, undiverged"#);
    assert_snapshot!(project("workflow: custom"), @"atlantis.yaml:4:13: not allowed to set `workflow` here: remove it, or have an operator set `allowed_overrides: [workflow]` for this repository in the server-side config");
    assert_snapshot!(project("execution_order_group: first"), @"atlantis.yaml:4:26: `execution_order_group`: a whole number is expected here");
    assert_snapshot!(error("version: 3\nworkflows: {custom: {plan: {steps: [init, plan]}}}"), @"atlantis.yaml:2:12: not allowed to define custom `workflows` here: remove them, or have an operator set `allow_custom_workflows: true` for this repository in the server-side config");
    assert_snapshot!(error("version: 3\nprojects:\n\t- dir: ."), @"atlantis.yaml:3:1: a tab in the indentation; YAML wants spaces");
    assert_snapshot!(error("version: 3\nversion: 3"), @"atlantis.yaml:2:1: the key `version` is there twice");
    assert_snapshot!(error("version: 3\nprojects: {dir: a}"), @"atlantis.yaml:2:11: `projects`: a list is expected here");
}

#[test]
fn the_file_is_looked_for_under_its_names() {
    let there = |names: &'static [&str]| find(&strict(), &move |file| names.contains(&file));
    assert_eq!(there(&[]).unwrap(), None);
    assert_eq!(there(&["tidelock.yaml"]).unwrap().as_deref(), Some("tidelock.yaml"));
    assert_eq!(there(&["tidelock.yaml", "atlantis.yaml"]).unwrap().as_deref(), Some("atlantis.yaml"));
    assert_snapshot!(there(&["atlantis.yml"]).unwrap_err(), @"atlantis.yml is not read: rename it to atlantis.yaml, with the .yaml extension");
    let named = rules("repos:\n- id: /.*/\n  repo_config_file: infra/x.yaml");
    assert_eq!(find(&named, &|file| file == "infra/x.yaml").unwrap().as_deref(), Some("infra/x.yaml"));
    assert_eq!(find(&named, &|file| file == "atlantis.yaml").unwrap(), None);
}

proptest! {
    #[test]
    fn no_text_panics(text in "(version: 3\n)?(projects:\n)?[-a-z:{}\\[\\]&*!|>'\"# \n\t0-9<]{0,120}") {
        let _: Result<RepoConfig, ConfigErrors> = read(&text, &open());
        let _: Result<GlobalConfig, ConfigErrors> = GlobalConfig::parse(&text, "repos.yaml");
    }
}

/// `conf/dev` is a link to `conf/prod`, and `out` leads out of the repository.
struct Linked;

impl NamedDirectories for Linked {
    fn matching(&self, _: &str) -> Vec<String> {
        vec!["conf/dev".to_owned(), "conf/prod".to_owned()]
    }

    fn real(&self, dir: &str) -> Option<String> {
        (dir != "out").then(|| dir.replace("conf/dev", "conf/prod"))
    }
}

#[test]
fn projects_have_their_real_directories() {
    let read = |projects: &str| {
        let yaml = format!("version: 3\nprojects:\n{projects}");
        parse(&yaml, FILE, &strict(), "main", &Linked).map(|config| {
            let linked = |project: &ProjectConfig| format!("{} {:?}", project.id.dir, project.link);
            assert_eq!(config.entries.len(), config.projects.len());
            let elsewhere = config.other_branch_dirs.join(" ");
            format!("{}|{elsewhere}", config.projects.iter().map(linked).collect::<Vec<_>>().join(", "))
        })
    };
    for (projects, found) in [
        ("- dir: conf/dev\n", "conf/prod Some(\"conf/dev\")|"),
        ("- dir: conf/dev/x\n", "conf/prod/x Some(\"conf/dev/x\")|"),
        ("- dir: conf/prod\n", "conf/prod None|"),
        ("- dir: conf/*\n", "conf/prod None|"),
        ("- dir: out\n", "out None|"),
        ("- {dir: conf/dev, branch: /other/}\n", "|conf/prod"),
        ("- {dir: conf/dev, name: a}\n- {dir: conf/prod, name: b}\n", "conf/prod Some(\"conf/dev\"), conf/prod None|"),
    ] {
        assert_eq!(read(projects).unwrap(), found, "{projects}");
    }
    let error = read("- dir: conf/dev\n- dir: conf/prod\n").unwrap_err().to_string();
    assert!(error.contains("`conf/dev` and `conf/prod` are one directory, by a link"), "{error}");
}
