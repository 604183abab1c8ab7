//! Files that outlive the tree of a job: plan files, files that the steps of a plan left, and `errored.tfstate` of a failed apply.

use super::files::LOCK_FILE;
use super::sealed::{self, Copies, Sealed};
use super::ways_out::is_code;
use super::{Local, Place, files, terragrunt};
use crate::checkout::folder::Folder;
use crate::checkout::{MayBePutBack, NotPutBack, OtherProjects, PlanArtifacts, inside};
use crate::runner::result::{Artifact, PlanMade, StepProblem};
use crate::runner::spec::{JobSpec, PlanReference, PlanUse};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tidelock_core::config::ProjectConfig;
use tidelock_core::config::workflow::Step;
use tidelock_core::domain::state::LeftFiles;
use tidelock_core::domain::{JobId, PlanId};

/// Directory beside the code that `init` installs providers from.
pub(super) const PLUGINS: &str = "terraform.d";
/// Beginnings of the names of providers, and of provisioners, which stand for those that are built in.
pub(super) const PLUGIN_NAMES: [&str; 2] = ["terraform-provider-", "terraform-provisioner-"];
/// File that Terraform writes if it could not save its state.
const ERRORED: &str = "errored.tfstate";

pub use files::write_private;

/// Returns the path, in the data directory, of the archive of files that the steps of a plan left.
pub fn archive_path(plan: &PlanId) -> String {
    format!("left/{plan}.tar.zst")
}

/// Returns the path of a plan file in the data directory.
pub fn plan_path(plan: &PlanId) -> String {
    format!("plans/{plan}.tfplan")
}

/// Reason that a plan cannot be restored into a tree.
#[derive(Debug)]
pub enum PlanGone {
    /// Its steps left more files than are kept. The text describes them.
    LeftTooMuch(String),
    /// The archive of files that its steps left is missing, or differs.
    LeftFiles,
    /// The plan file is missing, or differs.
    File,
    /// A job that could have lied left this file, which could change what is applied.
    Untrusted(String),
    /// An internal error. The plan itself stays valid.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for PlanGone {
    fn from(error: E) -> PlanGone {
        PlanGone::Broken(error.into())
    }
}

impl Local {
    /// Takes the plan file of a job that makes a plan, once all steps have ended. Returns the kept file, and the plan sealed to be shown.
    pub(super) async fn take_plan(
        &self,
        spec: &JobSpec,
        place: &Place,
        copies: &Arc<Copies>,
    ) -> Result<Option<(Artifact, Arc<Sealed>)>, StepProblem> {
        let PlanUse::Make { id, .. } = &spec.plan else { return Ok(None) };
        let path = plan_path(id);
        let (root, from, to) = (place.tree.root.clone(), place.plan_file.clone(), self.data_dir.join(&path));
        let copies = Arc::clone(copies);
        let taking = tokio::task::spawn_blocking(move || -> Result<_> {
            let Some(bytes) = files::read_plan(&root, &from)? else { return Ok(None) };
            files::write_private(&to, &bytes)?;
            Ok(Some((hex::encode(Sha256::digest(&bytes)), sealed::of_tree(&bytes, &from, &copies)?)))
        });
        let taken = taking.await.map_err(anyhow::Error::from).and_then(|taken| taken);
        let taken = taken.map_err(|error| StepProblem::PlanNotKept { error: format!("{error:#}") })?;
        if taken.is_none() && spec.steps.make_a_plan_file() {
            return Err(StepProblem::NoPlanFile);
        }
        Ok(taken.map(|(sha256, sealed)| (Artifact { path, sha256 }, sealed)))
    }

    /// Keeps the other parts of a plan, if the job makes one.
    pub(super) async fn plan_made(&self, spec: &JobSpec, place: &Place, file: Option<Artifact>) -> Option<PlanMade> {
        let PlanUse::Make { id, dirs, .. } = &spec.plan else { return None };
        let left = self.keep_left(place, &spec.project.id.dir, dirs, id).await;
        Some(PlanMade { file, left, changes: None, incomparable: None, part: None, guards: None })
    }

