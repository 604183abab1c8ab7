//! Parses Terraform's output: totals and resources of a plan, totals of an apply, text for comments. Pure.
//!
//! Parts of the text come from the pull request (names, values, provider messages). So each of Terraform's sentences is only recognised at
//! the start of a line, where Terraform puts it and which no value can contain.

mod resources;
#[cfg(test)]
mod tests;

pub use resources::plan_resources;

use regex::Regex;
use std::sync::LazyLock;
use tidelock_core::domain::outcome::{PlanSummary, ResourceAction};

/// Defines a pattern. A test compiles each.
macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new($text).ok());
    };
}
pub(crate) use pattern;

// Terragrunt puts a prefix before each line. Lines of values begin with a space.
pattern!(PLAN, r"^(?:\S.*)?Plan: (.*\d+ to (?:add|import|change|destroy|forget).*)$");
pattern!(COUNT, r"(\d+) to (\w+)");
pattern!(APPLIED, r"^(?:\S.*)?(?:Apply|Destroy) complete! Resources: (.*)\.$");
pattern!(APPLIED_COUNT, r"(\d+) (\w+)");
pattern!(
    REFRESH,
    r"^\S.*: (?:Refreshing state\.\.\.|Preparing import\.\.\.|Reading\.\.\.|Still reading\.\.\.|Read complete after|Refreshing\.\.\.)"
);
pattern!(
    PLAN_BEGINS,
    r"^(?:\S.*\s)?(?:(?:Terraform|OpenTofu) (?:used the selected|will perform|planned the)|Changes to Outputs:|No changes\.|Note: |Plan: )"
);
pattern!(NO_CHANGES, r"^(?:\S.*\s)?No changes\. ");
pattern!(OUTPUTS, r"^(?:\S.*\s)?Changes to Outputs:$");
// Whole lines without any value: numbers and words of Terraform and OpenTofu.
pattern!(
    TOTALS,
    r"^(?:Plan: (?:\d+ to [a-z]+(?:, |\.))+|(?:Apply|Destroy) complete! Resources: (?:\d+ [a-z]+(?:, |\.))+|Changes to Outputs:|No changes\. (?:Your infrastructure matches the configuration|Infrastructure is up-to-date|No objects need to be destroyed|Your infrastructure still matches the configuration)\.)$"
);
pattern!(OUTSIDE, r"^(?:\S.*\s)?Note: Objects have changed outside of ");

/// Returns true for a line, without ANSI codes, that has totals and no values. No mask of people applies to it.
pub fn is_total(line: &str) -> bool {
    matches(&TOTALS, line.trim_end())
}

/// Returns the totals of a plan's text (without ANSI codes): all `Plan:` lines summed, or one of the "No changes" sentences. `None` if the
/// text has neither (nor `Changes to Outputs:`).
pub fn plan_summary(text: &str) -> Option<PlanSummary> {
    let mut summary = PlanSummary::default();
    let (mut planned, mut unchanged, mut outputs, mut forget_counted) = (false, false, false, false);
    for line in text.lines() {
        let plain = line.trim_end();
        if plain.contains("Plan: ") {
            for (count, what) in counts(&PLAN, &COUNT, plain) {
                planned = true;
                match what {
                    "add" => summary.add += count,
                    "change" => summary.change += count,
                    "destroy" => summary.destroy += count,
                    "import" => summary.import += count,
                    "forget" => (summary.forget, forget_counted) = (summary.forget + count, true),
                    _ => {}
                }
            }
        }
        unchanged |= matches(&NO_CHANGES, plain);
        outputs |= matches(&OUTPUTS, plain);
        summary.changes_outside |= matches(&OUTSIDE, plain);
    }
    if !planned && !unchanged && !outputs {
        return None;
    }
    if planned && !forget_counted {
        // OpenTofu counts forgotten resources in its sentence, Terraform does not.
        summary.forget = plan_resources(text).iter().filter(|r| r.action == ResourceAction::Forget).count() as u64;
    }
    summary.no_changes = unchanged && !planned && !outputs;
    summary.outputs_only = outputs && !planned;
    Some(summary)
}

/// Returns the sums of added, changed and destroyed resources of all `Apply complete!` and `Destroy complete!` lines.
pub fn apply_counts(text: &str) -> Option<(u64, u64, u64)> {
    let mut sums = None;
    for line in text.lines().map(str::trim_end).filter(|line| line.contains(" complete! Resources: ")) {
        for (count, what) in counts(&APPLIED, &APPLIED_COUNT, line) {
            let (added, changed, destroyed) = sums.get_or_insert((0, 0, 0));
            match what {
                "added" => *added += count,
                "changed" => *changed += count,
                "destroyed" => *destroyed += count,
                _ => {}
            }
        }
    }
    sums
}

fn matches(regex: &Option<Regex>, line: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(line))
}

/// Returns the number and word of each part of the sentence in this line.
fn counts<'t>(sentence: &Option<Regex>, part: &Option<Regex>, line: &'t str) -> Vec<(u64, &'t str)> {
    let found = sentence.as_ref().and_then(|regex| regex.captures(line)).and_then(|captures| captures.get(1));
    let (Some(found), Some(part)) = (found, part) else { return Vec::new() };
    let parts = part.captures_iter(found.as_str());
    parts.filter_map(|c| Some((c.get(1)?.as_str().parse().ok()?, c.get(2)?.as_str()))).collect()
}

/// Returns the part of `terraform plan`'s output for readers. It begins after the last `Refreshing state...` line before the plan, and has
/// no ANSI codes and no advice to run `terraform apply` on the plan file.
pub fn plan_text(output: &str) -> String {
    let text = strip_ansi(output);
    let lines: Vec<&str> = text.lines().collect();
    // Only before the start of the plan, so that no value in it can cut it.
    let begin = lines.iter().position(|line| matches(&PLAN_BEGINS, line)).unwrap_or(lines.len());
    let first = lines[..begin].iter().rposition(|line| matches(&REFRESH, line)).map_or(0, |last| last + 1);
    let mut kept: Vec<&str> = lines[first..].to_vec();
    if let Some(saved) = kept.iter().rposition(|line| line.starts_with("Saved the plan to: ")) {
        let advice = |line: &&str| line.starts_with("    terraform apply ") || line.starts_with("    tofu apply ");
        if let Some(end) = kept[saved..].iter().position(advice) {
            let rule = kept[..saved].iter().rposition(|line| !line.is_empty() && line.chars().all(|c| c == '─'));
            let start = rule.filter(|rule| saved - rule <= 2).unwrap_or(saved);
            kept.drain(start..=saved + end);
        }
    }
    kept.join("\n").trim_matches('\n').trim_end().to_owned()
}

/// Returns the plan in an output without ANSI codes, up to the end of the text. Returns all of it if no plan begins.
pub fn planned_text(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| matches(&PLAN_BEGINS, line)).unwrap_or_default();
    lines[begin..].join("\n").trim_matches('\n').trim_end().to_owned()
}

/// Returns the text without ANSI escape sequences and control characters except newline and tab.
pub fn strip_ansi(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next() {
                // Parameters up to a final letter.
                Some('[') => while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // A title or link up to its terminator.
                Some(']' | 'P' | '_' | '^' | 'X') => {
                    while let Some(c) = rest.next() {
                        if c == '\u{7}' || c == '\n' || (c == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                            if c == '\n' {
                                plain.push(c);
                            }
                            break;
                        }
                    }
                }
                Some('(' | ')') => drop(rest.next()),
                Some('\n') => plain.push('\n'),
                _ => {}
            },
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}
