//! Checks arguments for Terraform after `--`: none may replace the plan file, write a file, name another state, or read a file from
//! elsewhere. Pure, and the first check of a command, so that a refused argument costs nothing.
//!
//! Terraform reads flags as Go does: one dash or two, `-name=value` or `-name value`, switches also as `-name=true`. This module does not
//! guess which argument is the value of the one before it: it checks each as if it were a flag.

use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::{Fault, Reason};
use std::path::{Component, Path, PathBuf};

/// Predicate that accepts the value of a flag.
type Fits = fn(&str) -> bool;

/// Flags that an apply accepts with a value: none of them alters the changes or the state that they are applied to.
const APPLY_VALUES: [(&str, Fits); 3] = [("lock", is_switch), ("lock-timeout", is_duration), ("parallelism", is_count)];
/// Flags that an apply accepts with or without a value.
const APPLY_SWITCHES: [&str; 2] = ["compact-warnings", "no-color"];
/// Flags that write a file, read another configuration and so another state, or show secrets.
const REFUSED: [&str; 5] = ["out", "generate-config-out", "json-into", "config", "show-sensitive"];
/// Prefixes of flags that name another state, or a file for a copy of it.
const REFUSED_BEGINNINGS: [&str; 2] = ["state", "backup"];
/// Flags that read the file that their value names.
const READING: [&str; 3] = ["var-file", "target-file", "exclude-file"];
/// Maximum length of an argument in an answer, in characters; the rest is cut off.
const QUOTED: usize = 120;

/// Returns the fault of a command with a refused extra argument. `roots` are the directories besides the checkout from which `-var-file`
/// may read (`--var-file-allowlist`).
pub(super) fn find_refused(command: &Command, roots: &[PathBuf], executable: &str) -> Option<Fault> {
    let args = &command.extra_args;
    let message = match command.name {
        CommandName::Apply => args.iter().find(|arg| !is_harmless_for_apply(arg)).map(|arg| of_apply(arg, executable)),
        name => args.iter().find(|arg| is_refused(arg)).map(|arg| of_others(arg, name)).or_else(|| {
            let path = outside(args, roots)?;
            Some(of_path(path, roots))
        }),
    };
    message.map(|message| Fault { reason: Reason::NotPermitted, message, output: String::new() })
}

fn of_apply(arg: &str, executable: &str) -> String {
    format!(
        "`apply` does not accept `{}`, because it applies the saved plan. It accepts only `-lock=`, `-lock-timeout=`, \
         `-parallelism=`, `-compact-warnings` and `-no-color`, each with its value after `=`. Plan with other arguments: \
         `{executable} plan -- ARGUMENTS`, then `{executable} apply`",
        shown(arg)
    )
}

fn of_others(arg: &str, name: CommandName) -> String {
    format!(
        "`{}` does not accept `{}`. Arguments must not write files, select another state or configuration, or show secrets. Comment \
         the command again without it",
        name.spoken(),
        shown(arg)
    )
}

fn of_path(path: &str, roots: &[PathBuf]) -> String {
    let roots: Vec<String> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
    format!(
        "A file `{}` is not allowed for `-var-file`: use a file of the repository, or one below {} (`--var-file-allowlist`)",
        shown(path),
        roots.join(", ")
    )
}

/// Returns an argument to be shown between backticks: shortened, and with its own backticks replaced.
fn shown(arg: &str) -> String {
    arg.chars().take(QUOTED).map(|letter| if letter == '`' { '\'' } else { letter }).collect()
}

/// Splits a flag into its name and value; `None` without a leading dash.
fn flag(arg: &str) -> Option<(&str, Option<&str>)> {
    let rest = arg.strip_prefix('-')?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    Some(rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value))))
}

fn is_harmless_for_apply(arg: &str) -> bool {
    let Some((name, value)) = flag(arg) else { return false };
    match value {
        None => APPLY_SWITCHES.contains(&name),
        Some(value) if APPLY_SWITCHES.contains(&name) => is_switch(value),
        Some(value) => APPLY_VALUES.iter().any(|(known, fits)| *known == name && fits(value)),
    }
}

/// Returns true for Go's spellings of true and false.
fn is_switch(value: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"].contains(&value)
}

/// Returns true for a duration such as `90s` or `1m30s`.
fn is_duration(value: &str) -> bool {
    // A subset of the format of Go's time.ParseDuration. A pattern that does not compile would allow nothing.
    let form = regex::Regex::new(r"^([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))+$");
    value == "0" || form.is_ok_and(|form| form.is_match(value))
}

fn is_count(value: &str) -> bool {
    value.parse::<u16>().is_ok_and(|count| count > 0)
}

fn is_refused(arg: &str) -> bool {
    flag(arg).is_some_and(|(name, _)| {
        REFUSED.contains(&name) || REFUSED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    })
}

