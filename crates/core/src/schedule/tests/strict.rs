//! Changes in mode `strict` besides files: effective configuration, and reverted applies.

use super::*;

const STRICT: &str = "repos: [{id: /.*/, repo_locks: {mode: strict}, allowed_overrides: [apply_requirements]}]";
const PLAIN: &str = "repos: [{id: /.*/, allowed_overrides: [apply_requirements]}]";

/// Returns two projects of which the second has these requirements.
fn two(requirements: &str) -> String {
    format!("projects:\n  - dir: a\n  - dir: b\n    apply_requirements: [{requirements}]\n")
}

fn schedule_of(scene: &Scene, text: &str) -> Schedule {
    for_plan(&command(text), &scene.facts()).unwrap()
}

#[test]
fn projects_whose_effective_configuration_changes_are_changed() {
    let tree = || MemoryTree::of_dirs(["a", "b"]);
    let config = |rules: &str, head: &str, base: &str| {
        scene(tree(), &["atlantis.yaml"]).server(rules).yaml(&two(head)).base_yaml(base).autoplan()
    };
    assert_eq!(config(STRICT, "approved", &two("")), "b/default");
    assert_eq!(config(STRICT, "approved", &two("approved")), "");
    // If the base branch lists no projects, a difference from the rules counts.
    assert_eq!(config(STRICT, "approved", ""), "b/default");
    assert_eq!(config(PLAIN, "approved", &two("")), "", "as Atlantis does");
    let unchanged = scene(tree(), &["readme.md"]).server(STRICT).yaml(&two("approved"));
    assert_eq!(unchanged.autoplan(), "");
}

#[test]
fn what_was_applied_and_taken_back_stays_in_the_pull_request() {
    let tree = || MemoryTree::of_dirs(["a", "b"]);
    let reverted = |applied: &[&str]| scene(tree(), &["b/main.tf"]).server(STRICT).applied(applied);
    assert_eq!(reverted(&["a/default"]).autoplan(), "b/default, a/default");
    assert_eq!(reverted(&["b/default"]).autoplan(), "b/default");
    let schedule = schedule_of(&reverted(&["a/default"]), "plan");
    assert_eq!(schedule.changed.len(), 2, "it is among what has to be planned");
    assert_eq!(schedule.remarks.len(), 1);
    assert!(schedule.remarks[0].ends_with("it must be applied again to match."), "{:?}", schedule.remarks);
    let targeted = schedule_of(&reverted(&["a/default"]), "plan -d b");
    assert_eq!((targeted.groups[0].len(), targeted.changed.len(), targeted.remarks.len()), (1, 2, 0));
    let gone = schedule_of(&reverted(&["gone/default"]), "plan");
    assert_eq!(gone.groups[0].len(), 1);
    assert!(gone.remarks[0].contains("`atlantis unlock --accept-drift -m \"why\"`"), "{:?}", gone.remarks);
}

#[test]
fn a_project_without_autoplan_that_was_applied_and_taken_back_is_planned() {
    let scene = scene(MemoryTree::of_dirs(["a", "b"]), &["b/main.tf"]).server(STRICT);
    let scene =
        scene.yaml("projects:\n  - dir: a\n    autoplan: {enabled: false}\n  - dir: b\n").applied(&["a/default"]);
    assert_eq!(scene.autoplan(), "b/default, a/default");
}
