//! Access to many files of a tree, one directory after another.

use crate::checkout::folder::Folder;
use std::io;
use std::path::{Path, PathBuf};

/// An open tree that keeps the directory of the last file open.
pub(super) struct Parents {
    top: Folder,
    last: Option<(PathBuf, Folder)>,
}

impl Parents {
    pub(super) fn of(top: Folder) -> Parents {
        Parents { top, last: None }
    }

    /// Returns the directory of a path, and the path's last part. The directory must exist.
    pub(super) fn parent<'p>(&mut self, path: &'p Path) -> io::Result<(&Folder, &'p Path)> {
        self.open(path, Folder::folder)
    }

    /// Does the same, and creates missing directories.
    pub(super) fn missing_parent<'p>(&mut self, path: &'p Path) -> io::Result<(&Folder, &'p Path)> {
        self.open(path, Folder::missing_folder)
    }

    fn open<'p>(
        &mut self,
        path: &'p Path,
        open: impl FnOnce(&Folder, &Path) -> io::Result<Folder>,
    ) -> io::Result<(&Folder, &'p Path)> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().map_or(Path::new(""), Path::new);
        let folder = match self.last.take() {
            Some((last, folder)) if last == parent => folder,
            _ => open(&self.top, parent)?,
        };
        let (_, folder) = self.last.insert((parent.to_owned(), folder));
        Ok((folder, name))
    }
}