    async fn keep_left(&self, place: &Place, own: &str, dirs: &[String], plan: &PlanId) -> LeftFiles {
        let others = OtherProjects { dirs: Arc::new(dirs.iter().cloned().collect()), own: own.to_owned() };
        let mut left = LeftFiles { tree: Some(place.tree.made.clone()), ..LeftFiles::default() };
        let path = self.data_dir.join(archive_path(plan));
        let kept = async {
            Ok(match self.checkouts.keep_artifacts(&place.tree, &others, path.clone()).await? {
                PlanArtifacts::Nothing => None,
                PlanArtifacts::TooMuch(what) => Some(Err(what)),
                PlanArtifacts::Files(_) => tokio::task::spawn_blocking(move || sha256_of(&path)).await??.map(Ok),
            })
        };
        match kept.await {
            Ok(None) => {}
            Ok(Some(Ok(sha256))) => left.archive = Some(sha256),
            Ok(Some(Err(what))) => left.too_much = Some(what),
            Err(error) => {
                let error: anyhow::Error = error;
                tracing::warn!(
                    plan = plan.as_str(),
                    error = format!("{error:#}"),
                    "files that steps left could not be kept"
                );
                left.too_much = Some("files that could not be read".into());
            }
        }
        left
    }

    /// Puts the files that the steps of a plan left into a tree that was made again.
    pub async fn put_back(&self, plan: &PlanReference, place: &Place) -> Result<(), PlanGone> {
        if let Some(what) = &plan.left.too_much {
            return Err(PlanGone::LeftTooMuch(what.clone()));
        }
        let Some(sha256) = &plan.left.archive else { return Ok(()) };
        let path = self.data_dir.join(archive_path(&plan.id));
        let archive = path.clone();
        let found = tokio::task::spawn_blocking(move || sha256_of(&archive)).await??;
        if found.as_ref() != Some(sha256) {
            return Err(PlanGone::LeftFiles);
        }
        // Without a plan file, whatever its steps left may be what is applied.
        let may: MayBePutBack = if plan.path.is_some() { is_harmless } else { |path, _| is_lock_file(path) };
        let may = plan.approved.is_some().then_some(may);
        let put_back = self.checkouts.put_back(&place.tree, path, may).await;
        put_back.map_err(|error| match error.downcast::<NotPutBack>() {
            Ok(NotPutBack(file)) => PlanGone::Untrusted(file),
            Err(error) => PlanGone::Broken(error),
        })
    }

    /// Checks that the plan file is unchanged since it was made.
    pub async fn check_plan_file(&self, plan: &PlanReference) -> Result<(), PlanGone> {
        self.with_plan_file(plan, |_| Ok(())).await
    }

    /// Does the same, and puts it into the tree, where commands of the workflow may expect it.
    pub async fn restore_plan_file(&self, plan: &PlanReference, place: &Place) -> Result<(), PlanGone> {
        let (root, to) = (place.tree.root.clone(), place.plan_file.clone());
        self.with_plan_file(plan, move |bytes| files::write_for_steps(&root, &to, bytes)).await
    }

    /// Calls `work` with the plan file, if there is one, and it is unchanged.
    async fn with_plan_file(
        &self,
        plan: &PlanReference,
        work: impl FnOnce(&[u8]) -> Result<()> + Send + 'static,
    ) -> Result<(), PlanGone> {
        let (Some(path), Some(sha256)) = (&plan.path, plan.sha256.clone()) else { return Ok(()) };
        let from = self.data_dir.join(path);
        let restored = tokio::task::spawn_blocking(move || match std::fs::read(&from) {
            Ok(bytes) if hex::encode(Sha256::digest(&bytes)) == sha256 => Ok(work(&bytes)?),
            _ => Err(PlanGone::File),
        });
        restored.await.context("restoring the plan file")?
    }

    /// Removes the plan file from the tree.
    pub async fn remove_plan_file(&self, place: &Place) {
        files::remove(&place.tree.root, &place.plan_file).await;
    }

