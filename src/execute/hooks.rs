//! Pre- and post-workflow hooks (atlantis.md §2.6): shell commands around a command, each a job with a log and a commit status.

use super::abandoned::{POST_HOOK, PRE_HOOK};
use super::environment::{self, Environment};
use super::{Answer, Context, Work, job};
use crate::checkout::WorkingTree;
use crate::config::global::Hook;
use crate::domain::command::CommandName;
use crate::domain::reply::Message;
use crate::domain::state::{Effect, JobState, NewEffect, StatusState};
use crate::process::Invocation;
use crate::store::is_deposed;
use anyhow::Result;
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Output of a hook that a comment may show, in bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;
/// Longest status text read from `OUTPUT_STATUS_FILE`, in bytes.
const STATUS_TEXT_LIMIT: usize = 1024;
/// Between SIGINT and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Whether this command has hooks at all.
pub(super) fn any(work: &Work) -> bool {
    let rules = &work.rules;
    rules.pre_workflow_hooks.iter().chain(&rules.post_workflow_hooks).any(|hook| applies(hook, work.command.name))
}

/// A hook's `commands` is a text that the command's name has to occur in.
fn applies(hook: &Hook, command: CommandName) -> bool {
    let name = if command == CommandName::StateRm { "state" } else { command.as_str() };
    hook.commands.as_ref().is_none_or(|commands| commands.contains(name))
}

/// Runs the pre-workflow hooks. An answer only where one fails and the settings say that this ends the command.
pub(super) async fn before(ctx: &Context, work: &Work, tree: &WorkingTree) -> Result<Option<Answer>> {
    for (number, hook) in work.rules.pre_workflow_hooks.iter().enumerate() {
        if !applies(hook, work.command.name) {
            continue;
        }
        let env = environment::for_hook(ctx, work, &tree.root);
        if let Err(output) = run(ctx, work, hook, number, true, &tree.root, env).await?
            && ctx.settings.fail_on_pre_workflow_hook_error
        {
            let mut answer = Answer::message(Message::HookFailed { output });
            answer.statuses = super::StatusUpdate::Failed("a pre-workflow hook failed".into());
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Runs the post-workflow hooks. The command is answered already: whatever goes wrong here is logged only.
pub(super) async fn after(ctx: &Context, work: &Work, tree: &WorkingTree) {
    match run_after(ctx, work, tree).await {
        Err(error) if !is_deposed(&error) => {
            tracing::error!(pull = %work.pull.id, run = work.run.id, error = format!("{error:#}"), "post-workflow hooks broke");
        }
        _ => {}
    }
}

async fn run_after(ctx: &Context, work: &Work, tree: &WorkingTree) -> Result<()> {
    if work.rules.post_workflow_hooks.is_empty() {
        return Ok(());
    }
    let run_id = work.run.id.clone();
    let jobs = ctx.store.read(move |view| view.jobs_of(&run_id)).await?;
    let failed = jobs.iter().any(|job| job.state != JobState::Succeeded && job.project.is_some());
    for (number, hook) in work.rules.post_workflow_hooks.iter().enumerate() {
        if applies(hook, work.command.name) {
            let mut env = environment::for_hook(ctx, work, &tree.root);
            environment::set(&mut env, "COMMAND_HAS_ERRORS", failed.to_string());
            let _ = run(ctx, work, hook, number, false, &tree.root, env).await?;
        }
    }
    Ok(())
}

/// One hook; the inner error is its output.
async fn run(
    ctx: &Context,
    work: &Work,
    hook: &Hook,
    number: usize,
    pre: bool,
    root: &Path,
    env: Environment,
) -> Result<Result<(), String>> {
    let kind = if pre { PRE_HOOK } else { POST_HOOK };
    let title = if pre { "Pre" } else { "Post" };
    let description = hook.description.clone().unwrap_or_else(|| format!("{title} workflow hook #{number}"));
    let status_file = root.join("OUTPUT_STATUS_FILE");
    let _ = tokio::fs::remove_file(&status_file).await;
    let mut record = job::new_record(work, kind, None);
    // Its status is known by it, also to who ends what an earlier process left.
    record.summary.clone_from(&description);
    let status = |state, text: &str| ctx.statuses.hook(pre, &description, state, text, &record.id);
    // Before the job is there: what has no room for its log does not begin.
    let log = ctx.logs.create(&record.id)?;
    let (begun, pending) = (record.clone(), status(StatusState::Pending, "in progress"));
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    ctx.store
        .write(move |tx| {
            tx.put_job(&begun)?;
            tx.enqueue(&NewEffect { pull, effect: Effect::Status { commit: head, status: pending } })?;
            Ok(())
        })
        .await?;
    ctx.outbox.wake_marks(&work.pull.id);
    let mut args = hook.command.shell_args.clone();
    args.push(hook.command.command.clone());
    let invocation = Invocation {
        timeout: ctx.settings.job_timeout,
        grace: GRACE,
        output_limit: OUTPUT_LIMIT,
        run_as: ctx.settings.run_as_user,
        ..Invocation::new(&hook.command.shell, args, root).env(env)
    };
    let sink = |line: &str| log.line(line);
    let finished = crate::process::run(invocation, &ctx.redactor, &work.cancel.token, Some(&sink)).await;
    let result = match finished {
        Ok(finished) if finished.code == Some(0) => Ok(()),
        Ok(finished) => Err(format!("{}\nexit status {}", finished.output, finished.code.unwrap_or(-1))),
        Err(error) => Err(format!("{error:#}")),
    };
    let said = status_text(&status_file).await;
    let ended = if result.is_ok() { (StatusState::Success, "succeeded") } else { (StatusState::Failure, "failed") };
    let status = status(ended.0, said.as_deref().unwrap_or(ended.1));
    if let Err(output) = &result {
        tracing::warn!(pull = %work.pull.id, hook = %description, kind, "workflow hook failed: {}", output.lines().last().unwrap_or_default());
    }
    record.state = if result.is_ok() { JobState::Succeeded } else { JobState::Failed };
    record.finished = Some(Timestamp::now());
    record.summary.clone_from(&status.description);
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    ctx.store
        .write(move |tx| {
            tx.put_job(&record)?;
            tx.enqueue(&NewEffect { pull, effect: Effect::Status { commit: head, status } })?;
            Ok(())
        })
        .await?;
    ctx.outbox.wake_marks(&work.pull.id);
    Ok(result)
}

/// What the hook wrote for its status, if anything.
async fn status_text(path: &Path) -> Option<String> {
    use tokio::io::AsyncReadExt;
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await.ok()?;
    file.take(STATUS_TEXT_LIMIT as u64).read_to_end(&mut bytes).await.ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
