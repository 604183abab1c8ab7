//! Keeps steps and hooks away from the server's files, and from those of other runs.

use super::Local;
use super::environment;
use super::home::{self, RunFolder, RunFolders, Seed};
use crate::checkout::folder::remove_path;
use crate::process::{Confinement, Protection, Reach, RunAsUsers, SharedBounds};
use anyhow::{Context as _, Result, bail};
use sha2::{Digest, Sha256};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidelock_core::domain::{PullId, RunId};

/// Folder of the data directory with the home directories of runs.
const FOLDER: &str = "runs";
/// Longest path of that folder, in bytes. The socket of a provider in it, `<run>/tmp/plugin-dir1234567890/plugin1234567890`, may have a
/// name of 107 bytes (unix(7)).
const LONGEST: usize = 56;
/// Directories of the system, which steps cannot change by default.
const OF_THE_SYSTEM: [&str; 12] =
    ["/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/sbin", "/sys", "/usr"];

/// Settings of the separation.
pub struct SeparationSettings<'a> {
    /// Directories outside of the tree that steps may write to. If absent, all that are not the system's, the server's, or on `PATH`.
    pub writable: Option<&'a [PathBuf]>,
    /// Directory whose contents the home directory of each run begins with. If absent, the configuration in the server's own home
    /// directory.
    pub home: Option<&'a Path>,
    /// The data directory, absolute.
    pub data_dir: &'a Path,
    /// Files and directories of the server that no step can open: state, keys.
    pub hidden: Vec<PathBuf>,
    /// Files of the server that no step can change.
    pub kept: Vec<PathBuf>,
    /// Files that steps can read although they are in the data directory.
    pub readable: Vec<PathBuf>,
    /// The environment of steps.
    pub env: &'a [(String, String)],
    /// Users that steps run as.
    pub users: Option<RunAsUsers>,
}

/// Bounds of steps and hooks, as far as the machine supports them.
#[derive(Default)]
pub struct Separation(Option<Bounds>);

struct Bounds {
    folders: RunFolders,
    /// Bounds of the kernel; absent if steps are separated by their users only.
    shared: Option<Arc<SharedBounds>>,
    readable: Vec<PathBuf>,
}

impl Separation {
    /// Returns bounds if there is protection, or a user for each pull request. No other server may use the data directory meanwhile.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// If a directory that the settings name cannot be used, or no folder for runs can be made.
    pub fn new(protection: &Protection, settings: SeparationSettings<'_>) -> Result<Separation> {
        let has_users = settings.users.is_some_and(|users| users.only().is_none());
        match protection {
            Protection::None(_) if !has_users => Ok(Separation(None)),
            _ => Ok(Separation(Some(Bounds::new(protection, settings)?))),
        }
    }
}

impl Bounds {
    fn new(protection: &Protection, settings: SeparationSettings<'_>) -> Result<Bounds> {
        let SeparationSettings { writable, home, data_dir, mut hidden, mut kept, readable, env, users } = settings;
        let variable =
            |wanted: &str| env.iter().find(|(name, _)| name == wanted).map(|(_, value)| PathBuf::from(value));
        let root = make_folder_of_runs(data_dir)?;
        let server_home = variable("HOME").filter(|home| home.is_absolute() && home.parent().is_some());
        let seed = match (home, &server_home, users) {
            (Some(home), ..) => Seed::All(home.to_owned()),
            // The operator decides which of these files another user may read.
            (None, Some(home), None) => {
                let linked = !is_within(home, data_dir);
                Seed::Server { home: home.clone(), linked }
            }
            (None, ..) => Seed::Nothing,
        };
        if let Seed::All(_) = &seed {
            let trial = root.join("trial");
            std::fs::create_dir_all(&trial)?;
            let tried = home::fill(&trial, &seed);
            remove_path(&trial)?;
            tried?;
        }
        kept.extend(OF_THE_SYSTEM.map(PathBuf::from));
        kept.extend(server_home);
        kept.extend(variable("PATH").iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute()));
        let writable = match writable {
            None => vec![PathBuf::from("/")],
            Some(named) => {
                for dir in named {
                    dir.metadata().with_context(|| format!("--step-writable names {}", dir.display()))?;
                }
                // A directory that `--step-writable` names is writable even inside a read-only one.
                kept.retain(|kept| !named.iter().any(|dir| is_within(dir, kept)));
                named.iter().cloned().chain([PathBuf::from("/dev")]).collect()
            }
        };
        hidden.extend([data_dir.to_owned(), root.clone()]);
        let shared = match protection {
            Protection::Landlock(_) => Some(Arc::new(SharedBounds::new(hidden, kept, writable))),
            Protection::None(_) => None,
        };
        Ok(Bounds { folders: RunFolders::new(root, seed), shared, readable })
    }
}

