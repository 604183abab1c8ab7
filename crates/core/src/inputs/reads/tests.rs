//! Files that are found in code and arguments without running anything.

use crate::config::ProjectConfig;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::domain::{Distribution, ProjectId, RepoId};
use crate::inputs::tree::MemoryTree;
use crate::inputs::{InputGraph, InputRules};

fn rules(repos_yaml: &str) -> RepoRules {
    let repo = RepoId { host: "h".into(), owner: "o".into(), name: "r".into() };
    GlobalConfig::parse(repos_yaml, "repos.yaml").unwrap().rules(&repo, "main")
}

/// Describes the files that a plan of `live/a` reads: files, `dir:glob` of filesets, `dir?` below which names are unknown, and the rest.
fn reads_of(rules: &RepoRules, files: &[(&str, &str)], arguments: &[&str]) -> String {
    let tree = MemoryTree::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    let input_rules =
        InputRules { file_list: &[], modules_from: &[], default_distribution: Distribution::Terraform, rules };
    let graph = InputGraph::new(&tree, input_rules);
    let id = ProjectId { dir: "live/a".into(), workspace: "stage".into(), name: None };
    let project = ProjectConfig::from_rules(id, rules);
    let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    let inputs = graph.inputs_of(&project).unwrap().with_arguments(&arguments);
    let reads = inputs.reads().clone();
    let below = reads.below.iter().map(|(dir, glob)| format!("{dir}:{}", glob.as_deref().unwrap_or_default()));
    let mut words: Vec<String> = reads.files.iter().cloned().chain(below).collect();
    words.extend(reads.guessed.iter().map(|dir| format!("{dir}?")));
    words.extend(reads.unknown.then(|| "ANYTHING".to_owned()));
    words.extend(reads.is_silent.then(|| "SILENT".to_owned()));
    words.join(" ")
}

#[test]
fn paths_are_told_as_far_as_they_are_literal() {
    let rules = rules("repos: []");
    for (code, found) in [
        ("file(\"x.json\")", "live/a/x.json"),
        ("file(\"../../p/x.json\")", "p/x.json"),
        ("file(\"${path.module}/../b/x\")", "live/b/x"),
        ("filesha256(\"${path.root}/x\")", "live/a/x"),
        ("core::filebase64(\"${path.cwd}/x\")", "live/a/x"),
        ("other::file(\"x\")", ""),
        ("myfile(\"x\")", ""),
        ("fileexists(\"x\")", "live/a/x"),
        ("file(\"/etc/x\") + file(\"~/x\") + file(\"../../../x\")", ""),
        ("file(local.x)", "live/a/one/two/x"),
        ("file(abspath(\"${path.module}/x\"))", "live/a/x"),
        ("fileset(path.module, \"**/*.json\")", "live/a:**/*.json"),
        ("fileset(\"${path.module}/../b\", \"*\")", "live/b:*"),
        ("fileset(\"x\", \"../*\")", "ANYTHING SILENT"),
        ("fileset(\"x\", var.x)", "live/a/x? SILENT"),
        ("fileset(var.x, \"*\")", "ANYTHING SILENT"),
        ("file(\"${path.module}/p/${each.key}.json\")", "live/a/p?"),
        ("file(\"p-${each.key}.json\")", "live/a?"),
        ("try(file(\"../p/${each.key}.json\"), null)", "live/p? SILENT"),
        ("file(var.x)", "ANYTHING"),
        ("file(\"${var.x}/y\")", "ANYTHING"),
        ("fileexists(var.x)", "ANYTHING SILENT"),
        ("can(filemd5(local.nowhere))", "ANYTHING SILENT"),
        ("[for f in fileset(\"k\", \"*\") : file(\"k/${f}\")]", "live/a/k:* live/a/k?"),
        ("file(\"x${path.module}\")", "ANYTHING"),
        ("templatefile(\"t.tpl\", {})", "live/a/in-template live/a/t.tpl"),
        ("broken(\"file", "ANYTHING SILENT"),
    ] {
        let main = format!("locals {{\n  r = {code}\n}}\n");
        let locals = "locals {\n  x = \"${local.y}/x\"\n  y = \"${path.module}/one/two\"\n}\n";
        let template = "%{ if a }${file(\"in-template\")}%{ endif }";
        let files = [("live/a/main.tf", main.as_str()), ("live/a/l.tf", locals), ("live/a/t.tpl", template)];
        assert_eq!(reads_of(&rules, &files, &[]), found, "{code}");
        let json = serde_json::json!({ "locals": { "r": [format!("${{{code}}}")], "x": "file" } }).to_string();
        if !code.contains("local.") {
            assert_eq!(reads_of(&rules, &[("live/a/main.tf.json", &json), files[2]], &[]), found, "{json}");
        }
    }
}

