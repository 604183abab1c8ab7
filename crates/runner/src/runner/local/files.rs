//! Files that steps and the server exchange in a tree where steps may have left anything.

use super::Place;
use crate::checkout::folder::Folder;
use anyhow::{Context as _, Result};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// Largest plan file, in bytes. It is read whole.
const MAX_PLAN_FILE: u64 = 512 << 20;
/// Largest lock file of providers that is read, in bytes.
const MAX_LOCK_FILE: u64 = 4 << 20;
/// Largest file with a single word in it, in bytes.
const MAX_WORD: u64 = 4 << 10;
/// Terraform's record of the providers that a project uses.
pub(super) const LOCK_FILE: &str = ".terraform.lock.hcl";
/// Records of a lock file that `init` made and git does not have, next to the providers. Terragrunt may have these only in its own folder.
const GENERATED_LOCK: [&str; 2] = [".terraform/tidelock-generated-lock", ".terragrunt-cache/tidelock-generated-lock"];

/// Opens the directory of a file in the tree at `root`. Returns it and the file's name.
fn held<'a>(root: &Path, file: &'a Path) -> io::Result<(Folder, &'a Path)> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path of a file"));
    };
    Ok((Folder::below(root, dir)?, Path::new(name)))
}

/// Reads a plan file of a tree; absent if there is none. Anything but a file of the tree's owner is refused.
pub(super) fn read_plan(root: &Path, from: &Path) -> Result<Option<Vec<u8>>> {
    let (dir, name) = held(root, from).context("the project's directory is not what it was")?;
    Ok(dir.read(name, MAX_PLAN_FILE)?)
}

/// Copies a file of a tree to a file of the server's and returns its hash; absent if there is none. Anything but a file of the tree's owner
/// is refused: a step may have replaced it by anything.
pub(super) fn copy_from_tree(root: &Path, from: &Path, to: &Path) -> Result<Option<String>> {
    let (dir, name) = held(root, from).context("the project's directory is not what it was")?;
    let Some(bytes) = dir.read(name, MAX_PLAN_FILE)? else { return Ok(None) };
    write_private(to, &bytes)?;
    Ok(Some(hex::encode(Sha256::digest(&bytes))))
}

/// Writes a file that only the server's user can read: plans contain secrets in plain text. It is not synced to disk, because the
/// data that counts is in the bucket.
pub fn write_private(to: &Path, bytes: &[u8]) -> Result<std::fs::File> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = to.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    file.write_all(bytes).with_context(|| format!("writing {}", to.display()))?;
    Ok(file)
}

/// Writes a file for steps of a tree, readable by their user only.
pub(super) fn write_for_steps(root: &Path, to: &Path, bytes: &[u8]) -> Result<()> {
    let (dir, name) = held(root, to)?;
    Ok(dir.write(name, 0o600, bytes)?)
}

/// Removes a plan file from a tree. One that cannot be removed is not at the place where the server put it, and is not read either.
pub(super) async fn remove(root: &Path, file: &Path) {
    let (root, file) = (root.to_owned(), file.to_owned());
    let removing = move || held(&root, &file).and_then(|(dir, name)| dir.remove(name));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(removing).await {
        tracing::debug!(%error, "a plan file is not where it was");
    }
}

/// Removes, before `init`, a lock file that an earlier `init` made and git does not have. Returns true if there is a lock file afterwards.
pub(super) fn drop_generated_lock(dir: &Folder) -> io::Result<bool> {
    let noted = |note: &str| dir.read_text(Path::new(note), MAX_WORD).ok().flatten();
    let mut known = GENERATED_LOCK.iter().filter_map(|note| noted(note));
    if known.any(|known| lock_digest(dir).as_deref() == Some(known.trim())) {
        dir.remove(Path::new(LOCK_FILE))?;
    }
    Ok(dir.kind(Path::new(LOCK_FILE))?.is_some())
}

