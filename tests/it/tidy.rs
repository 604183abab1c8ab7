//! Checks the source against the house rules of ARCHITECTURE.md: imports between modules, sizes, first lines, names.

mod ceilings;

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maps a top-level module of the root package or of one in [`BY_MODULE`], or another package below `crates/`, to the modules and packages
/// of ours that it may name. `app` may name all; nobody names `app`. Cargo keeps packages in order; this is the order inside of them.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("vault", &["retry"]),
    ("forge", &[]),
    ("storage_double", &[]),
    ("run_double", &[]),
    ("domain", &[]),
    ("platform", &[]),
    ("process", &["platform"]),
    ("retry", &[]),
    ("secrets", &["domain", "config", "retry"]),
    ("webhook", &["domain"]),
    ("comment", &["domain"]),
    ("config", &["domain"]),
    ("vcs", &["domain", "retry"]),
    ("github", &["domain", "vcs", "webhook"]),
    ("azure_devops", &["domain", "vcs", "webhook"]),
    ("gitlab", &["domain", "vcs", "webhook"]),
    ("gitea", &["domain", "vcs", "webhook"]),
    ("bitbucket_cloud", &["domain", "render", "vcs", "webhook"]),
    ("bitbucket_data_center", &["domain", "render", "vcs", "webhook"]),
    ("sandbox", &["forge"]),
    ("locks", &["domain", "config"]),
    ("inputs", &["domain", "config"]),
    ("guards", &["domain", "config", "inputs"]),
    ("schedule", &["domain", "config", "inputs"]),
    ("wording", &["domain"]),
    ("plan_text", &["domain"]),
    ("render", &["domain", "plan_text", "wording"]),
    ("terraform", &["domain", "plan_text", "process", "retry"]),
    ("checkout", &["domain", "inputs", "platform", "process"]),
    ("policy", &["checkout"]),
    (
        "runner",
        &[
            "domain",
            "config",
            "guards",
            "inputs",
            "schedule",
            "terraform",
            "checkout",
            "platform",
            "policy",
            "process",
            "secrets",
        ],
    ),
    ("store", &["domain", "locks", "vault"]),
    ("settings", &["domain", "checkout", "config", "process", "schedule", "secrets"]),
    ("notifications", &["domain", "google_api", "retry", "settings", "store"]),
    ("traces", &["domain", "settings"]),
    ("reply", &["domain", "render", "store", "traces", "vcs", "retry"]),
    ("meters", &["domain", "settings"]),
    ("google_api", &["vault"]),
    ("wake", &["google_api"]),
    (
        "executors",
        &["domain", "config", "checkout", "google_api", "process", "retry", "runner", "settings", "terraform", "vault"],
    ),
    (
        "execute",
        &[
            "domain",
            "comment",
            "config",
            "executors",
            "guards",
            "inputs",
            "locks",
            "meters",
            "notifications",
            "schedule",
            "terraform",
            "checkout",
            "process",
            "runner",
            "store",
            "vcs",
            "render",
            "reply",
            "retry",
            "settings",
            "traces",
            "vault",
            "wording",
        ],
    ),
    (
        "dispatch",
        &[
            "domain",
            "comment",
            "webhook",
            "config",
            "locks",
            "meters",
            "execute",
            "notifications",
            "runner",
            "store",
            "vcs",
            "render",
            "reply",
            "retry",
            "settings",
            "vault",
        ],
    ),
    ("server_status", &["dispatch", "store", "vault"]),
    (
        "web",
        &["comment", "domain", "webhook", "plan_text", "store", "dispatch", "meters", "server_status", "vault", "wake"],
    ),
];
/// Files that may start child processes.
const MAY_SPAWN: &[&str] = &[
    "crates/runner/src/process.rs",
    "crates/runner/src/process/",
    "crates/forge/src/git.rs",
    "crates/forge/src/git_http.rs",
    "crates/run-double/src/execution.rs",
    "crates/run-double/src/instances/container.rs",
];
/// Files that may read the environment.
const MAY_READ_ENVIRONMENT: &[&str] = &["src/settings.rs", "src/settings/", "src/main.rs"];
/// Files that may distinguish kernels.
const MAY_ASK_FOR_KERNEL: &[&str] =
    &["crates/runner/src/platform.rs", "crates/runner/src/platform/", "crates/vault/src/machine.rs"];
