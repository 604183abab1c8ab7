//! `tidelock vault export` and `import`: writes a state to a directory, and imports it into an empty bucket.

use super::{Report, progress};
use crate::execute::random_id;
use crate::store::{Exported, Store};
use crate::vault::bucket::Bucket;
use crate::vault::inventory::Inventory;
use crate::vault::leader::Leader;
use crate::vault::lease::Identity;
use crate::vault::{Vault, VaultError};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that an import waits for a lease that another server may hold.
const LEASE_WAIT: Duration = Duration::from_secs(60);

/// Writes a state into a new directory.
pub(super) async fn export(vault: &Vault, dir: &Path, at: Option<u64>) -> Result<Report> {
    let chain = vault.read(at).await?;
    ensure!(chain.position.seq > 0, "{} holds no state: nothing was written", vault.bucket.location());
    let digest = Store::export(dir, &chain).await?;
    let (seq, shown) = (chain.position.seq, dir.display());
    let text = format!(
        "state {seq} is in {shown}\ndatabase  {digest}\nTo go on with it: tidelock vault import {shown} --bucket NEW, where NEW is \
         an empty prefix or directory, then start the server with --bucket=NEW\n"
    );
    Ok(Report { text, well: true })
}

/// Makes the state in a directory the first one of an empty bucket. It holds the lease like a server, so that none can begin there
/// meanwhile, and releases it at the end.
pub(super) async fn import(bucket: Arc<dyn Bucket>, dir: &Path) -> Result<Report> {
    let path = dir.to_owned();
    let exported = tokio::task::spawn_blocking(move || Exported::open(&path)).await??;
    for warning in bucket.check().await?.into_iter().chain(bucket.inspect().await?) {
        progress(&warning);
    }
    let vault = Vault { identity: identity(), ..Vault::reader(bucket) };
    let location = vault.bucket.location().to_owned();
    begins(&vault.inventory().await?)?;
    vault.bucket.announce(&vault.identity.nonce)?;
    let lease = tokio::time::timeout(LEASE_WAIT, vault.acquire()).await;
    let lease =
        lease.map_err(|_| anyhow!("{location}: a server holds the lease: `tidelock vault ls` shows which"))??;
    let Some((leader, chain)) = vault.lead(lease).await? else {
        bail!("{location}: a server took the lease: nothing was imported");
    };
    let moved = if chain.base == 0 && chain.rows().await?.is_empty() {
        holding(&leader, vault.timing.renew, exported.import(&leader)).await
    } else {
        Err(anyhow!("{location} has a state by now: nothing was imported"))
    };
    let released = leader.release().await;
    moved?;
    released?;
    let text = format!("the state of {} is in {location}: start the server with --bucket={location}\n", dir.display());
    Ok(Report { text, well: true })
}

/// Does the work, and renews the lease until it is done.
async fn holding<T>(leader: &Leader, renew: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(renew) => match leader.renew().await {
                Err(VaultError::Deposed(why)) => bail!("a server took the lease: {why}"),
                // The work itself fails once the lease's deadline has passed.
                Err(error) => tracing::warn!("{error}"),
                Ok(()) => {}
            }
        }
    }
}

/// Fails unless the bucket has never had a state. The rest of an interrupted import does not count as one.
fn begins(inventory: &Inventory) -> Result<()> {
    let seals = inventory.journal.iter().all(|entry| entry.kind == "seal");
    let unled = inventory.lease.as_ref().is_none_or(|lease| lease.fingerprint.is_empty());
    if inventory.bases.is_empty() && seals && unled && inventory.inbox == 0 {
        return Ok(());
    }
    let location = &inventory.location;
    Err(anyhow!("{location} is not empty, and nothing in it is written over"))
        .context("an import needs an empty prefix or directory: name a new one with --bucket")
}

/// Returns an identity without fingerprint, because the settings of the next server are not known here.
fn identity() -> Identity {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Identity {
        nonce: random_id(),
        url: String::new(),
        machine: format!("{node} (tidelock vault import, process {})", std::process::id()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: String::new(),
        force: false,
    }
}