/// Records, after an `init` that found no lock file, that it made the present one.
pub(super) fn note_generated_lock(dir: &Folder) -> io::Result<()> {
    let Some(digest) = lock_digest(dir) else { return Ok(()) };
    let [with_providers, of_terragrunt] = GENERATED_LOCK.map(Path::new);
    let written = dir.write(with_providers, 0o600, digest.as_bytes());
    written.or_else(|_| dir.write(of_terragrunt, 0o600, digest.as_bytes()))
}

fn lock_digest(dir: &Folder) -> Option<String> {
    let bytes = dir.read(Path::new(LOCK_FILE), MAX_LOCK_FILE).ok()??;
    Some(hex::encode(Sha256::digest(&bytes)))
}

/// Returns the workspace that Terraform has selected, from its data directory; absent if only Terraform itself could tell.
pub(super) fn selected_workspace(dir: &Folder, data: &str) -> Option<String> {
    let file = PathBuf::from(data).join("environment");
    let text = dir.read_text(&file, MAX_WORD).ok()?;
    Some(text.map_or_else(|| "default".to_owned(), |text| text.trim().to_owned()))
}

impl Place {
    /// Runs file work in the project's directory, off the async threads.
    pub(super) async fn in_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (root, dir) = (self.tree.root.clone(), self.dir.clone());
        let working = tokio::task::spawn_blocking(move || work(&Folder::below(&root, &dir)?));
        working.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_plan_file_is_not_read_and_is_replaced() {
        let dir = tempfile::TempDir::new().unwrap();
        let (root, kept, secret) = (dir.path().join("tree"), dir.path().join("kept/plan"), dir.path().join("secret"));
        std::fs::create_dir(&root).unwrap();
        let plan = root.join("plan");
        assert_eq!(copy_from_tree(&root, &plan, &kept).unwrap(), None);
        std::fs::write(&secret, "ours").unwrap();
        std::os::unix::fs::symlink(&secret, &plan).unwrap();
        assert!(copy_from_tree(&root, &plan, &kept).is_err());
        assert!(copy_from_tree(&root, &root, &kept).is_err());
        assert!(!kept.exists());
        write_for_steps(&root, &plan, b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "ours");
        assert_eq!(copy_from_tree(&root, &plan, &kept).unwrap(), Some(hex::encode(Sha256::digest(b"new"))));
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "new");
    }

    #[test]
    fn only_a_lock_file_that_init_made_goes_before_the_next_one() {
        let dir = tempfile::TempDir::new().unwrap();
        let (lock, folder) = (dir.path().join(LOCK_FILE), Folder::open(dir.path()).unwrap());
        assert!(!drop_generated_lock(&folder).unwrap());
        std::fs::create_dir(dir.path().join(".terraform")).unwrap();
        std::fs::write(&lock, "made").unwrap();
        note_generated_lock(&folder).unwrap();
        assert!(!drop_generated_lock(&folder).unwrap() && !lock.exists());
        std::fs::write(&lock, "of the repository").unwrap();
        assert!(drop_generated_lock(&folder).unwrap() && lock.exists());
        // A lock file that several directories share.
        std::fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink("../common.hcl", &lock).unwrap();
        assert!(drop_generated_lock(&folder).unwrap());
    }

    #[test]
    fn the_selected_workspace_is_read_only_where_terraform_keeps_it_below() {
        let dir = tempfile::TempDir::new().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(selected_workspace(&folder, ".terraform").as_deref(), Some("default"));
        std::fs::create_dir(dir.path().join(".terraform")).unwrap();
        std::fs::write(dir.path().join(".terraform/environment"), "prod\n").unwrap();
        assert_eq!(selected_workspace(&folder, ".terraform").as_deref(), Some("prod"));
        std::os::unix::fs::symlink(".terraform", dir.path().join("linked")).unwrap();
        for elsewhere in ["linked", "../x", "/x"] {
            assert_eq!(selected_workspace(&folder, elsewhere), None, "{elsewhere}");
        }
    }
}
