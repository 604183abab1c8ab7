//! The only place where the parts are joined: settings to a running server, and its orderly end.

mod access;
mod bucket;
mod data_dir;
mod doctor;
mod heartbeat;
mod lead;
mod logging;
mod mail;
mod roles;
mod sandbox;
mod server;
mod services;
#[cfg(test)]
mod tests;
mod vault;

pub use server::Server;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "Tidelock: pull-request automation for Terraform and OpenTofu\n\n\
    Usage: tidelock <command>\n\n\
    Commands:\n  \
    server   run the server; `tidelock server --help` lists its flags\n  \
    sandbox  try it with no account anywhere: a forge, a repository and a server on this machine\n  \
    doctor   check everything that the server needs: settings, bucket, host, webhook, pages\n  \
    vault    look at the state in the bucket, verify it, go back to an older one\n  \
    version  print the version\n  \
    help     print this\n";

/// Runs the program with these arguments (the first is the program's name).
pub fn run(args: Vec<OsString>) -> ExitCode {
    let command = args.get(1).and_then(|arg| arg.to_str()).unwrap_or("help").to_owned();
    let rest = args.into_iter().skip(2).collect();
    match command.as_str() {
        "server" => server::run(rest),
        "sandbox" => sandbox::run(rest),
        "doctor" => doctor::run(rest),
        "vault" => vault::run(rest),
        "version" | "--version" | "-V" => say(&format!("tidelock {}\n", env!("CARGO_PKG_VERSION")), true),
        "help" | "--help" | "-h" => say(USAGE, true),
        other => say(&format!("tidelock: there is no command `{other}`\n\n{USAGE}"), false),
    }
}

/// Prints to standard output when all is well, to standard error otherwise.
fn say(text: &str, well: bool) -> ExitCode {
    use std::io::Write;
    // Nobody may be listening; that changes nothing about the exit code.
    let _ =
        if well { std::io::stdout().write_all(text.as_bytes()) } else { std::io::stderr().write_all(text.as_bytes()) };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
