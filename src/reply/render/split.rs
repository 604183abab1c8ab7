//! Splits a long reply into parts at line breaks. A fold, fence or table that is open at a cut is closed there and
//! opened again in the next part.

/// The last line of a part that continues.
const CONTINUED: &str = "\n*Continued in the next comment.*";

/// Markdown blocks that are open after a line.
#[derive(Clone, Default)]
struct Open {
    /// The `<details><summary>…` line.
    details: Option<String>,
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
            self.details = Some(line.to_owned());
        } else if line == "</details>" {
            self.details = None;
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
        if self.details.is_some() {
            lines.extend([String::new(), "</details>".to_owned()]);
        }
        lines
    }

    fn openers(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(summary) = &self.details {
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

fn length(text: &str) -> usize {
    text.chars().count() + 1
}

fn total(lines: &[String]) -> usize {
    lines.iter().map(|line| length(line)).sum()
}

/// Parts of at most `limit` characters; `command` names what is continued. A line that is longer than a part is cut.
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
    use insta::assert_snapshot;

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
}
