//! Autoplan, `undiverged` and sparse trees agree on the inputs of a project.

use super::*;
use crate::config::paths::parent;
use std::collections::BTreeSet;

/// Number of projects, and of modules.
const COUNT: usize = 3;

/// `when_modified` of a project, by number.
const GLOBS: [&str; 4] = ["*.tf", "**/*.tf", "../shared/*.json", "../modules/m0"];

/// Projects `p0` to `p2` that call modules, which call modules.
#[derive(Debug, Clone)]
struct Repository {
    /// Modules that each project calls directly.
    calls: Vec<BTreeSet<usize>>,
    /// Modules that each module calls directly.
    inner: Vec<BTreeSet<usize>>,
    /// `when_modified` of each project.
    globs: Vec<usize>,
    /// True if users of a changed module are planned.
    modules_on: bool,
}

fn repositories() -> impl Strategy<Value = Repository> {
    let some = || prop::collection::vec(prop::collection::btree_set(0..COUNT, 0..=2), COUNT);
    let globs = prop::collection::vec(0..GLOBS.len(), COUNT);
    (some(), some(), globs, any::<bool>()).prop_map(|(calls, inner, globs, modules_on)| Repository {
        calls,
        inner,
        globs,
        modules_on,
    })
}

fn files() -> Vec<String> {
    let mut files = vec!["shared/a.json".to_owned(), "main.txt".to_owned()];
    for number in 0..COUNT {
        for name in ["main.tf", "deep/x.tf", ".terraform.lock.hcl", "README.md"] {
            files.push(format!("p{number}/{name}"));
        }
        files.extend(["main.tf", "README.md"].map(|name| format!("modules/m{number}/{name}")));
    }
    files
}

impl Repository {
    fn tree(&self) -> MemoryTree {
        let text = |calls: &BTreeSet<usize>, up: &str| {
            let block = |module: &usize| format!("module \"m{module}\" {{\n  source = \"{up}m{module}\"\n}}\n");
            calls.iter().map(block).collect::<String>()
        };
        let texts = files().into_iter().map(|file| {
            let number = || file.chars().find(char::is_ascii_digit).and_then(|c| c.to_digit(10)).unwrap() as usize;
            let contents = match file.strip_suffix("/main.tf") {
                Some(dir) if dir.starts_with('p') => text(&self.calls[number()], "../modules/"),
                Some(_) => text(&self.inner[number()], "../"),
                None => String::new(),
            };
            (file, contents)
        });
        MemoryTree::from_files(texts)
    }

    fn scene(&self, changed: &str) -> Scene {
        scene(self.tree(), &[changed]).with(|options| {
            options.autoplan_modules_from = if self.modules_on { vec!["**/*.tf".into()] } else { Vec::new() };
        })
    }

    fn listed(&self, changed: &str) -> Scene {
        let project = |(number, glob): (usize, &usize)| {
            format!("- {{name: p{number}, dir: p{number}, autoplan: {{when_modified: ['{}']}}}}\n", GLOBS[*glob])
        };
        let projects: String = self.globs.iter().enumerate().map(project).collect();
        self.scene(changed).yaml(&format!("projects:\n{projects}"))
    }

    /// Directories of the modules that a project uses, directly or not.
    fn modules_of(&self, project: usize) -> BTreeSet<String> {
        let mut found = self.calls[project].clone();
        for _ in 0..COUNT {
            found = found.iter().flat_map(|module| self.inner[*module].clone()).chain(found.clone()).collect();
        }
        found.into_iter().map(|module| format!("modules/m{module}")).collect()
    }

    /// Returns true if `when_modified` of a project names a file.
    fn is_named(&self, project: usize, file: &str) -> bool {
        let below = file.strip_prefix(&format!("p{project}/")).filter(|rest| rest.ends_with(".tf"));
        match self.globs[project] {
            0 => below.is_some_and(|rest| !rest.contains('/')),
            1 => below.is_some(),
            2 => file == "shared/a.json",
            _ => parent(file) == "modules/m0",
        }
    }
}

