//! What steps leave behind that must outlive a disk: files of a plan's tree, and `errored.tfstate` of a failed apply.

use super::state_locks::machine;
use super::{Context, files};
use crate::checkout::folder::Folder;
use crate::checkout::{OtherProjects, PlanArtifacts, WorkingTree, inside};
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, JobOutcome, Outcome};
use crate::domain::state::{Job, LeftFiles, PlanRecord};
use crate::domain::{ProjectId, size};
use crate::store::KeptFile;
use crate::vault::FORMAT;
use crate::vault::inbox::{End, MAX_MAIL};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use jiff::Timestamp;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// What Terraform writes when it could not save its state.
const ERRORED: &str = "errored.tfstate";
/// Of an end in the inbox, what is neither its outcome nor a state: names and hashes, in bytes.
const WRAPPING: u64 = 64 << 10;

/// Where the archive of a plan lies in the data directory.
pub(super) fn archive_path(plan: &str) -> String {
    format!("left/{plan}.tar.zst")
}

/// Keeps what the steps of a plan left; `dirs` are the directories of the projects that are or were planned with it.
pub(super) async fn keep(
    ctx: &Context,
    tree: &WorkingTree,
    project: &ProjectId,
    dirs: &Arc<HashSet<String>>,
    plan: &str,
) -> (LeftFiles, Option<KeptFile>) {
    let others = OtherProjects { dirs: Arc::clone(dirs), own: project.dir.clone() };
    let mut left = LeftFiles { tree: Some(tree.made.clone()), ..LeftFiles::default() };
    let kept = async {
        let path = archive_path(plan);
        match ctx.checkouts.keep_artifacts(tree, &others, ctx.settings.data_dir.join(&path)).await? {
            PlanArtifacts::Nothing => Ok(None),
            PlanArtifacts::TooMuch(what) => Ok(Some(Err(what))),
            PlanArtifacts::Files(_) => anyhow::Ok(file(ctx, path).await?.map(Ok)),
        }
    };
    match kept.await {
        Ok(None) => (left, None),
        Ok(Some(Ok(file))) => {
            left.archive = Some(file.sha256.clone());
            (left, Some(file))
        }
        Ok(Some(Err(what))) => {
            left.too_much = Some(what);
            (left, None)
        }
        Err(error) => {
            tracing::warn!(plan, error = format!("{error:#}"), "files that steps left could not be kept");
            left.too_much = Some("files that could not be read".into());
            (left, None)
        }
    }
}

async fn file(ctx: &Context, path: String) -> Result<Option<KeptFile>> {
    let data_dir = ctx.settings.data_dir.clone();
    tokio::task::spawn_blocking(move || KeptFile::of(&data_dir, &path)).await?
}

/// What people should know where files are not kept.
pub(super) fn remark(ctx: &Context, plan: &PlanRecord) -> Option<String> {
    let what = plan.left.too_much.as_ref()?;
    let command = command_for(&ctx.rendering.executable, CommandName::Plan, &plan.project, &[]);
    Some(format!(
        "Steps of `{}` left {what}. They are not kept with the plan: if the server is started again on an empty disk before the apply, \
         or runs out of room, that will need a new plan (`{command}`).",
        plan.project.label()
    ))
}

/// Whether the tree is another one than the plan was made in, so that what its steps left, and its providers, are missing.
pub(super) fn is_missing(plan: &PlanRecord, tree: &WorkingTree) -> bool {
    plan.left.tree.as_ref().is_some_and(|made| *made != tree.made)
}

/// Puts what the plan's steps left into a tree that was made again. The inner error: it cannot be, so that the plan is useless.
pub(super) async fn put_back(ctx: &Context, plan: &PlanRecord, tree: &WorkingTree) -> Result<Result<(), Failure>> {
    let stale = |because: &str| Ok(Err(Failure::StalePlan { because: because.to_owned() }));
    if let Some(what) = &plan.left.too_much {
        return stale(&format!(
            "its checkout is gone since the server was started again or had to make room, and its steps had left {what} there"
        ));
    }
    let Some(sha256) = &plan.left.archive else { return Ok(Ok(())) };
    let path = archive_path(&plan.id);
    if file(ctx, path.clone()).await?.is_none_or(|file| file.sha256 != *sha256) {
        return stale(
            "its checkout is gone since the server was started again or had to make room, and the files that its steps had left there are too",
        );
    }
    ctx.checkouts.put_back(tree, ctx.settings.data_dir.join(path)).await?;
    Ok(Ok(()))
}

