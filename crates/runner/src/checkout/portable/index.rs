//! git's index on its way to another machine (gitformat-index(5)). For each file it has the metadata of `lstat`, by which git knows without
//! reading that the file is unchanged. Files that are unchanged here get the metadata that they have there; git reads all others.

use super::parents::Parents;
use crate::checkout::folder::Folder;
use anyhow::Context;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustix::fs::Stat;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest index, in bytes.
pub(super) const MAX_INDEX: u64 = 512 << 20;
/// Bytes before the first entry: signature, version, number of entries.
const HEADER: usize = 12;
/// Bytes of an entry before its name: metadata, object ID, flags.
const FIXED: usize = 62;
/// Bytes of the checksum at the end.
const CHECKSUM: usize = 20;
/// Flag of an entry with two more bytes of flags.
const EXTENDED: u16 = 0x4000;
/// Length of a name in the flags; the largest value also stands for longer ones.
const NAME_LENGTH: u16 = 0x0fff;

/// Metadata of a file in the index: seconds and nanoseconds of ctime and mtime, then device, inode, mode, user, group and size.
type IndexedStat = [u32; 10];
/// Position of the mode.
const MODE: usize = 6;

/// Returns the index at this path, without the metadata of files that are not as git wrote them.
pub(super) fn settled_only(index: &Path, top: Folder) -> anyhow::Result<Vec<u8>> {
    let length = fs::metadata(index).context("a checkout has no index")?.len();
    anyhow::ensure!(length <= MAX_INDEX, "the index of a checkout is larger than {} MiB", MAX_INDEX >> 20);
    let mut bytes = fs::read(index).context("a checkout has no index")?;
    let mut files = Parents::of(top);
    change(&mut bytes, |path, noted| {
        let found = stat(&mut files, path).map(|stat| fields(&stat, noted));
        // Not the device: a data directory may be mounted again.
        let same = found.is_some_and(|mut found| {
            found[4] = noted[4];
            found == *noted
        });
        if !same {
            forget(noted);
        }
    });
    Ok(bytes)
}

/// Writes the metadata that files have in this tree to the index that came with it.
pub(super) fn settle(bytes: &mut [u8], top: Folder) {
    let mut files = Parents::of(top);
    change(bytes, |path, noted| {
        let is_settled = noted[..4].iter().any(|time| *time != 0);
        match stat(&mut files, path).filter(|_| is_settled) {
            Some(stat) => *noted = fields(&stat, noted),
            None => forget(noted),
        }
    });
}

/// Removes the metadata but the size, by which git knows of changes without reading a file.
fn forget(noted: &mut IndexedStat) {
    for field in &mut noted[..MODE] {
        *field = 0;
    }
}

fn stat(files: &mut Parents, path: &Path) -> Option<Stat> {
    let (folder, name) = files.parent(path).ok()?;
    folder.stat(name).ok()?
}

/// Returns the metadata of a file as git writes it: the lower 32 bits of each value. The mode is git's own.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as git does")]
#[cfg_attr(target_pointer_width = "64", expect(clippy::unnecessary_cast, reason = "types differ between kernels"))]
fn fields(stat: &Stat, noted: &IndexedStat) -> IndexedStat {
    [
        stat.st_ctime as u32,
        stat.st_ctime_nsec as u32,
        stat.st_mtime as u32,
        stat.st_mtime_nsec as u32,
        stat.st_dev as u32,
        stat.st_ino as u32,
        noted[MODE],
        stat.st_uid as u32,
        stat.st_gid as u32,
        stat.st_size as u32,
    ]
}

/// Calls `work` for each file of an index, and writes the metadata that it returns. An index of another version stays as it is: git then
/// reads more files.
fn change(bytes: &mut [u8], mut work: impl FnMut(&Path, &mut IndexedStat)) {
    let Some(end) = bytes.len().checked_sub(CHECKSUM) else { return };
    let Some((version, count)) = kind(&bytes[..end]) else { return };
    let mut at = HEADER;
    for _ in 0..count {
        let Some((name, next)) = entry(&bytes[..end], at, version) else { return };
        let mut fields = IndexedStat::default();
        for (field, value) in fields.iter_mut().zip(bytes[at..].chunks_exact(4)) {
            *field = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
        }
        work(Path::new(OsStr::from_bytes(&bytes[name])), &mut fields);
        for (field, value) in fields.iter().zip(bytes[at..].chunks_exact_mut(4)) {
            value.copy_from_slice(&field.to_be_bytes());
        }
        at = next;
    }
    let (content, checksum) = bytes.split_at_mut(end);
    // All zeros where git was told to write none.
    if checksum.iter().any(|byte| *byte != 0) {
        checksum.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, content).as_ref());
    }
}

/// Returns version and number of entries; `None` of a version whose names are compressed.
fn kind(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4).filter(|version| bytes.starts_with(b"DIRC") && matches!(version, 2 | 3))?;
    Some((version, number(8)?))
}

