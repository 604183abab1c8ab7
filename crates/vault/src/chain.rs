//! Reading state: one base, the journal behind it, every hash on the way.

mod contents;
mod part;
#[cfg(test)]
mod tests;

use super::bucket::Listed;
use super::calls::{self, Calls, REMEDY};
use super::protocol::Protocol;
use super::{Hash, Position, VaultError};
use bytes::Bytes;
use contents::Index;
use futures::stream::{self, StreamExt, TryStreamExt};
use part::Fault;
pub(super) use part::Part;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// Requests at once.
pub(super) const AT_ONCE: usize = 32;
/// How often a restore starts over because a newer base came up.
const ROUNDS: usize = 8;
/// Memory for small objects that are kept whole, so that their contents need no second request.
const KEPT_WHOLE: u64 = 64 << 20;

/// A state whose objects were listed, read as far as their headers and rows, and found to be one unbroken chain.
pub struct Chain {
    /// Where it ends.
    pub position: Position,
    /// Format of the database: the highest of all its objects.
    pub schema: u32,
    /// Base it starts from; 0 for none.
    pub base: u64,
    calls: Calls,
    /// The base, if there is one, then the journal in order.
    parts: Vec<Part>,
    index: Index,
    /// Names of what lies among its objects and is not ours.
    pub(super) others: Vec<String>,
}

/// Rows of one commit.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Its number.
    pub seq: u64,
    /// Format that they need.
    pub schema: u32,
    /// In `store`'s encoding.
    pub rows: Bytes,
}

/// A file that is to be written from kept content.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its content.
    pub hash: Hash,
    /// Where; its directories are made.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
}

impl Chain {
    /// Writes the base's database image to a new file; false when the chain has no base.
    pub async fn database(&self, to: &Path) -> Result<bool, VaultError> {
        match self.parts.first() {
            Some(base) if self.base > 0 => contents::database(&self.calls, base, to).await.map(|()| true),
            _ => Ok(false),
        }
    }

    /// Rows of all commits after the base, in order; seals have none.
    pub async fn rows(&self) -> Result<Vec<Rows>, VaultError> {
        let with_rows = self.parts.iter().filter(|part| !part.rows.is_empty());
        let rows =
            |part: &Part| Rows { seq: part.head.header.seq, schema: part.head.header.schema, rows: part.rows.clone() };
        Ok(with_rows.map(rows).collect())
    }

    /// Writes files, in parallel, each content verified. `progress` gets bytes written so far, now and then.
    pub async fn fetch(&self, files: Vec<Wanted>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
        contents::fetch(&self.calls, &self.parts, &self.index, files, progress).await
    }

    /// Reads and verifies all contents of all objects without keeping them. `progress` gets bytes so far, now and then.
    pub async fn verify(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
        contents::verify(&self.calls, &self.parts, progress).await
    }

    /// Whether a content is there.
    pub fn has(&self, hash: &Hash) -> bool {
        self.index.contains_key(hash)
    }

    /// Bytes of the journal objects after the base.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.parts[usize::from(self.base > 0)..].iter().map(|part| part.size).sum()
    }

    /// Bytes of the base; 0 for none.
    pub(super) fn base_bytes(&self) -> u64 {
        self.parts.first().filter(|_| self.base > 0).map_or(0, |part| part.size)
    }

    /// Whether it ends with the object of this hash.
    pub(super) fn is(&self, hash: &Hash) -> bool {
        self.parts.last().is_some_and(|part| part.head.hash == *hash)
    }

    /// The chain with the new leader's seal behind it.
    pub(super) fn sealed(mut self, position: Position) -> Chain {
        self.position = position;
        self
    }
}

/// Reads the newest state, or the one exactly after `at`.
pub(super) async fn read<P: Protocol>(calls: &Calls, protocol: &P, at: Option<u64>) -> Result<Chain, VaultError> {
    for _ in 0..ROUNDS {
        let (bases, others) = sorted_out(calls, "base/", "").await?;
        let why = match once(calls, &bases, at).await {
            Ok(mut chain) => {
                chain.others.extend(others);
                return Ok(chain);
            }
            Err(Fault::Error(error)) => return Err(error),
            Err(Fault::Stop(why)) => why,
        };
        // An object that is missing may have been deleted during the read, because of a newer base.
        if !protocol.is_explained(newest(&bases, None), newest_base(calls).await?) {
            return Err(VaultError::Damaged(why));
        }
    }
    let location = calls.bucket.location();
    Err(VaultError::Damaged(format!(
        "{location}: newer bases came up {ROUNDS} times while the state was read; try again"
    )))
}

/// A chain of one base alone, to verify it; absent when it is not there.
pub(super) async fn read_base(calls: &Calls, name: &str) -> Result<Option<Chain>, VaultError> {
    let bases = bases(calls).await?;
    let Some((base, listed)) = bases.into_iter().find(|(_, listed)| listed.name == name) else { return Ok(None) };
    match part::open(calls, listed, base, &AtomicU64::new(0)).await {
        Err(Fault::Stop(why)) => Err(VaultError::Damaged(why)),
        Err(Fault::Error(error)) => Err(error),
        Ok(part) => {
            let parts = vec![part];
            let (position, schema) = match linked(calls, &parts) {
                Ok(linked) => linked,
                Err(Fault::Stop(why)) => return Err(VaultError::Damaged(why)),
                Err(Fault::Error(error)) => return Err(error),
            };
            let index = contents::index(&parts);
            Ok(Some(Chain { position, schema, base, calls: calls.clone(), parts, index, others: Vec::new() }))
        }
    }
}

