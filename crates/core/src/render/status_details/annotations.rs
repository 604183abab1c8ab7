//! Reads the places that Terraform's diagnostics name, `on main.tf line 12, in resource "a" "b":`, with or without the frame around them.
//!
//! The text is hostile: a step can print anything. An annotation is made only for a path inside of the repository that looks like code.

use super::super::markdown;
use crate::domain::state::StatusAnnotation;

/// Most annotations of one status: GitHub's limit for one request (docs.github.com/rest/checks/runs).
const MAX_ANNOTATIONS: usize = 50;
/// Longest title, in characters (GitHub's limit is 255).
const MAX_TITLE: usize = 200;
/// Longest message, in characters (GitHub's limit is 64 KB), and most lines of one without a frame.
const MAX_MESSAGE: usize = 1000;
const MAX_UNFRAMED: usize = 15;
/// Longest path, in characters.
const MAX_PATH: usize = 500;
/// Ends of the names of files with code.
const CODE: [&str; 7] = [".tf", ".tf.json", ".tofu", ".tofu.json", ".tfvars", ".tfvars.json", ".hcl"];

/// A diagnostic that is being read.
struct OpenDiagnostic {
    is_error: bool,
    title: String,
    place: Option<(String, u32)>,
    lines: Vec<String>,
    is_framed: bool,
}

/// Returns the annotations for an output of Terraform in a directory of the repository, each once.
pub(super) fn read(output: &str, dir: &str) -> Vec<StatusAnnotation> {
    let mut found = Vec::new();
    let mut open: Option<OpenDiagnostic> = None;
    let text = markdown::clean(output);
    for raw in text.lines() {
        let framed = raw.strip_prefix('│');
        let line = framed.map_or(raw, |rest| rest.strip_prefix(' ').unwrap_or(rest));
        if let Some((is_error, title)) = heading(line) {
            close(&mut found, open.take(), dir);
            let is_framed = framed.is_some();
            let title = markdown::shorten(title, MAX_TITLE);
            open = Some(OpenDiagnostic { is_error, title, place: None, lines: Vec::new(), is_framed });
        } else if let Some(current) = &mut open {
            let is_over = match current.is_framed {
                true => framed.is_none(),
                false => current.lines.len() >= MAX_UNFRAMED,
            };
            if is_over {
                close(&mut found, open.take(), dir);
            } else if current.place.is_none()
                && let Some(place) = place(line)
            {
                current.place = Some(place);
            } else {
                current.lines.push(line.to_owned());
            }
        }
        if found.len() >= MAX_ANNOTATIONS {
            return found;
        }
    }
    close(&mut found, open, dir);
    found
}

fn close(found: &mut Vec<StatusAnnotation>, open: Option<OpenDiagnostic>, dir: &str) {
    let Some(OpenDiagnostic { is_error, title, place: Some((file, line)), lines, .. }) = open else { return };
    let Some(path) = in_repository(dir, &file) else { return };
    let text = lines.join("\n");
    let message = match text.trim() {
        "" => title.clone(),
        text => markdown::shorten(text, MAX_MESSAGE),
    };
    let one = StatusAnnotation { path, line, is_error, title, message };
    if !found.contains(&one) {
        found.push(one);
    }
}

/// Returns the text after `Error:` or `Warning:`, and whether it is an error.
fn heading(line: &str) -> Option<(bool, &str)> {
    let after = |word| line.strip_prefix(word).map(str::trim).filter(|title| !title.is_empty());
    after("Error:").map(|title| (true, title)).or_else(|| Some((false, after("Warning:")?)))
}

/// Returns file and line of `on FILE line NUMBER, in …:`.
fn place(line: &str) -> Option<(String, u32)> {
    let rest = line.trim_start().strip_prefix("on ")?;
    let (file, after) = rest.split_once(" line ")?;
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, end) = after.split_at(digits);
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (end.is_empty() || end.starts_with([',', ':'])).then(|| (file.to_owned(), number))
}

/// Returns the path of a file in the repository that Terraform names in a directory. `None` if it is outside, if it is in a hidden folder,
/// where Terraform keeps downloaded modules, or if it is no code.
fn in_repository(dir: &str, file: &str) -> Option<String> {
    if file.starts_with('/') || file.contains(['\\', '\t']) || !CODE.iter().any(|end| file.ends_with(end)) {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            hidden if hidden.starts_with('.') => return None,
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    (path.chars().count() <= MAX_PATH).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(output: &str, dir: &str) -> Vec<String> {
        let shape = |one: &StatusAnnotation| {
            let level = if one.is_error { "error" } else { "warning" };
            format!("{level} {}:{} {} | {}", one.path, one.line, one.title, one.message.replace('\n', " / "))
        };
        read(output, dir).iter().map(shape).collect()
    }

    #[test]
    fn diagnostics_name_their_places() {
        let framed = "╷\n│ Warning: Old\n│ \n│   on ../shared/x.tf line 3:\n│    3: a\n│ \n╵\n╷\n│ Error: Unsupported argument\n│ \n\
            │   with a.b,\n│   on main.tf line 12, in resource \"a\" \"b\":\n│   12:   foo = 1\n│ \n│ Not expected here.\n╵\nafter\n";
        let expected = [
            "warning shared/x.tf:3 Old | 3: a",
            "error net/main.tf:12 Unsupported argument | with a.b, /   12:   foo = 1 /  / Not expected here.",
        ];
        assert_eq!(places(framed, "net"), expected);
        let bare = "Error: Bad\n\n  on main.tf line 1, in locals:\n   1: x\n";
        assert_eq!(places(&format!("{bare}{bare}"), "."), ["error main.tf:1 Bad | 1: x"], "each once");
    }

    #[test]
    fn places_outside_of_the_repository_or_of_its_code_are_left_out() {
        for file in [
            "/etc/passwd.tf",
            "../../x.tf",
            ".terraform/modules/a/main.tf",
            "a/../../../x.tf",
            "main.py",
            "C:\\x.tf",
            "",
        ] {
            assert!(places(&format!("Error: Bad\n  on {file} line 1:\n"), "net").is_empty(), "{file}");
        }
        for line in ["on main.tf line 0:", "on main.tf line x:", "on main.tf line 99999999999:", "on main.tf line 1x"] {
            assert!(places(&format!("Error: Bad\n  {line}\n"), "net").is_empty(), "{line}");
        }
        let escaped = "Error: \u{1b}[31mBad\u{202e}\u{0}\n  on main.tf line 1:\n";
        assert_eq!(places(escaped, "."), ["error main.tf:1 Bad | Bad"]);
    }

    #[test]
    fn their_number_and_length_are_bounded() {
        let all: String =
            (1..100).map(|n| format!("Error: {n}\n  on main.tf line {n}:\n{}\n", "x".repeat(9000))).collect();
        let found = read(&all, ".");
        assert_eq!(found.len(), MAX_ANNOTATIONS);
        assert!(found.iter().all(|one| one.message.chars().count() <= MAX_MESSAGE));
    }
}
