//! The home directory and the temporary directory of a run. Its hooks and jobs share them, and no other run sees them.

use crate::checkout::folder::remove_path;
use crate::platform;
use crate::process::RunAs;
use anyhow::{Context as _, Result};
use rustix::fs::Dir;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tidelock_core::domain::RunId;
use tokio::sync::OnceCell;

/// Entries of the server's home directory that are copied if no other directory is named: configuration that tools read, and write to. The
/// rest of it is linked.
const COPIED: [&str; 16] = [
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/git",
    ".config/helm",
    ".config/opentofu",
    ".docker/config.json",
    ".gitconfig",
    ".gnupg",
    ".kube/config",
    ".netrc",
    ".oci",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".tofurc",
];
/// Folders of the clouds' tools that are not copied: programs and logs.
const NOT_COPIED: [&str; 5] = ["cliextensions", "commands", "logs", "telemetry", "virtenv"];
/// Entry of the home directory that is neither copied nor linked.
const FRESH: &str = ".cache";
/// Most links that are made in one directory of a home directory.
const MAX_LINKS: usize = 1_000;
/// Most files and bytes that are copied into a home directory.
const MAX_FILES: u64 = 10_000;
const MAX_BYTES: u64 = 64 << 20;
/// Most nested directories that are copied.
const MAX_DEPTH: usize = 32;
/// Characters of a run's ID that name its folder. `TMPDIR` has to be short: the names of sockets have at most 107 bytes (unix(7)).
const NAME_LENGTH: usize = 8;

/// Source of the home directories of runs.
#[derive(Debug, Clone)]
pub(super) enum Seed {
    /// Everything in this directory.
    All(PathBuf),
    /// Entries of the server's: [`COPIED`], and links to the rest, unless it contains the server's own files.
    Server { home: PathBuf, linked: bool },
    /// Nothing: they begin empty.
    Nothing,
}

/// The folders of all runs at work.
pub(super) struct RunFolders {
    root: PathBuf,
    seed: Seed,
    held: Mutex<HashMap<RunId, Weak<RunFolder>>>,
}

impl RunFolders {
    pub(super) fn new(root: PathBuf, seed: Seed) -> RunFolders {
        RunFolders { root, seed, held: Mutex::default() }
    }

    /// Returns the run's folder, owned by the user that its steps run as. It exists until its last holder drops it.
    pub(super) fn hold(&self, run: &RunId, owner: Option<RunAs>) -> Arc<RunFolder> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = held.get(run).and_then(Weak::upgrade) {
            return folder;
        }
        held.retain(|_, folder| folder.strong_count() > 0);
        let name: String = run.as_str().chars().take(NAME_LENGTH).collect();
        let (path, seed) = (self.root.join(name), self.seed.clone());
        let folder = Arc::new(RunFolder { path, seed, owner, made: OnceCell::new() });
        held.insert(run.clone(), Arc::downgrade(&folder));
        folder
    }
}

/// The folder of one run. It is made when the first process needs it, and removed when this is dropped.
pub struct RunFolder {
    path: PathBuf,
    seed: Seed,
    owner: Option<RunAs>,
    made: OnceCell<()>,
}

impl RunFolder {
    /// Returns the folder, which contains [`RunFolder::home`] and [`RunFolder::temporary`].
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `HOME` of its processes.
    pub(super) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// Returns `TMPDIR` of its processes.
    pub(super) fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// Makes it, unless it exists.
    pub(super) async fn ready(&self) -> Result<()> {
        let making = || async {
            let (path, seed, owner) = (self.path.clone(), self.seed.clone(), self.owner);
            tokio::task::spawn_blocking(move || make(&path, &seed, owner)).await?
        };
        self.made.get_or_try_init(making).await.map(drop)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.made.initialized() {
            return;
        }
        let path = std::mem::take(&mut self.path);
        // Steps may have left many files in it.
        std::thread::spawn(move || {
            if let Err(error) = remove_path(&path) {
                tracing::warn!(path = %path.display(), %error, "the home directory of a run could not be removed");
            }
        });
    }
}

