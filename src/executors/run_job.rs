//! `tidelock run-job`, the program that an engine starts: runs one job that the objects of its prefix describe. Nothing is written to this
//! machine and nothing is run before the job is claimed; whatever happens afterwards ends in a result.

mod attend;
mod log;
mod place;
mod probe;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use attend::SignalName;
pub(super) use place::{JobPlace, make_parent};
pub(super) use work::{fetch_tree, unpack};

use super::probe::ProbeSpec;
use super::random_key;
use super::spec::{RemoteResult, RemoteSpec};
use crate::process::Redactor;
use crate::settings::{BucketAddress, JobSettings};
use crate::vault::VaultError;
use crate::vault::bucket::{Bucket, BucketError};
use crate::vault::jobs::{Claimant, Created, JobObjects, JobResult};
use anyhow::{Context as _, Result, anyhow, bail};
use attend::{Attendance, StopTokens};
use backon::BackoffBuilder as _;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use work::Work;

/// Name of the command.
pub(crate) const COMMAND: &str = "run-job";
/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// First pause after a call that the bucket did not answer within the patience of the vault. Each further pause is about twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between such calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time for which calls of a claimed job are repeated although the bucket refuses them.
const REFUSED_FOR: Duration = Duration::from_secs(3600);

/// A job that an engine has started on this machine.
pub(crate) struct StartedJob {
    /// Its objects.
    pub(crate) objects: JobObjects,
    /// The bucket that they are in.
    pub(crate) bucket: Arc<dyn Bucket>,
    /// Its settings.
    pub(crate) settings: JobSettings,
    /// This program, which is the built-in policy engine as well.
    pub(crate) own_program: PathBuf,
}

/// Way in which an attempt at a job ended without an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// There is no specification: the job has ended and its objects are deleted, or it was never stored.
    NoSpec,
    /// Another attempt runs the job, or has run it.
    Claimed,
    /// The server has withdrawn the job.
    Withdrawn,
    /// Its result is stored.
    Stored,
    /// Its result is stored as a late one: the server had given the job up.
    Late,
}

/// Reason that no step of a job was run.
#[derive(Debug)]
pub(super) enum JobNotRun {
    /// It was stopped before.
    Stopped,
    /// It is impossible on this machine, for this reason in words.
    Refused(String),
}

impl From<anyhow::Error> for JobNotRun {
    fn from(error: anyhow::Error) -> JobNotRun {
        JobNotRun::Refused(format!("{error:#}"))
    }
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttemptEnd::NoSpec => "there is no such job (any more): nothing was run",
            AttemptEnd::Claimed => "another start of this job has it: nothing was run",
            AttemptEnd::Withdrawn => "the server has withdrawn this job: nothing was run",
            AttemptEnd::Stored => "the result is stored",
            AttemptEnd::Late => "the server had given this job up; its result is stored as a late one",
        })
    }
}

/// Runs the job, unless there is none, or another attempt has it.
///
/// # Errors
///
/// If no result of this attempt could be stored.
pub(crate) async fn run(job: &StartedJob, mut signals: mpsc::Receiver<SignalName>) -> Result<AttemptEnd> {
    let objects = &job.objects;
    let spec = match objects.spec::<serde_json::Value>().await {
        Ok(None) => return Ok(AttemptEnd::NoSpec),
        Ok(Some(spec)) => parsed(spec),
        Err(VaultError::Damaged(why)) => Err(why),
        // Whoever can read the claim could read a specification: the objects of the ended job are deleted, but for the claim.
        Err(VaultError::Bucket(BucketError::Hidden { .. })) if matches!(objects.claimant().await, Ok(Some(_))) => {
            return Ok(AttemptEnd::NoSpec);
        }
        Err(error) => return Err(error).context("the job cannot be read"),
    };
    let attempt = random_key()?;
    let claimed = tokio::select! {
        claimed = until_answered(|| objects.claim(&attempt)) => claimed.context("the job cannot be claimed")?,
        Some(signal) = signals.recv() => bail!("{signal} came before the job was claimed"),
    };
    match claimed {
        Created::Ours => {}
        Created::Theirs(Claimant::Attempt(_)) => return Ok(AttemptEnd::Claimed),
        Created::Theirs(Claimant::Withdrawn(_)) => return Ok(AttemptEnd::Withdrawn),
    }
    tracing::info!(version = VERSION, executor = objects.prefix().executor(), "the job is claimed");
    match spec {
        Ok(Specified::Job(spec)) => run_claimed(job, &attempt, &spec, signals).await,
        Ok(Specified::Probe(spec)) => {
            let probed = Box::new(probe::probe(job, &spec).await);
            finish(objects, &attempt, &RemoteResult::Probed(probed)).await
        }
        Err(why) => {
            let redactor = Redactor::new(job.settings.secrets.clone());
            finish(objects, &attempt, &RemoteResult::Refused(redactor.redact(&why))).await
        }
    }
}

