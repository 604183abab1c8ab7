//! Errors of files, in words for the operator: permanent ones, and those that a retry may solve.

use crate::bucket::BucketError;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// A failed call, before the bucket's name is added to the error.
#[derive(Debug)]
pub(super) enum FileError {
    Unavailable(String),
    Refused(String),
    /// The medium cannot give the bytes of one file (EIO). Others may be readable.
    Unreadable(String),
    /// An object whose file is not as it was written.
    Damaged(String),
    /// Name of a file that does not belong to the bucket.
    Foreign(String),
}

impl FileError {
    /// Maps an error of a file or directory.
    pub(super) fn at(path: &Path) -> impl FnOnce(Error) -> FileError {
        move |error| {
            let said = format!("{}: {error}", path.display());
            let advice = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "the disk is full; make room there, then start the server again: nothing that was acknowledged is lost"
                }
                ErrorKind::ReadOnlyFilesystem => "mount the file system so that it can be written",
                ErrorKind::PermissionDenied => {
                    "give the directory and all in it to the user that the server runs as: `chown -R USER DIR; chmod 700 DIR`"
                }
                ErrorKind::NotFound => {
                    "it is not there (any more); mount its disk or put it back, then start the server again"
                }
                ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                    "a file is where a directory should be, or the other way round: move it away"
                }
                ErrorKind::CrossesDevices => {
                    "all of the bucket has to be on one file system, without mounts or links in it"
                }
                ErrorKind::Unsupported => {
                    "this file system cannot do what a bucket needs (hard links, locks): use a local disk, or gs://"
                }
                ErrorKind::FileTooLarge => "the file system allows no file of this size: use another one, or gs://",
                _ => return FileError::Unavailable(said),
            };
            FileError::Refused(format!("{said}: {advice}"))
        }
    }

    /// Maps an error of an object's file, once its directory was found.
    pub(super) fn of_object(path: &Path) -> impl FnOnce(Error) -> FileError {
        move |error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::IO.raw_os_error() => {
                FileError::Unreadable(format!("{}: {error}", path.display()))
            }
            _ => FileError::at(path)(error),
        }
    }

    pub(super) fn into_bucket_error(self, location: &str, doing: String) -> BucketError {
        let location = location.to_owned();
        match self {
            FileError::Unavailable(reason) | FileError::Unreadable(reason) => {
                BucketError::Unavailable { location, doing, reason }
            }
            FileError::Refused(reason) => BucketError::Refused { location, doing, reason },
            FileError::Damaged(what) => {
                let reason = format!(
                    "the object is damaged: {what}. Put its file back from a copy of the directory, or go back to a state that does \
                     not need it: `tidelock vault ls`, then `tidelock vault export DIR --at SEQ`. Nothing was changed"
                );
                BucketError::Refused { location, doing, reason }
            }
            FileError::Foreign(name) => {
                let reason = format!(
                    "it has somebody else's objects, such as `{name}`: choose an empty directory, or move that file away"
                );
                BucketError::Refused { location, doing, reason }
            }
        }
    }
}
