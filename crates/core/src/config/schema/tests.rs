//! Schemas and tables are up to date, and agree with the parser about files that are right, wrong and changed.

use super::keys::{Default, Values};
use super::probe::{ConfigFile, in_yaml, minimal};
use super::validator::Validator;
use super::{all_sections, beyond, reference, schema};
use crate::config::mutated_tests::{globals, repos};
use crate::config::yaml;
use crate::mutation::{examples, mutated};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

const FILES: [ConfigFile; 2] = [ConfigFile::Repo, ConfigFile::Server];

thread_local! {
    static VALIDATORS: [Validator; 2] = FILES.map(|file| Validator::new(schema(file)));
}

/// Returns the schema's error about a document.
fn schema_error(file: ConfigFile, value: &Value) -> Option<String> {
    VALIDATORS.with(|[repo, server]| match file {
        ConfigFile::Repo => repo.error(value),
        ConfigFile::Server => server.error(value),
    })
}

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn schemas_and_tables_of_the_manual_are_those_of_the_parser() {
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    let advice = "is old: UPDATE_DOCS=1 cargo test -p tidelock-core schema";
    for (file, name) in FILES.into_iter().zip(["atlantis", "repos"]) {
        let path = in_repository(&format!("docs/schemas/{name}.schema.json"));
        let made = schema(file);
        if is_update {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
        }
        let written: Value =
            std::fs::read_to_string(&path).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        assert!(written == made, "{} {advice}", path.display());
    }
    for name in ["repo-config", "server-config"] {
        let path = in_repository(&format!("docs/{name}.md"));
        let page = std::fs::read_to_string(&path).unwrap();
        let made = reference::with_tables(&page);
        if is_update {
            std::fs::write(&path, &made).unwrap();
        }
        assert!(made.contains("<!-- keys: ") && (is_update || page == made), "{} {advice}", path.display());
    }
}

#[test]
fn examples_and_defaults_of_the_table_are_right() {
    for (section, place) in FILES.into_iter().flat_map(all_sections) {
        let file = place.file;
        for key in section.keys {
            let at = place.key(section, key);
            let what = format!("{} of {}", key.name, section.name);
            let valid = |value: Value| {
                let text = at.document(value);
                assert_eq!(
                    (file.errors(&text), schema_error(file, &in_yaml(&text))),
                    (Vec::new(), None),
                    "{what}: {text}"
                );
                text
            };
            key.example.into_iter().for_each(|text| drop(valid(in_yaml(text))));
            if let Values::Only(values) = key.values {
                values.iter().for_each(|value| drop(valid(json!(value))));
                assert_ne!(file.errors(&at.document(json!("other"))), Vec::<String>::new(), "{what}");
            }
            if let Default::Value(text) = key.default {
                let without = at.document(Value::Null);
                assert_eq!(file.meaning(&valid(in_yaml(text))), file.meaning(&without), "{what}");
            }
            if key.is_required() {
                let without = at.document(Value::Null);
                assert!(
                    !file.errors(&without).is_empty() && schema_error(file, &in_yaml(&without)).is_some(),
                    "{what}: {without}"
                );
            }
        }
    }
}

/// Returns the blocks of YAML of the manual that have a key of the file's root.
fn blocks(file: ConfigFile) -> Vec<String> {
    let paths = std::fs::read_dir(in_repository("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let text: String = pages.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let blocks = text.split("```yaml\n").skip(1).filter_map(|part| part.split_once("```")).map(|(block, _)| block);
    let is_ours = |block: &&str| match file {
        ConfigFile::Repo => block.starts_with("version: "),
        ConfigFile::Server => {
            ["repos:", "# repos.yaml", "workflows:", "policies:", "executors:", "people:", "team_authz:"]
                .iter()
                .any(|start| block.starts_with(start) && !block.contains("hooks:\n  - id: "))
        }
    };
    blocks.filter(is_ours).map(str::to_owned).collect()
}

/// Returns the files of the repository and of the manual.
fn all_files(file: ConfigFile) -> Vec<String> {
    let (folders, ending): (&[&str], _) = match file {
        ConfigFile::Repo => (&["examples", "sandbox", "tests/fixtures"], "atlantis.yaml"),
        ConfigFile::Server => (&["examples", "kubernetes", "scripts", "terraform", "tests/fixtures"], "repos.yaml"),
    };
    folders.iter().flat_map(|folder| examples(folder, ending)).chain(blocks(file)).collect()
}

/// Returns a value with its booleans and numbers read as if they had no quotes. The parser takes `'true'` and `'1'` where a boolean and a number belong, and
/// an empty text for no output filter; the schema does not.
fn unquoted(value: Value) -> Value {
    match value {
        Value::String(text) => match yaml::decode::<Value>(&text, "f").ok().flatten() {
            Some(plain @ (Value::Bool(_) | Value::Number(_))) => plain,
            _ if text.is_empty() => Value::Null,
            _ => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(unquoted).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, unquoted(value))).collect())
        }
        other => other,
    }
}

