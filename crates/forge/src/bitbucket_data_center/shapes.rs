//! Bitbucket Data Center's JSON shapes of the state, as OpenAPI and the examples of go-scm have them.

use super::super::HostKind;
use super::super::state::{CommentState, PullState, RepoState, State};
use super::{clone_path, home, project_home, reviews};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Digits of a commit in `displayId` (go-scm, commit.json).
const SHORT: usize = 11;

/// A time of the state in milliseconds since 1970.
pub(super) fn millis(moment: &str) -> i64 {
    moment.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond).unwrap_or_default()
}

/// The first digits of a commit.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

/// A number for something that has none in the state.
fn number_of(text: &str) -> u32 {
    let digest = Sha256::digest(text.to_lowercase().as_bytes());
    digest.iter().take(3).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// A login in addresses.
pub(super) fn slug_of(login: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c.to_ascii_lowercase() } else { '_' };
    login.chars().map(plain).collect()
}

/// Name that a person is shown with, which is not the login.
pub(super) fn display_name(state: &State, login: &str) -> String {
    let chosen = state.bitbucket_data_center.display_names.get(&login.to_lowercase());
    chosen.cloned().unwrap_or_else(|| {
        let mut chars = login.chars();
        let first = chars.next().map(|first| first.to_ascii_uppercase()).into_iter();
        first.chain(chars).chain(" Citizen".chars()).collect()
    })
}

/// A person (go-scm, user.json).
pub(super) fn person(url: &str, state: &State, login: &str) -> Value {
    let known = state.users.get(&login.to_lowercase());
    let login = known.map_or(login, |user| user.login.as_str());
    let slug = slug_of(login);
    json!({
        "name": login, "emailAddress": format!("{login}@example.com"), "id": known.map_or(0, |user| user.id),
        "displayName": display_name(state, login), "active": true, "slug": slug, "type": "NORMAL",
        "links": {"self": [{"href": format!("{url}{}/users/{slug}", super::ROOT)}]},
    })
}

/// Name of a project, which is not its key.
fn project_name(state: &State, key: &str) -> String {
    let chosen = state.bitbucket_data_center.project_names.get(&key.to_lowercase());
    chosen.cloned().unwrap_or_else(|| format!("Project of {key}"))
}

/// A project (go-scm, repo.json), or a personal one (go-playground, pr-opened.json).
pub(super) fn project(url: &str, state: &State, key: &str) -> Value {
    let links = json!({"self": [{"href": format!("{url}{}", project_home(key))}]});
    match key.strip_prefix('~') {
        Some(user) => json!({
            "key": key, "id": number_of(key), "name": display_name(state, user), "type": "PERSONAL",
            "owner": person(url, state, user), "links": links,
        }),
        None => json!({
            "key": key, "id": number_of(key), "name": project_name(state, key), "public": false, "type": "NORMAL", "links": links,
        }),
    }
}

/// A repository. Its name is not its slug.
pub(super) fn repo(url: &str, state: &State, repo: &RepoState) -> Value {
    let full_name = repo.full_name();
    let host = url.split("://").nth(1).unwrap_or_default().split(':').next().unwrap_or_default();
    let mut chars = repo.name.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase()).into_iter();
    let name: String = first.chain(chars).map(|c| if c == '-' { ' ' } else { c }).collect();
    let mut body = json!({
        "slug": repo.name, "id": repo.id, "name": name, "hierarchyId": format!("{:020x}", number_of(&repo.name)), "scmId": "git",
        "state": "AVAILABLE", "statusMessage": "Available", "forkable": true, "project": project(url, state, &repo.owner),
        "public": false, "archived": false, "links": {
            "clone": [
                {"href": format!("{url}{}", clone_path(&full_name)), "name": "http"},
                {"href": format!("ssh://git@{host}:7999/{}.git", full_name.to_lowercase()), "name": "ssh"}],
            "self": [{"href": format!("{url}{}/browse", home(&full_name))}]},
    });
    if let Some(origin) = repo.parent.as_deref().and_then(|parent| state.repo(parent).ok()) {
        body["origin"] = self::repo(url, state, origin);
    }
    body
}

/// One side of a pull request.
fn side(url: &str, state: &State, repo: Option<&RepoState>, branch: &str, commit: &str) -> Value {
    json!({
        "id": format!("refs/heads/{branch}"), "displayId": branch, "latestCommit": commit, "type": "BRANCH",
        "repository": repo.map(|repo| self::repo(url, state, repo)),
    })
}

/// The branch that a pull request merges into.
pub(super) fn target(url: &str, state: &State, repo: &RepoState, branch: &str, commit: &str) -> Value {
    side(url, state, Some(repo), branch, commit)
}

/// A word for the state of a pull request.
pub(super) fn state_word(pull: &PullState) -> &'static str {
    match pull {
        PullState { merged: Some(_), .. } => "MERGED",
        PullState { open: true, .. } => "OPEN",
        _ => "DECLINED",
    }
}

