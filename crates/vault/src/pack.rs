//! The format of journal and base objects: one header that holds the hashes of everything behind it, then contents.
//!
//! ```text
//! "tidelock" | format u32 | length of the header u32 | start of the contents u64 | header (JSON, zstd) | contents
//! ```
//! Numbers are little-endian. The object's own hash is that of all before the contents, so each byte is hashed once. Contents
//! lie one behind the other in the order of the header: rows, parts of the database, blobs. Building is in [`build`].

pub(super) mod build;
#[cfg(test)]
mod tests;

use super::{FORMAT, Hash};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// First bytes of every object.
const MAGIC: &[u8; 8] = b"tidelock";
/// Bytes before the header.
pub(super) const PREFIX: usize = 24;
/// Of a header as it is stored.
const MAX_HEADER_STORED: usize = 64 << 20;
/// Of a header's JSON; a million blobs.
const MAX_HEADER: u64 = 256 << 20;
/// Of one commit's rows, as they are in memory.
pub(super) const MAX_ROWS: u64 = 256 << 20;
/// Of one part of a database; each is compressed and verified on its own. Tests need not hash so much for several.
pub(super) const DATABASE_PART: u64 = if cfg!(test) { 256 << 10 } else { 4 << 20 };
/// Of one part of a database that is read.
const MAX_DATABASE_PART: u64 = 64 << 20;

/// What an object is; also the label that lists show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ObjectKind {
    /// Changes.
    Commit,
    /// Nothing but its place: what a new leader creates first.
    Seal,
    /// A whole state.
    Base,
}

impl ObjectKind {
    /// The label of its objects.
    pub(super) fn label(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Seal => "seal",
            ObjectKind::Base => "base",
        }
    }
}

/// How a content is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Coding {
    /// As it is.
    Raw,
    /// Compressed.
    Zstd,
}

/// One content, in the order of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    /// Of the content, uncompressed.
    pub(super) hash: Hash,
    /// Bytes in the object.
    pub(super) stored: u64,
    /// Bytes of the content.
    pub(super) length: u64,
    /// How it is stored.
    pub(super) coding: Coding,
}

