//! Units as far as they are known from their files alone.

use super::*;
use crate::config::ProjectConfig;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::domain::{Distribution, ProjectId, RepoId};
use crate::inputs::tree::MemoryTree;
use crate::inputs::{InputGraph, InputRules};

const ROOT: &str = "remote_state {\n  backend = \"local\"\n}\n";
const INCLUDE: &str = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\n";

fn unit_of(files: &[(&str, &str)], dir: &str) -> Unit {
    read(&tree(files), dir)
}

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    MemoryTree::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn unknown(unit: &Unit) -> Vec<String> {
    unit.unknown.iter().map(Unknown::to_string).collect()
}

/// Returns the unit `live/app` with a dependency with this `config_path`.
fn path(expression: &str) -> Unit {
    let text = format!(
        "dependency \"x\" {{\n  config_path = {expression}\n}}\nlocals {{\n  name = \"vpc\"\n  again = \"${{local.name}}\"\n  loop = local.loop\n  env = read_terragrunt_config(find_in_parent_folders(\"env.hcl\"))\n}}\n"
    );
    let env = "locals {\n  stage = \"prod\"\n  here = get_terragrunt_dir()\n}\n";
    unit_of(&[("live/app/terragrunt.hcl", &text), ("live/env.hcl", env), ("root.hcl", ROOT)], "live/app")
}

#[test]
fn paths_are_told_as_far_as_files_tell_them() {
    for (expression, dir) in [
        ("\"../vpc\"", "live/vpc"),
        ("\"../vpc/terragrunt.hcl\"", "live/vpc"),
        ("\"${get_terragrunt_dir()}/../vpc\"", "live/vpc"),
        ("\"../${local.name}\"", "live/vpc"),
        ("\"../${local.again}\"", "live/vpc"),
        ("\"${get_repo_root()}/x//y\"", "x/y"),
        ("\"${get_path_to_repo_root()}/x\"", "x"),
        ("\"${dirname(find_in_parent_folders(\"env.hcl\"))}/vpc\"", "live/vpc"),
        ("\"../${local.env.locals.stage}\"", "live/prod"),
        ("\"${local.env.locals.here}/vpc\"", "live/vpc"),
        ("find_in_parent_folders(\"nothing\", \"../vpc\")", "live/vpc"),
        ("(\"../${basename(\"a/b\")}\")", "live/b"),
    ] {
        let unit = path(expression);
        assert_eq!((unit.dependencies, unit.unknown), (set(&[dir]), vec![]), "{expression}");
    }
}

#[test]
fn what_only_terragrunt_can_tell_is_named_with_its_place() {
    let not_told =
        "`live/app/terragrunt.hcl`, line 2: `config_path` of `dependency` cannot be told without running Terragrunt";
    for expression in [
        "get_env(\"X\")",
        "\"../${local.loop}\"",
        "local.none",
        "true ? \"a\" : \"b\"",
        "run_cmd(\"x\")",
        "[\"a\"]",
        "get_env(\"A\", \"../vpc\")",
    ] {
        let unit = path(expression);
        assert_eq!((unknown(&unit), unit.may_depend_on_more()), (vec![not_told.to_owned()], true), "{expression}");
    }
    for expression in ["\"../../../x\"", "\"/etc\"", "\"${get_repo_root()}/../x\""] {
        let unit = path(expression);
        assert!(
            unit.dependencies.is_empty() && unknown(&unit)[0].ends_with("`config_path` leads out of the repository")
        );
    }
}

#[test]
fn includes_are_followed_and_speak_of_the_unit_that_includes_them() {
    let common = "dependency \"vpc\" {\n  config_path = \"../vpc\"\n}\nterraform {\n  source = \"${get_parent_terragrunt_dir()}/../modules//${basename(get_terragrunt_dir())}\"\n}\n";
    let unit = unit_of(
        &[
            ("root.hcl", ROOT),
            ("common/app.hcl", common),
            (
                "live/app/terragrunt.hcl",
                &format!(
                    "{INCLUDE}include \"app\" {{\n  path = \"${{get_repo_root()}}/common/app.hcl\"\n}}\ninputs = yamldecode(file(\"values.yaml\"))\n"
                ),
            ),
        ],
        "live/app",
    );
    assert_eq!(unit.dependencies, set(&["live/vpc"]));
    assert_eq!(unit.source.as_deref(), Some("modules/app"));
    assert_eq!(unit.includes, set(&["root.hcl", "common/app.hcl"]));
    assert!(unit.files.contains("live/app/values.yaml") && unit.unknown.is_empty(), "{unit:?}");
}

