//! Reads of the directory bucket. An object is read from one open file, so an object that is replaced meanwhile is still read whole.

use super::error::FileError;
use super::header::{self, FileHeader};
use super::{MAX_WHOLE, OURS, OpenDirectory};
use crate::bucket::{DAMAGED, Generation, Listed, Object, is_name};
use crate::machine;
use bytes::Bytes;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Maximum number of objects in one list; far more than retention leaves.
const MAX_LISTED: usize = 2_000_000;
/// Maximum number of foreign names that a warning shows.
const SHOWN: usize = 5;
/// Maximum number of warnings.
const MAX_WARNINGS: usize = 100;

impl OpenDirectory {
    /// Opens the file of the present content and reads its header; absent if there is no such object.
    pub(super) fn open_object(&self, name: &str) -> Result<Option<(File, FileHeader)>, FileError> {
        let path = self.root.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                // Absent, but only if the bucket itself exists.
                return self.root.join(OURS).metadata().map(|_| None).or_else(|_| self.look_at_root().map(|()| None));
            }
            Err(error) => return Err(FileError::of_object(&path)(error)),
        };
        let header = self.header_of(name, &file)?;
        Ok(header.map(|header| (file, header)))
    }

    /// Reads the header in an object's file; absent for a folder.
    fn header_of(&self, name: &str, file: &File) -> Result<Option<FileHeader>, FileError> {
        let path = self.root.join(name);
        let meta = file.metadata().map_err(FileError::of_object(&path))?;
        if meta.is_dir() {
            return Ok(None);
        }
        let mut bytes = [0; header::SIZE];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(FileError::Damaged(format!("{name} is cut off in its header")));
            }
            result => result.map_err(FileError::of_object(&path))?,
        }
        let header = FileHeader::decode(name, &bytes)?;
        if header.length.checked_add(header::SIZE as u64) != Some(meta.len()) {
            let there = meta.len().saturating_sub(header::SIZE as u64);
            return Err(FileError::Damaged(format!("{name} has {there} of its {} bytes", header.length)));
        }
        Ok(Some(header))
    }

    pub(super) fn get(&self, name: &str) -> Result<Option<Object>, FileError> {
        let Some((file, header)) = self.open_object(name)? else { return Ok(None) };
        if header.length > MAX_WHOLE {
            return Err(FileError::Refused(format!("{} bytes are too many to be read in one piece", header.length)));
        }
        let bytes = self.read_whole(name, &file, &header)?;
        Ok(Some(Object { generation: header.generation, bytes }))
    }

    pub(super) fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, FileError> {
        let Some((file, header)) = self.open_object(name)? else { return Ok(None) };
        if header.generation != generation {
            return Ok(None);
        }
        let end = range.end.min(header.length);
        match range.start {
            0 if end == header.length => self.read_whole(name, &file, &header).map(Some),
            start => self.read(name, &file, start.min(end)..end).map(Some),
        }
    }

    /// Reads the whole content and verifies its checksum, which covers nothing less.
    fn read_whole(&self, name: &str, file: &File, header: &FileHeader) -> Result<Bytes, FileError> {
        let bytes = self.read(name, file, 0..header.length)?;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        if crc.sum() != header.crc {
            return Err(FileError::Damaged(format!("the content of {name} does not fit its checksum")));
        }
        Ok(bytes)
    }

    fn read(&self, name: &str, file: &File, range: Range<u64>) -> Result<Bytes, FileError> {
        let length = range.end - range.start;
        let Some(length) = usize::try_from(length).ok().filter(|_| length <= MAX_WHOLE) else {
            return Err(FileError::Refused(format!("{length} bytes are too many to be read in one piece")));
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start + header::SIZE as u64)
            .map_err(FileError::at(&self.root.join(name)))?;
        Ok(bytes.into())
    }

    /// Lists names with this prefix that are greater than `after`, at most `most`.
    pub(super) fn list(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, FileError> {
        let mut listed = Vec::new();
        for name in self.names(prefix, after)? {
            if listed.len() == most {
                break;
            }
            let opened = self.open_object(&name).map(|opened| opened.map(|(_, header)| header));
            let Some(header) = self.shown(&name, opened)? else { continue };
            let created = Timestamp::from_microsecond(header.created).unwrap_or_default();
            let FileHeader { generation, length: size, label, .. } = header;
            listed.push(Listed { name, generation, size, created, label });
        }
        Ok(listed)
    }

    /// Returns the header that a list shows for an object; absent if it was deleted meanwhile.
    fn shown(
        &self,
        name: &str,
        opened: Result<Option<FileHeader>, FileError>,
    ) -> Result<Option<FileHeader>, FileError> {
        match opened {
            // The bucket does not answer, so the other objects cannot be read either.
            Err(error @ FileError::Unavailable(_)) => Err(error),
            // The list shows it, so that nobody takes it for absent, and states that do not need it can be read. Each read of it fails.
            Err(_) => Ok(Some(damaged(&self.root.join(name)))),
            header => header,
        }
    }

    /// Lists all names with this prefix that are greater than `after`. A directory is no snapshot while others create files: one pass may
    /// show a new file and miss an older one. So there are two passes, and the second leaves out names greater than the greatest of the
    /// first. Of a sequence that is created in order, a list then shows every object before one that it shows.
    fn names(&self, prefix: &str, after: &str) -> Result<BTreeSet<String>, FileError> {
        let (mut last, mut names) = (String::new(), BTreeSet::new());
        self.walk(prefix, &mut Vec::new(), &mut |name| {
            if name > last {
                last = name;
            }
        })?;
        if last.as_str() > after {
            self.walk(prefix, &mut Vec::new(), &mut |name| {
                if name.as_str() > after && name <= last {
                    names.insert(name);
                }
            })?;
        }
        Ok(names)
    }

    /// Visits the names with this prefix, in any order. Adds files between them that cannot be objects to `foreign`.
    fn walk(&self, prefix: &str, foreign: &mut Vec<String>, found: &mut dyn FnMut(String)) -> Result<(), FileError> {
        let mut count = 0;
        let start = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        if !start.is_empty() && !is_name(start) {
            return Ok(());
        }
        let mut directories = vec![start.to_owned()];
        while let Some(directory) = directories.pop() {
            let path = if directory.is_empty() { self.root.clone() } else { self.root.join(&directory) };
            let entries = match std::fs::read_dir(&path) {
                Err(error)
                    if !directory.is_empty()
                        && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
                {
                    self.look_at_root()?;
                    continue;
                }
                entries => entries.map_err(FileError::at(&path))?,
            };
            for entry in entries {
                let entry = entry.map_err(FileError::at(&path))?;
                let segment = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type().map_err(FileError::at(&path))?;
                let top = directory.is_empty();
                if top && (segment == OURS || segment == "lost+found") {
                    continue;
                }
                let name = if top { segment } else { format!("{directory}/{segment}") };
                if !is_name(&name) || !(kind.is_dir() || kind.is_file()) {
                    foreign.push(name);
                } else if kind.is_dir() {
                    if name.starts_with(prefix) {
                        directories.push(name);
                    }
                } else if name.starts_with(prefix) {
                    count += 1;
                    found(name);
                }
                if count > MAX_LISTED {
                    return Err(FileError::Refused(format!("more than {MAX_LISTED} objects begin with `{prefix}`")));
                }
            }
        }
        Ok(())
    }

    /// Checks at the start that the bucket can be written to and that the file system has the needed features. Takes the same time
    /// however many objects there are.
    pub(super) fn check(&self) -> Result<Vec<String>, FileError> {
        self.look_at_root()?;
        self.probe()?;
        let mut warnings = Vec::new();
        let mode = self.root.metadata().map_err(FileError::at(&self.root))?.mode();
        if mode & 0o022 != 0 {
            let mode = mode & 0o7777;
            warnings.push(format!("others may write to {0} (mode {mode:o}): `chmod 700 {0}`", self.root.display()));
        }
        let lies = machine::short_lived(&self.root).map(|why| format!("{} lies {why}", self.root.display()));
        warnings.extend(lies);
        Ok(warnings)
    }

    /// Reads the header of every object, and returns warnings about damaged and foreign files.
    pub(super) fn inspect(&self) -> Result<Vec<String>, FileError> {
        let (mut names, mut foreign, mut warnings) = (BTreeSet::new(), Vec::new(), Vec::new());
        self.walk("", &mut foreign, &mut |name| _ = names.insert(name))?;
        for name in names {
            match self.open_object(&name) {
                // A restore fails on it if the state needs it.
                Err(FileError::Damaged(what)) => warnings.push(format!("an object is damaged: {what}")),
                Err(FileError::Refused(what) | FileError::Unreadable(what)) => {
                    warnings.push(format!("an object cannot be read: {what}"))
                }
                Err(FileError::Foreign(name)) => foreign.push(name),
                result => result.map(drop)?,
            }
        }
        if !foreign.is_empty() {
            let shown = foreign.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let count = foreign.len();
            warnings.push(format!("{count} of its files are nothing of Tidelock's, and are left alone: {shown}"));
        }
        warnings.truncate(MAX_WARNINGS);
        Ok(warnings)
    }
}

/// Header that a list shows for an object that cannot be read. Its creation time is now, so that it is not taken for old.
fn damaged(path: &Path) -> FileHeader {
    let length = path.metadata().map_or(0, |meta| meta.len()).saturating_sub(header::SIZE as u64);
    let created = Timestamp::now().as_microsecond();
    FileHeader { generation: Generation::MAX, created, length, crc: 0, label: DAMAGED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_the_disk_cannot_give_ends_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Directory::open(&dir.path().join("bucket")).unwrap();
        // Reading it fails with EIO: nothing is mapped at address 0.
        let broken = File::open("/proc/self/mem").unwrap();
        let read = bucket.shared.header_of("base/1", &broken);
        assert!(matches!(read, Err(FileError::Unreadable(_))), "{read:?}");
        let shown = bucket.shared.shown("base/1", read).unwrap().unwrap();
        assert_eq!(shown.label, DAMAGED);
        let away = bucket.shared.shown("base/1", Err(FileError::Unavailable("a timeout".into())));
        assert!(matches!(away, Err(FileError::Unavailable(_))), "{away:?}");
    }
}
