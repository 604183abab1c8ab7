//! Finds texts that Terraform and the parser of this server read differently. Such a text could hide a block from guards.

use std::collections::BTreeSet;

/// Returns the line of such a text, counted from 1, with the reason; `None` if there is none.
///
/// Terraform ends a heredoc at a line that is its marker once all white space around it is cut. The parser ends it at a line that begins
/// with the marker after blanks, and never before the second line.
pub(super) fn ambiguity(text: &str) -> Option<(usize, &'static str)> {
    let mut markers = BTreeSet::new();
    for (at, line) in text.split('\n').enumerate() {
        if line.strip_suffix('\r').unwrap_or(line).contains('\r') {
            return Some((at + 1, "it has a carriage return within a line"));
        }
        for marker in markers_in(line) {
            if !marker.is_ascii() {
                return Some((at + 1, "the marker of a heredoc is not ASCII"));
            }
            markers.insert(marker);
        }
    }
    let mut opened = None;
    for (at, line) in text.split('\n').enumerate() {
        let start = line.trim_start();
        let word = start.split(|c| !is_part_of_marker(c) || !c.is_ascii()).next().unwrap_or_default();
        let alone = line.trim_start_matches([' ', '\t']).trim_end_matches([' ', '\t', '\r']) == word;
        if markers.contains(word) && !alone {
            return Some((at + 1, "ambiguous end of a heredoc"));
        }
        if !word.is_empty() && opened == Some(word) {
            return Some((at + 1, "a heredoc is empty; write `\"\"`"));
        }
        opened = markers_in(line).last();
    }
    None
}

/// Returns the words after `<<` and `<<-`. They need not begin a heredoc, as comments and texts may have them as well.
fn markers_in(line: &str) -> impl Iterator<Item = &str> {
    line.split("<<").skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches('<');
        let word = rest.strip_prefix('-').unwrap_or(rest).split(|c| !is_part_of_marker(c)).next();
        word.filter(|word| !word.is_empty())
    })
}

fn is_part_of_marker(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || (!c.is_ascii() && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::ambiguity;

    #[test]
    fn what_terraform_reads_differently_is_found() {
        for text in [
            "a = <<EOT\ntext\nEOT\nb = 1\n",
            "a = <<-EOT\r\n  text EOT /*\r\n  EOT \t\r\n",
            "a = <<EOT\nEOTX\nEOT-x\nEOT_\nEOT\n",
            "a = \"<< é\"\n",
        ] {
            assert_eq!(ambiguity(text), None, "{text}");
        }
        for (text, found) in [
            ("a = <<EOT\nx\nEOT /*\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<-EOT\nx\n\u{a0}EOT\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<EOT\nx\nEOT\u{a0}\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<EOT\nx\n\u{b}EOT\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<EOT\nx\nEOT${1}\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<EOT\nx\nEOT\u{e9}\nEOT\n", (3, "ambiguous end of a heredoc")),
            ("a = <<EOT\nEOT\nb = <<EOT\nEOT\n", (2, "a heredoc is empty; write `\"\"`")),
            ("a = <<\u{e9}\nx\n\u{e9}\n", (1, "the marker of a heredoc is not ASCII")),
            ("# x \r /*\n", (1, "it has a carriage return within a line")),
        ] {
            assert_eq!(ambiguity(text), Some(found), "{text}");
        }
    }
}
