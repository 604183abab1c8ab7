//! Checks before each project that the pull request is still as it was when the command began, and the base branch as in the plan. Projects
//! wait for each other and for capacity, while people go on working: a project that has not begun by then is refused.

use super::command_run::CommandRun;
use super::context::Context;
use super::plan::wanted_lock;
use super::{base_moves, merged};
use crate::checkout::CheckoutError;
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Reason};
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, PullRequest};
use crate::vcs::HostError;
use backon::{ExponentialBuilder, Retryable as _};
use jiff::{SignedDuration, Timestamp};
use std::fmt::Display;
use std::time::Duration;
use tokio::sync::Mutex;

/// Time for which a response of the host is reused, unless a delivery about the pull request arrives or a project has run since.
const FRESH: SignedDuration = SignedDuration::from_secs(2);
/// Pauses between attempts to ask the host.
const RETRIES: ExponentialBuilder =
    tidelock_retry::jittered(Duration::from_secs(1), Duration::from_secs(2)).with_max_times(2);

/// The pull request as the host described it last, for the projects of one command.
pub(super) struct Current {
    seen: Mutex<Seen>,
    /// Time of the last request for the tip of the base branch, with the tip.
    base: Mutex<Option<(Timestamp, CommitSha)>>,
}

struct Seen {
    at: Timestamp,
    pull: PullRequest,
}

impl Current {
    /// Creates it from the pull request as it was when the command began.
    pub(super) fn new(work: &CommandRun) -> Current {
        let seen = Seen { at: work.run.started, pull: work.pull.clone() };
        Current { seen: Mutex::new(seen), base: Mutex::default() }
    }

    /// Returns the reason for which the next project may not begin; `None` if it may. Asks the host, unless it was asked just now.
    pub(super) async fn refusal(&self, ctx: &Context, work: &CommandRun) -> Option<Failure> {
        let mut seen = self.seen.lock().await;
        let old = Timestamp::now().duration_since(seen.at) > FRESH;
        if work.cancel.take_change() || old {
            match fetch_pull(ctx, work).await {
                Ok(pull) => *seen = Seen { at: Timestamp::now(), pull },
                Err(error) => {
                    work.cancel.note_change();
                    return Some(not_known(ctx, "the pull request is still as it was when the command began", error));
                }
            }
        }
        if work.after_merge.is_some() {
            return merged::refusal(&seen.pull);
        }
        refusal(work.command.name, &work.pull, &seen.pull)
    }

    /// Returns the refusal of a state change while the pull request is a draft, as the host described it last. Only in mode `strict`:
    /// applied changes keep others out until they are merged, and nobody merges a draft.
    pub(super) async fn draft(&self, ctx: &Context, work: &CommandRun, config: &ProjectConfig) -> Option<Failure> {
        let is_draft = work.after_merge.is_none() && self.seen.lock().await.pull.draft;
        (is_draft && wanted_lock(ctx, work, config).is_strict()).then(|| {
            let because =
                "the pull request is a draft, and mode `strict` applies no drafts. Mark it as ready for review";
            Failure::Refused { reason: Reason::Requirement, because: because.to_owned() }
        })
    }

    /// Returns the refusal of a plan in mode `strict` whose inputs have changed on the base branch, and which is not invalidated yet. Asks
    /// the host for the branch, unless it was asked just now.
    pub(super) async fn refuse_stale(&self, ctx: &Context, work: &CommandRun, plan: &PlanRecord) -> Option<Failure> {
        plan.inputs.as_ref()?;
        match self.base_moved(ctx, work, plan).await {
            Ok(None) => None,
            Ok(Some(tip)) => {
                let (branch, tip) = (&work.pull.base.branch, tip.short());
                let because = format!("files that this project uses changed on `{branch}`, which is now at {tip}");
                Some(Failure::StalePlan { because })
            }
            Err(error) => Some(not_known(ctx, "the base branch has moved since the plan", error)),
        }
    }

    /// Returns the tip of the base branch if it makes the plan stale.
    async fn base_moved(
        &self,
        ctx: &Context,
        work: &CommandRun,
        plan: &PlanRecord,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let mut base = self.base.lock().await;
        let now = Timestamp::now();
        let tip = match base.as_ref() {
            Some((asked, tip)) if now.duration_since(*asked) <= FRESH => tip.clone(),
            _ => {
                let tip = base_moves::tip(ctx, &work.pull).await?;
                *base = Some((now, tip.clone()));
                tip
            }
        };
        drop(base);
        let stale = base_moves::find_stale(ctx, &work.pull, std::slice::from_ref(plan), &tip).await?;
        Ok((!stale.is_empty()).then_some(tip))
    }
}

async fn fetch_pull(ctx: &Context, work: &CommandRun) -> Result<PullRequest, HostError> {
    let host = ctx.hosts.for_repo(&work.pull.id.repo)?;
    let cancelled = work.cancel.token.clone();
    (|| host.pull_request(&work.pull.id))
        .retry(RETRIES)
        .when(|error: &HostError| error.is_transient() && !work.cancel.token.is_cancelled())
        .notify(|error, _| tracing::warn!(pull = %work.pull.id, "the pull request could not be read, trying again: {error}"))
        // A wait that is cancelled ends at once, and the next failure is the last.
        .sleep(move |wait| cancelled.clone().run_until_cancelled_owned(tokio::time::sleep(wait)))
        .await
}

/// Returns the refusal after a failed request: without an answer of the host, the project does not begin.
fn not_known(ctx: &Context, what: &str, error: impl Display) -> Failure {
    let because = format!("the host did not answer whether {what}, so the project was not started: {error}");
    Failure::Refused { reason: Reason::Internal, because: ctx.redactor.redact(&because) }
}

/// Returns the refusal if the pull request has changed since the command began, so that its next project may not begin.
fn refusal(name: CommandName, began: &PullRequest, now: &PullRequest) -> Option<Failure> {
    if !now.is_open() {
        let because = "the pull request was closed or merged before this project began".to_owned();
        return Some(Failure::Refused { reason: Reason::NotPermitted, because });
    }
    let because = if now.head.commit != began.head.commit {
        format!(
            "the head moved from {} to {} before this project began",
            began.head.commit.short(),
            now.head.commit.short()
        )
    } else if now.base.branch != began.base.branch {
        format!(
            "the base branch changed from `{}` to `{}` before this project began",
            began.base.branch, now.base.branch
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
            clone_url: None,
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
        // New commits of the base branch, a title or a label refuse nothing.
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
