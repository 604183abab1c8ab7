//! The configuration files of the manual, as `tidelock check` reads them, and the list of its pages.

use crate::page::{Block, blocks, pages_in, root};
use std::fs;
use std::process::{Command, Stdio};
use tempfile::tempdir;

/// First lines of blocks that show other files.
const OTHER_FILES: [&str; 7] = [
    "# prometheus.yml",
    "# .pre-commit-config.yaml",
    "# Every key may be left out.",
    "slack-token:",
    "on:",
    "    - run:",
    "trigger:",
];
/// First line of the template of a Kubernetes Job.
const JOB: &str = "apiVersion:";
/// Rules under which a repository may set every key.
const ALL_ALLOWED: &str = "repos: [{id: /.*/, allow_custom_workflows: true, allowed_overrides: [workflow, plan_requirements, \
    apply_requirements, import_requirements, repo_locks, repo_locking, apply_scope, on_merge, reminder_interval, plan_max_age, approvals, \
    allowed_users, allowed_teams, freeze, policy_check, custom_policy_check, silence_pr_comments, delete_source_branch_on_merge]}]\n";

/// Runs the check on a block, beside the templates of Jobs that it may name. Returns the output if there is an error.
fn refused(block: &Block, job: &str) -> Option<String> {
    let dir = tempdir().unwrap();
    let (rules, repository) = (dir.path().join("repos.yaml"), dir.path().join("repository"));
    fs::create_dir(&repository).unwrap();
    for name in ["plan-job.yaml", "apply-job.yaml"] {
        fs::write(dir.path().join(name), job).unwrap();
    }
    if block.begins_with("version:") {
        fs::write(repository.join("atlantis.yaml"), &block.text).unwrap();
        fs::write(&rules, ALL_ALLOWED).unwrap();
    } else {
        fs::write(&rules, &block.text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.args(["check", "--repo=github.com/acme/infra"]).arg(format!("--repos-config={}", rules.display()));
    command.arg(&repository).env_clear().env("HOME", "/nowhere").stdin(Stdio::null());
    let done = command.output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap();
    (done.status.code() != Some(0)).then(|| format!("{}:\n{said}", block.place))
}

#[test]
fn the_configuration_files_of_the_manual_are_valid() {
    let all = pages_in("docs").into_iter().flat_map(|page| blocks(&page));
    let all: Vec<Block> = all.filter(|block| block.is("yaml")).collect();
    let job = &all.iter().find(|block| block.begins_with(JOB)).unwrap().text;
    let is_ours = |block: &&Block| !OTHER_FILES.iter().chain([&JOB]).any(|text| block.begins_with(text));
    let ours: Vec<&Block> = all.iter().filter(is_ours).collect();
    assert!(ours.len() > 20, "only {} blocks were found", ours.len());
    let refused: Vec<String> = ours.iter().filter_map(|block| refused(block, job)).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn the_manual_lists_each_page_once() {
    let manual = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let names = pages_in("docs").into_iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let counted =
        names.filter(|name| name != "README.md").map(|name| (manual.matches(&format!("]({name})")).count(), name));
    let wrong: Vec<(usize, String)> = counted.filter(|(count, _)| *count != 1).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
