//! Executors of `repos.yaml`: which rule counts for a project, and what is refused.

use super::*;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::config::{ProjectConfig, repo};
use crate::domain::{ProjectId, RepoId};
use insta::assert_snapshot;

const YAML: &str = r#"
executors:
  plans: {kind: process}
  prod_1-a:
    kind: process
    limit: 3
  here: {kind: local, limit: 10000}
repos:
- id: /.*/
  executor:
  - {plan: plans, apply: local}
  - {dirs: "prod/**", plan: plans, apply: prod_1-a}
  - {dirs: [./prod/dns/, "*/legacy"], apply: here}
- id: github.com/acme/app
  executor: [{dirs: app, plan: plans, apply: plans}]
- id: github.com/acme/
  plan_max_age: 1h
"#;

fn rules(yaml: &str, name: &str) -> RepoRules {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() };
    GlobalConfig::parse(yaml, "repos.yaml").unwrap().rules(&repo, "main")
}

fn stages(name: &str, dir: &str) -> String {
    let StageExecutors { plan, apply } = rules(YAML, name).executor.of_project(dir);
    format!("{plan} {apply}")
}

fn project(yaml: &str, dir: &str) -> ProjectConfig {
    let id = ProjectId { dir: dir.into(), workspace: "default".into(), name: None };
    ProjectConfig::from_rules(id, &rules(yaml, "infra"))
}

fn error(yaml: &str) -> String {
    GlobalConfig::parse(yaml, "repos.yaml").unwrap_err().to_string()
}

fn of_executors(entry: &str) -> String {
    error(&format!("executors:\n  {entry}"))
}

fn of_rule(list: &str) -> String {
    error(&format!(
        "executors: {{plans: {{kind: process}}, here: {{kind: local}}}}\nrepos:\n- id: /.*/\n  executor: {list}"
    ))
}

#[test]
fn an_executor_has_a_kind_and_a_limit() {
    let config = GlobalConfig::parse(YAML, "repos.yaml").unwrap();
    let found: Vec<_> = config.executors.iter().map(|(name, one)| (name.as_str(), &one.kind, one.limit)).collect();
    let (local, process) = (&ExecutorKind::Local, &ExecutorKind::Process);
    assert_eq!(found, [("here", local, 10_000), ("plans", process, 20), ("prod_1-a", process, 3)]);
    assert_eq!(config.warnings, [""; 0]);
    for nothing in ["executors:\nrepos: []", "executors: {}", "repos: [{id: /.*/, executor: }]"] {
        let config = GlobalConfig::parse(nothing, "repos.yaml").unwrap();
        assert!(config.executors.is_empty() && config.warnings.is_empty(), "{nothing}");
    }
}

#[test]
fn an_engine_elsewhere_has_keys_of_its_own() {
    let yaml = "executors:\n  plans: {kind: kubernetes, template: jobs/plan.yaml}\n  prod: {kind: cloud_run, job: projects/example.com:p-1/locations/europe-west1/jobs/tidelock-prod}";
    let config = GlobalConfig::parse(yaml, "repos.yaml").unwrap();
    assert_eq!(config.executors["plans"].kind, ExecutorKind::Kubernetes { template: "jobs/plan.yaml".into() });
    let ExecutorKind::CloudRun(job) = &config.executors["prod"].kind else { panic!("{config:?}") };
    assert_eq!(job.to_string(), "projects/example.com:p-1/locations/europe-west1/jobs/tidelock-prod");
}

#[test]
fn the_last_rule_that_fits_the_directory_counts_as_a_whole() {
    for (dir, expected) in [
        (".", "plans local"),
        ("dev/app", "plans local"),
        ("prod", "plans prod_1-a"),
        ("prod/net/a", "plans prod_1-a"),
        ("prod/dns", "local here"),
        ("prod/dns/zone", "plans prod_1-a"),
        ("dev/legacy", "local here"),
        ("production", "plans local"),
    ] {
        assert_eq!(stages("infra", dir), expected, "{dir}");
    }
    let executor = rules(YAML, "infra").executor;
    assert_eq!((executor.index_for("dev"), executor.index_for("prod/dns")), (Some(0), Some(2)));
}