/// Modules that work in trees which steps can write to.
const IN_TREES: &[&str] = &["crates/runner/src/checkout", "crates/runner/src/runner", "src/execute"];
/// Exception by path and not through `checkout::folder`: a directory that is about to be made, where no step has run.
const BY_PATH: &[&str] = &["fs::create_dir_all(&root)?;"];
/// File that reads the kernel's files, and no tree.
const NO_TREE: &str = "src/execute/memory.rs";
/// Code lines of a file, without its tests.
const MAX_LINES: usize = 450;
/// Packages that imitate another system, and name types as that system does.
const PLAYS_ANOTHER: &[&str] = &["crates/forge/", "crates/run-double/", "crates/storage-double/"];

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

/// Returns path, relative to the repository, and text, without code for tests, of every package's files.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        sources(&package.unwrap().path().join("src"), &mut paths);
    }
    paths.sort();
    // A module in another file, or an item up to its closing brace.
    let tests = Regex::new(r"(?s)\n#\[cfg\(test\)\]\n(?:[^\n{]*;|.*?\n\})").unwrap();
    let module = Regex::new(r"#\[cfg\((?:any\()?test(?:, [^\n]*)?\)\]\n(?:pub )?mod (\w+);").unwrap();
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

/// Packages whose modules are each in the table.
const BY_MODULE: [&str; 4] = ["src/", "crates/core/src/", "crates/hosts/src/", "crates/runner/src/"];

