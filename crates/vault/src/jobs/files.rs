//! Files of a job, stored in pieces, so that neither side holds one in memory.

use super::JobObjects;
use crate::{Hash, VaultError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Size of every piece of a file but the last, in bytes.
const PIECE: usize = 8 << 20;

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

impl JobObjects {
    /// Stores a file under this name, which must not be one of the other objects'. The file must not change meanwhile.
    pub async fn put_file(&self, name: &str, from: &Path) -> Result<StoredFile, VaultError> {
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
            self.put_own(&self.prefix.numbered(name, number), Bytes::from(piece), name).await?;
            number += 1;
            if is_last {
                break;
            }
        }
        Ok(StoredFile { size, sha256: Hash(digest.finalize().into()) })
    }

    /// Reads a file of this name into a new file, and checks size and hash. Check [`StoredFile::within`] first.
    pub async fn get_file(&self, name: &str, file: StoredFile, to: &Path) -> Result<(), VaultError> {
        let unwritable = |error: std::io::Error| VaultError::Local(format!("cannot write {}: {error}", to.display()));
        let mut options = File::options();
        let mut written = options.write(true).create_new(true).mode(0o600).open(to).await.map_err(unwritable)?;
        let (mut digest, mut left) = (Sha256::new(), file.size);
        for number in 0..file.pieces() {
            let object = self.prefix.numbered(name, u32::try_from(number).unwrap_or(u32::MAX));
            let Some(found) = self.calls.get(&object).await? else {
                return Err(self.damaged(&object, "it is not there"));
            };
            if found.bytes.len() as u64 != left.min(PIECE as u64) {
                return Err(self.damaged(&object, "it does not have its size"));
            }
            left -= found.bytes.len() as u64;
            digest.update(&found.bytes);
            written.write_all(&found.bytes).await.map_err(unwritable)?;
        }
        written.flush().await.map_err(unwritable)?;
        if Hash(digest.finalize().into()) != file.sha256 {
            return Err(self.damaged(&self.prefix.object(name), "its content does not have its hash"));
        }
        Ok(())
    }
}