#[test]
fn hostile_files_cost_little_and_are_told() {
    let doubled: String =
        (0..64).map(|n| format!("  l{n} = \"${{local.l{}}}${{local.l{}}}\"\n", n + 1, n + 1)).collect();
    let text = format!("locals {{\n{doubled}  l64 = \"x\"\n}}\ndependency \"x\" {{\n  config_path = local.l0\n}}\n");
    let unit = unit_of(&[("a/terragrunt.hcl", &text)], "a");
    assert_eq!(unknown(&unit).len(), 1);
    let nested = format!("x = {}1{}\n", "(".repeat(100_000), ")".repeat(100_000));
    let unit = unit_of(&[("a/terragrunt.hcl", &nested)], "a");
    assert_eq!(unknown(&unit), ["`a/terragrunt.hcl`, line 1: it is not valid HCL"]);
    let large = "# x\n".repeat(70_000);
    let unit = unit_of(&[("a/terragrunt.hcl", &large)], "a");
    assert_eq!(unknown(&unit), ["`a/terragrunt.hcl`, line 1: the file is not there, not text, or larger than 256 KiB"]);
    let itself =
        "include \"me\" {\n  path = \"terragrunt.hcl\"\n}\ndependencies {\n  paths = [\"../a\", \"../b\"]\n}\n";
    let unit = unit_of(&[("a/terragrunt.hcl", itself)], "a");
    assert_eq!(
        (unit.dependencies.clone(), unknown(&unit)),
        (set(&["b"]), vec!["`a/terragrunt.hcl`, line 5: `paths` names the unit itself".to_owned()])
    );
}

#[test]
fn a_circle_is_found_wherever_the_search_begins() {
    let on = |dir: &str| format!("dependencies {{\n  paths = [\"../{dir}\"]\n}}\n");
    let tree = tree(&[
        ("a/terragrunt.hcl", &on("b")),
        ("b/terragrunt.hcl", &on("c")),
        ("c/terragrunt.hcl", &on("b")),
        ("d/terragrunt.hcl", &on("e")),
        ("e/terragrunt.hcl", ""),
    ]);
    let units = Units::default();
    assert_eq!(units.circle(&tree, "a").unwrap(), ["b", "c", "b"]);
    assert_eq!(units.circle(&tree, "c").unwrap(), ["c", "b", "c"]);
    assert_eq!(units.circle(&tree, "d"), None);
    assert_eq!(units.dependencies(&tree, "c"), set(&["b"]));
}

/// A repository with a root file that is only included, two units of one module, and one that depends on the first.
fn live() -> MemoryTree {
    let unit = |more: &str| {
        format!(
            "include {{\n  path = find_in_parent_folders()\n}}\nlocals {{\n  stage = read_terragrunt_config(find_in_parent_folders(\"stage.hcl\"))\n}}\n{more}"
        )
    };
    tree(&[
        ("live/terragrunt.hcl", "terraform {\n  source = \"../../modules//${path_relative_to_include()}\"\n}\n"),
        ("live/stage.hcl", ""),
        ("live/vpc/terragrunt.hcl", &unit("terraform {\n  source = \"../../modules//net\"\n}\n")),
        (
            "live/app/terragrunt.hcl",
            &unit(
                "dependency \"vpc\" {\n  config_path = \"../vpc\"\n}\nterraform {\n  source = \"../../modules//app\"\n}\n",
            ),
        ),
        ("live/own/terragrunt.hcl", ROOT),
        ("live/own/main.tf", ""),
        ("plain/main.tf", ""),
        ("modules/net/main.tf", "module \"deep\" {\n  source = \"../deep\"\n}\n"),
        ("modules/deep/main.tf", ""),
        ("modules/app/main.tf", ""),
    ])
}

fn rules(list: &[String], terragrunt: bool) -> InputRules<'_> {
    let repo = RepoId { host: "h".into(), owner: "o".into(), name: "r".into() };
    let rules = RepoRules { terragrunt, ..GlobalConfig::without_file().rules(&repo, "main") };
    let rules = Box::leak(Box::new(rules));
    InputRules { file_list: list, modules_from: &[], default_distribution: Distribution::Terraform, rules }
}