/// Returns the place of an entry's name, and that of the next entry.
fn entry(bytes: &[u8], at: usize, version: u32) -> Option<(Range<usize>, usize)> {
    let flags = bytes.get(at + FIXED - 2..at + FIXED)?;
    let flags = u16::from_be_bytes([flags[0], flags[1]]);
    let extended = if version == 3 && flags & EXTENDED != 0 { 2 } else { 0 };
    let start = at + FIXED + extended;
    let length = match flags & NAME_LENGTH {
        NAME_LENGTH => bytes.get(start..)?.iter().position(|byte| *byte == 0)?,
        length => usize::from(length),
    };
    let name = start..start + length;
    // One to eight zeros end it at a multiple of eight bytes.
    let next = at + (name.end - at + 8) / 8 * 8;
    (next <= bytes.len()).then_some((name, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use tempfile::TempDir;

    /// Returns an index of these files of a tree, each with its present metadata or none.
    fn index_of(tree: &Path, version: u32, names: &[(&str, u16)]) -> Vec<u8> {
        let count = u32::try_from(names.len()).unwrap();
        let mut bytes = [b"DIRC", &version.to_be_bytes()[..], &count.to_be_bytes()].concat();
        for (name, extended) in names {
            let start = bytes.len();
            let top = Folder::open(tree).unwrap();
            let found = top.stat(Path::new(name)).ok().flatten().map(|stat| fields(&stat, &[0o100_644; 10]));
            bytes.extend(found.unwrap_or_default().iter().flat_map(|field| field.to_be_bytes()));
            bytes.extend([7; 20]);
            let flags = u16::try_from(name.len()).unwrap().min(NAME_LENGTH);
            bytes.extend((flags | if *extended == 0 { 0 } else { EXTENDED }).to_be_bytes());
            if *extended != 0 {
                bytes.extend(extended.to_be_bytes());
            }
            bytes.extend(name.as_bytes());
            bytes.extend(std::iter::repeat_n(0, 8 - (bytes.len() - start) % 8));
        }
        bytes.extend(b"TREE\0\0\0\0");
        let checksum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
        bytes.extend(checksum.as_ref());
        bytes
    }

    fn noted(bytes: &[u8]) -> Vec<(String, IndexedStat)> {
        let mut found = Vec::new();
        let mut bytes = bytes.to_vec();
        change(&mut bytes, |path, noted| found.push((path.display().to_string(), *noted)));
        found
    }

    /// Two machines with the same files.
    fn trees(names: &[&str]) -> (TempDir, TempDir) {
        let trees = (TempDir::new().unwrap(), TempDir::new().unwrap());
        for tree in [&trees.0, &trees.1] {
            for file in names.iter().map(|name| tree.path().join(name)) {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, "content").unwrap();
            }
        }
        trees
    }

    #[test]
    fn unchanged_files_get_the_metadata_of_the_other_machine_and_changed_ones_none() {
        let long = format!("{}/f", vec!["d".repeat(200); 15].join("/"));
        let (here, there) = trees(&["a/changed", "a/same", "b", &long]);
        // Bit 14 of the second flags: not in a sparse tree.
        let names = [("a/changed", 0), ("a/same", 0), ("b", 0x2000), (long.as_str(), 0), ("sparse/x", 0x4000)];
        let index = here.path().join("index");
        std::fs::write(&index, index_of(here.path(), 3, &names)).unwrap();
        std::fs::write(here.path().join("a/changed"), "more content").unwrap();
        let mut bytes = settled_only(&index, Folder::open(here.path()).unwrap()).unwrap();
        let length = bytes.len();
        settle(&mut bytes, Folder::open(there.path()).unwrap());
        assert_eq!(bytes.len(), length);
        let (content, checksum) = bytes.split_at(length - CHECKSUM);
        assert_eq!(digest(&SHA1_FOR_LEGACY_USE_ONLY, content).as_ref(), checksum);
        let noted = noted(&bytes);
        assert_eq!(noted.len(), names.len());
        for (name, stat) in noted {
            let inode = std::fs::metadata(there.path().join(&name)).map(|meta| meta.ino() & u64::from(u32::MAX));
            match name.as_str() {
                "a/changed" => assert_eq!((stat[2], stat[5], stat[MODE], stat[9]), (0, 0, 0o100_644, 7), "{stat:?}"),
                "sparse/x" => assert_eq!(stat, IndexedStat::default()),
                _ => assert_eq!((u64::from(stat[5]), stat[9]), (inode.unwrap(), 7), "{name}"),
            }
        }
    }

    #[test]
    fn a_damaged_index_and_one_of_another_version_do_no_harm() {
        let (here, there) = trees(&["a", "b"]);
        let whole = index_of(here.path(), 2, &[("a", 0), ("b", 0)]);
        for length in 0..whole.len() {
            settle(&mut whole[..length].to_vec(), Folder::open(there.path()).unwrap());
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0xff;
            settle(&mut flipped, Folder::open(there.path()).unwrap());
        }
        let mut compressed = index_of(here.path(), 4, &[("a", 0)]);
        let before = compressed.clone();
        settle(&mut compressed, Folder::open(there.path()).unwrap());
        assert_eq!(compressed, before);
    }
}
