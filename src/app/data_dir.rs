//! Prepares the data directory at the start: its folders, their permissions, and the access of the user of `--run-as-user`.

use crate::process::{RunAs, RunAsUsers};
use anyhow::{Context, Result, bail};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Folders that only this server may read: plans, logs, files that steps left, and states.
const PRIVATE: [&str; 4] = ["plans", "logs", "left", "errored"];
/// Folders open to steps: trees and their objects, and binaries.
const SHARED: [&str; 3] = ["repos", "mirrors", "bin"];
/// Copies of plans while a job reads them. Each job has a folder whose name only it knows.
const SEALED: &str = crate::runner::local::SEALED_FOLDER;
/// Folders that steps write to.
const OF_STEPS: [&str; 2] = ["plugin-cache", "home"];

/// Creates the folders that Terraform and the server expect. Fails if steps could not reach their checkouts as `user`.
pub(super) fn prepare(data_dir: &Path, users: Option<RunAsUsers>) -> Result<()> {
    let user = users.map(RunAsUsers::first);
    let data_dir = std::path::absolute(data_dir)?;
    let ours = !data_dir.exists();
    for folder in [""].into_iter().chain(PRIVATE).chain(SHARED).chain(OF_STEPS) {
        let path = data_dir.join(folder);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {} (--data-dir)", path.display()))?;
        if PRIVATE.contains(&folder) {
            std::fs::set_permissions(&path, Permissions::from_mode(0o700))
                .with_context(|| format!("cannot close {} to others", path.display()))?;
        }
    }
    if ours {
        // An existing directory keeps the mode that the operator chose.
        let mode = if user.is_some() { 0o711 } else { 0o700 };
        std::fs::set_permissions(&data_dir, Permissions::from_mode(mode))
            .with_context(|| format!("cannot close {} to others", data_dir.display()))?;
    }
    let sealed = data_dir.join(SEALED);
    // Remove the folders of interrupted jobs.
    let _ = std::fs::remove_dir_all(&sealed);
    std::fs::create_dir_all(&sealed)
        .and_then(|()| {
            let mode = if user.is_some() { 0o711 } else { 0o700 };
            std::fs::set_permissions(&sealed, Permissions::from_mode(mode))
        })
        .with_context(|| format!("cannot make {} (--data-dir)", sealed.display()))?;
    let Some(user) = user else { return Ok(()) };
    // Several users each get a cache and a home of their own in these folders, which then stay the server's.
    let shared = if users.is_some_and(|users| users.only().is_some()) { &OF_STEPS[..] } else { &[] };
    for folder in shared {
        let path = data_dir.join(folder);
        change_owner(&path, user)
            .with_context(|| format!("cannot give {} to user {} (--run-as-user)", path.display(), user.uid))?;
    }
    can_enter(&data_dir.join("repos"), user)
}

/// Changes the owner of a folder and its contents to the user, unless the user owns it already.
fn change_owner(path: &Path, user: RunAs) -> Result<()> {
    match path.symlink_metadata()?.uid() == user.uid {
        true => Ok(()),
        false => crate::checkout::change_owner_of_tree(path, user),
    }
}

/// Checks that the user may enter every directory on the path.
fn can_enter(path: &Path, user: RunAs) -> Result<()> {
    for dir in path.ancestors() {
        let meta = dir.metadata().with_context(|| format!("cannot look at {}", dir.display()))?;
        let bit = match (meta.uid() == user.uid, meta.gid() == user.gid) {
            (true, _) => 0o100,
            (_, true) => 0o010,
            _ => 0o001,
        };
        if user.uid != 0 && meta.mode() & bit == 0 {
            bail!(
                "user {} of --run-as-user cannot enter {} (mode {:o}), so no step could run in its checkout: \
                 `chmod o+x {}`, or choose another --data-dir",
                user.uid,
                dir.display(),
                meta.mode() & 0o7777,
                dir.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_that_the_user_of_steps_cannot_enter_stops_the_start() {
        let dir = tempfile::TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let meta = dir.path().metadata().unwrap();
        let stranger = RunAs { uid: meta.uid() + 4321, gid: meta.gid() + 4321 };
        std::fs::create_dir(dir.path().join("repos")).unwrap();
        let error = can_enter(&dir.path().join("repos"), stranger).unwrap_err().to_string();
        assert!(error.contains("chmod o+x") && error.contains(&dir.path().display().to_string()), "{error}");
        can_enter(&dir.path().join("repos"), RunAs { uid: meta.uid(), gid: meta.gid() }).unwrap();
    }

    #[test]
    fn plans_and_logs_are_closed_to_others() {
        let dir = tempfile::TempDir::new().unwrap();
        prepare(&dir.path().join("data"), None).unwrap();
        assert_eq!(dir.path().join("data").metadata().unwrap().mode() & 0o777, 0o700);
        for folder in PRIVATE {
            let mode = dir.path().join("data").join(folder).metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder}");
        }
    }
}
