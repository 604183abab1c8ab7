//! Comments of pull requests.

use super::state::{CommentState, PullState, State};
use super::{HostKind, azure_devops, bitbucket_cloud, bitbucket_data_center, gitea, gitlab, hooks, timestamp};
use anyhow::{Context, bail};

/// Longest comment of GitHub, in characters.
pub(super) const MAX_COMMENT: usize = 65_536;

/// Time after a change in which comments do not change the time of a merge request.
const TOUCH_INTERVAL: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);

/// Adds a comment, queues its webhook, and returns its id.
pub(super) fn add(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    author: &str,
    body: &str,
) -> anyhow::Result<u64> {
    check_body(state, body)?;
    let (id, kind) = (state.new_id(), state.kind);
    let pull = state.pull_mut(full_name, number)?;
    let now = timestamp();
    pull.comments.push(CommentState {
        id,
        author: author.to_owned(),
        body: body.to_owned(),
        created_at: now.clone(),
        updated_at: now.clone(),
        reactions: Vec::new(),
        hidden: false,
    });
    touch(pull, kind, now);
    hooks::emit_comment(state, url, full_name, number, id, "created", author)?;
    Ok(id)
}

/// Replaces the text of a comment as this person, and queues its webhook.
pub(super) fn edit(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    user: &str,
    (id, body): (u64, &str),
) -> anyhow::Result<()> {
    check_body(state, body)?;
    let kind = state.kind;
    let pull = state.pull_mut(full_name, number)?;
    let comment = pull.comments.iter_mut().find(|comment| comment.id == id).context("no such comment")?;
    comment.updated_at = timestamp();
    let before = std::mem::replace(&mut comment.body, body.to_owned());
    let at = comment.updated_at.clone();
    touch(pull, kind, at);
    if kind == HostKind::Gitea {
        return gitea::emit_comment(state, url, full_name, (number, id), ("edited", user), Some(&before));
    }
    hooks::emit_comment(state, url, full_name, number, id, "edited", user)
}

/// Sets the time of the last change of a pull request. On GitLab a comment does not if there was a change in the last minute
/// (app/models/concerns/throttled_touch.rb), and on Bitbucket Data Center it never does: `updatedDate` of github.com/go-playground/webhooks
/// 6.4.0, testdata/bitbucket-server/pr-comment-added.json, is from the day before.
fn touch(pull: &mut PullState, kind: HostKind, at: String) {
    if kind == HostKind::BitbucketDataCenter {
        return;
    }
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let since = time(&at).zip(time(&pull.updated_at)).map(|(now, before)| now.duration_since(before));
    if kind != HostKind::Gitlab || since.is_none_or(|since| since > TOUCH_INTERVAL) {
        pull.updated_at = at;
    }
}

fn check_body(state: &State, body: &str) -> anyhow::Result<()> {
    // Gitea refuses an empty text only.
    let text = if state.kind == HostKind::Gitea { body } else { body.trim() };
    if text.is_empty() {
        bail!("Body cannot be blank");
    }
    let most = match state.kind {
        HostKind::Github => MAX_COMMENT,
        HostKind::AzureDevOps => azure_devops::MAX_COMMENT,
        HostKind::Gitlab => gitlab::MAX_NOTE,
        // No limit but that of a request's body.
        HostKind::Gitea => usize::MAX,
        HostKind::BitbucketCloud => bitbucket_cloud::MAX_COMMENT,
        HostKind::BitbucketDataCenter => bitbucket_data_center::MAX_COMMENT,
    };
    if body.chars().count() > most {
        bail!("Body is too long (maximum is {most} characters)");
    }
    Ok(())
}
