//! A kept state outside the vault: written into a directory of its own, and from there the first state of an empty vault.

use super::schema::{self, Mark};
use super::{DATABASE, Store, digest};
use crate::vault::Hash;
use crate::vault::chain::Chain;
use anyhow::{Context, Result, bail};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

impl Store {
    /// Whether a directory holds a state.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(DATABASE).is_file()
    }

    /// Writes the state of `chain` into a directory that must not be there, or be empty. What it holds is then a state that no
    /// vault knows: a server that is started on it with an empty vault takes it over. Gives the digest of the database.
    pub async fn export(dir: &Path, chain: &Chain) -> Result<Hash> {
        let path = dir.to_owned();
        tokio::task::spawn_blocking(move || empty_directory(&path)).await??;
        Store::restore(dir, chain).await?;
        let database = dir.join(DATABASE);
        let work = tokio::task::spawn_blocking(move || -> Result<Hash> {
            let connection = schema::open_raw(&database)?;
            Mark::Alone.set(&connection)?;
            connection.close().map_err(|(_, error)| error)?;
            digest(&database)
        });
        work.await?
    }
}

fn empty_directory(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.with_context(|| format!("cannot make {}", dir.display())),
    }
    let mut entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty, and nothing in it is written over: name a new directory", dir.display());
    }
    Ok(())
}
