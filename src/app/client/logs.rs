//! Logs of a job, or of the jobs of a run, as they are or as they grow.

use super::super::{fail, say};
use super::call::{ApiClient, printable};
use crate::domain::{JobId, RunId};
use crate::web::api::records::{JobRecord, JobsAnswer};
use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// Pause before the next look at a run that has no new job, and before a stream that broke off is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of times that a question is asked again while something is followed, and a stream which brings nothing new is opened again: one
/// server may give the lead to another meanwhile.
const MAX_RETRIES: u32 = 30;
/// Exit code if it is not known how something that is followed ended.
const UNKNOWN_END: u8 = 2;
/// Longest line of a stream, in bytes.
const MAX_LINE: usize = 16 << 20;

/// A line of a log in a stream: pieces, each with its classes and its text.
#[derive(Deserialize)]
struct StreamedLine {
    s: Vec<(String, String)>,
}

/// A run, as far as its end is concerned.
#[derive(Deserialize)]
struct RunState {
    finished: Option<String>,
    result: String,
}

pub(super) async fn print(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let given = matches.get_one::<String>("id").map(String::as_str).unwrap_or_default();
    let follow = matches.get_flag("follow");
    match print_log_of(client, given, follow).await {
        Err(error) if follow => {
            fail(&format!("tidelock logs: {error:#}\n"));
            Ok(ExitCode::from(UNKNOWN_END))
        }
        result => result,
    }
}

/// Prints the log of what is given on the command line.
async fn print_log_of(client: &ApiClient, given: &str, follow: bool) -> Result<ExitCode> {
    // The last part of the address of a page is its id.
    let id = given.trim_end_matches('/').rsplit('/').next().unwrap_or(given);
    if JobId::parse(id).is_none() || RunId::parse(id).is_none() {
        bail!("{} is not the id of a job or a run: `tidelock runs` lists runs", printable(given));
    }
    // Ids of both have the same form, and a server that does not know one of a kind says so.
    let job = client.get::<JobRecord>(&format!("api/jobs/{id}")).await;
    let succeeded = match job {
        Ok(job) if follow => follow_job(client, &job).await?,
        Ok(job) => {
            print_log(client, &job).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(of_job) => match client.get::<JobsAnswer>(&format!("api/runs/{id}/jobs")).await {
            Ok(_) => return print_run(client, id, follow).await,
            Err(of_run) if of_run.to_string() == of_job.to_string() => return Err(of_job),
            Err(_) => bail!("the server knows neither a job nor a run {id}: it may be so old that it was dropped"),
        },
    };
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the answer to a request for this path; with `follow` it is asked for again while the server does not answer.
async fn ask<T: DeserializeOwned>(client: &ApiClient, path: &str, follow: bool) -> Result<T> {
    let mut retries = if follow { MAX_RETRIES } else { 0 };
    loop {
        match client.get(path).await {
            Err(_) if retries > 0 => retries -= 1,
            result => return result,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints the logs of all jobs of a run, and with `follow` those that begin meanwhile.
async fn print_run(client: &ApiClient, run: &str, follow: bool) -> Result<ExitCode> {
    let mut printed = BTreeSet::new();
    loop {
        // Read before its jobs: none begins after the end.
        let state: RunState = ask(client, &format!("api/runs/{run}"), follow).await?;
        let JobsAnswer { jobs, more } = ask(client, &format!("api/runs/{run}/jobs"), follow).await?;
        for job in jobs {
            if !printed.insert(job.job.clone()) {
                continue;
            }
            let project = job.project.as_ref().map(|project| format!(" {}", project.label)).unwrap_or_default();
            say(&printable(&format!("==> {}{project}: {}\n", job.kind, job.url)));
            let printed = if follow && job.is_running() {
                follow_job(client, &job).await.map(drop)
            } else {
                print_log(client, &job).await
            };
            // One job may have lost its log: the others have theirs.
            if let Err(error) = printed {
                fail(&format!("tidelock logs: {error:#}\n"));
            }
        }
        if !follow || state.finished.is_some() {
            if more {
                say("==> the run has more jobs: its page lists them\n");
            }
            let is_well = !follow || state.result == "succeeded";
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints the log so far.
async fn print_log(client: &ApiClient, job: &JobRecord) -> Result<()> {
    let text = client.text(Method::GET, client.address(&format!("api/jobs/{}/log", job.job))?).await?;
    say(&printable(&text));
    if !text.is_empty() && !text.ends_with('\n') {
        say("\n");
    }
    Ok(())
}

/// Prints a log until its job ends. Returns true if the job has succeeded.
async fn follow_job(client: &ApiClient, job: &JobRecord) -> Result<bool> {
    let mut known = 0;
    let mut retries = 0;
    loop {
        let before = known;
        match follow_stream(client, &job.job, &mut known).await {
            Ok(true) => break,
            // The server may be restarting: another one has the log from the bucket.
            result => {
                retries = if known > before { 0 } else { retries + 1 };
                if let (Err(error), true) = (result, retries > MAX_RETRIES) {
                    return Err(error);
                }
                if retries > MAX_RETRIES {
                    bail!("the log ends early");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // The result may be recorded a moment after the log ended.
    for _ in 0..MAX_RETRIES {
        let now: JobRecord = ask(client, &format!("api/jobs/{}", job.job), true).await?;
        if !now.is_running() {
            return Ok(now.has_succeeded());
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("the log has ended, but the server does not know yet how the job ended: {}", job.url)
}

/// Prints the lines of a stream after those that are known. Returns true at the end of the log.
async fn follow_stream(client: &ApiClient, job: &str, known: &mut u64) -> Result<bool> {
    let address = client.address(&format!("api/jobs/{job}/stream"))?;
    let mut response = client.open(Method::GET, address, Some(*known)).await?;
    let mut unread = Vec::new();
    let (mut event, mut number) = (String::new(), None);
    while let Some(piece) = response.chunk().await.context("the log is cut off")? {
        unread.extend_from_slice(&piece);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(unread.get(..end).unwrap_or_default()).into_owned();
            unread.drain(..=end);
            match line.split_once(':').map(|(name, value)| (name, value.trim_start())) {
                Some(("event", name)) => name.clone_into(&mut event),
                Some(("id", id)) => number = id.parse().ok(),
                Some(("data", _)) if event == "end" => return Ok(true),
                Some(("data", data)) if event == "line" => {
                    let line: StreamedLine = serde_json::from_str(data).context("a line of the log")?;
                    let text: String = line.s.into_iter().map(|(_, text)| text).collect();
                    say(&(printable(&text) + "\n"));
                    *known = number.unwrap_or(*known + 1);
                }
                Some(("data", notice)) => bail!("{}", printable(notice)),
                _ => {}
            }
        }
        if unread.len() > MAX_LINE {
            bail!("a line of the log is longer than {MAX_LINE} bytes");
        }
    }
    Ok(false)
}