/// Returns true if `--autoplan-file-list` names a file.
fn is_in_file_list(file: &str) -> bool {
    file.ends_with(".tf") || file.ends_with(".terraform.lock.hcl")
}

/// Builds one graph for all questions: these tests spend most of their time on compiling patterns.
fn graph(scene: &Scene) -> InputGraph<'_> {
    InputGraph::new(&scene.tree, scene.options.input_rules(&scene.rules))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_input_of_a_listed_project_plans_it_is_in_its_tree_and_is_looked_at_on_the_base_branch(
        repository in repositories(),
    ) {
        for file in files() {
            let scene = repository.listed(&file);
            let graph = graph(&scene);
            let mut planned = Vec::new();
            for (number, project) in scene.config.iter().flat_map(|config| &config.projects).enumerate() {
                let modules = repository.modules_of(number);
                let (named, of_module) = (repository.is_named(number, &file), modules.contains(parent(&file)));
                if named || repository.modules_on && of_module {
                    planned.push(project.id.label());
                }
                let is_input = named || of_module && is_in_file_list(&file);
                prop_assert_eq!(graph.is_touched(project, std::slice::from_ref(&file)), is_input, "{} {}", number, file);
                let is_below = |dir: &String| file.starts_with(&format!("{dir}/"));
                let answered_for = graph.files_of(project, vec![file.clone()]);
                let mut dirs = modules;
                dirs.insert(format!("p{number}"));
                prop_assert_eq!(answered_for.len() == 1, named || dirs.iter().any(is_below), "{} {}", number, file);
                prop_assert_eq!(graph.with_modules(vec![project.id.dir.clone()]), dirs.into_iter().collect::<Vec<_>>());
            }
            prop_assert_eq!(scene.autoplan(), planned.join(", "), "{}", file);
        }
    }

    #[test]
    fn a_project_that_nobody_listed_is_planned_for_what_is_looked_at_on_the_base_branch(repository in repositories()) {
        for file in files() {
            let scene = repository.scene(&file);
            let graph = graph(&scene);
            let planned = scene.autoplan();
            for dir in ["p0", "p1", "p2", "p0/deep"] {
                let id = ProjectId { dir: dir.into(), workspace: "default".into(), name: None };
                let is_planned = planned.split(", ").any(|label| label == id.label());
                let is_touched = graph.is_touched(&configured(&id, &scene.facts()), std::slice::from_ref(&file));
                prop_assert!(is_touched || !is_planned, "{dir} {file}");
                let by_module = file.starts_with("modules/");
                prop_assert!(is_planned || !is_touched || by_module && !repository.modules_on, "{dir} {file}");
                let dirs = graph.with_modules(vec![dir.to_owned()]);
                prop_assert!(!is_touched || dirs.iter().any(|dir| dir == parent(&file)), "{dir} {file} {dirs:?}");
            }
        }
    }
}

#[test]
fn the_tree_is_walked_once_for_the_modules_of_both_distributions() {
    let scene = scene(MemoryTree::of_dirs(["a", "b", "modules/m"]), &["modules/m/main.tf", "a/main.tf"])
        .with(|options| options.autoplan_modules_from = vec!["**/*.tf".into()])
        .server("repos: [{id: /.*/, autodiscover: {mode: enabled}}]")
        .yaml("projects:\n- {dir: a}\n- {dir: b, terraform_distribution: opentofu}");
    let tree = Counted(scene.tree.clone(), Default::default());
    let facts = Facts { tree: &tree, ..scene.facts() };
    let schedule = for_plan(&Command::new(CommandName::Plan, Trigger::Autoplan, "alice"), &facts);
    assert_eq!(labels(schedule), "a/default");
    assert_eq!(tree.1.get(), 1);
}
