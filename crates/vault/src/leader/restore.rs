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

/// Result of a seal.
enum SealOutcome {
    /// It is stored at this position with this size, and nothing changed meanwhile.
    Stored(Position, u64),
    /// See [`RestoreRound::Lost`].
    Lost,
    /// See [`RestoreRound::Again`].
    Again,
}

/// The state that a new leader seals.
struct SealedState {
    position: Position,
    base: u64,
    schema: u32,
    after: SealAfter,
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
            match last.take() {
                Some(last) => go_on(vault, &held, counter, last).await,
                None => restore(vault, &held, counter).await,
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

/// Goes on from the end of this process's last term, without reading its objects again.
async fn go_on<P: Protocol>(
    vault: &Vault,
    held: &Held<P>,
    counter: u64,
    last: &LastTerm,
) -> Result<RestoreRound, VaultError> {
    let protocol = held.protocol();
    let (position, (base, ..), schema) = (last.position, last.base, last.schema);
    if !protocol.is_unchanged(vault, held.epoch(), last).await? {
        return Ok(RestoreRound::Again);
    }
    Ok(match seal(vault, held, counter, &SealedState { position, base, schema, after: SealAfter::LastTerm }).await? {
        SealOutcome::Again => RestoreRound::Again,
        SealOutcome::Lost => RestoreRound::Lost,
        SealOutcome::Stored(sealed, size) => {
            RestoreRound::Leads(None, sealed, Box::new(Known::continued(last, sealed, size)))
        }
    })
}

async fn restore<P: Protocol>(vault: &Vault, held: &Held<P>, counter: u64) -> Result<RestoreRound, VaultError> {
    let protocol = held.protocol();
    let chain = chain::read(&vault.calls(), protocol, None).boxed().await?;
    if !protocol.is_newest(vault, chain.base).await? {
        return Ok(RestoreRound::Again);
    }
    let (position, base, schema) = (chain.position, chain.base, chain.schema);
    let state = SealedState { position, base, schema, after: SealAfter::Restore };
    Ok(match seal(vault, held, counter, &state).await? {
        SealOutcome::Again => RestoreRound::Again,
        SealOutcome::Lost => RestoreRound::Lost,
        SealOutcome::Stored(sealed, size) => {
            let known = Known::restored(&chain, sealed, size);
            RestoreRound::Leads(Some(Box::new(chain)), sealed, Box::new(known))
        }
    })
}

/// Creates the seal of a state, and checks that nothing changed meanwhile.
async fn seal<P: Protocol>(
    vault: &Vault,
    held: &Held<P>,
    counter: u64,
    state: &SealedState,
) -> Result<SealOutcome, VaultError> {
    let (calls, protocol) = (vault.calls(), held.protocol());
    let header = header(vault, ObjectKind::Seal, state.position, held.epoch(), counter, state.schema);
    let seal = build::build(Draft { header, rows: Bytes::new(), database: None, blobs: Vec::new() }).await?;
    let sealed = Position { seq: state.position.seq + 1, hash: seal.hash };
    match protocol.seal(&calls, &calls::journal(sealed.seq), &seal, state.after).await? {
        Attempt::Ours => {}
        // Another server was faster. Is the lease still ours?
        Attempt::Theirs(_) => return held.confirm().await.map(|()| SealOutcome::Again),
        Attempt::Unknown(why) => {
            tracing::warn!(why, "cannot tell whether the seal is there");
            return Ok(SealOutcome::Lost);
        }
    }
    if !protocol.is_undisturbed(vault, held, state.base, sealed.seq).await? {
        return Ok(SealOutcome::Again);
    }
    Ok(SealOutcome::Stored(protocol.goes_on_from(state.position, sealed), seal.size))
}
