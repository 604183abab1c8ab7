//! One effect, done on its host, and what its errors mean.

use super::{MAX_TRIES, Shared, lock};
use crate::domain::state::{Effect, PendingEffect};
use crate::reply::{marker, render};
use crate::store::is_deposed;
use crate::vcs::{Host, HostError};
use jiff::SignedDuration;
use std::time::Duration;
use tokio::time::Instant;

/// How a try ended.
pub(super) enum Verdict {
    /// Done, or given up; the note says how.
    Done(String),
    /// To be tried again after this.
    Again(Duration),
    /// This server does not lead any more: nothing is tried, and nothing said of it.
    Halt(anyhow::Error),
}

/// Our clock and the host's may differ by this much.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(10);

/// Why a try failed.
enum Trouble {
    Host(HostError),
    /// The state, or the right to act.
    State(anyhow::Error),
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Trouble {
        Trouble::Host(error)
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Trouble {
        Trouble::State(error)
    }
}

impl Shared {
    /// Tries an effect.
    pub(super) async fn deliver(&self, effect: &PendingEffect) -> Verdict {
        let name = &effect.pull.repo.host;
        let Some(host) = self.hosts.iter().find(|host| host.hostname().eq_ignore_ascii_case(name)) else {
            return given_up(effect, "this server serves no such host");
        };
        let tries = effect.attempts + 1;
        let error = match self.attempt(&**host, effect).await {
            Ok(note) => return Verdict::Done(note),
            Err(Trouble::State(error)) if is_deposed(&error) => return Verdict::Halt(error),
            Err(Trouble::State(error)) => {
                tracing::warn!(pull = %effect.pull, effect = effect.id, "{error:#}; not acting now");
                return Verdict::Again(self.pace.after(tries));
            }
            Err(Trouble::Host(error)) => error,
        };
        if !error.is_transient() {
            return given_up(effect, &error.to_string());
        }
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

    /// Right before it leaves this machine: whether this server may still act.
    async fn attempt(&self, host: &dyn Host, effect: &PendingEffect) -> Result<String, Trouble> {
        match &effect.effect {
            Effect::Comment { run, part, body } => self.comment(host, effect, run, *part, body).await,
            Effect::Status { commit, status } => {
                self.store.may_act().await?;
                host.set_status(&effect.pull.repo, commit, status).await?;
                Ok("set".to_owned())
            }
            Effect::React { comment_id, reaction } => {
                self.store.may_act().await?;
                host.react(&effect.pull, *comment_id, reaction).await?;
                Ok("reacted".to_owned())
            }
        }
    }

    /// Posts a comment, unless it is there: an earlier try, of this process or of another one that led or leads, may have reached
    /// the host. Only comments since it was recorded are looked at. Where it is there twice, the oldest stays.
    async fn comment(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        run: &str,
        part: u32,
        body: &str,
    ) -> Result<String, Trouble> {
        let pull = &effect.pull;
        let since = effect.recorded.and_then(|at| at.checked_sub(CLOCKS_DIFFER).ok());
        match host.comments(pull, since).await {
            Ok(comments) => {
                let own = comments.list.iter().filter(|comment| comment.author.eq_ignore_ascii_case(host.bot_login()));
                let mut same = own.filter(|comment| marker::is_of(&comment.body, run, part)).map(|comment| comment.id);
                if let Some(first) = same.next() {
                    for extra in same {
                        self.store.may_act().await?;
                        if let Err(error) = host.delete_comment(pull, extra).await {
                            tracing::warn!(%pull, comment = extra, "a duplicate stays: {error}");
                        }
                    }
                    return Ok(format!("found as comment {first}"));
                }
            }
            Err(error) if error.is_transient() => return Err(error.into()),
            // Saying it twice is better than not at all.
            Err(error) => tracing::warn!(%pull, "cannot look for an earlier try of a comment: {error}"),
        }
        self.store.may_act().await?;
        match host.create_comment(pull, body).await {
            Ok(id) => Ok(format!("comment {id}")),
            Err(HostError::Rejected { status: 422, message, .. }) if is_too_long(&message) => {
                tracing::warn!(%pull, "the host finds a comment of {} bytes too long: {message}", body.len());
                let short = render::shortened(body, host.comment_limit().min(body.chars().count()));
                let id = host.create_comment(pull, &short).await?;
                Ok(format!("comment {id}, cut"))
            }
            Err(error) => Err(error.into()),
        }
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

fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("too long") || message.contains("maximum")
}
