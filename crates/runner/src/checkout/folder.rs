//! Access to files in a tree that steps can write to. A step may replace anything by a link, a pipe, a device or an endless file, and
//! exchange a directory for a link while the server works. So every path starts at an open directory and is resolved part by part. No link
//! is followed, opening a pipe does not block, and every read has a limit. Only files of the tree's owner are read, and every file that the
//! server writes is a new file of that owner.
//!
//! All functions block: do not call them on async threads.

mod remove;
#[cfg(test)]
mod tests;
mod walk;

pub use walk::FolderEntry;

use crate::platform;
use crate::process::RunAs;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fstat, futimens,
    mkdirat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Flags for opening directories: never through a link.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags for opening files for reading: without waiting for a pipe's writer, and never as a controlling terminal.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Flags for making new files.
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Mode of new directories.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
/// Prefix of the names of unfinished files.
const UNFINISHED: &str = ".tidelock-";

/// An open directory. Paths are relative to it and have plain parts only.
pub struct Folder {
    fd: OwnedFd,
    /// The owner of the tree, unless it is the server's own user.
    owner: Option<RunAs>,
}

impl Folder {
    /// Opens a directory that is not a link. Its parents are the server's own and may be links. Its owner becomes the owner of everything
    /// that is read and written below.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let fd = open(path, FOLDER, Mode::empty())?;
        let stat = fstat(&fd)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        let owner = (!ours).then_some(RunAs { uid: stat.st_uid, gid: stat.st_gid });
        Ok(Folder { fd, owner })
    }

    /// Opens the directory `dir` of the tree at `root`. `dir` is absolute and has no links below the root, as [`super::inside`] returns it.
    pub fn below(root: &Path, dir: &Path) -> io::Result<Folder> {
        let canonical = root.canonicalize()?;
        let relative = dir.strip_prefix(&canonical).or_else(|_| dir.strip_prefix(root)).map_err(|_| leads_out())?;
        Folder::open(root)?.folder(relative)
    }

    /// Returns the user ID of its owner.
    pub fn uid(&self) -> u32 {
        self.owner.map_or_else(|| rustix::process::geteuid().as_raw(), |owner| owner.uid)
    }

    /// Returns true if it belongs to this user; `None` stands for the server's own.
    pub fn belongs_to(&self, user: Option<RunAs>) -> bool {
        self.uid() == user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid)
    }

    /// Returns its permissions.
    pub fn mode(&self) -> io::Result<Mode> {
        Ok(Mode::from_raw_mode(fstat(&self.fd)?.st_mode))
    }

    /// Returns the same directory with the owner of another one, for a directory outside of the tree that steps name.
    pub fn owned_like(mut self, other: &Folder) -> Folder {
        self.owner = other.owner;
        self
    }

    /// Opens a directory below.
    pub fn folder(&self, path: &Path) -> io::Result<Folder> {
        self.descend(path, |parent, name| Ok(openat(parent, name, FOLDER, Mode::empty())?))
    }

    /// Like `folder`, but creates missing directories; other files in the way are removed.
    pub fn make_folder(&self, path: &Path) -> io::Result<Folder> {
        self.descend(path, |parent, name| match openat(parent, name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => self.create_dir(parent, name),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                remove::at(parent, name)?;
                self.create_dir(parent, name)
            }
            opened => Ok(opened?),
        })
    }

    /// Like `folder`, but creates missing directories; other files in the way are an error.
    pub fn missing_folder(&self, path: &Path) -> io::Result<Folder> {
        self.descend(path, |parent, name| match openat(parent, name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => self.create_dir(parent, name),
            opened => Ok(opened?),
        })
    }

    /// Opens the directories of a path one after another, each with `open`.
    fn descend(&self, path: &Path, open: impl Fn(&OwnedFd, &OsStr) -> io::Result<OwnedFd>) -> io::Result<Folder> {
        let mut fd = self.fd.try_clone()?;
        for part in plain(path) {
            fd = open(&fd, part?)?;
        }
        Ok(Folder { fd, owner: self.owner })
    }

    fn create_dir(&self, parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
        mkdirat(parent, name, FOLDER_MODE)?;
        let fd = openat(parent, name, FOLDER, Mode::empty())?;
        self.set_owner(&fd)?;
        Ok(fd)
    }

    fn set_owner(&self, file: &OwnedFd) -> io::Result<()> {
        if let Some(owner) = self.owner {
            fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        }
        Ok(())
    }

    /// Returns the kind of an entry, without following a link; `None` if there is none.
    pub fn kind(&self, path: &Path) -> io::Result<Option<FileType>> {
        if plain(path).next().is_none() {
            return Ok(Some(FileType::Directory));
        }
        Ok(self.stat(path)?.map(|stat| FileType::from_raw_mode(stat.st_mode)))
    }

    /// Returns the metadata of an entry, without following a link; `None` if there is none.
    pub fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        present(self.in_parent(path, |parent, name| Ok(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)))
    }

    /// Opens a regular file of the tree's owner for reading; `None` if there is none. Anything else is an error.
    pub fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        let opened = self.in_parent(path, |parent, name| match openat(parent, name, FILE, Mode::empty()) {
            Err(Errno::LOOP) => Err(not_read("it is a link")),
            other => Ok(other?),
        });
        let Some(fd) = present(opened)? else { return Ok(None) };
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_read("it is no regular file"));
        }
        if self.owner.is_some_and(|owner| owner.uid != stat.st_uid) {
            return Err(not_read("it does not belong to the user that steps run as"));
        }
        Ok(Some(File::from(fd)))
    }

    /// Reads such a file completely. More than `limit` bytes are an error.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(path)? else { return Ok(None) };
        let too_long = || not_read(&format!("it is larger than {limit} bytes"));
        if file.metadata()?.len() > limit {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        // The file may grow while it is read.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(too_long()) } else { Ok(Some(bytes)) }
    }

    /// Reads such a file as text; invalid UTF-8 is an error.
    pub fn read_text(&self, path: &Path, limit: u64) -> io::Result<Option<String>> {
        let Some(bytes) = self.read(path, limit)? else { return Ok(None) };
        String::from_utf8(bytes).map(Some).map_err(|_| not_read("it is not UTF-8"))
    }

    /// Replaces an entry by a new file with this content, completely or not at all.
    pub fn write(&self, path: &Path, mode: u32, mut content: impl Read) -> io::Result<()> {
        self.in_parent(path, |parent, name| {
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let unfinished = format!("{UNFINISHED}{}", hex::encode(random));
            let fd = openat(parent, unfinished.as_str(), NEW, platform::mode(mode))?;
            let written = (|| {
                fchmod(&fd, platform::mode(mode))?;
                self.set_owner(&fd)?;
                let mut file = File::from(fd);
                io::copy(&mut content, &mut file)?;
                file.flush()?;
                match renameat(parent, unfinished.as_str(), parent, name) {
                    Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                        remove::at(parent, name)?;
                        Ok(renameat(parent, unfinished.as_str(), parent, name)?)
                    }
                    other => Ok(other?),
                }
            })();
            if written.is_err() {
                // The first error is the cause.
                let _ = unlinkat(parent, unfinished.as_str(), AtFlags::empty());
            }
            written
        })
    }

    /// Makes a file with this content and this time of its last change, in seconds since 1970. An entry in its place is an error, and an error
    /// may leave a part of the file.
    pub fn create(&self, path: &Path, mode: u32, modified: i64, mut content: impl Read) -> io::Result<()> {
        let fd = self.in_parent(path, |parent, name| Ok(openat(parent, name, NEW, platform::mode(mode))?))?;
        fchmod(&fd, platform::mode(mode))?;
        self.set_owner(&fd)?;
        let mut file = File::from(fd);
        io::copy(&mut content, &mut file)?;
        let time = Timespec { tv_sec: modified, tv_nsec: 0 };
        Ok(futimens(&file, &Timestamps { last_access: time, last_modification: time })?)
    }

    /// Replaces an entry by a link.
    pub fn write_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.remove(path)?;
        self.in_parent(path, |parent, name| {
            rustix::fs::symlinkat(target, parent, name)?;
            let Some(owner) = self.owner else { return Ok(()) };
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            Ok(rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
        })
    }

    /// Returns the target of a link; an error if the entry is not a link.
    pub fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let target = self.in_parent(path, |parent, name| Ok(rustix::fs::readlinkat(parent, name, Vec::new())?))?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// Removes an entry, a directory with its contents. It may be absent.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        present(self.in_parent(path, remove::at)).map(drop)
    }

    /// Removes an empty directory; returns true if it was removed.
    pub fn remove_empty(&self, path: &Path) -> io::Result<bool> {
        let removed = self.in_parent(path, |parent, name| match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        });
        Ok(present(removed)?.unwrap_or(false))
    }

    /// Returns the names and kinds of the directory's entries, in no order.
    pub fn entries(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                let name = OsStr::from_bytes(name).to_owned();
                if let Some(kind) = walk::kind(&self.fd, &name, entry.file_type())? {
                    found.push((name, kind));
                }
            }
        }
        Ok(found)
    }

    /// Calls `work` with the directory of a path's last part, and that part.
    fn in_parent<T>(&self, path: &Path, work: impl FnOnce(&OwnedFd, &OsStr) -> io::Result<T>) -> io::Result<T> {
        let name = path.file_name().ok_or_else(leads_out)?;
        match path.parent() {
            Some(parent) if parent != Path::new("") => work(&self.folder(parent)?.fd, name),
            _ => work(&self.fd, name),
        }
    }
}

/// Removes a file or directory by its path, a directory with its contents. It may be absent. Its parents are the server's own.
pub fn remove_path(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(leads_out()) };
    let parent = match open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    remove::at(&parent, name)
}

/// Splits a path into plain names; other parts are errors.
fn plain(path: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    path.components().filter(|part| *part != Component::CurDir).map(|part| match part {
        Component::Normal(name) => Ok(name),
        _ => Err(leads_out()),
    })
}

fn leads_out() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the tree")
}

fn not_read(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Maps a missing file to `None`.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
