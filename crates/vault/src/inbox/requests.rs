//! Validation of hand-over requests in the inbox.

use super::{HandOver, InboxEntry, LoggedNames, open, unusable};
use crate::Vault;
use crate::bucket::BucketError;

/// Maximum number of hand-over requests that are checked at once.
pub(super) const REQUESTS: usize = 16;

/// Checks up to [`REQUESTS`] hand-over requests and returns the valid ones. Deletes all of them, except those that cannot be read,
/// which are logged once and stay.
pub(crate) async fn followed(
    vault: &Vault,
    epoch: u64,
    requests: Vec<InboxEntry>,
    told: &mut LoggedNames,
) -> Vec<InboxEntry> {
    let mut followed = Vec::new();
    let new: Vec<InboxEntry> = requests.into_iter().filter(|entry| !told.has(&entry.name)).take(REQUESTS).collect();
    for entry in new {
        let judged = match judge(vault, epoch, &entry).await {
            // The request is followed even if it cannot be deleted: the next leader has another epoch.
            Ok(follow) => {
                if follow {
                    followed.push(entry.clone());
                }
                vault.bucket.delete(&entry.name, entry.generation).await.map(drop)
            }
            Err(error) => Err(error),
        };
        match judged {
            Ok(()) => {}
            Err(error @ BucketError::Unavailable { .. }) => tracing::warn!("a hand-over request waits: {error}"),
            Err(error) if told.first(&entry.name) => tracing::warn!("a hand-over request is left where it is: {error}"),
            Err(_) => {}
        }
    }
    followed
}

/// Returns true if a hand-over request is valid. Otherwise logs the reason.
async fn judge(vault: &Vault, epoch: u64, entry: &InboxEntry) -> Result<bool, BucketError> {
    // No retries: the next look reads it again.
    let Some(object) = vault.bucket.get(&entry.name).await? else { return Ok(false) };
    let request: HandOver = match open(&entry.name, &object.bytes) {
        Ok(request) => request,
        Err(bad) => {
            tracing::warn!("a hand-over request is refused: {}", unusable(vault, &entry.name, &bad));
            return Ok(false);
        }
    };
    let (from, ours) = (&request.from, vault.present_identity().fingerprint);
    // Our own request, from before we took the lease.
    if from.nonce == vault.identity.nonce {
        return Ok(false);
    }
    let why = if !vault.handover.verify(&request) {
        let (theirs, ours) = (request.keys.join(", "), vault.handover.ids().collect::<Vec<_>>().join(", "));
        format!(
            "it is not proven with this server's webhook secret (it knows {theirs}, this one {ours}). While the secret changes, {}",
            vault.wording.both_secrets
        )
    } else if request.epoch != epoch {
        "it is for a leader before this one".to_owned()
    } else if from.fingerprint != ours && !from.force {
        let what = vault.wording.differing(&ours, &from.fingerprint);
        format!("its settings differ in {what}")
    } else {
        return Ok(true);
    };
    tracing::warn!(
        machine = from.machine,
        url = from.url,
        version = from.version,
        why,
        "a hand-over request is refused"
    );
    Ok(false)
}