/// Makes the folder of a run. Blocks.
fn make(path: &Path, seed: &Seed, owner: Option<RunAs>) -> Result<()> {
    // Files that a killed server has left.
    remove_path(path).with_context(|| format!("cannot remove {}", path.display()))?;
    let private = |path: &Path| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("cannot make {}", path.display()))
    };
    let home = path.join("home");
    private(&home)?;
    private(&path.join("tmp"))?;
    fill(&home, seed)?;
    match owner {
        Some(user) => crate::checkout::change_owner_of_tree(path, user),
        None => Ok(()),
    }
}

/// Copies the seed into a home directory. Blocks.
pub(super) fn fill(home: &Path, seed: &Seed) -> Result<()> {
    match seed {
        Seed::Nothing => {}
        Seed::All(from) => {
            let all = || Copying::new(from, &[])?.copy(Path::new("."), home, 0);
            all().with_context(|| format!("a home directory cannot be made from {} (--step-home)", from.display()))?;
        }
        Seed::Server { home: from, linked } => {
            let Ok(mut copying) = Copying::new(from, &NOT_COPIED) else { return Ok(()) };
            for folder in folders_of_copied() {
                DirBuilder::new().recursive(true).create(home.join(folder))?;
            }
            for name in COPIED {
                let target = home.join(name);
                if let Err(error) = copying.copy(Path::new(name), &target, 0) {
                    tracing::warn!(%error, "{} is not copied for steps, which can read it", from.join(name).display());
                    remove_path(&target)?;
                    symlink(from.join(name), &target)?;
                }
            }
            if *linked {
                link_rest(from, home)?;
            }
        }
    }
    Ok(())
}

/// Returns the directories of [`COPIED`]. The path of the home directory itself is empty.
fn folders_of_copied() -> BTreeSet<&'static Path> {
    COPIED.iter().filter_map(|name| Path::new(name).parent()).collect()
}

/// Makes a link to each entry of a directory that has no counterpart, also in directories of which parts were copied.
fn link_rest(from: &Path, to: &Path) -> io::Result<()> {
    for folder in folders_of_copied() {
        let entries = std::fs::read_dir(from.join(folder)).into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name()).filter(|name| name != FRESH).take(MAX_LINKS) {
            match symlink(from.join(folder).join(&name), to.join(folder).join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
    }
    Ok(())
}

/// Copies files and directories of one directory. Links are followed only within it.
struct Copying {
    from: OwnedFd,
    path: PathBuf,
    /// Names of folders that become links, at the top of a copied directory.
    not_copied: &'static [&'static str],
    files: u64,
    bytes: u64,
}

impl Copying {
    fn new(path: &Path, not_copied: &'static [&'static str]) -> io::Result<Copying> {
        let from = File::open(path)?.into();
        Ok(Copying { from, path: path.to_owned(), not_copied, files: MAX_FILES, bytes: MAX_BYTES })
    }

    /// Copies the entry of this name, if it exists.
    fn copy(&mut self, name: &Path, target: &Path, depth: usize) -> io::Result<()> {
        let Some(file) = platform::open_beneath(&self.from, name)? else { return Ok(()) };
        let meta = file.metadata()?;
        self.files = self.files.checked_sub(1).ok_or_else(|| too_much(&format!("{MAX_FILES} files")))?;
        let mode = meta.mode() & 0o700;
        if meta.is_file() {
            self.bytes =
                self.bytes.checked_sub(meta.len()).ok_or_else(|| too_much(&format!("{} MiB", MAX_BYTES >> 20)))?;
            let mut copy = File::create(target)?;
            copy.set_permissions(Permissions::from_mode(mode | 0o200))?;
            io::copy(&mut file.take(meta.len()), &mut copy)?;
        } else if meta.is_dir() {
            if depth == MAX_DEPTH {
                return Err(too_much(&format!("{MAX_DEPTH} directories below each other")));
            }
            DirBuilder::new().recursive(true).mode(0o700).create(target)?;
            for entry in Dir::read_from(&file)? {
                let entry = entry?;
                let part = OsStr::from_bytes(entry.file_name().to_bytes());
                match part.as_bytes() {
                    b"." | b".." => {}
                    known if depth == 0 && self.not_copied.iter().any(|name| name.as_bytes() == known) => {
                        symlink(self.path.join(name).join(part), target.join(part))?;
                    }
                    _ => self.copy(&name.join(part), &target.join(part), depth + 1)?,
                }
            }
        }
        Ok(())
    }
}

