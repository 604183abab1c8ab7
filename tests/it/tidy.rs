//! Holds the source against the house rules of ARCHITECTURE.md: who may import whom, sizes, first lines.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Top-level module → modules of ours that it may name. `app` may name all; nobody names `app`.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("platform", &[]),
    ("process", &["platform"]),
    ("webhook", &["domain"]),
    ("comment", &["domain"]),
    ("config", &["domain"]),
    ("vcs", &["domain"]),
    ("sandbox", &["domain"]),
    ("locks", &["domain", "config"]),
    ("inputs", &["domain", "config"]),
    ("schedule", &["domain", "config", "inputs"]),
    ("terraform", &["domain", "process"]),
    ("checkout", &["domain", "inputs", "platform", "process"]),
    ("vault", &["domain", "platform"]),
    ("store", &["domain", "locks", "vault"]),
    ("settings", &["domain", "checkout", "config", "process", "schedule"]),
    ("reply", &["domain", "store", "vcs", "comment"]),
    (
        "execute",
        &[
            "domain",
            "comment",
            "config",
            "inputs",
            "locks",
            "schedule",
            "terraform",
            "checkout",
            "platform",
            "process",
            "store",
            "vcs",
            "reply",
            "settings",
            "vault",
        ],
    ),
    (
        "dispatch",
        &["domain", "comment", "webhook", "config", "locks", "execute", "store", "vcs", "reply", "settings", "vault"],
    ),
    ("web", &["domain", "webhook", "store", "dispatch", "vault"]),
];
/// Only these start children.
const MAY_SPAWN: &[&str] = &["src/process.rs", "src/process/", "src/sandbox/git.rs", "src/sandbox/git_http.rs"];
/// Only these read the environment.
const MAY_READ_ENVIRONMENT: &[&str] = &["src/settings.rs", "src/settings/", "src/main.rs"];
/// Modules that work in trees which steps can write to.
const IN_TREES: &[&str] = &["src/checkout", "src/execute"];
/// The same by path and not through `checkout::folder`: a directory that is about to be made, where no step has run.
const BY_PATH: &[&str] = &["fs::create_dir_all(&root)?;"];
/// Looks at the kernel's files.
const NO_TREE: &str = "src/execute/memory.rs";
/// Code lines of a file, without its tests.
const MAX_LINES: usize = 450;

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push(path);
        }
    }
}

/// Path relative to the crate, and text without what is for tests.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    paths.sort();
    // A module in another file, or an item up to its closing brace.
    let tests = Regex::new(r"(?s)\n#\[cfg\(test\)\]\n(?:[^\n{]*;|.*?\n\})").unwrap();
    let module = Regex::new(r"#\[cfg\(test\)\]\n(?:pub )?mod (\w+);").unwrap();
    let (mut files, mut for_tests) = (Vec::new(), Vec::new());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let folder = path.trim_end_matches(".rs").trim_end_matches("/main").trim_end_matches("/lib");
        for found in module.captures_iter(&text) {
            for_tests.extend(["/", ".rs"].map(|end| format!("{folder}/{}{end}", &found[1])));
        }
        files.push((path, tests.replace_all(&text, "\n").into_owned()));
    }
    files.retain(|(path, _)| !for_tests.iter().any(|start| path.starts_with(start)));
    files
}

fn without_comments(code: &str) -> String {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn module_of(path: &str) -> String {
    path.trim_start_matches("src/").split(['/', '.']).next().unwrap().to_owned()
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let table: BTreeMap<&str, BTreeSet<&str>> =
        MAY_IMPORT.iter().map(|(name, allowed)| (*name, allowed.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    for (path, code) in files() {
        let module = module_of(&path);
        if ["app", "main", "lib"].contains(&module.as_str()) {
            continue;
        }
        let allowed = table.get(module.as_str()).unwrap_or_else(|| panic!("{module} is not in the table"));
        for line in without_comments(&code).lines() {
            for (at, _) in line.match_indices("crate::") {
                let name: String = line[at + 7..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if name != module && !name.is_empty() && !allowed.contains(name.as_str()) {
                    wrong.push(format!("{path}: {module} must not name {name}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_process_spawns_and_only_settings_read_the_environment() {
    let mut wrong = Vec::new();
    // `process::Command`, also from a list in braces; clap has a `Command` as well.
    let spawns = Regex::new(r"\bprocess::(\{[^}]*\b)?Command\b").unwrap();
    for (path, code) in files() {
        let code = without_comments(&code);
        let exempt = |list: &[&str]| list.iter().any(|prefix| path.starts_with(prefix));
        if !exempt(MAY_SPAWN) && spawns.is_match(&code) {
            wrong.push(format!("{path} starts children"));
        }
        if !exempt(MAY_READ_ENVIRONMENT)
            && ["env::var", "env::vars", "env::args"].iter().any(|call| code.contains(call))
        {
            wrong.push(format!("{path} reads the environment"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_platform_asks_for_the_kernel() {
    let asking: Vec<String> = files()
        .into_iter()
        .filter(|(path, code)| module_of(path) != "platform" && without_comments(code).contains("target_os"))
        .map(|(path, _)| path)
        .collect();
    assert!(asking.is_empty(), "these have more than one version: {}", asking.join(", "));
}

#[test]
fn files_of_trees_are_touched_through_an_open_directory_only() {
    // What stands for a tree, its root, a directory in it or a file that lies there.
    let of_tree = r"(?:root|self\.root|tree\.root|place\.\w+|(?:self\.)?plan_file|self\.dir)\b";
    let call = Regex::new(&format!(r"\b(?:fs|File|OpenOptions)::\w+\(&?{of_tree}")).unwrap();
    let mut wrong = Vec::new();
    for (path, code) in files().iter().filter(|(path, _)| IN_TREES.iter().any(|dir| path.starts_with(dir))) {
        for line in without_comments(code).lines().filter(|line| call.is_match(line)) {
            if !BY_PATH.contains(&line.trim()) && path != NO_TREE {
                wrong.push(format!("{path} touches a tree by its path: {}", line.trim()));
            }
        }
        if code.contains("remove_dir_all") {
            wrong.push(format!("{path} removes a directory by its path; take checkout::folder::remove_path"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(call.is_match("let _ = tokio::fs::remove_file(&place.plan_file).await;"));
}

#[test]
fn files_say_what_they_are_for_and_stay_short() {
    let mut wrong = Vec::new();
    for (path, code) in files() {
        if !code.starts_with("//! ") {
            wrong.push(format!("{path} does not begin with what it is for"));
        }
        let lines = code.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{path} has {lines} lines, more than {MAX_LINES}"));
        }
        for word in ["todo!(", "unimplemented!(", "dbg!(", ".unwrap()", "FIXME"] {
            if without_comments(&code).contains(word) {
                wrong.push(format!("{path} has {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
