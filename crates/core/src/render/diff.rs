//! Prepares a plan for a `diff` fence: markers at the start of the line.

use regex::Regex;
use std::sync::LazyLock;

/// Lines of Terraform's legend, which are no changes.
const LEGEND: [&str; 4] = ["create", "update in-place", "destroy", "read (data resources)"];
/// Number of columns between an attribute's marker and the markers of lines in its heredoc.
const HEREDOC_MARKER: usize = 4;

/// Beginning of a heredoc; a test compiles it.
static HEREDOC: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"<<[-~]?(\w+)$").ok());

/// Moves `+ - ~` markers to column 0 and turns `~` into `!`, for `diff` fences. Leaves lines of a heredoc that begin with such a
/// character as they are.
pub(super) fn diff_markdown(text: &str) -> String {
    let mut moved = String::with_capacity(text.len());
    let mut heredoc: Option<(String, usize)> = None;
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            moved.push('\n');
        }
        let column = line.bytes().take_while(|byte| *byte == b' ').count();
        let marker = line[column..].chars().next().filter(|c| matches!(c, '+' | '-' | '~'));
        let marker = marker.filter(|_| line[column + 1..].starts_with(' '));
        if let Some((end, expected)) = &heredoc {
            match marker.filter(|_| column == *expected) {
                Some(marker) => push(&mut moved, marker, column, line),
                None => moved.push_str(line),
            }
            if line.trim_start().split([' ', ',']).next() == Some(end) {
                heredoc = None;
            }
            continue;
        }
        let change =
            marker.filter(|_| column > 0 && column.is_multiple_of(2) && !LEGEND.contains(&line[column + 2..].trim()));
        match change {
            Some(marker) => push(&mut moved, marker, column, line),
            None => moved.push_str(line),
        }
        let opened = HEREDOC.as_ref().and_then(|regex| regex.captures(line)).and_then(|found| found.get(1));
        heredoc = opened.map(|end| (end.as_str().to_owned(), column + HEREDOC_MARKER));
    }
    moved
}

fn push(moved: &mut String, marker: char, column: usize, line: &str) {
    moved.push(if marker == '~' { '!' } else { marker });
    moved.push_str(&line[..column]);
    moved.push_str(&line[column + 1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use proptest::{prop_assert, proptest};

    const MIXED: &str = include_str!("../../../runner/src/terraform/summary/outputs/mixed.txt");

    #[test]
    fn markers_come_first_in_a_diff_and_values_stay() {
        let start = MIXED.find("  # terraform_data.each[\"a b\"]").unwrap();
        let end = MIXED.find("  # terraform_data.each[\"c\"]").unwrap();
        assert_snapshot!(diff_markdown(&MIXED[start..end]), @r#"
          # terraform_data.each["a b"] will be updated in-place
        !   resource "terraform_data" "each" {
                id     = "6e4aefac-e77c-81bd-b834-8721ec31c1bb"
        !       input  = {
        !           text = <<-EOT
                        line1
        -               line2
        +               line3
        -               - dash
        +               + plus
                    EOT
                    # (1 unchanged attribute hidden)
                }
        !       output = {
        -           k    = "a b"
        -           text = <<-EOT
                        line1
                        line2
                        - dash
                    EOT
                } -> (known after apply)
            }
        "#);
        let legend =
            "  + create\n  ~ update in-place\n-/+ destroy and then create replacement\n - terraform_data.forget";
        assert_eq!(diff_markdown(legend), legend);
    }

    #[test]
    fn the_pattern_compiles() {
        assert!(HEREDOC.is_some());
    }

    proptest! {
        #[test]
        fn a_moved_marker_changes_no_length(text in "(  # |Plan: |[+~-] |\\{|\\}|<<-EOT|EOT|\n|[a-z\" ä=]|    ){0,60}") {
            let moved = diff_markdown(&text);
            prop_assert!(moved.len() == text.len() && moved.lines().count() == text.lines().count());
        }
    }
}
