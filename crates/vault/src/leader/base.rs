//! Bases, and the deletion of objects that a newer base replaces.

use super::{Leadership, header};
use crate::bucket::{BucketError, DAMAGED, Listed};
use crate::calls::{self, Attempt};
use crate::chain;
use crate::pack::ObjectKind;
use crate::pack::build::{self, Draft, Packed};
use crate::protocol::Protocol;
use crate::{Image, Retention, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of concurrent deletions.
const MAX_CONCURRENT: usize = 16;

/// Writes a base, reads it back and verifies it ([`super::Leader::write_base`]).
pub(super) async fn write<P: Protocol>(shared: &Leadership<P>, image: Image) -> Result<bool, VaultError> {
    let Image { position, schema, database, blobs } = image;
    let known = shared.lock_known().bytes_at(&position);
    let Some(before) = shared.protocol().base_allowed(known) else {
        let seq = position.seq;
        return Err(VaultError::Local(format!("cannot write a base of state {seq}: no commit of this leader made it")));
    };
    if shared.lock_known().verified >= Some(position.seq) {
        return Ok(false);
    }
    let header = header(&shared.vault, ObjectKind::Base, position, shared.held.epoch(), 0, schema);
    let packed = build::build(Draft { header, rows: Bytes::new(), database: Some(database), blobs }).await?;
    let name = calls::base(position.seq);
    match shared.calls().create(shared.protocol(), &name, &packed).await? {
        Attempt::Ours => {}
        Attempt::Theirs(_) => return Ok(false),
        // The base may still be stored later. A later try then finds it and compares it.
        Attempt::Unknown(reason) => {
            let (location, doing) = (shared.vault.bucket.location().to_owned(), format!("writing {name}"));
            return Err(BucketError::Unavailable { location, doing, reason }.into());
        }
    }
    verify(shared, &name, &packed).await?;
    shared.lock_known().based(position.seq, packed.size, schema, before);
    Ok(true)
}

/// Reads a whole base back and verifies it.
async fn verify<P: Protocol>(shared: &Leadership<P>, name: &str, packed: &Packed) -> Result<(), VaultError> {
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

/// Deletes objects that are no longer needed ([`super::Leader::collect`]). An object that cannot be deleted is logged once and stays.
pub(super) async fn collect<P: Protocol>(shared: &Leadership<P>) -> Result<u64, VaultError> {
    let Some(verified) = shared.lock_known().verified else { return Ok(0) };
    let calls = shared.calls();
    let (journal, mut others) = chain::sorted_out(&calls, "journal/", "").await?;
    let (bases, more) = chain::sorted_out(&calls, "base/", "").await?;
    others.extend(more);
    shared.name_others(&others).await;
    let old = superfluous(shared.protocol(), &shared.vault.retention, verified, &bases, &journal);
    // Bases first: an interrupted deletion then leaves journal objects that are not needed, but no base without its journal.
    let (old_bases, old_journal): (Vec<_>, Vec<_>) =
        old.into_iter().partition(|listed| listed.name.starts_with("base/"));
    let mut deleted = 0;
    for listed in [old_bases, old_journal] {
        let deletions = listed.into_iter().map(|listed| {
            let calls = &calls;
            async move {
                shared.check()?;
                match calls.delete(&listed.name, listed.generation).await {
                    Err(error @ BucketError::Refused { .. }) => {
                        if shared.told.lock().await.first(&listed.name) {
                            tracing::warn!("an old object that is no longer needed could not be deleted: {error}");
                        }
                        Ok(0)
                    }
                    gone => Ok::<u64, VaultError>(u64::from(gone?)),
                }
            }
        });
        let counts: Vec<u64> = stream::iter(deletions).buffer_unordered(MAX_CONCURRENT).try_collect().await?;
        deleted += counts.iter().sum::<u64>();
    }
    Ok(deleted)
}

/// Returns the objects that the newest base beyond both limits of retention replaces. Seals are never among them.
fn superfluous<P: Protocol>(
    protocol: &P,
    retention: &Retention,
    verified: u64,
    bases: &[(u64, Listed)],
    journal: &[(u64, Listed)],
) -> Vec<Listed> {
    let Some(last) = journal.last().map(|(seq, _)| *seq) else { return Vec::new() };
    let (ages, least) = (ages(journal, retention.keep), retention.keep.saturating_add(longest_gap(retention.keep)));
    // A state before a base was the present one until the base's own state was committed.
    let age = |base: u64| ages.range(base..).next().map_or(Duration::ZERO, |(_, age)| *age);
    let is_old = |seq: u64, listed: &Listed| {
        let counts = seq <= verified && seq.saturating_add(retention.keep_states) <= last && age(seq) >= least;
        // A base that cannot be read replaces nothing.
        counts && listed.label != DAMAGED
    };
    let Some(floor) = bases.iter().rev().find(|(seq, listed)| is_old(*seq, listed)).map(|(seq, _)| *seq) else {
        return Vec::new();
    };
    let old_bases = bases.iter().filter(|(seq, _)| *seq < floor);
    // An object that has lost its label may be a seal.
    let old_journal = journal
        .iter()
        .filter(|(seq, listed)| protocol.is_replaced(*seq, floor) && protocol.is_deletable(&listed.label));
    old_bases.chain(old_journal).map(|(_, listed)| listed.clone()).collect()
}

/// Returns the longest time between two commits that counts. States are kept for that much longer, so that one jump of the clock that
/// stamps objects, by any time, never shortens [`Retention::keep`].
fn longest_gap(keep: Duration) -> Duration {
    keep / 2
}

/// Returns the age of each journal object, by number: the sum of the times between it and all later ones, by the bucket's stamps. Each
/// of these times is at most [`longest_gap`], and 0 if a stamp is earlier than that of the object before. So no age depends on a single
/// stamp, which may be years off.
fn ages(journal: &[(u64, Listed)], keep: Duration) -> BTreeMap<u64, Duration> {
    let (mut ages, mut age, mut later) = (BTreeMap::new(), Duration::ZERO, None);
    for (seq, listed) in journal.iter().rev().filter(|(_, listed)| listed.label != DAMAGED) {
        let later = later.replace(listed.created).unwrap_or(listed.created);
        let gap = Duration::try_from(later.duration_since(listed.created)).unwrap_or_default();
        age = age.saturating_add(gap.min(longest_gap(keep)));
        ages.insert(*seq, age);
    }
    ages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Proven;
    use jiff::{SignedDuration, Timestamp};

    const DAY: i64 = 24 * 3600;
    const YEARS: i64 = 5 * 365 * DAY;

    type Numbered = Vec<(u64, Listed)>;

    /// Returns a commit every hour for three days, and a base every ten commits; `stamp` may change the stamps, in seconds.
    fn kept(stamp: impl Fn(u64, i64) -> i64) -> (Numbered, Numbered) {
        let listed = |folder: &str, seq: u64, label: &str| Listed {
            name: format!("{folder}/{seq:016}"),
            generation: 1,
            size: 1,
            created: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(stamp(seq, YEARS + 3600 * seq.cast_signed())),
            label: label.to_owned(),
        };
        let bases = (10..=70).step_by(10).map(|seq| (seq, listed("base", seq, "base")));
        (bases.collect(), (1..=72).map(|seq| (seq, listed("journal", seq, "commit"))).collect())
    }

    /// Returns the first state that stays restorable.
    fn first(stamp: impl Fn(u64, i64) -> i64) -> u64 {
        let retention = Retention { keep_states: 1, ..Retention::default() };
        let (bases, journal) = kept(stamp);
        let old = superfluous(&Proven, &retention, 70, &bases, &journal);
        let journal: Vec<_> = old.iter().filter(|listed| listed.name.starts_with("journal/")).collect();
        journal.len() as u64 + 1
    }

    #[test]
    fn the_last_day_stays_restorable_whatever_a_jump_of_the_clock_stamps() {
        // A day is 24 commits of 72; the kept states begin at a base.
        assert_eq!(first(|_, at| at), 31);
        for jump in 1..=72 {
            for by in [YEARS, -YEARS] {
                let one = first(|seq, at| if seq == jump { at + by } else { at });
                assert!((21..=49).contains(&one), "object {jump} stamped {by} s off: {one}");
                let all_after = first(|seq, at| if seq >= jump { at + by } else { at });
                assert!((21..=49).contains(&all_after), "all since {jump} stamped {by} s off: {all_after}");
                let some = first(|seq, at| if (jump..jump + 8).contains(&seq) { at + by } else { at });
                assert!((21..=49).contains(&some), "eight since {jump} stamped {by} s off: {some}");
            }
        }
    }

    #[test]
    fn a_base_that_cannot_be_read_is_no_reason_to_delete_what_is_before_it() {
        let retention = Retention { keep_states: 1, keep: Duration::ZERO, ..Retention::default() };
        let (mut bases, journal) = kept(|_, at| at);
        bases[6].1.label = DAMAGED.into();
        let old = superfluous(&Proven, &retention, 70, &bases, &journal);
        let last =
            |folder: &str| old.iter().filter(|listed| listed.name.starts_with(folder)).map(|one| &one.name).max();
        let (base, commit) = ("base/0000000000000050".to_owned(), "journal/0000000000000060".to_owned());
        assert_eq!((last("base/"), last("journal/")), (Some(&base), Some(&commit)));
    }
}
