//! What the sandbox needs on the machine, and what to say when it is missing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Programs that are missing on this `PATH`, each as a sentence with how to install it; empty: all is there.
pub fn missing_tools(path: &str) -> Vec<String> {
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
