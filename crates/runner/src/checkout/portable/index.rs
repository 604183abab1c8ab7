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
type Fields = [u32; 10];
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
fn forget(noted: &mut Fields) {
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
fn fields(stat: &Stat, noted: &Fields) -> Fields {
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
fn change(bytes: &mut [u8], mut work: impl FnMut(&Path, &mut Fields)) {
    let Some(end) = bytes.len().checked_sub(CHECKSUM) else { return };
    let Some((version, count)) = kind(&bytes[..end]) else { return };
    let mut at = HEADER;
    for _ in 0..count {
        let Some((name, next)) = entry(&bytes[..end], at, version) else { return };
        let mut fields = Fields::default();
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
