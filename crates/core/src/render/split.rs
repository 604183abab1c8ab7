//! Splits a long reply into parts at line breaks. A fold, fence or table that is open at a cut is closed there and opened again in the
//! next part.

/// The last line of a part that continues.
pub(super) const CONTINUED: &str = "\n*Continued in the next comment.*";

/// Markdown blocks that are open after a line.
#[derive(Clone, Default)]
struct Open {
    /// The `<details><summary>…` lines, the outermost first.
    details: Vec<String>,
    /// The fence's backticks and its opening line.
    fence: Option<(String, String)>,
    /// Header and delimiter row of the table.
    table: Option<(String, String)>,
    /// The previous line, a possible table header.
    last: String,
}

impl Open {
    fn step(&mut self, line: &str) {
        if let Some((ticks, _)) = &self.fence {
            if line == ticks {
                self.fence = None;
            }
            return;
        }
        let ticks = line.bytes().take_while(|b| *b == b'`').count();
        if ticks >= 3 && !line[ticks..].contains('`') {
            self.fence = Some(("`".repeat(ticks), line.to_owned()));
        } else if line.starts_with("<details>") {
            self.details.push(line.to_owned());
        } else if line == "</details>" {
            self.details.pop();
        } else if line.starts_with("|-") && self.last.starts_with('|') {
            self.table = Some((self.last.clone(), line.to_owned()));
        } else if !line.starts_with('|') {
            self.table = None;
        }
        self.last = line.to_owned();
    }

    fn closers(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((ticks, _)) = &self.fence {
            lines.push(ticks.clone());
        }
        for _ in &self.details {
            lines.extend([String::new(), "</details>".to_owned()]);
        }
        lines
    }

    fn openers(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for summary in &self.details {
            lines.extend([summary.replacen("</summary>", ", continued</summary>", 1), String::new()]);
        }
        if let Some((_, opener)) = &self.fence {
            lines.push(opener.clone());
        }
        if let Some((head, ruler)) = &self.table {
            lines.extend([head.clone(), ruler.clone()]);
        }
        lines
    }
}

/// Returns the block that a text leaves open at its end, or an HTML comment outside of fences, which hides the rest.
pub(super) fn left_open(body: &str) -> Option<&'static str> {
    let mut open = Open::default();
    for line in body.lines() {
        open.step(line);
        if open.fence.is_none() && line.contains("<!--") {
            return Some("a comment of HTML");
        }
    }
    match open {
        Open { fence: Some(_), .. } => Some("a fence"),
        Open { details, .. } if !details.is_empty() => Some("<details>"),
        _ => None,
    }
}

fn length(text: &str) -> usize {
    text.chars().count() + 1
}

fn total(lines: &[String]) -> usize {
    lines.iter().map(|line| length(line)).sum()
}

