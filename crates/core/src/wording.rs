//! Words of comments and statuses: counts, durations, commands, reasons.

use crate::domain::ProjectId;
use crate::domain::command::{Command, Target};
use crate::domain::outcome::{Applied, PlanSummary, Reason, Verification};
use crate::domain::requirement::Requirement;
use jiff::Timestamp;
use std::time::Duration;

/// Longest command that a record of a run keeps, in characters.
const MAX_TYPED: usize = 300;

/// Returns `1 to add, 1 to change, 1 to destroy`, with imports and forgotten resources if there are any, in Terraform's order.
pub fn plan_counts(summary: &PlanSummary) -> String {
    if summary.no_changes {
        return "No changes".to_owned();
    }
    if summary.outputs_only {
        return "Changes of outputs only".to_owned();
    }
    let mut parts = Vec::new();
    if summary.import > 0 {
        parts.push(format!("{} to import", summary.import));
    }
    parts.push(format!("{} to add, {} to change, {} to destroy", summary.add, summary.change, summary.destroy));
    if summary.forget > 0 {
        parts.push(format!("{} to forget", summary.forget));
    }
    parts.join(", ")
}

/// Returns `1 added, 1 changed, 0 destroyed`, with what a plan at the end of the apply showed.
pub(crate) fn applied_counts(applied: &Applied) -> String {
    let Applied { added, changed, destroyed, verification, .. } = applied;
    format!("{added} added, {changed} changed, {destroyed} destroyed{}", verified(verification.as_ref()))
}

/// Returns what a plan at the end of an apply showed, to be added to `applied`; empty if there was none.
pub(crate) fn verified(verification: Option<&Verification>) -> &'static str {
    match verification {
        None => "",
        Some(found) if found.is_clean() => ", nothing is left",
        Some(Verification::Planned(Some(_))) => ", changes are left",
        Some(Verification::Planned(None) | Verification::Failed) => ", not verified",
    }
}

/// Returns true if there are totals; a workflow without Terraform prints none.
pub(crate) fn has_totals(summary: &PlanSummary) -> bool {
    *summary != PlanSummary { changes_outside: summary.changes_outside, ..PlanSummary::default() }
}

/// Formats a duration, coarser the longer it is: `0.4 s`, `12 s`, `1 min 5 s`, `2 h 3 min`, `3 d`.
pub fn duration(millis: u64) -> String {
    match millis.saturating_add(500) / 1000 {
        0 => format!("0.{} s", (millis / 100).max(1)),
        seconds @ 1..86400 => crate::domain::duration::format(Duration::from_secs(seconds)),
        seconds => format!("{} d", seconds / 86400),
    }
}

/// Formats an age in one unit: `2 h`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    match now.as_second().saturating_sub(since.as_second()).max(0) {
        0..60 => "less than a minute".to_owned(),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86400 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86400),
    }
}

/// Formats a command as people type it, with the executable name: `plan -p network -- -var x=y`.
pub(crate) fn command_line(
    executable: &str,
    name: &str,
    project: Option<&ProjectId>,
    positional: &[String],
    extra_args: &[String],
) -> String {
    let flags = project.map(project_flags).unwrap_or_default();
    format!("{executable} {name}{flags}") + &arguments(positional, extra_args)
}

/// Returns the flags that name a project, in the shortest complete way: ` -p network`.
pub(crate) fn project_flags(project: &ProjectId) -> String {
    match (&project.name, project.dir.as_str(), project.workspace.as_str()) {
        (Some(name), _, _) => format!(" -p {}", quoted(name)),
        (None, ".", workspace) if workspace != "default" => format!(" -w {}", quoted(workspace)),
        (None, dir, "default") => format!(" -d {}", quoted(dir)),
        (None, dir, workspace) => format!(" -d {} -w {}", quoted(dir), quoted(workspace)),
    }
}

/// Returns the flags of a target, as they are typed: ` -d a -d b`.
pub(crate) fn target_flags(target: &Target) -> String {
    target.flags().map(|(flag, value)| format!(" {flag} {}", quoted(&value))).collect()
}

/// Returns a command as people type it, without the executable: its target, `--force`, `--only` and arguments, cut to
/// 300 characters.
pub fn typed(command: &Command) -> String {
    let Command { name, target, positional, extra_args, force, only, .. } = command;
    let flags = [(*force, " --force"), (*only, " --only")];
    let flags: String = flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag).collect();
    let line = format!("{}{}{flags}{}", name.spoken(), target_flags(target), arguments(positional, extra_args));
    line.chars().take(MAX_TYPED).collect()
}

/// Returns the arguments after a command's flags: ` a b -- -c`.
pub(crate) fn arguments(positional: &[String], extra_args: &[String]) -> String {
    let dashes = (!extra_args.is_empty()).then(|| "--".to_owned());
    let words =
        positional.iter().map(|word| quoted(word)).chain(dashes).chain(extra_args.iter().map(|word| quoted(word)));
    words.map(|word| format!(" {word}")).collect()
}

/// Quotes a word of a command if needed.
pub(crate) fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || "+-./:=@_,%".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), |word| word.into_owned())
}

/// First words of our own sentences. Any other first word may be a name (`alice`, `main.tf`).
const OPENERS: [&str; 19] = [
    "a", "an", "another", "autoplan", "by", "files", "it", "its", "locking", "more", "no", "nobody", "not", "only",
    "run", "somebody", "the", "there", "this",
];

