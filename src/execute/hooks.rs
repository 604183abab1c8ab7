//! Pre- and post-workflow hooks: shell commands around a command, each a job with a log and a commit status.

use super::abandoned::{POST_HOOK, PRE_HOOK};
use super::answer::CommandAnswer;
use super::command_run::{CommandRun, Ended};
use super::context::Context;
use super::status_update::StatusUpdate;
use super::{job, measured, recorder};
use crate::checkout::WorkingTree;
use crate::checkout::folder::Folder;
use crate::config::global::Hook;
use crate::domain::reply::Message;
use crate::domain::state::{JobState, StatusState};
use crate::meters::RunPhase;
use crate::process::{Invocation, Redactor};
use crate::runner::local::{Surroundings, environment, masking};
use crate::store::is_deposed;
use anyhow::Result;
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Maximum size of a hook's output in a comment, in bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;
/// File at the root of the checkout from which a hook's status text is read.
const STATUS_FILE: &str = "OUTPUT_STATUS_FILE";
/// Maximum size of that file, in bytes; a larger one is not read. All of it is masked before it is cut, so that no part of a secret is
/// left.
const STATUS_FILE_LIMIT: u64 = 64 << 10;
/// Maximum length of the status text, in characters.
const STATUS_TEXT_LIMIT: usize = 1024;
/// Time between SIGINT and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the pre-workflow hooks. Returns an answer only if one fails and the settings say that this ends the command.
pub(super) async fn before(ctx: &Context, work: &CommandRun, tree: &WorkingTree) -> Result<Option<CommandAnswer>> {
    for (number, hook) in work.rules.pre_workflow_hooks.iter().enumerate() {
        if !work.runs_hook(hook) {
            continue;
        }
        if let Some(output) = run(ctx, work, hook, number, PRE_HOOK, &tree.root, &[]).await?
            && ctx.settings.fail_on_pre_workflow_hook_error
        {
            let mut answer = CommandAnswer::message(Message::HookFailed { output });
            answer.statuses = StatusUpdate::Failed("a pre-workflow hook failed".into());
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Records the answer and runs the post-workflow hooks.
pub(super) async fn answer_before(
    ctx: &Context,
    work: &CommandRun,
    tree: &WorkingTree,
    answer: CommandAnswer,
) -> Result<Ended> {
    let failed = answer.has_errors();
    let ended = recorder::answer(ctx, work, answer).await?;
    after(ctx, work, tree, failed).await;
    Ok(ended)
}

/// Runs the post-workflow hooks. They get `failed` as a variable: true if anything of the command failed or was refused. The command is
/// answered already, so errors are only logged.
pub(super) async fn after(ctx: &Context, work: &CommandRun, tree: &WorkingTree, failed: bool) {
    match run_after(ctx, work, tree, &[("COMMAND_HAS_ERRORS", failed.to_string())]).await {
        Err(error) if !is_deposed(&error) => {
            tracing::error!(pull = %work.pull.id, run = work.run.id.as_str(), error = format!("{error:#}"), "post-workflow hooks broke");
        }
        _ => {}
    }
}

async fn run_after(ctx: &Context, work: &CommandRun, tree: &WorkingTree, more: &[(&str, String)]) -> Result<()> {
    for (number, hook) in work.rules.post_workflow_hooks.iter().enumerate() {
        if work.runs_hook(hook) {
            run(ctx, work, hook, number, POST_HOOK, &tree.root, more).await?;
        }
    }
    Ok(())
}

/// Runs one hook, with `more` variables. Returns its output if it failed.
async fn run(
    ctx: &Context,
    work: &CommandRun,
    hook: &Hook,
    number: usize,
    kind: &'static str,
    root: &Path,
    more: &[(&str, String)],
) -> Result<Option<String>> {
    let redactor = masking(&ctx.redactor, &work.rules.masks).map_err(anyhow::Error::msg)?;
    let pre = kind == PRE_HOOK;
    let title = if pre { "Pre" } else { "Post" };
    let description = hook.description.clone().unwrap_or_else(|| format!("{title} workflow hook #{number}"));
    in_root(root, |root| root.remove(Path::new(STATUS_FILE))).await?;
    let mut record = job::new_record(work, kind, None);
    // The description identifies its status, also for the process that ends an abandoned hook.
    record.summary.clone_from(&description);
    let status = |state, text: &str| ctx.statuses.hook(pre, &description, state, text, &record.id);
    // Before the job is recorded: a hook without room for its log does not begin.
    let log = ctx.logs.create(&record.id)?;
    let (begun, pending) = (record.clone(), status(StatusState::Pending, "in progress"));
    recorder::hook(ctx, work, begun, pending).await?;
    let sink = |line: &str| log.line(line);
    let finished = async {
        let invocation = invocation(ctx, work, hook, root, more).await?;
        crate::process::run(invocation, &redactor, &work.cancel.token, Some(&sink)).await
    };
    let failed = match finished.await {
        Ok(finished) if finished.code == Some(0) => None,
        Ok(finished) => {
            let (output, code) = (&finished.output, finished.code.unwrap_or(-1));
            Some(format!("{output}\nexit status {code}{}", job::confinement_hint(ctx, output)))
        }
        Err(error) => Some(format!("{error:#}")),
    };
    let said = status_text(&redactor, root).await;
    let ended = if failed.is_none() { (StatusState::Success, "succeeded") } else { (StatusState::Failure, "failed") };
    let status = status(ended.0, said.as_deref().unwrap_or(ended.1));
    if let Some(output) = &failed {
        tracing::warn!(pull = %work.pull.id, hook = %description, kind, "workflow hook failed: {}", output.lines().last().unwrap_or_default());
    }
    record.state = if failed.is_none() { JobState::Succeeded } else { JobState::Failed };
    record.finished = Some(Timestamp::now());
    let phase = if pre { RunPhase::PreHook } else { RunPhase::PostHook };
    measured::phase(ctx, &work.run.id, phase, measured::since(record.started));
    record.summary.clone_from(&status.description);
    recorder::hook(ctx, work, record, status).await?;
    Ok(failed)
}

async fn invocation(
    ctx: &Context,
    work: &CommandRun,
    hook: &Hook,
    root: &Path,
    more: &[(&str, String)],
) -> Result<Invocation> {
    let (runner, pull) = (&ctx.runner, &work.pull.id);
    let folder = runner.made_folder(&work.run.id, pull).await?;
    let folder = folder.as_deref();
    let mut env = environment::for_hook(runner, &work.pull, &work.command, root, folder);
    more.iter().for_each(|(name, value)| environment::set(&mut env, name, value));
    let mut args = hook.command.shell_args.clone();
    args.push(hook.command.command.clone());
    Ok(Invocation {
        timeout: ctx.settings.job_timeout,
        grace: GRACE,
        output_limit: OUTPUT_LIMIT,
        run_as: runner.checkouts.owner(pull),
        confinement: runner.confinement(&Surroundings { folder, tree: root, pull, installs: true, reads: None }),
        ..Invocation::new(&hook.command.shell, args, root).env(env)
    })
}

/// Returns the text that the hook wrote for its status, without secrets; `None` if there is no such file of its own, or one that is too
/// large.
async fn status_text(redactor: &Redactor, root: &Path) -> Option<String> {
    let read = in_root(root, |root| root.read(Path::new(STATUS_FILE), STATUS_FILE_LIMIT)).await;
    let bytes = match read {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(root = %root.display(), error = format!("{error:#}"), "a hook's {STATUS_FILE} is not read");
            return None;
        }
    };
    let masked = redactor.redact(&String::from_utf8_lossy(&bytes));
    let text: String = masked.trim().chars().take(STATUS_TEXT_LIMIT).collect();
    (!text.is_empty()).then_some(text)
}

/// Runs file operations at the root of a tree, off the async threads.
async fn in_root<T: Send + 'static>(
    root: &Path,
    work: impl FnOnce(&Folder) -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let root = root.to_owned();
    Ok(tokio::task::spawn_blocking(move || work(&Folder::open(&root)?)).await??)
}
