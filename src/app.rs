//! The only place that joins the parts, from the settings to a running server and its orderly end.

mod access;
mod bucket;
mod check;
mod cli;
mod client;
mod comment_templates;
mod configuration;
mod data_dir;
mod doctor;
mod executors;
mod file_stamp;
mod heartbeat;
mod hosts;
mod https;
mod inbox;
mod job_sweep;
mod lead;
mod lease_renewal;
mod logging;
mod module_origins;
mod policies;
mod reload;
mod retention;
mod roles;
mod run_job;
mod sandbox;
mod server;
mod services;
mod sleep;
#[cfg(test)]
mod tests;
mod vault;

pub use hosts::JoinedHost;
pub use server::Server;

use crate::executors::run_job as remote_job;
use crate::policy;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

const USAGE: &str = "Tidelock: pull-request automation for Terraform and OpenTofu\n\n\
    Usage: tidelock <command>\n\n\
    Commands:\n  \
    server       run the server; `tidelock server --help` lists all its flags\n  \
    sandbox      try it with no account anywhere: a forge, a repository and a server on this machine\n  \
    doctor       check everything that the server needs: settings, bucket, host, webhook, pages\n  \
    check        print what the configuration of a repository comes to, and where each value comes from\n  \
    vault        look at the state in the bucket, verify it, go back to an older one\n  \
    runs         list what a server has run; also pulls, locks, logs, unlock and drift: a client of its API\n  \
    token        make a token for that client, or for scripts\n  \
    policy-check check a plan, as JSON, against policies in Rego, as the server does\n  \
    run-job      run one job of a server on this machine; executors start it\n  \
    completions  print what completes commands and flags: bash, elvish, fish, powershell, zsh\n  \
    man          print the manual page of all, or of one command\n  \
    version      print the version\n  \
    help         print this; `tidelock help server` lists the flags that most servers need\n";

/// All commands.
const COMMANDS: [&str; 18] = [
    "server",
    "sandbox",
    "doctor",
    "check",
    "vault",
    "runs",
    "pulls",
    "locks",
    "logs",
    "unlock",
    "drift",
    "token",
    policy::COMMAND,
    remote_job::COMMAND,
    "completions",
    "man",
    "version",
    "help",
];

/// Runs the program with these arguments (the first is the program's name).
pub fn run(args: Vec<OsString>) -> ExitCode {
    let command = args.get(1).and_then(|arg| arg.to_str()).unwrap_or("help").to_owned();
    let mut rest: Vec<OsString> = args.into_iter().skip(2).collect();
    let asked = rest.first().and_then(|arg| arg.to_str()).map(str::to_owned);
    let command = match asked {
        Some(asked) if command == "help" && COMMANDS.contains(&asked.as_str()) => {
            // The short list: all flags of the server are many screens.
            rest = vec!["-h".into()];
            asked
        }
        _ => command,
    };
    match command.as_str() {
        "server" => server::run(rest),
        "sandbox" => sandbox::run(rest),
        "doctor" => doctor::run(rest),
        "check" => check::run(rest),
        "vault" => vault::run(rest),
        "token" => client::run_token(rest),
        policy::COMMAND => policy::run(rest),
        remote_job::COMMAND => run_job::run(rest),
        "version" | "--version" | "-V" => say(&format!("tidelock {}\n", env!("CARGO_PKG_VERSION"))),
        "help" | "--help" | "-h" => say(USAGE),
        "completions" => cli::completions(rest),
        "man" => cli::manual(rest),
        other => match (client::named(other), cli::nearest(other)) {
            (Some(name), _) => client::run(name, rest),
            (None, Some(meant)) => misused(&format!(
                "tidelock: there is no command `{other}`; did you mean `tidelock {meant}`? `tidelock help` lists all\n"
            )),
            (None, None) => misused(&format!("tidelock: there is no command `{other}`\n\n{USAGE}")),
        },
    }
}

/// Prints what is wrong with the command line to standard error; exit code 2.
fn misused(text: &str) -> ExitCode {
    fail(text);
    ExitCode::from(2)
}

/// Prints clap's answer to a command line that it did not accept: requested help, or the error.
fn not_taken(error: &clap::Error) -> ExitCode {
    if error.use_stderr() { misused(&error.to_string()) } else { say(&error.to_string()) }
}

/// Prints to standard output; success, even if the stream is closed.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints to standard error; failure.
fn fail(text: &str) -> ExitCode {
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::FAILURE
}