    /// Keeps the state that Terraform could not save in this job, if there is one in the project's directory of the tree at `root`.
    async fn errored_state(&self, job: &JobId, dir: &str, began: Timestamp, root: &Path) -> Result<Option<Artifact>> {
        let path = format!("errored/{job}.tfstate");
        let (root, dir, to) = (root.to_owned(), dir.to_owned(), self.data_dir.join(&path));
        let since = began.as_second();
        let copied = tokio::task::spawn_blocking(move || {
            // A directory that no longer exists has no such file.
            let Ok(dir) = inside(&root, &dir) else { return Ok(None) };
            let folder = Folder::below(&root, &dir)?;
            for place in terragrunt::working_dirs(&folder) {
                let errored = place.join(ERRORED);
                let Some(file) = folder.open_file(&errored)? else { continue };
                // One of an earlier apply was reported then. A file's time is coarser than the server's clock.
                let written = file.metadata()?.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
                if written.is_none_or(|at| at.as_second() >= since) {
                    return files::copy_from_tree(&root, &dir.join(errored), &to);
                }
            }
            Ok(None)
        });
        let sha256 = copied.await?.context("keeping errored.tfstate")?;
        Ok(sha256.map(|sha256| Artifact { path, sha256 }))
    }

    /// Keeps `errored.tfstate` like `errored_state`, for callers that must not fail because of it: an error is logged.
    pub async fn errored_state_or_none(
        &self,
        job: &JobId,
        dir: &str,
        began: Timestamp,
        root: &Path,
    ) -> Option<Artifact> {
        self.errored_state(job, dir, began, root).await.unwrap_or_else(|error| {
            tracing::error!(job = job.as_str(), root = %root.display(), dir, error = format!("{error:#}"), "errored.tfstate could not be kept: save it by hand");
            None
        })
    }
}

/// Returns the steps that have to run in a tree that was made again, before a stage of the project's workflow that has no `init` of its
/// own.
pub fn missing_preparation(config: &ProjectConfig, stage: &[Step]) -> Vec<Step> {
    let is_init = |step: &Step| matches!(step, Step::Init { .. });
    let plan = &config.workflow.plan;
    let Some(last) = plan.iter().rposition(is_init).filter(|_| !stage.iter().any(is_init)) else {
        return Vec::new();
    };
    let needed = |step: &&Step| matches!(step, Step::Init { .. } | Step::Env { .. } | Step::Multienv { .. });
    plan[..=last].iter().filter(needed).cloned().collect()
}

/// Returns true if a new file that a job has left is neither code nor a plugin of Terraform. In the place of another one it is nothing that
/// counts if that is Terraform's record of providers, which `init` completes.
fn is_harmless(path: &str, is_there: bool) -> bool {
    if is_there {
        return is_lock_file(path);
    }
    let path = path.to_ascii_lowercase();
    let is_plugin = |part: &str| part == PLUGINS || PLUGIN_NAMES.iter().any(|name| part.starts_with(name));
    !path.split('/').any(is_plugin) && !is_code(&path)
}

fn is_lock_file(path: &str) -> bool {
    path.rsplit('/').next() == Some(LOCK_FILE)
}

/// Returns the SHA-256 of a file of the server's, in hex; absent if there is none. Blocks.
fn sha256_of(path: &Path) -> std::io::Result<Option<String>> {
    let mut file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(hex::encode(digest.finalize()))),
            read => digest.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_an_apply_could_run_are_not_harmless() {
        for harmless in ["lambda.zip", "a/b.json", "a/.terraform.lock.hcl", "a/tf", "terraform.tfvars"] {
            assert!(is_harmless(harmless, false), "{harmless}");
        }
        for bad in [
            "x.tf",
            "a/x.tf.json",
            "a/x.tofu",
            "a/terraform.d/plugins/r/n/t/1.0.0/linux_amd64",
            "a/x/terraform-provider-t_v1",
            "terraform-provider-t_1.0.0_linux_amd64.zip",
            "terraform-provisioner-local-exec",
            "a/Terraform-Provisioner-file_v9",
        ] {
            assert!(!is_harmless(bad, false), "{bad}");
        }
        assert!(is_harmless(".terraform.lock.hcl", true) && !is_harmless("lambda.zip", true));
    }
}