/// What has to run in a tree that was made again before the apply stage of a workflow that has no `init` of its own.
pub(super) fn init_again(config: &ProjectConfig) -> Vec<Step> {
    let is_init = |step: &Step| matches!(step, Step::Init { .. });
    let plan = &config.workflow.plan;
    let Some(last) = plan.iter().rposition(is_init).filter(|_| !config.workflow.apply.iter().any(is_init)) else {
        return Vec::new();
    };
    let needed = |step: &&Step| matches!(step, Step::Init { .. } | Step::Env { .. } | Step::Multienv { .. });
    plan[..=last].iter().filter(needed).cloned().collect()
}

/// Keeps the state that Terraform could not save in this job, if it left any in the project's directory of the tree at `root`.
async fn errored(ctx: &Context, job: &Job, root: &Path) -> Result<Option<KeptFile>> {
    let Some(project) = &job.project else { return Ok(None) };
    let path = format!("errored/{}.tfstate", job.id);
    let (root, dir, to) = (root.to_owned(), project.dir.clone(), ctx.settings.data_dir.join(&path));
    let since = job.started.as_second();
    let copied = tokio::task::spawn_blocking(move || {
        // Nothing is where no directory is any more.
        let Ok(dir) = inside(&root, &dir) else { return Ok(None) };
        let Some(file) = Folder::below(&root, &dir)?.open_file(Path::new(ERRORED))? else { return Ok(None) };
        // One of an earlier apply was told then. A file's time is coarser than ours.
        let written = file.metadata()?.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        if written.is_some_and(|at| at.as_second() < since) {
            return Ok(None);
        }
        files::keep_plan(&root, &dir.join(ERRORED), &to)
    });
    match copied.await?.context("keeping errored.tfstate")? {
        Some(_) => file(ctx, path).await,
        None => Ok(None),
    }
}

/// The same where nothing must get lost for want of it: trouble is logged.
pub async fn errored_or_none(ctx: &Context, job: &Job, root: &Path) -> Option<KeptFile> {
    errored(ctx, job, root).await.unwrap_or_else(|error| {
        let (job, dir) = (&job.id, job.project.as_ref().map(|project| project.dir.clone()).unwrap_or_default());
        tracing::error!(job, root = %root.display(), dir, error = format!("{error:#}"), "errored.tfstate could not be kept: save it by hand");
        None
    })
}

/// Where the state lies that could not be saved, and what to do with it.
pub fn errored_words(job: &str) -> String {
    format!(
        "Terraform could not save the state and left it as `errored.tfstate`. It is kept as `errored/{job}.tfstate` in the server's data \
         directory and its vault (`tidelock vault export DIR` writes it there). Push it before anything else is planned or applied, in \
         the project's directory: `terraform init`, then `terraform state push errored/{job}.tfstate`"
    )
}

/// The outcome of a failed command with a word on the state that it could not save.
pub(super) fn with_errored(mut outcome: Outcome, kept: Option<&KeptFile>, job: &str) -> Outcome {
    if let (Outcome::Errored(fault), Some(_)) = (&mut outcome, kept) {
        fault.message = format!("{}. {}", fault.message, errored_words(job));
    }
    outcome
}

/// Keeps a state that could not be saved, as another server sent it.
pub async fn keep_errored(ctx: &Context, job: &str, bytes: Vec<u8>) -> Result<Option<KeptFile>> {
    let path = format!("errored/{job}.tfstate");
    let to = ctx.settings.data_dir.join(&path);
    let write = move || -> Result<()> { Ok(files::write_private(&to, &bytes)?.sync_data()?) };
    tokio::task::spawn_blocking(write).await??;
    file(ctx, path).await
}

/// The same where it lies on this disk since it was found: too large for the inbox, or found by a process that could not record it.
pub async fn errored_here(ctx: &Context, job: &str) -> Result<Option<KeptFile>> {
    file(ctx, format!("errored/{job}.tfstate")).await
}