/// Splits into parts of at most `limit` characters; `command` names the command that is continued. A line that is longer than a part is
/// cut.
pub(super) fn split(body: &str, limit: usize, command: &str) -> Vec<String> {
    if body.chars().count() <= limit {
        return vec![body.to_owned()];
    }
    let mut parts = Vec::new();
    let (mut open, mut lines, mut used) = (Open::default(), Vec::<String>::new(), 0);
    let mut fresh = 0;
    for line in body.lines() {
        let mut after = open.clone();
        after.step(line);
        let tail = total(&after.closers()).max(total(&open.closers())) + length(CONTINUED);
        if used + length(line) + tail > limit && lines.len() > fresh {
            lines.extend(open.closers());
            lines.push(CONTINUED.to_owned());
            parts.push(lines.join("\n"));
            lines = vec![format!("*Continued {command} output from the previous comment.*"), String::new()];
            lines.extend(open.openers());
            used = total(&lines);
            fresh = lines.len();
        }
        let room = limit.saturating_sub(used + tail + 1).max(1);
        if line.chars().count() > room {
            lines.push(line.chars().take(room.saturating_sub(1)).chain(['…']).collect());
        } else {
            lines.push(line.to_owned());
        }
        used += lines.last().map_or(0, |line| length(line));
        open = after;
    }
    parts.push(lines.join("\n"));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::mutated;
    use insta::assert_snapshot;
    use proptest::prelude::*;

    #[test]
    fn a_short_reply_stays_whole() {
        assert_eq!(split("a\nb", 100, "plan"), ["a\nb"]);
    }

    #[test]
    fn folds_and_fences_are_closed_and_opened_again() {
        let body = format!(
            "### Plan\n\n<details><summary>Full plan</summary>\n\n```diff\n{}```\n\n</details>",
            "+ line\n".repeat(30)
        );
        let parts = split(&body, 280, "plan");
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|part| part.chars().count() <= 280));
        assert_snapshot!(parts[1].replace("+ line\n", ""), @r"
        *Continued plan output from the previous comment.*

        <details><summary>Full plan, continued</summary>

        ```diff
        ```

        </details>
        ");
        assert_eq!(parts.iter().map(|part| part.matches("+ line").count()).sum::<usize>(), 30);
    }

    #[test]
    fn tables_get_their_head_again() {
        let body = format!("| project |\n|---|\n{}", "| a |\n".repeat(60));
        let parts = split(&body, 200, "plan");
        assert!(parts.len() > 1);
        for part in &parts {
            assert!(part.contains("| project |\n|---|\n| a |"), "{part}");
        }
    }

    #[test]
    fn a_line_longer_than_a_part_is_cut() {
        let body = format!("```\n{}\nend\n```", "x".repeat(500));
        let parts = split(&body, 200, "plan");
        assert!(parts.iter().all(|part| part.chars().count() <= 200), "{parts:?}");
        assert!(parts.concat().contains("x…") && parts.concat().contains("end"));
    }

    /// Generates lines of a comment as templates make them, with folds in folds and no deeper, each with its number if it has text.
    fn bodies() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            4 => Just("line".to_owned()),
            1 => Just(String::new()),
            1 => Just("```diff".to_owned()),
            1 => Just("```".to_owned()),
            1 => Just("````".to_owned()),
            1 => Just("<details><summary>Full plan</summary>".to_owned()),
            1 => Just("</details>".to_owned()),
            1 => Just("| a | b |\n|---|---|\n| row".to_owned()),
            1 => Just("| row".to_owned()),
            1 => Just("🌊\u{202e}é\0\r".to_owned()),
            1 => (10..900_usize).prop_map(|n| "x".repeat(n)),
            // Without the sign that numbers stand between.
            1 => "\\PC{0,40}".prop_map(|text| text.replace('§', "")),
        ];
        prop::collection::vec(line, 0..120).prop_map(|lines| {
            let (mut text, mut open) = (String::new(), Open::default());
            for (at, line) in lines.iter().enumerate() {
                let is_too_deep = open.details.len() == 2 && line.starts_with("<details>");
                let line = if is_too_deep { "line" } else { line.as_str() };
                line.lines().for_each(|line| open.step(line));
                let is_block = line.is_empty() || line.starts_with(['`', '<']);
                text += &if is_block { format!("{line}\n") } else { format!("{line}§{at}§\n") };
            }
            text
        })
    }

    /// Returns the numbers of the present lines, in order, without those of table heads, which are repeated.
    fn numbers(text: &str) -> Vec<usize> {
        let lines = text.lines().filter(|line| !line.starts_with("| a"));
        lines.filter_map(|line| line.split('§').nth(1)?.parse().ok()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn parts_fit_are_closed_and_lose_nothing(body in bodies(), limit in 300..2000_usize) {
            let parts = split(&body, limit, "plan");
            let mut all = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                prop_assert!(part.chars().count() <= limit, "part {at} has {} of {limit}:\n{part}", part.chars().count());
                let mut inside = Open::default();
                part.lines().for_each(|line| inside.step(line));
                prop_assert!(at + 1 == parts.len() || inside.closers().is_empty(), "part {at} is open:\n{part}");
                all.extend(numbers(part));
            }
            let expected = numbers(&body);
            // A line that is longer than a part loses its end, which has its number.
            let cut = parts.iter().flat_map(|part| part.lines()).filter(|line| line.ends_with('…')).count();
            prop_assert!(all.len() + cut >= expected.len() && all.is_sorted(), "{} of {}", all.len(), expected.len());
        }

        /// Splitting does not panic, and adds at most the body again for each part, whatever is in a line that is opened again.
        #[test]
        fn any_text_is_split_within_bounds(body in mutated(vec!["<details><summary>x</summary>\n\n```diff\n+ a\n```\n\n</details>\n\n| a |\n|---|\n| b |\n".repeat(9)]), limit in 0..400_usize) {
            let parts = split(&body, limit, "plan");
            prop_assert!(!parts.is_empty() && parts.len() <= body.lines().count().max(1));
        }
    }
}