#[test]
fn code_of_modules_and_behind_a_byte_order_mark_counts() {
    let main = "\u{feff}module \"m\" {\n  source = \"../../modules/m\"\n}\n";
    let module =
        "\u{feff}locals {\n  a = file(\"${path.module}/own\")\n  b = file(\"${path.root}/r\")\n  c = file(\"d\")\n}\n";
    let files = [("live/a/main.tf", main), ("modules/m/main.tf", module)];
    assert_eq!(reads_of(&rules("repos: []"), &files, &[]), "live/a/d live/a/r modules/m/own");
}

#[test]
fn arguments_name_files() {
    let workflow = |plan: &str| {
        rules(&format!(
            "repos: [{{id: /.*/, workflow: w}}]\nworkflows: {{w: {{plan: {{steps: [{plan}]}}, apply: {{steps: [apply]}}}}}}"
        ))
    };
    for (plan, found) in [
        (
            "{plan: {extra_args: [-var-file=../x.tfvars, --var-file=y, -var-file, z, -var, f=../v]}}",
            "live/a/y live/a/z live/x.tfvars",
        ),
        ("{init: {extra_args: ['-backend-config=../b.hcl', '-backend-config=key=../x']}}", "live/b.hcl"),
        (
            "{plan: {extra_args: ['-var-file=$WORKSPACE.tfvars', '-var-file=../${REPO_REL_DIR}/x']}}",
            "live/a/stage.tfvars live/live/a/x",
        ),
        ("{plan: {extra_args: ['-var-file=../v/$OTHER.tfvars']}}", "live/v?"),
        ("{plan: {extra_args: ['-var-file=$OTHER.tfvars']}}", "ANYTHING"),
        (
            "{env: {name: OTHER, value: one}}, {plan: {extra_args: ['-var-file=../v/$OTHER.tfvars']}}",
            "live/v/one.tfvars",
        ),
        ("{env: {name: OTHER, command: x}}, {plan: {extra_args: ['-var-file=../v/$OTHER.tfvars']}}", "live/v?"),
        ("{env: {name: TF_CLI_ARGS_plan, value: '-var-file=../t.tfvars'}}, plan", "live/t.tfvars"),
        ("{env: {name: TF_CLI_ARGS, command: x}}, plan", "ANYTHING"),
        ("{plan: {extra_args: ['-var-file=/etc/x', '-lock=false']}}", ""),
    ] {
        assert_eq!(reads_of(&workflow(plan), &[("live/a/main.tf", "")], &[]), found, "{plan}");
    }
    assert_eq!(reads_of(&workflow("plan"), &[("live/a/main.tf", "")], &["-var-file=../c"]), "live/c");
}

#[test]
fn a_sparse_tree_has_the_directories_of_what_is_read() {
    let rules = rules("repos: []");
    for (code, dirs) in [
        ("file(\"../../p/x\")", vec!["live/a", "p"]),
        ("file(\"../../x\")", vec!["live/a"]),
        ("fileset(\"../../q\", \"*\")", vec!["live/a", "q"]),
        ("file(\"../../q/${each.key}\")", vec!["live/a", "q"]),
        ("fileexists(\"../../q/${each.key}\")", vec![".", "live/a"]),
        ("file(var.x)", vec![".", "live/a"]),
    ] {
        let main = format!("locals {{\n  r = {code}\n}}\n");
        let tree = MemoryTree::new([("live/a/main.tf", main.as_str()), ("p/x", ""), ("q/x", "")]);
        let (file_list, modules_from, default_distribution) = (&[], &[], Distribution::Terraform);
        let graph = InputGraph::new(&tree, InputRules { file_list, modules_from, default_distribution, rules: &rules });
        assert_eq!(graph.sparse(vec!["live/a".to_owned()], &[], &[]), dirs, "{code}");
    }
}
