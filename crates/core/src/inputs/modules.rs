//! Users of local modules: for `--autoplan-modules`, sparse trees and `undiverged`.

use super::Tree;
use super::hcl::module_sources;
use super::patterns::Patterns;
use crate::config::paths::{clean, join};
use crate::domain::Distribution;
use std::collections::{BTreeMap, BTreeSet};

/// Most directories that one walk along `source`s visits.
const MAX_VISITED: usize = 10_000;

/// Directories that depend on a module's directory, directly or not.
#[derive(Debug, Clone, Default)]
pub(super) struct ModuleIndex {
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl ModuleIndex {
    /// Indexes the directories with a file that `from` selects.
    pub(super) fn build(tree: &dyn Tree, dirs: &[String], from: &Patterns, calls: &mut ModuleCalls) -> ModuleIndex {
        let mut index = ModuleIndex::default();
        for dir in dirs {
            if tree.files(dir).iter().any(|file| from.matches(&join(dir, file))) {
                for module in calls.closure(tree, dir) {
                    index.dependents.entry(module).or_default().insert(dir.clone());
                }
            }
        }
        index
    }

    /// Returns the directories that use the module in `dir`, in alphabetical order.
    pub(super) fn dependents(&self, dir: &str) -> impl Iterator<Item = &str> {
        self.dependents.get(dir).into_iter().flatten().map(String::as_str)
    }

    /// Returns true if `project_dir` uses a module that one of the files is in.
    pub(super) fn is_touched(&self, project_dir: &str, modified: &[String]) -> bool {
        modified.iter().any(|file| {
            let users = self.dependents.get(crate::config::paths::parent(file));
            users.is_some_and(|users| users.contains(project_dir))
        })
    }
}

/// Returns the directories of the local modules that `dir` uses, directly or not, without itself; in alphabetical order.
pub fn module_dirs(tree: &dyn Tree, dir: &str, which: Distribution) -> Vec<String> {
    ModuleCalls::new(which).closure(tree, dir).into_iter().collect()
}

/// The modules that each directory calls directly, as one distribution reads it. Every directory is read once.
pub(super) struct ModuleCalls {
    which: Distribution,
    known: BTreeMap<String, CalledModules>,
}

/// Modules that one directory calls.
struct CalledModules {
    /// Directories, without links.
    modules: Vec<String>,
    /// The links that lead to them.
    links: Vec<String>,
}

impl ModuleCalls {
    /// Creates it without reading anything.
    pub(super) fn new(which: Distribution) -> ModuleCalls {
        ModuleCalls { which, known: BTreeMap::new() }
    }

    /// Returns the directories of the modules that `dir` calls, directly or not, without itself.
    pub(super) fn closure(&mut self, tree: &dyn Tree, dir: &str) -> BTreeSet<String> {
        let start = clean(dir);
        let mut found = BTreeSet::new();
        let mut waiting = vec![start.clone()];
        while let Some(dir) = waiting.pop() {
            for module in &self.calls_in(tree, &dir).modules {
                if *module != start && found.len() < MAX_VISITED && found.insert(module.clone()) {
                    waiting.push(module.clone());
                }
            }
        }
        found
    }

    /// Returns the links on the way to the modules that a directory calls directly.
    pub(super) fn links(&mut self, tree: &dyn Tree, dir: &str) -> Vec<String> {
        self.calls_in(tree, &clean(dir)).links.clone()
    }

