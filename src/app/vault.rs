//! `tidelock vault`: lists and verifies the state in the bucket, and restores an older one. Only `import` writes to a bucket, and only to
//! an empty one.

mod list;
#[cfg(test)]
mod tests;
mod transfer;
mod verify;

use super::{bucket, fail, logging, not_taken, say};
use crate::settings::BucketAddress;
use crate::vault::Vault;
use crate::vault::bucket::Bucket;
use crate::vault::directory::Directory;
use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Default number of journal objects in the output of `ls`.
const LIMIT: &str = "20";

/// Output of a command, and its success.
#[derive(Debug)]
struct Report {
    text: String,
    well: bool,
}

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Text,
    Json,
}

/// Runs `tidelock vault` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let name = std::iter::once(OsString::from("tidelock vault"));
    let matches = match command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    logging::start("warn", logging::To::Stderr);
    let played = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no threads")
        .and_then(|runtime| runtime.block_on(dispatch(&matches)));
    match played {
        // Findings go to standard output too: they are the requested result.
        Ok(report) => {
            let printed = say(&report.text);
            if report.well { printed } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&format!("tidelock vault: {error:#}\n")),
    }
}

async fn dispatch(matches: &ArgMatches) -> Result<Report> {
    let Some((name, matches)) = matches.subcommand() else { return Err(anyhow!("name a command: see --help")) };
    let address = address(matches)?;
    let is_json = matches.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or_default();
    let format = if is_json { OutputFormat::Json } else { OutputFormat::Text };
    let at = matches.try_get_one::<u64>("at").ok().flatten().copied();
    let dir = matches.try_get_one::<PathBuf>("dir").ok().flatten().cloned().unwrap_or_default();
    match name {
        "ls" => {
            let limit = matches.get_one::<usize>("limit").copied().unwrap_or_default();
            list::run(&reader(&address).await?, limit, format).await
        }
        "verify" => verify::run(&reader(&address).await?, at, format).await,
        "export" => transfer::export(&reader(&address).await?, &dir, at).await,
        _ => transfer::import(bucket::open(&address).await?, &dir).await,
    }
}

pub(super) fn command() -> Command {
    let setting = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(value_parser!(OsString)).help(help)
    };
    let places = [
        setting(
            "bucket",
            "URL",
            "gs://NAME/PREFIX or file:///DIRECTORY, as for `tidelock server` [env: TIDELOCK_BUCKET]",
        ),
        setting(
            "bucket-endpoint",
            "URL",
            "For tests: http://LOOPBACK:PORT of what stands in for Cloud Storage [env: TIDELOCK_BUCKET_ENDPOINT]",
        ),
        setting(
            "data-dir",
            "DIR",
            "The server's data directory: without --bucket, its folder vault [env: TIDELOCK_DATA_DIR]",
        ),
        setting("config", "FILE", "The server's config file, if it names the bucket [env: TIDELOCK_CONFIG]"),
    ];
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let at = |help: &'static str| {
        Arg::new("at").long("at").value_name("SEQ").value_parser(value_parser!(u64).range(1..)).help(help)
    };
    let dir = |help: &'static str| {
        Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf)).help(help)
    };
    Command::new("tidelock vault")
        .about("Looks at the state in the bucket, without the lease: a server may run meanwhile")
        .after_help(GOING_BACK)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("ls")
                .about("Shows who leads, which states can be restored, bases and the end of the journal")
                .arg(
                    Arg::new("limit")
                        .long("limit")
                        .value_name("N")
                        .default_value(LIMIT)
                        .value_parser(value_parser!(usize))
                        .help("So many of the last journal objects; 0 for all"),
                )
                .arg(json())
                .args(&places),
        )
        .subcommand(
            Command::new("verify")
                .about("Reads all that is kept, checks every hash, and restores the newest state into a temporary directory")
                .after_help("Exit code 1 when something is wrong; each problem names its object and what to do.")
                .arg(at("Only this state, instead of all"))
                .arg(json())
                .args(&places),
        )
        .subcommand(
            Command::new("export")
                .about("Writes a state into a new directory: database, plan files, logs, files that steps left")
                .after_help(GOING_BACK)
                .arg(dir("Where to; must not be there, or be empty"))
                .arg(at("State after this journal object [default: the newest]"))
                .args(&places),
        )
        .subcommand(
            Command::new("import")
                .about("Makes an exported state the first one of an empty bucket or prefix")
                .after_help(GOING_BACK)
                .arg(dir("What `tidelock vault export` wrote; it stays as it is"))
                .args(&places),
        )
}

/// Instructions for going back to an older state.
const GOING_BACK: &str = "\
Going back to an older state:
  1. stop every server on the bucket
  2. tidelock vault ls                          which states there are
  3. tidelock vault export DIR --at SEQ         write one of them out
  4. tidelock vault import DIR --bucket NEW     NEW: an empty prefix or directory
  5. start the server with --bucket=NEW
The old bucket stays as it is, to return to. What was planned or applied after SEQ is not known to that state: plan again
before anything is applied.";

/// Returns the address of the bucket that flags, variables and config file name.
fn address(matches: &ArgMatches) -> Result<BucketAddress> {
    let flag = |name: &str| {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(matches.get_one::<OsString>(name)?);
        Some(flag)
    };
    let flags: Vec<OsString> =
        ["bucket", "bucket-endpoint", "data-dir", "config"].into_iter().filter_map(flag).collect();
    Ok(BucketAddress::from_process(flags)?)
}

/// Opens a bucket for reading; does not create a missing directory.
async fn reader(address: &BucketAddress) -> Result<Vault> {
    let bucket: Arc<dyn Bucket> = match address {
        BucketAddress::Directory(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || Directory::existing(&path)).await?;
            Arc::new(opened.context("cannot look at the bucket (--bucket, or --data-dir for its folder vault)")?)
        }
        BucketAddress::CloudStorage { .. } => bucket::open(address).await?,
    };
    Ok(Vault::reader(bucket))
}

/// Prints the progress of a long command to standard error.
fn progress(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