#[test]
fn a_changed_file_is_planned_by_the_units_that_are_made_of_it_and_those_that_depend_on_them() {
    let (tree, list) = (live(), vec!["**/*.tf".to_owned(), "**/terragrunt.hcl".to_owned()]);
    let graph = InputGraph::new(&tree, rules(&list, true));
    for (file, units) in [
        ("live/terragrunt.hcl", vec!["live/app", "live/vpc"]),
        ("live/stage.hcl", vec!["live/app", "live/vpc"]),
        ("live/vpc/terragrunt.hcl", vec!["live/app", "live/vpc"]),
        ("live/app/terragrunt.hcl", vec!["live/app"]),
        ("live/app/extra.hcl", vec!["live/app"]),
        ("live/app/README.md", vec![]),
        ("modules/deep/main.tf", vec!["live/app", "live/vpc"]),
        ("modules/app/main.tf", vec!["live/app"]),
        ("live/own/main.tf", vec!["live/own"]),
        ("plain/main.tf", vec!["plain"]),
    ] {
        assert_eq!(graph.discovered(file).unwrap(), units, "{file}");
    }
    let off = InputGraph::new(&tree, rules(&list, false));
    assert_eq!(off.discovered("live/terragrunt.hcl").unwrap(), ["live"]);
}

#[test]
fn what_a_unit_is_made_of_touches_it_and_is_in_its_sparse_tree() {
    let (tree, list) = (live(), vec!["**/*.tf".to_owned()]);
    let graph = InputGraph::new(&tree, rules(&list, false));
    let repo = RepoId { host: "h".into(), owner: "o".into(), name: "r".into() };
    let rules = GlobalConfig::without_file().rules(&repo, "main");
    let id = ProjectId { dir: "live/app".into(), workspace: "default".into(), name: None };
    let app = ProjectConfig { terragrunt: true, ..ProjectConfig::from_rules(id, &rules) };
    for (file, touched) in [
        ("live/terragrunt.hcl", true),
        ("live/stage.hcl", true),
        ("modules/deep/main.tf", true),
        ("live/vpc/terragrunt.hcl", true),
        ("live/own/terragrunt.hcl", false),
        ("README.md", false),
    ] {
        assert_eq!(graph.is_touched(&app, &[file.to_owned()]), touched, "{file}");
        let without = ProjectConfig { terragrunt: false, ..app.clone() };
        assert!(!graph.is_touched(&without, &[file.to_owned()]), "{file}");
    }
    let dirs = graph.with_modules(vec!["live/app".to_owned()]);
    assert_eq!(dirs, ["live", "live/app", "live/vpc", "modules/app"]);
    let dirs = graph.with_modules(dirs);
    assert!(dirs.contains(&"modules/net".to_owned()) && dirs.contains(&"live/vpc".to_owned()), "{dirs:?}");
}

#[test]
fn large_texts_are_not_multiplied() {
    let many = vec!["local.x"; 10_000].join(", ");
    let text = format!("locals {{\n  x = \"{}\"\n}}\ndependencies {{\n  paths = [{many}]\n}}\n", "x".repeat(170_000));
    let (tree, units) = (tree(&[("a/terragrunt.hcl", &text)]), Units::default());
    let unit = units.unit_in(&tree, "a").unwrap();
    assert!(unit.dependencies.is_empty() && unit.may_depend_on_more());
    assert!(units.budget.bytes_made() < 1 << 20, "{}", units.budget.bytes_made());
}

#[test]
fn all_units_together_have_one_budget() {
    let calls: String = (0..60).map(|n| format!("v{n} = file(\"{n}{}\")\n", "y".repeat(4_000))).collect();
    let unit = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\n";
    let files = (0..200).map(|n| (format!("u{n}/terragrunt.hcl"), unit.to_owned()));
    let (tree, units) = (MemoryTree::from_files(files.chain([("root.hcl".to_owned(), calls)])), Units::default());
    let kept: usize = (0..200)
        .map(|n| units.unit_in(&tree, &format!("u{n}")).unwrap().files.iter().map(String::len).sum::<usize>())
        .sum();
    assert!(kept <= 32 << 20 && units.budget.bytes_made() <= 32 << 20, "{kept}");
    let why = units.budget.exceeded().unwrap();
    assert!(why.starts_with("units of Terragrunt have more than 33554432 bytes of values, at `"), "{why}");
}
