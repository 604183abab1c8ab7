//! Folds comments as outdated, and rewrites those that are not. The requests use GraphQL: REST can neither read nor change that state.

use super::{Github, graphql, moved};
use crate::vcs::http::odd;
use crate::vcs::{HostError, ShownComment};
use serde_json::{Map, Value, json};
use tidelock_core::domain::{Login, PullId, RepoId};

/// The latest comments. One request reads 50 of them, because each may be long.
const SHOWN: &str = "query($owner: String!, $name: String!, $number: Int!) { \
    repository(owner: $owner, name: $name) { name owner { login } pullRequest(number: $number) { \
    comments(last: 50) { nodes { id isMinimized body createdAt lastEditedAt author { __typename login } } } } } }";

/// Replaces the text of a comment (docs.github.com/graphql, `updateIssueComment`).
const REWRITE: &str = "mutation($id: ID!, $body: String!) { \
    updateIssueComment(input: {id: $id, body: $body}) { clientMutationId } }";

/// Returns our own among the latest comments that are not folded, in the order in which they were last written.
pub(super) async fn shown(github: &Github, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let (what, repo) = (format!("comments of {pull}"), &pull.repo);
    let asked = json!({ "owner": repo.owner, "name": repo.name, "number": pull.number });
    let found = graphql::send(github, &repo.owner, &what, SHOWN, asked).await?;
    let repository = &found["repository"];
    if let Err(moved) = moved::is_asked_for(repo, &what, repository) {
        is_served(github, repo, repository).then_some(()).ok_or(moved)?;
    }
    let all = repository["pullRequest"]["comments"]["nodes"].as_array().ok_or_else(|| odd(&what, "no comments"))?;
    // The host lists them in order of creation.
    let own =
        (0..).zip(all).filter(|(_, comment)| comment["isMinimized"] == false && is_own(github, &comment["author"]));
    let own = own.filter_map(|(place, found)| Some((place, comment(found)?)));
    Ok(ShownComment::oldest_first(own.collect()))
}

fn comment(comment: &Value) -> Option<ShownComment> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let written = comment["lastEditedAt"].as_str().or(comment["createdAt"].as_str())?.parse().ok()?;
    Some(ShownComment { id: text(&comment["id"])?, body: text(&comment["body"])?, written })
}

/// Returns true if the author is our account. GraphQL reports the login of an App without its `[bot]`.
fn is_own(github: &Github, author: &Value) -> bool {
    use crate::vcs::Host as _;
    let suffix = if author["__typename"] == "Bot" { "[bot]" } else { "" };
    author["login"].as_str().is_some_and(|login| Login::new(format!("{login}{suffix}")).is(github.bot_login()))
}

/// Returns true if the present name of the repository is served. GraphQL follows a renamed repository silently, and our comments are there.
fn is_served(github: &Github, asked: &RepoId, told: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = RepoId { host: asked.host.clone(), owner: text(&told["owner"]["login"]), name: text(&told["name"]) };
    (github.serves)(&now)
}

/// Folds all of the comments in one request. A comment that was deleted in the meantime is not an error.
pub(super) async fn hide(github: &Github, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
    if comments.is_empty() {
        return Ok(());
    }
    let names = || (0..comments.len()).map(|number| format!("c{number}"));
    let declared: Vec<String> = names().map(|name| format!("${name}: ID!")).collect();
    let folded: Vec<String> = names()
        .map(|name| {
            format!(
                "{name}: minimizeComment(input: {{subjectId: ${name}, classifier: OUTDATED}}) {{ clientMutationId }}"
            )
        })
        .collect();
    let query = format!("mutation({}) {{ {} }}", declared.join(", "), folded.join(" "));
    let ids: Map<String, Value> = names().zip(comments).map(|(name, comment)| (name, json!(comment.id))).collect();
    let what = format!("minimizeComment on {pull}");
    match graphql::send(github, &pull.repo.owner, &what, &query, Value::Object(ids)).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Replaces the text of a comment. Returns false if the comment was deleted in the meantime.
pub(super) async fn rewrite(
    github: &Github,
    pull: &PullId,
    comment: &ShownComment,
    body: &str,
) -> Result<bool, HostError> {
    let what = format!("updateIssueComment on {pull}");
    match graphql::send(github, &pull.repo.owner, &what, REWRITE, json!({ "id": comment.id, "body": body })).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
