//! Taking the lead: read the chain, seal the next place, look again (DESIGN §3 "Restore and seal").

use super::{Known, Leader, Shared, header};
use crate::calls::{self, Attempt};
use crate::chain::{self, Chain};
use crate::lease::{Held, Lease};
use crate::mutation::{self, Mutation};
use crate::pack::Kind;
use crate::pack::build::{self, Draft, Packed};
use crate::{Position, Vault, VaultError};
use bytes::Bytes;
use futures::FutureExt as _;
use std::future::Future;
use std::sync::Arc;

/// How often it starts over because somebody else wrote meanwhile.
const ROUNDS: u64 = 8;

/// How one round ended.
enum Round {
    /// Sealed, and nothing happened meanwhile.
    Leads(Box<Chain>, Packed),
    /// The lease is another's.
    Lost,
    /// Something came up: once more.
    Again,
}

/// Restores and takes the lead ([`Vault::lead`]).
pub(crate) async fn lead(vault: &Vault, lease: Lease) -> Result<Option<(Leader, Chain)>, VaultError> {
    let held = Held::new(vault, &lease);
    for counter in 1..=ROUNDS {
        let round = match holding(vault, &held, round(vault, &held, counter).boxed()).await {
            Err(VaultError::Deposed(why)) => {
                tracing::warn!(why, "the lease was lost while the state was read");
                return Ok(None);
            }
            round => round?,
        };
        match round {
            Round::Again => {}
            Round::Lost => return Ok(None),
            Round::Leads(chain, seal) => {
                let sealed = Position { seq: chain.position.seq + 1, hash: seal.hash };
                let position = if mutation::on(Mutation::NoSeal) { chain.position } else { sealed };
                let known = Known::restored(&chain, position, seal.size);
                let shared = Arc::new(Shared::new(vault.clone(), held, counter, known));
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

/// Does the work and renews the lease meanwhile. The work goes on while a renewal waits: it may hold what that waits for.
async fn holding<T>(
    vault: &Vault,
    held: &Held,
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

async fn round(vault: &Vault, held: &Held, counter: u64) -> Result<Round, VaultError> {
    let calls = vault.calls();
    let chain = chain::read(&calls, None).boxed().await?;
    // A base that came up while the journal was read: the place after it may be one that was left behind.
    let before = !mutation::on(Mutation::NoLookBeforeSeal) && !mutation::on(Mutation::LooksOnlyAboveSeal);
    if before && newest_base(vault).await? != chain.base {
        return Ok(Round::Again);
    }
    let header = header(vault, Kind::Seal, chain.position, held.epoch(), counter, chain.schema);
    let seal = build::build(Draft { header, rows: Bytes::new(), database: None, blobs: Vec::new() }).await?;
    let seq = chain.position.seq + 1;
    if mutation::on(Mutation::NoSeal) {
        return Ok(Round::Leads(Box::new(chain), seal));
    }
    match calls.create(&calls::journal(seq), &seal).await? {
        Attempt::Ours => {}
        // Somebody was faster: is it still our turn?
        Attempt::Theirs(_) => return held.confirm().await.map(|()| Round::Again),
        Attempt::Unknown(why) => {
            tracing::warn!(why, "cannot tell whether the seal is there");
            return Ok(Round::Lost);
        }
    }
    if mutation::on(Mutation::NoLookAfterSeal) {
        return Ok(Round::Leads(Box::new(chain), seal));
    }
    held.confirm().await?;
    let base = newest_base(vault).await?;
    let newer = if mutation::on(Mutation::LooksOnlyAboveSeal) { base >= seq } else { base != chain.base };
    if newer || !chain::numbered(&calls, "journal/", &calls::journal(seq)).await?.is_empty() {
        return Ok(Round::Again);
    }
    Ok(Round::Leads(Box::new(chain), seal))
}

async fn newest_base(vault: &Vault) -> Result<u64, VaultError> {
    Ok(chain::newest(&chain::bases(&vault.calls()).await?, None))
}
