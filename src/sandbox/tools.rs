//! Programs that the sandbox needs on the machine, and instructions for missing ones.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the programs that are missing on this `PATH`, each as a sentence with instructions for installing it; empty if none is.
pub(crate) fn missing_tools(path: &str) -> Vec<String> {
    let found = |name: &str| std::env::split_paths(path).any(|dir| is_program(&dir.join(name)));
    let mut missing = Vec::new();
    if !found("git") {
        missing.push(
            "git is missing: install it with `apt-get install git` (Debian, Ubuntu), `dnf install git` (Fedora), \
             `apk add git git-daemon` (Alpine) or `brew install git` (macOS)."
                .to_owned(),
        );
    }
    if !found("terraform") && !found("tofu") {
        missing.push(
            "Terraform or OpenTofu is missing: install one with `brew install opentofu` (macOS, Linux), `apk add opentofu` \
             (Alpine), `snap install --classic opentofu` or `snap install --classic terraform`, or take a binary from \
             https://opentofu.org/docs/intro/install/ or https://developer.hashicorp.com/terraform/install and put it on your PATH."
                .to_owned(),
        );
    }
    missing
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::missing_tools;
    use tempfile::TempDir;

    #[test]
    fn missing_tools_are_named_with_how_to_get_them() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_str().unwrap();
        let missing = missing_tools(path);
        assert_eq!(missing.len(), 2);
        assert!(
            missing[0].contains("apt-get install git") && missing[1].contains("brew install opentofu"),
            "{missing:?}"
        );
        for (name, mode) in [("git", 0o755), ("tofu", 0o755), ("terraform", 0o644)] {
            std::fs::write(dir.path().join(name), "").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(dir.path().join(name), mode).unwrap();
        }
        assert_eq!(missing_tools(&format!("/nonexistent:{path}")), Vec::<String>::new());
    }
}
