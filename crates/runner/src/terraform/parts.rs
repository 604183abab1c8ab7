//! Plans of a part of a project: flags that leave something out, or plan something that differs from the code. Pure.
//!
//! Terraform reads flags as Go does: one dash or two, `-name=value` or `-name value`, switches also as `-name=true`. An argument that may
//! be the value of the one before it is not recognised as such: each argument is read as if it were a flag.

use serde::Deserialize;

/// Flags of Terraform and of OpenTofu that make a plan one of a part.
const FLAGS: [&str; 8] =
    ["-target", "-target-file", "-exclude", "-exclude-file", "-replace", "-destroy", "-refresh-only", "-invoke"];
/// Those of [`FLAGS`] that are switches.
const SWITCHES: [&str; 2] = ["-destroy", "-refresh-only"];
/// Go's spellings of false.
const OFF: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];
/// Terraform's warning below a plan with targets.
const TARGETED: &str = "Resource targeting is in effect";

/// The parts of a plan in JSON that show its completeness.
#[derive(Deserialize)]
struct ShownCompleteness {
    complete: Option<bool>,
    #[serde(default)]
    resource_changes: Vec<ReasonedChange>,
}

#[derive(Deserialize)]
struct ReasonedChange {
    action_reason: Option<String>,
}

/// Returns the flag of a partial plan that an argument is.
pub fn flag(arg: &str) -> Option<&'static str> {
    let name = if arg.starts_with("--") { arg.strip_prefix('-')? } else { arg };
    let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    let flag = FLAGS.into_iter().find(|flag| *flag == name)?;
    let is_off = SWITCHES.contains(&flag) && value.is_some_and(|value| OFF.contains(&value));
    (!is_off).then_some(flag)
}

/// Splits the value of `TF_CLI_ARGS`, or of another such variable, into arguments.
pub fn split_arguments(variable: &str) -> Vec<String> {
    shlex::split(variable).unwrap_or_else(|| variable.split_whitespace().map(str::to_owned).collect())
}

/// Returns the flags in a shell command that plans. Only lines with the word `plan` are read.
pub fn in_command(command: &str) -> Vec<&'static str> {
    let whole = command.replace("\\\n", " ");
    let between = |letter: char| letter.is_whitespace() || "\"'`;|&()".contains(letter);
    let lines = whole.lines().filter(|line| line.split(between).any(|word| word == "plan"));
    lines.flat_map(|line| line.split(between).filter_map(flag)).collect()
}

/// Returns the flags that a plan in JSON shows. Terraform before 1.8 does not show targets.
pub fn in_shown(shown: &str) -> Vec<&'static str> {
    let Ok(plan) = serde_json::from_str::<ShownCompleteness>(shown) else { return Vec::new() };
    let is_asked = |change: &ReasonedChange| change.action_reason.as_deref() == Some("replace_by_request");
    let replaces = plan.resource_changes.iter().any(is_asked).then_some("-replace");
    let targets = (plan.complete == Some(false)).then_some("-target");
    replaces.into_iter().chain(targets).collect()
}

/// Returns the flag that the text of a plan shows.
pub fn in_output(output: &str) -> Option<&'static str> {
    output.contains(TARGETED).then_some("-target")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_part_are_told_in_all_their_forms() {
        for (arg, want) in [
            ("-target=a.b", Some("-target")),
            ("--target", Some("-target")),
            ("-target-file=x", Some("-target-file")),
            ("-exclude=a.b", Some("-exclude")),
            ("--exclude-file", Some("-exclude-file")),
            ("-replace=a.b", Some("-replace")),
            ("-invoke=action.a.b", Some("-invoke")),
            ("-destroy", Some("-destroy")),
            ("--destroy=T", Some("-destroy")),
            ("-refresh-only=1", Some("-refresh-only")),
            ("-refresh-only=false", None),
            ("-destroy=0", None),
            ("-target=false", Some("-target")),
            ("-refresh=false", None),
            ("-var=x=-target", None),
            ("---target", None),
            ("target", None),
        ] {
            assert_eq!(flag(arg), want, "{arg}");
        }
        assert_eq!(split_arguments("-lock=false '-target=a.b[\"x y\"]'"), ["-lock=false", "-target=a.b[\"x y\"]"]);
        assert_eq!(split_arguments("-target='x"), ["-target='x"]);
    }

    #[test]
    fn commands_plans_and_their_texts_tell_of_a_part() {
        assert_eq!(in_command("terraform plan -out x \\\n  -target=a.b && echo done"), ["-target"]);
        assert_eq!(in_command("bash -c \"terraform plan '-destroy'\""), ["-destroy"]);
        assert!(in_command("tool -replace=x\nterraform plan -out x").is_empty());
        assert_eq!(in_shown(r#"{"complete": false}"#), ["-target"]);
        let replaced = r#"{"complete": true, "resource_changes": [{"action_reason": "replace_by_request"}, {}]}"#;
        assert_eq!(in_shown(replaced), ["-replace"]);
        assert!(in_shown(r#"{"complete": true}"#).is_empty() && in_shown("{}").is_empty() && in_shown("").is_empty());
        assert_eq!(in_output("Warning: Resource targeting is in effect\n"), Some("-target"));
    }
}
