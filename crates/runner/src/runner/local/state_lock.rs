//! Traces of Terraform's lock on its state that a killed job left on this disk.

use super::{Local, terragrunt};
use crate::checkout::folder::Folder;
use crate::checkout::inside;
use crate::process::Redactor;
use crate::terraform::state_lock;
use rustix::fs::FileType;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Component, Path};
use tidelock_core::domain::state::{Job, StateLock};

/// Largest file of the local backend that is read, in bytes.
const MAX_FILE: u64 = 256 << 10;

/// Evidence of a lock in the working tree of a killed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockEvidence {
    /// The state is a local file, and no lock is held or was left.
    Nothing,
    /// The state is a local file, with a lock file beside it.
    Local(StateLock),
    /// The state is elsewhere, or nothing is known.
    Unknown,
}

impl Local {
    /// Searches a killed job's project directory for its lock.
    pub async fn left_lock(&self, job: &Job) -> LockEvidence {
        let Some(project) = &job.project else { return LockEvidence::Unknown };
        let roots = self.checkouts.tree_paths(&job.pull, &project.workspace);
        let (dir, workspace) = (project.dir.clone(), project.workspace.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let found = roots.iter().map(|root| local_lock(root, &dir, &workspace));
            // The job ran in one of them.
            found.fold(LockEvidence::Unknown, better)
        });
        match looking.await.unwrap_or(LockEvidence::Unknown) {
            LockEvidence::Local(lock) => LockEvidence::Local(shown(lock, &self.redactor)),
            other => other,
        }
    }
}

/// Redacts text that a step may have written, for people.
fn shown(lock: StateLock, redactor: &Redactor) -> StateLock {
    let StateLock { id, operation, who, created } = lock;
    StateLock { id: redactor.redact(&id), operation: redactor.redact(&operation), who: redactor.redact(&who), created }
}

fn local_lock(root: &Path, dir: &str, workspace: &str) -> LockEvidence {
    let Ok(dir) = inside(root, dir) else { return LockEvidence::Unknown };
    let Ok(folder) = Folder::below(root, &dir) else { return LockEvidence::Unknown };
    let found = terragrunt::working_dirs(&folder).into_iter().map(|place| lock_in(root, &dir.join(place), workspace));
    found.fold(LockEvidence::Unknown, better)
}

/// Returns the better evidence of two directories in which a job may have run.
fn better(best: LockEvidence, left: LockEvidence) -> LockEvidence {
    match (&best, &left) {
        (LockEvidence::Local(_), _) | (LockEvidence::Nothing, LockEvidence::Unknown) => best,
        _ => left,
    }
}

/// Searches one directory in which Terraform ran.
fn lock_in(root: &Path, dir: &Path, workspace: &str) -> LockEvidence {
    let Ok(folder) = Folder::below(root, dir) else { return LockEvidence::Unknown };
    if !matches!(folder.kind(Path::new(".terraform")), Ok(Some(FileType::Directory))) {
        return LockEvidence::Unknown;
    }
    let config = match folder.read_text(Path::new(".terraform/terraform.tfstate"), MAX_FILE) {
        Ok(Some(text)) => {
            let Ok(value) = serde_json::from_str::<Value>(&text) else { return LockEvidence::Unknown };
            if value["backend"]["type"] != "local" {
                return LockEvidence::Unknown;
            }
            value["backend"]["config"].clone()
        }
        Ok(None) => Value::Null,
        Err(_) => return LockEvidence::Unknown,
    };
    let path = if workspace == "default" {
        config["path"].as_str().unwrap_or("terraform.tfstate").to_owned()
    } else {
        format!("{}/{workspace}/terraform.tfstate", config["workspace_dir"].as_str().unwrap_or("terraform.tfstate.d"))
    };
    let state = dir.join(path);
    let (Some(Component::Normal(name)), Some(parent)) = (state.components().next_back(), state.parent()) else {
        return LockEvidence::Unknown;
    };
    let file = format!(".{}.lock.info", name.to_string_lossy());
    match beside_state(root, &folder, parent).map(|held| held.read_text(Path::new(&file), MAX_FILE)) {
        Ok(Ok(Some(text))) => state_lock::in_file(&text).map_or(LockEvidence::Unknown, LockEvidence::Local),
        Ok(Ok(None)) => LockEvidence::Nothing,
        Err(error) if error.kind() == ErrorKind::NotFound => LockEvidence::Nothing,
        _ => LockEvidence::Unknown,
    }
}

/// Opens the directory of a state. Even outside of the tree, only files of the user that steps run as are read in it.
fn beside_state(root: &Path, project: &Folder, dir: &Path) -> std::io::Result<Folder> {
    let dir = dir.canonicalize()?;
    match dir.starts_with(root.canonicalize()?) {
        true => Folder::below(root, &dir),
        false => Ok(Folder::open(&dir)?.owned_like(project)),
    }
}

/// Returns the name of this machine as Terraform writes it into locks.
pub fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_of_a_local_lock_is_found_wherever_the_state_lies() {
        let dir = tempfile::TempDir::new().unwrap();
        let at = dir.path();
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            std::fs::write(at.join(path), text).unwrap();
        };
        let file = r#"{"ID":"i","Operation":"OperationTypePlan","Who":"root@vm"}"#;
        assert_eq!(local_lock(at, ".", "default"), LockEvidence::Unknown);
        write(".terraform/modules/x", "");
        assert_eq!(local_lock(at, ".", "default"), LockEvidence::Nothing);
        write(".terraform.tfstate.lock.info", file);
        assert!(matches!(local_lock(at, ".", "default"), LockEvidence::Local(lock) if lock.id == "i"));
        assert_eq!(local_lock(at, ".", "staging"), LockEvidence::Nothing);
        let elsewhere = at.join("elsewhere/s.tfstate");
        let backend = format!(r#"{{"backend":{{"type":"local","config":{{"path":{elsewhere:?}}}}}}}"#);
        write(".terraform/terraform.tfstate", &backend);
        assert_eq!(local_lock(at, ".", "default"), LockEvidence::Nothing);
        write("elsewhere/.s.tfstate.lock.info", file);
        assert!(matches!(local_lock(at, ".", "default"), LockEvidence::Local(_)));
        write(".terraform/terraform.tfstate", r#"{"backend":{"type":"gcs","config":{}}}"#);
        assert_eq!(local_lock(at, ".", "default"), LockEvidence::Unknown);
        std::fs::remove_file(at.join("elsewhere/.s.tfstate.lock.info")).unwrap();
        write("elsewhere/.s.tfstate.lock.info", "not json");
        write(".terraform/terraform.tfstate", &backend);
        assert_eq!(local_lock(at, ".", "default"), LockEvidence::Unknown);
    }
}