#[test]
fn the_last_entry_with_the_key_replaces_the_rules() {
    assert_eq!(stages("app", "app"), "plans plans");
    assert_eq!(stages("app", "prod"), "local local", "the rules of the first entry are gone");
    assert_eq!(rules(YAML, "app").executor.index_for("prod"), None);
    assert!(rules("repos: []", "app").executor.of_project("prod").are_local());
}

#[test]
fn listed_and_discovered_projects_go_by_their_real_directory() {
    struct Links;
    impl repo::NamedDirectories for Links {
        fn matching(&self, _: &str) -> Vec<String> {
            vec!["prod/link".into(), "dev/app".into()]
        }
        fn real(&self, dir: &str) -> Option<String> {
            Some(if dir == "prod/link" { "dev/real".to_owned() } else { dir.to_owned() })
        }
    }
    let listed = "version: 3\nprojects:\n- dir: prod/net\n- dir: '*/*'\n";
    let config = repo::parse(listed, "f", &rules(YAML, "infra"), "main", &Links).unwrap();
    let found: Vec<_> =
        config.projects.iter().map(|project| (project.id.dir.as_str(), project.executors.apply.to_string())).collect();
    let local = || "local".to_owned();
    assert_eq!(found, [("prod/net", "prod_1-a".into()), ("dev/real", local()), ("dev/app", local())]);
    assert_eq!(project(YAML, "prod/net").executors, config.projects[0].executors);
}

#[test]
fn a_plan_is_bound_to_the_executors_of_its_project() {
    let (here, prod) = (project("repos: []", "prod"), project(YAML, "prod"));
    assert_ne!(here.digest(), prod.digest());
    let other = ["kind: process}", "kind: process}\n  other: {kind: process}"];
    let yaml = YAML.replace(other[0], other[1]);
    assert_eq!(project(&yaml, "prod").digest(), prod.digest(), "an executor more");
    assert_eq!(project(&yaml.replace("limit: 3", "limit: 4"), "prod").digest(), prod.digest(), "a limit");
    for (from, to) in [("apply: prod_1-a", "apply: other"), ("plan: plans, apply: prod", "plan: other, apply: prod")] {
        assert_ne!(project(&yaml.replace(from, to), "prod").digest(), prod.digest(), "{to}");
    }
}

#[test]
fn the_executors_of_a_project_are_written_only_if_there_are_some() {
    let (here, prod) = (project("repos: []", "prod"), project(YAML, "prod"));
    let json = serde_json::to_value(&here).unwrap();
    assert_eq!(json.get("executors"), None);
    assert_eq!(serde_json::from_value::<ProjectConfig>(json).unwrap(), here);
    let json = serde_json::to_value(&prod).unwrap();
    assert_eq!(json["executors"], serde_json::json!({"plan": "plans", "apply": "prod_1-a"}));
    assert_eq!(serde_json::from_value::<ProjectConfig>(json).unwrap(), prod);
}

#[test]
fn an_executor_that_no_rule_names_is_warned_of() {
    let yaml = "executors:\n  plans: {kind: process}\n  idle:\n    kind: process\nrepos:\n- {id: /a/, executor: [{plan: plans}]}";
    let config = GlobalConfig::parse(yaml, "repos.yaml").unwrap();
    assert_eq!(config.warnings, ["repos.yaml:3:3: executors: no rule of `executor` names `idle`: nothing runs on it"]);
}

