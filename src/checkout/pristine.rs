//! What a tree was like when git had just written it, a number for each directory. One walk over the tree shows where steps left
//! anything, so that git is asked about these directories only, and reads no file again that is as it wrote it.

use super::left::is_kept_file;
use anyhow::Context;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// In our git directory of the tree: a line for each directory.
const FILE: &str = "tidelock-pristine";
/// Larger trees are git's affair: it has an index. A walk over 20,000 files takes a few hundredths of a second, `git ls-files` up to
/// half of one.
const MAX_FILES: usize = if cfg!(test) { 5_000 } else { 50_000 };

/// What a walk over a tree found.
struct Seen {
    /// For each directory that has files, a sum of them.
    sums: BTreeMap<String, u64>,
    /// Whether there is anything that is not looked at, but for the tree's own `.git`.
    skipped: bool,
}

/// Remembers a tree that was made from nothing, unless it is a large one, or git has files in it that are not looked at.
pub(super) fn note(root: &Path, admin: &Path) -> anyhow::Result<()> {
    if indexed(&admin.join("index")).is_none_or(|files| files > MAX_FILES) {
        return Ok(());
    }
    let Some(seen) = look(root).filter(|seen| !seen.skipped) else { return Ok(()) };
    let lines: String = seen.sums.iter().map(|(dir, sum)| format!("{sum:016x} {dir}\n")).collect();
    fs::write(admin.join(FILE), lines).context("cannot note what the tree is like")
}

/// How many files git's index has: after a signature and a version of four bytes each (gitformat-index(5)).
fn indexed(index: &Path) -> Option<usize> {
    let mut header = [0; 12];
    fs::File::open(index).ok()?.read_exact(&mut header).ok()?;
    let [.., a, b, c, d] = header;
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok().filter(|_| header.starts_with(b"DIRC"))
}

/// A tree that moves to another commit keeps what was left in it.
pub(super) fn forget(admin: &Path) -> anyhow::Result<()> {
    Ok(super::tree::remove_file(&admin.join(FILE))?)
}

/// The directories in which a file is not as git wrote it. `None` where that is not known.
pub(super) fn touched(root: &Path, admin: &Path) -> Option<Vec<String>> {
    let noted = fs::read_to_string(admin.join(FILE)).ok()?;
    let noted: HashMap<&str, u64> = noted
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(sum, dir)| Some((dir, u64::from_str_radix(sum, 16).ok()?)))
        .collect();
    let seen = look(root)?.sums.into_iter();
    Some(seen.filter(|(dir, sum)| noted.get(dir.as_str()) != Some(sum)).map(|(dir, _)| dir).collect())
}

/// Before the tree moves. git takes each file that was written in the second of its index, or later, for possibly changed, and reads
/// it (git's racy-git.txt). Of files that are as noted we know better: the index is made younger, and files of that second in other
/// directories too, so that git does read them.
pub(super) fn settle(root: &Path, admin: &Path) -> anyhow::Result<()> {
    let Some(touched) = touched(root, admin) else { return Ok(()) };
    let index = fs::File::options().write(true).open(admin.join("index"))?;
    let (written, now) = (index.metadata()?.mtime(), SystemTime::now());
    let second = now.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    if i64::try_from(second)? <= written {
        return Ok(());
    }
    let just_now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    for dir in touched {
        for entry in fs::read_dir(root.join(dir))? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if !meta.is_dir() && meta.mtime() >= written {
                let times = Timestamps { last_access: just_now, last_modification: just_now };
                utimensat(CWD, entry.path(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
    }
    Ok(index.set_modified(now)?)
}

/// For each directory that has any: its files, as a sum that does not depend on their order. Steps run a while after the checkout,
/// so that what they change has another time, even where they set the time of change back (ctime cannot be set).
fn look(root: &Path) -> Option<Seen> {
    let (mut sums, mut skipped, mut files) = (BTreeMap::new(), false, 0);
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let mut sum = 0_u64;
        let mut any = false;
        // Steps of other projects may run meanwhile: what goes while we look is as good as gone before.
        let Some(entries) = present(fs::read_dir(root.join(&dir))).ok()? else { continue };
        for entry in entries {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok().filter(|name| !name.contains('\n'))?;
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            if !is_kept_file(&path) {
                skipped |= path != ".git";
                continue;
            }
            let Some(meta) = present(entry.metadata()).ok()? else { continue };
            if meta.is_dir() {
                dirs.push(path);
                continue;
            }
            files += 1;
            if files > MAX_FILES {
                return None;
            }
            let mut hasher = DefaultHasher::new();
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            (path, meta.ino(), meta.size(), meta.mode(), times).hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
            any = true;
        }
        if any {
            sums.insert(dir, sum);
        }
    }
    Some(Seen { sums, skipped })
}

/// `None` where there is no such file.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
