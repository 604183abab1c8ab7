//! Names in the text of the manual: settings, variables, metrics and addresses exist.

use crate::page::{pages, root};
use crate::shell::flags_of;
use pulldown_cmark::{Event, Options, Parser};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

/// Commands whose flags the manual names.
const COMMANDS: [&str; 14] = [
    "server",
    "check",
    "doctor",
    "sandbox",
    "vault ls",
    "vault export",
    "vault import",
    "runs",
    "logs",
    "unlock",
    "drift",
    "token",
    "policy-check",
    "run-job",
];

/// A code span of a page.
struct Span {
    place: String,
    text: String,
}

fn spans() -> Vec<Span> {
    let mut found = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            if let Event::Code(code) = event {
                let line = text[..range.start].matches('\n').count() + 1;
                found.push(Span { place: format!("{name}:{line}"), text: code.replace("\\|", "|") });
            }
        }
    }
    assert!(found.len() > 5000, "only {} spans were found", found.len());
    found
}

/// Returns the spans that have a name of this pattern which is not known.
fn unknown(pattern: &str, known: impl Fn(&str) -> bool) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap();
    let mut wrong = Vec::new();
    for span in spans() {
        let names = pattern.captures_iter(&span.text).map(|found| found[1].to_owned());
        wrong
            .extend(names.filter(|name| !known(name)).map(|name| format!("{}: {name} in `{}`", span.place, span.text)));
    }
    wrong
}

/// Flags of the server and of the other commands.
fn flags() -> BTreeSet<String> {
    COMMANDS.iter().flat_map(|command| flags_of(command)).collect()
}

/// Flags of other programs that pages name alone.
const OTHERS: [&str; 10] = [
    "--build-arg",
    "--dry-run",
    "--metadata-options",
    "--no-cpu-throttling",
    "--policy-set",
    "--scaling",
    "--var-file",
    "--disk",
    "--how",
    "--rollout",
];

/// Files that say which flags there are: of comments, and of the scripts.
const WITH_FLAGS: [&str; 7] = [
    "crates/core/src/comment/grammar.rs",
    "scripts/deploy",
    "scripts/destroy",
    "scripts/lib/hosts.sh",
    "scripts/lib/make.sh",
    "scripts/check-pages",
    "justfile",
];

#[test]
fn every_flag_exists() {
    let mut flags = flags();
    let pattern = Regex::new(r#"(?:--|long: ")([a-z][a-z0-9-]+)"#).unwrap();
    for file in WITH_FLAGS {
        let text = fs::read_to_string(root().join(file)).unwrap();
        flags.extend(pattern.captures_iter(&text).map(|found| format!("--{}", &found[1])));
    }
    let wrong = unknown("^(--[a-z][a-z0-9-]+)", |flag| flags.contains(flag) || OTHERS.contains(&flag));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Variables that are no settings of the server: of steps, of the client, and of tests.
const VARIABLES: [&str; 9] = [
    "ATLANTIS_PR_APPROVED",
    "ATLANTIS_PR_MERGEABLE",
    "ATLANTIS_TERRAFORM_DISTRIBUTION",
    "ATLANTIS_TERRAFORM_VERSION",
    "ATLANTIS_TERRAGRUNT_VERSION",
    "TIDELOCK_CHAOS_SEED",
    "TIDELOCK_CHAOS_TRIALS",
    "TIDELOCK_IAP_TOKEN",
    "TIDELOCK_TEST_WITHOUT_GIT_LFS",
];

#[test]
fn every_variable_exists() {
    let flags = flags();
    let is_known = |name: &str| {
        let (_, setting) = name.split_once('_').unwrap();
        VARIABLES.contains(&name) || flags.contains(&format!("--{}", setting.to_lowercase().replace('_', "-")))
    };
    let wrong = unknown(r"\b((?:ATLANTIS|TIDELOCK)_[A-Z0-9_]*[A-Z0-9])\b", is_known);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names in `docs/metrics.md` are compared with the page `/metrics` by a test of that page.
#[test]
fn every_metric_is_documented() {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let metrics: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next()).collect();
    assert!(metrics.len() > 40, "only {} metrics were found", metrics.len());
    let is_known = |name: &str| {
        metrics.contains(name)
            || ["_bucket", "_count", "_sum"]
                .iter()
                .any(|end| name.strip_suffix(end).is_some_and(|name| metrics.contains(name)))
    };
    let wrong = unknown(r"\b(tidelock_[a-z_]+)\b", is_known);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The addresses are those of the table of routes that a test of the front door compares with the code.
#[test]
fn every_address_of_the_server_exists() {
    let tests = fs::read_to_string(root().join("src/web/front_door_tests.rs")).unwrap();
    let routes: Vec<&str> = Regex::new(r"(?m) (?:GET|POST|PUT|PATCH|DELETE) (/\S*)$")
        .unwrap()
        .captures_iter(&tests)
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    assert!(routes.len() > 50, "only {} routes were found", routes.len());
    // `/api/v4` is GitLab's, and `…` stands for the rest.
    let is_known = |path: &str| path.starts_with("/api/v4/") || routes.iter().any(|route| fits(route, path));
    let wrong = unknown(r"^(?:(?:GET|POST|PUT|PATCH|DELETE) )?(/api/[^ ?#…]+)(?:$|[ ?#])", is_known);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns true if a path fits a route, whose `{name}` is one segment and whose `{*name}` is the rest.
fn fits(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    loop {
        match (route.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(_)) if part.starts_with("{*") => return true,
            (Some(part), Some(given)) if part == given || part.starts_with('{') => {}
            _ => return false,
        }
    }
}

#[test]
fn a_path_fits_its_route_only() {
    assert!(fits("/jobs/{id}/log", "/jobs/ID/log") && fits("/pulls/{*pull}", "/pulls/a/b/c"));
    assert!(!fits("/jobs/{id}", "/jobs/ID/log") && !fits("/api/runs", "/api/run"));
}
