//! The state on disk at the start, and its replacement by the vault's state. After a loss of power any file may be
//! truncated or zeroed, so the state on disk is never opened if the vault has one.

use super::DATABASE;
use super::base::close_to_others;
use super::files::FOLDERS;
use super::restore::tables;
use super::rows;
use super::schema::{self, Origin};
use anyhow::{Context, Result, bail};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Prefix of the folders to which state without a vault is moved. The server never removes them.
const ASIDE: &str = "before-vault.";
/// Folder to which the first unreadable database is moved. The server never removes it.
const DAMAGED: &str = "damaged";
/// Suffixes of the files that SQLite keeps next to a database.
const SIDE_FILES: [&str; 2] = ["-shm", "-wal"];
/// Folder of states that Terraform could not save. A file that no row names has no other copy, so it stays.
const ERRORED: &str = "errored";
/// With less free space than twice the old copy and this many bytes, the old copy is removed before the new one is
/// written.
const RESERVE: u64 = 64 << 20;

/// The database in the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalDatabase {
    None,
    /// A copy of a vault's state.
    Cache,
    /// State without a vault.
    Unknown,
    /// Not a readable database.
    Damaged,
}

/// Returns the kind of the local database beside a vault that has a state. Reads only the first bytes of the file and
/// never opens it as a database.
pub(super) fn inspect(data_dir: &Path) -> Result<LocalDatabase> {
    let database = data_dir.join(DATABASE);
    if !database.exists() {
        return Ok(LocalDatabase::None);
    }
    let mark =
        Origin::in_file(&database).with_context(|| format!("cannot look at the state in {}", database.display()))?;
    Ok(match mark {
        Some(Origin::Cache) => LocalDatabase::Cache,
        Some(_) => LocalDatabase::Unknown,
        // The vault's state replaced the damaged database, so this one is a copy of it.
        None if data_dir.join(DAMAGED).join(DATABASE).exists() => LocalDatabase::Cache,
        None => LocalDatabase::Damaged,
    })
}

/// Returns true if the state on disk becomes the first state of an empty vault. If so, marks the database for that.
pub(super) fn adopts(data_dir: &Path) -> Result<bool> {
    let database = data_dir.join(DATABASE);
    if !database.exists() {
        return Ok(false);
    }
    let look = || -> Result<(Origin, bool)> {
        let connection = schema::open_raw(&database)?;
        let format = schema::format_of(&connection)?;
        let mark = Origin::read(&connection)?;
        // A database of a newer format counts as not empty, without being read.
        Ok((mark, format <= schema::newest() as usize && is_empty(&connection)?))
    };
    match look().with_context(|| format!("cannot look at the state in {}", database.display()))? {
        (Origin::Cache, true) => Ok(false),
        (Origin::Cache, false) => bail!(
            "the vault is empty, but the state in {} came from a vault: point --bucket to that one, or, to begin anew, move \
             that file away and start again",
            database.display()
        ),
        _ => {
            let mark = || -> Result<()> {
                let connection = schema::open_raw(&database)?;
                Origin::Adopting.set(&connection)?;
                connection.close().map_err(|(_, error)| error.into())
            };
            mark().with_context(|| format!("cannot take over the state in {}", database.display()))?;
            Ok(true)
        }
    }
}

