//! A state outside the vault: exported into a directory, and imported as the first state of an empty vault.

use super::base::{self, BaseFolder, Pinned};
use super::schema::{self, Origin};
use super::{DATABASE, Store, digest};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tidelock_vault::Hash;
use tidelock_vault::chain::Chain;
use tidelock_vault::leader::Leader;

impl Store {
    /// Writes the state of `chain` into a new or empty directory and returns the digest of the database.
    pub async fn export(dir: &Path, chain: &Chain) -> Result<Hash> {
        let path = dir.to_owned();
        tokio::task::spawn_blocking(move || empty_directory(&path)).await??;
        Store::restore(dir, chain).await?;
        let database = dir.join(DATABASE);
        let work = tokio::task::spawn_blocking(move || -> Result<Hash> {
            let connection = schema::open_raw(&database)?;
            Origin::Exported.set(&connection)?;
            connection.close().map_err(|(_, error)| error)?;
            digest(&database)
        });
        work.await?
    }
}

/// An exported state, locked until it is written as the first base of a vault.
pub struct Exported {
    dir: PathBuf,
    connection: Connection,
    /// Locks the directory.
    _guard: schema::DirectoryGuard,
}

impl Exported {
    /// Opens a directory that [`Store::export`] wrote, and refuses any other. Blocks.
    pub fn open(dir: &Path) -> Result<Exported> {
        let (shown, database) = (dir.display(), dir.join(DATABASE));
        ensure!(
            database.is_file(),
            "there is no state in {shown}: name a directory that `tidelock vault export` wrote"
        );
        let guard = schema::lock_directory(dir)?;
        base::sweep(dir)?;
        let connection = schema::open_reader(&database)?;
        let mark = Origin::read(&connection)?;
        ensure!(
            mark == Origin::Exported,
            "the state in {shown} is a server's own, not an exported one: `tidelock vault export` writes those; a data directory \
             from before there was a vault is taken over by the first start of a server on it"
        );
        let (format, newest) = (schema::format_of(&connection)?, schema::newest() as usize);
        ensure!(
            format > 0,
            "the state in {shown} is empty, nothing was ever recorded in it: start the server on an empty prefix or directory instead"
        );
        ensure!(
            format <= newest,
            "the state in {shown} is of format {format}, this version knows formats up to {newest}"
        );
        Ok(Exported { dir: dir.to_owned(), connection, _guard: guard })
    }

    /// Writes the state as the first base of a vault without a state. The directory is not changed.
    pub async fn import(self, leader: &Leader) -> Result<()> {
        let Exported { dir, connection, _guard } = self;
        let position = leader.position();
        let work = tokio::task::spawn_blocking(move || -> Result<_> {
            let scratch = BaseFolder::new(&dir)?;
            let image = Pinned::begin(connection, position)?.image(&dir, &scratch)?;
            Ok((image.context("a file of the state is missing in the directory")?, scratch))
        });
        let (image, scratch) = work.await??;
        let written = leader.write_base(image).await;
        tokio::task::spawn_blocking(move || drop(scratch)).await?;
        ensure!(written?, "the vault has a base already: nothing was imported");
        Ok(())
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
