//! Writes a tree to an archive. Steps may exchange any file for another one meanwhile.

use super::facts::TreeFacts;
use super::parents::Parents;
use super::{FACTS, GIT, INDEX, MAX_BYTES, MAX_DEPTH, MAX_FILES, MAX_PATH, PackTreeError, TREE, index};
use crate::checkout::artifacts::OtherProjects;
use crate::checkout::folder::{Folder, FolderEntry};
use crate::checkout::pristine;
use crate::checkout::tree::remove_file;
use anyhow::Context;
use rustix::fs::FileType;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Folders that the next `init` makes. They have links into caches of this machine.
pub(super) const LEFT_OUT: [&str; 2] = [".terraform", ".terragrunt-cache"];
/// Ending of plan files.
pub(super) const PLAN_ENDING: &str = ".tfplan";
/// Compression level.
const LEVEL: i32 = 1;
/// Longest name in a header of tar, in bytes.
const SHORT: usize = 100;
/// Most touched directories that are named one by one.
const MAX_TOUCHED: usize = 5_000;

/// Files that git tracks although files of such names are left out, with the directories above them.
#[derive(Default)]
pub(super) struct Tracked(HashSet<PathBuf>);

impl Tracked {
    /// Parses a list of `git ls-files -z`.
    pub(super) fn of(list: &[u8]) -> Tracked {
        let mut paths = HashSet::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            paths.extend(Path::new(OsStr::from_bytes(name)).ancestors().map(Path::to_owned));
        }
        Tracked(paths)
    }
}

/// The work of packing, done at once off the async threads.
pub(super) struct TreePacking {
    pub(super) root: PathBuf,
    pub(super) admin: PathBuf,
    /// Directory with the packs of objects.
    pub(super) objects: PathBuf,
    pub(super) facts: TreeFacts,
    pub(super) tracked: Tracked,
    pub(super) to: PathBuf,
    /// Largest archive, in bytes.
    pub(super) limit: u64,
}

impl TreePacking {
    /// Returns the size of the archive. A failure leaves none.
    pub(super) fn run(self) -> Result<u64, PackTreeError> {
        let to = self.to.clone();
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to);
        let packed = self.write(file.with_context(|| format!("cannot make {}", to.display()))?);
        if packed.is_err() {
            remove_file(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
        packed
    }

    fn write(mut self, file: File) -> Result<u64, PackTreeError> {
        let out = LimitedWriter { inner: BufWriter::new(file), written: 0, limit: self.limit };
        let mut compressed = zstd::Encoder::new(out, LEVEL)?;
        compressed.include_checksum(true)?;
        let mut archive = TreeArchive { out: compressed, files: 0, bytes: 0 };
        self.add_objects(&mut archive)?;
        self.add_files(&mut archive)?;
        // After the files: a file that was changed before it was packed is in one of these directories, and is not settled in the index.
        self.facts.touched = pristine::touched(&self.root, &self.admin, &OtherProjects::default())
            .filter(|touched| touched.len() <= MAX_TOUCHED);
        let index = index::settled_only(&self.admin.join("index"), Folder::open(&self.root)?)?;
        archive.add_bytes(INDEX, &index)?;
        archive.add_bytes(FACTS, &serde_json::to_vec(&self.facts).context("cannot write facts about a tree")?)?;
        let out = archive.end()?;
        Ok(out.written)
    }

    fn add_objects(&self, archive: &mut TreeArchive) -> Result<(), PackTreeError> {
        for entry in fs::read_dir(&self.objects)? {
            let entry = entry?;
            let name = entry.file_name();
            if Path::new(&name).extension().is_some_and(|ending| ending == "pack" || ending == "idx") {
                let path = Path::new(GIT).join(&name);
                let file = File::open(entry.path())?;
                let header = header(tar::EntryType::Regular, file.metadata()?.len(), 0o444);
                archive.add(path.as_os_str().as_bytes(), header, file, &path)?;
            }
        }
        Ok(())
    }

    fn add_files(&self, archive: &mut TreeArchive) -> Result<(), PackTreeError> {
        let mut files = Parents::of(Folder::open(&self.root)?);
        let everywhere = Folder::open(&self.root)?.walk(&mut |entry| Ok(self.visit(entry, &mut files, archive)?))?;
        if everywhere {
            return Ok(());
        }
        let why = "the server has no right to read a directory".to_owned();
        Err(PackTreeError::Unreadable { path: PathBuf::from("."), why })
    }

    /// Adds an entry of the tree; returns true if it is a directory to enter.
    fn visit(
        &self,
        entry: &FolderEntry<'_>,
        files: &mut Parents,
        archive: &mut TreeArchive,
    ) -> Result<bool, PackTreeError> {
        if entry.path == Path::new(".git") || is_left_out(entry.path) && !self.tracked.0.contains(entry.path) {
            return Ok(false);
        }
        archive.files += 1;
        if archive.files > MAX_FILES {
            return Err(PackTreeError::TooManyFiles(MAX_FILES));
        }
        let path = entry.path;
        if path.as_os_str().len() > MAX_PATH || path.components().count() > MAX_DEPTH {
            return Err(PackTreeError::TooDeep(path.components().take(MAX_DEPTH / 10).collect()));
        }
        let unreadable = |error: io::Error| PackTreeError::Unreadable { path: path.to_owned(), why: error.to_string() };
        match entry.kind {
            FileType::Directory => {
                let (folder, name) = files.parent(path).map_err(unreadable)?;
                if let Err(error) = folder.folder(name)
                    && error.kind() == io::ErrorKind::PermissionDenied
                {
                    return Err(unreadable(error));
                }
                archive.add_entry(path, header(tar::EntryType::Directory, 0, 0o755), io::empty())?;
                return Ok(true);
            }
            FileType::RegularFile => {
                // It may be gone meanwhile.
                let (folder, name) = files.parent(path).map_err(unreadable)?;
                let Some(file) = folder.open_file(name).map_err(unreadable)? else { return Ok(false) };
                let meta = file.metadata()?;
                let mut header = header(tar::EntryType::Regular, meta.len(), meta.mode() & 0o777);
                header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
                archive.add_entry(path, header, file)?;
            }
            FileType::Symlink => {
                let (folder, name) = files.parent(path).map_err(unreadable)?;
                match folder.read_link(name) {
                    Ok(target) => archive.add_link(path, &target)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(unreadable(error)),
                }
            }
            // Pipes, sockets and devices stay.
            _ => {}
        }
        Ok(false)
    }
}

/// Returns true if a file has no use on another machine, or is in such a folder.
fn is_left_out(path: &Path) -> bool {
    let folder = |part: Component<'_>| LEFT_OUT.iter().any(|folder| part.as_os_str() == *folder);
    path.as_os_str().as_bytes().ends_with(PLAN_ENDING.as_bytes()) || path.components().any(folder)
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header
}

/// An archive in the making.
struct TreeArchive {
    out: zstd::Encoder<'static, LimitedWriter>,
    files: usize,
    bytes: u64,
}

impl TreeArchive {
    /// Adds an entry of the tree.
    fn add_entry(&mut self, path: &Path, header: tar::Header, content: impl Read) -> Result<(), PackTreeError> {
        self.add(&[TREE.as_bytes(), path.as_os_str().as_bytes()].concat(), header, content, path)
    }

