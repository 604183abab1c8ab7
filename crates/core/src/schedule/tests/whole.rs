//! The projects of a branch, without a pull request.

use super::*;
use crate::domain::command::{BranchTargets, Target};

fn of_branch(scene: &Scene, targets: &[Target]) -> String {
    narrowed(scene, targets, Target::default())
}

fn narrowed(scene: &Scene, targets: &[Target], narrowing: Target) -> String {
    labels(for_branch(&BranchTargets { named: targets.to_vec(), narrowing }, &scene.facts()))
}

fn at(dir: &str, workspace: Option<&str>) -> Target {
    Target { dirs: vec![dir.to_owned()], workspace: workspace.map(str::to_owned), ..Target::default() }
}

fn called(name: &str) -> Target {
    Target { projects: vec![name.to_owned()], ..Target::default() }
}

#[test]
fn without_a_list_all_directories_that_would_be_discovered_are_projects() {
    let tree = || MemoryTree::of_dirs([".", "a", "a/modules/m", "modules/n", "b/c"]);
    assert_eq!(of_branch(&scene(tree(), &[]), &[]), "./default, a/default, b/c/default");
    let off = scene(tree(), &[]).with(|options| options.autodiscover_mode = AutodiscoverMode::Disabled);
    assert_eq!(of_branch(&off, &[]), "");
    let listed = scene(tree(), &[]).yaml("projects:\n- {name: x, dir: a}\n- {name: gone, dir: gone}");
    assert_eq!(of_branch(&listed, &[]), "x");
    let both = listed.with(|options| options.autodiscover_mode = AutodiscoverMode::Enabled);
    assert_eq!(of_branch(&both, &[]), "x, ./default, b/c/default");
}

#[test]
fn projects_are_named_exactly_and_once() {
    let tree = MemoryTree::of_dirs(["a", "b"]);
    let scene = scene(tree, &[]).yaml("projects:\n- {name: x, dir: a}\n- {name: y, dir: a, workspace: w}");
    assert_eq!(of_branch(&scene, &[called("y"), at("a", None), called("y"), at("b", Some("w"))]), "y, x, b/w");
    for (target, said) in [
        (called(".*"), "no project is called \".*\""),
        (at("gone", None), "\"gone\" is not there"),
        (at("a", Some("other")), "not configured for the workspace \"other\""),
        (at("b", Some("../x")), "workspace"),
    ] {
        let refused = of_branch(&scene, std::slice::from_ref(&target));
        assert!(refused.contains(said), "{target:?}: {refused}");
    }
}

#[test]
fn tags_and_exceptions_narrow_all_or_the_named_ones() {
    let tree = MemoryTree::of_dirs(["a", "b", "c"]);
    let listed =
        "projects:\n- {name: x, dir: a, tags: [prod]}\n- {name: y, dir: b, tags: [prod, old]}\n- {name: z, dir: c}";
    // Silence is for pull requests, of which another server may answer.
    let scene = scene(tree, &[]).yaml(listed).with(|options| options.silence_no_projects = true);
    let leave = |tag: &str, except: &[&str]| Target {
        tag: (!tag.is_empty()).then(|| tag.parse().unwrap()),
        except: except.iter().map(|&text| text.to_owned()).collect(),
        ..Target::default()
    };
    assert_eq!(narrowed(&scene, &[], leave("prod", &[])), "x, y");
    assert_eq!(narrowed(&scene, &[], leave("prod and not old", &[])), "x");
    assert_eq!(narrowed(&scene, &[], leave("", &["y", "c"])), "x");
    assert_eq!(narrowed(&scene, &[called("x"), at("c", None)], leave("prod", &[])), "x");
    for (narrowing, said) in [
        (leave("stage", &[]), "no project has the tag `stage`"),
        (leave("", &["typo"]), "`--except typo` matches no project"),
        (leave("", &["*"]), "nothing is left"),
    ] {
        let refused = narrowed(&scene, &[], narrowing);
        assert!(refused.contains(said), "{said}: {refused}");
    }
}
