//! `tidelock run-job`: runs one job of a server on this machine. An engine starts it.

use super::server::THREADS_LIMIT;
use super::{bucket, fail, logging, misused, not_taken, say};
use crate::executors::run_job::{COMMAND, SignalName, StartedJob, run as run_started};
use crate::process::Redactor;
use crate::settings::{JobSettings, SettingsError};
use crate::vault::clock::Boottime;
use crate::vault::jobs::{JobObjects, JobPrefix};
use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub(super) fn command() -> Command {
    let setting = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(value_parser!(OsString)).help(help)
    };
    Command::new("tidelock run-job")
        .about("Runs one job of a server on this machine; executors start it, and people do not")
        .after_help(ABOUT)
        .arg(setting("bucket", "URL", "The bucket of the server [env: TIDELOCK_BUCKET]"))
        .arg(setting(
            "bucket-endpoint",
            "URL",
            "For tests: http://LOOPBACK:PORT of what stands in for Cloud Storage [env: TIDELOCK_BUCKET_ENDPOINT]",
        ))
        .arg(setting("job", "PREFIX", "Prefix of its objects, jobs/EXECUTOR/KEY, a secret [env: TIDELOCK_JOB]"))
}

/// Rules that an author of an executor needs to know.
const ABOUT: &str = "\
Exit code 0: its result is stored, also that of a failed plan, or there was nothing to do. 1: no result could be stored. 2: a flag or \
variable is missing or wrong. The server goes by the result alone.

Steps get the environment of this program, without TIDELOCK_JOB and the secret settings of a server. Masked in log and result are their \
values, those of TIDELOCK_MASKED_VARIABLES and TIDELOCK_MASKED_VALUES_FROM, and those of variables whose names contain TOKEN, SECRET, \
PASSWORD, PASSPHRASE or CREDENTIAL or end with _KEY. Of the last group, values shorter than 8 bytes are not masked, nor those of names \
that end with _FILE, _PATH, _DIR, _URL or _URI.";

/// Runs `tidelock run-job` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    // Before the key is in memory.
    if let Err(error) = crate::process::harden_self() {
        return fail(&format!("tidelock {COMMAND}: {error:#}\n"));
    }
    let name = std::iter::once(OsString::from("tidelock run-job"));
    let matches = match command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    let settings = match settings(&matches) {
        Ok(settings) => settings,
        Err(SettingsError::Help(text)) => return say(&text),
        Err(SettingsError::Invalid(text)) => return misused(&format!("tidelock {COMMAND}: {text}\n")),
    };
    let Some(prefix) = JobPrefix::parse(settings.prefix()) else {
        return misused(&format!("tidelock {COMMAND}: --job (or TIDELOCK_JOB) is not jobs/EXECUTOR/KEY\n"));
    };
    logging::start("info", logging::To::Masked(Redactor::new(settings.secrets.clone())));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("tidelock {COMMAND}: no threads: {error}\n")),
    };
    let code = match runtime.block_on(run_job(settings, prefix)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    // A blocked thread must not keep the process alive.
    runtime.shutdown_timeout(THREADS_LIMIT);
    code
}

async fn run_job(settings: JobSettings, prefix: JobPrefix) -> Result<()> {
    let signals = signals()?;
    if let Err(error) = crate::process::adopt_orphans() {
        tracing::warn!("processes that steps leave behind in a session of their own keep running: {error:#}");
    }
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let bucket = bucket::open_for_job(&settings.bucket, &prefix).await?;
    let job = StartedJob {
        objects: JobObjects::new(Arc::clone(&bucket), Arc::new(Boottime), prefix),
        bucket,
        settings,
        own_program: std::env::current_exe().context("the path of this program is not known")?,
    };
    let ended = run_started(&job, signals).await?;
    tracing::info!("{ended}");
    Ok(())
}

fn settings(matches: &ArgMatches) -> Result<JobSettings, SettingsError> {
    let flag = |name: &str| {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(matches.get_one::<OsString>(name)?);
        Some(flag)
    };
    let flags: Vec<OsString> = ["bucket", "bucket-endpoint"].into_iter().filter_map(flag).collect();
    JobSettings::from_process(flags, matches.get_one::<OsString>("job").cloned())
}

/// Returns the signals that ask this program to end. It goes on without its terminal.
fn signals() -> Result<mpsc::Receiver<SignalName>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?;
    let (sender, signals) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                _ = hangup.recv() => continue,
            };
            // A signal too many means nothing, and without a receiver the work is done.
            let _ = sender.try_send(name);
        }
    });
    Ok(signals)
}
