//! Prepares a plan for a `diff` fence: markers at the start of the line.

use crate::plan_text::{LineReader, LineSign, PlanLine};

/// Lines of Terraform's legend, which are no changes.
const LEGEND: [&str; 4] = ["create", "update in-place", "destroy", "read (data resources)"];

/// Moves `+ - ~` markers to column 0 and turns `~` into `!`, for `diff` fences. Leaves lines of a heredoc that begin with such a
/// character as they are.
pub(super) fn diff_markdown(text: &str) -> String {
    let mut moved = String::with_capacity(text.len());
    let mut reader = LineReader::default();
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            moved.push('\n');
        }
        let line = reader.read(line);
        match marker(&line) {
            Some(marker) => {
                moved.push(marker);
                moved.push_str(&line.text[..line.column]);
                moved.push_str(&line.text[line.column + 1..]);
            }
            None => moved.push_str(line.text),
        }
    }
    moved
}

/// Returns the marker of a line that changes.
fn marker(line: &PlanLine<'_>) -> Option<char> {
    let marker = match line.sign? {
        LineSign::Add => '+',
        LineSign::Remove => '-',
        LineSign::Change => '!',
        LineSign::DestroyCreate | LineSign::CreateDestroy | LineSign::Read => return None,
    };
    let is_change =
        line.column > 0 && line.column.is_multiple_of(2) && !LEGEND.contains(&line.text[line.column + 2..].trim());
    (line.is_value || is_change).then_some(marker)
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

    proptest! {
        #[test]
        fn a_moved_marker_changes_no_length(text in "(  # |Plan: |[+~-] |\\{|\\}|<<-EOT|EOT|\n|[a-z\" ä=]|    ){0,60}") {
            let moved = diff_markdown(&text);
            prop_assert!(moved.len() == text.len() && moved.lines().count() == text.lines().count());
        }
    }
}
