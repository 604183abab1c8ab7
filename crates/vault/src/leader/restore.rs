//! Takes the lead: reads the chain, creates the seal, and checks that nothing changed (docs/vault.md, "Restore and seal").

use super::{Known, Leader, Leadership, header};
use crate::calls::{self, Attempt};
use crate::chain::{self, Chain};
use crate::lease::{Held, Lease};
use crate::pack::ObjectKind;
use crate::pack::build::{self, Draft};
use crate::protocol::Protocol;
use crate::{Position, Vault, VaultError};
use bytes::Bytes;
use futures::FutureExt as _;
use std::future::Future;
use std::sync::Arc;

/// Number of rounds that another server's writes may interrupt before a restore fails.
const ROUNDS: u64 = 8;

/// Result of one round.
enum RestoreRound {
    /// The seal is stored, and nothing changed meanwhile: the chain, the position to continue from, and the size of the seal.
    Leads(Box<Chain>, Position, u64),
    /// The outcome of the seal is unknown: this server does not lead.
    Lost,
    /// Something changed meanwhile: the restore starts over.
    Again,
}

/// Restores and takes the lead ([`Vault::lead`]).
pub(crate) async fn lead<P: Protocol>(
    vault: &Vault,
    lease: Lease,
    protocol: P,
) -> Result<Option<(Leader<P>, Chain)>, VaultError> {
    let held = Held::under(protocol, vault, &lease);
    for counter in 1..=ROUNDS {
        let round = match holding(vault, &held, round(vault, &held, counter).boxed()).await {
            Err(VaultError::Deposed(why)) => {
                tracing::warn!(why, "the lease was lost while the state was read");
                return Ok(None);
            }
            round => round?,
        };
        match round {
            RestoreRound::Again => {}
            RestoreRound::Lost => return Ok(None),
            RestoreRound::Leads(chain, position, seal_size) => {
                let known = Known::restored(&chain, position, seal_size);
                let shared = Arc::new(Leadership::new(vault.clone(), held, counter, known));
                shared.name_others(&chain.others).await;
                return Ok(Some((Leader { shared }, chain.sealed(position))));
            }
        }
    }
    let location = vault.bucket.location();
    Err(VaultError::Damaged(format!(
        "{location}: others wrote {ROUNDS} times while the state was read. Nothing was changed. Look with `tidelock vault \
         ls` who does, stop all but one server, and start it again"
    )))
}

/// Runs the work and renews the lease meanwhile. The work continues during a renewal, which may wait for a lock that the work holds.
async fn holding<P: Protocol, T>(
    vault: &Vault,
    held: &Held<P>,
    work: impl Future<Output = Result<T, VaultError>>,
) -> Result<T, VaultError> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = vault.clock.sleep(vault.timing.renew) => {}
        }
        let mut renewal = std::pin::pin!(held.renew());
        tokio::select! {
            biased;
            renewed = &mut renewal => renewed?,
            done = &mut work => return renewal.await.and(done),
        }
    }
}

async fn round<P: Protocol>(vault: &Vault, held: &Held<P>, counter: u64) -> Result<RestoreRound, VaultError> {
    let calls = vault.calls();
    let protocol = held.protocol();
    let chain = chain::read(&calls, protocol, None).boxed().await?;
    if !protocol.is_newest(vault, chain.base).await? {
        return Ok(RestoreRound::Again);
    }
    let header = header(vault, ObjectKind::Seal, chain.position, held.epoch(), counter, chain.schema);
    let seal = build::build(Draft { header, rows: Bytes::new(), database: None, blobs: Vec::new() }).await?;
    let sealed = Position { seq: chain.position.seq + 1, hash: seal.hash };
    match protocol.seal(&calls, &calls::journal(sealed.seq), &seal).await? {
        Attempt::Ours => {}
        // Another server was faster. Is the lease still ours?
        Attempt::Theirs(_) => return held.confirm().await.map(|()| RestoreRound::Again),
        Attempt::Unknown(why) => {
            tracing::warn!(why, "cannot tell whether the seal is there");
            return Ok(RestoreRound::Lost);
        }
    }
    if !protocol.is_undisturbed(vault, held, chain.base, sealed.seq).await? {
        return Ok(RestoreRound::Again);
    }
    let position = protocol.goes_on_from(chain.position, sealed);
    Ok(RestoreRound::Leads(Box::new(chain), position, seal.size))
}
