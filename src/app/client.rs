//! `tidelock runs`, `pulls`, `locks`, `logs`, `unlock` and `drift`: a client of a server's API. `tidelock token` makes the tokens that it
//! takes.

mod call;
mod lists;
mod logs;
mod token;

use super::{fail, misused, not_taken, say};
use crate::settings::{ClientSettings, IAP_VARIABLE, SERVER_VARIABLE, SettingsError, TOKEN_VARIABLE};
use anyhow::{Context as _, Result};
use call::ApiClient;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::process::ExitCode;
pub(super) use token::{command as token_command, run as run_token};

/// Names of the commands.
const COMMANDS: [&str; 6] = ["runs", "pulls", "locks", "logs", "unlock", "drift"];

/// Returns the name of the command that this word is.
pub(super) fn named(word: &str) -> Option<&'static str> {
    COMMANDS.into_iter().find(|name| *name == word)
}

/// Returns the commands for completions and the manual.
pub(super) fn commands() -> [Command; 6] {
    COMMANDS.map(command)
}

/// Returns a command; its name is that of its manual page, and of its usage with `tidelock` in front.
fn command(name: &'static str) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let repository = || text("repository", "NAME", "owner/name, or host/owner/name");
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the server's answer");
    let command = match name {
        "runs" => Command::new("runs")
            .about("Lists what a server has run, the newest first")
            .arg(repository())
            .arg(text("pull", "NUMBER", "Number of the pull request, or drift"))
            .arg(text("project", "NAME", "Directory, name, or directory/workspace"))
            .arg(text("person", "LOGIN", "Who asked"))
            .arg(text("command", "NAME", "plan, apply, …"))
            .arg(text("result", "RESULT", "running, succeeded, failed, locked, stopped or ended"))
            .arg(
                Arg::new("limit")
                    .long("limit")
                    .value_name("N")
                    .default_value("20")
                    .value_parser(value_parser!(u16).range(1..=1000))
                    .help("Most runs to list"),
            )
            .arg(json()),
        "pulls" => Command::new("pulls")
            .about("Lists the open pull requests that a server knows, with the states of their projects")
            .arg(repository())
            .arg(json()),
        "locks" => Command::new("locks").about("Lists who has which project, and who waits for it").arg(json()),
        "logs" => Command::new("logs")
            .about("Prints the log of a job, or of all jobs of a run")
            .after_help("With --follow the exit code is 0 if the job or the run has succeeded, 1 if not, and 2 if that cannot be learned.")
            .arg(
                Arg::new("id").value_name("ID").required(true).help("Id of a job or a run, or the address of its page"),
            )
            .arg(
                Arg::new("follow")
                    .long("follow")
                    .short('f')
                    .action(ArgAction::SetTrue)
                    .help("Print the log as it grows, until the job or the run ends"),
            ),
        "unlock" => {
            Command::new("unlock").about("Deletes a lock and the plan under it, and tells the pull request").arg(
                Arg::new("name")
                    .value_name("NAME")
                    .required(true)
                    .help("Name of the lock, as `tidelock locks` prints it"),
            )
        }
        _ => Command::new("drift")
            .about("Prints what is known of the drift of a repository's projects")
            .arg(repository().required(true))
            .arg(text("type", "HOST", "Kind of the host, as the API calls it").required(true))
            .arg(json()),
    };
    let server = format!("Address of the server [env: {SERVER_VARIABLE}]");
    let about_tokens = format!(
        "{TOKEN_VARIABLE} has the token, which `tidelock token` makes. Behind Identity-Aware Proxy, {IAP_VARIABLE} has an OpenID Connect \
         token for it: gcloud auth print-identity-token --audiences=CLIENT_ID"
    );
    let after = match command.get_after_help() {
        Some(own) => format!("{own}\n\n{about_tokens}"),
        None => about_tokens,
    };
    command.arg(Arg::new("server").long("server").value_name("URL").help(server)).after_help(after)
}

/// Runs one of the commands with the arguments after its name.
pub(super) fn run(name: &'static str, args: Vec<OsString>) -> ExitCode {
    let title = format!("tidelock {name}");
    let program = std::iter::once(OsString::from(&title));
    let matches = match command(name).bin_name(&title).try_get_matches_from(program.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    let settings = match ClientSettings::from_process(matches.get_one::<String>("server").cloned()) {
        Ok(settings) => settings,
        Err(SettingsError::Help(text)) => return say(&text),
        Err(SettingsError::Invalid(text)) => return misused(&format!("{title}: {text}\n")),
    };
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no thread")
        .and_then(|runtime| runtime.block_on(dispatch(name, &matches, settings)));
    match done {
        Ok(code) => code,
        Err(error) => fail(&format!("{title}: {error:#}\n")),
    }
}

async fn dispatch(name: &str, matches: &ArgMatches, settings: ClientSettings) -> Result<ExitCode> {
    let client = ApiClient::new(settings)?;
    match name {
        "runs" => lists::runs(&client, matches).await,
        "pulls" => lists::pulls(&client, matches).await,
        "locks" => lists::locks(&client, matches).await,
        "unlock" => lists::unlock(&client, matches).await,
        "drift" => lists::drift(&client, matches).await,
        _ => logs::print(&client, matches).await,
    }
}
