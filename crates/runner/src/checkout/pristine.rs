//! Checksums of the directories of a tree right after the checkout. One walk then shows in which directories steps left files. git is
//! started for these directories only, and reads no unchanged file again.

use super::artifacts::{OtherProjects, is_artifact};
use super::folder::{Folder, FolderEntry};
use anyhow::Context;
use rustix::fs::FileType;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// File in the server's git directory of the tree, with a line for each directory.
const FILE: &str = "tidelock-pristine";
/// Most files of a tree that is recorded. Larger trees are left to git, which has an index. A walk over 20,000 files takes a few hundredths
/// of a second, `git ls-files` up to half a second.
const MAX_FILES: usize = if cfg!(test) { 5_000 } else { 50_000 };

/// The result of a walk over a tree.
#[derive(Default)]
struct TreeSums {
    /// A checksum for each directory with files.
    sums: BTreeMap<String, u64>,
    files: usize,
    /// True if something was skipped besides the tree's own `.git`.
    skipped: bool,
}

/// Records a tree that was made from nothing, unless it is large or git has files in it that are skipped.
pub(super) fn record(root: &Path, admin: &Path) -> anyhow::Result<()> {
    remove_record(admin)?;
    if indexed(&admin.join("index")).is_none_or(|files| files > MAX_FILES) {
        return Ok(());
    }
    let Some(seen) = checksum_tree(root, &OtherProjects::default()).filter(|seen| !seen.skipped) else { return Ok(()) };
    write_note(admin, seen.sums.iter().map(|(dir, sum)| (dir, *sum)))
}

fn write_note<'a>(admin: &Path, sums: impl Iterator<Item = (&'a String, u64)>) -> anyhow::Result<()> {
    let lines: String = sums.map(|(dir, sum)| format!("{sum:016x} {dir}\n")).collect();
    fs::write(admin.join(FILE), lines).context("cannot note what the tree is like")
}

/// Records these directories again, without those below them, of a tree that was as recorded. git has written to no other directory.
pub(super) fn renew(root: &Path, admin: &Path, dirs: &BTreeSet<String>) -> anyhow::Result<()> {
    let Some(mut noted) = noted(admin) else { return Ok(()) };
    let top = Folder::open(root)?;
    for dir in dirs {
        noted.remove(dir);
        let folder = match top.kind(Path::new(dir)) {
            Ok(Some(FileType::Directory)) => top.folder(Path::new(dir))?,
            _ => continue,
        };
        let above = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut seen = TreeSums::default();
        let everything = folder.walk(&mut |entry| {
            let name = entry.name.to_str().ok_or_else(|| io::Error::other("an odd name"))?;
            seen.add(&format!("{above}{name}"), entry).map(|_is_directory| false)
        });
        if !everything.is_ok_and(|everything| everything) || seen.skipped {
            return remove_record(admin);
        }
        noted.extend(seen.sums);
    }
    write_note(admin, noted.iter().map(|(dir, sum)| (dir, *sum)))
}

/// Returns the number of files in git's index. It follows a signature and a version of four bytes each (gitformat-index(5)).
pub(super) fn indexed(index: &Path) -> Option<usize> {
    let mut header = [0; 12];
    fs::File::open(index).ok()?.read_exact(&mut header).ok()?;
    let [.., a, b, c, d] = header;
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok().filter(|_| header.starts_with(b"DIRC"))
}

/// Removes the record before the tree moves to another commit: the move keeps files that steps left.
pub(super) fn remove_record(admin: &Path) -> anyhow::Result<()> {
    Ok(super::tree::remove_file(&admin.join(FILE))?)
}

/// Removes directories from the record of a tree.
pub(super) fn forget(admin: &Path, dirs: &[String]) -> anyhow::Result<()> {
    let Some(mut noted) = noted(admin) else { return Ok(()) };
    for dir in dirs {
        noted.remove(dir);
    }
    write_note(admin, noted.iter().map(|(dir, sum)| (dir, *sum)))
}

/// Returns the directories with a file that is not as git wrote it, without those of `others`. `None` if that is unknown.
pub(super) fn touched(root: &Path, admin: &Path, others: &OtherProjects) -> Option<Vec<String>> {
    let noted = noted(admin)?;
    let seen = checksum_tree(root, others)?.sums.into_iter();
    Some(seen.filter(|(dir, sum)| noted.get(dir) != Some(sum)).map(|(dir, _)| dir).collect())
}

/// Reads the record of a tree: directories and their checksums.
fn noted(admin: &Path) -> Option<HashMap<String, u64>> {
    let noted = fs::read_to_string(admin.join(FILE)).ok()?;
    let lines = noted.lines().filter_map(|line| line.split_once(' '));
    Some(lines.filter_map(|(sum, dir)| Some((dir.to_owned(), u64::from_str_radix(sum, 16).ok()?))).collect())
}

