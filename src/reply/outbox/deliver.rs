//! One effect, done on its host, and what its errors mean.

use super::{MAX_TRIES, Shared, lock};
use crate::domain::PullId;
use crate::domain::state::{Effect, PendingEffect};
use crate::reply::{marker, render};
use crate::vcs::{Host, HostError};
use std::time::Duration;
use tokio::time::Instant;

/// How a try ended.
pub(super) enum Verdict {
    /// Done, or given up; the note says how.
    Done(String),
    /// To be tried again after this.
    Again(Duration),
}

impl Shared {
    /// Tries an effect. `maybe_done`: an earlier try may have reached the host.
    pub(super) async fn deliver(&self, effect: &PendingEffect, maybe_done: bool) -> Verdict {
        let name = &effect.pull.repo.host;
        let Some(host) = self.hosts.iter().find(|host| host.hostname().eq_ignore_ascii_case(name)) else {
            return given_up(effect, "this server serves no such host");
        };
        let result = match &effect.effect {
            Effect::Comment { run, part, body } => comment(&**host, &effect.pull, run, *part, body, maybe_done).await,
            Effect::Status { commit, status } => {
                host.set_status(&effect.pull.repo, commit, status).await.map(|()| "set".to_owned())
            }
            Effect::React { comment_id, reaction } => {
                host.react(&effect.pull, *comment_id, reaction).await.map(|()| "reacted".to_owned())
            }
        };
        let error = match result {
            Ok(note) => return Verdict::Done(note),
            Err(error) => error,
        };
        if !error.is_transient() {
            return given_up(effect, &error.to_string());
        }
        let tries = effect.attempts + 1;
        if tries >= MAX_TRIES {
            return given_up(effect, &format!("{error}, {tries} times"));
        }
        let pause = match &error {
            HostError::RateLimited { wait, .. } => {
                lock(&self.pauses).insert(name.clone(), Instant::now() + *wait);
                *wait
            }
            _ => self.pace.after(tries),
        };
        tracing::warn!(pull = %effect.pull, effect = effect.id, tries, "{error}; trying again in {pause:?}");
        Verdict::Again(pause)
    }
}

fn given_up(effect: &PendingEffect, because: &str) -> Verdict {
    let what = match &effect.effect {
        Effect::Comment { .. } => "comment",
        Effect::Status { .. } => "status",
        Effect::React { .. } => "reaction",
    };
    tracing::error!(pull = %effect.pull, effect = effect.id, "a {what} is given up: {because}");
    Verdict::Done(format!("given up: {because}"))
}

/// Posts a comment, unless it is there. Where it is there twice, the oldest stays.
async fn comment(
    host: &dyn Host,
    pull: &PullId,
    run: &str,
    part: u32,
    body: &str,
    maybe_done: bool,
) -> Result<String, HostError> {
    if maybe_done {
        match host.own_comments(pull).await {
            Ok(comments) => {
                let mut same = comments.iter().filter(|comment| marker::is_of(&comment.body, run, part)).map(|c| c.id);
                if let Some(first) = same.next() {
                    for extra in same {
                        if let Err(error) = host.delete_comment(pull, extra).await {
                            tracing::warn!(%pull, comment = extra, "a duplicate stays: {error}");
                        }
                    }
                    return Ok(format!("found as comment {first}"));
                }
            }
            Err(error) if error.is_transient() => return Err(error),
            // Saying it twice is better than not at all.
            Err(error) => tracing::warn!(%pull, "cannot look for an earlier try of a comment: {error}"),
        }
    }
    match host.create_comment(pull, body).await {
        Ok(id) => Ok(format!("comment {id}")),
        Err(HostError::Rejected { status: 422, message, .. }) if is_too_long(&message) => {
            tracing::warn!(%pull, "the host finds a comment of {} bytes too long: {message}", body.len());
            let short = render::shortened(body, host.comment_limit().min(body.chars().count()));
            host.create_comment(pull, &short).await.map(|id| format!("comment {id}, cut"))
        }
        Err(error) => Err(error),
    }
}

fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("too long") || message.contains("maximum")
}
