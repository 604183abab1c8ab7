//! `tidelock doctor`: checks everything that a server with these settings needs, from settings to webhook. It uses the server's own code
//! and changes nothing: it creates and deletes one object in the bucket and one file in the data directory, runs a job without steps at
//! each executor, and leaves one task in the queue that wakes the server.

mod executors;
mod machine;
mod receivers;
pub(super) mod report;
mod secrets;
mod state;
#[cfg(test)]
mod tests;
mod wake;
mod web;

use super::https::Certificate;
use super::server::STACK;
use super::services::Parts;
use super::{fail, hosts, logging, policies, say};
use crate::settings::{Settings, SettingsError};
use anyhow::Context as _;
use report::Findings;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "Checks everything that a server with these settings needs, and says how to fix what is wrong\n\n\
    Usage: tidelock doctor [flags of `tidelock server`] [--json] [--from-outside] [--expect-iap] [--events-url URL]\n\n\
    Run it where the server runs, with the same flags, variables and config file. It runs a job without steps at each executor,\n\
    and leaves one task in the queue that wakes the server.\n\n  \
    --json            print JSON\n  \
    --from-outside    this is not the server's machine: leave its tools and data directory out, and take no right that you lack\n                    \
    on the bucket for a fault\n  \
    --expect-iap      pages have to answer with the redirect of Google's Identity-Aware Proxy\n  \
    --events-url URL  where the host sends deliveries, if that is not --atlantis-url and /events\n\n\
    Exit code 1 when there is a fault.\n";

/// Returns its command for completions and the manual: its own flags and those of the server.
pub(super) fn command(server: clap::Command) -> clap::Command {
    let switch = |name: &'static str, help: &'static str| {
        clap::Arg::new(name).long(name).action(clap::ArgAction::SetTrue).help(help)
    };
    server
        .name("doctor")
        .about("Checks everything that a server with these settings needs, and says how to fix what is wrong")
        .arg(switch("json", "Print JSON"))
        .arg(switch("from-outside", "This is not the server's machine: leave its tools and data directory out"))
        .arg(switch("expect-iap", "Pages have to answer with the redirect of Google's Identity-Aware Proxy"))
        .arg(clap::Arg::new("events-url").long("events-url").value_name("URL").help("Where the host sends deliveries"))
}

/// Arguments other than the server's settings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    json: bool,
    from_outside: bool,
    expect_iap: bool,
    events_url: Option<String>,
    help: bool,
}

impl Asked {
    /// Returns true if pages have to be behind Identity-Aware Proxy.
    fn expects_iap(&self, settings: &Settings) -> bool {
        self.expect_iap || !settings.access.iap_audience.is_empty()
    }

    /// Splits the arguments into the doctor's own flags and the server's settings.
    fn parse(args: Vec<OsString>) -> (Asked, Vec<OsString>) {
        let (mut asked, mut rest) = (Asked::default(), Vec::new());
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--json") => asked.json = true,
                Some("--from-outside") => asked.from_outside = true,
                Some("--expect-iap") => asked.expect_iap = true,
                Some("--help" | "-h") => asked.help = true,
                Some("--events-url") => asked.events_url = args.next().and_then(|url| url.into_string().ok()),
                Some(text) if text.starts_with("--events-url=") => {
                    asked.events_url = text.split_once('=').map(|(_, url)| url.to_owned());
                }
                _ => rest.push(arg),
            }
        }
        (asked, rest)
    }
}

/// Runs `tidelock doctor` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let (asked, rest) = Asked::parse(args);
    if asked.help {
        return say(USAGE);
    }
    logging::start("error", logging::To::Stderr);
    let looked = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
        .context("no threads")
        .map(|runtime| runtime.block_on(run_checks(Settings::from_process(rest), &asked)));
    match looked {
        Ok(findings) => {
            let text = if asked.json { findings.json() } else { findings.text() };
            let printed = say(&text);
            if findings.well() { printed } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&format!("tidelock doctor: {error:#}\n")),
    }
}

/// Runs all checks, those that wait for different things concurrently.
async fn run_checks(settings: Result<Settings, SettingsError>, asked: &Asked) -> Findings {
    let mut findings = Findings::default();
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            let mend = "`tidelock server --help` and docs/settings.md say what each one takes";
            let text = error.to_string();
            let last = text.lines().count().saturating_sub(1);
            for (place, line) in text.lines().enumerate() {
                findings.fault("settings", line, if place == last { mend } else { "" });
            }
            return findings;
        }
    };
    for warning in &settings.warnings {
        findings.warn("settings", warning, "");
    }
    let settings = Arc::new(settings);
    // A server that only accepts deliveries has no parts of a leader.
    let parts = (!settings.access.events_only)
        .then(|| hosts::join(&settings, &[]).and_then(|joined| Parts::new(Arc::clone(&settings), &joined)))
        .transpose();
    let parts = match parts {
        Ok(parts) => parts,
        Err(error) => {
            findings.fault("settings", format!("{error:#}"), "correct it: the server does not start like this");
            return findings;
        }
    };
    if let Some(files) = &settings.https
        && let Err(error) = Certificate::load(files)
    {
        findings.fault("settings", format!("{error:#}"), "correct it: the server does not start like this");
    }
    if let Some(parts) = parts.as_ref().filter(|_| !asked.from_outside) {
        for warning in policies::warnings(&settings, &parts.now().global) {
            findings.warn("settings", warning, "");
        }
    }
    let settings = &*settings;
    let events = asked.events_url.clone().unwrap_or_else(|| format!("{}/events", settings.atlantis_url));
    let causes = match settings.poll {
        Some(interval) => format!("it asks the hosts every {interval:?}"),
        None => format!("deliveries come to {events}"),
    };
    findings.fine("settings", format!("the server is {}, {causes}", settings.atlantis_url));
    let (state, executors, secrets, wake, hosts, web, receivers, machine) = tokio::join!(
        state::check(settings, asked),
        async {
            match &parts {
                Some(parts) if !asked.from_outside => executors::check(settings, parts).await,
                _ => Findings::default(),
            }
        },
        async {
            match &parts {
                Some(parts) if !asked.from_outside => secrets::check(settings, parts).await,
                _ => Findings::default(),
            }
        },
        async { if asked.from_outside { Findings::default() } else { wake::check(settings).await } },
        hosts::check(settings, &events),
        web::check(settings, &events, asked),
        receivers::check(settings),
        async { if asked.from_outside { Findings::default() } else { machine::check(settings).await } },
    );
    for part in [machine, state, executors, secrets, wake, hosts, web, receivers] {
        findings.extend(part);
    }
    findings
}
