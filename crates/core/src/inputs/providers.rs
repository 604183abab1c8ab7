//! Decides if `terraform init` in a directory may write to the plugin cache. Terraform's cache is not safe under parallel runs, so runs
//! that may fill it are serialized. Most runs cannot fill it, and do not wait.

use super::Tree;
use super::hcl;
use super::modules::module_dirs;
use crate::config::paths::join;
use crate::domain::Distribution;
use std::path::Path;

/// Name of a dependency lock file.
pub(super) const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Returns false if it certainly installs nothing. Then every provider of the lock file is in the cache; or, without that file, neither the
/// directory nor its local modules need a provider or a module from elsewhere.
pub fn init_may_install(tree: &dyn Tree, dir: &str, cache: &Path, which: Distribution) -> bool {
    if let Some(lock_file) = hcl::text_of(tree, &join(dir, LOCK_FILE)) {
        let locked = hcl::locked_providers(&lock_file);
        let cached = |(source, version): &(String, String)| cache.join(source).join(version).is_dir();
        return !locked.is_some_and(|locked| locked.iter().all(cached));
    }
    let mut dirs = module_dirs(tree, dir, which);
    dirs.push(dir.to_owned());
    dirs.iter().any(|dir| hcl::needs_installing(tree, dir, which))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::tree::MemoryTree;

    #[test]
    fn only_what_is_built_into_terraform_needs_no_cache() {
        for (text, installs) in [
            (
                "resource \"terraform_data\" \"a\" {}\ndata \"terraform_remote_state\" \"s\" {\n  backend = \"local\"\n}",
                false,
            ),
            ("output \"x\" {\n  value = 1\n}", false),
            ("resource \"null_resource\" \"a\" {}", true),
            ("data \"google_project\" \"a\" {}", true),
            ("provider \"aws\" {}", true),
            ("terraform {\n  required_providers {\n    null = { source = \"hashicorp/null\" }\n  }\n}", true),
            ("module \"m\" {\n  source = \"hashicorp/consul/aws\"\n}", true),
            ("module \"m\" {\n  source = \"./m\"\n}", false),
            ("resource \"broken", true),
        ] {
            let tree = MemoryTree::new([("p/main.tf", text)]);
            assert_eq!(
                init_may_install(&tree, "p", Path::new("/nowhere"), Distribution::Terraform),
                installs,
                "{text}"
            );
        }
    }

    #[test]
    fn a_provider_of_a_local_module_counts() {
        let tree = MemoryTree::new([
            ("p/main.tf", "module \"m\" {\n  source = \"../m\"\n}"),
            ("m/main.tf", "resource \"null_resource\" \"a\" {}"),
        ]);
        assert!(init_may_install(&tree, "p", Path::new("/nowhere"), Distribution::Terraform));
    }

    #[test]
    fn locked_providers_are_looked_for_in_the_cache() {
        let cache = tempfile::tempdir().unwrap();
        let lock = "provider \"registry.terraform.io/hashicorp/null\" {\n  version = \"3.2.4\"\n}\n";
        let tree =
            MemoryTree::new([("p/main.tf", "resource \"null_resource\" \"a\" {}"), ("p/.terraform.lock.hcl", lock)]);
        assert!(init_may_install(&tree, "p", cache.path(), Distribution::Terraform));
        std::fs::create_dir_all(cache.path().join("registry.terraform.io/hashicorp/null/3.2.4")).unwrap();
        assert!(!init_may_install(&tree, "p", cache.path(), Distribution::Terraform));
    }
}
