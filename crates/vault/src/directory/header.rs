//! The 128 bytes in front of each object's content.

use super::error::FileError;
use crate::bucket::Generation;
use sha2::{Digest, Sha256};

/// Bytes of a header.
pub(super) const SIZE: usize = 128;
/// Longest label, in bytes.
pub(super) const MAX_LABEL: usize = 40;
/// First bytes of each file; the last digit is the format's version.
const MAGIC: &[u8; 8] = b"tideobj1";
/// Offset of the checksum, which covers all bytes before it.
const CHECKSUM: usize = SIZE - 32;

/// Metadata of an object, in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) generation: Generation,
    /// Microseconds since 1970.
    pub(super) created: i64,
    /// Bytes of the content.
    pub(super) length: u64,
    /// CRC-32 of the content.
    pub(super) crc: u32,
    pub(super) label: String,
}

impl FileHeader {
    /// Encodes the header for the object of this name: a file that is copied or moved to another name is not a valid object.
    pub(super) fn encode(&self, name: &str) -> [u8; SIZE] {
        let label = self.label.as_bytes();
        let mut bytes = Vec::with_capacity(SIZE);
        bytes.extend(MAGIC);
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.created.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.crc.to_le_bytes());
        bytes.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        bytes.extend(label);
        bytes.resize(CHECKSUM, 0);
        let checksum = checksum(name, &bytes);
        bytes.extend(checksum);
        let mut header = [0; SIZE];
        header.copy_from_slice(&bytes);
        header
    }

    pub(super) fn decode(name: &str, bytes: &[u8; SIZE]) -> Result<FileHeader, FileError> {
        let wrong = |what: &str| Err(FileError::Damaged(format!("{name} {what}")));
        if bytes[..7] != MAGIC[..7] {
            return Err(FileError::Foreign(name.to_owned()));
        }
        if bytes[7] != MAGIC[7] {
            return Err(FileError::Refused(format!(
                "{name} was written by another version of Tidelock: start that one, or a newer one"
            )));
        }
        if bytes[CHECKSUM..] != checksum(name, &bytes[..CHECKSUM]) {
            return wrong("does not fit the checksum in its header, or was another object's file");
        }
        let number = |at: usize| <[u8; 8]>::try_from(&bytes[at..at + 8]).map_or(0, u64::from_le_bytes);
        let label = bytes.get(37..37 + usize::from(bytes[36])).and_then(|label| std::str::from_utf8(label).ok());
        let (Some(label), generation @ 1..) = (label, number(8).cast_signed()) else {
            return wrong("has a header that makes no sense");
        };
        Ok(FileHeader {
            generation,
            created: number(16).cast_signed(),
            length: number(24),
            crc: u32::from_le_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]),
            label: label.to_owned(),
        })
    }
}

fn checksum(name: &str, bytes: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(bytes).chain_update(name).finalize().into()
}