fn too_much(limit: &str) -> io::Error {
    io::Error::other(format!("it has more than {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    fn is_link(path: &Path) -> bool {
        path.symlink_metadata().unwrap().is_symlink()
    }

    #[test]
    fn configuration_of_the_servers_home_is_copied_and_the_rest_linked() {
        let dir = tempfile::TempDir::new().unwrap();
        let (from, home) = (dir.path().join("server"), dir.path().join("home"));
        write(
            &from,
            &[
                (".aws/credentials", "aws"),
                (".azure/logs/log", "much"),
                (".azure/azureProfile.json", "azure"),
                (".config/gcloud/active", "gcloud"),
                (".config/other/file", "other"),
                (".cache/file", "old"),
                (".kube/..data/config", "kube"),
                (".terraform.d/plugins/plugin", "plugin"),
                ("scripts/run.sh", "script"),
            ],
        );
        write(dir.path(), &[("secret", "secret")]);
        symlink("..data/config", from.join(".kube/config")).unwrap();
        symlink(dir.path().join("secret"), from.join(".netrc")).unwrap();
        symlink("..", from.join(".aws/circle")).unwrap();
        std::fs::create_dir(&home).unwrap();
        fill(&home, &Seed::Server { home: from.clone(), linked: true }).unwrap();
        let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
        assert_eq!([read(".azure/azureProfile.json"), read(".config/gcloud/active")], ["azure", "gcloud"]);
        assert_eq!(
            [read(".kube/config"), read(".config/other/file"), read("scripts/run.sh")],
            ["kube", "other", "script"]
        );
        assert_eq!(read(".terraform.d/plugins/plugin"), "plugin");
        assert!(
            is_link(&home.join(".azure/logs"))
                && is_link(&home.join("scripts"))
                && is_link(&home.join(".config/other"))
        );
        assert!(
            !is_link(&home.join(".config")) && !is_link(&home.join(".kube/config")) && !home.join(".cache").exists()
        );
        // The server does not read files outside of the home directory. A circle is too deep to be copied.
        assert!(is_link(&home.join(".netrc")) && is_link(&home.join(".aws")));
        std::fs::write(home.join(".config/gcloud/active"), "changed").unwrap();
        assert_eq!(std::fs::read_to_string(from.join(".config/gcloud/active")).unwrap(), "gcloud");
    }

    #[test]
    fn a_named_directory_is_copied_whole_or_not_at_all() {
        let dir = tempfile::TempDir::new().unwrap();
        let (from, home) = (dir.path().join("seed"), dir.path().join("home"));
        write(&from, &[("logs/file", "log"), ("run.sh", "script")]);
        std::fs::set_permissions(from.join("run.sh"), Permissions::from_mode(0o555)).unwrap();
        std::fs::create_dir(&home).unwrap();
        fill(&home, &Seed::All(from.clone())).unwrap();
        assert!(!is_link(&home.join("logs")));
        assert_eq!(home.join("run.sh").metadata().unwrap().mode() & 0o777, 0o700);
        File::create(from.join("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = format!("{:#}", fill(&home, &Seed::All(from.clone())).unwrap_err());
        assert!(error.contains("--step-home") && error.ends_with("it has more than 64 MiB"), "{error}");
        fill(&home, &Seed::All(dir.path().join("none"))).unwrap_err();
    }
}