#[test]
fn wrong_executors_are_explained() {
    assert_snapshot!(of_executors("plans: {kind: ecs}"), @r#"repos.yaml:2:17: "ecs" is not a valid executor kind; there are: local, process, kubernetes, cloud_run"#);
    assert_snapshot!(of_executors("plans: {kind: kubernetes}"), @"repos.yaml:2:17: executors: kind `kubernetes` needs `template`: the file with the manifest of a Job");
    assert_snapshot!(of_executors("plans: {kind: kubernetes, template: ''}"), @"repos.yaml:2:17: executors: kind `kubernetes` needs `template`: the file with the manifest of a Job");
    assert_snapshot!(of_executors("plans: {kind: kubernetes, template: a.yaml, job: b}"), @"repos.yaml:2:52: executors: an executor of kind `kubernetes` has no `job`");
    assert_snapshot!(of_executors("plans: {kind: cloud_run, limit: 5}"), @"repos.yaml:2:17: executors: kind `cloud_run` needs `job`: the name of a Cloud Run job, `projects/PROJECT/locations/REGION/jobs/JOB`");
    assert_snapshot!(of_executors("plans: {kind: cloud_run, job: projects/p/locations/r/jobs/}"), @"repos.yaml:2:33: executors.job: `projects/p/locations/r/jobs/` is not the name of a Cloud Run job, `projects/PROJECT/locations/REGION/jobs/JOB`");
    assert_snapshot!(of_executors("plans: {kind: cloud_run, job: projects/p/locations/r/jobs/j/k}"), @"repos.yaml:2:33: executors.job: `projects/p/locations/r/jobs/j/k` is not the name of a Cloud Run job, `projects/PROJECT/locations/REGION/jobs/JOB`");
    assert_snapshot!(of_executors("plans: {limit: 5}"), @"repos.yaml:2:3: executors: `plans` needs `kind`; there are: local, process, kubernetes, cloud_run");
    assert_snapshot!(of_executors("plans:"), @"repos.yaml:2:3: executors: `plans` needs `kind`; there are: local, process, kubernetes, cloud_run");
    assert_snapshot!(of_executors("plans: {kind: process, limit: 0}"), @"repos.yaml:2:33: executors.limit: it is a number from 1 to 10000");
    assert_snapshot!(of_executors("plans: {kind: process, limit: 10001}"), @"repos.yaml:2:33: executors.limit: it is a number from 1 to 10000");
    assert_snapshot!(of_executors("plans: {kind: process, limit: many}"), @"repos.yaml:2:33: `plans`: a whole number is expected here");
    assert_snapshot!(of_executors("plans: {kind: process, template: a.yaml}"), @"repos.yaml:2:36: executors: an executor of kind `process` has no `template`");
    assert_snapshot!(of_executors("plans: {kind: process, image: a}"), @"repos.yaml:2:26: unknown key `image`; known here: kind, limit, template, job");
    assert_snapshot!(of_executors("local: {kind: local}"), @"repos.yaml:2:3: executors: `local` is always there, for jobs in the server itself; choose another name");
    assert_snapshot!(of_executors("Plans: {kind: process}"), @"repos.yaml:2:3: executors: `Plans` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`");
    assert_snapshot!(of_executors("a/b:\n    kind: process"), @"repos.yaml:2:3: executors: `a/b` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`");
    assert_snapshot!(of_executors("'': {kind: process}"), @"repos.yaml:2:3: executors: `` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`");
    assert_snapshot!(of_executors(&format!("{}: {{kind: process}}", "a".repeat(41))), @"repos.yaml:2:3: executors: `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` is not a valid name: it has 1 to 40 characters of a-z, 0-9, `-` and `_`");
    assert_snapshot!(of_executors("a: {kind: process}\n  a: {kind: local}"), @"repos.yaml:3:3: the key `a` is there twice");
    assert_snapshot!(of_executors("- {kind: process}"), @"repos.yaml:2:3: `key: value` pairs are expected here");
    let entry = |name: String| format!("{name}: {{kind: process}}");
    assert!(GlobalConfig::parse(&format!("executors:\n  {}", entry("a".repeat(40))), "f").is_ok());
    let many: Vec<String> = (0..101).map(|number| entry(format!("e{number}"))).collect();
    assert_snapshot!(error(&format!("executors: {{{}}}", many.join(", "))).split_once(": ").unwrap().1, @"executors: more than 100 entries");
}

#[test]
fn wrong_rules_are_explained() {
    assert_snapshot!(of_rule("[{plan: prod}]"), @"repos.yaml:4:21: executor.plan: the executor `prod` is not defined under `executors`; there are: local, here, plans");
    assert_snapshot!(of_rule("[{plan: plans}, {plan: plans, apply: Plans}]"), @"repos.yaml:4:50: executor.apply: the executor `Plans` is not defined under `executors`; there are: local, here, plans");
    assert_snapshot!(of_rule("[]"), @"repos.yaml:4:13: executor: the list is empty; write `[{plan: local}]` for jobs in the server, or drop the key");
    assert_snapshot!(of_rule("[{}]"), @"repos.yaml:4:14: executor: the rule says nothing; known here: dirs, plan, apply");
    assert_snapshot!(of_rule("{plan: plans}"), @"repos.yaml:4:13: `executor`: a list is expected here");
    assert_snapshot!(of_rule("plans"), @"repos.yaml:4:13: `executor`: a list is expected here");
    assert_snapshot!(of_rule("[{dir: prod, plan: plans}]"), @"repos.yaml:4:15: unknown key `dir`; did you mean `dirs`?");
    assert_snapshot!(of_rule("[{plan: plans, import: plans}]"), @"repos.yaml:4:28: unknown key `import`; known here: dirs, plan, apply");
    assert_snapshot!(of_rule("[{plan: local, apply: plans}]"), @"repos.yaml:4:35: executor.apply: the executor `plans` cannot apply plans that the server makes, because a plan contains absolute paths of the place where it was made; name an executor for `plan` too, or write `apply: local`");
    assert_snapshot!(of_rule("[{apply: plans}]"), @"repos.yaml:4:22: executor.apply: the executor `plans` cannot apply plans that the server makes, because a plan contains absolute paths of the place where it was made; name an executor for `plan` too, or write `apply: local`");
    assert_snapshot!(of_rule("[{plan: here, apply: plans}]"), @"repos.yaml:4:34: executor.apply: the executor `plans` cannot apply plans that the server makes, because a plan contains absolute paths of the place where it was made; name an executor for `plan` too, or write `apply: local`");
    assert_snapshot!(of_rule("[{dirs: 'prod/[', plan: plans}]"), @"repos.yaml:4:21: executor.dirs: `prod/[` is not a valid glob: unclosed character class; missing ']'");
    assert_snapshot!(of_rule("[{dirs: [a, /prod/**], plan: plans}]"), @"repos.yaml:4:21: executor.dirs: `/prod/**` must be relative to the repository's root, without a leading slash and `..`");
    assert_snapshot!(of_rule("[{dirs: ../prod, plan: plans}]"), @"repos.yaml:4:21: executor.dirs: `../prod` must be relative to the repository's root, without a leading slash and `..`");
    assert_snapshot!(of_rule("[{dirs: [], plan: plans}]"), @"repos.yaml:4:21: executor.dirs: it names no directory; write a glob such as `prod/**`, or drop `dirs` for all of them");
    assert_snapshot!(of_rule("[{dirs: [a, ''], plan: plans}]"), @"repos.yaml:4:21: executor.dirs: it names no directory; write a glob such as `prod/**`, or drop `dirs` for all of them");
    assert_snapshot!(of_rule("[{dirs: {a: b}, plan: plans}]"), @"repos.yaml:4:21: `executor`: expected text or a list of texts");
    let many = format!("[{}]", vec!["{plan: plans}"; 101].join(", "));
    assert_snapshot!(of_rule(&many), @"repos.yaml:4:1514: executor: more than 100 rules");
    let many = format!("[{{plan: plans, dirs: [{}]}}]", vec!["a"; 101].join(", "));
    assert_snapshot!(of_rule(&many), @"repos.yaml:4:34: executor.dirs: more than 100 globs; use `{a,b}`, or several rules");
}

#[test]
fn a_repository_cannot_choose_its_executors() {
    let rules = rules("repos: [{id: /.*/, allow_custom_workflows: true}]", "infra");
    let refused =
        |text: &str| repo::parse(text, "atlantis.yaml", &rules, "main", &|_: &str| Vec::new()).unwrap_err().to_string();
    for (text, says) in [
        ("version: 3\nexecutors: {a: {kind: process}}", "atlantis.yaml:2:1: unknown key `executors`; known here: "),
        ("version: 3\nexecutor: [{plan: a}]", "atlantis.yaml:2:1: unknown key `executor`; known here: "),
        (
            "version: 3\nprojects:\n- dir: a\n  executor: [{plan: a}]",
            "atlantis.yaml:4:3: unknown key `executor`; known",
        ),
    ] {
        assert!(refused(text).starts_with(says), "{}", refused(text));
    }
    for key in ["executor", "executors"] {
        let message = error(&format!("repos:\n- id: /.*/\n  allowed_overrides: [{key}]"));
        assert!(message.contains(&format!("\"{key}\" is not a key to override")), "{message}");
    }
}