    fn calls_in(&mut self, tree: &dyn Tree, dir: &str) -> &CalledModules {
        let which = self.which;
        self.known.entry(dir.to_owned()).or_insert_with(|| {
            let local = |source: &String| {
                source.starts_with("./") || source.starts_with("../") || source == "." || source == ".."
            };
            let sources = module_sources(tree, dir, which).into_iter().filter(local);
            // A path out of the repository is not a module of it. A missing directory counts, as it may be absent from a sparse tree only.
            let real = sources.filter_map(|source| tree.resolve(&join(dir, &source)));
            let (modules, links): (Vec<_>, Vec<_>) = real.map(|real| (real.path, real.links)).unzip();
            CalledModules { modules, links: links.concat() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Distribution::{OpenTofu, Terraform};
    use crate::inputs::required_versions;
    use crate::inputs::tree::MemoryTree;

    fn tree() -> MemoryTree {
        MemoryTree::new([
            (
                "prod/main.tf",
                "module \"a\" {\n  source = \"../modules/a\"\n}\nmodule \"r\" { source = \"hashicorp/x/y\" }",
            ),
            ("staging/main.tf.json", r#"{"module": {"a": {"source": "../modules/a"}}}"#),
            ("listed/main.tf.json", r#"{"module": [{"b": [{"source": "../modules/b"}]}]}"#),
            ("tofu/main.tofu", "module \"b\" {\n  source = \"../modules/b\"\n}"),
            ("modules/a/main.tf", "module \"b\" {\n  source = \"../b\"\n}"),
            ("modules/b/main.tf", "module \"a\" {\n  source = \"../a\"\n}\nmodule \"self\" {\n  source = \"./\"\n}"),
            ("broken/main.tf", "module \"a\" {\n  source = \"../modules/a\""),
            (
                "outside/main.tf",
                "module \"x\" {\n  source = \"../../elsewhere\"\n}\nmodule \"gone\" { source = \"./gone\" }",
            ),
            ("dynamic/main.tf", "module \"x\" {\n  source = \"../modules/${var.which}\"\n}"),
        ])
    }

    fn index(tree: &MemoryTree, from: &[&str], which: Distribution) -> ModuleIndex {
        ModuleIndex::build(tree, &tree.dirs(), &Patterns::new(from).unwrap(), &mut ModuleCalls::new(which))
    }

    #[test]
    fn local_modules_are_followed_through_cycles() {
        let tree = tree();
        let module_dirs = |dir: &str| module_dirs(&tree, dir, Terraform);
        assert_eq!(module_dirs("prod"), ["modules/a", "modules/b"]);
        assert_eq!(module_dirs("modules/a"), ["modules/b"]);
        assert_eq!(module_dirs("listed"), ["modules/a", "modules/b"]);
        assert_eq!(module_dirs("outside"), ["outside/gone"]);
        for dir in ["broken", "dynamic", "nowhere", "tofu"] {
            assert_eq!(module_dirs(dir), Vec::<String>::new(), "{dir}");
        }
    }

    #[test]
    fn the_index_tells_who_depends_on_a_module() {
        let index = index(&tree(), &["**/*.tf", "**/*.tf.json"], Terraform);
        let users: Vec<&str> = index.dependents("modules/b").collect();
        assert_eq!(users, ["listed", "modules/a", "prod", "staging"]);
        assert_eq!(index.dependents("prod").count(), 0);
        assert!(index.is_touched("prod", &["README.md".to_owned(), "modules/b/x.tf".to_owned()]));
        assert!(!index.is_touched("tofu", &["modules/b/x.tf".to_owned()]), "its files are not indexed");
    }

    #[test]
    fn required_versions_are_read_from_hcl_and_json() {
        let tree = MemoryTree::new([
            ("a/versions.tf", "terraform {\n  required_version = \">= 1.5\"\n}"),
            ("a/more.tf.json", r#"{"terraform": [{"required_version": "~> 1.11"}]}"#),
            ("a/broken.tf", "terraform {\n  required_version = "),
            ("a/variable.tf", "terraform {\n  required_version = var.x\n}"),
        ]);
        assert_eq!(required_versions(&tree, "a", Terraform), ["~> 1.11", ">= 1.5"]);
        assert_eq!(required_versions(&tree, "b", Terraform), Vec::<String>::new());
    }

    #[test]
    fn tofu_files_are_opentofus_alone_and_take_the_place_of_those_of_the_same_name() {
        let version = |version: &str| format!("terraform {{\n  required_version = \"{version}\"\n}}");
        let module = |path: &str| format!("module \"m\" {{\n  source = \"{path}\"\n}}");
        let tree = MemoryTree::new([
            ("a/versions.tf", &version("terraform")),
            ("a/versions.tofu", &version("tofu")),
            ("a/main.tf", &module("../modules/both")),
            ("a/more.tf", &module("../modules/terraform")),
            ("a/more.tofu", &module("../modules/tofu")),
            ("a/json.tf.json", r#"{"terraform": [{"required_version": "terraform json"}]}"#),
            ("a/json.tofu.json", r#"{"terraform": [{"required_version": "tofu json"}]}"#),
            ("modules/both/main.tf", ""),
            ("modules/terraform/main.tf", ""),
            ("modules/tofu/main.tofu", "resource \"null_resource\" \"a\" {}"),
        ]);
        assert_eq!(required_versions(&tree, "a", Terraform), ["terraform json", "terraform"]);
        assert_eq!(required_versions(&tree, "a", OpenTofu), ["tofu json", "tofu"]);
        assert_eq!(module_dirs(&tree, "a", Terraform), ["modules/both", "modules/terraform"]);
        assert_eq!(module_dirs(&tree, "a", OpenTofu), ["modules/both", "modules/tofu"]);
        let index = index(&tree, &["a/*.tf"], OpenTofu);
        assert_eq!(index.dependents("modules/tofu").collect::<Vec<_>>(), ["a"]);
        let installs =
            |which| crate::inputs::providers::init_may_install(&tree, "modules/tofu", "/nowhere".as_ref(), which);
        assert!(installs(OpenTofu) && !installs(Terraform));
    }
}
