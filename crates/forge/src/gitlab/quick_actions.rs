//! Quick actions in notes (docs.gitlab.com/user/project/quick_actions): GitLab carries out a line that begins with one, and leaves it out
//! of the note.

/// Shortest run of backticks or tildes that opens a fence.
const FENCE: usize = 3;

/// The quick actions of merge requests. Other lines with a slash at their beginning are text.
const ACTIONS: [&str; 34] = [
    "approve",
    "assign",
    "assign_reviewer",
    "cc",
    "close",
    "copy_metadata",
    "done",
    "draft",
    "estimate",
    "estimate_time",
    "label",
    "labels",
    "lock",
    "merge",
    "milestone",
    "ready",
    "reassign",
    "reassign_reviewer",
    "rebase",
    "relabel",
    "reopen",
    "request_changes",
    "request_review",
    "shrug",
    "spend",
    "spend_time",
    "submit_review",
    "subscribe",
    "tableflip",
    "target_branch",
    "title",
    "todo",
    "unapprove",
    "unlabel",
];

/// A quick action with its argument, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuickAction {
    pub name: String,
    pub argument: String,
}

/// Splits a note into its text and its quick actions. Lines in code fences are text
/// (docs.gitlab.com/user/project/quick_actions: they "are not executed" in code blocks).
pub(super) fn split(note: &str) -> (String, Vec<QuickAction>) {
    let (mut text, mut actions) = (Vec::new(), Vec::new());
    let mut fence: Option<(char, usize)> = None;
    for line in note.lines() {
        match (fence, fence_of(line)) {
            (None, Some(opened)) => fence = Some((opened.0, opened.1)),
            (Some((sign, length)), Some((other, count, true))) if sign == other && count >= length => fence = None,
            _ => {}
        }
        match action_of(line).filter(|_| fence.is_none()) {
            Some(action) => actions.push(action),
            None => text.push(line),
        }
    }
    (text.join("\n").trim().to_owned(), actions)
}

/// Sign and length of a fence, and true if nothing follows it: only such a one closes.
fn fence_of(line: &str) -> Option<(char, usize, bool)> {
    let line = line.trim_start_matches(' ');
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let rest = line.trim_start_matches(sign);
    let count = line.len() - rest.len();
    (count >= FENCE).then_some((sign, count, rest.trim().is_empty()))
}

fn action_of(line: &str) -> Option<QuickAction> {
    let line = line.strip_prefix('/')?;
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = name.to_lowercase();
    ACTIONS.contains(&name.as_str()).then(|| QuickAction { name, argument: argument.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_outside_of_fences_are_carried_out() {
        let names = |note: &str| split(note).1.into_iter().map(|action| action.name).collect::<Vec<_>>();
        assert_eq!(
            split("Done.\n/merge\n/label ~a ~b"),
            (
                "Done.".to_owned(),
                vec![
                    QuickAction { name: "merge".into(), argument: String::new() },
                    QuickAction { name: "label".into(), argument: "~a ~b".into() },
                ]
            )
        );
        for text in [
            "```\n/merge\n```",
            "~~~diff\n/merge",
            "````\n```\n/merge\n````",
            "```\n``` x\n/merge\n```",
            "a /merge",
            " /merge",
            "/merged",
        ] {
            assert!(names(text).is_empty(), "{text}");
        }
        for text in ["/merge", "```\n```\n/MERGE", "```\n~~~\n```\n/merge", "`x`\n/merge now"] {
            assert_eq!(names(text), ["merge"], "{text}");
        }
    }
}
