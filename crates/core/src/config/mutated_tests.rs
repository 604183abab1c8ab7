//! Changed configuration files and globs: parsers do not panic, and report errors with their position.

use super::global::{GlobalConfig, OVERRIDABLE_KEYS, RepoRules};
use super::paths::{Glob, clean, is_glob, join, parent};
use super::places::{FilePlace, key_at};
use super::*;
use crate::domain::RepoId;
use crate::mutation::{examples, mutated, nested};
use proptest::prelude::*;

const REPO: &str = "
version: 3
automerge: true
parallel_plan: yes
abort_on_execution_order_fail: true
allowed_regexp_prefixes: [dev/]
delete_source_branch_on_merge: true
repo_locks: {mode: strict, scope: pull_request}
silence_pr_comments: [plan]
autodiscover: {mode: enabled, ignore_paths: ['legacy/**', '[!a]*/{b,c}']}
projects:
- &base
  name: one
  branch: /^main$/
  dir: a/b
  workspace: prod
  workflow: own
  terraform_distribution: opentofu
  terraform_version: v1.11.4
  autoplan: &autoplan {when_modified: ['*.tf', '../modules/**', '!x'], enabled: false}
  plan_requirements: [undiverged]
  apply_requirements: [approved, mergeable]
  import_requirements: []
  depends_on: [two]
  execution_order_group: -1
  policy_check: true
  plan_max_age: 24h
  tags: [env:prod, team:core]
  allowed_users: [alice]
  approvals: {any_of: ['team:acme/sre'], count: 1, of_plan: true}
  auto_apply: {when: approved}
  freeze: [{from: fri 16:00, to: mon 06:00, timezone: Europe/Berlin, except: ['user:alice'], reason: weekend}]
- <<: *base
  name: two
  depends_on: []
- {dir: 'envs/*', autoplan: *autoplan}
workflows:
  own:
    plan:
      steps:
      - init: {extra_args: [-lock=false]}
      - env: {name: A, command: 'echo b'}
      - multienv: {command: ./env.sh, output: hide}
      - run: {command: 'echo $PROJECT_NAME', shell: bash, shellArgs: [-c], output: [strip_refreshing, {filter_regex: 'to[k]en'}]}
      - plan
    apply: {steps: [apply]}
";

