//! A job that runs no steps: it says where it runs, and tries what its account must not be able to do. `tidelock doctor` sends one to each
//! executor.

use super::spec::RemoteResult;
use super::transfer::mask;
use super::{Beginning, ErroredState, Executors, FollowRequest, Followed, FollowedLine, random_key};
use crate::domain::state::RemoteJob;
use crate::process::Redactor;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a probe that was stopped is followed.
const STOPPING: Duration = Duration::from_secs(150);

/// Name that stands for another executor if there is only one.
const OTHER: &str = "another-executor";

/// Specification of a probe. Its key `probe` tells it from the specification of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProbeSpec {
    /// Version of the server. A program of another version refuses the probe.
    pub(super) version: String,
    /// Rights that are tried.
    pub(super) probe: Vec<BucketRight>,
    /// Name of another executor, whose objects are no concern of the job.
    pub(super) other: String,
}

/// Something that only the server should be able to do in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BucketRight {
    /// To list objects: names of jobs are secrets.
    List,
    /// To read the lease of the server, and so everything else.
    ReadLease,
    /// To replace an object.
    Overwrite,
    /// To delete an object.
    Delete,
    /// To create an object that is not of its executor.
    CreateElsewhere,
    /// To create an object of another executor, such as the result of its job.
    CreateAtAnother,
}

impl BucketRight {
    const ALL: [BucketRight; 6] = [
        BucketRight::List,
        BucketRight::ReadLease,
        BucketRight::Overwrite,
        BucketRight::Delete,
        BucketRight::CreateElsewhere,
        BucketRight::CreateAtAnother,
    ];

    /// Returns what an account with this right may do.
    pub(crate) fn words(self) -> &'static str {
        match self {
            BucketRight::List => "list the objects",
            BucketRight::ReadLease => "read the server's lease, and so its state",
            BucketRight::Overwrite => "replace objects",
            BucketRight::Delete => "delete objects",
            BucketRight::CreateElsewhere => "create objects outside its own folder",
            BucketRight::CreateAtAnother => "create objects of another executor's jobs",
        }
    }
}

/// What a probe has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// Name of the machine that it ran on.
    pub(crate) machine: String,
    /// Number of the user that it ran as.
    pub(crate) user: u32,
    /// Google's name of its account; absent elsewhere, and where it cannot be asked.
    pub(crate) account: Option<String>,
    /// Rights that it has.
    pub(crate) allowed: Vec<BucketRight>,
    /// Rights of which the bucket gave no answer.
    pub(crate) unknown: Vec<BucketRight>,
}

/// A probe that has ended, and the time from its start to its end.
pub(crate) struct ProbeEnd {
    pub(crate) probed: Probed,
    pub(crate) took: Duration,
}

impl Executors {
    /// Sends a probe to an executor and waits for its end, for this long at most.
    ///
    /// # Errors
    ///
    /// If it does not run there. The text is for the operator.
    pub(crate) async fn probe(&self, name: &str, patience: Duration) -> Result<ProbeEnd> {
        let job = RemoteJob { executor: name.to_owned(), key: random_key()? };
        let objects = self.objects(&job).context("an executor with a wrong name")?;
        let other = self.by_name.keys().find(|other| *other != name).cloned().unwrap_or_else(|| OTHER.to_owned());
        let (version, probe) = (env!("CARGO_PKG_VERSION").to_owned(), BucketRight::ALL.to_vec());
        let spec = ProbeSpec { version, probe, other };
        objects.put_spec(&spec).await?;
        let last = Mutex::new(String::new());
        let log = |line: FollowedLine<'_>| {
            let (FollowedLine::Sent(line) | FollowedLine::Note(line)) = line;
            line.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let (asked, began) = (FollowRequest::without_patience(), Instant::now());
        let followed = {
            let mut following = std::pin::pin!(self.follow(&objects, &log, &asked, Duration::ZERO, Beginning::Own));
            tokio::select! {
                followed = &mut following => followed,
                () = tokio::time::sleep(patience) => {
                    asked.stop(format!("it has not ended within {} s", patience.as_secs()));
                    let stopped = tokio::time::timeout(STOPPING, following).await;
                    stopped.context("neither the engine nor the bucket says how it does")?
                }
            }
        };
        let took = began.elapsed();
        self.clean(&objects, ErroredState::Recorded).await;
        let said = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        match followed {
            Followed::Ended(mut result) => {
                mask(&mut result, &Redactor::default());
                match serde_json::from_value(result).context("what a job gave back cannot be read")? {
                    RemoteResult::Probed(probed) => Ok(ProbeEnd { probed: *probed, took }),
                    RemoteResult::Refused(why) => bail!("{why}"),
                    RemoteResult::Ran(_) => bail!("it ran something else than what it was told"),
                }
            }
            Followed::NotStarted(why) | Followed::Lost(why) if said.is_empty() => bail!("{why}"),
            Followed::NotStarted(why) | Followed::Lost(why) => bail!("{why}; the last line of its log: {said}"),
            Followed::Left => bail!("it was left"),
        }
    }
}
