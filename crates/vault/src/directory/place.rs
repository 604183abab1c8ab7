//! Check of the file system of a bucket. One that other machines change without this kernel cannot keep two servers apart.

use super::error::FileError;
use std::path::{Path, PathBuf};

/// File with the mounts of this process; absent on macOS, where nothing is refused.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Programs that show objects of a store, or files of another machine, as a file system.
const REMOTE_FUSE: [&str; 9] =
    ["blobfuse", "blobfuse2", "gcsfuse", "geesefs", "goofys", "mountpoint-s3", "rclone", "s3fs", "sshfs"];

/// Refuses a directory on a file system that is known to lack the guarantees that a bucket needs.
pub(super) fn check(root: &Path) -> Result<(), FileError> {
    // The directory itself may not exist yet.
    let place = root.canonicalize().or_else(|_| root.parent().unwrap_or(root).canonicalize());
    let (Ok(place), Ok(mounts)) = (place, std::fs::read_to_string(MOUNTS)) else { return Ok(()) };
    check_in(&mounts, &place)
}

fn check_in(mounts: &str, place: &Path) -> Result<(), FileError> {
    let Some(kind) = kind_of(mounts, place) else { return Ok(()) };
    let Some(reason) = objection(kind) else { return Ok(()) };
    Err(FileError::Refused(format!(
        "{} is on a file system of the type {kind}: {reason}. Name a directory on a disk of this machine, or gs://NAME/PREFIX",
        place.display()
    )))
}

/// Returns the reason why a file system of this type is refused; absent if it is not.
fn objection(kind: &str) -> Option<&'static str> {
    let program = kind.strip_prefix("fuse.").unwrap_or(kind);
    match kind {
        "nfs" | "nfs4" => Some(
            "over NFS a commit whose answer got lost looks refused, what other machines wrote is seen late, and locks end with the \
             connection",
        ),
        "cifs" | "smb3" | "smbfs" => Some(
            "on an SMB share, hard links and locks depend on the server, and what other machines wrote is seen late",
        ),
        // A plain `fuse` hides its program, as the drivers of Cloud Run and Kubernetes do.
        "fuse" => {
            Some("it may show the objects of a store, which has no hard links and no locks to keep two servers apart")
        }
        _ if REMOTE_FUSE.contains(&program) => Some(
            "it shows the objects of a store or the files of another machine, without the hard links and locks that keep two servers apart",
        ),
        _ => None,
    }
}

/// Returns the type of the file system that a path is on. `proc_pid_mountinfo(5)` describes the table.
fn kind_of<'t>(mounts: &'t str, place: &Path) -> Option<&'t str> {
    let of = |line: &'t str| {
        let (mount, system) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(mount.split(' ').nth(4)?));
        let depth = place.starts_with(&point).then(|| point.components().count())?;
        Some((depth, system.split(' ').next()?))
    };
    // Of two mounts on one point, the later one hides the earlier one.
    mounts.lines().filter_map(of).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Decodes a mount point, in which the kernel writes blanks and backslashes in octal.
fn unescaped(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(point.to_owned(), |point, (written, meant)| point.replace(written, meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = r"22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
30 22 0:40 / /mnt/efs rw,relatime shared:9 - nfs4 10.0.0.9:/ rw,vers=4.1
31 22 0:41 / /mnt/gcs rw,nosuid,nodev - fuse.gcsfuse state rw,user_id=0
32 22 0:42 / /mnt/my\040share rw - cifs //files.core.windows.net/state rw
33 22 0:43 / /mnt/csi rw - fuse state rw
34 22 0:44 / /home/me/desktop rw - virtiofs shared rw
35 22 0:45 / /mnt/disk rw - fuse.mergerfs disks rw
36 30 254:16 / /mnt/efs/disk rw - ext4 /dev/vdb rw
37 22 0:46 / /mnt/over rw - ext4 /dev/vdc rw
38 37 0:47 / /mnt/over rw - nfs 10.0.0.9:/over rw
not a line of the table
";

    fn refusal_of(place: &str) -> Option<String> {
        match check_in(MOUNTS, Path::new(place)) {
            Ok(()) => None,
            Err(FileError::Refused(reason)) => Some(reason),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bucket_lies_on_a_disk_of_this_machine() {
        for place in ["/var/lib/tidelock", "/mnt/efs/disk/bucket", "/mnt/efs-2", "/home/me/desktop", "/mnt/disk/bucket"]
        {
            assert_eq!(refusal_of(place), None, "{place}");
        }
        assert_eq!(check(&std::env::temp_dir().join("not there yet")).map_err(|error| format!("{error:?}")), Ok(()));
    }

    #[test]
    fn a_network_or_a_store_under_it_is_refused_with_the_reason() {
        assert_eq!(
            refusal_of("/mnt/efs/bucket").as_deref(),
            Some(
                "/mnt/efs/bucket is on a file system of the type nfs4: over NFS a commit whose answer got lost looks refused, what other \
                 machines wrote is seen late, and locks end with the connection. Name a directory on a disk of this machine, or \
                 gs://NAME/PREFIX"
            )
        );
        for (place, kind) in [
            ("/mnt/gcs/state", "fuse.gcsfuse"),
            ("/mnt/my share/bucket", "cifs"),
            ("/mnt/csi", "fuse"),
            ("/mnt/over/bucket", "nfs"),
        ] {
            let reason = refusal_of(place).unwrap();
            assert!(reason.starts_with(&format!("{place} is on a file system of the type {kind}: ")), "{reason}");
        }
    }
}
