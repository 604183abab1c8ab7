//! Files of a job, stored in pieces, so that neither side holds one in memory.

use super::{ALIVE, CANCEL, CLAIM, JobObjects, LATE, LOG, RESULT, SPEC};
use crate::protocol::Protocol;
use crate::{Hash, VaultError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Size of every piece of a file but the last, in bytes.
pub(super) const PIECE: usize = 8 << 20;
/// Longest name of a file, in bytes.
const LONGEST_NAME: usize = 40;
/// Label of every piece.
const LABEL: &str = "file";
/// Names of other objects of a job.
const OTHERS: [&str; 7] = [SPEC, CLAIM, CANCEL, RESULT, LATE, LOG, ALIVE];

/// A stored file. Its name is not part of it: each side knows the names of the files that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Hash,
}

/// Refusal of a file that is larger than its reader allows. Both sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file has {size} bytes, and may have {limit}")]
pub struct FileTooLarge {
    /// Size of the file.
    pub size: u64,
    /// Largest size.
    pub limit: u64,
}

impl StoredFile {
    /// Returns the number of pieces.
    fn pieces(&self) -> u64 {
        self.size.div_ceil(PIECE as u64).max(1)
    }

    /// Checks its size before it is read.
    pub fn within(&self, limit: u64) -> Result<StoredFile, FileTooLarge> {
        if self.size > limit { Err(FileTooLarge { size: self.size, limit }) } else { Ok(*self) }
    }
}

impl<P: Protocol> JobObjects<P> {
    /// Stores a file under this name, which must not be one of the other objects'. The file must not change meanwhile.
    pub async fn put_file(&self, name: &str, from: &Path) -> Result<StoredFile, VaultError> {
        self.check_file_name(name)?;
        let unreadable = |error: std::io::Error| VaultError::Local(format!("cannot read {}: {error}", from.display()));
        let mut file = File::open(from).await.map_err(unreadable)?;
        let (mut digest, mut size, mut number) = (Sha256::new(), 0u64, 0);
        loop {
            let mut piece = Vec::new();
            (&mut file).take(PIECE as u64).read_to_end(&mut piece).await.map_err(unreadable)?;
            // An empty file has one empty piece.
            if piece.is_empty() && number > 0 {
                break;
            }
            digest.update(&piece);
            size += piece.len() as u64;
            let is_last = piece.len() < PIECE;
            self.put_own(&self.prefix.numbered(name, number), Bytes::from(piece), LABEL).await?;
            number += 1;
            if is_last {
                break;
            }
        }
        Ok(StoredFile { size, sha256: Hash(digest.finalize().into()) })
    }

    /// Reads a file of this name into a new file, and checks size and hash. Check [`StoredFile::within`] first. After an error there is no
    /// new file.
    pub async fn get_file(&self, name: &str, file: StoredFile, to: &Path) -> Result<(), VaultError> {
        self.check_file_name(name)?;
        let unwritable = |error: std::io::Error| VaultError::Local(format!("cannot write {}: {error}", to.display()));
        let mut options = File::options();
        let into = options.write(true).create_new(true).mode(0o600).open(to).await.map_err(unwritable)?;
        let read = self.read_pieces(name, file, into, &unwritable).await;
        if read.is_err() {
            // The first error says more than one of its consequences.
            let _ = tokio::fs::remove_file(to).await;
        }
        read
    }

    async fn read_pieces(
        &self,
        name: &str,
        file: StoredFile,
        mut into: File,
        unwritable: &(dyn Fn(std::io::Error) -> VaultError + Sync),
    ) -> Result<(), VaultError> {
        let (mut digest, mut left) = (Sha256::new(), file.size);
        for number in 0..file.pieces() {
            let object = self.prefix.numbered(name, u32::try_from(number).unwrap_or(u32::MAX));
            let Some(found) = self.calls.get_within(&object, PIECE).await? else {
                return Err(self.damaged(&object, "it is not there"));
            };
            if found.bytes.len() as u64 != left.min(PIECE as u64) {
                return Err(self.damaged(&object, "it does not have its size"));
            }
            left -= found.bytes.len() as u64;
            digest.update(&found.bytes);
            into.write_all(&found.bytes).await.map_err(unwritable)?;
        }
        into.flush().await.map_err(unwritable)?;
        if Hash(digest.finalize().into()) != file.sha256 {
            return Err(self.damaged(&self.prefix.object(name), "its content does not have its hash"));
        }
        Ok(())
    }

    /// Refuses a name that is another object's or cannot be part of one.
    fn check_file_name(&self, name: &str) -> Result<(), VaultError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        if !OTHERS.contains(&name) && (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) {
            return Ok(());
        }
        Err(VaultError::Local(format!("no file of a job can have the name {name:?}")))
    }
}