    fn add_link(&mut self, path: &Path, target: &OsStr) -> Result<(), PackTreeError> {
        let mut header = header(tar::EntryType::Symlink, 0, 0o777);
        let target = target.as_bytes();
        if target.len() > SHORT {
            self.add_long(tar::EntryType::GNULongLink, target)?;
        }
        copy_name(&mut header.as_old_mut().linkname, target);
        self.add_entry(path, header, io::empty())
    }

    fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), PackTreeError> {
        let header = header(tar::EntryType::Regular, bytes.len() as u64, 0o600);
        self.add(name.as_bytes(), header, bytes, Path::new(name))
    }

    /// Adds an entry of the size in its header. A longer file is cut there. A shorter one is an error.
    fn add(
        &mut self,
        name: &[u8],
        mut header: tar::Header,
        content: impl Read,
        path: &Path,
    ) -> Result<(), PackTreeError> {
        let size = header.size()?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_BYTES {
            return Err(PackTreeError::TooMuchContent(MAX_BYTES));
        }
        if name.len() > SHORT {
            self.add_long(tar::EntryType::GNULongName, name)?;
        }
        // By its bytes: the path of a file need not be UTF-8, and the text of a link stays as it is.
        copy_name(&mut header.as_old_mut().name, name);
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        let copied = io::copy(&mut content.take(size), &mut self.out)?;
        if copied < size {
            return Err(PackTreeError::Changed(path.to_owned()));
        }
        self.pad(size)
    }

    /// Adds the whole name or target of the entry that follows.
    fn add_long(&mut self, kind: tar::EntryType, name: &[u8]) -> Result<(), PackTreeError> {
        let mut header = header(kind, name.len() as u64 + 1, 0o644);
        copy_name(&mut header.as_old_mut().name, b"././@LongLink");
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.pad(name.len() as u64 + 1)
    }

    fn pad(&mut self, size: u64) -> Result<(), PackTreeError> {
        let rest = usize::try_from(size % 512).unwrap_or_default();
        if rest > 0 {
            self.out.write_all(&[0; 512][rest..])?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<LimitedWriter, PackTreeError> {
        self.out.write_all(&[0; 1024])?;
        let mut out = self.out.finish()?;
        out.flush()?;
        out.inner.get_ref().sync_data()?;
        Ok(out)
    }
}

fn copy_name(field: &mut [u8; SHORT], name: &[u8]) {
    let length = name.len().min(SHORT);
    field[..length].copy_from_slice(&name[..length]);
}

/// A file that may not become larger than a limit.
struct LimitedWriter {
    inner: BufWriter<File>,
    written: u64,
    limit: u64,
}

impl Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written.saturating_add(bytes.len() as u64) > self.limit {
            return Err(PackTreeError::TooLarge(self.limit).into());
        }
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