/// Returns how the schema and the parser differ about a text.
fn disagreement(file: ConfigFile, text: &str) -> Option<String> {
    let value = yaml::decode::<Value>(text, "f").ok()??;
    let is_beyond = |error: &String| beyond::ERRORS.iter().any(|(part, ..)| error.contains(part));
    let errors = file.errors(text);
    match schema_error(file, &value) {
        Some(error) if errors.is_empty() => {
            schema_error(file, &unquoted(value)).map(|_| format!("the parser takes it: {error}"))
        }
        None => errors.into_iter().find(|error| !is_beyond(error)),
        Some(_) => None,
    }
}

#[test]
fn the_schema_takes_the_files_that_the_parser_takes() {
    for (file, fewest) in FILES.into_iter().zip([12, 30]) {
        let all = all_files(file);
        assert!(all.len() >= fewest, "only {} files of {file:?}", all.len());
        for text in all {
            let value = yaml::decode::<Value>(&text, "f").unwrap_or_else(|error| panic!("{text}: {}", error.0));
            assert_eq!(schema_error(file, &value.unwrap()), None, "{text}");
            assert_eq!(disagreement(file, &text), None, "{text}");
        }
    }
}

/// Returns wrong files that both refuse: an unknown key and a wrong type in each section, and these.
fn wrong_files(file: ConfigFile) -> Vec<String> {
    let more: &[&str] = match file {
        ConfigFile::Repo => &[
            "{}",
            "[]",
            "{version: 1}",
            "{version: 3, projects: [null]}",
            "{version: 3, projects: [{dir: a, dirs: b}]}",
            "{version: 3, projects: [{dir: ''}]}",
            "{version: 3, projects: [{dir: a/../b}]}",
            "{version: 3, projects: [{dir: a, name: 'a b'}]}",
            "{version: 3, projects: [{dir: a, workspace: -x}]}",
            "{version: 3, projects: [{dir: a, branch: main}]}",
            "{version: 3, projects: [{dir: a, branch: 5}]}",
            "{version: 3, projects: [{dir: a, terraform_version: newest}]}",
            "{version: 3, projects: [{dir: a, plan_max_age: 1d}]}",
            "{version: 3, projects: [{dir: a, apply_requirements: approved}]}",
            "{version: 3, projects: [{dir: a, apply_requirements: [aproved]}]}",
            "{version: 3, projects: [{dir: a, executor: [{plan: local}]}]}",
            "{version: 3, projects: [{dir: a, approvals: {count: 0}}]}",
            "{version: 3, projects: [{dir: a, approvals: {any_of: [alice]}}]}",
            "{version: 3, projects: [{dir: a, freeze: [{from: Fri 16:00}]}]}",
            "{version: 3, projects: [{dir: a, freeze: [{from: Fri 16:00, to: Mon 08:00, except: [codeowners]}]}]}",
            "{version: 3, autodiscover: {ignore_paths: [/a]}}",
            "{version: 3, automerge: perhaps}",
        ],
        ConfigFile::Server => &[
            "[]",
            "repos: {}",
            "repos: [{branch: /main/}]",
            "repos: [{id: ''}]",
            "repos: [{id: /a}]",
            "repos: [{id: a/b/c, repo_config_file: /etc/passwd}]",
            "repos: [{id: a/b/c, allowed_overrides: [dir]}]",
            "repos: [{id: a/b/c, pre_workflow_hooks: [{description: a}]}]",
            "repos: [{id: a/b/c, repo_locks: {mode: always}}]",
            "repos: [{id: a/b/c, executor: []}]",
            "repos: [{id: a/b/c, drift: {schedule: daily}}]",
            "repos: [{id: a/b/c, drift: {schedule: 0 3 * * *, notify: never}}]",
            "repos: [{id: a/b/c, drift: {schedule: 0 3 * * *, projects: []}}]",
            "executors: {local: {}}",
            "executors: {A: {kind: process}}",
            "executors: {a: }",
            "executors: {a: {kind: cloud_run, job: tidelock}}",
            "executors: {a: {kind: process, limit: 0}}",
            "workflows: {own: {plan: {steps: [init, planning]}}}",
            "workflows: {own: {plan: {steps: [init: {}, plan: {}, {}]}}}",
            "workflows: {own: {plan: {steps: [{init: {}, plan: {}}]}}}",
            "workflows: {own: {plan: {steps: [env: {value: a}]}}}",
            "workflows: {own: {plan: {steps: [env: {name: a=b}]}}}",
            "workflows: {own: {plan: {steps: [run: ' ']}}}",
            "workflows: {own: {plan: {steps: [run: {command: a, output: shown}]}}}",
            "policies: {policy_sets: [{path: a}]}",
            "policies: {policy_sets: [{name: a, source: github}]}",
            "policies: {policy_sets: [{name: a, path: --update}]}",
            "policies: {owners: {users: [a b]}}",
            "policies: {conftest_version: newest}",
            "people: [{person: a, login: b}]",
            "team_authz: {args: [a]}",
            "metrics: {prometheus: {endpoint: metrics}}",
            "metrics: {statsd: {host: a, port: 0}}",
        ],
    };
    let of_sections = all_sections(file).into_iter().flat_map(|(section, place)| {
        let with = |name: &str, value: Value| {
            place.document(json!(Map::from_iter(minimal(section).into_iter().chain([(name.to_owned(), value)]))))
        };
        [with("colour", json!("red")), with(section.keys[0].name, json!([{"colour": "red"}]))]
    });
    of_sections.chain(more.iter().map(|text| (*text).to_owned())).collect()
}

