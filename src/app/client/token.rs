//! `tidelock token`: makes a token of the API, with the server's secret and without the server.

use super::super::{misused, not_taken, say};
use crate::settings::{SettingsError, TOKEN_VARIABLE, api_secret};
use crate::web::access::api_tokens::{ApiToken, MAX_DAYS, MIN_SECRET, TokenScope};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Returns the command.
pub(in crate::app) fn command() -> Command {
    Command::new("token")
        .about("Makes a token for scripts that call a server's API")
        .after_help(format!(
            "Reads the server's api-secret: ATLANTIS_API_SECRET, TIDELOCK_API_SECRET, or api-secret in --config. It has to have {MIN_SECRET} \
             bytes or more. Prints the token, which belongs in {TOKEN_VARIABLE} or in the header X-Atlantis-Token. The server keeps no list \
             of tokens: another api-secret ends them all.\n\n\
             Scopes: read (everything that the API returns), plan, apply (also remediates drift), unlock (any lock), drift (starts a \
             detection)."
        ))
        .arg(Arg::new("owner").long("owner").value_name("NAME").required(true).help("Who has it, for the audit log"))
        .arg(
            Arg::new("scope")
                .long("scope")
                .value_name("SCOPE")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .default_value("read")
                .value_parser(TokenScope::ALL.map(TokenScope::as_str))
                .help("What it may do; several times for several"),
        )
        .arg(
            Arg::new("days")
                .long("days")
                .value_name("N")
                .default_value("90")
                .value_parser(value_parser!(u16).range(1..=i64::from(MAX_DAYS)))
                .help("Days until it ends"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(OsString))
                .help("The server's configuration file"),
        )
}

/// Runs `tidelock token` with the arguments after its name.
pub(in crate::app) fn run(args: Vec<OsString>) -> ExitCode {
    let title = "tidelock token";
    let name = std::iter::once(OsString::from(title));
    let matches = match command().bin_name(title).try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    match made(&matches) {
        Ok((token, end)) => {
            // The token alone is on standard output, for a pipe.
            let _ = std::io::stderr().write_all(format!("It ends at {end}.\n").as_bytes());
            say(&(token + "\n"))
        }
        Err(SettingsError::Help(text)) => say(&text),
        Err(SettingsError::Invalid(text)) => misused(&format!("{title}: {text}\n")),
    }
}

fn made(matches: &ArgMatches) -> Result<(String, Timestamp), SettingsError> {
    let wrong = SettingsError::Invalid;
    let secret = api_secret(matches.get_one::<OsString>("config").cloned())?;
    let secret = secret.ok_or_else(|| {
        wrong(
            "the server's api-secret is needed: ATLANTIS_API_SECRET, or api-secret in the file of --config".to_owned(),
        )
    })?;
    let given: Vec<&str> = matches.get_many::<String>("scope").into_iter().flatten().map(String::as_str).collect();
    let scopes = TokenScope::ALL.into_iter().filter(|scope| given.contains(&scope.as_str())).collect();
    let owner = matches.get_one::<String>("owner").map(String::as_str).unwrap_or_default();
    let days = matches.get_one::<u16>("days").copied().unwrap_or_default();
    let token = ApiToken::new(owner, scopes, days, Timestamp::now()).map_err(wrong)?;
    let text = token.sign(&secret).map_err(wrong)?;
    Ok((text.expose_secret().to_owned(), token.end()))
}
