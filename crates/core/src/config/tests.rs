//! Effective configuration as a whole: defaults and the digest.

use super::global::GlobalConfig;
use super::*;
use crate::domain::{Distribution, RepoId};

fn project() -> ProjectConfig {
    let repo = RepoId { host: "github.com".into(), owner: "o".into(), name: "r".into() };
    let rules = GlobalConfig::without_file().rules(&repo, "main");
    ProjectConfig::from_rules(ProjectId { dir: "a".into(), workspace: "default".into(), name: None }, &rules)
}

#[test]
fn without_files_the_defaults_are_those_of_atlantis() {
    let project = project();
    assert_eq!(project.workflow_name, "default");
    assert_eq!(project.workflow, Workflow::default());
    assert_eq!(project.repo_locks, LockMode::OnPlan);
    assert!(project.autoplan_enabled && project.apply_requirements.is_empty() && project.when_modified.is_empty());
}

#[test]
fn the_digest_changes_with_what_changes_a_plan() {
    let base = project();
    assert_eq!(base.digest().len(), 64);
    assert_eq!(base.digest(), project().digest());
    let changes: [fn(&mut ProjectConfig); 9] = [
        |p| p.id.workspace = "prod".into(),
        |p| p.id.name = Some("a".into()),
        |p| p.workflow_name = "other".into(),
        |p| p.workflow.apply.clear(),
        |p| p.apply_requirements = vec![Requirement::Approved],
        |p| p.repo_locks = LockMode::OnApply,
        |p| p.terraform_version = Some("1.11.4".into()),
        |p| p.distribution = Some(Distribution::OpenTofu),
        |p| p.depends_on = vec!["b".into()],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = project();
        change(&mut changed);
        assert_ne!(changed.digest(), base.digest(), "change {number}");
    }
}

/// Plans of earlier versions stay bound to their configuration.
#[test]
fn without_executors_the_digest_is_that_of_earlier_versions() {
    assert_eq!(project().digest(), "00d7ba447ed1ef8b4eec55584e67cc0ee769a1468ff5b6d502996908d1b19033");
}

#[test]
fn the_digest_stays_when_only_looks_and_triggers_change() {
    let mut changed = project();
    changed.silence_pr_comments = vec![CommandName::Plan];
    changed.autoplan_enabled = false;
    changed.when_modified = vec!["*.tf".into()];
    changed.execution_order_group = 7;
    changed.delete_source_branch_on_merge = true;
    changed.tags = vec!["env:prod".into()];
    assert_eq!(changed.digest(), project().digest());
}

#[test]
fn workspace_names_that_could_leave_a_directory_or_become_a_flag_are_wrong() {
    for name in ["..", "../x", "a/b", "a\\b", "-x", "~", "a$HOME", "a b", "a\tb", ".", "a..b", "a\u{7}"] {
        assert!(workspace_problem(name).is_some(), "{name:?}");
    }
    for name in ["", "default", ".hidden", "_foo", "a&&id", "a`id`b", "2024", "a.b"] {
        assert_eq!(workspace_problem(name), None, "{name:?}");
    }
}
