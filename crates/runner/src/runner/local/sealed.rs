//! Plans and their JSON in a place where no step can change them. A process that an earlier step has left behind can replace every file of
//! a tree. So the bytes that Terraform applies, and that policies check, are on a sealed descriptor of the process that reads them. Steps
//! of a workflow get a copy in a directory of the server's user.

use super::planned_code::{PlannedCode, rewritten};
use super::{Local, Place, files};
use crate::platform;
use crate::process::RunAs;
use crate::runner::spec::{JobSpec, Steps};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest, Sha256};
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidelock_core::config::workflow::{EnvValue, Step};

/// Folder of the copies in the data directory.
pub const FOLDER: &str = "sealed";
/// Descriptor of the plan in a child. Shells use those below 100 themselves.
pub(super) const PLAN_FD: i32 = 200;
/// Descriptor of the plan's JSON.
pub(super) const JSON_FD: i32 = 201;

/// Bytes that no step can change.
pub(super) struct Sealed {
    place: SealedPlace,
    child_fd: i32,
}

/// Storage of sealed bytes.
enum SealedPlace {
    Memory(Arc<OwnedFd>),
    /// Used if the kernel has no sealed files.
    Copy(PathBuf),
}

impl Sealed {
    /// Seals bytes for descriptor `child_fd` of the children that read them. If that is not supported, `copy` keeps them. Blocks.
    pub(super) fn new(bytes: &[u8], child_fd: i32, copy: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<Sealed> {
        let place = match platform::sealed_file(bytes)? {
            Some(file) => SealedPlace::Memory(Arc::new(file)),
            None => SealedPlace::Copy(copy()?),
        };
        Ok(Sealed { place, child_fd })
    }

    /// Returns the path that a child with [`Sealed::file`] opens.
    pub(super) fn path(&self) -> String {
        match &self.place {
            SealedPlace::Memory(_) => format!("/proc/self/fd/{}", self.child_fd),
            SealedPlace::Copy(path) => path.to_string_lossy().into_owned(),
        }
    }

    /// Returns the descriptor that a child gets, and its number there.
    pub(super) fn file(&self) -> Option<(Arc<OwnedFd>, i32)> {
        match &self.place {
            SealedPlace::Memory(file) => Some((Arc::clone(file), self.child_fd)),
            SealedPlace::Copy(_) => None,
        }
    }

    /// Returns at most `limit` of its first bytes, as text.
    pub(super) fn text(&self, limit: usize) -> io::Result<String> {
        let mut bytes = vec![0; limit];
        let file = match &self.place {
            SealedPlace::Memory(file) => File::from(file.try_clone()?),
            SealedPlace::Copy(path) => File::open(path)?,
        };
        let mut read = 0;
        while read < limit {
            match file.read_at(&mut bytes[read..], read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        bytes.truncate(read);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A job's directory for copies, which is removed with all of them when this is dropped.
pub(super) struct Copies {
    folder: PathBuf,
    reader: Option<RunAs>,
}

impl Copies {
    /// Returns the copies of this job, without making anything yet.
    pub(super) fn of_job(local: &Local, spec: &JobSpec) -> Copies {
        let (folder, reader) = (local.data_dir.join(FOLDER), local.checkouts.owner(&spec.tree.pull.id));
        Copies { folder: std::path::absolute(&folder).unwrap_or(folder).join(spec.job.as_str()), reader }
    }

    /// Returns the path of the directory, which exists once a copy was added.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a copy of this name, which the user of steps can read and nobody can write. Blocks.
    pub(super) fn add(&self, name: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        std::fs::create_dir_all(&self.folder)?;
        let mode = if self.reader.is_some() { 0o711 } else { 0o700 };
        std::fs::set_permissions(&self.folder, Permissions::from_mode(mode))?;
        let path = self.folder.join(name);
        // Readers of an earlier copy keep it open.
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        let mode = match self.reader {
            None => 0o400,
            Some(user) => match std::os::unix::fs::fchown(&file, None, Some(user.gid)) {
                Ok(()) => 0o440,
                // The directory's name is known only to the job.
                Err(_) => 0o444,
            },
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(path)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let Ok(copies) = std::fs::read_dir(&self.folder) else { return };
        let removed = copies.flatten().try_for_each(|copy| std::fs::remove_file(copy.path()));
        if let Err(error) = removed.and_then(|()| std::fs::remove_dir(&self.folder)) {
            tracing::warn!(folder = %self.folder.display(), %error, "a copy of a plan could not be removed");
        }
    }
}

/// A plan that a job reads: sealed, and as a copy.
pub(super) struct PlanToRead {
    pub(super) sealed: Arc<Sealed>,
    /// Copy for commands of the workflow.
    pub(super) copy: Option<PathBuf>,
    /// Its code, or the reason that this cannot be read; absent if it is not compared.
    pub(super) code: Option<Arc<Result<PlannedCode>>>,
}

/// Returns the copies of a job, and the plan that it reads, if any, sealed. Fails if the plan file has changed since it was made.
pub(super) async fn of_job(local: &Local, spec: &JobSpec, place: &Place) -> Result<(Arc<Copies>, Option<PlanToRead>)> {
    let copies = Arc::new(Copies::of_job(local, spec));
    let file =
        spec.plan.reads().and_then(|plan| Some((local.data_dir.join(plan.path.as_ref()?), plan.sha256.clone()?)));
    let Some((path, sha256)) = file else { return Ok((copies, None)) };
    let with_copy = match &spec.steps {
        Steps::Stage { first, steps } => has_commands(first) || has_commands(steps),
        Steps::Version | Steps::ForceUnlock { .. } => false,
    };
    let (held, root, tree_file) = (Arc::clone(&copies), place.tree.root.clone(), place.plan_file.clone());
    let is_compared = spec.plan.approved().is_some();
    let opening = tokio::task::spawn_blocking(move || -> Result<PlanToRead> {
        let bytes = std::fs::read(&path).context("the plan file is gone")?;
        ensure!(hex::encode(Sha256::digest(&bytes)) == sha256, "the plan file is not the one that was made");
        let (bytes, code) = match is_compared {
            true => {
                let (bytes, code) = rewritten(bytes);
                if with_copy {
                    // Commands may name the file in the tree.
                    files::write_for_steps(&root, &tree_file, &bytes)?;
                }
                (bytes, Some(Arc::new(code)))
            }
            false => (bytes, None),
        };
        let name = Path::new(tree_file.file_name().unwrap_or_default());
        let copy = with_copy.then(|| held.add(name, &bytes)).transpose()?;
        Ok(PlanToRead { sealed: of_tree(&bytes, &tree_file, &held)?, copy, code })
    });
    Ok((copies, Some(opening.await??)))
}

/// Seals a plan file of a tree. Blocks.
pub(super) fn of_tree(bytes: &[u8], file: &Path, copies: &Copies) -> io::Result<Arc<Sealed>> {
    let name = Path::new(file.file_name().unwrap_or_default());
    Ok(Arc::new(Sealed::new(bytes, PLAN_FD, || copies.add(name, bytes))?))
}

/// Returns true if steps run commands of the workflow, which read files by their names.
pub fn has_commands(steps: &[Step]) -> bool {
    let is_command = |step: &Step| match step {
        Step::Run { .. } | Step::Multienv { .. } | Step::Env { value: EnvValue::Command(_), .. } => true,
        Step::Init { .. }
        | Step::Plan { .. }
        | Step::Apply { .. }
        | Step::Show { .. }
        | Step::Import { .. }
        | Step::StateRm { .. }
        | Step::PolicyCheck { .. }
        | Step::Env { value: EnvValue::Value(_), .. } => false,
    };
    steps.iter().any(is_command)
}
