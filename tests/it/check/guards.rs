//! `guards` in `tidelock check`: the names with their place, and errors with theirs.

use super::{RulesStory, only_error};
use insta::assert_snapshot;

#[test]
fn guards_are_listed_and_wrong_ones_are_errors_with_their_place() {
    let story = RulesStory::new();
    let checked = |text: &str, args: &[&str]| story.check(text, args);
    let (code, text) = checked(
        "repos:\n- id: /.*/\n  guards:\n  - {name: few, max_destroys: 1}\n  - {name: code, forbid: [external]}\n",
        &[],
    );
    assert_eq!(code, Some(0), "{text}");
    let told: Vec<&str> = text.lines().filter(|line| line.contains("guards")).map(str::trim).take(1).collect();
    assert_snapshot!(told.join("\n").replace(story.root(), "DIR"), @"guards                       few, code   [DIR/repos.yaml line 3, entry 1]");
    assert!(text.contains("Atlantis has no key `guards`, and refuses the file"), "{text}");
    let (code, json) = checked("repos:\n- id: /.*/\n  guards: [{name: few, max_destroys: lots}]\n", &["--json"]);
    let said = only_error(code, &json);
    assert!(said.starts_with("3:") && said.contains("a whole number is expected here"), "{said}");
}
