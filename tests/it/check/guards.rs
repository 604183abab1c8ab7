//! `guards` in `tidelock check`: the names with their place, and errors with theirs.

use super::{check, only_error, story};
use insta::assert_snapshot;
use std::fs;

#[test]
fn guards_are_listed_and_wrong_ones_are_errors_with_their_place() {
    let dir = story();
    let (repos, root) = (dir.path().join("repos.yaml"), dir.path().to_str().unwrap().to_owned());
    fs::remove_file(dir.path().join("atlantis.yaml")).unwrap();
    let checked = |text: &str, json: &[&str]| {
        fs::write(&repos, text).unwrap();
        check(&[&["--repos-config", repos.to_str().unwrap(), &root], json].concat(), &[])
    };
    let (code, text) = checked(
        "repos:\n- id: /.*/\n  guards:\n  - {name: few, max_destroys: 1}\n  - {name: code, forbid: [external]}\n",
        &[],
    );
    assert_eq!(code, Some(0), "{text}");
    let told: Vec<&str> = text.lines().filter(|line| line.contains("guards")).map(str::trim).take(1).collect();
    assert_snapshot!(told.join("\n").replace(&root, "DIR"), @"guards                       few, code   [DIR/repos.yaml line 3, entry 1]");
    assert!(text.contains("Atlantis has no key `guards`, and refuses the file"), "{text}");
    let (code, json) = checked("repos:\n- id: /.*/\n  guards: [{name: few, max_destroys: lots}]\n", &["--json"]);
    let said = only_error(code, &json);
    assert!(said.starts_with("3:") && said.contains("a whole number is expected here"), "{said}");
}