/// What stands before the contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// What it is.
    pub(super) kind: ObjectKind,
    /// Its number; of a base: of the journal object that it is the state after.
    pub(super) seq: u64,
    /// The writer's.
    pub(super) epoch: u64,
    /// The writer's nonce.
    pub(super) writer: String,
    /// Grows with each object of this leader, so that no two are alike.
    pub(super) counter: u64,
    /// Hash of the journal object before; of a base: of the one that it is the state after.
    pub(super) previous: Hash,
    /// Format of the database.
    pub(super) schema: u32,
    /// For people: when, by the writer's clock.
    pub(super) created: Timestamp,
    /// For people: version of Tidelock.
    pub(super) version: String,
    /// Changed rows of a commit.
    pub(super) rows: Option<Section>,
    /// The database of a base, in parts.
    pub(super) database: Option<Vec<Section>>,
    /// Contents of kept files.
    pub(super) blobs: Vec<Section>,
}

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invalid {
    /// Written by a newer version.
    Newer(u32),
    /// Written by a version that is too old.
    Older(u32),
    /// Not what was written.
    Damaged(&'static str),
}

/// A header that was read, with its own hash.
#[derive(Debug, Clone)]
pub struct ObjectHead {
    /// The header.
    pub(super) header: Header,
    /// Of the object.
    pub(super) hash: Hash,
    /// Where contents begin.
    pub(super) contents: u64,
}

impl ObjectHead {
    /// All contents with the place of each in the object.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u64, Section)> + '_ {
        let header = &self.header;
        let all = header.rows.iter().chain(header.database.iter().flatten()).chain(&header.blobs);
        // The sums were checked when the header was read.
        all.scan(self.contents, |next, section| {
            let offset = *next;
            *next = next.saturating_add(section.stored);
            Some((offset, *section))
        })
    }

    /// Contents of kept files with the place of each.
    pub(super) fn blobs(&self) -> impl Iterator<Item = (u64, Section)> + '_ {
        self.sections().skip(usize::from(self.header.rows.is_some()) + self.header.database.iter().flatten().count())
    }

    /// Parts of the database with the place of each.
    pub(super) fn database(&self) -> impl Iterator<Item = (u64, Section)> + '_ {
        self.sections().take(self.header.database.iter().flatten().count())
    }

    /// The place of the rows, which come first.
    pub(super) fn rows_end(&self) -> u64 {
        self.contents.saturating_add(self.header.rows.map_or(0, |rows| rows.stored))
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Bytes of prefix and header, from the first [`PREFIX`] bytes.
pub(super) fn head_length(first: &[u8]) -> Result<usize, Invalid> {
    const SHORT: Invalid = Invalid::Damaged("it is too short");
    if first.get(..8).ok_or(SHORT)? != MAGIC {
        return Err(Invalid::Damaged("it does not begin as an object of Tidelock"));
    }
    let format = u32::from_le_bytes(number(first, 8).ok_or(SHORT)?);
    if format > FORMAT {
        return Err(Invalid::Newer(format));
    }
    if format == 0 || format + 1 < FORMAT {
        return Err(Invalid::Older(format));
    }
    let length = usize::try_from(u32::from_le_bytes(number(first, 12).ok_or(SHORT)?)).unwrap_or(usize::MAX);
    if length > MAX_HEADER_STORED {
        return Err(Invalid::Damaged("its header is too long"));
    }
    number::<8>(first, 16).ok_or(SHORT)?;
    Ok(PREFIX + length)
}

/// Reads the header from the beginning of an object of `size` bytes; `bytes` are at least [`head_length`] of them.
pub(super) fn decode_head(bytes: &[u8], size: u64) -> Result<ObjectHead, Invalid> {
    let length = head_length(bytes)?;
    let head = bytes.get(..length).ok_or(Invalid::Damaged("it is too short"))?;
    let contents = u64::from_le_bytes(number(bytes, 16).ok_or(Invalid::Damaged("it is too short"))?);
    let json = inflate(&head[PREFIX..], MAX_HEADER).ok_or(Invalid::Damaged("its header cannot be read"))?;
    let header: Header = serde_json::from_slice(&json).map_err(|_| Invalid::Damaged("its header cannot be read"))?;
    let head = ObjectHead { hash: Hash::of(head), header, contents };
    check(&head, length as u64, size)?;
    Ok(head)
}

/// Contents fit the kind of object, their limits, and its size.
fn check(head: &ObjectHead, length: u64, size: u64) -> Result<(), Invalid> {
    let header = &head.header;
    let fits = match header.kind {
        ObjectKind::Commit => header.database.is_none(),
        ObjectKind::Seal => header.database.is_none() && header.rows.is_none() && header.blobs.is_empty(),
        ObjectKind::Base => header.database.is_some() && header.rows.is_none(),
    };
    let rows = header.rows.is_none_or(|rows| rows.length <= MAX_ROWS);
    let parts = header.database.iter().flatten().all(|part| part.length <= MAX_DATABASE_PART);
    if !fits || !rows || !parts || head.contents < length || header.seq == 0 {
        return Err(Invalid::Damaged("its header does not make sense"));
    }
    let mut end = head.contents;
    for (_, section) in head.sections() {
        if section.coding == Coding::Raw && section.stored != section.length {
            return Err(Invalid::Damaged("its header does not make sense"));
        }
        end = end.checked_add(section.stored).ok_or(Invalid::Damaged("its header does not make sense"))?;
    }
    match end.cmp(&size) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Invalid::Damaged("its end is missing")),
        std::cmp::Ordering::Less => Err(Invalid::Damaged("something is behind its end")),
    }
}

/// Decompresses at most `limit` bytes; memory grows with what really comes.
fn inflate(stored: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(stored).ok()?;
    decoder.take(limit + 1).read_to_end(&mut raw).ok()?;
    (raw.len() as u64 <= limit).then_some(raw)
}

/// Content of a section from its stored bytes, verified. For contents that fit into memory.
pub(super) fn decode(section: &Section, stored: Bytes) -> Result<Bytes, Invalid> {
    if stored.len() as u64 != section.stored {
        return Err(Invalid::Damaged("a part of its contents is missing"));
    }
    let raw = match section.coding {
        Coding::Raw => stored,
        Coding::Zstd => {
            inflate(&stored, section.length).ok_or(Invalid::Damaged("its contents cannot be decompressed"))?.into()
        }
    };
    if raw.len() as u64 != section.length || Hash::of(&raw) != section.hash {
        return Err(Invalid::Damaged("its contents do not have the hash that its header names"));
    }
    Ok(raw)
}
