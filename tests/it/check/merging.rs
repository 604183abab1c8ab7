//! `automerge`, `merge_method`, `replan_after_failed_apply`, `auto_apply` and `deleted_projects`: their values with their places, and
//! methods that a host does not have.

use super::{check, only_error, story};
use insta::assert_snapshot;
use std::fs;

const REPOS: &str = "\
repos:
- id: /.*/
  automerge: true
  merge_method: squash
- id: github.com/acme/infra
  automerge: false
  replan_after_failed_apply: true
";
/// Two hosts.
const HOSTS: [&str; 6] = [
    "--gh-user=bot",
    "--gh-token=t",
    "--gitlab-user=bot",
    "--gitlab-token=t",
    "--gitlab-hostname=git.example.com",
    "--json",
];

#[test]
fn who_says_that_it_is_merged_and_how_is_listed() {
    let dir = story();
    let repos = dir.path().join("repos.yaml");
    fs::write(&repos, REPOS).unwrap();
    fs::write(dir.path().join("atlantis.yaml"), "version: 3\nautomerge: true\n").unwrap();
    let (code, text) = check(&["--repos-config", repos.to_str().unwrap(), dir.path().to_str().unwrap()], &[]);
    assert_eq!(code, Some(0), "{text}");
    let keys = ["automerge", "merge_method", "replan_after", "the repo config cannot"];
    let told: Vec<&str> =
        text.lines().filter(|line| keys.iter().any(|key| line.contains(key))).map(str::trim).collect();
    assert_snapshot!(told.join("\n").replace(dir.path().to_str().unwrap(), "DIR"), @r"
    automerge                    off   [DIR/repos.yaml line 6, entry 2]
    the repo config cannot turn it on here
    merge_method                 squash   [DIR/repos.yaml line 4, entry 1]
    replan_after_failed_apply    on   [DIR/repos.yaml line 7, entry 2]
    - DIR/repos.yaml line 4: Atlantis has no key `merge_method`, and refuses the file
    - DIR/repos.yaml line 7: Atlantis has no key `replan_after_failed_apply`, and refuses the file
    - DIR/repos.yaml line 6, entry 2: Atlantis has no key `automerge` in `repos.yaml`, and refuses the file
    ");
}

#[test]
fn automatic_applies_are_listed_and_need_the_approval_that_they_wait_for() {
    let dir = story();
    let (repos, root) = (dir.path().join("repos.yaml"), dir.path().to_str().unwrap().to_owned());
    fs::write(dir.path().join("atlantis.yaml"), "version: 3\n").unwrap();
    let checked = |keys: &str| {
        fs::write(&repos, format!("repos:\n- id: /.*/\n  {keys}\n")).unwrap();
        let (code, text) = check(&["--repos-config", repos.to_str().unwrap(), &root], &[]);
        let told: Vec<&str> = text.lines().filter(|line| line.contains("auto_apply")).map(str::trim).collect();
        (code, told.join("\n").replace(&root, "DIR"))
    };
    let (code, told) = checked("auto_apply: {when: met}");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("when: met") && told.contains("Atlantis has no key `auto_apply`"), "{told}");
    let (code, told) = checked("auto_apply: {when: approved}");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("repos.yaml:3:22: auto_apply: `when: approved` needs the requirement `approved`"), "{told}");
}

#[test]
fn deleted_projects_are_listed_if_they_are_destroyed() {
    let dir = story();
    let (repos, root) = (dir.path().join("repos.yaml"), dir.path().to_str().unwrap().to_owned());
    fs::write(dir.path().join("atlantis.yaml"), "version: 3\n").unwrap();
    let checked = |keys: &str| {
        fs::write(&repos, format!("repos:\n- id: /.*/\n  {keys}\n")).unwrap();
        check(&["--repos-config", repos.to_str().unwrap(), &root], &[])
    };
    let (code, told) = checked("deleted_projects: destroy\n  destroy_requirements: [mergeable]");
    assert_eq!(code, Some(0), "{told}");
    let value = |key: &str| told.lines().find(|line| line.trim().starts_with(key)).unwrap_or_default().to_owned();
    assert!(value("deleted_projects").contains("destroy   ["), "{told}");
    assert!(value("destroy_requirements").contains("mergeable   ["), "{told}");
    assert!(told.contains("Atlantis has no key `deleted_projects`"), "{told}");
    assert!(!checked("deleted_projects: ignore").1.contains("destroy_requirements"));
    let (code, told) = checked("deleted_projects: keep");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("repos.yaml:3:21: deleted_projects: \"keep\" is not valid; there are: destroy, ignore"),
        "{told}"
    );
    // A repository cannot set it.
    fs::write(dir.path().join("atlantis.yaml"), "version: 3\nprojects: [{dir: ., deleted_projects: destroy}]\n")
        .unwrap();
    let (code, told) = checked("allowed_overrides: []");
    assert!(code == Some(1) && told.contains("unknown key `deleted_projects`"), "{told}");
}

#[test]
fn a_merge_method_that_the_host_does_not_have_is_an_error_with_its_place() {
    let dir = story();
    let (repos, root) = (dir.path().join("repos.yaml"), dir.path().to_str().unwrap().to_owned());
    fs::remove_file(dir.path().join("atlantis.yaml")).unwrap();
    let checked = |entry: &str, repo: &str| {
        fs::write(&repos, format!("repos:\n- {entry}\n")).unwrap();
        let of_repo = format!("--repo={repo}");
        let own = ["--repos-config", repos.to_str().unwrap(), &of_repo, &root];
        check(&[&HOSTS[..], &own].concat(), &[])
    };
    let everywhere = "{id: /.*/, merge_method: rebase-merge}";
    let (code, json) = checked(everywhere, "github.com/acme/infra");
    assert_eq!(
        only_error(code, &json),
        "2:28 repos[0].merge_method: merge_method: `rebase-merge` is not possible: github.com has merge, rebase, \
         squash; git.example.com has merge, squash"
    );
    // One of the hosts has it.
    let (code, json) = checked("{id: /.*/, merge_method: rebase}", "github.com/acme/infra");
    assert_eq!(code, Some(0), "{json}");
    let (code, json) = checked("{id: /.*/, merge_method: rebase}", "git.example.com/acme/infra");
    assert_eq!(
        only_error(code, &json),
        "2:28 repos[0].merge_method: merge_method: `rebase` is not possible: git.example.com has merge, squash"
    );
}
