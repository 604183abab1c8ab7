//! Checks that every variable that the Terraform module, the manifests, the image and the docs set is a setting of this server.

use super::table;
use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Variables of our scripts, which never reach the server.
const OF_SCRIPTS: [&str; 6] = ["PROVIDER_SCHEMA", "DEPLOY_DIR", "TOOLS", "SHARED", "BIN", "PERF"];
/// Variables of steps, which the server sets.
const OF_STEPS: [&str; 5] =
    ["PR_APPROVED", "PR_MERGEABLE", "TERRAFORM_DISTRIBUTION", "TERRAFORM_VERSION", "TERRAGRUNT_VERSION"];
/// Variables of jobs at executors, which the server sets.
const OF_JOBS: [&str; 1] = ["JOB"];
/// Variables of the commands that call a server.
const OF_CLIENTS: [&str; 3] = ["SERVER", "TOKEN", "IAP_TOKEN"];
const ENDINGS: [&str; 6] = ["tf", "hcl", "yaml", "md", "tfvars", "Dockerfile"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, into);
        } else if ENDINGS.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            into.push(path);
        }
    }
}

fn files() -> Vec<PathBuf> {
    let mut files = vec![root().join("Dockerfile")];
    for dir in ["terraform", "kubernetes", "charts", "docs"] {
        below(&root().join(dir), &mut files);
    }
    files
}

fn is_known(name: &str) -> bool {
    table::find(name).is_some()
}

#[test]
fn variables_that_deployments_set_are_settings() {
    let variable = Regex::new(r"\b(TIDELOCK|ATLANTIS)_([A-Z][A-Z_]*[A-Z])\b").unwrap();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        for found in variable.captures_iter(&text) {
            let name = found[2].to_lowercase().replace('_', "-");
            if [&OF_SCRIPTS[..], &OF_STEPS, &OF_JOBS, &OF_CLIENTS].concat().contains(&&found[2]) {
                continue;
            }
            if !is_known(&name) {
                wrong.push(format!("{}: {} is no setting", path.display(), &found[0]));
            }
            seen.insert(name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Settings that a server requires, to prove that the files were searched.
    for name in ["bucket", "data-dir", "gh-user", "gh-token", "gh-webhook-secret", "repo-allowlist", "repo-config-json"]
    {
        assert!(seen.contains(name), "no file sets {name}");
    }
}

#[test]
fn keys_of_the_manifests_config_files_are_settings() {
    let key = Regex::new(r"(?m)^([a-z][a-z0-9-]*):").unwrap();
    let configs: Vec<_> = files().into_iter().filter(|path| path.ends_with("tidelock.yaml")).collect();
    assert!(!configs.is_empty());
    for path in configs {
        let text = std::fs::read_to_string(&path).unwrap();
        let keys: Vec<_> = key.captures_iter(&text).map(|found| found[1].to_owned()).collect();
        assert!(keys.len() > 3, "{}", path.display());
        for key in keys {
            assert!(is_known(&key), "{}: {key} is no setting", path.display());
        }
    }
}

#[test]
fn a_repo_config_as_json_is_one_and_never_beside_a_file() {
    let load = |flags: &[&str]| {
        let needed = ["--gh-user=bot", "--gh-token=t", "--gh-webhook-secret=s", "--repo-allowlist=github.com/acme/*"];
        let args: Vec<std::ffi::OsString> = needed.iter().chain(flags).map(Into::into).collect();
        super::Settings::load(args, [("HOME".into(), "/root".into())])
    };
    let json = r#"{"repos":[{"id":"/.*/","apply_requirements":["approved"]}]}"#;
    let settings = load(&[&format!("--repo-config-json={json}")]).ok().unwrap();
    assert_eq!(settings.repo_config.unwrap().1, json);
    let both = load(&[&format!("--repo-config-json={json}"), "--repo-config=/dev/null"]);
    let Err(super::SettingsError::Invalid(text)) = both else { panic!("both were taken") };
    assert!(text.contains("repo-config-json") && text.contains("--repo-config"), "{text}");
}
