//! Bases, and the deletion of what they make superfluous.

use super::{Shared, header};
use crate::vault::bucket::{BucketError, Listed};
use crate::vault::calls::{self, Attempt};
use crate::vault::chain;
use crate::vault::mutation::{self, Mutation};
use crate::vault::pack::Kind;
use crate::vault::pack::build::{self, Draft, Packed};
use crate::vault::{Image, Retention, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

/// Objects that are deleted at once.
const AT_ONCE: usize = 16;

/// Writes a base, reads it back and verifies it ([`super::Leader::write_base`]).
pub(super) async fn write(shared: &Shared, image: Image) -> Result<bool, VaultError> {
    let Image { position, schema, database, blobs } = image;
    let known = shared.known().bytes_at(&position);
    let Some(before) = known.or(mutation::on(Mutation::BaseUnchecked).then_some(0)) else {
        let seq = position.seq;
        return Err(VaultError::Local(format!("cannot write a base of state {seq}: no commit of this leader made it")));
    };
    if shared.known().verified >= Some(position.seq) {
        return Ok(false);
    }
    let header = header(&shared.vault, Kind::Base, position, shared.held.epoch(), 0, schema);
    let packed = build::build(Draft { header, rows: Bytes::new(), database: Some(database), blobs }).await?;
    let name = calls::base(position.seq);
    match shared.calls().create(&name, &packed).await? {
        Attempt::Ours => {}
        Attempt::Theirs(_) => return Ok(false),
        // It comes later: a base of another state, or this one, which is then found to be ours.
        Attempt::Unknown(reason) => {
            let (location, doing) = (shared.vault.bucket.location().to_owned(), format!("writing {name}"));
            return Err(BucketError::Unavailable { location, doing, reason }.into());
        }
    }
    verify(shared, &name, &packed).await?;
    shared.known().based(position.seq, packed.size, before);
    Ok(true)
}

/// Reads a base back, all of it.
async fn verify(shared: &Shared, name: &str, packed: &Packed) -> Result<(), VaultError> {
    let read = chain::read_base(&shared.calls(), name).await?;
    let Some(read) = read.filter(|read| read.is(&packed.hash)) else {
        let location = shared.vault.bucket.location();
        return Err(VaultError::Damaged(format!(
            "{location}/{name} is not what was just written there: no older object is deleted. Look who else writes into \
             this bucket, and at its lifecycle rules"
        )));
    };
    read.verify(&|_| ()).await
}

/// Deletes what is superfluous ([`super::Leader::collect`]).
pub(super) async fn collect(shared: &Shared) -> Result<u64, VaultError> {
    let Some(verified) = shared.known().verified else { return Ok(0) };
    let calls = shared.calls();
    let journal = chain::numbered(&calls, "journal/", "").await?;
    let bases = chain::bases(&calls).await?;
    let old = superfluous(&shared.vault.retention, verified, &bases, &journal);
    // Bases first: what is interrupted then leaves journal objects that nobody asks for, but no base without its journal.
    let (old_bases, old_journal): (Vec<_>, Vec<_>) = old.into_iter().partition(|listed| listed.label == "base");
    let mut deleted = 0;
    for listed in [old_bases, old_journal] {
        let deletions = listed.into_iter().map(|listed| {
            let calls = &calls;
            async move {
                shared.check()?;
                Ok::<u64, VaultError>(u64::from(calls.delete(&listed.name, listed.generation).await?))
            }
        });
        let counts: Vec<u64> = stream::iter(deletions).buffer_unordered(AT_ONCE).try_collect().await?;
        deleted += counts.iter().sum::<u64>();
    }
    Ok(deleted)
}

/// Objects below the newest base that is older than both limits. Seals are never among them.
fn superfluous(
    retention: &Retention,
    verified: u64,
    bases: &[(u64, Listed)],
    journal: &[(u64, Listed)],
) -> Vec<Listed> {
    let Some(last) = journal.last().map(|(seq, _)| *seq) else { return Vec::new() };
    // The bucket's own times, compared with one another.
    let Some(now) = bases.iter().chain(journal).map(|(_, listed)| listed.created).max() else { return Vec::new() };
    let is_old = |seq: u64, listed: &Listed| {
        let age = std::time::Duration::try_from(now.duration_since(listed.created)).unwrap_or_default();
        seq <= verified && seq.saturating_add(retention.keep_states) <= last && age >= retention.keep
    };
    let Some(floor) = bases.iter().rev().find(|(seq, listed)| is_old(*seq, listed)).map(|(seq, _)| *seq) else {
        return Vec::new();
    };
    let old_bases = bases.iter().filter(|(seq, _)| *seq < floor);
    // Whatever has lost its label may be a seal.
    let goes = |label: &str| label == Kind::Commit.label() || mutation::on(Mutation::SealsCollected);
    let old_journal = journal.iter().filter(|(seq, listed)| *seq <= floor && goes(&listed.label));
    old_bases.chain(old_journal).map(|(_, listed)| listed.clone()).collect()
}