/// For whoever leads now: how a job ended that it has told as interrupted.
pub(super) async fn leave_end(ctx: &Context, job: &str, outcome: &JobOutcome) {
    let left = async { ctx.store.leave_end(end_of(&ctx.settings.data_dir, job, outcome).await?).await };
    match left.await {
        Ok(()) => tracing::info!(job, "its end was left for the server that leads now"),
        Err(error) => tracing::error!(
            job,
            error = format!("{error:#}"),
            "its end could not be left for the server that leads now"
        ),
    }
}

/// The end of a job with the state that could not be saved; where that is too large, it says where the state lies.
async fn end_of(data_dir: &Path, job: &str, outcome: &JobOutcome) -> Result<End> {
    let errored = data_dir.join(format!("errored/{job}.tfstate"));
    let end = |outcome: &JobOutcome, errored_state: Option<String>| -> Result<End> {
        Ok(End { format: FORMAT, job: job.to_owned(), outcome: serde_json::to_value(outcome)?, errored_state })
    };
    let Ok(meta) = tokio::fs::metadata(&errored).await else { return end(outcome, None) };
    let room = largest_state(serde_json::to_vec(outcome)?.len());
    if meta.len() > room {
        let place = std::path::absolute(&errored)?.display().to_string();
        tracing::error!(file = place, "it is too large to be left for the server that leads: its end says where it is");
        return end(&without_state(outcome, job, meta.len(), &place), None);
    }
    let state = base64::engine::general_purpose::STANDARD.encode(tokio::fs::read(&errored).await?);
    end(outcome, Some(state))
}

/// Bytes of the largest state that fits into an object of the inbox beside an outcome of so many bytes; base64 makes four of three.
fn largest_state(outcome: usize) -> u64 {
    MAX_MAIL.saturating_sub(WRAPPING).saturating_sub(outcome as u64) / 4 * 3
}

/// The outcome, which says where the state lies that is not left with it.
fn without_state(outcome: &JobOutcome, job: &str, bytes: u64, place: &str) -> JobOutcome {
    let words = format!(
        "Terraform could not save the state and left it as `errored.tfstate`. With {} it is too large to be handed to the server that \
         leads: it lies on {} as `{place}`. Copy it from there, and push it before anything else is planned or applied, in the \
         project's directory: `terraform init`, then `terraform state push FILE`",
        size(bytes),
        machine()
    );
    let mut outcome = outcome.clone();
    if let Outcome::Errored(fault) = &mut outcome.outcome {
        let kept = errored_words(job);
        fault.message = match fault.message.contains(&kept) {
            true => fault.message.replace(&kept, &words),
            false => format!("{}. {words}", fault.message),
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::{Fault, Reason};

    fn outcome(output: usize) -> JobOutcome {
        let kept = KeptFile { path: String::new(), sha256: String::new(), length: 0, mode: 0 };
        let fault = Fault { reason: Reason::Apply, message: "It broke".into(), output: "x".repeat(output) };
        JobOutcome {
            command: CommandName::Apply,
            project: ProjectId { dir: ".".into(), workspace: "default".into(), name: None },
            job: Some("job".into()),
            millis: 0,
            tool: None,
            silenced: false,
            outcome: with_errored(Outcome::Errored(fault), Some(&kept), "job"),
        }
    }

    #[tokio::test]
    async fn an_end_fits_into_the_inbox_with_its_state_or_says_where_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("errored/job.tfstate");
        std::fs::create_dir(dir.path().join("errored")).unwrap();
        for output in [0, 5 << 20] {
            let outcome = outcome(output);
            let largest = largest_state(serde_json::to_vec(&outcome).unwrap().len());
            assert!(largest > 40 << 20, "{largest}");
            for (bytes, fits) in [(largest, true), (largest + 1, false), (50 << 20, false), (63 << 20, false)] {
                std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
                let end = end_of(dir.path(), "job", &outcome).await.unwrap();
                assert_eq!(end.errored_state.is_some(), fits, "{bytes}");
                let stored = serde_json::to_vec(&end).unwrap().len() as u64;
                assert!(stored + 4096 <= MAX_MAIL, "{bytes}: {stored}");
                let said = end.outcome.to_string();
                assert_eq!(said.contains(path.to_str().unwrap()), !fits, "{bytes}");
                assert_eq!(said.contains(&errored_words("job")), fits, "{bytes}");
            }
        }
    }
}
