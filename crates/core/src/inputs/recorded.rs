//! Inputs of a plan in the form that is recorded with the plan, and the check of later changes against them. That check does not need the
//! tree.

use super::patterns::Patterns;
use super::reads::is_below;
use super::{Inputs, Tree, files, is_hcl};
use crate::config::paths::parent;
use crate::domain::ProjectId;
use crate::domain::ownership::PlanInputs;

/// Most directories and files that are recorded of one plan. If there are more, any file counts as an input.
const MAX_RECORDED: usize = 500;

impl Inputs<'_> {
    /// Returns the inputs to be recorded with a plan.
    pub fn recorded(&self) -> PlanInputs {
        let (graph, project) = (self.graph, self.project);
        let mut found = PlanInputs {
            when_modified: project.when_modified.clone(),
            has_terraform: project.when_modified.is_empty() && files::has_terraform(graph.tree, &project.id.dir),
            everything: graph.may_read_more(project) || self.reads().unknown,
            below: self.reads().recorded(),
            link: project.link.clone(),
            ..PlanInputs::default()
        };
        let mut files = self.reads().files.clone();
        let mut modules = self.modules();
        if graph.is_unit(project) {
            let of_units = graph.files_of_units(project);
            modules.extend(of_units.modules);
            found.units = of_units.dirs.into_iter().collect();
            files.extend(of_units.files);
        }
        found.files = files.into_iter().collect();
        found.modules = modules.into_iter().collect();
        if found.modules.len() + found.units.len() + found.files.len() + found.below.len() > MAX_RECORDED {
            found = PlanInputs { everything: true, ..PlanInputs::default() };
        }
        found
    }
}

/// Returns true if any of these changed files was an input of a project's plan, or may have been. `file_list` is `--autoplan-file-list`.
pub fn are_touched(project: &ProjectId, inputs: &PlanInputs, file_list: &Patterns, changed: &[String]) -> bool {
    if inputs.everything {
        return !changed.is_empty();
    }
    let Ok(globs) = Patterns::relative_to(&project.dir, &inputs.when_modified) else { return !changed.is_empty() };
    let own = OneDirectory { dir: &project.dir, has_terraform: inputs.has_terraform };
    changed.iter().any(|file| {
        let dir = parent(file);
        let is_listed = file_list.matches(file);
        let is_own = match inputs.when_modified.is_empty() {
            true => is_listed && !files::is_excluded(file) && files::dirs_of(file, &own, None).contains(&project.dir),
            false => globs.matches(file),
        };
        is_own
            || (is_listed && inputs.modules.iter().any(|module| module == dir))
            || ((is_listed || is_hcl(file)) && inputs.units.iter().any(|unit| unit == dir))
            || inputs.files.contains(file)
            || inputs.below.iter().any(|below| is_below(&below.dir, below.glob.as_deref(), file))
    })
}

/// A tree with one directory, of which only is known if it has files for Terraform.
struct OneDirectory<'a> {
    dir: &'a str,
    has_terraform: bool,
}

impl Tree for OneDirectory<'_> {
    fn is_dir(&self, dir: &str) -> bool {
        dir == self.dir
    }

    fn files(&self, dir: &str) -> Vec<String> {
        if self.has_terraform && dir == self.dir { vec!["main.tf".to_owned()] } else { Vec::new() }
    }

    fn dirs(&self) -> Vec<String> {
        vec![self.dir.to_owned()]
    }

    fn read(&self, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProjectConfig;
    use crate::config::global::{GlobalConfig, RepoRules};
    use crate::domain::{Distribution, RepoId};
    use crate::inputs::tree::MemoryTree;
    use crate::inputs::{InputGraph, InputRules};

    const FILE_LIST: [&str; 3] = ["**/*.tf", "**/*.tfvars", "**/terragrunt.hcl"];

    fn tree() -> MemoryTree {
        MemoryTree::new([
            (
                "net/main.tf",
                "module \"m\" {\n  source = \"../modules/m\"\n}\nlocals {\n  a = file(\"../read/one\")\n  c = fileset(\"${path.root}/../set\", \"*.md\")\n}",
            ),
            ("net/modules/own/main.tf", ""),
            ("modules/m/main.tf", "module \"n\" {\n  source = \"../n\"\n}"),
            ("modules/n/main.tf", ""),
            (
                "app/terragrunt.hcl",
                "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\nterraform {\n  source = \"../modules/m\"\n}\ndependency \"unit\" {\n  config_path = \"../unit\"\n}",
            ),
            ("unit/terragrunt.hcl", "terraform {\n  source = \"../modules/n\"\n}"),
            ("root.hcl", ""),
            ("other/main.tf", ""),
        ])
    }

    /// For every file, the recorded inputs agree with those of the tree.
    #[test]
    fn what_is_recorded_says_of_each_file_what_the_tree_says() {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let rules = RepoRules { terragrunt: true, ..GlobalConfig::without_file().rules(&repo, "main") };
        let file_list = FILE_LIST.map(str::to_owned);
        let tree = tree();
        let input_rules = InputRules {
            file_list: &file_list,
            modules_from: &[],
            default_distribution: Distribution::Terraform,
            rules: &rules,
        };
        let graph = InputGraph::new(&tree, input_rules);
        let patterns = Patterns::new(&file_list).unwrap();
        let mut seen = [0, 0];
        for (dir, when_modified) in
            [("net", vec![]), ("net", vec!["*.tf", "../readme.md"]), ("app", vec![]), ("other", vec!["!main.tf"])]
        {
            let id = ProjectId { dir: dir.into(), workspace: "default".into(), name: None };
            let mut project = ProjectConfig::from_rules(id, &rules);
            project.terragrunt = true;
            project.when_modified = when_modified.into_iter().map(str::to_owned).collect();
            let recorded = graph.inputs_of(&project).unwrap().recorded();
            for file in [
                "net/main.tf",
                "net/x.tfvars",
                "net/notes.md",
                "net/modules/own/main.tf",
                "net/env/a.tfvars",
                "readme.md",
                "modules/m/main.tf",
                "modules/m/x.md",
                "modules/n/main.tf",
                "app/terragrunt.hcl",
                "app/own.hcl",
                "unit/terragrunt.hcl",
                "unit/main.tf",
                "root.hcl",
                "read/one",
                "read/two",
                "set/a.md",
                "set/deep/a.md",
                "other/main.tf",
                "other/terraform.tfstate",
                "main.tf",
            ] {
                let changed = [file.to_owned()];
                let by_tree = graph.is_touched(&project, &changed);
                let by_record = are_touched(&project.id, &recorded, &patterns, &changed);
                assert_eq!(by_record, by_tree, "{dir} {:?} {file}: {recorded:?}", project.when_modified);
                seen[usize::from(by_tree)] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }

    #[test]
    fn what_may_be_made_of_anything_is_touched_by_every_file_and_by_no_file_not() {
        let project = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
        let inputs = PlanInputs { everything: true, ..PlanInputs::default() };
        let patterns = Patterns::new(&FILE_LIST).unwrap();
        assert!(are_touched(&project, &inputs, &patterns, &["x".to_owned()]));
        assert!(!are_touched(&project, &inputs, &patterns, &[]));
    }
}
