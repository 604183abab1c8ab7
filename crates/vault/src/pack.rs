//! The format of journal and base objects: one header that holds the hashes of all contents, then the contents.
//!
//! ```text
//! "tidelock" | format u32 | length of the header u32 | start of the contents u64 | header (JSON, zstd) | contents
//! ```
//! Numbers are little-endian. The object's own hash covers the bytes up to the end of the header, so each byte is hashed once. The
//! contents follow each other in the order of the header: rows, parts of the database, blobs. [`build`] writes objects.

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
/// Limit of a header as stored, in bytes.
const MAX_HEADER_STORED: usize = 64 << 20;
/// Limit of a header's JSON, in bytes; enough for a million blobs.
const MAX_HEADER: u64 = 256 << 20;
/// Limit of one commit's rows in memory, in bytes.
pub(super) const MAX_ROWS: u64 = 256 << 20;
/// Bytes of one part of a database; each is compressed and verified on its own. Smaller in tests, so that a small database has several.
pub(super) const DATABASE_PART: u64 = if cfg!(test) { 256 << 10 } else { 4 << 20 };
/// Limit of one part of a database on a read, in bytes.
const MAX_DATABASE_PART: u64 = 64 << 20;

/// Kind of an object, which is also the label that lists show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ObjectKind {
    /// Changes of the state.
    Commit,
    /// First object of a new leader, without contents.
    Seal,
    /// A whole state.
    Base,
}

impl ObjectKind {
    /// Returns the label of objects of this kind.
    pub(super) fn label(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Seal => "seal",
            ObjectKind::Base => "base",
        }
    }
}

/// Encoding of a stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Coding {
    /// Not compressed.
    Raw,
    /// Compressed with zstd.
    Zstd,
}

/// One content, in the order of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    /// Hash of the uncompressed content.
    pub(super) hash: Hash,
    /// Bytes in the object.
    pub(super) stored: u64,
    /// Bytes of the content.
    pub(super) length: u64,
    /// Encoding of the content.
    pub(super) coding: Coding,
}

/// Header of an object, before its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Kind of the object.
    pub(super) kind: ObjectKind,
    /// Number of the journal object; for a base, that of the last one in its state.
    pub(super) seq: u64,
    /// The writer's epoch.
    pub(super) epoch: u64,
    /// The writer's nonce.
    pub(super) writer: String,
    /// Number that grows with each object of this leader, so that no two are equal.
    pub(super) counter: u64,
    /// Hash of the previous journal object; for a base, that of the last one in its state.
    pub(super) previous: Hash,
    /// Format of the database.
    pub(super) schema: u32,
    /// Time of creation by the writer's clock, for people.
    pub(super) created: Timestamp,
    /// Version of Tidelock, for people.
    pub(super) version: String,
    /// Changed rows of a commit.
    pub(super) rows: Option<Section>,
    /// The database of a base, in parts.
    pub(super) database: Option<Vec<Section>>,
    /// Contents of kept files.
    pub(super) blobs: Vec<Section>,
}

/// Reason why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invalid {
    /// Written by a newer version.
    Newer(u32),
    /// Written by a version that is too old.
    Older(u32),
    /// Changed or incomplete.
    Damaged(&'static str),
}

/// A header that was read, with its own hash.
#[derive(Debug, Clone)]
pub struct ObjectHead {
    /// The header.
    pub(super) header: Header,
    /// Hash of the object.
    pub(super) hash: Hash,
    /// Offset of the contents in the object.
    pub(super) contents: u64,
}

impl ObjectHead {
    /// Returns all contents with the offset of each in the object.
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

    /// Returns the contents of kept files with the offset of each.
    pub(super) fn blobs(&self) -> impl Iterator<Item = (u64, Section)> + '_ {
        self.sections().skip(usize::from(self.header.rows.is_some()) + self.header.database.iter().flatten().count())
    }

    /// Returns the parts of the database with the offset of each.
    pub(super) fn database(&self) -> impl Iterator<Item = (u64, Section)> + '_ {
        self.sections().take(self.header.database.iter().flatten().count())
    }

    /// Returns the end of the rows, which are the first content.
    pub(super) fn rows_end(&self) -> u64 {
        self.contents.saturating_add(self.header.rows.map_or(0, |rows| rows.stored))
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns the length of prefix and header, from the first [`PREFIX`] bytes.
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

/// Reads the header from the beginning of an object of `size` bytes. `bytes` has to include at least [`head_length`] of them.
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

/// Checks the contents against the kind of object, their limits, and its size.
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

/// Decompresses at most `limit` bytes. Memory grows with the actual bytes.
fn inflate(stored: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(stored).ok()?;
    decoder.take(limit + 1).read_to_end(&mut raw).ok()?;
    (raw.len() as u64 <= limit).then_some(raw)
}

/// Decodes and verifies the content of a section that fits into memory.
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