/// A pull request, as webhooks have it.
pub(super) fn pull(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let facts = state.bitbucket_data_center.pulls.get(&pull.id);
    let page = HostKind::BitbucketDataCenter.pull_page(&repo.full_name(), pull.number);
    let (reviewers, participants) = reviews::lists(url, state, pull);
    let mut body = json!({
        "id": pull.number, "version": facts.map_or(0, |facts| facts.version), "title": pull.title, "state": state_word(pull),
        "open": pull.open, "closed": !pull.open, "draft": pull.draft, "createdDate": millis(&pull.created_at),
        "updatedDate": millis(&pull.updated_at),
        "fromRef": side(url, state, state.repo(&pull.head_repo).ok(), &pull.head_ref, &pull.head_sha),
        "toRef": target(url, state, repo, &pull.base_ref, &pull.tried_with), "locked": false,
        "author": {"user": person(url, state, &pull.author), "role": "AUTHOR", "approved": false, "status": "UNAPPROVED"},
        "reviewers": reviewers, "participants": participants, "links": {"self": [{"href": format!("{url}{page}")}]},
    });
    if !pull.body.is_empty() {
        body["description"] = pull.body.as_str().into();
    }
    if let Some(at) = pull.closed_at.as_deref().filter(|_| !pull.open) {
        body["closedDate"] = millis(at).into();
    }
    if let Some((commit, _)) = &pull.merged {
        body["properties"] = json!({"mergeCommit": {"displayId": short(commit), "id": commit}});
    }
    body
}

/// A pull request of the API, which has its counts, and of an open one how it would merge.
pub(super) fn pull_of_api(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let mut body = self::pull(url, state, repo, pull);
    let mut properties = body["properties"].take();
    if properties.is_null() {
        properties = json!({});
    }
    let tasks = |word: &str| super::comments::tasks(state, pull, word);
    properties["commentCount"] = pull.comments.len().into();
    properties["openTaskCount"] = tasks("OPEN").into();
    properties["resolvedTaskCount"] = tasks("RESOLVED").into();
    if pull.open {
        let outcome = if super::checks::is_conflicting(pull) { "CONFLICTED" } else { "CLEAN" };
        properties["mergeResult"] = json!({"outcome": outcome, "current": true});
    }
    body["properties"] = properties;
    body
}

/// A comment with the replies to it. What this person may do with it is in comments of the API.
pub(super) fn comment(
    url: &str,
    state: &State,
    repo: &RepoState,
    pull: &PullState,
    comment: &CommentState,
    reader: Option<&str>,
) -> Value {
    let facts = state.bitbucket_data_center.comments.get(&comment.id).cloned().unwrap_or_default();
    let is_reply = |other: &&CommentState| {
        let known = state.bitbucket_data_center.comments.get(&other.id);
        known.is_some_and(|facts| facts.parent == Some(comment.id))
    };
    let replies = pull.comments.iter().filter(is_reply);
    let replies: Vec<Value> = replies.map(|reply| self::comment(url, state, repo, pull, reply, reader)).collect();
    let mut properties = json!({"repositoryId": repo.id});
    if !comment.reactions.is_empty() {
        properties["reactions"] = reactions(url, state, comment);
    }
    let mut body = json!({
        "properties": properties, "id": comment.id, "version": facts.version, "text": comment.body,
        "author": person(url, state, &comment.author), "createdDate": millis(&comment.created_at),
        "updatedDate": millis(&comment.updated_at), "comments": replies, "tasks": [], "threadResolved": comment.hidden,
        "severity": facts.severity(), "state": facts.state(),
    });
    if let Some(reader) = reader {
        let may = |least| super::access::level(repo, reader) >= least;
        let is_own = comment.author.eq_ignore_ascii_case(reader);
        let may_delete = (is_own || may(super::Level::Admin)) && replies_are_none(&body);
        body["permittedOperations"] = json!({
            "editable": is_own, "transitionable": is_own || pull.author.eq_ignore_ascii_case(reader) || may(super::Level::Admin),
            "deletable": may_delete,
        });
    }
    if let Some(anchor) = facts.anchor {
        body["anchor"] = anchor;
    }
    body
}

fn replies_are_none(comment: &Value) -> bool {
    comment["comments"].as_array().is_none_or(Vec::is_empty)
}

/// Reactions to a comment, by their emoticon.
fn reactions(url: &str, state: &State, comment: &CommentState) -> Value {
    let mut names: Vec<&str> = comment.reactions.iter().map(|reaction| reaction.content.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &str| {
        let users = comment.reactions.iter().filter(|reaction| reaction.content == name);
        let users: Vec<Value> = users.map(|reaction| person(url, state, &reaction.user)).collect();
        json!({"emoticon": emoticon(name), "users": users})
    };
    names.into_iter().map(row).collect()
}

/// An emoticon (OpenAPI, `RestUserReaction`).
pub(super) fn emoticon(name: &str) -> Value {
    json!({"shortcut": name, "value": name})
}