const GLOBAL: &str = "
repos:
- id: /.*/
  branch: /main|release-.*/
  repo_config_file: path/atlantis.yaml
  plan_requirements: [undiverged]
  apply_requirements: [approved]
  allowed_overrides: [workflow, apply_requirements]
  allowed_workflows: [own]
  allow_custom_workflows: true
  repo_locks: {mode: on_apply}
  autodiscover: {mode: auto, ignore_paths: [x/**]}
  pre_workflow_hooks:
  - {run: ./x.sh, description: make it, shell: bash, shellArgs: -c, commands: 'plan,apply'}
  post_workflow_hooks:
  - run: |
      echo done
- id: github.com/acme/infra
  workflow: own
  silence_pr_comments: [apply]
  plan_max_age: 12h
  allowed_teams: ['sre:apply']
  freeze:
  - {from: 2026-12-20 00:00, to: 2027-01-02 00:00, timezone: UTC, reason: holidays}
  executor: [{plan: plans, apply: local}, {dirs: 'prod/**', plan: plans, apply: big_ones}, {dirs: [dev, 'test/*']}]
  drift: {schedule: 5 3 * * mon-fri, timezone: Europe/Berlin, projects: ['prod/**', net], window: 6h, notify: none, branch: main}
workflows:
  own: &own
    plan: {steps: [init, {plan: {extra_args: [-var, x=y]}}]}
  other: *own
executors:
  plans: {kind: process, limit: 20}
  big_ones:
    kind: process
policies:
  conftest_version: v0.66.0
  owners: {users: [alice], teams: [sre]}
  approve_count: 2
  policy_sets:
  - {name: net, path: policies/net, source: local, prevent_self_approve: true, owners: {users: [bob]}}
";

pub(super) fn rules() -> RepoRules {
    let keys = OVERRIDABLE_KEYS.join(", ");
    let all = format!("repos:\n- id: /.*/\n  allowed_overrides: [{keys}]\n  allow_custom_workflows: true");
    let repo = RepoId { host: "github.com".into(), owner: "o".into(), name: "r".into() };
    GlobalConfig::parse(&all, "repos.yaml").unwrap().rules(&repo, "main")
}

pub(super) fn repo_errors(text: &str) -> Vec<String> {
    thread_local! { static RULES: RepoRules = rules(); }
    let directories = |_: &str| vec!["envs/dev".to_owned(), "envs/prod".to_owned()];
    RULES.with(|rules| texts(repo::parse(text, "f", rules, "main", &directories)))
}

pub(super) fn global_errors(text: &str) -> Vec<String> {
    texts(GlobalConfig::parse(text, "f"))
}

fn texts<T>(parsed: Result<T, ConfigErrors>) -> Vec<String> {
    let errors = parsed.err().unwrap_or_default();
    errors.iter().map(|error| error.0.clone()).collect()
}

fn check(errors: Vec<String>, text: &str) -> Result<(), TestCaseError> {
    errors.iter().try_for_each(|error| check_one(error, text))
}

/// Checks that an error is `f:LINE:COLUMN: words`, at a position in the file, and short enough for a comment.
fn check_one(error: &str, text: &str) -> Result<(), TestCaseError> {
    prop_assert!(error.chars().count() < 1500 && !error.contains(char::is_control), "{error:?}");
    let mut parts = error.splitn(4, ':');
    let (file, line, column) = (parts.next(), parts.next(), parts.next());
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let place = FilePlace { line: number(line), column: number(column) };
    // YAML ends a line at a lone carriage return as well.
    let lines = 1 + text.matches(['\n', '\r']).count() as u64;
    prop_assert!(file == Some("f") && (1..=lines).contains(&place.line) && place.column > 0, "{error:?} of\n{text}");
    prop_assert!(parts.next().is_some_and(|words| words.len() > 10), "{error:?}");
    // If a key comes before the position, the key of the error is found.
    let has_key = text.lines().take(place.line as usize).any(|line| line.starts_with("version: "));
    prop_assert!(!has_key || key_at(text, place).is_some(), "no key for {error:?} of\n{text}");
    Ok(())
}

pub(super) fn repos() -> Vec<String> {
    let mut all = examples("tests/fixtures/check", "atlantis.yaml");
    all.extend(examples("tests/fixtures/check/wrong", ".yaml"));
    all.extend(examples("examples", "atlantis.yaml"));
    all.extend(std::iter::repeat_n(REPO.to_owned(), all.len()));
    all
}

pub(super) fn globals() -> Vec<String> {
    let mut all = examples("tests/fixtures/check", "repos.yaml");
    all.extend(examples("tests/fixtures/check/wrong-server", ".yaml"));
    all.extend(examples("examples", "repos.yaml"));
    all.extend(std::iter::repeat_n(GLOBAL.to_owned(), all.len()));
    all
}

#[test]
fn the_examples_that_are_changed_are_right() {
    assert_eq!((repo_errors(REPO), global_errors(GLOBAL)), (Vec::new(), Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_repo_config_is_right_or_its_error_has_a_place(text in mutated(repos())) {
        check(repo_errors(&text), &text)?;
    }

    #[test]
    fn a_mutated_global_config_is_right_or_its_error_has_a_place(text in mutated(globals())) {
        check(global_errors(&text), &text)?;
    }

    /// The same as JSON, which `--repo-config-json` is.
    #[test]
    fn a_mutated_global_config_in_json_is_right_or_its_error_has_a_place(text in mutated(vec![json()])) {
        check(global_errors(&text), &text)?;
    }

    #[test]
    fn a_mutated_glob_matches_or_is_refused_in_few_words(
        glob in mutated(globs()), path in mutated(vec!["a/b/c.tf".into(), "envs/prod".into(), ".".into(), "é/🌊".into()]),
    ) {
        match Glob::new(&glob) {
            Ok(glob) => drop(glob.matches(&path)),
            Err(error) => prop_assert!(error.chars().count() < 300 && !error.contains(char::is_control), "{error:?}"),
        }
        is_glob(&glob);
        let (cleaned, joined) = (clean(&path), join(&glob, &path));
        prop_assert_eq!(clean(&cleaned), cleaned.clone());
        prop_assert_eq!(clean(&joined), joined.clone());
        prop_assert!(!joined.trim_start_matches("../").contains("/../"), "{}", joined);
        prop_assert!(cleaned.starts_with(parent(&cleaned)) || parent(&cleaned) == ".");
    }

    /// Meaning of a glob without classes and braces, segment by segment.
    #[test]
    fn a_glob_means_what_its_segments_say(glob in "(a|b|\\*|\\?|\\*\\*|ab|a\\*)(/(a|b|\\*|\\?|\\*\\*|ab|\\*b)){0,3}", path in "[ab]{1,2}(/[ab]{1,2}){0,3}") {
        let segments = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
        let expected = means(&segments(&glob), &segments(&path));
        prop_assert_eq!(Glob::new(&glob).unwrap().matches(&path), expected, "{} {}", glob, path);
    }
}

fn means(glob: &[String], path: &[String]) -> bool {
    match (glob.split_first(), path.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((first, rest)), _) if first == "**" => {
            means(rest, path) || path.split_first().is_some_and(|(_, below)| means(glob, below))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((name, below))) => {
            segment(&first.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>()) && means(rest, below)
        }
    }
}

fn segment(glob: &[char], name: &[char]) -> bool {
    match (glob.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => segment(rest, name) || name.split_first().is_some_and(|(_, n)| segment(glob, n)),
        (Some((c, rest)), Some((n, below))) => (*c == '?' || c == n) && segment(rest, below),
        _ => false,
    }
}

fn globs() -> Vec<String> {
    let globs = ["legacy/**", "**/old", "a/**/z", "{dev,prod}/*", "[!d]*/app", "a?c", r"a\*", "{a,{b,c}}/[a-z0-9]*"];
    globs.map(str::to_owned).to_vec()
}

fn json() -> String {
    serde_json::json!({
        "repos": [{"id": "/.*/", "apply_requirements": ["approved"], "allowed_overrides": ["workflow"], "repo_locks": {"mode": "disabled"},
            "pre_workflow_hooks": [{"run": "echo \u{e9}", "commands": "plan"}]}],
        "workflows": {"own": {"plan": {"steps": ["init", {"run": {"command": "x", "output": ["hide"]}}]}}},
    })
    .to_string()
}

/// Refused within limits of time and stack: on a test's thread, which has 2 MiB, as the server's threads have.
#[test]
fn bombs_are_refused_with_a_place() {
    let aliases: String = (1..40).map(|n| format!("l{n}: &l{n} [*l{p}, *l{p}, *l{p}, *l{p}]\n", p = n - 1)).collect();
    let merges: String = (1..2000).map(|n| format!("m{n}: &m{n}\n  <<: *m{}\n", n - 1)).collect();
    assert_eq!(Glob::new("[|2-\n]x").unwrap_err(), "`[|2- ]x` is not a valid glob: invalid range; '2' > ' '");
    for bomb in [
        nested("[", "", "]"),
        nested("{a: ", "b", "}"),
        nested("- ", "a", ""),
        nested("? ", "a", ""),
        nested("", "a", "]"),
        (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
        format!("l0: &l0 x\n{aliases}"),
        format!("m0: &m0 {{x: 1}}\n{merges}"),
        "&a [*a]".to_owned(),
        "version: &v 3\n<<: *v\n".to_owned(),
        "version: 3\nprojects: &p\n- <<: *p\n".to_owned(),
        format!("version: {}", "9".repeat(100_000)),
        format!("version: 3\n{}: 1", "k".repeat(100_000)),
        format!("version: 3\nprojects:\n- dir: a\n  name: {}", "n".repeat(100_000)),
        format!("version: 3\nprojects:\n- dir: {}", "a/".repeat(50_000)),
        format!("version: 3\nprojects:\n- dir: a\n  branch: /{}/", "(".repeat(50_000)),
        format!("version: 3\nprojects:\n- dir: a\n  branch: /{}/", "(a{1000}){1000}".repeat(100)),
        format!("version: 3\nprojects:\n- dir: a\n  autoplan: {{when_modified: ['{}']}}", "[".repeat(5_000)),
        format!("version: 3\nautodiscover: {{ignore_paths: ['{}']}}", "{a,b}".repeat(800)),
        "\u{feff}\0".to_owned(),
        // Found by changing files: a position missing from the parser's error, and a value quoted unchanged.
        "!!set version: 3\nversion: 3\n".to_owned(),
        "{\"workflows\": {\"own\": {\"plan\": {\"steps\": [{\"]\u{85}]\": 1}]}}}}".to_owned(),
    ] {
        for errors in [repo_errors(&bomb), global_errors(&bomb)] {
            check(errors, &bomb).unwrap_or_else(|error| panic!("{}: {error}", &bomb[..bomb.len().min(80)]));
        }
    }
}
