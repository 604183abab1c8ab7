//! Builds a [`Vault`] from the settings: its bucket, this server's identity, and its times.

use super::hosts;
use crate::execute::random_id;
use crate::settings::{BucketAddress, Settings};
use crate::vault::bucket::Bucket;
use crate::vault::clock::Boottime;
use crate::vault::directory::Directory;
use crate::vault::gcs::{self, Access, AccountRights, Gcs, Options};
use crate::vault::jobs::JobPrefix;
use crate::vault::lease::{self, Identity, Timing};
use crate::vault::wording::Wording;
use crate::vault::{Retention, Vault};
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::time::Duration;

/// Longest interval between two reads of the lease by a standby.
const POLL: Duration = Duration::from_secs(1);

/// Names of our settings in the vault's messages. The names of the fingerprint's parts are in the order of [`identity`].
const WORDING: Wording = Wording {
    fingerprint: &["the VCS host", "the bot's account", "the repository allowlist"],
    force: "start this server once with --force-takeover (or TIDELOCK_FORCE_TAKEOVER=true)",
    bucket: "--bucket",
    both_secrets: "start the new server with both: --gh-webhook-secret and --gh-previous-webhook-secret, or those of another host",
};

/// Returns the vault of these settings; makes no request to a remote bucket yet.
pub(super) async fn vault(settings: &Settings) -> Result<Vault> {
    vault_on(settings, open(&settings.vault.bucket).await?)
}

/// Returns the vault of these settings on an open bucket.
pub(super) fn vault_on(settings: &Settings, bucket: Arc<dyn Bucket>) -> Result<Vault> {
    Ok(Vault {
        bucket,
        clock: Arc::new(Boottime),
        identity: identity(settings),
        fingerprint: Default::default(),
        timing: timing(settings.vault.lease_ttl),
        retention: Retention {
            keep_states: settings.vault.keep_states,
            keep: settings.vault.keep,
            ..Retention::default()
        },
        handover: hosts::hand_over_key(settings),
        wording: WORDING,
    })
}

/// Opens the bucket at an address; creates a directory that does not exist.
pub(super) async fn open(address: &BucketAddress) -> Result<Arc<dyn Bucket>> {
    open_with(address, AccountRights::Objects).await
}

/// Opens the bucket like [`open`], for a job.
pub(super) async fn open_for_job(address: &BucketAddress, job: &JobPrefix) -> Result<Arc<dyn Bucket>> {
    open_with(address, AccountRights::Folder(job.folder())).await
}

async fn open_with(address: &BucketAddress, rights: AccountRights) -> Result<Arc<dyn Bucket>> {
    match address {
        BucketAddress::Directory(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || Directory::open(&path));
            Ok(Arc::new(opened.await.context("opening the bucket panicked")??))
        }
        BucketAddress::CloudStorage { name, prefix, endpoint } => {
            let place = gcs::Address::parse(&format!("gs://{name}/{prefix}")).map_err(|why| anyhow!(why))?;
            let access = if endpoint.is_some() { Access::Anonymous } else { Access::ApplicationDefault };
            let options = Options { endpoint: endpoint.clone(), access, rights, ..Options::default() };
            Ok(Arc::new(Gcs::new(place, options)))
        }
    }
}

/// Returns the fingerprint of the settings in which servers of one bucket agree.
pub(super) fn settings_fingerprint(settings: &Settings) -> String {
    let (hosts, logins) = hosts::identities(settings);
    lease::fingerprint(&[&hosts, &logins, &settings.repo_allowlist.join(",")])
}

fn identity(settings: &Settings) -> Identity {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Identity {
        nonce: random_id(),
        url: settings.atlantis_url.clone(),
        machine: format!("{node} (process {})", std::process::id()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: settings_fingerprint(settings),
        force: settings.vault.force_takeover,
    }
}

/// Renews the lease about three times within its life.
fn timing(ttl: Duration) -> Timing {
    Timing { ttl, renew: ttl.mul_f64(0.3), poll: POLL.min(ttl / 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_life_of_a_lease_gives_the_vaults_own_times() {
        let (ours, default) = (timing(Duration::from_secs(20)), Timing::default());
        assert_eq!((ours.ttl, ours.renew, ours.poll), (default.ttl, default.renew, default.poll));
    }
}
