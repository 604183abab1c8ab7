//! What steps leave behind that must outlive a disk: files of a plan's tree, and `errored.tfstate` of a failed apply.

use super::{Context, files};
use crate::checkout::{Kept, WorkingTree};
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, JobOutcome, Outcome};
use crate::domain::state::{LeftFiles, PlanRecord};
use crate::store::KeptFile;
use crate::vault::FORMAT;
use crate::vault::inbox::End;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use jiff::Timestamp;
use std::path::Path;

/// What Terraform writes when it could not save its state.
const ERRORED: &str = "errored.tfstate";
/// Largest such state that is left in the inbox, in bytes.
const MAX_ERRORED: u64 = 64 << 20;

/// Where the archive of a plan lies in the data directory.
pub(super) fn archive_path(plan: &str) -> String {
    format!("left/{plan}.tar.zst")
}

/// Keeps what the steps of a plan left; `others` are the directories of the projects that are or were planned with it.
pub(super) async fn keep(
    ctx: &Context,
    tree: &WorkingTree,
    project: &ProjectId,
    others: &[String],
    plan: &str,
) -> (LeftFiles, Option<KeptFile>) {
    let above = |dir: &str| dir == "." || dir == project.dir || project.dir.starts_with(&format!("{dir}/"));
    let except: Vec<String> = others.iter().filter(|dir| !above(dir)).cloned().collect();
    let mut left = LeftFiles { tree: Some(tree.made.clone()), ..LeftFiles::default() };
    let kept = async {
        let path = archive_path(plan);
        match ctx.checkouts.keep_left(tree, &except, ctx.settings.data_dir.join(&path)).await? {
            Kept::Nothing => Ok(None),
            Kept::TooMuch(what) => Ok(Some(Err(what))),
            Kept::Files(_) => anyhow::Ok(file(ctx, path).await?.map(Ok)),
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

/// Keeps the state that Terraform could not save in this job, if it left any in the project's directory.
async fn errored(ctx: &Context, job: &str, dir: &Path, since: Timestamp) -> Result<Option<KeptFile>> {
    let from = dir.join(ERRORED);
    let path = format!("errored/{job}.tfstate");
    let (to, user) = (ctx.settings.data_dir.join(&path), ctx.settings.run_as_user);
    let copied = tokio::task::spawn_blocking(move || {
        let Ok(meta) = from.symlink_metadata() else { return Ok(None) };
        let written = meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        // One of an earlier apply was told then. A file's time is coarser than ours.
        if written.is_some_and(|at| at.as_second() < since.as_second()) {
            return Ok(None);
        }
        files::keep_plan(&from, &to, user)
    });
    match copied.await?.context("keeping errored.tfstate")? {
        Some(_) => file(ctx, path).await,
        None => Ok(None),
    }
}

/// The same where nothing must get lost for want of it: trouble is logged.
pub async fn errored_or_none(ctx: &Context, job: &str, dir: &Path, since: Timestamp) -> Option<KeptFile> {
    errored(ctx, job, dir, since).await.unwrap_or_else(|error| {
        tracing::error!(job, dir = %dir.display(), error = format!("{error:#}"), "errored.tfstate could not be kept: save it by hand");
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

/// For whoever leads now: how a job ended that it has told as interrupted.
pub(super) async fn leave_end(ctx: &Context, job: &str, outcome: &JobOutcome) {
    let errored = ctx.settings.data_dir.join(format!("errored/{job}.tfstate"));
    let left = async {
        let errored_state = match tokio::fs::metadata(&errored).await {
            Ok(meta) if meta.len() <= MAX_ERRORED => {
                Some(base64::engine::general_purpose::STANDARD.encode(tokio::fs::read(&errored).await?))
            }
            Ok(_) => {
                tracing::error!(file = %errored.display(), "it is too large to be left for the server that leads: save it by hand");
                None
            }
            Err(_) => None,
        };
        let end = End { format: FORMAT, job: job.to_owned(), outcome: serde_json::to_value(outcome)?, errored_state };
        ctx.store.leave_end(end).await
    };
    match left.await {
        Ok(()) => tracing::info!(job, "its end was left for the server that leads now"),
        Err(error) => tracing::error!(
            job,
            error = format!("{error:#}"),
            "its end could not be left for the server that leads now"
        ),
    }
}