/// Prepares the index before the tree moves. git treats a file that was written in the second of its index, or later, as possibly changed,
/// and reads it (git's racy-git.txt). Unchanged files are known here, so the index gets a later time. Changed files of that second get one
/// too, so that git does read them.
pub(super) fn settle(root: &Path, admin: &Path) -> anyhow::Result<()> {
    let Some(touched) = touched(root, admin, &OtherProjects::default()) else { return Ok(()) };
    let Some(index) = SettledIndex::open(admin)? else { return Ok(()) };
    let top = Folder::open(root)?;
    for dir in touched {
        // An exchanged directory is not entered.
        let Ok(folder) = top.folder(Path::new(&dir)) else { continue };
        folder.walk(&mut |entry| {
            if entry.kind != FileType::Directory && entry.stat()?.is_some_and(|stat| stat.st_mtime >= index.written) {
                entry.touch()?;
            }
            Ok(false)
        })?;
    }
    index.renew()
}

/// Prepares the tree for another pull request: git will write every file again whose status was changed after the checkout. git compares
/// whole seconds (it ignores fractions by default), so it does not see a change in the second of the index. Files of that second get a
/// later time. Returns false while that second is not over, or if the walk was incomplete.
pub(super) fn distrust(root: &Path, admin: &Path) -> anyhow::Result<bool> {
    let Some(index) = SettledIndex::open(admin)? else { return Ok(false) };
    let touched: Option<HashSet<String>> =
        touched(root, admin, &OtherProjects::default()).map(|dirs| dirs.into_iter().collect());
    let everywhere = Folder::open(root)?.walk(&mut |entry| {
        if entry.kind == FileType::Directory {
            return Ok(true);
        }
        let dir = entry.path.parent().and_then(Path::to_str);
        let is_known = touched.as_ref().is_some_and(|touched| dir.is_some_and(|dir| !touched.contains(dir)));
        if !is_known && entry.stat()?.is_some_and(|stat| stat.st_ctime >= index.written) {
            entry.touch()?;
        }
        Ok(false)
    })?;
    index.renew()?;
    Ok(everywhere)
}

/// Returns true if a tree is unchanged since it was recorded; `None` if there is no record. git need not read an unchanged tree again.
pub(super) fn is_as_noted(root: &Path, admin: &Path) -> anyhow::Result<Option<bool>> {
    let Some(noted) = noted(admin) else { return Ok(None) };
    let has_git = !matches!(Folder::open(root)?.kind(Path::new(".git")), Ok(None));
    let seen = checksum_tree(root, &OtherProjects::default()).filter(|seen| !seen.skipped && !has_git);
    let same = seen.is_some_and(|seen| {
        seen.sums.len() == noted.len() && seen.sums.iter().all(|(dir, sum)| noted.get(dir) == Some(sum))
    });
    if same && let Some(index) = SettledIndex::open(admin)? {
        index.renew()?;
    }
    Ok(Some(same))
}

/// git's index, when the second in which it was written is over.
struct SettledIndex {
    file: fs::File,
    /// Time at which git wrote it, in seconds since 1970.
    written: i64,
    now: SystemTime,
}

impl SettledIndex {
    /// Opens the index; `None` while the second is not over.
    fn open(admin: &Path) -> anyhow::Result<Option<SettledIndex>> {
        let file = fs::File::options().write(true).open(admin.join("index"))?;
        let (written, now) = (file.metadata()?.mtime(), SystemTime::now());
        let second = i64::try_from(now.duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?;
        Ok((second > written).then_some(SettledIndex { file, written, now }))
    }

    /// Sets its time to the present.
    fn renew(&self) -> anyhow::Result<()> {
        Ok(self.file.set_modified(self.now)?)
    }
}

/// Returns the checksums of the directories with files, without those of `others`, independent of their order. Steps run after the
/// checkout, so changed files have another time even if steps reset the modification time (ctime cannot be set). Steps of other projects
/// may run meanwhile: files that disappear during the walk count as absent.
fn checksum_tree(root: &Path, others: &OtherProjects) -> Option<TreeSums> {
    let mut seen = TreeSums::default();
    let everywhere = Folder::open(root).ok()?.walk(&mut |entry| {
        let path = entry.path.to_str().ok_or_else(|| io::Error::other("an odd name"))?;
        Ok(seen.add(path, entry)? && !others.has(path))
    });
    everywhere.is_ok_and(|everywhere| everywhere).then_some(seen)
}

impl TreeSums {
    /// Adds an entry; returns true if it is a directory to enter.
    fn add(&mut self, path: &str, entry: &FolderEntry<'_>) -> io::Result<bool> {
        if path.contains('\n') {
            return Err(io::Error::other("an odd name"));
        }
        if !is_artifact(path) {
            self.skipped |= path != ".git";
            return Ok(false);
        }
        if entry.kind == FileType::Directory {
            return Ok(true);
        }
        let Some(stat) = entry.stat()? else { return Ok(false) };
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(io::Error::other("too many files"));
        }
        let mut hasher = DefaultHasher::new();
        let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
        (path, stat.st_ino, stat.st_size, stat.st_mode, times).hash(&mut hasher);
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        match self.sums.get_mut(dir) {
            Some(sum) => *sum = sum.wrapping_add(hasher.finish()),
            None => drop(self.sums.insert(dir.to_owned(), hasher.finish())),
        }
        Ok(false)
    }
}
