//! Checks the bucket: that it exists, that the server's rights suffice, that it loses no data; and reports the leader.

use super::Asked;
use super::report::Findings;
use crate::app::bucket;
use crate::execute::random_id;
use crate::settings::{BucketAddress, Settings};
use crate::vault::Vault;
use crate::vault::bucket::{Bucket, BucketError, probe};
use crate::vault::directory::Directory;
use crate::vault::lease::{self, Record};
use std::sync::Arc;
use std::time::Duration;

const BUCKET: &str = "bucket";
const LEASE: &str = "lease";
/// Duration of a write above which people wait noticeably: each command commits several times.
const SLOW: Duration = Duration::from_secs(1);

pub(super) async fn check(settings: &Settings, asked: &Asked) -> Findings {
    let mut findings = Findings::default();
    let bucket = match open(&settings.vault.bucket).await {
        Ok(Some(bucket)) => bucket,
        Ok(None) => {
            findings.unknown(BUCKET, "there is none yet; the server makes it in its data directory", "");
            return findings;
        }
        Err(error) => {
            findings.fault(BUCKET, format!("{error:#}"), "correct --bucket, or --data-dir for its folder vault");
            return findings;
        }
    };
    // If the doctor does not run as the server, a missing right may be the caller's only.
    let refused = |findings: &mut Findings, error: &BucketError| match (asked.from_outside, error) {
        (true, error) => {
            let mend = "the server may have the rights that you lack: run the doctor where it runs";
            findings.unknown(BUCKET, error.to_string(), mend);
        }
        (false, BucketError::Unavailable { .. }) => {
            findings.fault(BUCKET, error.to_string(), "check the network, credentials and the bucket's address");
        }
        // The text says what to do.
        (false, BucketError::Refused { .. } | BucketError::Hidden { .. }) => {
            findings.fault(BUCKET, error.to_string(), "")
        }
    };
    let looked = async { Ok([bucket.check().await?, bucket.inspect().await?].concat()) };
    match looked.await {
        Ok(warnings) => warnings.into_iter().for_each(|warning| findings.warn(BUCKET, warning, "")),
        Err(error) => {
            refused(&mut findings, &error);
            return findings;
        }
    }
    // No server reads an object of this name as state.
    match probe::probe(&*bucket, &format!("doctor/{}", random_id())).await {
        Ok(write) if write > SLOW => {
            let mend = "take a bucket in the server's region";
            findings.warn(BUCKET, format!("{}: a write took {write:.1?}", bucket.location()), mend);
        }
        Ok(write) => {
            let text = format!("{}: create, read, list and delete work; a write took {write:.1?}", bucket.location());
            findings.fine(BUCKET, text);
        }
        Err(error) => refused(&mut findings, &error),
    }
    match bucket::vault_on(settings, bucket) {
        Ok(vault) => look_at_lease(&vault, &mut findings).await,
        Err(error) => findings.fault(LEASE, format!("{error:#}"), ""),
    }
    findings
}

/// Opens the bucket without creating anything; absent if the server would create its directory.
async fn open(address: &BucketAddress) -> anyhow::Result<Option<Arc<dyn Bucket>>> {
    let BucketAddress::Directory(path) = address else { return bucket::open(address).await.map(Some) };
    let path = path.clone();
    tokio::task::spawn_blocking(move || match path.try_exists() {
        Ok(false) => Ok(None),
        _ => Ok(Some(Arc::new(Directory::existing(&path)?) as Arc<dyn Bucket>)),
    })
    .await?
}

async fn look_at_lease(vault: &Vault, findings: &mut Findings) {
    let record = match lease::read(vault).await {
        Ok(Some(record)) => record,
        Ok(None) => {
            findings.unknown(LEASE, "nobody has led on this bucket yet", "start a server");
            return;
        }
        Err(error) => {
            findings.fault(LEASE, error.to_string(), "");
            return;
        }
    };
    match (lease::held_back(vault, &record), lease::difference(vault, &record)) {
        (Some(why), _) => findings.fault(LEASE, format!("a server with these settings does not lead: {why}"), ""),
        (None, Some(difference)) => {
            let text = format!("the last leader had other settings: {} changed", difference.what);
            findings.warn(
                LEASE,
                text,
                "nothing, if that is meant: the next server on this directory leads with the new ones",
            );
        }
        (None, None) => {}
    }
    let Record { epoch, holder, .. } = record;
    let Some(holder) = holder else {
        let text = format!("nobody leads; epoch {epoch} was the last");
        findings.warn(LEASE, text, "start a server on this bucket");
        return;
    };
    let who = format!("{} (version {}) leads with epoch {epoch}", holder.machine, holder.version);
    let patience = vault.timing.ttl;
    if is_renewed(vault, patience).await {
        findings.fine(LEASE, format!("{who} and renews its lease"));
    } else {
        let text =
            format!("{who}, but has not renewed its lease for {patience:?}: it is gone, or cannot reach the bucket");
        findings.fault(LEASE, text, "look at its log; when it is gone, start a server: it takes over by itself");
    }
}

/// Returns true if the lease is renewed, or passes to another server, within this time.
async fn is_renewed(vault: &Vault, patience: Duration) -> bool {
    let looking = async {
        let mut first = None;
        loop {
            if let Ok(Some(object)) = vault.bucket.get(lease::NAME).await
                && *first.get_or_insert(object.generation) != object.generation
            {
                return;
            }
            vault.clock.sleep(vault.timing.poll).await;
        }
    };
    tokio::time::timeout(patience, looking).await.is_ok()
}
