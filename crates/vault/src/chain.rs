//! Reads a state: one base and the journal after it, with a check of every hash.

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
pub(super) use part::Part;
use part::ReadError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// Concurrent requests.
pub(super) const MAX_CONCURRENT: usize = 32;
/// Number of reads that newer bases may interrupt before a restore fails.
const ROUNDS: usize = 8;
/// Limit in bytes of small objects that are kept in memory, so that their contents need no second request.
const KEPT_WHOLE: u64 = 64 << 20;

/// A state. Its objects form one unbroken chain, and their headers and rows have been read.
pub struct Chain {
    /// Last position of the chain.
    pub position: Position,
    /// Highest format of the state among its objects.
    pub schema: u32,
    /// Number of the base that it starts from; 0 for none.
    pub base: u64,
    calls: Calls,
    /// The base, if there is one, then the journal in order.
    parts: Vec<Part>,
    index: Index,
    /// Names of foreign objects among its objects.
    pub(super) others: Vec<String>,
}

/// Rows of one commit.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Number of the journal object.
    pub seq: u64,
    /// Format of the state that they need.
    pub schema: u32,
    /// In the caller's encoding.
    pub rows: Bytes,
}

/// A file to write from kept content.
#[derive(Debug, Clone)]
pub struct WantedFile {
    /// SHA-256 of the content.
    pub hash: Hash,
    /// Path of the file. Missing directories are created.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
}

impl Chain {
    /// Writes the base's database to a new file. False when the chain has no base.
    pub async fn database(&self, to: &Path) -> Result<bool, VaultError> {
        match self.parts.first() {
            Some(base) if self.base > 0 => contents::database(&self.calls, base, to).await.map(|()| true),
            _ => Ok(false),
        }
    }

    /// Rows of all commits after the base, in order. Seals have none.
    pub async fn rows(&self) -> Result<Vec<Rows>, VaultError> {
        let with_rows = self.parts.iter().filter(|part| !part.rows.is_empty());
        let rows =
            |part: &Part| Rows { seq: part.head.header.seq, schema: part.head.header.schema, rows: part.rows.clone() };
        Ok(with_rows.map(rows).collect())
    }

    /// Writes files in parallel and verifies each content. `progress` is called with the bytes written so far.
    pub async fn fetch(&self, files: Vec<WantedFile>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
        contents::fetch(&self.calls, &self.parts, &self.index, files, progress).await
    }

    /// Reads and verifies all contents of all objects. `progress` is called with the bytes read so far.
    pub async fn verify(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
        contents::verify(&self.calls, &self.parts, progress).await
    }

    /// Returns true if an object of the chain has this content.
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

    /// Returns true if the chain ends with the object of this hash.
    pub(super) fn is(&self, hash: &Hash) -> bool {
        self.parts.last().is_some_and(|part| part.head.hash == *hash)
    }

    /// Sets the end of the chain to the new leader's seal.
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
            Err(ReadError::Error(error)) => return Err(error),
            Err(ReadError::Stop(why)) => why,
        };
        // A missing object may have been deleted during the read, because of a newer base.
        if !protocol.is_explained(newest(&bases, None), newest_base(calls).await?) {
            return Err(VaultError::Damaged(why));
        }
    }
    let location = calls.bucket.location();
    Err(VaultError::Damaged(format!(
        "{location}: newer bases came up {ROUNDS} times while the state was read; try again"
    )))
}

/// Reads one base as a chain of its own, to verify it; absent if there is no such base.
pub(super) async fn read_base(calls: &Calls, name: &str) -> Result<Option<Chain>, VaultError> {
    let bases = bases(calls).await?;
    let Some((base, listed)) = bases.into_iter().find(|(_, listed)| listed.name == name) else { return Ok(None) };
    match part::open(calls, listed, base, &AtomicU64::new(0)).await {
        Err(ReadError::Stop(why)) => Err(VaultError::Damaged(why)),
        Err(ReadError::Error(error)) => Err(error),
        Ok(part) => {
            let parts = vec![part];
            let (position, schema) = match linked(calls, &parts) {
                Ok(linked) => linked,
                Err(ReadError::Stop(why)) => return Err(VaultError::Damaged(why)),
                Err(ReadError::Error(error)) => return Err(error),
            };
            let index = contents::index(&parts);
            Ok(Some(Chain { position, schema, base, calls: calls.clone(), parts, index, others: Vec::new() }))
        }
    }
}

