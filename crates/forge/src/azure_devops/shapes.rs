//! The state in the shapes of the REST API 7.0 (learn.microsoft.com/rest/api/azure/devops/git). Deliveries have the same shapes.

use super::super::HostKind;
use super::super::state::{CommentState, PullState, RepoState, ReviewState, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Id in the form of a GUID, made of a number.
pub(super) fn guid(number: u64) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

pub(super) fn collection(repo: &RepoState) -> &str {
    repo.owner.split('/').next().unwrap_or_default()
}

pub(super) fn project(repo: &RepoState) -> &str {
    repo.owner.split_once('/').map(|(_, project)| project).unwrap_or_default()
}

pub(super) fn collection_address(url: &str, repo: &RepoState) -> String {
    let page = HostKind::AzureDevOps.home(&repo.full_name());
    format!("{url}{}", page.split('/').take(3).collect::<Vec<_>>().join("/"))
}

/// Address of a repository in the API.
pub(super) fn repo_address(url: &str, repo: &RepoState) -> String {
    format!("{}/_apis/git/repositories/{}", collection_address(url, repo), guid(repo.id))
}

pub(super) fn repo(url: &str, repo: &RepoState) -> Value {
    let page = HostKind::AzureDevOps.home(&repo.full_name());
    json!({
        "id": guid(repo.id), "name": repo.name, "url": repo_address(url, repo),
        "project": {"id": project_id(repo), "name": project(repo), "state": "wellFormed"},
        "defaultBranch": "refs/heads/main", "remoteUrl": format!("{url}{page}"), "webUrl": format!("{url}{page}"),
        "size": repo.size_kib * 1024, "isDisabled": false,
    })
}

/// Id of a project, derived from its name: projects have no numbers here.
fn project_id(repo: &RepoState) -> String {
    let number =
        repo.owner.to_lowercase().bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_007);
    guid(number)
}

/// A person as the host describes one.
pub(super) fn person(state: &State, login: &str) -> Value {
    let id = state.users.get(&login.to_lowercase()).map_or(0, |user| user.id);
    json!({"id": guid(id), "displayName": login, "uniqueName": HostKind::AzureDevOps.unique_name(login)})
}

/// A pull request, without the data that has addresses of its own.
pub(super) fn pull(url: &str, state: &State, of: &RepoState, pull: &PullState) -> Value {
    let commit = |id: &str| json!({"commitId": id});
    let status = match pull {
        PullState { merged: Some(_), .. } => "completed",
        PullState { open: true, .. } => "active",
        _ => "abandoned",
    };
    // The latest vote of each person.
    let votes: BTreeMap<&str, &ReviewState> =
        pull.reviews.iter().map(|review| (review.user.as_str(), review)).collect();
    let voter = |review: &&ReviewState| {
        let mut person = person(state, &review.user);
        person["vote"] = review.vote.into();
        person
    };
    let labels: Vec<_> = pull.labels.iter().map(|name| json!({"name": name, "active": true})).collect();
    let mut body = json!({
        "repository": repo(url, of), "pullRequestId": pull.number, "codeReviewId": pull.number, "status": status,
        "createdBy": person(state, &pull.author), "creationDate": pull.created_at, "title": pull.title,
        "description": pull.body, "sourceRefName": format!("refs/heads/{}", pull.head_ref),
        "targetRefName": format!("refs/heads/{}", pull.base_ref), "isDraft": pull.draft, "mergeId": guid(pull.id),
        "mergeStatus": if pull.conflicts { "conflicts" } else { "succeeded" }, "labels": labels,
        "reviewers": votes.values().map(voter).collect::<Vec<_>>(), "lastMergeSourceCommit": commit(&pull.head_sha),
        "lastMergeTargetCommit": commit(&pull.base_sha), "supportsIterations": true,
    });
    if pull.head_repo != of.full_name()
        && let Ok(fork) = state.repo(&pull.head_repo)
    {
        body["forkSource"] = json!({"name": body["sourceRefName"], "repository": repo(url, fork)});
    }
    if let Some(closed) = &pull.closed_at {
        body["closedDate"] = json!(closed);
    }
    if let Some((merged, _)) = &pull.merged {
        body["lastMergeCommit"] = commit(merged);
    }
    body
}

/// A comment, the only one of its thread.
pub(super) fn comment(state: &State, comment: &CommentState) -> Value {
    json!({
        "id": 1, "parentCommentId": 0, "author": person(state, &comment.author), "content": comment.body,
        "publishedDate": comment.created_at, "lastUpdatedDate": comment.updated_at,
        "lastContentUpdatedDate": comment.updated_at, "commentType": "text",
    })
}

/// Returns all threads: one for each comment, and those in which the host records votes.
pub(super) fn threads(state: &State, pull: &PullState) -> Vec<Value> {
    let said = pull.comments.iter().map(|said| (said.id, thread(state, said)));
    let voted = pull.reviews.iter().map(|review| (review.id, vote(state, review)));
    let mut all: Vec<(u64, Value)> = said.chain(voted).collect();
    all.sort_by_key(|(id, _)| *id);
    all.into_iter().map(|(_, thread)| thread).collect()
}

pub(super) fn thread(state: &State, said: &CommentState) -> Value {
    let mut thread = json!({
        "id": said.id, "publishedDate": said.created_at, "lastUpdatedDate": said.updated_at, "isDeleted": false,
        "comments": [comment(state, said)], "properties": {}, "identities": null,
    });
    if said.hidden {
        thread["status"] = json!("closed");
    }
    thread
}

fn vote(state: &State, review: &ReviewState) -> Value {
    let (voter, at) = (person(state, &review.user), &review.submitted_at);
    json!({
        "id": review.id, "publishedDate": at, "lastUpdatedDate": at, "isDeleted": false,
        "comments": [{
            "id": 1, "parentCommentId": 0, "commentType": "system", "author": voter, "publishedDate": at,
            "lastUpdatedDate": at, "lastContentUpdatedDate": at,
            "content": format!("{} voted {}", review.user, review.vote),
        }],
        "properties": {
            "CodeReviewThreadType": {"$type": "System.String", "$value": "VoteUpdate"},
            "CodeReviewVoteResult": {"$type": "System.String", "$value": review.vote.to_string()},
            "CodeReviewVotedByIdentity": {"$type": "System.String", "$value": "1"},
        },
        "identities": {"1": voter},
    })
}