/// Capitalizes the first letter, unless the first word may be a name.
pub(crate) fn capital(text: &str) -> String {
    match text.split(' ').next() {
        Some(word) if OPENERS.contains(&word) => text[..1].to_ascii_uppercase() + &text[1..],
        _ => text.to_owned(),
    }
}

/// Formats a sentence: with a capital letter, and a full stop unless it ends with another mark.
pub(crate) fn sentence(text: &str) -> String {
    let text = capital(text.trim());
    let ended = text.is_empty() || text.contains('\n') || text.ends_with(['.', ':', '!', '?', '`']);
    if ended { text } else { text + "." }
}

/// Returns the kind of error, in a word or two.
pub(crate) fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Locked => "locked",
        Reason::Frozen => "applies are frozen",
        Reason::Requirement => "a requirement is not met",
        Reason::Dependency => "a dependency is not applied",
        Reason::Policy => "a policy failed",
        Reason::StalePlan => "the plan is stale",
        Reason::NoPlan => "there is no plan",
        Reason::NotPlanned => "a changed project is not planned",
        Reason::NotPermitted => "not permitted",
        Reason::Config => "configuration",
        Reason::Init => "init",
        Reason::Plan => "plan",
        Reason::Apply => "apply",
        Reason::Import => "import",
        Reason::StateRm => "state rm",
        Reason::Version => "version",
        Reason::ForceUnlock => "force-unlock",
        Reason::Timeout => "timed out",
        Reason::Cancelled => "cancelled",
        Reason::Interrupted => "interrupted",
        Reason::Internal => "internal error",
    }
}

/// Prefix of the name of a guard among the requirements of a command.
const GUARD: &str = "guard ";

/// Returns the requirement's name for a guard.
pub fn guard_requirement(name: &str) -> String {
    format!("{GUARD}{name}")
}

/// Returns what an unmet requirement means for the pull request.
pub fn unmet(requirement: &str) -> String {
    match Requirement::of_name(requirement) {
        Some(Requirement::Approved) => "not approved".to_owned(),
        Some(Requirement::Mergeable) => "not mergeable".to_owned(),
        Some(Requirement::Undiverged) => "behind its base branch (diverged)".to_owned(),
        None if requirement == "policies_passed" => "policies have not passed".to_owned(),
        None if requirement.starts_with(GUARD) => format!("{requirement} tripped"),
        None => format!("requirement {requirement} not met"),
    }
}

/// Maximum number of projects that a short text names.
const MAX_LABELS: usize = 5;

/// Returns `net, dns and 3 more`.
pub(crate) fn labels(projects: &[ProjectId]) -> String {
    let named = projects.iter().take(MAX_LABELS).map(ProjectId::label).collect::<Vec<_>>().join(", ");
    match projects.len().saturating_sub(MAX_LABELS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Returns `1st`, `2nd`, `11th`.
pub(crate) fn nth(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, teen) if teen != 11 => "st",
        (2, teen) if teen != 12 => "nd",
        (3, teen) if teen != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(dir: &str, workspace: &str, name: Option<&str>) -> ProjectId {
        ProjectId { dir: dir.to_owned(), workspace: workspace.to_owned(), name: name.map(str::to_owned) }
    }

    #[test]
    fn commands_name_their_project_in_the_shortest_complete_way() {
        for (project, want) in [
            (project(".", "default", None), "atlantis plan -d ."),
            (project(".", "staging", None), "atlantis plan -w staging"),
            (project("infra/a", "default", None), "atlantis plan -d infra/a"),
            (project("infra/a", "prod", None), "atlantis plan -d infra/a -w prod"),
            (project("infra/a", "prod", Some("net")), "atlantis plan -p net"),
            (project("with space", "default", None), "atlantis plan -d 'with space'"),
        ] {
            assert_eq!(command_line("atlantis", "plan", Some(&project), &[], &[]), want);
        }
        let args = ["-var".to_owned(), "var=overridden".to_owned(), "-target=a[\"x\"]".to_owned()];
        assert_eq!(
            command_line("atlantis", "plan", None, &[], &args),
            "atlantis plan -- -var var=overridden '-target=a[\"x\"]'"
        );
    }

    #[test]
    fn sentences_begin_with_a_capital_letter_unless_with_a_name() {
        for (text, want) in [
            ("it was made for commit 1ef7634", "It was made for commit 1ef7634."),
            ("run `false`: exit status 1", "Run `false`: exit status 1."),
            ("another pull request was merged", "Another pull request was merged."),
            ("alice is in no team", "alice is in no team."),
            ("atlantis.yaml:2:1: unknown key", "atlantis.yaml:2:1: unknown key."),
            ("`x` is not there. Then: `atlantis plan`", "`x` is not there. Then: `atlantis plan`"),
            ("Two\nlines", "Two\nlines"),
            ("", ""),
        ] {
            assert_eq!(sentence(text), want);
        }
    }

    #[test]
    fn places_are_counted_as_people_do() {
        let told = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(nth);
        assert_eq!(told, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]);
    }

    #[test]
    fn durations_get_coarser() {
        for (millis, want) in [
            (0, "0.1 s"),
            (420, "0.4 s"),
            (12_400, "12 s"),
            (65_000, "1 min 5 s"),
            (120_000, "2 min"),
            (7_380_000, "2 h 3 min"),
            (300_000_000, "3 d"),
        ] {
            assert_eq!(duration(millis), want);
        }
    }
}
