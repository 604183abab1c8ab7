//! The command line as a whole: shell completions, manual pages, and suggestions for a mistyped command.

use super::{COMMANDS, check, client, doctor, fail, misused, not_taken, remote_job, run_job, sandbox, say, vault};
use crate::{policy, settings};
use clap::{Arg, Command, value_parser};
use clap_complete::Shell;
use std::ffi::OsString;
use std::process::ExitCode;

/// Commands with a manual page, and its name.
const PAGES: [(&str, &str); 17] = [
    ("server", "tidelock-server"),
    ("sandbox", "tidelock-sandbox"),
    ("doctor", "tidelock-doctor"),
    ("check", "tidelock-check"),
    ("vault", "tidelock-vault"),
    ("runs", "tidelock-runs"),
    ("pulls", "tidelock-pulls"),
    ("locks", "tidelock-locks"),
    ("logs", "tidelock-logs"),
    ("unlock", "tidelock-unlock"),
    ("drift", "tidelock-drift"),
    ("token", "tidelock-token"),
    (policy::COMMAND, "tidelock-policy-check"),
    (remote_job::COMMAND, "tidelock-run-job"),
    ("completions", "tidelock-completions"),
    ("man", "tidelock-man"),
    ("version", "tidelock-version"),
];

/// Returns every command with its flags. It only describes them: `app::run` decides which one runs.
fn tree() -> Command {
    let server = settings::command_line().name("server").no_binary_name(false);
    Command::new("tidelock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Pull-request automation for Terraform and OpenTofu")
        .subcommand(doctor::command(server.clone()))
        .subcommand(check::command(server.clone()))
        .subcommand(server)
        .subcommand(sandbox::command().name("sandbox"))
        .subcommand(vault::command().name("vault"))
        .subcommands(client::commands())
        .subcommand(client::token_command())
        .subcommand(policy::command())
        .subcommand(run_job::command().name(remote_job::COMMAND))
        .subcommand(completions_command().name("completions"))
        .subcommand(manual_command().name("man"))
        .subcommand(Command::new("version").about("Prints the version"))
}

fn completions_command() -> Command {
    Command::new("tidelock completions")
        .about("Prints a script that completes commands and flags in a shell")
        .after_help("For bash: tidelock completions bash > /etc/bash_completion.d/tidelock")
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)))
}

fn manual_command() -> Command {
    Command::new("tidelock man")
        .about("Prints a manual page: of everything, or of one command")
        .after_help("To read one: tidelock man server | man -l -")
        .arg(Arg::new("command").value_name("COMMAND").value_parser(PAGES.map(|(command, _)| command)))
}

/// Runs `tidelock completions` with the arguments after its name.
pub(super) fn completions(args: Vec<OsString>) -> ExitCode {
    let name = std::iter::once(OsString::from("tidelock completions"));
    let matches = match completions_command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    let Some(shell) = matches.get_one::<Shell>("shell") else { return misused("tidelock completions: name a shell\n") };
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut tree(), "tidelock", &mut script);
    say(&String::from_utf8_lossy(&script))
}

/// Runs `tidelock man` with the arguments after its name.
pub(super) fn manual(args: Vec<OsString>) -> ExitCode {
    let name = std::iter::once(OsString::from("tidelock man"));
    let matches = match manual_command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    match page(matches.get_one::<String>("command").map(String::as_str)) {
        Ok(page) => say(&page),
        Err(error) => fail(&format!("tidelock man: {error}\n")),
    }
}

/// Renders the manual page of a command, or of the program.
fn page(command: Option<&str>) -> std::io::Result<String> {
    let tree = tree();
    let named = PAGES.into_iter().find(|(name, _)| Some(*name) == command);
    let found = named.and_then(|(name, title)| Some(tree.find_subcommand(name)?.clone().name(title)));
    let command = found.unwrap_or(tree);
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Returns the command that a mistyped word probably means.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    let word: String = word.trim_start_matches('-').chars().take(30).collect();
    let near = COMMANDS.into_iter().map(|name| (strsim::damerau_levenshtein(name, &word), name)).min()?;
    (near.0 * 2 < near.1.len()).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_commands_are_recognised() {
        for (word, meant) in [("srever", "server"), ("sevrer", "server"), ("--hepl", "help"), ("docter", "doctor")] {
            assert_eq!(nearest(word), Some(meant), "{word}");
        }
        for word in ["apply", "", "x", "destroy-everything"] {
            assert_eq!(nearest(word), None, "{word}");
        }
    }

    #[test]
    fn completions_and_manual_pages_know_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut tree(), "tidelock", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["sandbox", "repo-allowlist", "forge-port", "expect-iap", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        let server = page(Some("server")).unwrap();
        assert!(server.contains("repo\\-allowlist") && server.contains("tidelock\\-server"), "{server}");
        assert!(page(None).unwrap().contains("doctor"));
        tree().debug_assert();
    }
}
