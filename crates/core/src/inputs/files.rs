//! Project directory of a file, without a list of projects.

use super::Tree;
use super::modules::ModuleIndex;
use crate::config::paths::{clean, parent};

/// Files that make a directory a project, by name.
pub const INDICATOR_NAMES: [&str; 1] = ["terragrunt.hcl"];
/// Files that make a directory a project, by the end of their name.
pub const INDICATOR_SUFFIXES: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
/// Files with this in their name never cause a plan.
const EXCLUDED: [&str; 3] = ["terraform.tfstate", "terraform.tfstate.backup", "tflint.hcl"];

/// Returns true if a directory directly contains files for Terraform, OpenTofu or Terragrunt.
pub fn has_terraform(tree: &dyn Tree, dir: &str) -> bool {
    tree.files(dir).iter().any(|name| is_project_file(name))
}

/// Returns true if a file of this name makes its directory a project.
pub fn is_project_file(name: &str) -> bool {
    INDICATOR_NAMES.contains(&name) || INDICATOR_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns true if a file never causes a plan, by its name.
pub(super) fn is_excluded(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    EXCLUDED.iter().any(|excluded| name.contains(excluded))
}

/// Returns the project directories that a changed file belongs to.
pub(super) fn dirs_of(file: &str, tree: &dyn Tree, index: Option<&ModuleIndex>) -> Vec<String> {
    let dir = parent(file);
    if dir.rsplit('/').next() == Some("env") {
        return vec![parent(dir).to_owned()];
    }
    let mut parts = dir.split('/');
    if !is_in_modules(dir) {
        return vec![dir.to_owned()];
    }
    let above = clean(&parts.by_ref().take_while(|part| *part != MODULES).collect::<Vec<_>>().join("/"));
    if has_terraform(tree, &above) {
        return vec![above];
    }
    // The users of a module are planned; modules between are not projects.
    let users = index.into_iter().flat_map(|index| index.dependents(dir));
    users.filter(|user| !is_in_modules(user)).map(str::to_owned).collect()
}

/// Returns true if a directory holds modules and is not a project, by its path.
pub(super) fn is_in_modules(dir: &str) -> bool {
    dir.split('/').any(|part| part == MODULES)
}

/// Name of the directories that hold modules.
const MODULES: &str = "modules";
