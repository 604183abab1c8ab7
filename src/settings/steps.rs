//! Checks of the settings that separate steps from files of others.

use super::check::expand;
use super::hosts;
use super::typed::Reader;
use std::path::PathBuf;

/// Value of `step-writable` that stands for no directory.
const NO_DIRECTORY: &str = "none";

pub(super) fn secret_files(r: &mut Reader) -> Vec<PathBuf> {
    let of_hosts = hosts::ALL.iter().flat_map(|host| host.secret_files).copied();
    let names: Vec<&str> = of_hosts.chain(["ssl-key-file"]).collect();
    paths(r, &names)
}

pub(super) fn files(r: &mut Reader) -> Vec<PathBuf> {
    paths(r, &["config", "language-config-file", "repo-config", "ssl-cert-file"])
}

fn paths(r: &mut Reader, names: &[&str]) -> Vec<PathBuf> {
    names.iter().filter_map(|name| r.path(name)).filter_map(|path| std::path::absolute(path).ok()).collect()
}

pub(super) fn home(r: &mut Reader, name: &str) -> Option<PathBuf> {
    r.path(name)
}

/// Reads the directories of `step-writable`.
pub(super) fn writable(r: &mut Reader, name: &str) -> Option<Vec<PathBuf>> {
    let named = r.list(name);
    if named.is_empty() {
        return None;
    }
    let mut paths = Vec::new();
    for text in named.iter().filter(|text| *text != NO_DIRECTORY) {
        match expand(text, &r.environment) {
            Ok(path) => paths.push(path),
            Err(what) => r.wrong(name, what),
        }
    }
    Some(paths)
}
