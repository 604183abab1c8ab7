//! Takes the lead: reads the chain, creates the seal, and checks that nothing changed (docs/vault.md, "Restore and seal").

use super::{Known, LastTerm, Leader, Leadership, header};
use crate::calls::{self, Attempt};
use crate::chain::{self, Chain};
use crate::lease::{Held, Lease};
use crate::pack::ObjectKind;
use crate::pack::build::{self, Draft};
use crate::protocol::{Protocol, SealAfter};
use crate::{Position, Vault, VaultError};
use bytes::Bytes;
use futures::FutureExt as _;
use std::future::Future;
use std::sync::Arc;

/// Number of rounds that another server's writes may interrupt before a restore fails.
const ROUNDS: u64 = 8;

/// Result of one round.
enum RestoreRound {
    /// The seal is stored, and nothing changed meanwhile. The chain is absent if the state is that of the last term.
    Leads(Option<Box<Chain>>, Position, Box<Known>),
    /// The outcome of the seal is unknown: this server does not lead.
    Lost,
    /// Something changed meanwhile: the restore starts over.
    Again,
}

/// The newest state, before its seal.
enum FoundState<'a> {
    /// It has been read.
    InBucket(Box<Chain>),
    /// It is that of the last term.
    Kept(&'a LastTerm),
}

impl FoundState<'_> {
    fn position(&self) -> Position {
        match self {
            FoundState::InBucket(chain) => chain.position,
            FoundState::Kept(last) => last.position,
        }
    }

    /// Number of its newest base.
    fn base(&self) -> u64 {
        match self {
            FoundState::InBucket(chain) => chain.base,
            FoundState::Kept(last) => last.base.0,
        }
    }

    fn schema(&self) -> u32 {
        match self {
            FoundState::InBucket(chain) => chain.schema,
            FoundState::Kept(last) => last.schema,
        }
    }

    fn seal_after(&self) -> SealAfter {
        match self {
            FoundState::InBucket(_) => SealAfter::Restore,
            FoundState::Kept(_) => SealAfter::LastTerm,
        }
    }
}

/// Takes the lead, with a chain if the state has to be restored ([`Vault::lead_after`]). Without a last term, it always has to be.
pub(crate) async fn lead<P: Protocol>(
    vault: &Vault,
    lease: Lease,
    protocol: P,
    mut last: Option<&LastTerm>,
) -> Result<Option<(Leader<P>, Option<Chain>)>, VaultError> {
    let held = Held::under(protocol, vault, &lease);
    for counter in 1..=ROUNDS {
        let round = async {
            match find(vault, &held, last.take()).await? {
                Some(found) => seal(vault, &held, counter, found).await,
                None => Ok(RestoreRound::Again),
            }
        };
        let round = match holding(vault, &held, round.boxed()).await {
            Err(VaultError::Deposed(why)) => {
                tracing::warn!(why, "the lease was lost while the state was read");
                return Ok(None);
            }
            round => round?,
        };
        match round {
            RestoreRound::Again => {}
            RestoreRound::Lost => return Ok(None),
            RestoreRound::Leads(chain, position, known) => {
                let shared = Arc::new(Leadership::new(vault.clone(), held, counter, *known));
                if let Some(chain) = &chain {
                    shared.name_others(&chain.others).await;
                }
                return Ok(Some((Leader { shared }, chain.map(|chain| chain.sealed(position)))));
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

/// Finds the newest state: that of the last term, if it may still be the newest, or the one in the bucket. Absent if it changed meanwhile.
async fn find<'a, P: Protocol>(
    vault: &Vault,
    held: &Held<P>,
    last: Option<&'a LastTerm>,
) -> Result<Option<FoundState<'a>>, VaultError> {
    let protocol = held.protocol();
    if let Some(last) = last {
        return Ok(protocol.is_unchanged(vault, held.epoch(), last).await?.then_some(FoundState::Kept(last)));
    }
    let chain = chain::read(&vault.calls(), protocol, None).boxed().await?;
    let is_newest = protocol.is_newest(vault, chain.base).await?;
    Ok(is_newest.then(|| FoundState::InBucket(Box::new(chain))))
}

/// Creates the seal of a state, and checks that nothing changed meanwhile.
async fn seal<P: Protocol>(
    vault: &Vault,
    held: &Held<P>,
    counter: u64,
    found: FoundState<'_>,
) -> Result<RestoreRound, VaultError> {
    let (calls, protocol, position) = (vault.calls(), held.protocol(), found.position());
    let header = header(vault, ObjectKind::Seal, position, held.epoch(), counter, found.schema());
    let seal = build::build(Draft { header, rows: Bytes::new(), database: None, blobs: Vec::new() }).await?;
    let sealed = Position { seq: position.seq + 1, hash: seal.hash };
    match protocol.seal(&calls, &calls::journal(sealed.seq), &seal, found.seal_after()).await? {
        Attempt::Ours => {}
        // Another server was faster. Is the lease still ours?
        Attempt::Theirs(_) => return held.confirm().await.map(|()| RestoreRound::Again),
        Attempt::Unknown(why) => {
            tracing::warn!(why, "cannot tell whether the seal is there");
            return Ok(RestoreRound::Lost);
        }
    }
    if !protocol.is_undisturbed(vault, held, found.base(), sealed.seq).await? {
        return Ok(RestoreRound::Again);
    }
    let next = protocol.goes_on_from(position, sealed);
    Ok(match found {
        FoundState::InBucket(chain) => {
            let known = Known::restored(&chain, next, seal.size);
            RestoreRound::Leads(Some(chain), next, Box::new(known))
        }
        FoundState::Kept(last) => RestoreRound::Leads(None, next, Box::new(Known::continued(last, next, seal.size))),
    })
}
