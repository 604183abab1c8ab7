//! States that Terraform could not save, and ends of jobs on a deposed server: messages about them, and their transfer to the server that
//! leads.

use super::context::Context;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::{JobId, size};
use crate::runner::local::state_lock::machine;
use crate::runner::local::write_private;
use crate::store::KeptFile;
use crate::vault::FORMAT;
use crate::vault::inbox::{LateOutcome, MAX_ENTRY};
use anyhow::Result;
use base64::Engine as _;
use std::path::Path;

/// Maximum size of an end in the inbox besides its outcome and state (names and hashes), in bytes.
const WRAPPING: u64 = 64 << 10;

/// Returns the path of the state that a job could not save, relative to the data directory.
pub(super) fn errored_path(job: &JobId) -> String {
    format!("errored/{job}.tfstate")
}

/// Returns a file of the data directory, to be recorded; `None` if there is none.
pub(crate) async fn kept_file(ctx: &Context, path: String) -> Result<Option<KeptFile>> {
    let data_dir = ctx.settings.data_dir.clone();
    tokio::task::spawn_blocking(move || KeptFile::read(&data_dir, &path)).await?
}

/// Does the same for callers that must go on without the file: errors are only logged.
pub(crate) async fn kept_file_or_none(ctx: &Context, path: String) -> Option<KeptFile> {
    let file = kept_file(ctx, path.clone()).await;
    file.unwrap_or_else(|error| {
        tracing::error!(
            path,
            error = format!("{error:#}"),
            "a file of the data directory could not be kept: save it by hand"
        );
        None
    })
}

/// Returns the message about the place of a state that could not be saved, and the next command.
pub(crate) fn errored_words(job: &JobId) -> String {
    format!(
        "Terraform could not save the state and left it as `errored.tfstate`. It is kept as `errored/{job}.tfstate` in the server's data \
         directory and its vault (`tidelock vault export DIR` writes it there). Push it before anything else is planned or applied, in \
         the project's directory: `terraform init`, then `terraform state push errored/{job}.tfstate`"
    )
}

/// Adds the message about a state that could not be saved to the outcome of a failed command.
pub(super) fn with_errored(mut outcome: Outcome, job: &JobId) -> Outcome {
    if let Outcome::Errored(fault) = &mut outcome {
        fault.message = format!("{}. {}", fault.message, errored_words(job));
    }
    outcome
}

/// Stores a state that could not be saved, as another server sent it.
pub(crate) async fn keep_errored(ctx: &Context, job: &JobId, bytes: Vec<u8>) -> Result<Option<KeptFile>> {
    let path = errored_path(job);
    let to = ctx.settings.data_dir.join(&path);
    let write = move || -> Result<()> { Ok(write_private(&to, &bytes)?.sync_data()?) };
    tokio::task::spawn_blocking(write).await??;
    kept_file(ctx, path).await
}

/// Returns the file of such a state that is on this disk already: too large for the inbox, or found by a process that could not record it.
pub(crate) async fn errored_here(ctx: &Context, job: &JobId) -> Result<Option<KeptFile>> {
    kept_file(ctx, errored_path(job)).await
}

/// Leaves the end of a job for the server that leads now, which has reported the job as interrupted.
pub(super) async fn leave_late_outcome(ctx: &Context, job: &JobId, outcome: &JobOutcome) {
    let left = async { ctx.store.leave_late_outcome(end_of(&ctx.settings.data_dir, job, outcome).await?).await };
    match left.await {
        Ok(()) => tracing::info!(job = job.as_str(), "its end was left for the server that leads now"),
        Err(error) => tracing::error!(
            job = job.as_str(),
            error = format!("{error:#}"),
            "its end could not be left for the server that leads now"
        ),
    }
}

/// Returns the end of a job with the state that could not be saved. If that is too large, the end names its place.
async fn end_of(data_dir: &Path, job: &JobId, outcome: &JobOutcome) -> Result<LateOutcome> {
    let errored = data_dir.join(errored_path(job));
    let end = |outcome: &JobOutcome, errored_state: Option<String>| -> Result<LateOutcome> {
        Ok(LateOutcome { format: FORMAT, job: job.to_string(), outcome: serde_json::to_value(outcome)?, errored_state })
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

/// Returns the largest state, in bytes, that fits into an inbox object beside an outcome of so many bytes; base64 makes four of three.
fn largest_state(outcome: usize) -> u64 {
    MAX_ENTRY.saturating_sub(WRAPPING).saturating_sub(outcome as u64) / 4 * 3
}

/// Returns the outcome with the place of the state that is not left with it.
fn without_state(outcome: &JobOutcome, job: &JobId, bytes: u64, place: &str) -> JobOutcome {
    let words = format!(
        "Terraform could not save the state and left it as `errored.tfstate`. It has {}, which is too large to be handed to the server \
         that leads: it is on {} as `{place}`. Copy it from there, and push it before anything else is planned or applied, in the \
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
    use crate::domain::ProjectId;
    use crate::domain::command::CommandName;
    use crate::domain::outcome::{Fault, Reason};

    fn outcome(output: usize) -> JobOutcome {
        let fault = Fault { reason: Reason::Apply, message: "It broke".into(), output: "x".repeat(output) };
        JobOutcome {
            command: CommandName::Apply,
            project: ProjectId { dir: ".".into(), workspace: "default".into(), name: None },
            job: Some("job".into()),
            millis: 0,
            tool: None,
            silenced: false,
            outcome: with_errored(Outcome::Errored(fault), &"job".into()),
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
                let end = end_of(dir.path(), &"job".into(), &outcome).await.unwrap();
                assert_eq!(end.errored_state.is_some(), fits, "{bytes}");
                let stored = serde_json::to_vec(&end).unwrap().len() as u64;
                assert!(stored + 4096 <= MAX_ENTRY, "{bytes}: {stored}");
                let said = end.outcome.to_string();
                assert_eq!(said.contains(path.to_str().unwrap()), !fits, "{bytes}");
                assert_eq!(said.contains(&errored_words(&"job".into())), fits, "{bytes}");
            }
        }
    }
}