/// Returns true if a path leads into a directory.
fn is_within(path: &Path, dir: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(path).starts_with(real(dir))
}

/// Returns the folder with the folders of runs: in the data directory, or among the machine's temporary files if that path is too long.
pub fn folder_of_runs(data_dir: &Path) -> PathBuf {
    let root = data_dir.join(FOLDER);
    if root.as_os_str().len() <= LONGEST {
        return root;
    }
    let name = hex::encode(&Sha256::digest(data_dir.as_os_str().as_encoded_bytes())[..6]);
    std::env::temp_dir().join(format!("tidelock-{name}"))
}

/// Makes that folder, empty and owned by the server's user.
fn make_folder_of_runs(data_dir: &Path) -> Result<PathBuf> {
    let root = folder_of_runs(data_dir);
    let context = || format!("cannot make {} for the home directories of steps", root.display());
    // Folders of runs that a killed server has left.
    remove_path(&root).with_context(context)?;
    std::fs::DirBuilder::new().mode(0o711).create(&root).with_context(context)?;
    let meta = root.symlink_metadata().with_context(context)?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} is not the server's own: remove it", root.display());
    }
    Ok(root)
}

/// Surroundings of a process of a step or hook.
pub struct Surroundings<'a> {
    /// The folder of its run.
    pub folder: Option<&'a RunFolder>,
    /// The root of the tree that it runs in.
    pub tree: &'a Path,
    /// The pull request.
    pub pull: &'a PullId,
    /// True if it may put providers into the cache.
    pub installs: bool,
    /// A directory of the server that it may read.
    pub reads: Option<&'a Path>,
}

impl Local {
    /// Returns true if steps are confined.
    pub fn confines(&self) -> bool {
        self.separation.0.as_ref().is_some_and(|bounds| bounds.shared.is_some())
    }

    /// Returns the folder of a run of a pull request, which exists until its last holder drops it. `None` if runs have no folders of their
    /// own.
    pub fn folder(&self, run: &RunId, pull: &PullId) -> Option<Arc<RunFolder>> {
        let bounds = self.separation.0.as_ref()?;
        Some(bounds.folders.hold(run, self.checkouts.owner(pull)))
    }

    /// Returns the same folder, made for processes if it does not exist yet.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub async fn made_folder(&self, run: &RunId, pull: &PullId) -> Result<Option<Arc<RunFolder>>> {
        let folder = self.folder(run, pull);
        if let Some(folder) = &folder {
            folder.ready().await?;
        }
        Ok(folder)
    }

    /// Returns the directory of providers that Terraform keeps for later jobs. It is only for jobs of the pull request's user, if it
    /// has one of its own.
    pub(super) fn plugin_cache(&self, pull: &PullId) -> PathBuf {
        let shared = self.data_dir.join("plugin-cache");
        match self.checkouts.owner(pull) {
            Some(user) if self.checkouts.has_users() => shared.join(user.uid.to_string()),
            _ => shared,
        }
    }

    /// Returns the bounds of a process; `None` if it has none.
    pub fn confinement(&self, around: &Surroundings<'_>) -> Option<Arc<Confinement>> {
        let bounds = self.separation.0.as_ref()?;
        let shared = Arc::clone(bounds.shared.as_ref()?);
        let installed = if around.installs { Reach::Write } else { Reach::Read };
        let mut own = vec![
            (around.tree.to_owned(), Reach::Write),
            // git's objects, which the tree shares with the mirror.
            (self.checkouts.mirror_path(&around.pull.repo).join("objects"), Reach::Read),
            (self.data_dir.join("bin"), Reach::Read),
            (self.own_program.clone(), Reach::Read),
            // An empty configuration of conftest.
            (self.data_dir.join("conftest"), Reach::Read),
            (self.plugin_cache(around.pull), installed),
        ];
        own.extend(environment::get(&self.env, "TF_PLUGIN_CACHE_DIR").map(|path| (PathBuf::from(path), installed)));
        own.extend(around.folder.map(|folder| (folder.path().to_owned(), Reach::Write)));
        own.extend(around.reads.map(|path| (path.to_owned(), Reach::Read)));
        own.extend(bounds.readable.iter().map(|path| (path.clone(), Reach::Read)));
        Some(Arc::new(Confinement { shared, own }))
    }
}