/// Returns the first file named by a flag that lies outside of the checkout and of the allowed roots. Relative paths are relative to the
/// project's directory; those with `..` are refused.
fn outside<'a>(args: &'a [String], roots: &[PathBuf]) -> Option<&'a str> {
    let named = args.iter().enumerate().filter_map(|(at, arg)| match flag(arg) {
        Some((name, Some(value))) if READING.contains(&name) => Some(value),
        Some((name, None)) if READING.contains(&name) => Some(args.get(at + 1).map_or("", String::as_str)),
        _ => None,
    });
    named.into_iter().find(|value| {
        let path = Path::new(value);
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let relative = path.is_relative() && !value.starts_with('~') && !climbs;
        let allowed = path.is_absolute() && !climbs && roots.iter().any(|root| path.starts_with(root));
        !relative && !allowed
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::command::Trigger;

    fn message(name: CommandName, args: &str) -> Option<String> {
        let mut command = Command::new(name, Trigger::Comment, "alice");
        command.extra_args = args.split(' ').filter(|arg| !arg.is_empty()).map(str::to_owned).collect();
        find_refused(&command, &[PathBuf::from("/etc/tidelock/vars")], "atlantis").map(|fault| fault.message)
    }

    #[test]
    fn an_apply_takes_a_short_list_of_arguments() {
        for fine in [
            "",
            "-lock=false",
            "--lock=true",
            "-lock-timeout=90s -parallelism=20",
            "-lock-timeout=1m30s",
            "-lock-timeout=0",
            "-compact-warnings -no-color",
            "--no-color=true",
        ] {
            assert_eq!(message(CommandName::Apply, fine), None, "{fine}");
        }
        for bad in [
            "-auto-approve -destroy -backup",
            "-backup",
            "-state",
            "-state-out",
            "-state=x",
            "-lock-timeout",
            "-lock-timeout 10s",
            "-lock",
            "-lock=maybe",
            "-lock-timeout=",
            "-lock-timeout=1mus",
            "-lock-timeout=1.5.5s",
            "-lock-timeout=1hms",
            "-lock-timeout=soon",
            "-parallelism=",
            "-parallelism=0",
            "-no-color=-backup",
            "-no-color -destroy",
            "---no-color",
            "-target=a.b",
            "--target=a.b",
            "-var=a=b",
            "-var-file=a.tfvars",
            "-auto-approve",
            "-input=false",
            "-refresh-only",
            "-replace=a.b",
            "-json",
            "another.tfplan",
            "--",
            "-",
        ] {
            assert!(message(CommandName::Apply, bad).is_some(), "{bad}");
        }
        assert!(
            message(CommandName::Apply, "-no-color -destroy").is_some_and(|text| text.contains(" accept `-destroy`,"))
        );
    }

    #[test]
    fn no_command_writes_a_file_or_names_another_state() {
        for name in [CommandName::Plan, CommandName::Import, CommandName::StateRm] {
            for fine in
                ["", "-var x=y", "-target=a.b -lock=false", "-destroy", "-refresh=false", "-var-file=prod.tfvars"]
            {
                assert_eq!(message(name, fine), None, "{fine}");
            }
            for bad in [
                "-out=x",
                "--out=x",
                "-out x",
                "-state=x",
                "-state x",
                "--state-out=x",
                "-state-out x",
                "-backup=x",
                "-backup",
                "--backup-out=x",
                "-generate-config-out=x",
                "--generate-config-out x",
                "-json-into=x",
                "-config=../other",
                "-show-sensitive",
                "-var x=y -out=z",
                "-var -state=x",
            ] {
                assert!(message(name, bad).is_some(), "{bad}");
            }
        }
    }

    #[test]
    fn only_paths_in_the_checkout_or_an_allowed_root_pass() {
        for (args, refuse) in [
            ("-var-file=prod.tfvars", false),
            ("-var-file prod.tfvars", false),
            ("-var-file=/etc/tidelock/vars/a.tfvars", false),
            ("-var=file=/etc/passwd", false),
            ("--var-file=/etc/passwd", true),
            ("-var-file=../../x", true),
            ("-var-file=~/x", true),
            ("-var-file=/etc/tidelock/vars/../../passwd", true),
            ("-var-file /etc/passwd", true),
            // Terraform takes the second word as the first one's value, and the third as a flag.
            ("-var -var-file -var-file=/etc/passwd", true),
            ("-var-file a.tfvars -var-file /etc/passwd", true),
            ("-target-file=/etc/passwd", true),
            ("-exclude-file /etc/passwd", true),
        ] {
            for name in [CommandName::Plan, CommandName::Import, CommandName::StateRm] {
                assert_eq!(message(name, args).is_some(), refuse, "{args}");
            }
        }
    }
}
