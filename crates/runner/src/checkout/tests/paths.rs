//! Names and paths from outside.

use super::super::disk::DiskTree;
use super::*;
use proptest::{prop_assert, prop_assert_eq, proptest};
use tidelock_core::inputs::Tree as _;

#[test]
fn no_path_leads_out_of_the_tree() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("a/b", root.join("in")).unwrap();
    for dir in ["..", "a/../..", "/etc", "out", "out/ssh", "missing", "a/../b"] {
        assert!(inside(&root, dir).is_err(), "{dir}");
    }
    let root = root.canonicalize().unwrap();
    for (dir, path) in [(".", ""), ("a/b", "a/b"), ("in", "a/b"), ("./a", "a"), ("", "")] {
        assert_eq!(inside(&root, dir).unwrap(), root.join(path), "{dir}");
    }
}

#[test]
fn discovery_sees_files_inside_and_never_outside() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    for dir in ["a/.terraform/x", ".git/y", "a/b"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::write(root.join("a/main.tf"), "m").unwrap();
    fs::write(root.join("a/big.tf"), vec![b'x'; (1 << 20) + 1]).unwrap();
    fs::write(temp.path().join("secret"), "s").unwrap();
    symlink("../../secret", root.join("a/leak.tf")).unwrap();
    symlink("main.tf", root.join("a/alias.tf")).unwrap();
    symlink("/", root.join("a/rootlink")).unwrap();
    let tree = DiskTree { root };
    assert_eq!(tree.dirs(), [".", "a", "a/b"]);
    assert_eq!(tree.files("a"), ["alias.tf", "big.tf", "main.tf"]);
    assert_eq!(tree.read("a/alias.tf").as_deref(), Some("m"));
    for path in ["a/leak.tf", "../secret", "a/big.tf", "a", "a/rootlink/etc/passwd"] {
        assert_eq!(tree.read(path), None, "{path}");
    }
    assert!(tree.is_dir("a/b") && tree.is_dir(".") && !tree.is_dir("a/rootlink") && !tree.is_dir("a/main.tf"));
}

#[test]
fn links_to_directories_of_the_tree_match_globs_and_never_go_in_circles() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    for dir in ["envs/real", "shared/base", "shared/base/deep", "shared/.terraform/x", "loop/a", "loop/b", "../outside"]
    {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("main.tf"), "").unwrap();
    }
    for (target, link) in [
        ("../shared/base", "envs/linked"),
        ("../../outside", "envs/out"),
        ("../shared/.terraform/x", "envs/hidden"),
        ("..", "envs/up"),
        ("nowhere", "envs/broken"),
        ("../b", "loop/a/to-b"),
        ("../a", "loop/b/to-a"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let tree = DiskTree { root };
    use tidelock_core::config::repo::NamedDirectories;
    let matching = |glob: &str| tidelock_core::schedule::Directories::new(&tree).matching(glob);
    assert_eq!(matching("envs/*"), ["envs/linked", "envs/real"]);
    assert_eq!(matching("envs/**"), ["envs/linked", "envs/linked/deep", "envs/real"]);
    assert_eq!(matching("loop/**"), ["loop/a", "loop/a/to-b", "loop/b", "loop/b/to-a"]);
    for number in 0..120 {
        fs::create_dir_all(tree.root.join(format!("chain/d{number}"))).unwrap();
        symlink(format!("../d{}", number + 1), tree.root.join(format!("chain/d{number}/l"))).unwrap();
    }
    let longest = tidelock_core::inputs::Tree::dirs_and_links(&tree).iter().map(|dir| dir.matches("/l").count()).max();
    assert_eq!(longest, Some(40), "as many links as Linux follows");
    assert!(tree.dirs().iter().all(|dir| !dir.contains("linked") && !dir.contains("to-")), "{:?}", tree.dirs());
}

#[test]
fn names_from_outside_become_one_plain_part_of_a_path() {
    let table = [
        ("default", "default"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        ("", "%"),
        (".git", "%2Egit"),
        ("v1.2", "v1.2"),
        ("x.lock", "x%2Elock"),
    ];
    for (name, part) in table {
        assert_eq!(named(name, 100), part);
    }
    assert_eq!(named(&"ä".repeat(500), 100).len(), 133);
}

proptest! {
    #[test]
    fn no_two_names_share_a_place(a in "\\PC{0,30}", b in "\\PC{0,30}") {
        prop_assert_eq!(named(&a, 20) == named(&b, 20), a == b);
        prop_assert!(!named(&a, 20).contains('/') && !named(&a, 20).starts_with('.'));
    }
}