/// What a specification tells an attempt to do.
#[derive(Debug)]
enum Specified {
    Job(Box<RemoteSpec>),
    Probe(ProbeSpec),
}

/// Returns what the specification says, or the reason that this program cannot read it.
fn parsed(spec: serde_json::Value) -> Result<Specified, String> {
    let version = spec.get("version").and_then(serde_json::Value::as_str).unwrap_or("unknown").to_owned();
    if version != VERSION {
        return Err(format!(
            "the executor's image has Tidelock {VERSION}, and the server is Tidelock {version}: give the executor the image of the server"
        ));
    }
    let read = match spec.get("probe") {
        None => serde_json::from_value(spec).map(Specified::Job),
        Some(_) => serde_json::from_value(spec).map(Specified::Probe),
    };
    read.map_err(|error| format!("the specification of the job cannot be read: {error}"))
}

/// Runs a claimed job, with its log and all else that goes on beside it. Before its result is stored, its files and its log are, and
/// nothing of it is left on this machine.
async fn run_claimed(
    job: &StartedJob,
    attempt: &str,
    spec: &RemoteSpec,
    signals: mpsc::Receiver<SignalName>,
) -> Result<AttemptEnd> {
    let work = Work::new(job, spec);
    let tokens = StopTokens::default();
    let mut beside = Attendance::start(&job.objects, work.redactor(), &tokens, spec.job.limits.grace, signals);
    let result = work.result(beside.log(), &tokens).await;
    beside.end_log().await;
    let end = finish(&job.objects, attempt, &result).await;
    // Signs of life go on until the result is stored.
    drop(beside);
    end
}

async fn finish(objects: &JobObjects, attempt: &str, result: &RemoteResult) -> Result<AttemptEnd> {
    if let RemoteResult::Refused(why) = result {
        tracing::warn!("no step was run: {why}");
    }
    let result = serde_json::to_value(result)?;
    let stored = until_stored(|| objects.finish(attempt, result.clone())).await;
    match stored.context("the result of the job cannot be stored")? {
        Created::Ours => Ok(AttemptEnd::Stored),
        Created::Theirs(JobResult::GivenUp { why, .. }) => {
            tracing::warn!("the server had given the job up: {why}");
            Ok(AttemptEnd::Late)
        }
        Created::Theirs(JobResult::Ended { .. }) => Err(anyhow!("another result of the job is there")),
    }
}

/// Repeats a call of a claimed job: for as long as the bucket does not answer, and for an hour while it refuses. A full disk may be emptied,
/// and rights may be given back, and what would be lost is the result of an apply.
async fn until_stored<T, F>(call: impl Fn() -> F) -> Result<T, VaultError>
where
    F: Future<Output = Result<T, VaultError>>,
{
    let mut pauses = tidelock_retry::jittered(FIRST_PAUSE, LONGEST_PAUSE).build();
    let began = tokio::time::Instant::now();
    loop {
        match until_answered(&call).await {
            Err(VaultError::Bucket(error)) if began.elapsed() < REFUSED_FOR => {
                tracing::warn!("trying again: {error}");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            known => return known,
        }
    }
}

/// Repeats a call for as long as the bucket does not answer.
async fn until_answered<T, F>(call: impl Fn() -> F) -> Result<T, VaultError>
where
    F: Future<Output = Result<T, VaultError>>,
{
    let mut pauses = tidelock_retry::jittered(FIRST_PAUSE, LONGEST_PAUSE).build();
    loop {
        match call().await {
            Err(VaultError::Bucket(error @ BucketError::Unavailable { .. })) => {
                tracing::warn!("trying again: {error}");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            known => return known,
        }
    }
}