fn is_empty(connection: &Connection) -> Result<bool> {
    for table in tables(connection)? {
        if connection.prepare(&format!("SELECT 1 FROM {} LIMIT 1", rows::quoted(&table)))?.exists([])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the old copy of the state first if the disk has no space for two.
pub(super) fn make_room(data_dir: &Path) -> Result<()> {
    let stat = rustix::fs::statvfs(data_dir).with_context(|| format!("cannot look at {}", data_dir.display()))?;
    make_room_of(data_dir, stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Like [`make_room`], with this many free bytes.
pub(super) fn make_room_of(data_dir: &Path, free: u64) -> Result<()> {
    let copy: Vec<PathBuf> = parts().filter(|part| part != ERRORED).map(|part| data_dir.join(part)).collect();
    let taken = copy.iter().map(|path| size(path)).fold(0, u64::saturating_add);
    if free >= taken.saturating_mul(2).saturating_add(RESERVE) {
        return Ok(());
    }
    tracing::info!(free, taken, "little space is left: the old copy of the state is removed before the restore");
    copy.iter().try_for_each(|path| removed(path))
}

/// Returns the size of a file or folder in bytes; 0 if it does not exist.
fn size(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).fold(0, u64::saturating_add)
}

/// Returns the files and folders of a state, in the order of their removal. The database is last: as long as it exists,
/// a start continues the removal.
pub(super) fn parts() -> impl Iterator<Item = String> {
    let side_files = SIDE_FILES.iter().map(|suffix| format!("{DATABASE}{suffix}"));
    FOLDERS.iter().map(|folder| (*folder).to_owned()).chain(side_files).chain([DATABASE.to_owned()])
}

/// Moves a state aside that is not a copy of the vault's, unopened, with its write-ahead log. A move that a crash
/// interrupted continues in the same folder.
pub(super) fn put_aside(data_dir: &Path, local: LocalDatabase) -> Result<()> {
    let (aside, is_damaged) = match local {
        LocalDatabase::None | LocalDatabase::Cache => return Ok(()),
        LocalDatabase::Damaged => (data_dir.join(DAMAGED), true),
        LocalDatabase::Unknown => {
            let folders = (1..).map(|number| data_dir.join(format!("{ASIDE}{number}")));
            (folders.into_iter().find(|folder| !folder.join(DATABASE).exists()).context("no name is free")?, false)
        }
    };
    if !aside.is_dir() {
        std::fs::create_dir(&aside).with_context(|| format!("cannot make {}", aside.display()))?;
    }
    close_to_others(&aside)?;
    // The folders next to a damaged database usually belong to a copy. States that Terraform could not save stay where
    // comments say they are.
    for part in parts().filter(|part| !is_damaged || part != ERRORED) {
        set_aside(&data_dir.join(&part), &aside, &part)?;
    }
    let path = aside.display();
    match is_damaged {
        true => tracing::warn!(
            %path,
            "the database of this disk cannot be read, as after a loss of power, and was moved aside; the vault's state is restored. \
             Remove that folder when nothing is missed"
        ),
        false => tracing::warn!(
            %path,
            "the vault has a state already: what this disk had from before it was moved aside; remove it when nothing is missed"
        ),
    }
    Ok(())
}

/// Moves one part. Parts that were moved before a crash stay, and an empty folder from the start after it is removed.
fn set_aside(from: &Path, aside: &Path, name: &str) -> Result<()> {
    if from.symlink_metadata().is_err() {
        return Ok(());
    }
    let mut names = std::iter::once(name.to_owned()).chain((1..).map(|number| format!("{name}.{number}")));
    let free = names.find(|name| aside.join(name).symlink_metadata().is_err()).context("no name is free")?;
    if free != name && std::fs::remove_dir(from).is_ok() {
        return Ok(());
    }
    moved(from, &aside.join(free))
}

/// Replaces database and kept files by those in `scratch`, then removes `scratch` with the replaced files.
pub(super) fn put_in_place(scratch: &Path, data_dir: &Path) -> Result<()> {
    let old = scratch.join("old");
    std::fs::create_dir(&old)?;
    for part in parts().filter(|part| part != ERRORED) {
        moved_if_there(&data_dir.join(&part), &old.join(&part))?;
    }
    for folder in FOLDERS {
        let new = scratch.join(folder);
        if !new.exists() {
            std::fs::create_dir(&new)?;
        }
        close_to_others(&new)?;
        match folder == ERRORED {
            true => merge_errored(&new, &data_dir.join(folder))?,
            false => moved(&new, &data_dir.join(folder))?,
        }
    }
    moved(&scratch.join(DATABASE), &data_dir.join(DATABASE))?;
    removed(scratch)
}

/// Merges states that Terraform could not save: replaces those that rows name, and keeps the others.
fn merge_errored(new: &Path, place: &Path) -> Result<()> {
    if !place.is_dir() {
        return moved(new, place);
    }
    close_to_others(place)?;
    let named = names_in(new)?;
    for name in &named {
        moved(&new.join(name), &place.join(name))?;
    }
    let unnamed: Vec<String> =
        names_in(place)?.difference(&named).map(|name| name.to_string_lossy().into_owned()).collect();
    if !unnamed.is_empty() {
        tracing::warn!(
            folder = %place.display(),
            files = unnamed.join(", "),
            "states that Terraform could not save lie on this disk alone: push each with `terraform state push`, or remove it"
        );
    }
    Ok(())
}

fn names_in(dir: &Path) -> Result<BTreeSet<OsString>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    Ok(entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<std::io::Result<_>>()?)
}

fn moved(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

fn moved_if_there(from: &Path, to: &Path) -> Result<()> {
    if from.symlink_metadata().is_ok() { moved(from, to) } else { Ok(()) }
}

/// Removes a file or folder; it may be absent.
fn removed(path: &Path) -> Result<()> {
    let gone = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    gone.with_context(|| format!("cannot remove {}", path.display()))
}
