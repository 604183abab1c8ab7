//! Reading state: one base, the journal behind it, every hash on the way.

use super::bucket::Bucket;
use super::{Hash, Position, VaultError};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A state whose objects were listed, read as far as their headers and rows, and found to be one unbroken chain.
pub struct Chain {
    /// Where it ends.
    pub position: Position,
    /// Format of the database: the highest of all its objects.
    pub schema: u32,
    /// Base it starts from; 0 for none.
    pub base: u64,
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
    pub async fn database(&self, _to: &Path) -> Result<bool, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Rows of all commits after the base, in order; seals have none.
    pub async fn rows(&self) -> Result<Vec<Rows>, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Writes files, in parallel, each content verified. `progress` gets bytes written so far, now and then.
    pub async fn fetch(&self, _files: Vec<Wanted>, _progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }
}

pub(super) async fn read(_bucket: &dyn Bucket, _at: Option<u64>) -> Result<Chain, VaultError> {
    Err(VaultError::Local("not built yet".into()))
}
