//! What a tree was like when git had just written it, a number for each directory: where steps left nothing, one walk over the tree
//! shows it, and no git has to be asked.

use super::left::is_kept_file;
use anyhow::Context;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// In our git directory of the tree: a line for each directory.
const FILE: &str = "tidelock-pristine";
/// Larger trees are git's affair: it has an index. A walk over 20,000 files takes a few hundredths of a second, `git ls-files` up to
/// half of one.
const MAX_FILES: usize = if cfg!(test) { 5_000 } else { 50_000 };

/// Remembers a tree that was made from nothing, unless it is a large one.
pub(super) fn note(root: &Path, admin: &Path) -> anyhow::Result<()> {
    if indexed(&admin.join("index")).is_none_or(|files| files > MAX_FILES) {
        return Ok(());
    }
    let Some(seen) = look(root, &[]) else { return Ok(()) };
    let lines: String = seen.iter().map(|(dir, sum)| format!("{sum:016x} {dir}\n")).collect();
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

/// Whether every file that would be kept is as git wrote it, but for these directories. `false` where that is not known.
pub(super) fn is_untouched(root: &Path, admin: &Path, except: &[String]) -> bool {
    let Ok(noted) = fs::read_to_string(admin.join(FILE)) else { return false };
    let noted: HashMap<&str, u64> = noted
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(sum, dir)| Some((dir, u64::from_str_radix(sum, 16).ok()?)))
        .collect();
    look(root, except).is_some_and(|seen| seen.iter().all(|(dir, sum)| noted.get(dir.as_str()) == Some(sum)))
}

/// For each directory that has any: its files, as a sum that does not depend on their order. Steps run a while after the checkout,
/// so that what they change has another time, even where they set the time of change back (ctime cannot be set).
fn look(root: &Path, except: &[String]) -> Option<BTreeMap<String, u64>> {
    let (mut seen, mut files) = (BTreeMap::new(), 0);
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let mut sum = 0_u64;
        let mut any = false;
        for entry in fs::read_dir(root.join(&dir)).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok().filter(|name| !name.contains('\n'))?;
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let meta = entry.metadata().ok()?;
            if !is_kept_file(&path) || except.contains(&path) {
                continue;
            }
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
            seen.insert(dir, sum);
        }
    }
    Some(seen)
}