#[test]
fn wrong_files_are_refused_by_both() {
    for file in FILES {
        for text in wrong_files(file) {
            assert!(!file.errors(&text).is_empty(), "the parser takes {text}");
            assert!(schema_error(file, &in_yaml(&text)).is_some(), "the schema takes {text}");
        }
    }
}

#[test]
fn the_schema_wants_booleans_and_numbers_without_quotes() {
    for text in ["{version: 3, automerge: 'true'}", "{version: 3, projects: [{dir: a, execution_order_group: '1'}]}"] {
        assert_eq!(ConfigFile::Repo.errors(text), Vec::<String>::new());
        assert!(schema_error(ConfigFile::Repo, &in_yaml(text)).is_some(), "{text}");
        assert_eq!(disagreement(ConfigFile::Repo, text), None);
    }
}

#[test]
fn a_schema_cannot_say_all_that_the_parser_checks() {
    for (part, file, text) in beyond::ERRORS {
        let text = text.replace("LONG", &"a".repeat(5_000));
        let errors = file.errors(&text);
        assert!(errors.len() == 1 && errors[0].contains(part), "{part}: {errors:?} of {text}");
        assert_eq!(schema_error(*file, &in_yaml(&text)), None, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_and_the_parser_agree_on_a_mutated_repo_config(text in mutated(repos())) {
        prop_assert_eq!(disagreement(ConfigFile::Repo, &text), None, "{}", text);
    }

    #[test]
    fn the_schema_and_the_parser_agree_on_a_mutated_global_config(text in mutated(globals())) {
        prop_assert_eq!(disagreement(ConfigFile::Server, &text), None, "{}", text);
    }
}