/// All bases, oldest first.
pub(super) async fn bases(calls: &Calls) -> Result<Vec<(u64, Listed)>, VaultError> {
    numbered(calls, "base/", "").await
}

/// Objects of a folder with their numbers. An object without one is not ours: it is left alone, and left out here.
pub(super) async fn numbered(calls: &Calls, folder: &str, after: &str) -> Result<Vec<(u64, Listed)>, VaultError> {
    Ok(sorted_out(calls, folder, after).await?.0)
}

/// The same, and the names of those that are not ours.
pub(super) async fn sorted_out(
    calls: &Calls,
    folder: &str,
    after: &str,
) -> Result<(Vec<(u64, Listed)>, Vec<String>), VaultError> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for listed in calls.list(folder, after).await? {
        match calls::number(&listed.name, folder) {
            Some(seq) if seq > 0 => ours.push((seq, listed)),
            _ => others.push(listed.name),
        }
    }
    Ok((ours, others))
}

/// Number of the newest base as the bucket lists them now; 0 for none.
pub(super) async fn newest_base(calls: &Calls) -> Result<u64, VaultError> {
    Ok(newest(&bases(calls).await?, None))
}

/// The newest base not above `at`.
pub(super) fn newest(bases: &[(u64, Listed)], at: Option<u64>) -> u64 {
    bases.iter().rev().map(|(seq, _)| *seq).find(|seq| at.is_none_or(|at| *seq <= at)).unwrap_or(0)
}

async fn once(calls: &Calls, bases: &[(u64, Listed)], at: Option<u64>) -> Result<Chain, Fault> {
    let base = newest(bases, at);
    let after = if base == 0 { String::new() } else { calls::journal(base) };
    let (mut journal, others) = sorted_out(calls, "journal/", &after).await.map_err(Fault::Error)?;
    if let Some(at) = at {
        journal.retain(|(seq, _)| *seq <= at);
        let last = journal.last().map_or(base, |(seq, _)| *seq);
        if at == 0 || last != at || gapless(calls, base, &journal).is_err() {
            return Err(Fault::Error(not_kept(calls, bases, at).await?));
        }
    }
    gapless(calls, base, &journal)?;
    let start: Vec<_> = bases.iter().filter(|(seq, _)| *seq == base).cloned().collect();
    let budget = AtomicU64::new(KEPT_WHOLE);
    let opened = start.into_iter().chain(journal).map(|(seq, listed)| part::open(calls, listed, seq, &budget));
    let parts: Vec<Part> = stream::iter(opened).buffered(AT_ONCE).try_collect().await?;
    let (position, schema) = linked(calls, &parts)?;
    let index = contents::index(&parts);
    Ok(Chain { position, schema, base, calls: calls.clone(), parts, index, others })
}

/// Every number is there.
fn gapless(calls: &Calls, base: u64, journal: &[(u64, Listed)]) -> Result<(), Fault> {
    let location = calls.bucket.location();
    for (expected, (seq, listed)) in (base + 1..).zip(journal) {
        if *seq != expected {
            let missing = calls::journal(expected);
            return Err(Fault::Stop(format!(
                "{location}/{missing} is missing, though {} is there and no newer base is: the state cannot be restored. \
                 Nothing was changed. {REMEDY}",
                listed.name
            )));
        }
    }
    Ok(())
}

/// Each object continues the one before. Gives where the chain ends.
fn linked(calls: &Calls, parts: &[Part]) -> Result<(Position, u32), Fault> {
    let mut position = Position::default();
    let mut schema = 0;
    for part in parts {
        let header = &part.head.header;
        let is_base = header.kind == super::pack::Kind::Base;
        if !is_base && header.previous != position.hash {
            let location = calls.bucket.location();
            return Err(Fault::Stop(format!(
                "{location}/{} does not continue the object before it: one of them was exchanged. Nothing was changed. \
                 {REMEDY}",
                part.name
            )));
        }
        position = Position { seq: header.seq, hash: if is_base { header.previous } else { part.head.hash } };
        schema = schema.max(header.schema);
    }
    Ok((position, schema))
}

/// The error about a state that is not kept: names those that are.
async fn not_kept(calls: &Calls, bases: &[(u64, Listed)], at: u64) -> Result<VaultError, Fault> {
    let journal = numbered(calls, "journal/", "").await.map_err(Fault::Error)?;
    let ranges: Vec<String> = kept(bases, &journal).iter().map(|(from, to)| format!("{from} to {to}")).collect();
    let kept = match ranges.is_empty() {
        true => "none is yet".to_owned(),
        false => format!("kept are {} (`tidelock vault ls`)", ranges.join(" and ")),
    };
    Ok(VaultError::Local(format!("{}: state {at} is not kept: {kept}", calls.bucket.location())))
}

/// The states that can be restored, as ranges of numbers: each base and the unbroken journal behind it.
pub(super) fn kept(bases: &[(u64, Listed)], journal: &[(u64, Listed)]) -> Vec<(u64, u64)> {
    let journal: BTreeSet<u64> = journal.iter().map(|(seq, _)| *seq).collect();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for start in std::iter::once(0).chain(bases.iter().map(|(seq, _)| *seq)) {
        if ranges.last().is_some_and(|(_, end)| start <= *end) {
            continue;
        }
        let end = (start + 1..).take_while(|seq| journal.contains(seq)).last().unwrap_or(start);
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == start => *last = end,
            _ if end > 0 => ranges.push((start.max(1), end)),
            _ => {}
        }
    }
    ranges
}