/// Returns true if the journal ends with exactly this object.
pub(super) async fn ends_with(calls: &Calls, last: Position) -> Result<bool, VaultError> {
    let mut listed = numbered(calls, "journal/", &calls::journal(last.seq.saturating_sub(1))).await?;
    let (Some((seq, object)), true) = (listed.pop(), listed.is_empty()) else { return Ok(false) };
    match part::open(calls, object, seq, &AtomicU64::new(0)).await {
        Ok(part) => Ok(part.head.header.seq == last.seq && part.head.hash == last.hash),
        Err(ReadError::Stop(_)) => Ok(false),
        Err(ReadError::Error(error)) => Err(error),
    }
}

/// Lists all bases, oldest first.
pub(super) async fn bases(calls: &Calls) -> Result<Vec<(u64, Listed)>, VaultError> {
    numbered(calls, "base/", "").await
}

/// Lists the objects of a folder with their numbers, without foreign objects, whose names are no number.
pub(super) async fn numbered(calls: &Calls, folder: &str, after: &str) -> Result<Vec<(u64, Listed)>, VaultError> {
    Ok(sorted_out(calls, folder, after).await?.0)
}

/// Lists the objects of a folder with their numbers, and the names of foreign objects.
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

/// Lists the bases and returns the number of the newest; 0 for none.
pub(super) async fn newest_base(calls: &Calls) -> Result<u64, VaultError> {
    Ok(newest(&bases(calls).await?, None))
}

/// Returns the number of the newest base that is at most `at`; 0 for none.
pub(super) fn newest(bases: &[(u64, Listed)], at: Option<u64>) -> u64 {
    bases.iter().rev().map(|(seq, _)| *seq).find(|seq| at.is_none_or(|at| *seq <= at)).unwrap_or(0)
}

async fn once(calls: &Calls, bases: &[(u64, Listed)], at: Option<u64>) -> Result<Chain, ReadError> {
    let base = newest(bases, at);
    let after = if base == 0 { String::new() } else { calls::journal(base) };
    let (mut journal, others) = sorted_out(calls, "journal/", &after).await.map_err(ReadError::Error)?;
    if let Some(at) = at {
        journal.retain(|(seq, _)| *seq <= at);
        let last = journal.last().map_or(base, |(seq, _)| *seq);
        if at == 0 || last != at || gapless(calls, base, &journal).is_err() {
            return Err(ReadError::Error(not_kept(calls, bases, at).await?));
        }
    }
    gapless(calls, base, &journal)?;
    let start: Vec<_> = bases.iter().filter(|(seq, _)| *seq == base).cloned().collect();
    let budget = AtomicU64::new(KEPT_WHOLE);
    let opened = start.into_iter().chain(journal).map(|(seq, listed)| part::open(calls, listed, seq, &budget));
    let parts: Vec<Part> = stream::iter(opened).buffered(MAX_CONCURRENT).try_collect().await?;
    let (position, schema) = linked(calls, &parts)?;
    let index = contents::index(&parts);
    Ok(Chain { position, schema, base, calls: calls.clone(), parts, index, others })
}

/// Checks that no number is missing.
fn gapless(calls: &Calls, base: u64, journal: &[(u64, Listed)]) -> Result<(), ReadError> {
    let location = calls.bucket.location();
    for (expected, (seq, listed)) in (base + 1..).zip(journal) {
        if *seq != expected {
            let missing = calls::journal(expected);
            return Err(ReadError::Stop(format!(
                "{location}/{missing} is missing, though {} is there and no newer base is: the state cannot be restored. \
                 Nothing was changed. {REMEDY}",
                listed.name
            )));
        }
    }
    Ok(())
}

/// Checks that each object names the hash of the one before. Returns the last position and the highest format.
fn linked(calls: &Calls, parts: &[Part]) -> Result<(Position, u32), ReadError> {
    let mut position = Position::default();
    let mut schema = 0;
    for part in parts {
        let header = &part.head.header;
        let is_base = header.kind == super::pack::ObjectKind::Base;
        if !is_base && header.previous != position.hash {
            let location = calls.bucket.location();
            return Err(ReadError::Stop(format!(
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

/// Error for a state that is not kept. It names the kept ones.
async fn not_kept(calls: &Calls, bases: &[(u64, Listed)], at: u64) -> Result<VaultError, ReadError> {
    let journal = numbered(calls, "journal/", "").await.map_err(ReadError::Error)?;
    let ranges: Vec<String> = kept(bases, &journal).iter().map(|(from, to)| format!("{from} to {to}")).collect();
    let kept = match ranges.is_empty() {
        true => "none is yet".to_owned(),
        false => format!("kept are {} (`tidelock vault ls`)", ranges.join(" and ")),
    };
    Ok(VaultError::Local(format!("{}: state {at} is not kept: {kept}", calls.bucket.location())))
}

/// Returns the states that can be restored, as inclusive ranges of numbers: each base and the unbroken journal behind it.
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