/// Returns the name of a file's module in the table. A package is there by its name in code, without `tidelock_`.
fn module_of(path: &str) -> String {
    let inside = BY_MODULE.iter().find_map(|package| path.strip_prefix(package));
    let inside = inside.or_else(|| path.strip_prefix("crates/")).unwrap();
    inside.split(['/', '.']).next().unwrap().replace('-', "_")
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
        // `crate::` of another package is that package.
        let inner = BY_MODULE.iter().any(|package| path.starts_with(package)).then_some(r"\bcrate::([a-z_]+)");
        let outer = [
            r"\btidelock_(?:core|hosts|runner)::([a-z_]+)",
            r"\btidelock_((?:forge|retry|secrets|storage|store|vault)[a-z_]*)",
        ];
        let patterns: Vec<Regex> = inner.into_iter().chain(outer).map(|pattern| Regex::new(pattern).unwrap()).collect();
        for line in without_comments(&code).lines() {
            for found in patterns.iter().flat_map(|pattern| pattern.captures_iter(line)) {
                if found[1] != module && !allowed.contains(&found[1]) {
                    wrong.push(format!("{path}: {module} must not name {}: {}", &found[1], line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_process_spawns_and_only_settings_read_the_environment() {
    let mut wrong = Vec::new();
    // `process::Command`, also from a list in braces; clap has a `Command` too.
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
fn only_recorders_commit_what_a_command_or_a_delivery_comes_to() {
    let write = Regex::new(r"store\s*\.write\(").unwrap();
    let of_commands = |path: &str| ["src/dispatch", "src/execute"].iter().any(|start| path.starts_with(start));
    let writing: Vec<String> = files()
        .into_iter()
        .filter(|(path, code)| of_commands(path) && write.is_match(&without_comments(code)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(writing, ["src/dispatch/recorder.rs", "src/execute/recorder.rs"]);
}

#[test]
fn only_platform_and_the_vaults_machine_ask_for_the_kernel() {
    let asking: Vec<String> = files()
        .into_iter()
        .filter(|(_, code)| without_comments(code).contains("target_os"))
        .map(|(path, _)| path)
        .filter(|path| !MAY_ASK_FOR_KERNEL.iter().any(|prefix| path.starts_with(prefix)))
        .collect();
    assert!(asking.is_empty(), "these have more than one version: {}", asking.join(", "));
}

#[test]
fn files_of_trees_are_touched_through_an_open_directory_only() {
    // Expressions for a tree, its root, or a directory or file in it.
    let of_tree =
        r"(?:root|self\.root|(?:self\.)?(?:place\.)?tree\.root|(?:self\.)?place\.\w+|(?:self\.)?plan_file|self\.dir)\b";
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

/// Files that may compare received values with a secret, each in constant time.
const MAY_COMPARE_SECRETS: &[(&str, &str)] = &[
    ("crates/core/src/domain/secret.rs", ".ct_eq("),
    ("crates/hosts/src/github/webhook/signature.rs", ".verify_slice("),
    ("crates/hosts/src/gitlab/webhook/signature.rs", ".verify_slice("),
    ("crates/hosts/src/webhook/hmac_sha256.rs", ".verify_slice("),
    ("crates/hosts/src/webhook/seal.rs", ".verify_slice("),
    ("crates/vault/src/inbox.rs", ".verify_slice("),
];
/// Comparisons without received values: of the server's own tokens and settings.
const OWN_SECRETS: &[&str] = &[
    "if place.as_ref().is_some_and(|known| known.value.expose_secret() == refused.expose_secret()) {",
    "if password.expose_secret() == DEFAULT_PASSWORD {",
    "if !text.is_empty() && kept.iter().all(|kept| kept.expose_secret() != text) {",
];

#[test]
fn secrets_are_compared_in_constant_time() {
    let secret = r"[\w.]*(?:secret|password|token|signature|seal|proof|tag|mac)(?:\(\)|\.\w+\(\))*";
    let exposed = Regex::new(
        r"expose_secret\(\).*(?:[!=]=|\.(?:eq|ne|cmp|starts_with|ends_with|contains)\()|[!=]= .*expose_secret\(\)",
    )
    .unwrap();
    let named = Regex::new(&format!(r"\b{secret} [!=]= |[!=]= [&*]*{secret}(?:[^\w:]|$)")).unwrap();
    let mut wrong = Vec::new();
    for (path, code) in files().iter().filter(|(path, _)| !PLAYS_ANOTHER.iter().any(|start| path.starts_with(start))) {
        let takes_them = ["src/web", "crates/hosts/src", "src/app/hosts/github/registration.rs"];
        let is_door = takes_them.iter().any(|start| path.starts_with(start));
        for line in without_comments(code).lines().map(str::trim) {
            let compares = exposed.is_match(line) || is_door && named.is_match(line);
            let in_constant_time = MAY_COMPARE_SECRETS.iter().find(|(_, call)| line.contains(call));
            let is_elsewhere =
                in_constant_time.is_some_and(|_| !MAY_COMPARE_SECRETS.iter().any(|(file, _)| file == path));
            if compares && !OWN_SECRETS.contains(&line) || is_elsewhere {
                wrong.push(format!("{path} compares a secret by itself; take domain::is_secret: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (path, call) in MAY_COMPARE_SECRETS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        assert!(std::fs::read_to_string(&path).unwrap().contains(call), "{} has no {call}", path.display());
    }
    for line in [
        "if given == secret.expose_secret() {",
        "secret.expose_secret().as_bytes() == given",
        "x.expose_secret().eq(y)",
    ] {
        assert!(exposed.is_match(line), "{line}");
    }
    for line in
        ["(Some(token), Some(given)) if token == given => {", "given != self.password", "known == *state.proof()"]
    {
        assert!(named.is_match(line), "{line}");
    }
    assert!(
        !exposed.is_match("if is_secret(secret.expose_secret(), given) => {") && !named.is_match("if stage == x {")
    );
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

/// Files that may name a VCS host. The sandbox's forge imitates one, settings name each host's flags, a test double has an example, and a
/// format of `check` is that of GitHub Actions, wherever the repository is.
const MAY_NAME_HOSTS: &[&str] = &[
    "crates/hosts/",
    "src/app/check/formats.rs",
    "src/app/hosts.rs",
    "src/app/hosts/",
    "src/settings.rs",
    "src/settings/",
    "src/sandbox.rs",
    "src/sandbox/",
    "crates/forge/",
    "crates/vault/src/memory.rs",
];
/// An address that is not of a VCS host of ours: releases of OpenTofu.
const RELEASES: &str = "https://github.com/opentofu/";
/// Another one: in the first line of every pointer of Git LFS, on every host.
const POINTERS: &str = "https://git-lfs.github.com/spec/";

#[test]
fn only_a_hosts_own_files_name_it() {
    let names = Regex::new(r"(?i)git_?hub|gitlab|bitbucket|gitea|azure_?devops|azure devops|forgejo").unwrap();
    let mut wrong = Vec::new();
    for (path, code) in files().iter().filter(|(path, _)| MAY_NAME_HOSTS.iter().all(|start| !path.starts_with(start))) {
        let code = without_comments(code).replace(RELEASES, "").replace(POINTERS, "");
        wrong.extend(code.lines().filter(|line| names.is_match(line)).map(|line| format!("{path}: {}", line.trim())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names.is_match("let github = GithubOptions::default();") && names.is_match("x-github-event"));
}

#[test]
fn a_type_name_is_declared_in_one_file_only() {
    let declared = Regex::new(r"(?m)^(?:    )?(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type) (\w+)").unwrap();
    let associated = Regex::new(r"(?m)^    type .*\n").unwrap();
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, code) in
        files().into_iter().filter(|(path, _)| PLAYS_ANOTHER.iter().all(|start| !path.starts_with(start)))
    {
        for found in declared.captures_iter(&associated.replace_all(&code, "")) {
            places.entry(found[1].to_owned()).or_default().insert(path.clone());
        }
    }
    assert!(places.len() > 300, "only {} types were found", places.len());
    let mut wrong = Vec::new();
    for (name, places) in &places {
        if places.len() > 1 {
            wrong.push(format!("{name} stands for several types, in {places:?}: name each for what it is"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_refer_only_to_documents_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = Regex::new(r"[\w./-]+\.md\b").unwrap();
    // Design documents, their chapters, folders next to the repository, numbers of issues.
    let outside = Regex::new(r"\bDESIGN\b|§|\bshared/|\breference/|/work/|\bissues? #?\d").unwrap();
    let mut paths = Vec::new();
    for folder in ["src", "tests", "crates"] {
        sources(&root.join(folder), &mut paths);
    }
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("//")) {
            let missing = document.find_iter(line).any(|name| !root.join(name.as_str()).exists());
            if missing || outside.is_match(line) {
                wrong.push(format!("{path} refers to something outside the repository: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(outside.is_match("/// A lease (DESIGN §3).") && document.is_match("//! See atlantis.md."));
}

#[test]
fn tests_that_the_documents_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/differences.md")).unwrap();
    let (_, after) = page.split_once("## Weaknesses of Atlantis that are gone").unwrap();
    let rows: Vec<&str> = after.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), 32, "31 weaknesses and the head");
    let mut paths = Vec::new();
    for folder in ["src", "crates", "tests"] {
        sources(&root.join(folder), &mut paths);
    }
    let code: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let name = Regex::new("`([a-z0-9_]{12,})`").unwrap();
    for row in rows {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for found in name.captures_iter(tests) {
            assert!(code.contains(&format!("fn {}(", &found[1])), "there is no test {}", &found[1]);
        }
    }
}
