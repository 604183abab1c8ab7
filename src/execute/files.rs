//! Files that steps and the server hand to each other in a tree where steps may have left anything: links, pipes, other files.

use crate::process::RunAs;
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Largest plan file, in bytes; it is read whole.
const MAX_PLAN_FILE: u64 = 512 << 20;

/// Copies the plan file and hashes it; absent when there is none. A step may have put anything in its place, so what is not a
/// file of the step's own user is not read on its behalf.
pub(super) fn keep_plan(from: &Path, to: &Path, user: Option<RunAs>) -> Result<Option<String>> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(from) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("reading the plan file"),
    };
    let meta = file.metadata()?;
    ensure!(meta.is_file(), "it is no regular file");
    ensure!(meta.len() <= MAX_PLAN_FILE, "it is larger than {MAX_PLAN_FILE} bytes");
    ensure!(user.is_none_or(|user| meta.uid() == user.uid), "it does not belong to the user that steps run as");
    let mut bytes = Vec::new();
    file.take(MAX_PLAN_FILE).read_to_end(&mut bytes).context("reading the plan file")?;
    write_private(to, &bytes)?;
    Ok(Some(hex::encode(Sha256::digest(&bytes))))
}

/// Plans hold secrets in plain text: nobody else may read them. Not waited for is the disk, where what counts is in the bucket.
pub(super) fn write_private(to: &Path, bytes: &[u8]) -> Result<std::fs::File> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = to.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    file.write_all(bytes).with_context(|| format!("writing {}", to.display()))?;
    Ok(file)
}

/// Writes what steps will read: a new file, so that no link in its place is followed, given to their user.
pub(super) fn write_for_steps(to: &Path, bytes: &[u8], user: Option<RunAs>) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(to);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    file.write_all(bytes)?;
    if let Some(user) = user {
        std::os::unix::fs::fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_no_file_of_the_steps_user_is_no_plan() {
        let dir = tempfile::TempDir::new().unwrap();
        let (plan, kept, secret) = (dir.path().join("plan"), dir.path().join("kept/plan"), dir.path().join("secret"));
        assert_eq!(keep_plan(&plan, &kept, None).unwrap(), None);
        std::fs::write(&secret, "ours").unwrap();
        std::os::unix::fs::symlink(&secret, &plan).unwrap();
        let meta = secret.metadata().unwrap();
        let (owner, other) =
            (RunAs { uid: meta.uid(), gid: meta.gid() }, RunAs { uid: meta.uid() + 1, gid: meta.gid() });
        assert!(keep_plan(&plan, &kept, Some(other)).is_err());
        assert!(keep_plan(dir.path(), &kept, None).is_err());
        assert!(!kept.exists());
        assert!(keep_plan(&plan, &kept, Some(owner)).unwrap().is_some());
    }

    #[test]
    fn a_link_in_the_place_of_a_file_for_steps_is_replaced() {
        let dir = tempfile::TempDir::new().unwrap();
        let (to, target) = (dir.path().join("to"), dir.path().join("target"));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &to).unwrap();
        write_for_steps(&to, b"new", None).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "new");
    }
}
