//! Files that are part of the state: plan files, logs, what steps left, `errored.tfstate`. A row names each with its content's
//! hash; the content itself travels in the same journal object as the row.

use super::{Store, Tx, View};
use crate::vault::chain::Chain;
use crate::vault::inbox::End;
use crate::vault::leader::Leader;
use anyhow::Result;
use std::path::Path;

/// One file that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Relative to the data directory, such as `plans/<id>.tfplan`.
    pub path: String,
    /// SHA-256 of its content, hex.
    pub sha256: String,
    /// Bytes.
    pub length: u64,
    /// Permission bits.
    pub mode: u32,
}

impl Tx<'_> {
    /// Keeps a file of the data directory from this change on (or its new content); it must not change until the change is
    /// durable.
    pub fn keep_file(&self, _file: &KeptFile) -> Result<()> {
        anyhow::bail!("not built yet")
    }

    /// Keeps it no longer; the caller removes the file itself.
    pub fn drop_file(&self, _path: &str) -> Result<()> {
        anyhow::bail!("not built yet")
    }
}

impl View<'_> {
    /// Kept files whose path begins with `prefix`.
    pub fn kept_files(&self, _prefix: &str) -> Result<Vec<KeptFile>> {
        anyhow::bail!("not built yet")
    }
}

impl Store {
    /// Makes the data directory's state that of `chain`, verified: into a temporary directory, then renamed. What was there of
    /// an earlier life is replaced; mirrors, trees and caches stay.
    pub async fn restore(_data_dir: &Path, _chain: &Chain) -> Result<()> {
        anyhow::bail!("not built yet")
    }

    /// Opens a restored state; every change is a commit of `leader` before it counts.
    pub async fn lead(_data_dir: &Path, _leader: Leader) -> Result<Store> {
        anyhow::bail!("not built yet")
    }

    /// Commits what nobody waits for, such as logs of running jobs; no request when nothing changed.
    pub async fn sync(&self) -> Result<()> {
        anyhow::bail!("not built yet")
    }

    /// Writes a base and deletes what is old, if that is due.
    pub async fn keep_up(&self) -> Result<()> {
        anyhow::bail!("not built yet")
    }

    /// Right before an effect outside: an error when this server may not act any more. Fine for a store without a vault.
    pub async fn may_act(&self) -> Result<()> {
        anyhow::bail!("not built yet")
    }

    /// Leaves the end of a job in the inbox, for whoever leads now.
    pub async fn leave_end(&self, _end: End) -> Result<()> {
        anyhow::bail!("not built yet")
    }
}

/// Whether an error of the store means that this server does not lead any more.
pub fn is_deposed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(crate::vault::VaultError::Deposed(_)))
}
