//! The job's side of a probe: what its account may do in the bucket, tried.

use super::super::probe::{BucketRight, ProbeSpec, Probed};
use super::StartedJob;
use crate::runner::local::state_lock::machine;
use crate::settings::BucketAddress;
use crate::vault::bucket::{Body, Bucket, BucketError, Generation, Written};
use crate::vault::jobs::{JobPrefix, without_keys};
use crate::vault::lease;
use bytes::Bytes;
use std::time::Duration;

/// Content of the objects that it creates.
const CONTENT: &[u8] = b"tidelock doctor";
/// Time limit of the question for the account.
const ACCOUNT_LIMIT: Duration = Duration::from_secs(3);
/// Variable with the address of Google's metadata server, which its own libraries read too.
const METADATA_HOST: &str = "GCE_METADATA_HOST";
/// Path of the account's name there. Source: <https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys>.
const ACCOUNT_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/email";
/// Longest name of an account that is told, in bytes.
const LONGEST_ACCOUNT: usize = 320;

/// Tries these rights, and says where it runs.
pub(super) async fn probe(job: &StartedJob, spec: &ProbeSpec) -> Probed {
    let trying = TriedBucket { bucket: &*job.bucket, prefix: job.objects.prefix(), other: &spec.other };
    let (mut allowed, mut unknown) = (Vec::new(), Vec::new());
    for &right in &spec.probe {
        match trying.may(right).await {
            Ok(true) => allowed.push(right),
            Ok(false) | Err(BucketError::Refused { .. } | BucketError::Hidden { .. }) => {}
            Err(error @ BucketError::Unavailable { .. }) => {
                tracing::warn!("{error}");
                unknown.push(right);
            }
        }
    }
    let user = rustix::process::getuid().as_raw();
    Probed { machine: machine(), user, account: account(job).await, allowed, unknown }
}

struct TriedBucket<'a> {
    bucket: &'a dyn Bucket,
    prefix: &'a JobPrefix,
    /// Name of another executor.
    other: &'a str,
}

impl TriedBucket<'_> {
    async fn may(&self, right: BucketRight) -> Result<bool, BucketError> {
        match right {
            BucketRight::List => self.bucket.list_some("jobs/", "", 1).await.map(|_| true),
            // Its content is not kept.
            BucketRight::ReadLease => Ok(self.bucket.get_within(lease::NAME, 0).await?.is_some()),
            BucketRight::Overwrite => {
                let name = self.own("overwrite");
                let Some(generation) = self.create(&name).await? else { return Ok(false) };
                let other = Body::Bytes(Bytes::from_static(b"overwritten"));
                Ok(matches!(self.bucket.put(&name, generation, other, "probe").await?, Written::Stored(_)))
            }
            BucketRight::Delete => {
                let name = self.own("delete");
                let Some(generation) = self.create(&name).await? else { return Ok(false) };
                self.bucket.delete(&name, generation).await
            }
            // No server reads an object of this name as state.
            BucketRight::CreateElsewhere => self.may_create(&format!("doctor/{}", self.prefix.key())).await,
            BucketRight::CreateAtAnother => {
                self.may_create(&format!("jobs/{}/{}/probe", self.other, self.prefix.key())).await
            }
        }
    }

    /// Tries to create an object, which is deleted again.
    async fn may_create(&self, name: &str) -> Result<bool, BucketError> {
        let Some(generation) = self.create(name).await? else { return Ok(false) };
        if let Err(error) = self.bucket.delete(name, generation).await {
            tracing::warn!("{} is left: {error}", without_keys(name));
        }
        Ok(true)
    }

    fn own(&self, name: &str) -> String {
        format!("{}/probe-{name}", self.prefix)
    }

    /// Creates an object; `None` if it is there already.
    async fn create(&self, name: &str) -> Result<Option<Generation>, BucketError> {
        match self.bucket.put(name, 0, Body::Bytes(Bytes::from_static(CONTENT)), "probe").await? {
            Written::Stored(generation) => Ok(Some(generation)),
            Written::Refused => Ok(None),
        }
    }
}

/// Asks the machine for the name of its account on Google Cloud.
async fn account(job: &StartedJob) -> Option<String> {
    let of_env = job.settings.env.iter().find(|(name, _)| name == METADATA_HOST).map(|(_, host)| host.as_str());
    let host = match (&job.settings.bucket, of_env) {
        (_, Some(host)) => host,
        (BucketAddress::CloudStorage { endpoint: None, .. }, None) => "metadata.google.internal",
        _ => return None,
    };
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.get(format!("http://{host}{ACCOUNT_PATH}")).header("Metadata-Flavor", "Google");
        request.send().await?.error_for_status()?.text().await
    };
    let told = tokio::time::timeout(ACCOUNT_LIMIT, asked).await.ok()?.ok()?;
    let is_name = (1..=LONGEST_ACCOUNT).contains(&told.len()) && told.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::memory::{Memory, RequestFault};

    #[tokio::test]
    async fn an_object_of_another_executor_is_tried_and_not_left() {
        let (bucket, prefix) = (Memory::new(), JobPrefix::new("plans", &"a".repeat(32)).unwrap());
        let trying = TriedBucket { bucket: &*bucket, prefix: &prefix, other: "applies" };
        assert!(trying.may(BucketRight::CreateAtAnother).await.unwrap());
        let name = format!("jobs/applies/{}/probe", prefix.key());
        assert_eq!(
            (bucket.log(), bucket.names("")),
            (vec![format!("put {name}"), format!("delete {name}")], Vec::new())
        );
        bucket.fail("put", &name, RequestFault::Refused);
        let refused = trying.may(BucketRight::CreateAtAnother).await;
        assert!(matches!(refused, Err(BucketError::Refused { .. })), "{refused:?}");
    }
}
