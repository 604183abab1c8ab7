//! Finding projects in trees with arbitrarily changed files does not panic, and only returns existing directories.

use super::*;
use crate::mutation::{examples, mutated, nested};
use crate::schedule::discover::is_ignored;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

const MODULES: &str = "module \"a\" {\n  source = \"../modules/a\"\n}\nmodule \"b\" { source = \"./deep\" }\nterraform {\n  required_version = \">= 1.5\"\n  cloud {\n    workspaces { name = \"prod\" }\n  }\n}\nlocals {\n  x = { for k, v in var.a : k => upper(v) if v != null }\n  y = var.a ? \"${a.b[0].c}\" : <<-EOT\n    %{ if true }x%{ endif }\n  EOT\n}\n";
const JSON: &str = r#"{"module": {"a": [{"source": "../modules/a"}]}, "terraform": {"required_version": "~> 1.5", "cloud": {"workspaces": {"name": "dev"}}}}"#;
const UNIT: &str = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\ndependency \"vpc\" {\n  config_path = \"../b\"\n}\nlocals {\n  env = read_terragrunt_config(find_in_parent_folders(\"env.hcl\"))\n}\nterraform {\n  source = \"${get_repo_root()}/modules//a\"\n}\n";

static PLACE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[^:]+:[1-9][0-9]*:[1-9][0-9]*: `name` ").unwrap());

fn hcl() -> Vec<String> {
    let mut all = examples("examples", ".tf");
    all.extend(std::iter::repeat_n(MODULES.to_owned(), all.len()));
    all
}

fn paths() -> Vec<String> {
    ["a/main.tf", "a/deep/x.tf", "b/terragrunt.hcl", "modules/a/main.tf", "env/prod.tfvars", "./é/main.tf"]
        .map(str::to_owned)
        .to_vec()
}

prop_compose! {
    fn trees()(tf in mutated(hcl()), json in mutated(vec![JSON.to_owned()]), unit in mutated(vec![UNIT.to_owned()]), path in mutated(paths())) -> (MemoryTree, Vec<String>) {
        let path: String = path.chars().take(60).collect();
        let files = [("a/main.tf", &tf), ("a/deep/x.tf.json", &json), ("b/main.tofu", &tf), ("b/terragrunt.hcl", &unit), ("c/terragrunt.hcl", &unit),
            ("modules/a/main.tf", &tf), (path.as_str(), &tf), ("root.hcl", &unit), ("env.hcl", &unit), ("a/.terraform.lock.hcl", &tf)];
        let modified = files.iter().map(|(path, _)| (*path).to_owned()).chain(["gone/main.tf".to_owned()]).collect();
        (MemoryTree::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).clone()))), modified)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_trees_have_projects_only_where_directories_are(
        (tree, modified) in trees(), ignored in mutated(vec!["legacy/**".into(), "{a,b}".into(), "modules/*".into()]), terragrunt: bool, modules: bool, tofu: bool,
    ) {
        let dirs: BTreeSet<String> = tree.dirs().into_iter().collect();
        let mut scene = scene(tree, &[]).with(|options| {
            options.autoplan_modules_from = if modules { vec!["**/*.tf".to_owned()] } else { Vec::new() };
            options.default_distribution = if tofu { Distribution::OpenTofu } else { Distribution::Terraform };
        });
        scene.modified = modified;
        scene.rules.terragrunt = terragrunt;
        let block = crate::config::global::Autodiscover { mode: AutodiscoverMode::Enabled, ignore_paths: Some(vec![ignored]) };
        scene.rules.autodiscover = Some(block);
        let facts = scene.facts();
        match for_plan(&Command::new(CommandName::Plan, Trigger::Autoplan, "alice"), &facts) {
            Ok(schedule) => {
                let mut seen = BTreeSet::new();
                for project in schedule.groups.iter().flatten() {
                    prop_assert!(dirs.contains(&project.id.dir), "{} is not there", project.id.dir);
                    prop_assert_eq!(is_ignored(&facts, &project.id.dir), Ok(false));
                    prop_assert!(seen.insert(project.id.clone()), "{} twice", project.id.label());
                    let inputs = facts.graph().with_modules(vec![project.id.dir.clone()]);
                    prop_assert!(inputs.iter().all(|dir| dir != ".." && !dir.starts_with("../")), "{:?}", inputs);
                }
            }
            Err(NoSchedule::Config(error)) => {
                prop_assert!(!error.0.contains(char::is_control) && error.0.chars().count() < 1_500, "{:?}", error);
                let is_of_no_file = ["autodiscover.ignore_paths: ", "units of Terragrunt "].iter().any(|start| error.0.starts_with(start));
                prop_assert!(is_of_no_file || PLACE.is_match(&error.0), "{:?}", error);
            }
            Err(NoSchedule::Target(message)) => prop_assert!(!message.is_empty()),
            Err(NoSchedule::Silent) => {}
        }
    }
}

/// Runs on a test's thread, which has the stack size of the server's threads.
#[test]
fn hcl_and_json_that_are_nested_without_end_are_passed_over() {
    for inner in [
        format!("x = {}", nested("(", "1", ")")),
        format!("x = {}", nested("[", "", "]")),
        format!("x = {}", nested("{ a = ", "1", "}")),
        format!("x = {}", nested("\"${", "1", "}\"")),
        format!("x = {}", nested("!", "true", "")),
        format!("x = {}", nested("-", "1", "")),
        format!("x = {}", nested("a ? ", "1", " : 2")),
        format!("x = a {}", nested("? b : a ", "? 1 : 2", "")),
        format!("x = {}", nested("f(", "1", ")")),
        format!("x = {}", nested("a[", "1", "]")),
        format!("x = a{}", nested(".b", "", "")),
        format!("x = a{}", nested("[*]", "", "")),
        format!("x = 1{}", nested(" + 1", "", "")),
        format!("x = {}", nested("[for a in ", "b", " : c]")),
        format!("x = \"{}\"", nested("%{ if a }", "x", "%{ endif }")),
        format!("x = {}", nested("<<E\n", "x", "\nE\n")),
        nested("a {\n", "", "}\n"),
        nested("module \"a\" \"b\" {\n", "", "}\n"),
        nested("/*", "", ""),
        format!("x = {}", "9".repeat(400_000)),
        nested("{\"module\": ", "1", "}"),
        nested("[", "", "]"),
    ] {
        let text = format!("module \"a\" {{\n  source = \"./a\"\n}}\n# required_version cloud file\n{inner}");
        let tree = MemoryTree::new([
            ("p/main.tf", &text),
            ("p/terragrunt.hcl", &text),
            ("p/x.tf.json", &inner),
            ("p/a/main.tf", ""),
        ]);
        let mut scene = scene(tree, &["p/main.tf", "p/a/main.tf"])
            .with(|options| options.autoplan_modules_from = vec!["**".to_owned()]);
        scene.rules.terragrunt = true;
        let started = std::time::Instant::now();
        scene.autoplan();
        let start: String = inner.chars().take(30).collect();
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{start}: {:?}", started.elapsed());
    }
}
