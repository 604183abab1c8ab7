//! `secrets` and `masks` in `tidelock check`: references with their rules, and errors with their places.

use super::{RulesStory, only_error};
use insta::assert_snapshot;

#[test]
fn references_are_listed_with_their_rules_and_wrong_ones_are_errors_with_their_place() {
    let story = RulesStory::new();
    let checked = |text: &str, args: &[&str]| story.check(text, args);
    let (code, text) = checked(
        "repos:\n- id: /.*/\n  masks: [xoxb-.+]\n  secrets:\n  - {env: {TF_VAR_a: 'vault:secret/data/read#a'}}\n  \
         - {stages: [apply], env: {TF_VAR_a: 'gcp:projects/p/secrets/write'}}\n  - {dirs: other, env: {B: 'vault:a/b#c'}}\n",
        &[],
    );
    assert_eq!(code, Some(0), "{text}");
    let of_keys = |line: &&str| line.contains("TF_VAR_") || line.contains("masks  ");
    let told: Vec<&str> = text.lines().filter(of_keys).map(str::trim).take(3).collect();
    assert_snapshot!(told.join("\n").replace(story.root(), "DIR"), @"
    secrets                      plan: TF_VAR_a from vault:secret/data/read#a   [DIR/repos.yaml line 4, entry 1, rule 1]
    secrets                      apply: TF_VAR_a from gcp:projects/p/secrets/write   [DIR/repos.yaml line 4, entry 1, rule 2]
    masks                        1 patterns   [DIR/repos.yaml line 3, entry 1]
    ");
    assert!(text.contains("Atlantis has no key `secrets`, and refuses the file"), "{text}");
    let (code, json) = checked("repos:\n- id: /.*/\n  secrets: [{env: {A: plain}}]\n", &["--json"]);
    let said = only_error(code, &json);
    assert!(said.starts_with("3:") && said.contains("is not a reference"), "{said}");
}
