//! Whether the pull request is still what its command began with. Projects wait for each other and for room, and people go on
//! meanwhile: what has not begun by then is refused.

use super::{CommandRun, Context, merged};
use crate::domain::PullRequest;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Reason};
use crate::retry;
use crate::vcs::HostError;
use backon::{ExponentialBuilder, Retryable as _};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::sync::Mutex;

/// What the host said serves for this long, unless something is heard of the pull request, or a project has run since.
const FRESH: SignedDuration = SignedDuration::from_secs(2);
/// Waits between tries to ask the host.
const RETRIES: ExponentialBuilder = retry::jittered(Duration::from_secs(1), Duration::from_secs(2)).with_max_times(2);

/// The pull request as the host described it last, for the projects of one command.
pub(super) struct Current {
    seen: Mutex<Seen>,
}

struct Seen {
    at: Timestamp,
    pull: PullRequest,
}

impl Current {
    /// As it was when the command began.
    pub(super) fn new(work: &CommandRun) -> Current {
        Current { seen: Mutex::new(Seen { at: work.run.started, pull: work.pull.clone() }) }
    }

    /// Why the next project may not begin; absent if it may. Asks the host, unless it was asked just now.
    pub(super) async fn refusal(&self, ctx: &Context, work: &CommandRun) -> Option<Failure> {
        let mut seen = self.seen.lock().await;
        let old = Timestamp::now().duration_since(seen.at) > FRESH;
        if work.cancel.take_change() || old {
            match ask(ctx, work).await {
                Ok(pull) => *seen = Seen { at: Timestamp::now(), pull },
                Err(error) => {
                    work.cancel.note_change();
                    return Some(not_known(ctx, &error));
                }
            }
        }
        if work.after_merge.is_some() {
            return merged::refusal(&seen.pull);
        }
        refusal(work.command.name, &work.pull, &seen.pull)
    }
}

async fn ask(ctx: &Context, work: &CommandRun) -> Result<PullRequest, HostError> {
    let host = ctx.hosts.of(&work.pull.id.repo)?;
    let cancelled = work.cancel.token.clone();
    (|| host.pull_request(&work.pull.id))
        .retry(RETRIES)
        .when(|error: &HostError| error.is_transient() && !work.cancel.token.is_cancelled())
        .notify(|error, _| tracing::warn!(pull = %work.pull.id, "the pull request could not be read, trying again: {error}"))
        // A wait that is cancelled ends at once, and the next failure is the last.
        .sleep(move |wait| cancelled.clone().run_until_cancelled_owned(tokio::time::sleep(wait)))
        .await
}

/// No answer is not a yes.
fn not_known(ctx: &Context, error: &HostError) -> Failure {
    let because = format!(
        "the host could not be asked whether the pull request is still as it was when the command began, so it did not begin: {error}"
    );
    Failure::Refused { reason: Reason::Internal, because: ctx.redactor.redact(&because) }
}

/// What has changed since a command began that forbids its next project.
fn refusal(name: CommandName, began: &PullRequest, now: &PullRequest) -> Option<Failure> {
    if !now.is_open() {
        let because = "the pull request was closed or merged before its turn came, so it did not begin".to_owned();
        return Some(Failure::Refused { reason: Reason::NotPermitted, because });
    }
    let because = if now.head.commit != began.head.commit {
        format!(
            "the head is now {}; it was {} when the command began, and this project's turn had not come",
            now.head.commit.short(),
            began.head.commit.short()
        )
    } else if now.base.branch != began.base.branch {
        format!(
            "the pull request is now for `{}`; it was for `{}` when the command began, and this project's turn had not come",
            now.base.branch, began.base.branch
        )
    } else {
        return None;
    };
    Some(match name {
        CommandName::Apply => Failure::StalePlan { because },
        _ => Failure::Refused { reason: Reason::NotPermitted, because },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Base, Head, PullId, PullState, RepoId};

    fn pull() -> PullRequest {
        let repo = RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() };
        let head = Head {
            branch: "b".into(),
            commit: "a".repeat(40).into(),
            repo_owner: "acme".into(),
            repo_name: "infra".into(),
        };
        PullRequest {
            id: PullId { repo, number: 1 },
            title: String::new(),
            url: String::new(),
            author: "alice".into(),
            head,
            base: Base { branch: "main".into(), commit: "c".repeat(40).into() },
            draft: false,
            state: PullState::Open,
            fork: false,
            labels: Vec::new(),
            repo_size_kib: None,
            clone_url: String::new(),
        }
    }

    #[test]
    fn what_moved_since_the_command_began_is_refused() {
        let began = pull();
        let (mut pushed, mut closed, mut retargeted, mut same) = (pull(), pull(), pull(), pull());
        pushed.head.commit = "b".repeat(40).into();
        closed.state = PullState::Closed;
        retargeted.base.branch = "release".into();
        // The base branch's own moving, a title or a label refuse nothing.
        same.base.commit = "d".repeat(40).into();
        same.title = "another".into();
        assert_eq!(refusal(CommandName::Apply, &began, &same), None);
        for now in [&pushed, &retargeted] {
            assert!(matches!(refusal(CommandName::Apply, &began, now), Some(Failure::StalePlan { .. })));
            assert!(matches!(refusal(CommandName::StateRm, &began, now), Some(Failure::Refused { .. })));
        }
        assert!(matches!(refusal(CommandName::Apply, &began, &closed), Some(Failure::Refused { .. })));
    }
}
