//! Confirmation of comments by their host, where whoever configures a webhook chooses what its deliveries say.

use super::actor::HOST_RETRIES;
use super::inner::Inner;
use crate::comment::{self, Parsed};
use crate::domain::CommentEvent;
use crate::domain::command::{Command, Trigger};
use crate::domain::state::Cause;
use crate::execute::permissions;
use crate::vcs::{HostComment, HostError};
use anyhow::Result;
use backon::Retryable as _;

/// Returns true if a command may be obeyed. Otherwise its delivery is answered here.
pub(super) async fn confirm(inner: &Inner, comment: &CommentEvent, command: &Command, cause: &Cause) -> Result<bool> {
    match is_confirmed(inner, comment, command).await {
        Ok(true) => Ok(true),
        Ok(false) => inner.answer_delivery(&comment.pull, cause, None, None).await.map(|()| false),
        Err(error) => {
            let because = format!(
                "The comment could not be read from the host, so nothing was done: {error}. Comment again: `{}`",
                permissions::typed(&inner.ctx, command)
            );
            inner.fail_delivery(&comment.pull, cause, command, &because).await.map(|()| false)
        }
    }
}

/// Returns true if a command may be obeyed: its delivery proves it, or its host has this comment of this person. Whether it was edited does
/// not count: on some hosts a reaction, such as ours, changes the time of a comment. A failed request is an error, never false.
async fn is_confirmed(inner: &Inner, comment: &CommentEvent, command: &Command) -> Result<bool, HostError> {
    let host = inner.ctx.hosts.for_repo(&comment.pull.repo)?;
    if command.trigger != Trigger::Comment || host.profile().deliveries_prove_comments {
        return Ok(true);
    }
    let ask = || host.comment(&comment.pull, comment.comment_id);
    let found = ask.retry(HOST_RETRIES).when(HostError::is_transient).await?;
    let names = inner.names_or_default(&comment.pull.repo);
    let asks_the_same = |found: &HostComment| {
        let (said, told) = (&found.body, &comment.body);
        said == told
            || matches!(comment::parse(said, &found.author, &names), Parsed::Command(said) if *said == *command)
    };
    let is_same = found.is_some_and(|found| found.author.is(&comment.author) && asks_the_same(&found));
    if !is_same {
        tracing::warn!(
            pull = %comment.pull,
            comment = comment.comment_id,
            "nothing is done for a comment: the host does not have it as it was delivered"
        );
    }
    Ok(is_same)
}
